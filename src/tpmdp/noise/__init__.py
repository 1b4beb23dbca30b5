"""Exact noise: where random bits come from, and how they become discrete Gaussians."""
