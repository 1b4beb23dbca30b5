"""Hypothesis settings: the same examples on every machine; `--hypothesis-profile=explore` draws new ones."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)  # machines are shared: nothing is timed
settings.register_profile("explore", derandomize=False, print_blob=True, deadline=None)
settings.load_profile("repeatable")
