"""Functions on MPyC's Shamir shares, for sessions of `engines.direct`: no pickles, and openings that hide.

Any function of three parties or more, of which fewer than half collude.
"""
