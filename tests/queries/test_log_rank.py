"""The log-rank test: lifelines without noise, its size and intervals with it."""

from __future__ import annotations

import math
import warnings
from typing import Any, Final

import numpy as np
import pytest
from lifelines.statistics import multivariate_logrank_test

from tests.queries.cases import study_of, sum_query
from tpmdp._util.arrays import FloatArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.kaplan_meier import WITH_SAMPLING
from tpmdp.queries.log_rank import CHI_SQUARE, P_VALUE, LogRank

ENTRY: Final[dict[str, Any]] = {"kind": "log_rank", "time": "t", "event": "e", "high": 10, "bins": 20, "group": "g"}
TWO: Final[dict[str, Any]] = {**ENTRY, "categories": [0, 1]}
LESS: Final = "g 1, observed less expected"
RATIO: Final = "hazard ratio, g 1 to g 0"
RUNS: Final = 250


def people(sizes: tuple[int, ...], ratio: float, seed: int) -> Table:
    random = np.random.default_rng(seed)
    group = np.repeat(np.arange(len(sizes)), sizes)
    event = random.exponential(12.0, len(group)) / ratio**group
    lost = np.minimum(random.exponential(60.0, len(group)), random.uniform(7, 12, len(group)))
    return {"t": np.minimum(event, lost), "e": (event <= lost) * 1.0, "g": group * 1.0}


def by_part(query: Query, total: FloatArray, error: float) -> dict[str, Answer]:
    return {answer.part: answer for answer in query.answers(total, 10_000, error)}


@pytest.mark.parametrize("sizes", [(1, 1), (3, 2), (200, 300), (400, 10, 250)], ids=str)
def test_without_noise_it_is_the_test_of_lifelines_on_binned_times(sizes: tuple[int, ...]) -> None:
    query = sum_query({**ENTRY, "categories": list(range(len(sizes)))})
    table = people(sizes, 0.7, seed=4)
    answers = by_part(query, query.statistic(table), 0.0)
    times = np.asarray(table["t"])
    ends = np.minimum(np.floor(times * 2), 19) + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = multivariate_logrank_test(ends, table["g"], (np.asarray(table["e"]) == 1) & (times < 10))
    if math.isnan(wanted.test_statistic) or wanted.test_statistic == 0:  # as lifelines has it where nobody is at risk
        return
    assert answers[CHI_SQUARE].value == pytest.approx(wanted.test_statistic, rel=1e-6)
    assert answers[P_VALUE].value == pytest.approx(wanted.p_value, rel=1e-6)
    assert answers[P_VALUE].note == ""
    low, high = answers[P_VALUE].interval
    assert low == pytest.approx(high)


def rejections(query: Query, sizes: tuple[int, int], ratio: float, error: float) -> tuple[float, float]:
    """Shares of the samples in which p is at most 5 %: with the noise counted, and ignored."""
    assert isinstance(query, LogRank)
    random, hits = np.random.default_rng(5), np.zeros(2)
    for seed in range(RUNS):
        total = query.statistic(people(sizes, ratio, seed))
        test = query.test_of(total + random.normal(0, error, len(total)), sum(sizes), error)
        hits += [test.p_value(test.chi_square(with_noise=each)) <= 0.05 for each in (True, False)]
    return float(hits[0] / RUNS), float(hits[1] / RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("known", [True, False])
def test_equal_arms_are_told_apart_as_rarely_as_stated(known: bool) -> None:
    """5 % in 250 samples is at most 13.2 % but for one time in a million."""
    query = sum_query({**TWO, "sizes": [600, 400]} if known else TWO)
    counted, ignored = rejections(query, (600, 400), 1.0, 12.0)
    assert 0.0 < counted < 0.132
    assert ignored > counted


@pytest.mark.slow
def test_different_arms_are_told_apart() -> None:
    counted, _ = rejections(sum_query(TWO), (1000, 1000), 0.6, 8.0)
    assert counted > 0.8


@pytest.mark.slow
def test_intervals_cover_what_there_would_be_without_noise() -> None:
    query, table = sum_query(TWO), people((900, 900), 0.7, seed=1)
    exact = query.statistic(table)
    truth = by_part(query, exact, 0.0)
    random, hits = np.random.default_rng(6), dict.fromkeys((LESS, RATIO, CHI_SQUARE, P_VALUE), 0)
    for _ in range(RUNS):
        answers = by_part(query, exact + random.normal(0, 6.0, len(exact)), 6.0)
        for part in hits:
            low, high = answers[part].interval
            hits[part] += low <= truth[part].value <= high
            assert low <= answers[part].value <= high
            wider = answers[part].further_interval(WITH_SAMPLING)
            assert wider is None or wider[0] < low < high < wider[1]
    assert all(count / RUNS > 0.86 for count in hits.values()), hits


def test_what_noise_hides_is_not_answered() -> None:
    query = sum_query(TWO)
    exact = query.statistic(people((10, 10), 1.0, seed=1))
    for total in (exact, np.zeros_like(exact)):
        answers = by_part(query, total + np.random.default_rng(2).normal(0, 50.0, len(exact)), 50.0)
        assert answers[P_VALUE].is_drowned
        assert answers[P_VALUE].interval == (0.0, 1.0)
        assert answers[P_VALUE].note
    nothing = by_part(query, np.zeros_like(exact), 0.0)
    assert nothing[CHI_SQUARE].is_drowned


def test_the_curves_are_those_of_the_groups() -> None:
    grouped = sum_query({**ENTRY, "categories": [0, 1], "where": "t >= 0"})
    curves = {key: value for key, value in TWO.items() if key not in ("group", "categories")}
    alone = sum_query({**curves, "kind": "kaplan_meier", "by": {"g": [0, 1]}, "where": "t >= 0"})
    table = people((50, 60), 0.7, seed=1)
    assert (grouped.statistic(table) == alone.statistic(table)).all()
    assert grouped.spread == alone.spread
    answers = by_part(grouped, grouped.statistic(table) + 1.0, 2.0)
    for part, answer in by_part(alone, alone.statistic(table) + 1.0, 2.0).items():
        assert answers[part].interval == answer.interval
    assert grouped.fine_parts == alone.fine_parts


def test_weights_are_refused() -> None:
    with pytest.raises(InputError, match="log-rank"):
        study_of({"name": "q", **TWO}, weighting="balanced")
