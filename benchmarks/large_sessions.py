"""What a session costs a party as their number grows: all parties in this process, in memory, without a network.

A core's X25519 agreements per second, measured beside it, say what the milliseconds mean on another machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.timing import Row, best_seconds
from tpmdp._util.arrays import FloatArray
from tpmdp.engines.memory import MemoryEngine
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Spec

_HOURS_S = 6 * 3600.0


Shape = tuple[int, int, int, int]


@dataclass(frozen=True)
class Size:
    sessions: tuple[Shape, ...] = (
        (50, 10, 1, 0),
        (100, 10, 1, 0),
        (200, 10, 1, 0),
        (400, 10, 1, 0),
        (1000, 10, 1, 0),
        (1000, 10, 1, 200),
        (1000, 500, 1, 0),
        (1000, 500, 21, 0),
        (1000, 500, 21, 200),
    )
    """Parties, threshold, entries, and parties that may drop out."""


FULL, TOY = Size(), Size(((4, 1, 1, 0), (12, 9, 2, 0), (7, 1, 2, 2)))


@dataclass(frozen=True)
class Cost:
    """Of one session: processor time by party, the most that any of them sends, and who are keepers."""

    seconds: FloatArray
    sent_max: int
    keepers: tuple[int, ...]

    @property
    def each(self) -> float:
        """The average of a party that is no keeper and not the lead receiver, which is the first."""
        return float(np.delete(self.seconds, [0, *self.keepers]).mean())

    @property
    def keeper(self) -> float:
        """The average of a keeper."""
        return float(self.seconds[list(self.keepers)].mean())


@contextmanager
def metered(seconds: FloatArray, sessions: dict[int, PartySession]) -> Iterator[None]:
    """Adds up the time of each party, and notes the parties.

    Shares are by a clock that costs little to read; the total is processor time, that of the engine among it.
    """
    began = time.process_time()
    with ExitStack() as stack:
        for name in ("start", "receive"):
            timed = _timed(getattr(PartySession, name), seconds, sessions)
            stack.enter_context(patch.object(PartySession, name, timed))
        yield
    seconds *= (time.process_time() - began) / seconds.sum()


def _timed(work: Callable[..., list[bytes]], seconds: FloatArray, sessions: dict[int, PartySession]) -> Any:
    def timed(self: PartySession, *arguments: bytes) -> list[bytes]:
        began = time.perf_counter()
        try:
            return work(self, *arguments)
        finally:
            seconds[self.index] += time.perf_counter() - began
            sessions[self.index] = self

    return timed


def cost(parties: int, threshold: int, entries: int, tolerate: int = 0) -> Cost:
    spec = Spec(epsilon=1.0, delta=np.full(parties, 1e-6), threshold=threshold, receivers=[0])
    plan = plan_on_grid(spec, 1.0, entries, groups=tolerate > 0)
    identities = [Ed25519PrivateKey.generate() for _ in range(parties)]
    roster = tuple(identity.public_key().public_bytes_raw() for identity in identities)
    terms = Terms.of("benchmark", plan, 1.0, roster, tolerate=tolerate)
    rows = np.random.default_rng(1).integers(-1000, 1000, (parties, entries))
    vectors = [to_words(row, plan.grid.word) for row in rows]
    seconds, sessions = np.zeros(parties), dict[int, PartySession]()
    with metered(seconds, sessions):
        outcome = MemoryEngine().run(terms, identities, vectors, _HOURS_S)
    assert (outcome.sums[0] == rows.sum(axis=0)).all()
    return Cost(seconds, max(outcome.bytes_sent), sessions[0].current.keepers)


def agreements_per_second() -> float:
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    return 1 / best_seconds(lambda: own.exchange(other))


def rows(size: Size = FULL) -> list[Row]:
    """The rows on sessions of many parties."""
    lines = []
    for parties, threshold, entries, tolerate in size.sessions:
        measured = cost(parties, threshold, entries, tolerate)
        neighbours = len(MaskGraph.draw(parties, threshold, bytes(32)).partners(0).neighbours)
        note = (
            f"{1000 * measured.each:.1f} ms; {measured.seconds.sum():.1f} s of processor time for all, "
            f"{measured.seconds[0]:.2f} s of them at the lead receiver; about {neighbours} neighbours; "
            f"a party sends at most {measured.sent_max:,} bytes"
        )
        if tolerate:
            note += f"; each of {len(measured.keepers)} keepers {1000 * measured.keeper:.0f} ms"
        what = f"a party's share of a session, n = {parties:,}, t = {threshold}, d = {entries}"
        what += f", {tolerate} may drop out" if tolerate else ""
        lines.append(Row(what, f"{measured.each * agreements_per_second():,.0f} X25519", "", note))
    return lines
