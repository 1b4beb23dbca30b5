"""Survival curves: lifelines without noise, intervals that cover what they say with it."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pytest
from lifelines import KaplanMeierFitter
from lifelines.utils import restricted_mean_survival_time

from tests.queries.cases import study_of, sum_query
from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table, Text
from tpmdp.errors import InputError
from tpmdp.planning.weights import Weights
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.guesses import NO_GUESSES, Guesses
from tpmdp.queries.kaplan_meier import WITH_SAMPLING, KaplanMeier
from tpmdp.queries.preview import preview
from tpmdp.queries.weighted_answers import weighted_answers

ENTRY: Final[dict[str, Any]] = {"kind": "kaplan_meier", "time": "t", "event": "e", "high": 10}
RUNS: Final = 400
LEAST: Final = 0.88  # coverage of 95 % in 400 runs is below it once in 10^7 times


def query_of(**changes: Any) -> Query:
    return sum_query({**ENTRY, **changes})


def people(shape: str, count: int, seed: int = 1) -> Table:
    """Times of an event or of censoring, and which of the two."""
    random = np.random.default_rng(seed)
    event, lost = (
        random.exponential(8.0, count),
        np.minimum(random.exponential(40.0, count), random.uniform(6, 12, count)),
    )
    if shape == "none":
        event = np.full(count, 99.0)
    elif shape == "at once":
        event, lost = np.full(count, 5.0), np.full(count, 99.0)
    elif shape == "heaped":
        event, lost = np.ceil(event), np.full(count, 99.0)
    elif shape == "all":
        event, lost = random.exponential(3.0, count), np.full(count, 99.0)
    return {"t": np.minimum(event, lost), "e": (event <= lost).astype(np.float64)}


SHAPES: Final = ("trial", "none", "at once", "heaped", "all")


def by_part(answers: list[Answer]) -> dict[str, Answer]:
    return {answer.part: answer for answer in answers}


def without_noise(query: Query, table: Table) -> dict[str, Answer]:
    return by_part(query.answers(query.statistic(table), len(table["t"]), 0.0))


# Without noise --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bins", [1, 2, 7, 50])
@pytest.mark.parametrize("count", [1, 2, 300, 5000])
@pytest.mark.parametrize("shape", SHAPES)
def test_without_noise_it_is_the_curve_of_lifelines_on_binned_times(shape: str, count: int, bins: int) -> None:
    table = people(shape, count)
    answers = without_noise(query_of(bins=bins), table)
    times, ends = np.asarray(table["t"]), np.linspace(0, 10, bins + 1)[1:]
    place = np.minimum(np.searchsorted(ends, times, side="right"), bins - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of lifelines, about pandas
        fitted = KaplanMeierFitter().fit(ends[place], (np.asarray(table["e"]) == 1) & (times < 10))
        mean = restricted_mean_survival_time(fitted, 10)
    wanted = np.atleast_1d(fitted.predict(ends * (1 + 1e-12)))
    values = [answer.value for part, answer in answers.items() if part.startswith("survival")]
    np.testing.assert_allclose(values, wanted, atol=1e-12)
    median = answers["median"]
    assert (math.inf if median.is_drowned else median.value) == pytest.approx(fitted.median_survival_time_)
    if not math.isnan(mean):  # as lifelines has it for one record
        assert answers["restricted mean to 10"].value == pytest.approx(mean, rel=1e-9)
    risks = fitted.event_table["at_risk"]
    for part, answer in answers.items():
        if part.startswith("at risk"):
            later = risks[risks.index > float(part.split()[-1]) + 1e-9]
            assert answer.value == pytest.approx(later.iloc[0] if len(later) else 0)


def test_sampling_is_greenwoods() -> None:
    table = people("trial", 400)
    (answer,) = (without_noise(query_of(bins=5), table)[part] for part in ["survival to 6"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = KaplanMeierFitter().fit(np.floor(np.asarray(table["t"]) / 2) * 2 + 2, table["e"])
    events = fitted.event_table.loc[2:6]
    variance = (events["observed"] / (events["at_risk"] * (events["at_risk"] - events["observed"]))).sum()
    limits = answer.further_interval(WITH_SAMPLING)
    assert limits is not None
    assert math.log(limits[1] / limits[0]) == pytest.approx(2 * 1.959963984540054 * math.sqrt(variance), rel=1e-6)
    assert answer.interval == (answer.value, answer.value)


def test_edges_may_be_uneven_and_times_may_lie_outside() -> None:
    table: Table = {"t": np.array([-3.0, 0.0, 1.0, 5.0, 99.0]), "e": np.array([1.0, 1.0, 2.0, 1.0, 1.0])}
    uneven = replace(query_of(), high=-math.inf, edges=(0.0, 1.0, 5.0))  # type: ignore[call-arg]
    answers = without_noise(uneven, table)
    assert [answers[f"survival to {time}"].value for time in (1, 5)] == pytest.approx([0.6, 0.6])
    assert answers["at risk at 1"].value == 3
    assert answers["restricted mean to 5"].value == pytest.approx(1 + 4 * 0.6)
    late = without_noise(replace(uneven, horizon=3.0), table)  # type: ignore[call-arg]
    assert late["restricted mean to 3"].value == pytest.approx(1 + 2 * 0.6)


def test_groups_and_conditions_answer_as_the_part_does_alone() -> None:
    table = {**people("trial", 600), "g": Text.of(["a", "b", "c"] * 200)}
    numbers = {name: np.asarray(table[name]) for name in ("t", "e")}
    groups = without_noise(query_of(by={"g": ["a", "b"]}), table)
    some = by_part(query_of(where="g = 'b'").answers(query_of(where="g = 'b'").statistic(table), 600, 0.0))
    alone = without_noise(query_of(), {name: column[1::3] for name, column in numbers.items()})
    assert len(groups) == 2 * len(alone)
    for part, answer in alone.items():
        assert groups[f"g b, {part}"].value == pytest.approx(answer.value, nan_ok=True)
        assert some[part].value == pytest.approx(answer.value, nan_ok=True)


# With noise -----------------------------------------------------------------------------------------------------------


def released(query: Query, table: Table, error: float, runs: int, seed: int = 2) -> list[dict[str, Answer]]:
    exact = query.statistic(table)
    noise = np.random.default_rng(seed).normal(0, error, (runs, query.dimension))
    return [by_part(query.answers(exact + each, len(table["t"]), error)) for each in noise]


def check_possible(answers: dict[str, Answer]) -> None:
    """Values and intervals are what could be: in [0, 1], falling, never of width zero."""
    curve = [answer for part, answer in answers.items() if part.startswith("survival")]
    values = [answer.value for answer in curve if not answer.is_drowned]
    assert all(later <= earlier for earlier, later in pairwise(values))
    for answer in curve:
        low, high = answer.interval
        assert 0 <= low < high <= 1
        assert answer.is_drowned == bool(answer.note)
        assert answer.is_drowned or low <= answer.value <= high
        wider = answer.further_interval(WITH_SAMPLING)
        assert wider is None if answer.is_drowned else wider is not None and wider[0] <= low < high <= wider[1]
    low, high = answers["median"].interval
    assert 0 < low <= high
    assert math.isfinite(high) or answers["median"].note


@pytest.mark.slow
@pytest.mark.parametrize("error", [0.1, 12.0, 60.0])
@pytest.mark.parametrize("part", [{}, {"where": "e >= 0"}, {"where": "e >= 0", "sizes": [1500]}], ids=str)
@pytest.mark.parametrize("shape", ["trial", "none", "all"])
def test_intervals_cover_the_answer_without_noise(shape: str, part: dict[str, Any], error: float) -> None:
    query, table = query_of(bins=20, horizon=8, **part), people(shape, 1500)
    truth = without_noise(query, table)
    runs = released(query, table, error, RUNS)
    for each in runs[:50]:
        check_possible(each)
    for name, exact in truth.items():
        value = math.inf if exact.is_drowned else exact.value
        slack = 1e-9 * max(1.0, exact.value if math.isfinite(value) else 1.0)
        covered = sum(each[name].interval[0] - slack <= value <= each[name].interval[1] + slack for each in runs)
        assert covered / RUNS >= LEAST, name
        if name.startswith("survival"):
            told = [each[name].interval for each in runs if not each[name].is_drowned]
            short = [low - slack <= value <= high + slack for low, high in told if high - low < 0.5]
            assert len(short) < RUNS / 2 or np.mean(short) < 0.999 + (shape == "none"), name


@pytest.mark.slow
def test_wider_intervals_cover_the_curve_of_the_population() -> None:
    """Samples of 800 people from an exponential law, each released once; the bins add no error to a curve at edges."""
    query, hits = query_of(bins=20, horizon=8), np.zeros((2, 3))
    random = np.random.default_rng(3)
    for seed in range(RUNS):
        table = people("all", 800, seed)
        noise = random.normal(0, 10.0, query.dimension)
        answers = by_part(query.answers(query.statistic(table) + noise, 800, 10.0))
        for place, time in enumerate((1, 3, 5)):
            answer, truth = answers[f"survival to {time}"], math.exp(-time / 3.0)
            wider = answer.further_interval(WITH_SAMPLING)
            for kind, (low, high) in enumerate((answer.interval, wider or (0.0, 1.0))):
                hits[kind, place] += low <= truth <= high
    assert (hits[1] / RUNS >= LEAST).all()
    assert (hits[1] / RUNS <= 0.99).all()
    assert (hits[0] < hits[1]).all()


def test_what_noise_hides_is_not_answered() -> None:
    query, table = query_of(bins=10), people("trial", 30)
    (answers,) = released(query, table, 50.0, 1)
    curve = [answer for part, answer in answers.items() if part.startswith("survival")]
    assert all(answer.is_drowned and answer.interval == (0.0, 1.0) and answer.note for answer in curve[-3:])
    assert answers["restricted mean to 10"].is_drowned
    assert answers["median"].interval[1] == math.inf


def test_a_curve_falls_on_where_it_is_hidden() -> None:
    """Its limit is the last one before."""
    (answers,) = released(query_of(bins=10), people("all", 2000), 30.0, 1)
    curve = [answer for part, answer in answers.items() if part.startswith("survival")]
    told = [answer for answer in curve if not answer.is_drowned]
    assert 0 < len(told) < len(curve)
    assert {answer.interval for answer in curve[len(told) :]} == {(0.0, told[-1].interval[1])}


@pytest.mark.parametrize("count", [0, 1])
def test_no_records_give_no_curve(count: int) -> None:
    query = query_of(bins=4, by={"g": ["a", "b"]})
    table = {**people("trial", count), "g": Text.of(["a"] * count)}
    exact = query.statistic(table)
    for error in (0.0, 1e-9, 3.0):
        for answer in query.answers(exact, count, error):
            assert 0 <= answer.interval[0] <= answer.interval[1]


def test_public_sizes_sharpen_numbers_at_risk() -> None:
    table = {**people("trial", 900), "g": Text.of(["a", "b", "b"] * 300)}
    plain, sized = query_of(by={"g": ["a", "b"]}), query_of(by={"g": ["a", "b"]}, sizes=[300, 600])
    first, second = (by_part(query.answers(query.statistic(table), 900, 5.0)) for query in (plain, sized))
    assert first["g b, at risk at 0"].standard_error > 5
    assert second["g b, at risk at 0"].interval == (600.0, 600.0)
    assert second["g a, at risk at 0"].value == 300
    assert second["g b, survival to 5"].standard_error < first["g b, survival to 5"].standard_error


@pytest.mark.parametrize(
    ("entry", "top", "complaint"),
    [
        ({"sizes": [5]}, {}, "is known: remove it"),
        ({"sizes": [20, 20], "by": {"g": [1, 2]}}, {}, "more than all 30 records"),
        ({"sizes": [5, 5], "by": {"g": [1, 2]}, "where": "t > 1"}, {"weighting": "balanced"}, "`weighting`"),
        ({"sizes": [5, 5], "by": {"g": [1, 2]}}, {"tolerate": 1, "guarantee": "statistical"}, "`tolerate`"),
    ],
    ids=["all", "too many", "weights", "dropouts"],
)
def test_sizes_that_could_not_hold_are_refused(entry: dict[str, Any], top: dict[str, Any], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        study_of({"name": "q", **ENTRY, **entry}, **top)


def test_weights_widen_intervals_and_leave_no_statement_about_sampling() -> None:
    query, table = query_of(bins=10), people("trial", 1000)
    total = query.statistic(table) + np.random.default_rng(4).normal(0, 5.0, query.dimension)
    uneven = Weights(np.array([1.0, 0.9]), np.array([500.0, 500.0]), 50.0, 20.0)
    for plain, weighted in zip(
        query.answers(total, 1000, 5.0), weighted_answers(query, total, 1000, noise=5.0, weights=uneven), strict=True
    ):
        assert weighted.further == ()
        assert weighted.always is not None
        assert weighted.always[0] <= plain.interval[0]
        assert weighted.always[1] >= plain.interval[1]


def test_tables_leave_most_points_out() -> None:
    query = query_of(bins=24)
    parts = [answer.part for answer in query.answers(query.typical(100.0), 100, 1.0)]
    shown = [part for part in parts if part not in query.fine_parts]
    assert len(parts) == 24 + 6 + 2
    assert len([part for part in shown if part.startswith("survival")]) == 6
    assert shown[-1] == "survival to 10"
    grouped = query_of(bins=24, by={"g": ["a"]}).fine_parts
    assert grouped == {f"g a, {part}" for part in query.fine_parts}


def test_previews_know_a_curve_whose_times_are_guessed() -> None:
    query = query_of(bins=10)
    guesses = Guesses.parse({"columns": {"t": {"mean": 9, "spread": 3}, "e": {"mean": 0.3}}})
    bars = [answer.standard_error for answer in query.answers(query.typical(3000.0), 3000, 5.0)]
    known = preview(query, 3000, 5.0, guesses=guesses, bars=bars)
    unknown = preview(query, 3000, 5.0, guesses=NO_GUESSES, bars=bars)
    assert sum(each.is_known for each in known) > sum(each.is_known for each in unknown)
    assert known[0].resolution == 1.0  # of the median


def test_no_noise_gives_the_same_curve_whether_totals_are_public() -> None:
    table = people("trial", 500)
    exact = without_noise(query_of(), table)
    some = query_of().partial("some")
    for part, answer in without_noise(some, table).items():
        assert answer.value == pytest.approx(exact[part].value, nan_ok=True)
    assert isinstance(some, KaplanMeier)


def simulated_errors(query: Query, table: Table, error: float) -> FloatArray:
    exact = without_noise(query, table)
    names = [part for part in exact if part.startswith("survival")]
    runs = released(query, table, error * query.spread, 60)
    return np.array([[each[name].value - exact[name].value for name in names] for each in runs])


def test_errors_hardly_grow_with_the_number_of_bins() -> None:
    table = people("trial", 2000)
    few, many = (simulated_errors(query_of(bins=bins), table, 5.0) for bins in (10, 100))
    assert np.nanstd(many[:, :70]) < 2 * np.nanstd(few[:, :7])
