"""The masked sum over loopback with real processes: against MPyC, and against the same relay without privacy."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.timing import Row, times
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Spec

PARTIES, ENTRIES, REPEATS = 20, 100_000, 5
PLAIN = "benchmarks.plain_worker"


class Sum:
    """A sum of random vectors, run with or without privacy."""

    def __init__(self, parties: int, threshold: int, entries: int) -> None:
        spec = Spec(epsilon=1.0, delta=np.full(parties, 1e-6), threshold=threshold, receivers=[0])
        plan = plan_on_grid(spec, 1.0, entries)
        self.identities = [Ed25519PrivateKey.generate() for _ in range(parties)]
        roster = tuple(identity.public_key().public_bytes_raw() for identity in self.identities)
        self.terms = Terms.of("benchmark", plan, 1.0, roster)
        random = np.random.default_rng(1)
        rows = random.integers(-1000, 1000, (parties, entries))
        self.total = rows.sum(axis=0)
        self.vectors = [to_words(row, plan.grid.word) for row in rows]
        self.engine = RelayEngine()
        self.sent: tuple[int, ...] = ()

    def seconds(self, module: str = "tpmdp.engines.relay.worker") -> float:
        """From the word go, all processes up and connected, to the last party done."""
        self.engine = RelayEngine(module)
        outcome = self.engine.run(self.terms, self.identities, self.vectors, 600.0)
        assert (outcome.sums[0] == self.total).all()
        self.sent = outcome.bytes_sent
        return self.engine.seconds


def mpyc_seconds(parties: int, entries: int) -> float:
    program = str(Path(__file__).with_name("mpyc_sum.py"))
    command = [sys.executable, program, str(entries), f"-M{parties}", "--no-prss"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    found = re.search(r"seconds ([0-9.]+)", done.stdout)
    assert found is not None
    return float(found[1])


def against_peers() -> list[Row]:
    work = Sum(PARTIES, (PARTIES - 1) // 2, ENTRIES)  # MPyC's own threshold
    ours, plain = [], []
    for _ in range(REPEATS):
        ours.append(work.seconds())
        plain.append(work.seconds(PLAIN))
    work.seconds()
    mine, bare, theirs = statistics.median(ours), statistics.median(plain), mpyc_seconds(PARTIES, ENTRIES)
    shape = f"n = {PARTIES}, d = {ENTRIES:,}"
    neighbours = len(work.terms.neighbours(1))
    extra = max(work.sent) - work.terms.words_bytes
    allowed = 0.05 * work.terms.words_bytes + 200 * neighbours
    note = f"{extra:,} bytes over {work.terms.words_bytes:,}, HTTP included; {allowed:,.0f} allowed"
    return [
        Row(f"secure sum against MPyC 0.11, {shape}", times(theirs / mine), "at least 50x", "higher is faster"),
        Row(f"secure sum over the same sum without privacy, {shape}", times(mine / bare), "at most 3x", "same relay"),
        Row("bytes a party sends beyond its vector", f"{extra / work.terms.words_bytes:.1%}", "at most 5 %", note),
    ]


def against_size() -> list[Row]:
    rows = []
    for entries in (ENTRIES, 1_000_000):
        few, many = Sum(10, 5, entries), Sum(40, 5, entries)
        each = [min(work.seconds() for _ in range(3)) / work.terms.count for work in (few, many)]
        note = f"bytes a party sends: {few.sent[1]:,} and {many.sent[1]:,}"
        what = f"time a party, n = 40 against n = 10, t = 5, d = {entries:,}"
        rows.append(Row(what, times(each[1] / each[0]), "about 1x", note))
    large = Sum(100, 5, 1_000_000)
    seconds = large.seconds("benchmarks.memory_worker")
    vectors = [line["grown_kib"] * 1024 / large.terms.words_bytes for line in large.engine.reports]
    note = f"in {seconds:.0f} s on all cores; another party: {max(vectors[1:]):.1f}; n d would be 100"
    return [*rows, Row("receiver's memory, n = 100, d = 1,000,000", f"{vectors[0]:.1f} vectors", "O(d)", note)]


def rows() -> list[Row]:
    """The rows on the secure sum."""
    return against_peers() + against_size()
