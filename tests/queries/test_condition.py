"""Conditions: what is written is meant, by a naive evaluation and by DuckDB; nonsense is refused in one line."""

from __future__ import annotations

import operator
import random as plain_random
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, Final

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queries.cases import Record, table_of
from tpmdp.errors import InputError
from tpmdp.queries.condition import DEPTH_MAX, TEXT_MAX, Compare, parse_condition

NUMBERS: Final = (-3.0, -0.5, 0.0, 1.0, 2.0, 2.5, 18.0, 1e-7, 123456789.0, 1e16, -1e300)
TEXTS: Final = ("", "north", "south", "North", "it's", "''", "zürich", "東", 'say "x"', "a b", "not")
COLUMNS: Final = {"x": "number", '"the age"': "number", '"and"': "number", "ward": "text", '"città di"': "text"}
_PLAIN: Final = {name: name.strip('"') for name in COLUMNS}
_SIGNS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

# A condition as this file knows it: its text, and a function of one record.
Known = tuple[str, Callable[[Record], bool]]


def written(value: float | str) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else f"{value!r}"


@st.composite
def comparisons(draw: st.DrawFn) -> Known:
    name = draw(st.sampled_from(list(COLUMNS)))
    column = _PLAIN[name]
    pool: st.SearchStrategy[Any] = st.sampled_from(NUMBERS if COLUMNS[name] == "number" else TEXTS)
    shape = draw(st.sampled_from(["compare", "in", "not in", "between"]))
    if shape == "compare":
        sign, value = draw(st.sampled_from(list(_SIGNS))), draw(pool)
        space, constant = draw(st.sampled_from(["", " ", "\n"])), written(value)
        after = space or " " * constant.startswith("-")  # DuckDB would read =- as one sign
        return f"{name}{space}{sign}{after}{constant}", lambda row: _SIGNS[sign](row[column], value)
    if shape == "between":
        low, high = draw(pool), draw(pool)
        word = draw(st.sampled_from(["between", "BETWEEN"]))
        return f"{name} {word} {written(low)} and {written(high)}", lambda row: _between(low, row[column], high)
    listed = draw(st.lists(pool, min_size=1, max_size=4))
    text = f"{name} {shape} ({', '.join(map(written, listed))})"
    return text, lambda row: (row[column] in listed) == (shape == "in")


def _between(low: Any, value: Any, high: Any) -> bool:
    return bool(low <= value <= high)


def joined(parts: st.SearchStrategy[Known]) -> st.SearchStrategy[Known]:
    def negated(part: Known) -> Known:
        return f"not ({part[0]})", lambda row: not part[1](row)

    def several(word: str, each: list[Known]) -> Known:
        choose = all if word.lower() == "and" else any
        text = f" {word} ".join(f"({part[0]})" for part in each)
        return text, lambda row: choose(part[1](row) for part in each)

    words = st.sampled_from(["and", "or", "AND", "Or"])
    return parts.map(negated) | st.builds(several, words, st.lists(parts, min_size=2, max_size=3))


conditions = st.recursive(comparisons(), joined, max_leaves=8)


def make_rows() -> list[Record]:
    random = plain_random.Random(1)
    rows: list[Record] = []
    for number, text in product(NUMBERS, TEXTS[:6]):
        row: dict[str, float | str] = {"x": number, "ward": text}
        row |= {"the age": random.choice(NUMBERS), "and": random.choice(NUMBERS), "città di": random.choice(TEXTS)}
        rows.append(row)
    return rows


ROWS: Final = make_rows()
TABLE: Final = table_of(ROWS)


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as connection:
        types = ", ".join(f"{name} {'DOUBLE' if kind == 'number' else 'VARCHAR'}" for name, kind in COLUMNS.items())
        connection.execute(f"CREATE TABLE records (place INTEGER, {types})")
        rows = [[place, *(row[_PLAIN[name]] for name in COLUMNS)] for place, row in enumerate(ROWS)]
        connection.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?)", rows)
        yield connection


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(known=conditions)
def test_conditions_mean_what_a_naive_evaluation_and_duckdb_say(
    database: duckdb.DuckDBPyConnection, known: Known
) -> None:
    text, holds = known
    condition = parse_condition("where", text)
    found = condition.holds(TABLE)
    assert found.dtype == np.bool_
    assert found.tolist() == [holds(row) for row in ROWS]
    for asked in (text, str(condition)):
        rows = database.execute(f"SELECT place FROM records WHERE {asked}").fetchall()  # noqa: S608
        assert sorted(place for (place,) in rows) == np.flatnonzero(found).tolist()


@settings(max_examples=300, deadline=None)
@given(known=conditions)
@pytest.mark.slow
def test_the_rendered_text_is_the_same_condition(known: Known) -> None:
    condition = parse_condition("where", known[0])
    again = parse_condition("where", str(condition))
    assert again == condition
    assert str(again) == str(condition)
    assert again.columns == condition.columns
    assert hash(again) == hash(condition)


@settings(max_examples=300, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_any_constant_is_read_back_to_the_last_bit(value: float) -> None:
    condition = Compare("x", "=", value)
    again = parse_condition("where", str(condition))
    assert isinstance(again, Compare)
    assert again.value == value
    assert again.holds({"x": np.array([value, np.nextafter(value, 1.0), np.nextafter(value, -1.0)])})[0]


@settings(max_examples=300, deadline=None)
@given(value=st.text())
def test_any_text_is_read_back(value: str) -> None:
    condition = parse_condition("where", f"x = {written(value)}")
    assert condition == Compare("x", "=", value)
    assert parse_condition("where", str(condition)) == condition


def test_and_binds_closer_than_or_and_not_closer_than_both() -> None:
    found = str(parse_condition("where", "not x = 1 and y = 2 or z = 3"))
    assert found == "(not (x = 1) and y = 2) or z = 3"
    assert parse_condition("where", "not x = 1 and y = 2 or z = 3") == parse_condition("where", found)


def test_a_column_read_in_two_ways_is_refused() -> None:
    with pytest.raises(InputError, match="is used as text and as numbers"):
        parse_condition("where", "x = 1 or x = 'a'")


# Nonsense -------------------------------------------------------------------------------------------------------------

MALFORMED: Final = [
    "", " ", "x", "x =", "= 1", "x = = 1", "x => 1", "x == 1", "1 = x", "x = y", "x = 1 and", "and x = 1",
    "x = 1 x = 2",
    "(x = 1", "x = 1)", "()", "not", "x not 1", "x in", "x in ()", "x in (1", "x in (1,)", "x in (1 2)", "x in 1",
    "x in (1, 'a')", "x between 1", "x between 1 and", "x between 1 or 2", "x = 'a", "x = \"a\"", '"x = 1', '"" = 1',
    "x = 1e999", "x = -1e999", "x = nan", "x = inf", "x = 0x10", "x = 1_000", "x = 1..2", "x = 1.2.3", "x = 5and y = 1",
    "x = null", "x is null", "x like 'a%'", "x = 1; drop table t", "x = 1 -- y", "x = (select 1)", "f(x) = 1",
    "x + 1 = 2", "x = ?", "x = $1", "x = @a", "x.y = 1", "x = 1 xor y = 2", "x = true", "x = 1 \\",
]  # fmt: skip


@pytest.mark.parametrize("text", MALFORMED)
def test_nonsense_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition("where of q", text)
    assert caught.value.field == "where of q"
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    "text",
    [
        "(" * 5000,
        "(" * 5000 + "x = 1" + ")" * 5000,
        "not " * 2500,
        "not " * 2400 + "x = 1",
        "(not " * 1600,
        "x in (" + "1," * 4000,
        "x = '" + "''" * 4990,
        "x = 1" + " " * 9990 + "y",
        '"' * 9999,
        "x = 1 and " * 1000,
        "x" * (TEXT_MAX + 1),
        "x = 1 or " * 100_000,
    ],
    ids=lambda text: f"{text[:12]}... {len(text)}",
)
def test_deep_and_long_texts_are_refused_without_ado(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition("where", text)
    assert len(str(caught.value)) < 300


_PIECES = st.sampled_from(
    [*"()<>=!,.'\"-+ \n", "and", "or", "not", "in", "between", "x", "ward", "1", "2.5e3", "'a'", '"b c"', "<=", "<>"]
)


@settings(max_examples=800, deadline=None)
@given(
    text=st.text(max_size=60)
    | st.lists(_PIECES, max_size=25).map(" ".join)
    | st.lists(_PIECES, max_size=25).map("".join)
)
@pytest.mark.slow
def test_anything_is_a_condition_or_refused(text: str) -> None:
    """Never another exception; and what is accepted can be written and read again."""
    try:
        condition = parse_condition("where", text)
    except InputError:
        return
    assert parse_condition("where", str(condition)) == condition


def test_brackets_may_be_as_deep_as_promised() -> None:
    deep = "(" * DEPTH_MAX + "x = 1" + ")" * DEPTH_MAX
    assert str(parse_condition("where", deep)) == "x = 1"


@pytest.mark.parametrize(
    "text", ["age > x\ny", "age > 1 \x1b[31m$", "\"a\nb\" in (1, 'a')", "age > 1 #\r\n#", "x\x00= 1", "x = 1 y\u2028z"]
)
def test_a_complaint_is_one_line_whatever_the_text_holds(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition("where", text)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("text", ['"' + "a" * 9000 + "\" in (1, 'a')", "x = " + "9" * 9000], ids=["name", "number"])
def test_a_complaint_is_short_whatever_the_text_holds(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_condition("where", text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        "not " * 30 + "x = 1",
        " or ".join(["x=1"] * 1400),
        "(x = 1 or " * 25 + "not not not not not not not not not not not not not not x = 1" + ")" * 25,
    ],
    ids=["negations", "length", "both"],
)
def test_a_condition_that_could_not_be_read_again_is_refused(text: str) -> None:
    """A study file written by one party must be readable by the others."""
    with pytest.raises(InputError, match=r"too long|levels"):
        parse_condition("where", text)
