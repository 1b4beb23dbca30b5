"""A rehearsal: a study run many times on made-up tables, to see the error and the coverage of its answers beforehand.

The tables are the same in every run; the protocol and its noise are real. Nothing is charged or written.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.binomial import binomial_bounds, upper_bound
from tpmdp._util.progress import Progress
from tpmdp.data.table import Table, Text
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.computation import MaskedSum
from tpmdp.study.answers import without_noise
from tpmdp.study.expectation import expect
from tpmdp.study.model import Study
from tpmdp.study.run import run
from tpmdp.study.sample import sample_columns

RUNS: Final = 200
RUNS_MAX: Final = 1_000_000
_PROMISED: Final = 0.95  # what an interval says it covers
_DOUBT: Final = 1e-3  # how often a rehearsal of a right study remarks on coverage


@dataclass(frozen=True)
class RehearsedAnswer:
    """How one answer came out in all runs, against the true answer of the made-up tables.

    Errors are those of runs that gave a value. An interval counts also where noise hid the value.
    """

    query: str
    part: str
    truth: float
    expected: float | None  # standard error that `tpmdp query explain` announces; None if it cannot be known
    runs: int
    errors: tuple[float, ...]  # of the runs that gave a value
    stated: float | None  # median of the standard errors that those runs stated
    intervals: int  # runs with an interval
    covered: int  # intervals that hold the truth
    doubt: float  # the chance that coverage as promised looks clearly less

    @property
    def label(self) -> str:
        """Query and part."""
        return f"{self.query}: {self.part}" if self.part else self.query

    @property
    def error(self) -> float | None:
        """Root mean square error; None if no run gave a value."""
        return math.sqrt(math.fsum(each * each for each in self.errors) / len(self.errors)) if self.errors else None

    @property
    def bias(self) -> float | None:
        """Mean error; None if no run gave a value."""
        return math.fsum(self.errors) / len(self.errors) if self.errors else None

    @property
    def hidden(self) -> int:
        """Runs in which noise hid the value."""
        return self.runs - len(self.errors)

    @property
    def coverage(self) -> tuple[float, float, float] | None:
        """Share of the intervals that hold the truth, with its exact 95 % interval; None without intervals."""
        if not self.intervals:
            return None
        return (self.covered / self.intervals, *binomial_bounds(self.covered, self.intervals, 0.95))

    @property
    def covers_less(self) -> bool:
        """Whether the intervals clearly hold the truth less often than they say."""
        return bool(self.intervals) and upper_bound(self.covered, self.intervals, self.doubt) < _PROMISED


@dataclass(frozen=True)
class Rehearsal:
    """All answers of a study, rehearsed."""

    study: Study
    runs: int
    seed: int | None  # of the made-up tables; None if tables were given
    answers: tuple[RehearsedAnswer, ...]


def rehearse(
    study: Study,
    runs: int = RUNS,
    seed: int = 0,
    *,
    tables: Mapping[str, Table] | None = None,
    progress: Progress | None = None,
) -> Rehearsal:
    """Run the study so many times on the same made-up tables, with fresh noise each time.

    `tables` are used instead of made-up ones: they must be synthetic, as the result depends on them without noise.

    >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
    ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
    >>> rehearsal = rehearse(study, runs=3)
    >>> [(answer.label, answer.hidden, answer.intervals) for answer in rehearsal.answers]
    [('count of age', 0, 3)]
    """
    _check(study, runs, seed)
    given = made_up_tables(study, seed) if tables is None else tables
    truths = {(each.query, each.part): each.value for each in without_noise(study, given)}
    results: dict[tuple[str, str], list[Answer]] = defaultdict(list)
    for number in range(runs):
        for answer in run(study, given).answers:
            results[answer.query, answer.part].append(answer)
        if progress is not None:
            progress(number + 1, runs)
    expected = _expected(study)
    answers = [
        _summary(key, truth, results[key], runs=runs, expected=expected.get(key), doubt=_DOUBT / len(truths))
        for key, truth in truths.items()
    ]
    return Rehearsal(study, runs, seed if tables is None else None, answers=tuple(answers))


def made_up_tables(study: Study, seed: int) -> dict[str, Table]:
    """Tables for all parties with records, within the public bounds; the same for the same seed.

    >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
    ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
    >>> len(made_up_tables(study, 0)["north"]["age"])
    100
    """
    random = np.random.default_rng(seed)
    guesses = replace(study.typical, correlation=study.typical.scenarios()[0].correlation)
    guessed = replace(study, typical=guesses)
    tables: dict[str, Table] = {}
    for name in (party.name for party in study.parties if party.records):
        kinds = study.columns_of(name)
        tables[name] = {
            column: Text.of([str(value) for value in values])
            if kinds[column] == "text"
            else np.array(values, dtype=np.float64)
            for column, values in sample_columns(guessed, name, random).items()
        }
    return tables


def _check(study: Study, runs: int, seed: int) -> None:
    if not 2 <= runs <= RUNS_MAX:
        raise InputError("runs", runs, f"must be from 2 to {RUNS_MAX}", "200 show errors to 5 %")
    if seed < 0:
        raise InputError("seed", seed, "must not be negative", "any whole number from 0 will do")
    if not isinstance(study.computation, MaskedSum):
        rule = "cannot be rehearsed: each run of a non-additive query starts a process for every party"
        raise InputError("query", study.queries[0].name, rule, "run a trial of it with tpmdp run")


def _expected(study: Study) -> dict[tuple[str, str], float | None]:
    """The standard errors that the study announces."""
    pairs = [pair for each in expect(study).queries for pair in zip(each.answers, each.errors, strict=True)]
    return {(answer.query, answer.part): error.likely for answer, error in pairs}


def _summary(
    key: tuple[str, str], truth: float, answers: Sequence[Answer], *, runs: int, expected: float | None, doubt: float
) -> RehearsedAnswer:
    valued = [answer for answer in answers if not answer.is_drowned]
    stated = _median(np.array([answer.standard_error for answer in valued]))
    limits = [answer.interval for answer in answers if answer.interval != (-math.inf, math.inf)]
    return RehearsedAnswer(
        *key,
        truth=truth,
        expected=expected,
        runs=runs,
        errors=tuple(answer.value - truth for answer in valued) if math.isfinite(truth) else (),
        stated=stated,
        intervals=len(limits) if math.isfinite(truth) else 0,
        covered=sum(low <= truth <= high for low, high in limits),
        doubt=doubt,
    )


def _median(values: FloatArray) -> float | None:
    middle = float(np.median(values)) if len(values) else math.inf
    return middle if math.isfinite(middle) else None
