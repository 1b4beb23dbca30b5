"""Inner products between columns of different parties: the mpyc engine against unchanged MPyC, and how it grows."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from benchmarks.timing import Row, best_seconds, times
from tpmdp.engines.direct.engine import DirectEngine, Watch
from tpmdp.engines.direct.gram_shape import GramShape
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.terms import Terms
from tpmdp.queries.vertical_query import VerticalQuery
from tpmdp.spec import Spec


@dataclass(frozen=True)
class Size:
    parties: tuple[int, ...] = (3, 5, 7)
    records: int = 10_000
    columns: int = 5
    repeats: int = 3
    growth: tuple[int, int] = (5, 10)
    """Numbers of parties that are compared, with a column for each of the larger number."""


FULL, TOY = Size(), Size(parties=(3,), records=20, repeats=1, growth=(3, 4))


class Vertical:
    """Columns dealt out to the parties in turn, and all products between columns of different parties."""

    def __init__(self, parties: int, records: int, columns: int, threshold: int | None = None) -> None:
        held = [len(range(party, columns, parties)) for party in range(parties)]
        self.parameters = {"records": records, "columns": held, "local": [0] * parties, "scale": 1}
        dimension = GramShape(self.parameters).dimension
        threshold = (parties - 1) // 2 if threshold is None else threshold
        spec = Spec(epsilon=1.0, delta=np.full(parties, 1e-6), threshold=threshold, receivers=[0])
        plan = plan_on_grid(spec, 1.0, dimension)
        self.identities = [Ed25519PrivateKey.generate() for _ in range(parties)]
        roster = tuple(identity.public_key().public_bytes_raw() for identity in self.identities)
        self.terms = Terms.of("benchmark", plan, 1.0, roster)
        random = np.random.default_rng(1)
        self.tables = [random.integers(-100, 100, (count, records)) for count in held]
        self.values = [table.reshape(-1) for table in self.tables]
        self.noises = [np.zeros(dimension, dtype=np.int64)] * parties
        self.sent: tuple[int, ...] = ()
        self.shape = f"n = {parties}, t = {threshold}, {records:,} records, {columns} columns"

    def clear(self) -> list[int]:
        """The products in NumPy, without privacy."""
        parties = range(len(self.tables))
        products = [self.tables[i] @ self.tables[j].T for i in parties for j in parties if i < j]
        flat: list[int] = np.concatenate([product.reshape(-1) for product in products]).tolist()
        return flat

    def seconds(self, name: str = "mpyc", on_go: Watch | None = None) -> float:
        """From the start, with all processes up, to the last party that is done; connecting is included."""
        engine = DirectEngine(name, VerticalQuery.functions[name], self.parameters, on_go=on_go)
        outcome = engine.run_function(self.terms, self.identities, self.values, self.noises, 900.0)
        assert outcome.sums[0].tolist() == self.clear()
        self.sent = outcome.bytes_sent
        return engine.seconds


def mpyc_run(parties: int, records: int, columns: int) -> tuple[float, int]:
    """Unchanged MPyC: seconds from the moment all are connected, and bytes that the first party sent."""
    program = str(Path(__file__).with_name("mpyc_gram.py"))
    command = [sys.executable, program, str(records), str(columns), f"-M{parties}", "--no-prss", "-L33", "-K66"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=900)
    measured = re.search(r"seconds ([0-9.]+) sent ([0-9]+)", done.stdout)
    assert measured is not None
    return float(measured[1]), int(measured[2])


def against_mpyc(parties: int, size: Size) -> Row:
    work = Vertical(parties, size.records, size.columns)
    ours, theirs, sent = [], [], 0
    for _ in range(size.repeats):
        ours.append(work.seconds())
        seconds, sent = mpyc_run(parties, size.records, size.columns)
        theirs.append(seconds)
    mine, other = statistics.median(ours), statistics.median(theirs)
    clear = best_seconds(work.clear)
    note = (
        f"{mine:.2f} s over {other:.2f} s; party 1 sends {work.sent[0]:,} bytes, in MPyC {sent:,} (no encryption, "
        f"pickles); NumPy in clear {clear * 1000:.1f} ms"
    )
    return Row(f"inner products against unchanged MPyC 0.11, {work.shape}", times(mine / other), "at most 3x", note)


def growth(size: Size) -> list[Row]:
    repeats = min(2, size.repeats)
    few, many = Vertical(3, size.records, size.columns), Vertical(3, 10 * size.records, size.columns)
    each = [min(work.seconds() for _ in range(repeats)) for work in (few, many)]
    note = f"{each[0]:.2f} s and {each[1]:.2f} s; most bytes of a party {max(few.sent):,} and {max(many.sent):,}"
    rows = [Row(f"time for 10 times the records, {many.shape}", times(each[1] / each[0]), "about 10x", note)]
    fewest, most = size.growth
    small, large = (Vertical(parties, size.records, columns=most) for parties in size.growth)
    each = [min(work.seconds() for _ in range(repeats)) for work in (small, large)]
    note = f"{each[0]:.2f} s and {each[1]:.2f} s on all cores; most bytes {max(small.sent):,} and {max(large.sent):,}"
    return [
        *rows,
        Row(f"time of {most} parties over {fewest}, {large.shape}", times(each[1] / each[0]), "about 4x", note),
    ]


def rows(size: Size = FULL) -> list[Row]:
    """The rows on inner products."""
    return [against_mpyc(parties, size) for parties in size.parties] + growth(size)
