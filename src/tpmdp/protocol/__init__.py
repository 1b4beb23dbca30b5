"""The masked-sum protocol, without any input or output. So far: who masks with whom, and the masks."""
