"""Answers without noise are those of pandas, NumPy, SciPy and scikit-learn on the clipped data."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # type: ignore[import-untyped]
from sklearn.linear_model import LinearRegression, LogisticRegression  # type: ignore[import-untyped]

from tests.queries.cases import CASES, Case, rounds_query, run_rounds, statistic, study_of, sum_query, table_of
from tpmdp.data.table import Table, Text
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query
from tpmdp.queries.count import Count
from tpmdp.queries.quantile import Quantiles
from tpmdp.study.answers import answers as answers_from

RECORDS: Final = 3001
GROUPS: Final = ("north", "south", "east")
PARTS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "where": {"where": "w >= 1 and ward <> 'south'"},
    "by": {"by": {"ward": list(GROUPS)}},
    "by where": {"by": {"ward": list(GROUPS)}, "where": "w >= 1 or k = 2"},
    "by number": {"by": {"k": [2, 0, 1]}},
}
each_part = pytest.mark.parametrize("part", PARTS)


def make_frame(seed: int = 1) -> pd.DataFrame:
    """Columns with values inside and outside their bounds; a ward that no query names."""
    random = np.random.default_rng(seed)
    x = random.normal(3.0, 4.0, RECORDS)
    y = 0.5 * x + random.normal(0.0, 2.0, RECORDS)
    z = random.uniform(-1.0, 4.0, RECORDS)
    odds = 0.1 * np.clip(x, -2, 8) - 0.15 * np.clip(z, 0, 3)
    return pd.DataFrame(
        {
            "x": x,
            "y": y,
            "z": z,
            "t": (random.random(RECORDS) < 1 / (1 + np.exp(-odds))).astype(np.float64),
            "k": random.integers(0, 4, RECORDS).astype(np.float64),
            "w": random.integers(0, 2, RECORDS).astype(np.float64),
            "ward": random.choice([*GROUPS, "elsewhere"], RECORDS, p=[0.4, 0.3, 0.2, 0.1]),
        }
    )


FRAME: Final = make_frame()
CLIPPED: Final = FRAME.assign(x=FRAME["x"].clip(-2, 8), y=FRAME["y"].clip(-5, 5), z=FRAME["z"].clip(0, 3))
BOUNDS: Final = {"x": [-2, 8], "y": [-5, 5], "z": [0, 3]}


def as_table(frame: pd.DataFrame) -> Table:
    return {
        name: Text.of(frame[name].tolist()) if name == "ward" else frame[name].to_numpy(dtype=np.float64)
        for name in frame.columns
    }


def answers_of(entry: dict[str, Any], frame: pd.DataFrame = FRAME) -> list[Answer]:
    query = sum_query(entry)
    return query.answers(query.statistic(as_table(frame)), len(frame), 0.0)


def parts_of(frame: pd.DataFrame, part: str) -> list[pd.DataFrame]:
    """The records of each group, chosen by pandas alone."""
    if part == "where":
        frame = frame[(frame["w"] >= 1) & (frame["ward"] != "south")]
    elif part == "by where":
        frame = frame[(frame["w"] >= 1) | (frame["k"] == 2)]
    if part in ("by", "by where"):
        grouped = dict(list(frame.groupby("ward")))
        return [grouped[name] for name in GROUPS]
    if part == "by number":
        grouped = dict(list(frame.groupby("k")))
        return [grouped[name] for name in (2.0, 0.0, 1.0)]
    return [frame]


def values(found: list[Answer]) -> list[float]:
    assert all(answer.standard_error == 0 or answer.limits is not None for answer in found)
    return [answer.value for answer in found]


SIMPLE: Final[dict[str, tuple[dict[str, Any], Callable[[pd.DataFrame], list[float]]]]] = {
    "count": (
        {"kind": "count", "column": "x", "at_least": 3, "below": 7},
        lambda frame: [((frame["x"] >= 3) & (frame["x"] < 7)).sum()],
    ),
    "sum": ({"kind": "sum", "column": "x", "low": -2, "high": 8}, lambda frame: [frame["x"].sum()]),
    "mean": ({"kind": "mean", "column": "x", "low": -2, "high": 8}, lambda frame: [frame["x"].mean()]),
    "variance": ({"kind": "variance", "column": "x", "low": -2, "high": 8}, lambda frame: [frame["x"].var(ddof=0)]),
    "histogram": (
        {"kind": "histogram", "column": "x", "edges": [-1, 0, 2.5, 7]},
        lambda frame: pd.cut(frame["x"], [-1, 0, 2.5, 7], right=False).value_counts(sort=False).tolist(),
    ),
    "texts": (
        {"kind": "histogram", "column": "ward", "categories": ["south", "north", "nowhere"]},
        lambda frame: frame["ward"].value_counts().reindex(["south", "north", "nowhere"], fill_value=0).tolist(),
    ),
    "numbers": (
        {"kind": "histogram", "column": "k", "categories": [3, 0, 9]},
        lambda frame: frame["k"].value_counts().reindex([3, 0, 9], fill_value=0).tolist(),
    ),
    "covariance": (
        {"kind": "covariance", "bounds": BOUNDS},
        lambda frame: frame[["x", "y", "z"]].cov(ddof=0).to_numpy()[np.triu_indices(3)].tolist(),
    ),
    "correlation": (
        {"kind": "correlation", "bounds": BOUNDS},
        lambda frame: frame[["x", "y", "z"]].corr().to_numpy()[np.triu_indices(3, 1)].tolist(),
    ),
}


@each_part
@pytest.mark.parametrize("kind", SIMPLE)
def test_without_noise_answers_are_those_of_pandas(kind: str, part: str) -> None:
    entry, oracle = SIMPLE[kind]
    expected = [value for frame in parts_of(CLIPPED, part) for value in oracle(frame)]
    assert values(answers_of({**entry, **PARTS[part]})) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("part", [part for part in PARTS if part != "all"])
def test_a_count_without_a_column_counts_what_is_left(part: str) -> None:
    expected = [len(frame) for frame in parts_of(FRAME, part)]
    assert values(answers_of({"kind": "count", **PARTS[part]})) == expected


@each_part
def test_quantiles_are_those_of_numpy_within_one_bin(part: str) -> None:
    shares, bins = [0.05, 0.25, 0.5, 0.75, 0.95], 100
    entry = {"kind": "quantiles", "column": "x", "low": -2, "high": 8, "bins": bins, "probabilities": shares}
    expected = [value for frame in parts_of(CLIPPED, part) for value in np.quantile(frame["x"], shares)]
    found = answers_of({**entry, **PARTS[part]})
    assert values(found) == pytest.approx(expected, abs=10 / bins)
    exact = [np.quantile(frame["x"], shares, method="inverted_cdf") for frame in parts_of(CLIPPED, part)]
    for answer, value in zip(found, np.concatenate(exact), strict=True):
        assert answer.interval[0] <= value <= answer.interval[1]


@each_part
def test_linear_regression_is_that_of_scikit_learn(part: str) -> None:
    expected: list[float] = []
    for frame in parts_of(CLIPPED, part):
        inputs = frame[["x", "z"]].to_numpy()
        fitted = LinearRegression().fit(inputs, frame["y"].to_numpy())
        score = fitted.score(inputs, frame["y"].to_numpy())
        expected += [float(fitted.intercept_), *fitted.coef_.tolist(), float(score)]
    found = answers_of({"kind": "linear_regression", "target": "y", "bounds": BOUNDS, **PARTS[part]})
    assert values(found) == pytest.approx(expected, rel=1e-7, abs=1e-8)
    assert not any(answer.note for answer in found)


def logistic_oracle(frame: pd.DataFrame) -> list[float]:
    fitted = LogisticRegression(penalty=None, tol=1e-12, max_iter=1000).fit(frame[["x", "z"]].to_numpy(), frame["t"])
    return [*fitted.intercept_.tolist(), *fitted.coef_[0].tolist()]


def discriminant_oracle(frame: pd.DataFrame) -> list[float]:
    fitted = LinearDiscriminantAnalysis(solver="lsqr").fit(frame[["x", "z"]].to_numpy(), frame["t"])
    return [*fitted.intercept_.tolist(), *fitted.coef_[0].tolist()]


LOGISTIC: Final = {"kind": "logistic_regression", "target": "t", "bounds": {"x": BOUNDS["x"], "z": BOUNDS["z"]}}


@each_part
def test_logistic_regression_by_rounds_is_maximum_likelihood(part: str) -> None:
    expected = [value for frame in parts_of(CLIPPED, part) for value in logistic_oracle(frame)]
    found = run_rounds(rounds_query({**LOGISTIC, **PARTS[part]}), as_table(FRAME))
    assert [answer.value for answer in found] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert not any(answer.note for answer in found)


@each_part
def test_logistic_regression_of_one_round_is_linear_discriminant_analysis(part: str) -> None:
    expected = [value for frame in parts_of(CLIPPED, part) for value in discriminant_oracle(frame)]
    found = answers_of({**LOGISTIC, "rounds": 1, **PARTS[part]})
    assert [answer.value for answer in found] == pytest.approx(expected, rel=1e-6, abs=1e-8)
    for answer in found:
        assert answer.interval == (-math.inf, math.inf)
        assert answer.note == "an approximation from one round: no interval"


@pytest.mark.parametrize("intercept", [-4.0, -3.0, -1.0, 0.0, 2.0])
def test_logistic_regression_is_maximum_likelihood_also_where_the_outcome_is_rare(intercept: float) -> None:
    """With rates from 2 to 88 % and slopes for which one round is far off."""
    random = np.random.default_rng(11)
    x, z = random.uniform(-2, 8, 50_000), random.uniform(0, 3, 50_000)
    chance = 1 / (1 + np.exp(-(intercept + 0.4 * (x - 3) - 0.9 * (z - 1.5))))
    frame = pd.DataFrame({"x": x, "z": z, "t": (random.random(50_000) < chance).astype(np.float64)})
    table = {name: frame[name].to_numpy() for name in frame}
    found = run_rounds(rounds_query({**LOGISTIC, "bounds": {"x": [-2, 8], "z": [0, 3]}}), table)
    assert [answer.value for answer in found] == pytest.approx(logistic_oracle(frame), rel=2e-3)


def test_the_threshold_of_a_logistic_regression_splits_any_column() -> None:
    frame = FRAME.assign(t=(FRAME["y"] >= 1.25).astype(np.float64))
    entry = {"kind": "logistic_regression", "bounds": {"x": [-2, 8]}}
    binary = run_rounds(rounds_query({**entry, "target": "t"}), as_table(frame))
    split = run_rounds(rounds_query({**entry, "target": "y", "threshold": 1.25}), as_table(frame))
    assert binary == split


def test_parties_together_answer_as_one_table() -> None:
    """The sum of all parties' statistics is that of all their records."""
    for kind, (entry, _) in SIMPLE.items():
        query = sum_query({**entry, **PARTS["by where"]})
        pieces = [as_table(FRAME.iloc[start : start + 1000]) for start in range(0, RECORDS, 1000)]
        together = sum(query.statistic(piece) for piece in pieces)
        assert together == pytest.approx(query.statistic(as_table(FRAME)), abs=1e-9), kind


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_features_add_up_to_the_statistic(case: Case) -> None:
    """Queries with a shortcut for their statistic mean the same by it."""
    rows = case.records()
    table = table_of([rows[place] for place in np.random.default_rng(4).integers(len(rows), size=50)])
    query = case.query
    features = query.features(table)
    assert len(features) == query.dimension
    added = [math.fsum(np.clip(feature, -query.largest, query.largest)) for feature in features]
    assert query.statistic(table) == pytest.approx(added, abs=1e-10)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_what_is_expected_has_the_shape_of_a_statistic(case: Case) -> None:
    query = case.query
    typical = query.typical(1000)
    assert typical.shape == (query.dimension,)
    assert np.abs(typical).max() <= query.bound(1000)


def test_values_at_edges_belong_to_the_bin_above() -> None:
    edges = [-np.inf, 0.0, 1.0, 5.0]
    query = sum_query({"kind": "histogram", "column": "x", "edges": edges})
    column = [-1e308, -5e-324, -0.0, 0.0, 5e-324, math.nextafter(1.0, 0.0), 1.0, math.nextafter(5.0, 0.0), 5.0, 1e308]
    assert query.statistic({"x": np.array(column)}).tolist() == [2, 4, 2]


def test_clipped_values_fall_into_the_outer_bins_of_quantiles() -> None:
    query = Quantiles("q", "x", 0.0, 10.0, bins=10)
    column = np.array([-1e308, -0.0, 0.0, 5e-324, 9.0, 10.0, math.nextafter(10.0, 11.0), 1e308])
    assert query.factor.counts_of(query.statistic({"x": column})).tolist() == [4, 0, 0, 0, 0, 0, 0, 0, 0, 4]


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "mean", "column": "x", "low": 0, "high": 1},
        {"kind": "variance", "column": "x", "low": 0, "high": 1},
        {"kind": "covariance", "bounds": {"x": [0, 1]}},
        {"kind": "correlation", "bounds": {"x": [0, 1], "y": [0, 1]}},
        {"kind": "quantiles", "column": "x", "low": 0, "high": 1},
        {"kind": "distribution", "column": "x", "low": 0, "high": 1},
        {"kind": "logistic_regression", "target": "y", "bounds": {"x": [0, 1]}},
        {"kind": "linear_regression", "target": "y", "bounds": {"x": [0, 1], "y": [0, 1]}},
    ],
    ids=lambda entry: str(entry["kind"]),
)
@pytest.mark.parametrize("error", [0.0, 1.0])
def test_groups_without_records_are_answered_all_the_same(entry: dict[str, Any], error: float) -> None:
    """No record meets the condition, and the noisy count is exactly 0, as it may be on a grid."""
    query = sum_query({**entry, "where": "w = 1"})
    statistic = query.statistic({name: np.zeros(5) for name in query.columns})
    assert not statistic.any()
    for answer in query.answers(statistic, 5, error):
        if answer.is_drowned:
            assert answer.note
            assert answer.interval[0] < answer.interval[1]
        else:
            assert answer.interval[0] <= answer.value <= answer.interval[1]


@pytest.mark.parametrize("kind", ["count", "mean", "sum", "variance"])
def test_an_answer_is_the_same_after_json(kind: str) -> None:
    entry, _ = SIMPLE[kind]
    for part in PARTS.values():
        for answer in answers_of({**entry, **part}):
            assert Answer.of_plain(answer.plain()).plain() == answer.plain()


@pytest.mark.parametrize("high", [1e100, 1.1e100, 1e200, 1e308])
@pytest.mark.parametrize(
    "kind", ["sum", "mean", "variance", "quantiles", "distribution", "covariance", "linear_regression"]
)
def test_bounds_that_are_accepted_give_finite_answers(kind: str, high: float) -> None:
    """Otherwise a party learns only after it has paid that there is no answer."""
    entry: dict[str, Any] = {"kind": kind, "column": "x", "low": high * (1 - 1e-6), "high": high}
    if kind == "covariance":
        entry = {"kind": kind, "bounds": {"x": [0, high]}}
    if kind == "linear_regression":
        entry = {"kind": kind, "target": "y", "bounds": {"x": [0, high], "y": [-high, 0]}}
    if high > 1e100:
        with pytest.raises(InputError, match="must be a finite range"):
            sum_query(entry)
        return
    query = sum_query(entry)
    for answer in query.answers(query.typical(1000), 1000, 1.0):
        assert math.isfinite(answer.value)


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "histogram", "column": "x", "categories": [1234567, 1234568]},
        {"kind": "histogram", "column": "x", "edges": [1234567, 1234567.2, 1234567.4]},
        {"kind": "quantiles", "column": "x", "low": 0, "high": 1, "probabilities": [0.99999991, 0.99999992]},
        {"kind": "distribution", "column": "x", "edges": [1234567, 1234567.2, 1234567.4]},
        {"kind": "count", "by": {"x": [1234567, 1234568]}},
    ],
    ids=lambda entry: str(entry["kind"]),
)
def test_every_answer_has_its_own_label(entry: dict[str, Any]) -> None:
    query = sum_query(entry)
    labels = [answer.label for answer in query.answers(query.typical(1000), 1000, 1.0)]
    assert len(set(labels)) == len(labels)


def test_a_study_answers_each_query_from_its_own_part_of_the_vector() -> None:
    queries = [{"name": kind, **entry} for kind, (entry, _) in SIMPLE.items()]
    parties = [{"name": name, "records": RECORDS} for name in ("a", "b")]
    study = study_of(*queries, parties=parties)
    table = as_table(FRAME)
    total = statistic(study, "a", table) + statistic(study, "b", table)
    terms = study.with_keys({"a": b"a" * 32, "b": b"b" * 32}).terms()
    found = answers_from(study, terms, np.rint(total / terms.grid.step).astype(np.int64))
    both = pd.concat([CLIPPED, CLIPPED])
    expected = [value for _, oracle in SIMPLE.values() for value in oracle(both)]
    for answer, value in zip(found, expected, strict=True):
        assert abs(answer.value - value) <= answer.standard_error
        assert answer.standard_error > 0


def test_a_query_refuses_text_where_it_needs_numbers() -> None:
    with pytest.raises(ValueError, match="holds text, not numbers") as caught:
        Count("c", "x", at_least=1.0).statistic({"x": Text.of(["secret", "hidden"])})
    assert "secret" not in str(caught.value)


def test_a_query_with_too_few_features_is_refused() -> None:
    class Short(Count):
        def features(self, table: Table) -> list[Any]:
            del table
            return []

    with pytest.raises(ValueError, match="must give 1 features, its dimension"):
        Short("c", "x", at_least=1.0).statistic({"x": np.zeros(3)})


def test_private_values_are_not_shown_where_a_feature_is_not_finite() -> None:
    class Logarithm(Count):
        def features(self, table: Table) -> list[Any]:
            return [np.where(np.asarray(table["x"]) > 0, np.asarray(table["x"]), np.nan)]

    query: Query = Logarithm("c", "x", at_least=1.0)
    with pytest.raises(ValueError, match="is not finite for some record") as caught:
        query.statistic({"x": np.array([1.0, -4711.0])})
    assert "4711" not in str(caught.value)


def test_a_drowned_answer_has_no_value_anywhere() -> None:
    answer = Answer.drowned("q", "x, y", (-1.0, 1.0), note="drowned by the noise")
    plain = answer.plain()
    assert plain["value"] is None
    assert (plain["low"], plain["high"], plain["note"]) == (-1.0, 1.0, "drowned by the noise")
    again = Answer.of_plain(plain)
    assert again.is_drowned
    assert again.interval == (-1.0, 1.0)
    assert not Answer("q", 0.0, 1.0).is_drowned
