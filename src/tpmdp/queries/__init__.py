"""Queries: each knows its local statistic, bounds, sensitivity, how the sum becomes an answer, and its error bars."""
