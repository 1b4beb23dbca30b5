"""Audit ten studies, and four faults planted in the code: `python -m benchmarks.audits [--out FILE] [--draws N]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from tpmdp._util.arrays import IntArray
from tpmdp.data.table import Table
from tpmdp.ledger import rounded_up
from tpmdp.noise.grid import Grid
from tpmdp.noise.source import NoiseSource
from tpmdp.protocol.masks import Mask, from_words, to_words
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import noisy_vector
from tpmdp.queries.catalogue import KINDS
from tpmdp.queries.computation import MaskedSum
from tpmdp.queries.count import Count
from tpmdp.report.numbers import number
from tpmdp.spec import Party
from tpmdp.study import session
from tpmdp.study.audit import DOUBT, Audit, AuditedParty, audit_study
from tpmdp.study.contribution import Contribution
from tpmdp.study.model import Study

COUNT = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
MEAN = {"name": "stay", "kind": "mean", "column": "stay", "low": 0, "high": 30}
BINS = {"name": "ages", "kind": "histogram", "column": "age", "edges": [0, 10, 20, 30, 40, 50, 60, 80, 100]}
VARIANCE = {"name": "vary", "kind": "variance", "column": "stay", "low": 0, "high": 30, "where": "age >= 18"}
QUANTILES = {"name": "half", "kind": "quantiles", "column": "stay", "low": 0, "high": 30, "bins": 64}
LOGISTIC = {
    "name": "long",
    "kind": "logistic_regression",
    "target": "stay",
    "threshold": 7,
    "bounds": {"age": [0, 100]},
}

HEAD = """# Audits

Written by `make audits`. [Rehearse and audit](../how-to/audit.md) says what an audit measures.
Every epsilon is that of all sessions together, at the party's delta. *At least*: lower confidence
bounds; all those of an audit hold together with probability 99.9 %.

## Ten studies

Of each study the party is shown whose bound comes closest to its charge.

"""
FAULTS_HEAD = """
## Planted faults

The same for a small study while a fault is planted in the code that is audited.

"""


def study_of(
    epsilon: Sequence[float], *queries: Mapping[str, Any], weights: Sequence[float] | None = None, **more: Any
) -> Study:
    """A study among as many parties as there are budgets, with 400 records each unless given."""
    records = more.pop("records", 400)
    parties = [{"name": f"p{place + 1}", "epsilon": each, "records": records} for place, each in enumerate(epsilon)]
    if weights is not None:
        parties = [{**party, "weight": weight} for party, weight in zip(parties, weights, strict=True)]
    head = {"name": "audited", "delta": 1e-6, "threshold": 1, "receivers": "all", "parties": parties}
    return Study.parse({**head, "queries": list(queries), **more}, {**KINDS, "too_narrow": TooNarrow})


def ten_studies() -> dict[str, Study]:
    """Studies that differ in all that noise depends on."""
    mixed = [0.2, 0.5, 1.0, 2.0, 4.0]
    return {
        "two parties, a count": study_of([1.0, 2.0], COUNT),
        "five parties, a count and a mean, threshold 2": study_of(mixed, COUNT, MEAN, threshold=2),
        "20 parties, a count, threshold 10": study_of(4 * mixed, COUNT, threshold=10),
        "10 parties, a histogram, one receiver, threshold 3": study_of(2 * mixed, BINS, threshold=3, receivers=["p7"]),
        "6 parties, a mean, all others may collude": study_of([1.0] * 6, MEAN, threshold=5),
        "8 parties, a mean, balanced weights": study_of([0.1, 0.2, *mixed, 4.0], MEAN, weighting="balanced"),
        "5 parties, a count, all records of a party protected": study_of(mixed, COUNT, unit="party", records=40),
        "5 parties, four queries, one party may drop out": study_of(mixed, BINS, MEAN, VARIANCE, QUANTILES, tolerate=1),
        "4 parties, logistic regression in four rounds": study_of(mixed[1:], LOGISTIC),
        "4 parties, budgets from 0.01 to 20, delta 1e-9, statistical": study_of(
            [0.01, 0.01, 20.0, 20.0], COUNT, delta=1e-9, guarantee="statistical"
        ),
    }


# Faults --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TooNarrow(Count):
    """A count that declares nine tenths of its sensitivity."""

    @property
    def spread(self) -> float:  # type: ignore[override]
        return 0.9


@contextmanager
def missing_noise() -> Iterator[None]:
    """The last party adds no noise."""
    right = noisy_vector

    def faulty(terms: Terms, index: int, encoded: IntArray, source: NoiseSource, **group: Any) -> Mask:
        if index == terms.count - 1:
            return to_words(encoded, terms.grid.word)
        return right(terms, index, encoded, source=source, **group)

    with patch.object(session, "noisy_vector", faulty):
        yield


@contextmanager
def no_fault() -> Iterator[None]:
    """The code as it is."""
    yield


@contextmanager
def weights_forgotten() -> Iterator[None]:
    """Data are encoded with weight 1, while plan and charge count the weights."""
    right = MaskedSum.encode

    def faulty(self: MaskedSum, party: Party, table: Table, grid: Grid, *, bound: float, weight: float) -> IntArray:
        return right(self, party, table, grid, bound=bound / weight, weight=1.0)

    with patch.object(MaskedSum, "encode", faulty):
        yield


@contextmanager
def noise_used_twice() -> Iterator[None]:
    """A second session has the noise of the first."""
    right, last = session.draw_vector, dict[str, IntArray]()

    def faulty(contribution: Contribution) -> Mask:
        word, party = contribution.terms.grid.word, contribution.party
        if contribution.study.session > 1:
            return to_words(contribution.under_noise + last[party], word)
        drawn = right(contribution)
        last[party] = from_words(drawn, word) - contribution.under_noise
        return drawn

    with patch.object(session, "draw_vector", faulty):
        yield


def faults() -> Iterator[tuple[str, Study, int, Callable[[], AbstractContextManager[None]]]]:
    """What is wrong, a study, the number of sessions, and the fault."""
    three, weights = [0.5, 1.0, 2.0], [0.5, 0.7, 1.0]
    plain, weighted = study_of(three, COUNT), study_of(three, COUNT, weights=weights, weighting="own")
    yield "none", plain, 2, no_fault
    yield "noise of one party missing", plain, 1, missing_noise
    yield "sensitivity 10 % too small", study_of(three, {**COUNT, "kind": "too_narrow"}), 1, no_fault
    yield "none, with weights", weighted, 1, no_fault
    yield "weights in the charge, but not in the data", weighted, 1, weights_forgotten
    yield "the same noise in two sessions", plain, 2, noise_used_twice


# The page ------------------------------------------------------------------------------------------------------------


def table(first: str, rows: Sequence[tuple[str, Audit]]) -> str:
    """One line per audit: its most exposed party."""
    lines = [
        f"| {first} | sessions | draws | promised | charged | estimated | at least (variance) | at least (counts) | |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |",
    ]
    for name, result in rows:
        worst = max(result.parties, key=closeness)
        cells = [name, str(result.releases), f"{result.draws:,}", rounded_up(worst.promised, 4)]
        cells += [rounded_up(worst.charged, 4), *map(number, (worst.estimated, worst.gaussian, worst.counted))]
        cells.append("**exceeded**" if result.exceeds else f"no excess in {len(result.parties)} parties")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def closeness(each: AuditedParty) -> float:
    """The larger bound, as a share of the charge."""
    return max(each.gaussian, each.counted) / each.charged


def measure(draws: int | None = None, doubt: float = DOUBT) -> tuple[list[tuple[str, Audit]], list[tuple[str, Audit]]]:
    """The audits of ten studies, for one session and for two, and those of planted faults."""
    studies, planted = [], []
    for name, study in ten_studies().items():
        for releases in (1, 2):
            studies.append((name, audit_study(study, releases, draws=draws, doubt=doubt)))
            print(f"audited: {name}, {releases}", file=sys.stderr)
    for name, study, releases, fault in faults():
        with fault():
            planted.append((name, audit_study(study, releases, draws=draws, doubt=doubt)))
        print(f"planted: {name}", file=sys.stderr)
    return studies, planted


def main() -> None:
    """Print the page, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--draws", type=int)
    options = parser.parse_args()
    studies, planted = measure(options.draws)
    text = HEAD + table("study", studies) + FAULTS_HEAD + table("fault", planted)
    if options.out is None:
        print(text)
    else:
        options.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
