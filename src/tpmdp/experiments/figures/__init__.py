"""The figures of the experiments."""
