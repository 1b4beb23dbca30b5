"""A rehearsal measures what runs give: true values, errors and coverage, on made-up tables and with real noise."""

from __future__ import annotations

import io
import json
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from rich.console import Console

from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.catalogue import EXAMPLES, KINDS, SUM_KINDS
from tpmdp.queries.ranges import numbers
from tpmdp.report.rehearsal import print_rehearsal, rehearsal_json
from tpmdp.study.model import Study
from tpmdp.study.rehearsal import RehearsedAnswer, made_up_tables, rehearse
from tpmdp.study.sample import sample_columns

RUNS = 200
FAR = 5.0 / math.sqrt(2 * RUNS)  # of a measured standard error: exceeded with probability below 1e-6
COUNT = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
MEAN = {"name": "age", "kind": "mean", "column": "age", "low": 0, "high": 100}
VARIANCE = {"name": "vary", "kind": "variance", "column": "age", "low": 0, "high": 100}


def study_of(*queries: Mapping[str, Any], epsilon: float = 1.0, records: int = 400, **more: Any) -> Study:
    parties = [
        {"name": name, "epsilon": epsilon * factor, "records": records}
        for name, factor in zip("abc", (1, 2, 3), strict=True)
    ]
    head = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all"}
    return Study.parse({**head, "parties": parties, "queries": list(queries), **more}, {**KINDS, "bold": Bold})


@dataclass(frozen=True)
class Bold(Query):
    """A count whose author states half the error."""

    leaves: ClassVar[str] = "a number"
    dimension: ClassVar[int] = 1
    spread: ClassVar[float] = 1.0
    columns: ClassVar[Mapping[str, ColumnKind]] = {"age": "number"}

    def features(self, table: Table) -> list[FloatArray]:
        return [(numbers(table, "age") >= 65).astype(np.float64)]

    def answers(self, total: FloatArray, records: int, standard_error: float) -> list[Answer]:
        del records
        return [Answer(self.name, float(total[0]), standard_error / 2)]


@pytest.fixture(scope="module")
def answers() -> dict[str, RehearsedAnswer]:
    rehearsal = rehearse(study_of(COUNT, MEAN, {"name": "bold", "kind": "bold"}), RUNS)
    return {answer.query: answer for answer in rehearsal.answers}


@pytest.mark.slow
def test_the_truth_is_that_of_the_tables(answers: dict[str, RehearsedAnswer]) -> None:
    tables = made_up_tables(study_of(COUNT, MEAN), 0)
    ages = np.concatenate([np.asarray(table["age"]) for table in tables.values()])
    assert answers["old"].truth == np.count_nonzero(ages >= 65)
    assert answers["age"].truth == pytest.approx(ages.mean())


@pytest.mark.slow
def test_errors_are_those_that_a_study_announces(answers: dict[str, RehearsedAnswer]) -> None:
    for name in ("old", "age"):
        answer = answers[name]
        assert answer.error is not None
        assert answer.expected == pytest.approx(answer.stated)
        assert answer.error == pytest.approx(answer.expected, rel=FAR)
        assert answer.bias is not None
        assert abs(answer.bias) < 5 * answer.error / math.sqrt(RUNS)


@pytest.mark.slow
def test_intervals_cover_and_one_that_does_not_is_named(answers: dict[str, RehearsedAnswer]) -> None:
    for name in ("old", "age"):
        assert answers[name].covered > 165  # of 200 at 95 %: fewer with probability below 1e-8
        assert answers[name].intervals == RUNS
    bold = answers["bold"]  # at half the error an interval holds the truth in 67 % of runs
    assert bold.covers_less
    assert bold.coverage is not None
    assert 0.5 < bold.coverage[0] < 0.85


@pytest.mark.slow
def test_fresh_noise_in_every_run_and_the_same_tables(answers: dict[str, RehearsedAnswer]) -> None:
    assert len(set(answers["old"].errors)) == RUNS
    first, again, other = (made_up_tables(study_of(COUNT), seed) for seed in (3, 3, 4))
    assert all(np.array_equal(np.asarray(first[name]["age"]), np.asarray(again[name]["age"])) for name in first)
    assert not np.array_equal(np.asarray(first["a"]["age"]), np.asarray(other["a"]["age"]))


def test_what_noise_hides_is_counted_apart() -> None:
    where = {**MEAN, "where": "age >= 90"}  # few records meet it, and their number drowns
    (answer,) = rehearse(study_of(where, epsilon=0.01), 20).answers
    assert 0 < answer.hidden <= 20
    assert answer.hidden + len(answer.errors) == 20


def test_weights_leave_the_truth_as_it_is() -> None:
    plain = rehearse(study_of(COUNT), 2).answers[0]
    weighted = rehearse(study_of(COUNT, weighting="balanced"), 2).answers[0]
    assert weighted.truth == plain.truth
    assert weighted.stated != plain.stated


def test_given_tables_are_used() -> None:
    study = study_of(COUNT, records=2)
    tables: dict[str, Table] = {name: {"age": np.array([70.0, 10.0])} for name in "abc"}
    rehearsal = rehearse(study, 2, tables=tables)
    assert rehearsal.answers[0].truth == 3
    assert rehearsal.seed is None


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if KINDS[kind] in SUM_KINDS.values()])
def test_every_sum_can_be_rehearsed(kind: str) -> None:
    query = tomllib.loads(EXAMPLES[kind])
    rehearsal = rehearse(study_of(query), 3)
    assert rehearsal.answers
    for answer in rehearsal.answers:
        assert answer.query == query["name"]
        assert len(answer.errors) + answer.hidden == 3


def test_exact_studies_have_no_error() -> None:
    study = study_of(COUNT, threshold=0)
    with pytest.warns(UserWarning, match="no noise"):
        (answer,) = rehearse(study, 2).answers
    assert answer.error == 0


def test_made_up_tables_follow_the_guesses() -> None:
    columns = {"age": {"mean": 30, "spread": 5}, "smoker": {"mean": 0.1}}
    bounds = {"age": [0, 100], "weight": [0, 200], "smoker": [0, 1]}
    query = {"name": "r", "kind": "linear_regression", "target": "age", "bounds": bounds}
    study = study_of(query, records=20_000, typical={"columns": columns, "correlation": 0.5})
    data = sample_columns(study, "a", np.random.default_rng(1))
    age, weight, smoker = (np.array(data[name], dtype=float) for name in bounds)
    assert (age.mean(), age.std()) == pytest.approx((30, 5), rel=0.03)
    assert weight.mean() == pytest.approx(80, rel=0.03)
    assert smoker.mean() == pytest.approx(0.1, abs=0.02)
    assert np.corrcoef(age, weight)[0, 1] == pytest.approx(0.5, abs=0.05)
    assert np.corrcoef(age, smoker)[0, 1] > 0.2
    assert min(age.min(), weight.min()) >= 0


@pytest.mark.parametrize("settings", [{}, {"threshold": 12}, {"threshold": -3, "where": "age > 20"}])
def test_outcomes_of_a_regression_are_of_both_kinds(settings: dict[str, Any]) -> None:
    query = {"name": "r", "kind": "logistic_regression", "target": "ill", "bounds": {"age": [0, 100]}, **settings}
    outcomes = np.array(
        sample_columns(study_of(query, records=2000), "a", np.random.default_rng(1))["ill"], dtype=float
    )
    assert 0.2 < (outcomes >= settings.get("threshold", 0.5)).mean() < 0.8


@pytest.mark.parametrize("spread", [1e-7, 1e6])
def test_guesses_at_the_ends_of_the_possible_stay_within_bounds(spread: float) -> None:
    study = study_of(MEAN, typical={"columns": {"age": {"mean": 99.99, "spread": spread}}})
    ages = np.array(sample_columns(study, "a", np.random.default_rng(1))["age"], dtype=float)
    assert 0 <= ages.min() <= ages.max() <= 100


@pytest.mark.parametrize(("field", "value"), [("runs", 1), ("runs", 10**9), ("seed", -1)])
def test_bad_numbers_are_refused(field: str, value: int) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(InputError, match=field):
        rehearse(study_of(COUNT), **arguments)


def test_functions_on_shares_are_refused_with_a_remedy() -> None:
    query = {"name": "top", "kind": "maximum", "of": {key: COUNT[key] for key in ("kind", "column", "at_least")}}
    with pytest.raises(InputError, match="tpmdp run"):
        rehearse(study_of(query))


@pytest.mark.slow
def test_the_table_and_the_json_say_the_same(answers: dict[str, RehearsedAnswer]) -> None:
    rehearsal = replace(rehearse(study_of(COUNT), 2), answers=tuple(answers.values()), runs=RUNS)
    console = Console(width=140, file=io.StringIO())
    print_rehearsal(rehearsal, console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert "Rehearsal of demo / session 1: 200 runs on made-up tables" in text
    assert "bold: its interval holds the truth clearly less often than 95 % for these tables." in text
    assert "age: its interval" not in text
    shown = json.loads(json.dumps(rehearsal_json(rehearsal), allow_nan=False))
    assert shown["answers"][0]["truth"] == answers["old"].truth
    assert shown["answers"][2]["covers_less"] is True
