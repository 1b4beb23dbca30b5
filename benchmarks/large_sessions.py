"""What a session costs a party as their number grows: all parties in this process, in memory, without a network.

A core's X25519 agreements per second, measured beside it, say what the milliseconds mean on another machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from benchmarks.timing import Row, best_seconds
from tpmdp.engines.memory import MemoryEngine
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Spec

_HOURS_S = 6 * 3600.0


@dataclass(frozen=True)
class Size:
    sessions: tuple[tuple[int, int, int], ...] = (
        (50, 10, 1),
        (100, 10, 1),
        (200, 10, 1),
        (400, 10, 1),
        (1000, 10, 1),
        (1000, 500, 1),
        (1000, 500, 21),
    )
    """Parties, threshold and entries."""


FULL, TOY = Size(), Size(((4, 1, 1), (12, 9, 2)))


@dataclass(frozen=True)
class Cost:
    """Of one session: processor time of all parties, and the most that any of them sends."""

    seconds: float
    sent_max: int


def cost(parties: int, threshold: int, entries: int) -> Cost:
    spec = Spec(epsilon=1.0, delta=np.full(parties, 1e-6), threshold=threshold, receivers=[0])
    plan = plan_on_grid(spec, 1.0, entries)
    identities = [Ed25519PrivateKey.generate() for _ in range(parties)]
    roster = tuple(identity.public_key().public_bytes_raw() for identity in identities)
    terms = Terms.of("benchmark", plan, 1.0, roster)
    rows = np.random.default_rng(1).integers(-1000, 1000, (parties, entries))
    vectors = [to_words(row, plan.grid.word) for row in rows]
    began = time.process_time()
    outcome = MemoryEngine().run(terms, identities, vectors, _HOURS_S)
    seconds = time.process_time() - began
    assert (outcome.sums[0] == rows.sum(axis=0)).all()
    return Cost(seconds, max(outcome.bytes_sent))


def agreements_per_second() -> float:
    own, other = X25519PrivateKey.generate(), X25519PrivateKey.generate().public_key()
    return 1 / best_seconds(lambda: own.exchange(other))


def rows(size: Size = FULL) -> list[Row]:
    """The rows on sessions of many parties."""
    lines = []
    for parties, threshold, entries in size.sessions:
        measured = cost(parties, threshold, entries)
        neighbours = len(MaskGraph.draw(parties, threshold, bytes(32)).partners(0).neighbours)
        each = measured.seconds / parties
        note = (
            f"{1000 * each:.1f} ms; {measured.seconds:.1f} s of processor time for all; about {neighbours} neighbours; "
        )
        note += f"a party sends at most {measured.sent_max:,} bytes"
        what = f"a party's share of a session, n = {parties:,}, t = {threshold}, d = {entries}"
        lines.append(Row(what, f"{each * agreements_per_second():,.0f} X25519", "", note))
    return lines
