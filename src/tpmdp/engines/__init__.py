"""Engines run a session among its parties: one contract, several ways to move the bytes.

`ideal` and `memory` run in this process. `relay` and `mpyc` have the same parts: `engine` runs all parties on one
machine, each in the process of a `worker`.
"""
