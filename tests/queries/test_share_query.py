"""Non-additive queries, computed in clear from what every party would put in: sensitivities and answers."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations
from typing import Any, Final

import numpy as np
import pytest

from tests.queries.cases import UNITS, study_of
from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.base import Unit
from tpmdp.queries.catalogue import make_query
from tpmdp.queries.maximum import Maximum
from tpmdp.queries.vertical_regression import VerticalRegression

each_unit = pytest.mark.parametrize("unit", UNITS)
Data = dict[str, dict[str, FloatArray]]


def norm(steps: IntArray, step: float) -> Fraction:
    """The square of the length, exactly."""
    return sum((Fraction(int(each)) ** 2 for each in steps), Fraction(0)) * Fraction(step) ** 2


def check_move(moved: Fraction, declared: float, step: float, dimension: int) -> None:
    assert moved <= Fraction(declared + step * math.sqrt(dimension) * (1 + 1e-12)) ** 2


# Maximum --------------------------------------------------------------------------------------------------------------

NUMBERS: Final[dict[str, dict[str, Any]]] = {
    "count": {"kind": "count", "column": "x", "at_least": 3},
    "count where": {"kind": "count", "where": "x >= 3"},
    "sum": {"kind": "sum", "column": "x", "low": -2, "high": 8},
    "sum below 0": {"kind": "sum", "column": "x", "low": -9, "high": -1},
    "sum far from 0": {"kind": "sum", "column": "x", "low": 1e12, "high": 1e12 + 1e4},
    "sum where": {"kind": "sum", "column": "x", "low": 0, "high": 8, "where": "x >= 3"},
    "mean": {"kind": "mean", "column": "x", "low": -2, "high": 8},
}
VALUES: Final = [-1e308, -9.0, -5.0, -2.0, -1.0, -0.0, 2.9, 3.0, 5.5, 8.0, 1e12, 1e12 + 5e3, 1e12 + 1e4, 1e308]


def maximum_of(number: str) -> Maximum:
    query = make_query({"name": "q", "kind": "maximum", "of": NUMBERS[number]})
    assert isinstance(query, Maximum)
    return query


def clear_maximum(query: Maximum, columns: dict[str, FloatArray], grid: Grid) -> IntArray:
    """The largest in every place, as the parties' shares would give it."""
    encoded = np.array([query.encode(party, {"x": column}, grid) for party, column in columns.items()])
    return np.asarray(encoded.max(axis=0), dtype=np.int64)


@each_unit
@pytest.mark.parametrize("records", [1, 2, 7, 8])
@pytest.mark.parametrize("number", NUMBERS)
def test_one_party_moves_the_maximum_at_most_as_declared_and_nearly_so(number: str, records: int, unit: Unit) -> None:
    """All pairs of values, in a party that has the maximum and in one that has not."""
    query, step = maximum_of(number), 2.0**-40
    grid = Grid(step, 1, 64)
    declared = query.sensitivity_of(unit, "a", records)
    random = np.random.default_rng(records)
    largest = Fraction(0)
    for has_maximum in (True, False):
        others = {name: np.full(records, -1e308 if has_maximum else 1e308) for name in ("b", "c")}
        rest = np.full(records, 1e308) if has_maximum else random.choice(VALUES, records)
        steps = []
        for value in VALUES:
            column = np.full(records, value) if unit == "party" else np.concatenate(([value], rest[1:]))
            steps.append(clear_maximum(query, {"a": column, **others}, grid))
        for one, two in combinations(steps, 2):
            largest = max(largest, norm(one - two, step))
        assert max(abs(int(each[0])) for each in steps) * step <= query.bound(records)
    check_move(largest, declared, step, 1)
    assert math.sqrt(largest) >= 0.9 * declared - 2 * step


@pytest.mark.parametrize("number", NUMBERS)
def test_the_maximum_is_that_of_the_parties_own_answers(number: str) -> None:
    query, grid = maximum_of(number), Grid(2.0**-40, 1, 64)
    random = np.random.default_rng(2)
    middle = 1e12 + 5e3 if "far" in number else 3.0
    columns = {party: random.normal(middle, 4.0, count) for party, count in (("a", 50), ("b", 40), ("c", 60))}
    entry = NUMBERS[number]
    low, high = entry.get("low", -math.inf), entry.get("high", math.inf)

    def truth(column: FloatArray) -> float:
        clipped = np.clip(column, low, high)
        if entry["kind"] == "count":
            return float(np.count_nonzero(column >= 3))
        kept = clipped[column >= 3] if "where" in entry else clipped
        return float(kept.mean() if entry["kind"] == "mean" else kept.sum())

    steps = clear_maximum(query, columns, grid)
    (answer,) = query.answers(grid.decode(steps), 150, 0.0)
    assert answer.value == pytest.approx(max(map(truth, columns.values())), rel=1e-9)


def test_a_maximum_needs_records_at_two_parties() -> None:
    parties = [{"name": "a", "records": 5}, {"name": "b", "records": 0}, {"name": "c", "records": 0}]
    with pytest.raises(InputError, match="two parties or more"):
        study_of({"name": "q", "kind": "maximum", "of": NUMBERS["count"]}, parties=parties)


def test_a_party_without_records_puts_nothing_in() -> None:
    query = maximum_of("mean")
    assert query.sizes({"a": 3, "b": 0}) == [1, 0]
    assert query.encode("b", {}, Grid(0.25, 1, 64)).size == 0
    assert query.sensitivity_of("party", "b", 0) == 0


# Vertical regression --------------------------------------------------------------------------------------------------

RANGES: Final[dict[str, tuple[float, float]]] = {
    "y": (0, 10),
    "p": (-1, 1),
    "q": (0, 1e6),
    "r": (5, 6),
    "s": (-3, 0),
}
LAYOUTS: Final[dict[str, dict[str, list[str]]]] = {
    "1 and 1": {"a": ["y"], "b": ["p"]},
    "1 and 2": {"a": ["y"], "b": ["q", "p"]},
    "2 and 1": {"a": ["p", "y"], "b": ["q"]},
    "3 and 1": {"b": ["q"], "a": ["r", "y", "p"]},
    "1, 2 and 2": {"a": ["q"], "c": ["y", "p"], "b": ["s", "r"]},
    "3, 1 and 1": {"c": ["s", "q", "y"], "a": ["p"], "b": ["r"]},
    "1 and 4": {"a": ["y"], "b": ["s", "r", "q", "p"]},
}
each_layout = pytest.mark.parametrize("layout", LAYOUTS)


def vertical(layout: str) -> VerticalRegression:
    held = LAYOUTS[layout]
    bounds = {name: list(RANGES[name]) for name in RANGES if any(name in columns for columns in held.values())}
    entry = {"name": "v", "kind": "vertical_regression", "target": "y", "bounds": bounds, "held_by": held}
    query = make_query(entry)
    assert isinstance(query, VerticalRegression)
    return query


def clear_gram(query: VerticalRegression, data: Data, grid: Grid) -> IntArray:
    """What the computation on shares gives, by the layout documented for `gram`, in Python's whole numbers."""
    records = {party: len(next(iter(columns.values()))) for party, columns in data.items()}
    parameters = query.parameters(records, grid)
    sizes = query.sizes(records)
    local, columns = [], []
    for place, (party, table) in enumerate(data.items()):
        encoded = query.encode(party, table, grid)
        assert encoded.size == sizes[place]
        own = parameters["local"][place]
        local.append(encoded[:own].astype(object))
        columns.append(encoded[own:].astype(object).reshape(parameters["columns"][place], parameters["records"]))
    products = [(one @ two.T).reshape(-1) * parameters["scale"] for one, two in combinations(columns, 2)]
    found = np.concatenate([*local, *products])
    assert found.shape == (query.dimension,)
    return found.astype(np.int64)


def random_data(query: VerticalRegression, records: int, seed: int) -> Data:
    """Parties in the order of their names, which is not that of `held_by`; values also beyond the bounds."""
    random = np.random.default_rng(seed)
    held = dict(query.held_by)
    data: Data = {}
    for party in sorted(held):
        data[party] = {}
        for column in held[party]:
            low, high = RANGES[column]
            data[party][column] = random.uniform(low - 0.2 * (high - low), high + 0.2 * (high - low), records)
    return data


def corner(query: VerticalRegression, party: str, signs: tuple[int, ...], records: int) -> dict[str, FloatArray]:
    return {
        column: np.full(records, float(RANGES[column][0] if sign < 0 else RANGES[column][1]))
        for column, sign in zip(dict(query.held_by)[party], signs, strict=True)
    }


def all_signs(count: int) -> list[tuple[int, ...]]:
    return [tuple(1 if code >> place & 1 else -1 for place in range(count)) for code in range(1 << count)]


@each_unit
@pytest.mark.parametrize("bits", [8, 21])
@each_layout
def test_one_party_moves_the_moments_at_most_as_declared_and_nearly_so(layout: str, bits: int, unit: Unit) -> None:
    """Every corner of the party's columns against every other, with the other parties' columns at their ends."""
    query, records, step = vertical(layout), 3, 2.0**-bits
    grid = Grid(step, query.dimension, 64)
    held = dict(query.held_by)
    for party in held:
        declared = query.sensitivity_of(unit, party, records)
        data = {other: corner(query, other, (1,) * len(held[other]), records) for other in sorted(held)}
        found = []
        for signs in all_signs(len(held[party])):
            changed = corner(query, party, signs, records)
            if unit == "record":
                changed = {name: np.append(column[:1], data[party][name][1:]) for name, column in changed.items()}
            found.append(clear_gram(query, {**data, party: changed}, grid))
        largest = max(norm(one - two, step) for one, two in combinations(found, 2))
        check_move(largest, declared, step, query.dimension)
        assert math.sqrt(largest) >= 0.9 * declared
        assert max(np.abs(each).max() for each in found) * step <= query.bound(records) + step


@each_unit
@each_layout
def test_random_changes_of_one_party_stay_within_the_sensitivity(layout: str, unit: Unit) -> None:
    query, step = vertical(layout), 2.0**-12
    grid = Grid(step, query.dimension, 64)
    for records in (1, 2, 3, 4, 7, 8):
        data, other = random_data(query, records, records), random_data(query, records, 100 + records)
        before = clear_gram(query, data, grid)
        for party in data:
            changed = other[party]
            if unit == "record":
                changed = {name: np.append(column[:1], data[party][name][1:]) for name, column in changed.items()}
            moved = norm(clear_gram(query, {**data, party: changed}, grid) - before, step)
            check_move(moved, query.sensitivity_of(unit, party, records), step, query.dimension)


@each_layout
def test_without_noise_the_regression_is_least_squares(layout: str) -> None:
    """On the clipped data, up to the rounding of columns to multiples of 2^-20."""
    query, records = vertical(layout), 4000
    grid = Grid(2.0**-40, query.dimension, 64)
    data = random_data(query, records, 3)
    random = np.random.default_rng(4)
    by_name = {name: column for columns in data.values() for name, column in columns.items()}
    inputs = [one.column for one in query.bounds if one.column != "y"]
    clipped = {name: np.clip(column, *RANGES[name]) for name, column in by_name.items()}
    scaled = [(clipped[name] - RANGES[name][0]) / (RANGES[name][1] - RANGES[name][0]) for name in inputs]
    target = 2 + 1.5 * np.sum([(place + 1) * each for place, each in enumerate(scaled)], axis=0) / len(scaled)
    holder = next(party for party in data if "y" in data[party])
    data[holder]["y"] = target + random.normal(0, 1, records)
    clipped["y"] = np.clip(data[holder]["y"], *RANGES["y"])
    total = query.ordered(grid.decode(clear_gram(query, data, grid)), list(data))
    found = query.answers(total, records, 0.0)
    design = np.column_stack([np.ones(records), *(clipped[name] for name in inputs)])
    expected, *_ = np.linalg.lstsq(design, clipped["y"], rcond=None)
    fitted = design @ expected
    score = 1 - ((clipped["y"] - fitted) ** 2).sum() / ((clipped["y"] - clipped["y"].mean()) ** 2).sum()
    assert [answer.part for answer in found] == ["intercept", *inputs, "R squared"]
    assert [answer.value for answer in found] == pytest.approx([*expected, score], rel=1e-4, abs=1e-9)
    assert not any(answer.note for answer in found)


@each_layout
def test_the_order_of_parties_does_not_matter(layout: str) -> None:
    query = vertical(layout)
    grid = Grid(2.0**-30, query.dimension, 64)
    data = random_data(query, 20, 5)
    backwards = dict(reversed(data.items()))
    one = query.ordered(grid.decode(clear_gram(query, data, grid)), list(data))
    two = query.ordered(grid.decode(clear_gram(query, backwards, grid)), list(backwards))
    assert (one == two).all()


def test_columns_are_rounded_without_bias() -> None:
    """A public dither, up or down: means of many values keep their place between two multiples."""
    query = vertical("1 and 1")
    grid = Grid(2.0**-6, query.dimension, 64)
    values = np.full(20_000, 0.3)  # of p, in [-1, 1], on multiples of 2^-3
    encoded = query.encode("b", {"p": values}, grid)[2:]
    assert set(encoded.tolist()) == {2, 3}
    assert encoded.mean() / 8 == pytest.approx(0.3, abs=0.002)
    again = query.encode("b", {"p": values}, grid)[2:]
    assert (encoded == again).all()


def test_holders_have_the_same_people() -> None:
    entry = {"name": "v", "kind": "vertical_regression", "target": "y", "bounds": {"y": [0, 1], "p": [0, 1]}}
    held = {"a": ["y"], "b": ["p"]}
    for records, problem in (((5, 6, 0), "same people"), ((5, 5, 1), "holds no column")):
        parties = [{"name": name, "records": count} for name, count in zip("abc", records, strict=True)]
        with pytest.raises(InputError, match=problem):
            study_of({**entry, "held_by": held}, parties=parties)
    with pytest.raises(InputError, match="is not a party"):
        study_of({**entry, "held_by": {"a": ["y"], "z": ["p"]}})
    parties = [{"name": name, "records": count} for name, count in (("a", 5), ("b", 5), ("c", 0))]
    study = study_of({**entry, "held_by": held}, parties=parties)
    assert study.records == 5
    assert study.spec().sensitivity[2] == 0


def test_a_grid_too_coarse_for_products_is_refused() -> None:
    query = vertical("1 and 1")
    with pytest.raises(InputError, match="no room for products"):
        query.encode("b", {"p": np.zeros(3)}, Grid(1.0, query.dimension, 64))
