"""A simulation of everything: real parties and real ledgers, with a network, crashes and hostile parties as plain data.

What counts as failure is in `invariants`. What is not simulated: HTTP, TLS, the scheduler of the operating system, and
the disk below SQLite. A commit counts as synced, since the ledger asks SQLite for `synchronous = EXTRA`; a crash undoes
the transaction under way and drops all that was in memory.
"""
