"""Vertical queries, computed in clear from what every party would put in: layouts, sensitivities, answers, errors."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from itertools import combinations, combinations_with_replacement, product
from typing import Any, Final

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import tries
from tests.queries.cases import UNITS, records_at, study_of
from tpmdp._util.arrays import IntArray
from tpmdp._util.binomial import upper_bound
from tpmdp.data.table import Table, Text
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.queries.answer import ALL_BINS
from tpmdp.queries.base import Unit
from tpmdp.queries.catalogue import make_query
from tpmdp.queries.joint_table import CELLS_MAX, JointTable
from tpmdp.queries.vertical_covariance import VerticalCovariance
from tpmdp.queries.vertical_moments import VerticalMoments
from tpmdp.queries.vertical_query import VerticalQuery
from tpmdp.study.sample import sample_columns

MOMENT_KINDS: Final = ("vertical_covariance", "vertical_correlation", "vertical_regression")
PARTIES: Final = ("a", "b", "c", "d", "e")
OUTSIDE: Final = -1


def gram_in_words(query: VerticalQuery, tables: Mapping[str, Table], grid: Grid, people: int) -> IntArray:
    """The function on shares by its documentation, modulo 2^64, as an engine of two parties computes it."""
    records = {party: people if tables[party] else 0 for party in tables}
    parameters, sizes = query.parameters(records, grid), query.sizes(records)
    local, columns = [], []
    for place, (party, table) in enumerate(tables.items()):
        values = query.encode(party, table, grid)
        assert values.dtype == np.int64
        assert values.shape == (sizes[place],)
        ends = np.cumsum([0, *(count for count, _ in parameters["limits"][place])])
        for (_, most), start, end in zip(parameters["limits"][place], ends[:-1], ends[1:], strict=True):
            assert (np.abs(values[start:end]) <= most).all()
        count = parameters["local"][place]
        local.append(values[:count])
        columns.append(values[count:].reshape(parameters["columns"][place], people))
    with np.errstate(over="ignore"):
        products = [(one @ two.T).ravel() * np.int64(parameters["scale"]) for one, two in combinations(columns, 2)]
    return np.concatenate([*local, *products])


# Moments --------------------------------------------------------------------------------------------------------------


@st.composite
def moment_queries(draw: st.DrawFn) -> tuple[VerticalMoments, list[str]]:
    """A query over a random layout of columns, and the parties of its study in random order, some without columns."""
    names = draw(st.permutations(PARTIES[: draw(st.integers(2, 5))]))
    holders = draw(st.permutations(names))[: draw(st.integers(2, len(names)))]
    counts = [draw(st.integers(1, 3)) for _ in holders]
    columns = draw(st.permutations([f"x{place}" for place in range(sum(counts))]))
    held, start = {}, 0
    for party, count in zip(holders, counts, strict=True):
        held[party] = columns[start : start + count]
        start += count
    bounds = {column: [-1 - place, 2 + place] for place, column in enumerate(draw(st.permutations(columns)))}
    kind = draw(st.sampled_from(MOMENT_KINDS))
    entry = {"name": "v", "kind": kind, "bounds": bounds, "held_by": held}
    query = make_query(entry | ({"target": draw(st.sampled_from(columns))} if kind == "vertical_regression" else {}))
    assert isinstance(query, VerticalMoments)
    return query, list(names)


@settings(max_examples=tries(60, 3000), deadline=None)
@given(case=moment_queries(), people=st.integers(1, 9), bits=st.integers(2, 40), seed=st.integers(0, 2**32 - 1))
def test_moments_of_any_layout_are_those_of_all_columns_together(
    case: tuple[VerticalMoments, list[str]], people: int, bits: int, seed: int
) -> None:
    """Exactly, in whole steps; squares are divided by the root of 2, so they are rounded, once."""
    query, names = case
    random, grid = np.random.default_rng(seed), Grid(2.0**-bits, query.dimension, 64)
    tables: dict[str, Table] = {
        party: {column: random.uniform(-9, 9, people) for column in query.columns_of(party)} for party in names
    }
    steps = query.ordered(gram_in_words(query, tables, grid, people).astype(np.float64), names)
    whole: dict[str, list[int]] = {}
    half = bits // 2
    for party, columns in query.held_by:
        encoded = query.encode(party, tables[party], grid)[query.layout_of(party)[0] :]
        assert len(encoded) == len(columns) * people
        for place, column in enumerate(columns):
            whole[column] = encoded[place * people : (place + 1) * people].tolist()
            low, high = next((each.low, each.high) for each in query.bounds if each.column == column)
            scaled = 2 * (np.clip(np.asarray(tables[party][column]), low, high) - low) / (high - low) - 1
            assert (np.abs(np.array(whole[column]) / 2**half - scaled) <= 2.0**-half).all()
    order = [each.column for each in query.moments.ranges]
    assert sorted(order) == sorted(whole)
    count, rest = len(order), bits - half
    assert steps[:count].tolist() == [sum(whole[column]) << rest for column in order]
    squares = [sum(value * value for value in whole[column]) * 2 ** (bits - 2 * half) for column in order]
    assert np.abs(steps[count : 2 * count] - np.array(squares) / math.sqrt(2)).max() <= 0.5 + 1e-3
    expected = [
        sum(x * y for x, y in zip(whole[one], whole[two], strict=True)) * 2 ** (bits - 2 * half)
        for one, two in combinations(order, 2)
    ]
    assert steps[2 * count :].tolist() == expected


def test_all_kinds_of_moments_are_computed_and_protected_alike() -> None:
    bounds, held = {"x": [0, 1], "y": [0, 2], "z": [-1, 1]}, {"a": ["z", "x"], "b": ["y"]}
    queries = [
        make_query({"name": "v", "kind": kind, "bounds": bounds, "held_by": held, **more})
        for kind, more in zip(MOMENT_KINDS, ({}, {}, {"target": "y"}), strict=True)
    ]
    for party, unit in product("ab", UNITS):
        assert len({query.sensitivity_of(unit, party, 70) for query in queries}) == 1
    grid, table = Grid(2.0**-20, 9, 64), {"x": np.array([0.1, 0.7]), "z": np.array([0.3, -0.9])}
    encoded = [query.encode("a", table, grid).tolist() for query in queries if isinstance(query, VerticalQuery)]
    assert encoded[0] == encoded[1] == encoded[2]


def people_of(random: np.random.Generator, count: int) -> dict[str, Table]:
    x = random.normal(5, 2, count)
    return {"a": {"x": x}, "b": {"y": 0.5 * x + random.normal(0, 1, count), "z": random.uniform(-1, 1, count)}, "c": {}}


BOUNDS: Final[dict[str, Any]] = {"z": [-1, 1], "x": [0, 10], "y": [0, 8]}
HELD: Final = {"b": ["z", "y"], "a": ["x"]}


def covariance_of(kind: str) -> VerticalCovariance:
    query = make_query({"name": "v", "kind": kind, "bounds": BOUNDS, "held_by": HELD})
    assert isinstance(query, VerticalCovariance)
    return query


def truths(kind: str, tables: Mapping[str, Table]) -> list[float]:
    table = {**tables["a"], **tables["b"]}
    columns = [np.clip(np.asarray(table[column]), *BOUNDS[column]) for column in BOUNDS]
    if kind == "vertical_covariance":
        pairs = combinations_with_replacement(columns, 2)
        return [float(np.mean(one * two) - one.mean() * two.mean()) for one, two in pairs]
    return [float(np.corrcoef(one, two)[0, 1]) for one, two in combinations(columns, 2)]


@pytest.mark.parametrize("kind", MOMENT_KINDS[:2])
def test_intervals_hold_as_often_as_they_say(kind: str) -> None:
    """A smoke test: `tpmdp experiment coverage` measures the same code with columns at one place."""
    query, people, error, runs = covariance_of(kind), 2000, 15.0, 400
    random = np.random.default_rng(1)
    tables = people_of(random, people)
    grid = Grid(2.0**-40, query.dimension, 64)
    exact = query.ordered(grid.decode(gram_in_words(query, tables, grid, people)), list(tables))
    clear = [answer.value for answer in query.answers(exact, people, 0.0)]
    assert clear == pytest.approx(truths(kind, tables), abs=1e-4)
    held = np.zeros(len(clear), dtype=np.int64)
    for _ in range(runs):
        answers = query.answers(exact + random.normal(0, error, len(exact)), people, error)
        ends = [answer.interval for answer in answers]
        held += [low <= truth <= high for (low, high), truth in zip(ends, clear, strict=True)]
        assert [answer.value for answer in query.estimates(exact, people, error)] == pytest.approx(clear)
    assert all(upper_bound(int(each), runs, 1e-6) >= 0.95 for each in held)
    assert (held < runs).any()


# Joint tables ---------------------------------------------------------------------------------------------------------


def table_query(rows: int, columns: int) -> JointTable:
    """Rows are numbers in bins, columns are texts."""
    bins = {"party": "a", "column": "x", "edges": [*range(rows + 1)]}
    texts = {"party": "b", "column": "y", "categories": [f"t{place}" for place in range(columns)]}
    return joint_table(bins, texts)


def joint_table(rows: Mapping[str, Any], columns: Mapping[str, Any]) -> JointTable:
    query = make_query({"name": "j", "kind": "joint_table", "rows": rows, "columns": columns})
    assert isinstance(query, JointTable)
    return query


def side_table(column: str, places: list[int]) -> Table:
    if column == "x":
        return {"x": np.array([place + 0.5 for place in places], dtype=np.float64)}
    return {"y": Text.of([f"t{place}" for place in places])}


@settings(max_examples=tries(60, 3000), deadline=None)
@given(data=st.data())
def test_cells_count_people_exactly_whoever_comes_first(data: st.DataObject) -> None:
    rows, columns, people = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12))
    bits = data.draw(st.integers(0, 58))
    left = data.draw(st.lists(st.integers(OUTSIDE, rows), min_size=people, max_size=people))
    right = data.draw(st.lists(st.integers(OUTSIDE, columns), min_size=people, max_size=people))
    names = data.draw(st.permutations(PARTIES[: data.draw(st.integers(2, 5))]))
    query = table_query(rows, columns)
    tables: dict[str, Table] = {name: {} for name in names}
    tables |= {"a": side_table("x", left), "b": side_table("y", right)}
    grid = Grid(2.0**-bits, query.dimension, 64)
    total = query.ordered(gram_in_words(query, tables, grid, people).astype(np.float64) * grid.step, list(names))
    counted = Counter(zip(left, right, strict=True))
    expected = [counted[i, j] for i in range(rows) for j in range(columns)]
    assert total.tolist() == expected
    answers = query.answers(total, people, 0.0)
    parts = [f"x {i} to below {i + 1}, y t{j}" for i in range(rows) for j in range(columns)]
    assert [(answer.part, answer.value) for answer in answers] == list(zip(parts, expected, strict=True))
    assert max(expected) <= query.bound(people)


def squared_distance(one: Counter[tuple[int, int]], two: Counter[tuple[int, int]]) -> int:
    return sum((one[cell] - two[cell]) ** 2 for cell in {*one, *two})


def cells(left: tuple[int, ...], right: tuple[int, ...]) -> Counter[tuple[int, int]]:
    return Counter(pair for pair in zip(left, right, strict=True) if OUTSIDE not in pair)


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("people", [1, 2, 3])
@pytest.mark.parametrize(("own", "other"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 2), (2, 3)])
def test_no_change_of_one_party_moves_the_table_further_than_declared_and_one_does(
    own: int, other: int, people: int, unit: Unit
) -> None:
    """All data of one party against all others of it, with all data of the other party, counted without the library."""
    most = 0
    for theirs in product(range(OUTSIDE, other), repeat=people):
        for before in product(range(OUTSIDE, own), repeat=people):
            first = cells(before, theirs)
            for after in product(range(OUTSIDE, own), repeat=people):
                if unit == "party" or before[1:] == after[1:]:
                    most = max(most, squared_distance(first, cells(after, theirs)))
    query = table_query(own, other)
    declared = query.sensitivity_of(unit, "a", people)
    assert most <= declared**2 <= most * (1 + 1e-12)
    turned = table_query(other, own)
    assert turned.sensitivity_of(unit, "b", people) == declared
    assert query.sensitivity_of(unit, "c", people) == 0.0


def test_cells_have_the_noise_of_the_grid_and_bands_hold_together() -> None:
    query, random, error, runs = table_query(3, 4), np.random.default_rng(2), 7.0, 1000
    truth = random.integers(0, 50, query.dimension).astype(np.float64)
    single, together = 0, 0
    for _ in range(runs):
        answers = query.answers(truth + random.normal(0, error, query.dimension), 300, error)
        single += sum(
            answer.interval[0] <= value <= answer.interval[1] for answer, value in zip(answers, truth, strict=True)
        )
        bands = [answer.further_interval(ALL_BINS) for answer in answers]
        together += all(
            band is not None and band[0] <= value <= band[1] for band, value in zip(bands, truth, strict=True)
        )
    assert abs(single / (runs * query.dimension) - 0.95) < 0.01
    assert abs(together / runs - 0.95) < 0.03


def test_columns_of_one_name_are_told_apart_by_their_party() -> None:
    one, other = ({"party": party, "column": "sick", "categories": [0, 1]} for party in "ab")
    query = joint_table(one, other)
    assert [answer.part for answer in query.answers(np.zeros(4), 9, 1.0)][:2] == [
        "a sick 0, b sick 0",
        "a sick 0, b sick 1",
    ]


# What is refused ------------------------------------------------------------------------------------------------------


JOINT: Final[dict[str, Any]] = table_query(2, 2).settings()
COVARIANCE: Final[dict[str, Any]] = {"name": "v", "kind": "vertical_covariance", "bounds": BOUNDS, "held_by": HELD}


def plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with lists, as a file has them."""
    return {
        key: {inner: list(each) if isinstance(each, tuple) else each for inner, each in value.items()}
        if isinstance(value, dict)
        else value
        for key, value in entry.items()
    }


@pytest.mark.parametrize(
    ("entry", "records", "message"),
    [
        (COVARIANCE, (5, 6, 0), "same people"),
        (COVARIANCE, (5, 5, 1), "holds no column"),
        ({**COVARIANCE, "held_by": {"b": ["z", "y"], "z": ["x"]}}, (5, 5, 0), "held_by of v = z is not a party"),
        ({**COVARIANCE, "held_by": {"b": ["z", "y", "x"]}}, (0, 5, 0), "can use covariance"),
        (
            {**COVARIANCE, "kind": "vertical_correlation", "held_by": {"b": ["z", "y", "x"]}},
            (0, 5, 0),
            "can use correlation",
        ),
        (JOINT, (5, 6, 0), "same people"),
        (JOINT, (5, 5, 1), "party = c holds no column of j but has records"),
        ({**JOINT, "rows": {**JOINT["rows"], "party": "z"}}, (5, 5, 0), "rows of j, party = z is not a party"),
        ({**JOINT, "columns": {**JOINT["columns"], "party": "z"}}, (5, 5, 0), "columns of j, party = z is not a party"),
        ({**JOINT, "columns": {**JOINT["columns"], "party": "a"}}, (5, 0, 0), "use histogram with by"),
    ],
)
def test_parties_that_do_not_fit_are_refused(
    entry: dict[str, Any], records: tuple[int, int, int], message: str
) -> None:
    parties = [{"name": name, "records": count} for name, count in zip("abc", records, strict=True)]
    with pytest.raises(InputError, match=message):
        study_of(plain(entry), parties=parties)


def test_too_many_cells_are_refused() -> None:
    many = {"party": "b", "column": "y", "categories": [*range(CELLS_MAX // 2)]}
    bins = {"party": "a", "column": "x", "edges": [0, 1, 2]}
    assert joint_table(bins, many).dimension == CELLS_MAX
    with pytest.raises(InputError, match="cells of j = 15000 must be at most 10,000"):
        joint_table({**bins, "edges": [0, 1, 2, 3]}, many)


def test_a_grid_coarser_than_a_person_is_refused() -> None:
    query = table_query(2, 2)
    assert query.parameters({"a": 3, "b": 3}, Grid(1.0, 4, 64))["scale"] == 1
    with pytest.raises(InputError, match="no room for products"):
        query.parameters({"a": 3, "b": 3}, Grid(2.0, 4, 64))


def test_made_up_records_have_the_values_of_a_joint_table() -> None:
    parties = [{"name": name, "records": 200 if name in "ab" else 0} for name in "abc"]
    study = study_of(plain(table_query(2, 3).settings()), parties=parties)
    random = np.random.default_rng(1)
    assert set(sample_columns(study, "b", random)["y"]) == {"t0", "t1", "t2"}
    values = np.array(sample_columns(study, "a", random)["x"])
    assert ((values >= 0) & (values <= 2)).all()
    assert np.ptp(values) > 1


@pytest.mark.parametrize("entry", [COVARIANCE, JOINT], ids=lambda entry: str(entry["kind"]))
def test_a_study_has_the_people_once(entry: dict[str, Any]) -> None:
    counts = records_at(plain(entry), "abc", 10)
    parties = [{"name": name, "records": records} for name, records in counts.items()]
    study = study_of(plain(entry), parties=parties)
    assert study.records == 10
    assert study.spec().sensitivity[2] == 0
    assert study.computation.engine_of(study.setting) == "mpyc"
    two = study_of(plain(entry), parties=parties[:2])
    assert two.computation.engine_of(two.setting) == "spu"  # without a third party
