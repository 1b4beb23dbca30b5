"""The discrete Gaussian sampler against OpenDP's, on one core."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from benchmarks.timing import Row, best_seconds, single_core, times
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.source import system_source


@dataclass(frozen=True)
class Size:
    entries: int = 1_000_000
    peer_entries: int = 20_000


FULL, TOY = Size(), Size(entries=1000, peer_entries=100)


def rows(size: Size = FULL) -> list[Row]:
    """The rows on noise."""
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    zeros = np.zeros(size.peer_entries, dtype=np.int64).tolist()

    def compare(sigma: int) -> Row:
        peer, source = dp.m.make_gaussian(*space, scale=float(sigma)), system_source()
        theirs = best_seconds(lambda: peer(zeros), repeats=3) / size.peer_entries
        ours = best_seconds(lambda: discrete_gaussian(sigma, size.entries, source)) / size.entries
        return Row(f"exact noise against OpenDP, sigma = {sigma:,}", times(theirs / ours), "at least 50x")

    with single_core():
        return [compare(sigma) for sigma in (100, 1_000_000)]
