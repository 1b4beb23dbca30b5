"""Functions of two parties, and inner products of pairs among many, whoever colludes: SPU's CHEETAH protocol.

CHEETAH computes between two parties without a third one, from lattice encryption and oblivious transfer. Its results
stay additive shares, which go into a masked sum with everybody's noise. SPU runs in an interpreter of its own
(`interpreter`), in a process per party (`pair_worker`), and reaches the other party through our sealed links
(`tunnel`).
"""
