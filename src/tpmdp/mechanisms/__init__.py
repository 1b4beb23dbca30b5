"""Mechanisms to compare: the plan of this package (G) beside every baseline of the paper, with one interface."""
