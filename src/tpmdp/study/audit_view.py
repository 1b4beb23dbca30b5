"""What the worst coalition against each party sees of a session, drawn by the code of a session: for audits.

Masks cancel in what a coalition sees, and it knows what its members put in. So its view is the sum of what the honest
parties submit, and no more (Theory, P3 and P6). Each party's vector is encoded and given its noise as in a session.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.progress import Progress
from tpmdp.data.table import Table
from tpmdp.ledger import Totals
from tpmdp.protocol.masks import from_words
from tpmdp.protocol.terms import Terms
from tpmdp.study import cost
from tpmdp.study import session as sessions
from tpmdp.study.audit_entries import EntryWatch
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.model import Study
from tpmdp.study.neighbours import Neighbours


@dataclass(frozen=True, eq=False)
class AuditedSession:
    """What all parties put into one session, or round: with the first of their tables, and with one that differs."""

    study: Study
    terms: Terms
    contributions: tuple[tuple[Contribution, ...], tuple[Contribution, ...]]

    @classmethod
    def of(cls, study: Study, terms: Terms, tables: Mapping[str, Neighbours]) -> AuditedSession:
        """The contributions under terms that are about the study."""

        def all_of(chosen: Mapping[str, Table]) -> tuple[Contribution, ...]:
            names = (party.name for party in study.parties)
            return tuple(contribute(study, terms, name, table=chosen.get(name, {})) for name in names)

        first = all_of({name: each.first for name, each in tables.items()})
        return cls(study, terms, (first, all_of({name: each.group for name, each in tables.items()})))

    def noise(self, world: int) -> IntArray:
        """One noisy vector of every party, without what it encoded: a row for each."""
        rows = []
        for contribution in self.contributions[world]:
            vector = from_words(sessions.draw_vector(contribution), self.terms.grid.word)
            rows.append(vector - contribution.under_noise)
        return np.array(rows)


@dataclass(frozen=True, eq=False)
class View:
    """What the coalition that leaves the least noise against a party sees of one session; it is empty if none can."""

    terms: Terms
    index: int
    coalition: tuple[int, ...]
    mu: float  # that the session is charged
    direction: FloatArray  # on which the party's neighbouring tables are apart by 1; zeros if nothing moves
    group_shift: float  # how far apart tables are there that differ in several records
    reached: float  # how far neighbouring tables are apart, as a share of the sensitivity

    @classmethod
    def of(cls, session: AuditedSession, tables: Neighbours, index: int) -> View:
        """The view on the party of this index."""
        terms = session.terms
        first, group = (contributions[index] for contributions in session.contributions)
        neighbour = contribute(session.study, terms, first.party, table=tables.neighbour)
        moved = (neighbour.encoded - first.encoded).astype(np.float64)
        length, sensitivity = float(moved @ moved), float(terms.spec.sensitivity[index])
        direction = moved / length if length else moved
        return cls(
            terms,
            index,
            worst_coalition(terms, index),
            mu=cost.charge_of(terms, index).mu,
            direction=direction,
            group_shift=float((group.encoded - first.encoded) @ direction),
            reached=math.sqrt(length) * terms.grid.step / sensitivity if sensitivity else 0.0,
        )

    @property
    def honest(self) -> int:
        """How many parties outside the coalition should add noise."""
        return int(np.count_nonzero(np.delete(self.terms.sigma, list(self.coalition))))


@dataclass(frozen=True, eq=False)
class Target:
    """One party in all sessions. The statistic that tells its tables apart adds them up, each for what it tells."""

    party: str
    delta: float
    promised: float  # epsilon of its budget in one release
    charged: Totals
    group: int  # in how many records tables differ on which draws are counted
    views: tuple[View, ...]

    @property
    def mu(self) -> float:
        """What is charged for all sessions."""
        return math.sqrt(self.charged.mu_squared_total)

    @property
    def shares(self) -> FloatArray:
        """How much each session counts: its share of what all should tell."""
        squares = np.array([(view.mu * view.reached) ** 2 for view in self.views])
        total = float(squares.sum())
        return squares / total if total else np.full(len(squares), 1 / len(squares))

    @property
    def group_shift(self) -> float:
        """By how much the tables that differ in several records move the statistic."""
        return float(self.shares @ [view.group_shift for view in self.views])

    @property
    def reached(self) -> float:
        """How far neighbouring tables are apart, as a share of what the charge allows for."""
        squares = [view.mu**2 for view in self.views]
        moved = math.fsum(square * view.reached**2 for square, view in zip(squares, self.views, strict=True))
        return math.sqrt(moved / math.fsum(squares)) if moved else 0.0


def worst_coalition(terms: Terms, party: int) -> tuple[int, ...]:
    """The coalition that leaves the least honest noise: a receiver, and the loudest of the others; found by trying.

    It shares no code with the plan and with the charge.

    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> from tpmdp.spec import Spec
    >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0, 3.0], delta=1e-6, threshold=1, receivers=[0, 2]), bound=1.0)
    >>> terms = Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1", bytes(31) + b"2"))
    >>> [worst_coalition(terms, party) for party in range(3)]
    [(2,), (0,), (0,)]
    """
    size = max(1, int(np.broadcast_to(terms.spec.threshold, (terms.count,))[party]))
    squares = [int(sigma) ** 2 for sigma in terms.sigma.tolist()]
    others = sorted((each for each in range(terms.count) if each != party), key=lambda each: -squares[each])
    best: tuple[int, ...] = ()
    for receiver in (each for each in others if terms.spec.receivers[each]):
        members = (receiver, *[each for each in others if each != receiver][: size - 1])
        if not best or sum(squares[each] for each in members) > sum(squares[each] for each in best):
            best = members
    return tuple(sorted(best))


def sign_patterns(releases: int) -> FloatArray:
    """Signs of the sessions, a row for each pattern: all alike, and such that any two sessions differ in some row.

    A person's change may move the sum of one session up and that of another down. Noise that two sessions share then
    cancels in their difference.

    >>> sign_patterns(3).tolist()
    [[1.0, 1.0, 1.0], [1.0, -1.0, 1.0], [1.0, 1.0, -1.0]]
    """
    numbers = np.arange(releases)
    bits = [1.0 - 2.0 * ((numbers >> bit) & 1) for bit in range((releases - 1).bit_length())]
    return np.array([np.ones(releases), *bits])


def drawn_noise(
    targets: Sequence[Target],
    all_sessions: Sequence[AuditedSession],
    draws: int,
    *,
    watches: Sequence[EntryWatch],
    progress: Progress | None,
) -> FloatArray:
    """What the statistic of each target and pattern had besides its mean: by target, pattern, table and draw.

    The watches, one for each session, are shown every draw.
    """
    eyes = [_Eyes.of(session, [each.views[place] for each in targets]) for place, session in enumerate(all_sessions)]
    shares = np.array([each.shares for each in targets]).T
    signs = sign_patterns(len(all_sessions))
    result = np.empty((len(targets), len(signs), 2, draws // 2))
    for draw in range(draws // 2):
        for world in range(2):
            seen = np.empty((len(eyes), len(targets)))
            for place, (session, watch) in enumerate(zip(all_sessions, watches, strict=True)):
                noise = session.noise(world)
                seen[place] = eyes[place].look(noise)
                watch.add(world, noise)
            result[:, :, world, draw] = (signs @ (shares * seen)).T
        if progress is not None:
            progress(draw + 1, draws // 2)
    return result


@dataclass(frozen=True, eq=False)
class _Eyes:
    """All coalitions, as they look at one session."""

    entries: IntArray  # that some change moves; others say nothing
    directions: FloatArray  # a column for each view
    honest: FloatArray  # a row for each view: 1 for a party that is honest

    @classmethod
    def of(cls, session: AuditedSession, views: Sequence[View]) -> _Eyes:
        moved = np.array([view.direction for view in views]).T
        entries = np.flatnonzero(moved.any(axis=1))
        honest = [[float(each not in view.coalition) for each in range(session.terms.count)] for view in views]
        return cls(entries, directions=moved[entries], honest=np.array(honest))

    def look(self, noise: IntArray) -> FloatArray:
        """The projection of the honest parties' noise, for each view."""
        moving = noise[:, self.entries].astype(np.float64)
        return np.einsum("vp,pv->v", self.honest, moving @ self.directions)  # type: ignore[no-any-return]
