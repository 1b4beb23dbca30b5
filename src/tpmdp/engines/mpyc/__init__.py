"""Functions that are not sums, on MPyC's Shamir sharing: our own links, no pickles, deadlines, and safe openings.

`engine` runs all parties on one machine, `process` one party of a real session; `session` is what runs in a worker.
"""
