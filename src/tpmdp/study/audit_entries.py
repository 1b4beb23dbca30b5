"""Whether noise is as large as planned in every single entry of the vector: for audits.

An audit's bounds look in the one direction in which the tables of a party differ. Others may differ in other entries.
Theory, "Audit", D4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.gaussian.lower_bounds import variance_bound
from tpmdp.protocol.terms import Terms
from tpmdp.study.model import Study

_TESTS_MAX: Final = 1 << 20  # in all sessions: 32 MB


@dataclass(frozen=True)
class EntryFinding:
    """What single entries show: how many tests there were, and the one with the least noise beside its plan."""

    tested: int  # entries, of each session as each coalition sees it
    thin: int  # of these, how many have less variance than planned, beyond chance
    session: str
    query: str
    entry: int  # of the query's part of the vector, from 1
    coalition: tuple[str, ...]
    share: float  # upper bound on the variance there, as a share of the planned one


@dataclass(frozen=True, eq=False)
class EntryWatch:
    """Squares of the noise that coalitions see in single entries of one session, added up over draws."""

    study: Study
    terms: Terms
    coalitions: tuple[tuple[int, ...], ...]
    entries: IntArray
    honest: FloatArray = field(repr=False)  # a row for each coalition: 1 for a party that is honest
    sums: FloatArray = field(repr=False)  # by table, coalition and entry
    squares: FloatArray = field(repr=False)
    draws: IntArray = field(repr=False)  # by table

    @classmethod
    def of(cls, study: Study, terms: Terms, coalitions: Iterable[tuple[int, ...]], *, most: int) -> EntryWatch:
        """A watch on all entries, or on so many that lie evenly where tests would be more than `most`."""
        every = tuple(sorted(each for each in set(coalitions) if each and np.delete(terms.sigma, list(each)).any()))
        honest = np.array([[float(party not in each) for party in range(terms.count)] for each in every])
        dimension = terms.grid.dimension
        width = min(dimension, max(1, most // max(1, len(every))))
        entries = np.arange(width, dtype=np.int64) * dimension // width
        shape = (2, len(every), width)
        return cls(
            study,
            terms,
            every,
            entries=entries,
            honest=honest.reshape(len(every), terms.count),
            sums=np.zeros(shape),
            squares=np.zeros(shape),
            draws=np.zeros(2, dtype=np.int64),
        )

    @property
    def tests(self) -> int:
        """How many variances are tested."""
        return len(self.coalitions) * len(self.entries)

    def add(self, world: int, noise: IntArray) -> None:
        """Count one draw of all parties' noise, a row for each, under one of the two tables."""
        seen = self.honest @ noise[:, self.entries].astype(np.float64)
        self.sums[world] += seen
        self.squares[world] += seen * seen
        self.draws[world] += 1

    def shares(self, doubt: float) -> FloatArray:
        """Upper bounds on the variances, as shares of the planned ones; each is too low with chance `doubt`."""
        centred = np.maximum(self.squares - self.sums**2 / self.draws[:, None, None], 0.0).sum(axis=0)
        planned = self.honest @ self.terms.sigma.astype(np.float64) ** 2
        return variance_bound(centred, int(self.draws.sum()), doubt) / planned[:, None]

    def finding(self, place: tuple[int, int], share: float, *, tested: int, thin: int) -> EntryFinding:
        """The finding whose least share is at this coalition and entry."""
        coalition, entry = self.coalitions[place[0]], int(self.entries[place[1]])
        for query in self.study.queries:
            if entry < query.dimension:
                break
            entry -= query.dimension
        names = tuple(self.study.parties[each].name for each in coalition)
        return EntryFinding(
            tested, thin, self.study.label, query=query.name, entry=entry + 1, coalition=names, share=share
        )


def watch_entries(
    sessions: Sequence[tuple[Study, Terms]], coalitions: Sequence[Iterable[tuple[int, ...]]]
) -> list[EntryWatch]:
    """A watch on each session, with the coalitions that look at it."""
    most = _TESTS_MAX // len(sessions)
    return [
        EntryWatch.of(study, terms, each, most=most) for (study, terms), each in zip(sessions, coalitions, strict=True)
    ]


def entry_doubt(watches: Sequence[EntryWatch], doubt: float) -> float:
    """The doubt of each test, if that of all together is given."""
    return doubt / max(1, sum(each.tests for each in watches))


def entry_finding(watches: Sequence[EntryWatch], doubt: float) -> EntryFinding | None:
    """What all watches saw, each test with this doubt; None if there was none."""
    seen = [(each, each.shares(doubt)) for each in watches if each.tests]
    if not seen:
        return None
    tested, thin = sum(each.tests for each, _ in seen), sum(int((shares < 1.0).sum()) for _, shares in seen)
    worst, shares = min(seen, key=lambda pair: float(pair[1].min()))
    coalition, entry = divmod(int(shares.argmin()), shares.shape[1])
    return worst.finding((coalition, entry), float(shares.min()), tested=tested, thin=thin)
