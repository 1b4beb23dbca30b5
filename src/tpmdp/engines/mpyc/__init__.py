"""Functions other than sums, on MPyC's Shamir sharing: our own links, no pickles, deadlines, and safe openings.

`engine` runs all parties on one machine, `worker_process` one party of a real session; `session` runs in a worker.
"""
