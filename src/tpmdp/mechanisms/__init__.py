"""Mechanisms to compare: the plans of this package (G, W) beside every baseline of the paper, with one interface."""
