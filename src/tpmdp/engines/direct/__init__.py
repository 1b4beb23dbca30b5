"""Functions other than sums: the parties connect to each other, compute on what nobody may see, and open a result once.

`engine` runs all parties on one machine, `worker_process` one party of a real session; `session` runs in a worker. How
they compute is the job's: `engines.mpyc` on Shamir shares, `engines.spu` in pairs.
"""
