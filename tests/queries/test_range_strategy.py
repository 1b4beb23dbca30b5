"""Ranges of a histogram: against counting, exact distances over all pairs, and the error of adding up bins."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import numpy as np
import pytest

import tpmdp.queries.range_strategy as strategies
from tests.queries.cases import sum_query
from tpmdp.errors import InputError
from tpmdp.queries.bins import places_of_spans
from tpmdp.queries.histogram import Histogram
from tpmdp.queries.prefix_factor import STEP
from tpmdp.queries.range_strategy import RANGES_MAX, Places, range_strategy
from tpmdp.study.cost import trial_study
from tpmdp.study.model import Study

WORKLOADS: Final[dict[str, tuple[int, Places]]] = {
    "one": (9, ((3, 7),)),
    "parts and whole": (3, ((0, 1), (1, 3), (0, 3))),
    "parts": (6, ((0, 2), (2, 4), (4, 6))),
    "prefixes": (32, tuple((0, end) for end in range(1, 33))),
    "all": (9, tuple(combinations(range(10), 2))),
    "tree": (8, tuple((start, start + width) for width in (1, 2, 4, 8) for start in range(0, 8, width))),
    "nested with gaps": (12, ((1, 11), (2, 10), (5, 6))),
    "single bins": (5, tuple((start, start + 1) for start in range(5))),
}
each_workload = pytest.mark.parametrize("label", WORKLOADS)


def indicator(bins: int, ranges: Places) -> Any:
    return np.array([[low <= place < high for place in range(bins)] for low, high in ranges], dtype=np.float64)


@each_workload
def test_ranges_are_read_back_exactly(label: str) -> None:
    bins, ranges = WORKLOADS[label]
    strategy = range_strategy(bins, ranges)
    counts = np.random.default_rng(1).integers(0, 1 << 30, size=bins)
    np.testing.assert_allclose(strategy.read(strategy.applied(counts)), indicator(bins, ranges) @ counts, rtol=1e-9)


@each_workload
def test_the_distance_is_the_largest_over_all_pairs_and_nothing(label: str) -> None:
    """In exact arithmetic, from what single records add; a record may be in no range, too."""
    bins, ranges = WORKLOADS[label]
    strategy = range_strategy(bins, ranges)
    columns = [strategy.applied(row) for row in np.eye(bins, dtype=np.int64)]
    columns.append(np.zeros_like(columns[0]))
    exact = [[Fraction(entry) for entry in column.tolist()] for column in columns]
    squares = [sum(((a - b) ** 2 for a, b in zip(*pair, strict=True)), Fraction(0)) for pair in combinations(exact, 2)]
    norm = max(sum((entry**2 for entry in column), Fraction(0)) for column in exact)
    for declared, largest in ((strategy.spread, max(squares)), (strategy.size, norm)):
        assert largest <= Fraction(declared) ** 2 <= largest * (1 + Fraction(1, 10**12))
    features = np.array(strategy.features(np.arange(-1, bins)))
    assert (features == np.array([columns[-1], *columns[:-1]]).T).all()
    assert features.max() <= 1
    assert ((features / STEP) % 1 == 0).all()


@each_workload
def test_no_workload_errs_more_than_added_up_bins(label: str) -> None:
    """And errors are as stated: a plain least-squares reading of what single records add."""
    bins, ranges = WORKLOADS[label]
    strategy, asked = range_strategy(bins, ranges), indicator(bins, ranges)
    matrix = np.array([strategy.applied(row) for row in np.eye(bins, dtype=np.int64)]).T
    errors = np.linalg.norm(asked @ np.linalg.pinv(matrix), axis=1)
    np.testing.assert_allclose(strategy.errors, errors, rtol=1e-9)
    ours = strategy.spread * np.sqrt(np.mean(errors**2))
    assert ours <= np.sqrt(2 * asked.sum(axis=1).mean()) * (1 + 1e-9)
    if label == "prefixes":
        assert strategy.name == "factor of prefix sums"
    if label == "parts and whole":  # twice the variance from the bins
        assert ours == pytest.approx(np.sqrt(4 / 3))


def test_answers_are_the_counts_of_the_ranges() -> None:
    query = Histogram("ages", "age", (0.0, 18.0, 40.0, 65.0, 120.0), ranges=((0.0, 18.0), (18.0, 65.0), (0.0, 65.0)))
    columns = {"age": np.array([-1.0, 0.0, 17.9, 18.0, 39.0, 64.0, 65.0, 200.0])}
    answers = query.answers(query.statistic(columns), 8, 2.0)
    assert [answer.part for answer in answers] == ["0 to below 18", "18 to below 65", "0 to below 65"]
    assert [answer.value for answer in answers] == pytest.approx([2, 3, 5])
    assert [answer.standard_error for answer in answers] == pytest.approx([2 * np.sqrt(2 / 3)] * 3)


@pytest.mark.parametrize("part", [{}, {"where": "w = 1"}, {"by": {"g": [1, 2]}}], ids=["all", "where", "by"])
def test_every_range_is_covered(part: dict[str, Any]) -> None:
    """4,000 draws: a coverage of 95 % is measured to 0.35 points; 5.5 of them make a false alarm below 1e-6."""
    entry = {"kind": "histogram", "column": "x", "edges": [0, 1, 2, 4, 9], "ranges": [[0, 2], [1, 4], [0, 9]], **part}
    query, random = sum_query(entry), np.random.default_rng(4)
    rows = 500
    table = {
        "x": random.uniform(-1, 10, rows),
        "w": random.integers(0, 2, rows).astype(np.float64),
        "g": random.integers(0, 4, rows).astype(np.float64),
    }
    vector = query.statistic(table)
    truth = [answer.value for answer in query.answers(vector, rows, 0.0)]
    covered = np.zeros(len(truth))
    for noise in 7.0 * random.normal(size=(4000, len(vector))):
        limits = [answer.interval for answer in query.answers(vector + noise, rows, 7.0)]
        covered += [low <= value <= high for value, (low, high) in zip(truth, limits, strict=True)]
    assert (np.abs(covered / 4000 - 0.95) < 5.5 * 0.0035).all()


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"ranges": [[0, 3]]}, "ranges of q = 0 to 3 must begin and end at edges: add its ends to the edges"),
        ({"ranges": [[2, 1]]}, "ranges of q = 2 to 1 must begin below its end"),
        ({"ranges": [[0, 1], [0, 1]]}, "ranges of q = 2 of them must differ: ask each once"),
        ({"ranges": [[0, 1, 2]]}, "ranges of q = 3 numbers must be pairs"),
        ({"ranges": [0, 1]}, "ranges of q"),
        ({"ranges": []}, "ranges of q = [] must be a list of pairs"),
        ({"ranges": "0 to 1"}, "ranges of q"),
        ({"edges": None, "categories": [1, 2], "ranges": [[1, 2]]}, "ranges of q = 1 need edges"),
        (
            {"edges": list(range(300)), "ranges": [[0, end] for end in range(1, RANGES_MAX + 2)]},
            "ranges of q = 257 must be at most 256: ask for fewer, or a distribution",
        ),
    ],
)
def test_wrong_ranges_are_refused_in_one_line(wrong: dict[str, Any], line: str) -> None:
    entry = {"kind": "histogram", "column": "x", "edges": [0, 1, 2], **wrong}
    with pytest.raises(InputError) as caught:
        sum_query({key: value for key, value in entry.items() if value is not None})
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def study_of(part: dict[str, Any], **query: Any) -> Study:
    entry = {"name": "q", "kind": "histogram", "column": "x", "edges": [0, 1, 2], **query, **part}
    parties = [{"name": name, "epsilon": 1, "records": 50} for name in "ab"]
    head = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "parties": parties}
    return trial_study(Study.parse({**head, "queries": [entry]}))


@pytest.mark.parametrize(
    "part",
    [{}, {"where": "w = 1"}, {"by": {"g": [1, 2]}}, {"where": "w = 1", "by": {"g": [1, 2]}}],
    ids=["all", "where", "by", "where and by"],
)
def test_who_chose_another_strategy_signs_other_terms(monkeypatch: pytest.MonkeyPatch, part: dict[str, Any]) -> None:
    """Two strategies of one dimension and, without groups, one sensitivity: only their digest tells them apart."""
    candidates = strategies._candidates
    terms, parts = [], []
    for name in ("bins", "ranges"):
        chosen = lambda asked, name=name: (each for each in candidates(asked) if each[0] == name)  # noqa: E731
        monkeypatch.setattr(strategies, "_candidates", chosen)
        monkeypatch.setattr("tpmdp.queries.histogram.range_strategy", range_strategy.__wrapped__)
        study = study_of(part, ranges=[[0, 1], [0, 2]])
        terms.append(study.terms())
        parts.append(study.parts())
    if "by" not in part:  # sensitivities differ where a record may change its group
        assert terms[0].spec == terms[1].spec
    assert terms[0].grid.dimension == terms[1].grid.dimension
    assert terms[0].query != terms[1].query
    assert terms[0].plan_hash != terms[1].plan_hash
    assert {name for name in parts[0] if parts[0][name] != parts[1][name]} == {'query "q"'}


def test_bins_that_are_one_are_part_of_the_digest() -> None:
    first, second = range_strategy(3, ((0, 1), (1, 2))), range_strategy(3, ((0, 1), (2, 3)))
    assert np.array_equal(first.steps, second.steps)
    assert first.digest != second.digest


def test_without_ranges_nothing_more_is_signed() -> None:
    study = study_of({})
    assert "choice" not in study.terms().query
    assert study.queries[0].signed_settings() == {**study.queries[0].settings(), "code": ""}


def test_settings_give_the_query_again() -> None:
    query = Histogram("q", "x", (0.0, 1.0, 2.0), ranges=((0.0, 1.0), (0.0, 2.0)))
    settings = query.settings()
    lists = {"edges": list(settings["edges"]), "ranges": [list(pair) for pair in settings["ranges"]]}
    assert sum_query({**settings, **lists}) == query
    assert places_of_spans("q", query.ranges, query.edges) == ((0, 1), (0, 2))
