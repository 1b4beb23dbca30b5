"""Intervals of weighted answers: right where data are unrelated to budgets, and the wider one whatever the data.

Data are dealt to parties, noise is added to the sums that parties would send, and the truth is the statistic of all
records without weights or noise. A test of coverage fails if what weights do is left out of an interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pytest

from tests.queries.cases import statistic
from tpmdp import Study
from tpmdp.queries import error_bars
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query

Z: Final = 1.959963984540054
AT_LEAST: Final = 0.935
PARTIES: Final = 30
RECORDS: Final = [20 + 5 * (place % 3) for place in range(PARTIES)]
HEAVY: Final = [place % 2 == 0 for place in range(PARTIES)]  # whose weight is above the average
PARTS: Final[dict[str, dict[str, Any]]] = {
    "all": {},
    "where": {"where": "w >= 1"},
    "by": {"by": {"g": [0, 1]}},
}
RANGE: Final = {"column": "x", "low": -1, "high": 3}
BOUNDS: Final = {"x": [0, 1], "y": [0, 2]}

# Two kinds of party for each query: all records of the one are at one extreme, those of the other at another.
ENDS: Final = ({"x": [-1.0]}, {"x": [3.0]})
BINS: Final = ({"x": [0.1]}, {"x": [0.9]})
PAIRS: Final = ({"x": [0.0, 1.0], "y": [0.0, 2.0]}, {"x": [0.0, 1.0], "y": [2.0, 0.0]})
LINES: Final = ({"x": [0.0, 1.0], "y": [0.4, 1.2]}, {"x": [0.0, 1.0], "y": [1.6, 0.8]})


@dataclass(frozen=True)
class Kind:
    """A query, two kinds of parties, the weight of those that count less, and how many releases to draw."""

    entry: dict[str, Any]
    types: Sequence[dict[str, list[float]]]
    light: float = 0.4
    draws: int = 2000
    parts: Sequence[str] = ("all", "where", "by")


LINEAR: Final = {
    "count": Kind({"kind": "count", "column": "x", "at_least": 0.5}, ENDS),
    "sum": Kind({"kind": "sum", **RANGE}, ENDS),
    "mean": Kind({"kind": "mean", **RANGE}, ENDS),
    "histogram": Kind({"kind": "histogram", "column": "x", "edges": [0, 0.5, 1]}, BINS),
}
CURVED: Final = {
    "quantiles": Kind(
        {"kind": "quantiles", "column": "x", "low": 0, "high": 1, "bins": 5, "probabilities": [0.3, 0.5]},
        BINS,
        0.4,
        500,
    ),
    "distribution": Kind({"kind": "distribution", "column": "x", "edges": [0, 0.25, 0.5, 0.75]}, BINS, 0.4, 500),
    "variance": Kind({"kind": "variance", **RANGE}, ENDS, 0.4, 800),
    "covariance": Kind({"kind": "covariance", "bounds": BOUNDS}, PAIRS, 0.4, 200),
    "correlation": Kind({"kind": "correlation", "bounds": BOUNDS}, PAIRS, 0.85, 200),
    "linear_regression": Kind(
        {"kind": "linear_regression", "target": "y", "bounds": BOUNDS}, LINES, 0.93, 300, ("all", "where")
    ),
}
EVERY: Final = {**LINEAR, **CURVED}


@dataclass(frozen=True, eq=False)
class World:
    """A study, and the sums of every party for each kind of data it may have."""

    study: Study
    query: Query
    sent: Any  # by party and kind of data: the weighted sum, as the party would send it
    plain: Any  # the same without weights

    @property
    def parties(self) -> int:
        return len(self.study.parties)

    def totals(self, kinds: Any, noise: float, random: np.random.Generator) -> tuple[Any, Any]:
        """Scaled back and noisy; and exact without weights. A row for each release."""
        every = np.arange(self.parties)
        scale = self.study.records / sum(
            member.records * float(weight)
            for member, weight in zip(self.study.parties, self.study.weights.each, strict=True)
        )
        sums = self.sent[every, kinds].sum(axis=1) / self.study.computation.scales[0] * scale
        return sums + random.normal(0, noise, sums.shape), self.plain[every, kinds].sum(axis=1)


def world(entry: dict[str, Any], types: Sequence[dict[str, list[float]]], **top: Any) -> World:
    """Each kind of data also has records that meet the condition of `where` or not, and both groups of `by`."""
    base = {"name": "s", "threshold": 1, "receivers": "all", "delta": 1e-6, "epsilon": 1.0}
    made = Study.parse({**base, **top, "queries": [{"name": "q", **entry}]})
    (query,) = made.computation.sums
    sent, plain = [], []
    for member in made.parties:
        tables = []
        for one in types:
            rows = np.arange(member.records)
            table = {name: np.resize(np.array(values), member.records) for name, values in one.items()}
            table |= {"w": (rows % 5 < 4).astype(float), "g": (rows // 2 % 2).astype(float)}
            tables.append({name: table[name] for name in query.columns})
        sent.append([statistic(made, member.name, table) for table in tables])
        plain.append([query.statistic(table) for table in tables])
    return World(made, query, np.array(sent), np.array(plain))


def weighted_world(kind: Kind, part: str) -> World:
    parties = [
        {"name": f"p{place}", "records": records, "weight": 1.0 if heavy else kind.light}
        for place, (records, heavy) in enumerate(zip(RECORDS, HEAVY, strict=True))
    ]
    return world({**kind.entry, **PARTS[part]}, kind.types, parties=parties)


@dataclass
class Tally:
    """How often the truth was inside, for one part of a query."""

    runs: int = 0
    plain: int = 0
    always: int = 0
    noise: int = 0
    without: int = 0

    def add(self, answer: Answer, truth: float) -> None:
        assert answer.noise is not None
        assert answer.always is not None
        slack = 1e-9 * max(1.0, abs(truth))
        low, high = answer.interval
        self.runs += 1
        self.plain += low - slack <= truth <= high + slack
        self.always += answer.always[0] - slack <= truth <= answer.always[1] + slack
        self.noise += abs(answer.value - truth) <= Z * answer.noise + slack
        self.without += not math.isfinite(high - low)


def tally(made: World, kinds: Any, noise: float, seed: int) -> dict[str, Tally]:
    random = np.random.default_rng(seed)
    found: dict[str, Tally] = {}
    last, truth = None, []
    for total, exact in zip(*made.totals(kinds, noise, random), strict=True):
        if last is None or (exact != last).any():
            last, truth = exact, made.query.answers(exact, made.study.records, 0.0)
        for answer, true in zip(made.study.answers_of(made.query, total, noise), truth, strict=True):
            if answer.part.endswith("R squared"):
                continue  # has tests of its own below
            found.setdefault(answer.part, Tally()).add(answer, true.value)
    return found


def pairs_of(kinds: dict[str, Kind]) -> Any:
    return [pytest.param(one, part, id=f"{name} {part}") for name, one in kinds.items() for part in one.parts]


@pytest.mark.parametrize(("kind", "part"), pairs_of(EVERY))
@pytest.mark.slow
@pytest.mark.long
def test_intervals_cover_where_data_have_nothing_to_do_with_budgets(kind: Kind, part: str) -> None:
    """Each party's data are drawn by a fair coin, which is the most that averages of parties can vary."""
    made = weighted_world(kind, part)
    kinds = np.random.default_rng(1).integers(2, size=(kind.draws, PARTIES))
    for label, one in tally(made, kinds, 4.0, 2).items():
        assert one.plain >= AT_LEAST * one.runs, label
        assert one.always >= one.plain, label
        assert one.without == 0, label


@pytest.mark.parametrize(("kind", "part"), pairs_of(LINEAR))
@pytest.mark.slow
def test_noise_alone_would_not_cover_and_intervals_are_not_idle(kind: Kind, part: str) -> None:
    made = weighted_world(kind, part)
    kinds = np.random.default_rng(3).integers(2, size=(kind.draws, PARTIES))
    for label, one in tally(made, kinds, 4.0, 4).items():
        assert one.noise < 0.9 * one.runs, label
        if (kind.entry["kind"], part) in (("count", "all"), ("sum", "all"), ("mean", "all")):
            assert one.plain <= 0.975 * one.runs, label  # for these the bound on the spread is exact


@pytest.mark.parametrize(("kind", "part"), pairs_of(EVERY))
@pytest.mark.slow
@pytest.mark.long
def test_the_wider_interval_covers_data_chosen_against_the_weights(kind: Kind, part: str) -> None:
    """Whoever counts too much is at one extreme, the others at the other; in both directions."""
    made = weighted_world(kind, part)
    for way in (0, 1):
        against = np.array([heavy == bool(way) for heavy in HEAVY], dtype=np.int64)
        kinds = np.tile(against, (min(kind.draws // 2, 500), 1))
        for label, one in tally(made, kinds, 4.0, 5 + way).items():
            assert one.always >= AT_LEAST * one.runs, label
            assert one.without == 0, label


@pytest.mark.parametrize(("kind", "part"), pairs_of(LINEAR))
def test_the_narrower_interval_does_not_cover_data_chosen_against_the_weights(kind: Kind, part: str) -> None:
    """So that the assumption is one: otherwise the test above would prove nothing."""
    made = weighted_world(kind, part)
    kinds = np.tile(np.array(HEAVY, dtype=np.int64), (200, 1))
    found = tally(made, kinds, 4.0, 7)
    assert any(one.plain < 0.7 * one.runs for one in found.values())


@pytest.mark.parametrize("part", ["all", "where"])
@pytest.mark.slow
def test_r_squared_is_covered(part: str) -> None:
    """Or comes without an interval."""
    made = weighted_world(EVERY["linear_regression"], part)
    random = np.random.default_rng(8)
    dealt = random.integers(2, size=(10, PARTIES))
    against = np.tile(np.array(HEAVY, dtype=np.int64), (3, 1))
    for kinds, wide in ((dealt, False), (against, True)):
        inside = 0
        for total, exact in zip(*made.totals(kinds, 4.0, random), strict=True):
            answer = made.study.answers_of(made.query, total, 4.0)[-1]
            truth = made.query.answers(exact, made.study.records, 0.0)[-1].value
            assert answer.always is not None
            low, high = answer.always if wide else answer.interval
            inside += low - 1e-9 <= truth <= high + 1e-9
        assert inside >= 0.9 * len(kinds)


def test_intervals_cover_with_balanced_weights_and_the_noise_of_the_plan() -> None:
    """Real budgets, some strict and some not, and parties whose averages vary less than they could."""
    parties = [
        {"name": f"p{place}", "records": records, "epsilon": [0.01, 0.1, 1.0][place % 3]}
        for place, records in enumerate(RECORDS)
    ]
    entry = {"kind": "count", "column": "x", "at_least": 0.5}
    types = [{"x": [0.0, 1.0, 0.0, 1.0, 0.0]}, {"x": [1.0, 0.0, 1.0, 0.0, 1.0]}]  # averages 0.4 and 0.6
    made = world(entry, types, parties=parties, weighting="balanced", spread=0.2, threshold=15)
    assert not made.study.weights.are_equal
    kinds = np.random.default_rng(9).integers(2, size=(2000, PARTIES))
    (one,) = tally(made, kinds, 0.5, 10).values()
    assert AT_LEAST * one.runs <= one.plain <= 0.97 * one.runs
    wide = world(entry, [{"x": [0.0]}, {"x": [1.0]}], parties=parties, weighting="balanced", spread=0.2, threshold=15)
    (one,) = tally(wide, kinds, 0.5, 10).values()
    assert one.plain < 0.6 * one.runs  # they vary five times as much as the study says
    assert one.always == one.runs


def test_the_three_intervals_of_a_count_are_as_defined() -> None:
    made = weighted_world(EVERY["count"], "all")
    (answer,) = made.study.answers_of(made.query, np.array([100.0]), 3.0)
    weights, sizes = np.where(HEAVY, 1.0, 0.4), np.array(RECORDS)
    excess = sizes * (sizes.sum() / (sizes @ weights) * weights - 1)
    assert answer.noise == 3.0
    dealt = np.linalg.norm(excess) / 2 * math.sqrt(PARTIES / (PARTIES - 1))  # of fixed data, dealt out at random
    assert answer.standard_error == pytest.approx(math.hypot(3, dealt), rel=1e-9)
    assert answer.interval[1] - 100 == pytest.approx(Z * answer.standard_error, rel=1e-9)
    assert answer.always is not None
    assert answer.always[1] - 100 == pytest.approx(Z * 3 + excess[excess > 0].sum(), rel=1e-9)
    assert answer.always[0] + answer.always[1] == pytest.approx(200)


@pytest.mark.parametrize(("kind", "part"), pairs_of(EVERY))
def test_the_intervals_lie_within_each_other(kind: Kind, part: str) -> None:
    made = weighted_world(kind, part)
    kinds = np.random.default_rng(11).integers(2, size=(10, PARTIES))
    for noise in (0.1, 3.0, 30.0):
        for total in made.totals(kinds, noise, np.random.default_rng(12))[0]:
            plain = made.query.answers(total, made.study.records, noise)
            for answer, one in zip(made.study.answers_of(made.query, total, noise), plain, strict=True):
                assert answer.is_drowned if one.is_drowned else answer.value == one.value
                assert answer.noise == one.standard_error
                assert answer.always is not None
                if answer.part.endswith("R squared"):
                    continue
                slack = 1e-9 * max(1.0, 0.0 if answer.is_drowned else abs(answer.value))
                (low, high), wide = answer.interval, answer.always
                if wide[0] != -wide[1]:  # all that is possible, where the noise drowned it: others are not cut to that
                    assert wide[0] - slack <= low <= one.interval[0] + slack
                    assert one.interval[1] - slack <= high <= wide[1] + slack


def test_with_few_parties_the_narrower_interval_is_never_the_wider_one() -> None:
    """The worst that weights can do bounds what they do typically."""
    parties = [{"name": name, "records": 10, "weight": weight} for name, weight in (("a", 1.0), ("b", 0.5))]
    made = world({"kind": "histogram", "column": "x", "edges": [0, 0.5, 1]}, BINS, parties=parties)
    for answer in made.study.answers_of(made.query, np.array([3.0, 4.0]), 0.0):
        assert answer.always is not None
        assert answer.always[0] <= answer.interval[0]
        assert answer.interval[1] <= answer.always[1]


@pytest.mark.parametrize(
    ("entry", "types"),
    [
        pytest.param(
            {"kind": "linear_regression", "target": "y", "bounds": BOUNDS},
            (
                {"x": [0.0, 0.0, 0.0, 1.0], "y": [0.3, 0.5, 0.4, 1.0]},
                {"x": [0.0, 1.0, 1.0, 1.0], "y": [0.4, 0.9, 1.1, 1.0]},
            ),
            id="linear",
        ),
    ],
)  # fmt: skip
def test_coefficients_said_to_be_right_whatever_the_budgets_are(entry: dict[str, Any], types: Any) -> None:
    """The model holds for all parties, but weights and inputs are related: the same coefficients, without noise."""
    found = []
    for light in (1.0, 0.2):
        parties = [
            {"name": f"p{place}", "records": 300, "weight": 1.0 if place % 2 else light} for place in range(PARTIES)
        ]
        made = world(entry, types, parties=parties)
        total, _ = made.totals(np.array([[place % 2 for place in range(PARTIES)]]), 0.0, np.random.default_rng(16))
        answers = made.study.answers_of(made.query, total[0], 0.0)
        found.append([answer.value for answer in answers if answer.part != "R squared"])
        if light < 1 and "right on average" not in made.study.assumes:
            return
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_a_ratio_without_noise_has_no_interval_to_speak_of() -> None:
    """As in a study with threshold 0: its means by `where` would be said to have too few records for the noise."""
    random = np.random.default_rng(14)
    for top, bottom in zip(random.uniform(-99, 99, 50).tolist(), random.uniform(200, 900, 50).tolist(), strict=True):
        low, high = error_bars.ratio_interval(top, bottom, 0.0, 0.0, -0.5, 0.5)
        assert high - low < 1e-6
