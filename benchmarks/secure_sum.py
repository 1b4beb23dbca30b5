"""The masked sum over loopback with real processes: against MPyC, and against the same relay without privacy."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.timing import Row, times
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Spec

PLAIN = "benchmarks.plain_worker"


@dataclass(frozen=True)
class Size:
    parties: int = 20
    entries: int = 100_000
    repeats: int = 5
    growth: tuple[int, int] = (10, 40)
    """Numbers of parties that are compared, with threshold 5 or one less than the fewest parties."""
    growth_entries: tuple[int, ...] = (100_000, 1_000_000)
    memory: tuple[int, int] = (100, 1_000_000)
    """Parties and entries of the session whose memory is measured."""


FULL = Size()
TOY = Size(parties=3, entries=10, repeats=1, growth=(2, 3), growth_entries=(10,), memory=(2, 10))


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
        """From the start of the session, with all processes connected, to the last party that is done."""
        self.engine = RelayEngine(module)
        outcome = self.engine.run(self.terms, self.identities, self.vectors, 600.0)
        assert (outcome.sums[0] == self.total).all()
        self.sent = outcome.bytes_sent
        return self.engine.seconds


def mpyc_seconds(parties: int, entries: int) -> float:
    program = str(Path(__file__).with_name("mpyc_sum.py"))
    command = [sys.executable, program, str(entries), f"-M{parties}", "--no-prss"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    seconds = re.search(r"seconds ([0-9.]+)", done.stdout)
    assert seconds is not None
    return float(seconds[1])


def against_peers(size: Size) -> list[Row]:
    parties, entries = size.parties, size.entries
    work = Sum(parties, (parties - 1) // 2, entries)  # MPyC's own threshold
    ours, plain = [], []
    for _ in range(size.repeats):
        plain.append(work.seconds(PLAIN))
        ours.append(work.seconds())  # last, for the bytes that are looked at below
    mine, bare, theirs = statistics.median(ours), statistics.median(plain), mpyc_seconds(parties, entries)
    shape = f"n = {parties}, d = {entries:,}"
    neighbours = len(work.terms.neighbours(1))
    extra = max(work.sent) - work.terms.words_bytes
    allowed = 0.05 * work.terms.words_bytes + 200 * neighbours
    note = f"{extra:,} bytes over {work.terms.words_bytes:,}, HTTP included; {allowed:,.0f} allowed"
    return [
        Row(f"secure sum against MPyC 0.11, {shape}", times(theirs / mine), "at least 50x", "higher is faster"),
        Row(f"secure sum over the same sum without privacy, {shape}", times(mine / bare), "at most 3x", "same relay"),
        Row("bytes a party sends beyond its vector", f"{extra / work.terms.words_bytes:.1%}", "at most 5 %", note),
    ]


def against_size(size: Size) -> list[Row]:
    rows = []
    fewest, most = size.growth
    threshold = min(5, fewest - 1)
    for entries in size.growth_entries:
        few, many = Sum(fewest, threshold, entries), Sum(most, threshold, entries)
        repeats = min(3, size.repeats)
        each = [min(work.seconds() for _ in range(repeats)) / work.terms.count for work in (few, many)]
        note = f"bytes a party sends: {few.sent[1]:,} and {many.sent[1]:,}"
        what = f"time per party, n = {most} against n = {fewest}, t = {threshold}, d = {entries:,}"
        rows.append(Row(what, times(each[1] / each[0]), "about 1x", note))
    parties, entries = size.memory
    large = Sum(parties, min(5, parties - 1), entries)
    seconds = large.seconds("benchmarks.memory_worker")
    vectors = [line["grown_kib"] * 1024 / large.terms.words_bytes for line in large.engine.reports]
    note = f"in {seconds:.0f} s on all cores; another party: {max(vectors[1:]):.1f}; n d would be {parties}"
    return [*rows, Row(f"receiver's memory, n = {parties}, d = {entries:,}", f"{vectors[0]:.1f} vectors", "O(d)", note)]


def rows(size: Size = FULL) -> list[Row]:
    """The rows on the secure sum."""
    return against_peers(size) + against_size(size)
