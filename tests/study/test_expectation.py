"""What is expected of a study before it runs is what comes of it: error bars, charges, and what is saved together."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

from tests.queries.cases import records_at, statistic
from tpmdp.ledger import promise, square_up
from tpmdp.queries.base import Query
from tpmdp.study.answers import answers as answers_from
from tpmdp.study.expectation import expect
from tpmdp.study.model import Study

RECORDS: Final = {"a": 4000, "b": 2000, "c": 1000}
COUNT: Final = {"name": "c", "kind": "count", "column": "x", "at_least": 0}
MEAN: Final = {"name": "m", "kind": "mean", "column": "x", "low": -3, "high": 3}


def study_of(*queries: dict[str, Any], **top: Any) -> Study:
    epsilons = {"a": 0.5, "b": 1.0, "c": 2.0}
    parties = [{"name": name, "records": count, "epsilon": epsilons[name]} for name, count in RECORDS.items()]
    base = {"name": "s", "threshold": 1, "receivers": "all", "delta": 1e-6, "parties": parties}
    return Study.parse({**base, **top, "queries": list(queries)})


def terms_of(study: Study) -> Any:
    return study.with_keys({name: name.encode() * 32 for name in RECORDS}).terms()


@pytest.mark.parametrize(
    "queries",
    [
        [COUNT],
        [MEAN],
        [{**COUNT, "where": "w = 1"}],
        [{**MEAN, "where": "w = 1"}],
        [{**MEAN, "by": {"w": [0, 1]}}],
        [COUNT, MEAN],
        [{**COUNT, "weight": 4}, {**MEAN, "where": "w = 1"}],
    ],
    ids=["count", "mean", "count where", "mean where", "mean by", "both", "both, weighted"],
)
@pytest.mark.slow
def test_expected_errors_are_those_of_simulated_releases(queries: list[dict[str, Any]]) -> None:
    """Half the records meet the condition, values lie around the middle of the range, as is assumed."""
    study = study_of(*queries)
    terms = terms_of(study)
    random = np.random.default_rng(1)
    tables = {
        name: {"x": random.normal(0, 0.5, count), "w": (np.arange(count) % 2).astype(np.float64)}
        for name, count in RECORDS.items()
    }
    wanted = {name: {column: table[column] for column in study.columns_of(name)} for name, table in tables.items()}
    exact = np.sum([statistic(study, name, table) for name, table in wanted.items()], axis=0) / terms.grid.step
    deviation = terms.standard_deviation / terms.grid.step
    found = []
    for _ in range(3000):
        steps = np.rint(exact + random.normal(0, deviation, study.dimension)).astype(np.int64)
        found.append([answer.value for answer in answers_from(study, terms, steps)])
    expected = [answer.standard_error for query in expect(study).queries for answer in query.answers]
    assert np.std(found, axis=0) == pytest.approx(expected, rel=0.06)


def test_noise_is_that_of_the_terms_in_the_scale_of_each_query() -> None:
    study = study_of(
        {**COUNT, "weight": 4}, MEAN, {"name": "v", "kind": "variance", "column": "x", "low": 0, "high": 1}
    )
    deviation = terms_of(study).standard_deviation
    found = expect(study)
    assert [one.noise for one in found.queries] == pytest.approx(
        [deviation / scale for scale in study.computation.scales]
    )
    assert [one.entries for one in found.queries] == [1, 1, 2]
    for one in found.queries:
        assert isinstance(one.query, Query)
        each = [one.query.sensitivity("record", records) for records in RECORDS.values()]
        assert one.sensitivity == (min(each), max(each))


def epsilon_of(mu: float, delta: float) -> float:
    """Of Gaussian noise, by its exact curve (Balle and Wang 2018)."""

    def excess(epsilon: float) -> float:
        curve = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon) * norm.cdf(-mu / 2 - epsilon / mu)
        return float(curve) - delta

    return float(brentq(excess, 1e-9, 100.0, xtol=1e-12))


@pytest.mark.parametrize("unit", ["record", "party"])
@pytest.mark.parametrize("threshold", [0, 1, 2])
def test_charges_are_those_of_the_terms(threshold: int, unit: str) -> None:
    study = study_of(COUNT, MEAN, threshold=threshold, unit=unit)
    terms = terms_of(study)
    charges = expect(study).charges
    assert list(charges) == list(RECORDS)
    for place, name in enumerate(RECORDS):
        mu, closeness = terms.charge(place)
        assert charges[name] == promise(square_up(mu), closeness, 1e-6)
        if math.isfinite(mu):
            assert charges[name] == pytest.approx(epsilon_of(mu, 1e-6), rel=1e-6)
        if threshold:
            assert charges[name] <= study.parties[place].epsilon * (1 + 1e-9)


def test_queries_apart_would_be_noisier() -> None:
    queries: list[dict[str, Any]] = [
        COUNT,
        MEAN,
        {"name": "h", "kind": "histogram", "column": "x", "edges": [-1, 0, 1]},
    ]
    for one in expect(study_of(*queries)).queries:
        assert one.apart is not None
        assert one.apart > 1.2
    (alone,) = expect(study_of(COUNT)).queries
    assert alone.apart is None


def test_apart_is_the_noise_of_studies_of_one_query_with_equal_parts_of_the_budget() -> None:
    together = expect(study_of(COUNT, MEAN))
    parties = [
        {"name": name, "records": count, "epsilon": epsilon / 2, "delta": 5e-7}
        for (name, count), epsilon in zip(RECORDS.items(), (0.5, 1.0, 2.0), strict=True)
    ]
    for entry, one in zip((COUNT, MEAN), together.queries, strict=True):
        (alone,) = expect(study_of(entry, parties=parties)).queries
        assert one.apart == pytest.approx(alone.noise / one.noise)


def test_a_heavier_query_has_less_noise() -> None:
    even, heavy = expect(study_of(COUNT, MEAN)), expect(study_of({**COUNT, "weight": 9}, MEAN))
    assert heavy.queries[0].noise == pytest.approx(even.queries[0].noise * math.sqrt(0.5 / 0.9), rel=1e-3)
    assert heavy.queries[1].noise == pytest.approx(even.queries[1].noise * math.sqrt(0.5 / 0.1), rel=1e-3)


@pytest.mark.parametrize(
    "query",
    [
        {"name": "x", "kind": "maximum", "of": {"kind": "count", "column": "x", "at_least": 0}},
        {
            "name": "v",
            "kind": "vertical_regression",
            "target": "y",
            "bounds": {"y": [0, 1], "p": [0, 1]},
            "held_by": {"a": ["y"], "b": ["p"]},
        },
        {
            "name": "v",
            "kind": "vertical_correlation",
            "bounds": {"y": [0, 1], "p": [0, 1]},
            "held_by": {"a": ["y"], "b": ["p"]},
        },
        {
            "name": "j",
            "kind": "joint_table",
            "rows": {"party": "a", "column": "y", "edges": [0, 1, 2]},
            "columns": {"party": "b", "column": "p", "categories": ["x", "y"]},
        },
    ],
    ids=lambda query: str(query["kind"]),
)
def test_a_query_that_is_no_sum_can_be_expected_too(query: dict[str, Any]) -> None:
    counts = records_at(query, ("a", "b", "c"), 5000)
    parties = [{"name": name, "records": records, "epsilon": 1.0} for name, records in counts.items()]
    study = study_of(query, parties=parties)
    (found,) = expect(study).queries
    assert found.apart is None
    assert found.noise == terms_of(study).standard_deviation
    assert all(answer.standard_error > 0 for answer in found.answers if answer.part != "R squared")


def test_r_squared_is_not_expected_to_be_free_of_error() -> None:
    bounds = {"y": [0, 1], "x": [0, 1]}
    (found,) = expect(study_of({"name": "r", "kind": "linear_regression", "target": "y", "bounds": bounds})).queries
    assert found.answers[-1].part == "R squared"
    assert found.answers[-1].standard_error > 1e-6
