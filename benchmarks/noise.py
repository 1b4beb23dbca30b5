"""The discrete Gaussian sampler against OpenDP's, on one core."""

from __future__ import annotations

import os

import numpy as np

from benchmarks.timing import Row, best_seconds, times
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.source import system_source

ENTRIES, PEER_ENTRIES = 1_000_000, 20_000


def rows() -> list[Row]:
    """The rows on noise."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    result = []
    for sigma in (100, 1_000_000):
        peer = dp.m.make_gaussian(*space, scale=float(sigma))
        zeros = np.zeros(PEER_ENTRIES, dtype=np.int64).tolist()
        theirs = best_seconds(lambda peer=peer, zeros=zeros: peer(zeros), repeats=3) / PEER_ENTRIES  # type: ignore[misc]
        source = system_source()
        ours = best_seconds(lambda sigma=sigma, source=source: discrete_gaussian(sigma, ENTRIES, source)) / ENTRIES  # type: ignore[misc]
        result.append(Row(f"exact noise against OpenDP, sigma = {sigma:,}", times(theirs / ours), "at least 50x"))
    os.sched_setaffinity(0, cores)
    return result
