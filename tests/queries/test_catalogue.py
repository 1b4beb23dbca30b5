"""Entries of study files become queries; wrong ones are refused by field; what is written is read back."""

from __future__ import annotations

import math
import tomllib
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.queries.cases import CASES, Case, records_at, study_of
from tpmdp.errors import InputError
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.catalogue import EXAMPLES, KINDS, SUM_KINDS, make_query
from tpmdp.queries.covariance import Covariance
from tpmdp.queries.ranges import Range
from tpmdp.study.model import Study

ENTRIES: Final[dict[str, dict[str, Any]]] = {kind: tomllib.loads(text) for kind, text in EXAMPLES.items()}
STRANGE: Final = 'it\'s "quoted" \\ back\\slash ünïcödé 東京 🏥 a.b = [x]'


def test_there_is_an_example_of_every_kind() -> None:
    assert set(EXAMPLES) == set(KINDS)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_example_is_a_query(kind: str) -> None:
    query = make_query(ENTRIES[kind])
    assert isinstance(query, BaseQuery)
    assert query.settings()["kind"] == kind
    assert query.dimension >= 1
    assert query.name == ENTRIES[kind]["name"]


# Wrong entries --------------------------------------------------------------------------------------------------------

COUNT: Final = {"name": "q", "kind": "count", "column": "x", "at_least": 1}
MEAN: Final = {"name": "q", "kind": "mean", "column": "x", "low": 0, "high": 1}
BINS: Final = {"name": "q", "kind": "histogram", "column": "x", "edges": [0, 1, 2]}
TEXTS: Final = {"name": "q", "kind": "histogram", "column": "x", "categories": ["a", "b"]}
QUANTILES: Final = {"name": "q", "kind": "quantiles", "column": "x", "low": 0, "high": 1}
COVARIANCE: Final = {"name": "q", "kind": "covariance", "bounds": {"x": [0, 1], "y": [0, 1]}}
LINEAR: Final = {"name": "q", "kind": "linear_regression", "target": "y", "bounds": {"x": [0, 1], "y": [0, 1]}}
LOGISTIC: Final = {"name": "q", "kind": "logistic_regression", "target": "y", "bounds": {"x": [0, 1]}}
MAXIMUM: Final[dict[str, Any]] = {"name": "q", "kind": "maximum", "of": {"kind": "count", "column": "x", "at_least": 1}}
SURVIVAL: Final = {"name": "q", "kind": "kaplan_meier", "time": "x", "event": "e", "high": 9}
LOG_RANK: Final = {**SURVIVAL, "kind": "log_rank", "group": "g", "categories": ["a", "b"]}
VERTICAL: Final = {**LINEAR, "kind": "vertical_regression", "held_by": {"a": ["x"], "b": ["y"]}}
VERTICAL_COVARIANCE: Final = {**COVARIANCE, "kind": "vertical_covariance", "held_by": {"a": ["x"], "b": ["y"]}}
BANK: Final = {"party": "a", "column": "x", "edges": [0, 1, 2]}
CLINIC: Final = {"party": "b", "column": "y", "categories": ["p", "q"]}
JOINT: Final = {"name": "q", "kind": "joint_table", "rows": BANK, "columns": CLINIC}
HUGE: Final = 10**400

WRONG: Final[list[tuple[dict[str, Any], dict[str, Any], str]]] = [
    (COUNT, {"kind": "cuont"}, "kind"),
    (COUNT, {"kind": None}, "kind"),
    (COUNT, {"kind": 7}, "kind"),
    (COUNT, {"name": ""}, "name"),
    (COUNT, {"name": " "}, "name"),
    (COUNT, {"name": 7}, "name"),
    (COUNT, {"name": "a\nb"}, "name"),
    (COUNT, {"name": "a" * 101}, "name"),
    (COUNT, {"colum": "x"}, "key in the count query q"),
    (COUNT, {"mode": "some"}, "key in the count query q"),
    (COUNT, {"column": 7}, "column"),
    (COUNT, {"column": ["x"]}, "column"),
    (COUNT, {"at_least": "1"}, "at_least"),
    (COUNT, {"at_least": True}, "at_least"),
    (COUNT, {"at_least": math.nan}, "at_least"),
    (COUNT, {"at_least": HUGE}, "at_least"),
    (COUNT, {"at_least": math.inf}, "bounds"),
    (COUNT, {"below": 1}, "bounds"),
    (COUNT, {"below": 0}, "bounds"),
    (COUNT, {"at_least": -math.inf}, "bounds"),
    (COUNT, {"weight": 0}, "weight"),
    (COUNT, {"weight": -1}, "weight"),
    (COUNT, {"weight": math.inf}, "weight"),
    (COUNT, {"weight": 1e7}, "weight"),
    (COUNT, {"weight": "2"}, "weight"),
    (COUNT, {"where": 7}, "where of q"),
    (COUNT, {"where": ""}, "where of q"),
    (COUNT, {"where": "x >"}, "where of q"),
    (COUNT, {"where": ["x = 1"]}, "where of q"),
    (COUNT, {"where": "x = 'text'"}, "column"),
    (COUNT, {"by": "ward"}, "by of q"),
    (COUNT, {"by": {}}, "by of q"),
    (COUNT, {"by": {"a": ["x"], "b": ["y"]}}, "by of q"),
    (COUNT, {"by": {"ward": []}}, "by of q"),
    (COUNT, {"by": {"ward": "north"}}, "by of q"),
    (COUNT, {"by": {"ward": ["a", 1]}}, "by of q"),
    (COUNT, {"by": {"ward": [True]}}, "by of q"),
    (COUNT, {"by": {"ward": ["a", "a"]}}, "categories of ward"),
    (COUNT, {"by": {"ward": [0, -0.0]}}, "categories of ward"),
    (COUNT, {"by": {"ward": [math.inf]}}, "categories of ward"),
    (COUNT, {"by": {"x": ["text"]}}, "column"),
    (MEAN, {"low": 1}, "bounds"),
    (MEAN, {"low": 2}, "bounds"),
    (MEAN, {"high": math.inf}, "bounds"),
    (MEAN, {"low": -math.inf}, "bounds"),
    (MEAN, {"low": 1 - 1e-12}, "bounds"),
    (MEAN, {"low": -1e308, "high": 1e308}, "bounds"),
    (MEAN, {"low": [0]}, "low"),
    (MEAN, {"low": None}, "low"),
    (BINS, {"edges": []}, "edges"),
    (BINS, {"edges": [0]}, "edges"),
    (BINS, {"edges": [0, 0]}, "edges"),
    (BINS, {"edges": [1, 0]}, "edges"),
    (BINS, {"edges": [0, math.nan]}, "edges"),
    (BINS, {"edges": [0, "1"]}, "edges"),
    (BINS, {"edges": 7}, "edges"),
    (BINS, {"categories": ["a"]}, "edges or categories"),
    (TEXTS, {"categories": []}, "categories"),
    (TEXTS, {"categories": ["a", "a"]}, "categories"),
    (TEXTS, {"categories": ["a", 1]}, "categories"),
    (TEXTS, {"categories": [1, math.inf]}, "categories"),
    (TEXTS, {"categories": [1, 1.0]}, "categories"),
    (TEXTS, {"categories": ["a\nb"]}, "categories"),
    (TEXTS, {"categories": {"a": 1}}, "categories"),
    (QUANTILES, {"bins": 1}, "bins"),
    (QUANTILES, {"bins": 10**9}, "bins"),
    (QUANTILES, {"bins": 2.5}, "bins"),
    (QUANTILES, {"bins": True}, "bins"),
    (QUANTILES, {"bins": "64"}, "bins"),
    (QUANTILES, {"probabilities": []}, "probabilities"),
    (QUANTILES, {"probabilities": [0]}, "probabilities"),
    (QUANTILES, {"probabilities": [0.5, 1]}, "probabilities"),
    (QUANTILES, {"probabilities": 0.5}, "probabilities"),
    (LOG_RANK, {"categories": ["a"]}, "categories of q"),
    (LOG_RANK, {"categories": ["a", "a"]}, "categories of g"),
    (LOG_RANK, {"group": "x"}, "column"),
    (LOG_RANK, {"sizes": [5]}, "sizes of q"),
    (LOG_RANK, {"sizes": [5, 5], "by": {"h": [1]}}, "sizes of q"),
    (SURVIVAL, {"high": 0}, "bounds of q"),
    (SURVIVAL, {"high": math.inf}, "edges or high of q"),
    (SURVIVAL, {"low": -math.inf}, "bounds of q"),
    (SURVIVAL, {"edges": [0, 1]}, "edges or high of q"),
    (SURVIVAL, {"edges": []}, "edges"),
    (SURVIVAL, {"bins": 0}, "bins of q"),
    (SURVIVAL, {"bins": 1001}, "bins of q"),
    (SURVIVAL, {"event": 1}, "event of q"),
    (SURVIVAL, {"event": "x", "by": {"x": ["a"]}}, "column"),
    (SURVIVAL, {"horizon": 0}, "horizon of q"),
    (SURVIVAL, {"horizon": math.nan}, "horizon of q"),
    (SURVIVAL, {"sizes": [0.5], "where": "x > 1"}, "sizes of q"),
    (SURVIVAL, {"sizes": [math.inf], "where": "x > 1"}, "sizes of q"),
    (SURVIVAL, {"sizes": [5, 5], "where": "x > 1"}, "sizes of q"),
    (SURVIVAL, {"sizes": [5, 5], "by": {"arm": [1, 2, 3]}}, "sizes of q"),
    (COVARIANCE, {"bounds": {}}, "bounds"),
    (COVARIANCE, {"bounds": [0, 1]}, "bounds"),
    (COVARIANCE, {"bounds": {"x": 1}}, "bounds of q, x"),
    (COVARIANCE, {"bounds": {"x": [1]}}, "bounds of q, x"),
    (COVARIANCE, {"bounds": {"x": [0, 1, 2]}}, "bounds of q, x"),
    (COVARIANCE, {"bounds": {"x": [0, "1"]}}, "bounds of q, x"),
    (COVARIANCE, {"bounds": {"x": [1, 0]}}, "bounds of x"),
    (COVARIANCE, {"bounds": {"x": [0, math.inf]}}, "bounds of x"),
    (COVARIANCE, {"bounds": {"a\nb": [0, 1]}}, "bounds of q"),
    (COVARIANCE, {"bounds": {f"x{place}": [0, 1] for place in range(201)}}, "bounds"),
    (COVARIANCE, {"kind": "correlation", "bounds": {"x": [0, 1]}}, "bounds of q"),
    (LINEAR, {"target": "z"}, "bounds of q"),
    (LINEAR, {"bounds": {"y": [0, 1]}}, "bounds of q"),
    (LINEAR, {"target": 7}, "target"),
    (LOGISTIC, {"bounds": {"y": [0, 1]}}, "bounds of q"),
    (LOGISTIC, {"threshold": math.inf}, "threshold"),
    (LOGISTIC, {"threshold": "1"}, "threshold"),
    (MAXIMUM, {"of": 7}, "of in q"),
    (MAXIMUM, {"of": {"kind": "variance", "column": "x", "low": 0, "high": 1}}, "of in q"),
    (MAXIMUM, {"of": {**MEAN, "where": "x >= 1"}}, "of in q"),
    (MAXIMUM, {"of": {**COUNT, "by": {"x": [1]}}}, "of in q"),
    (MAXIMUM, {"of": {"kind": "maximum"}}, "kind of a query"),
    (MAXIMUM, {"of": {"kind": "count"}}, "column of q"),
    (MAXIMUM, {"where": "x = 1"}, "key in the maximum query q"),
    (VERTICAL, {"held_by": 7}, "held_by"),
    (VERTICAL, {"held_by": {"a": "x", "b": "y"}}, "held_by"),
    (VERTICAL, {"held_by": {"a": ["x"]}}, "held_by"),
    (VERTICAL, {"held_by": {"a": ["x", "y"], "b": []}}, "held_by"),
    (VERTICAL, {"held_by": {"a": ["x"], "b": ["x", "y"]}}, "held_by"),
    (VERTICAL, {"held_by": {"a": ["x"], "b": [7, "y"]}}, "held_by"),
    (VERTICAL, {"by": {"x": [1]}}, "key in the vertical_regression query q"),
    (VERTICAL_COVARIANCE, {"held_by": {"a": ["x"]}}, "held_by"),
    (VERTICAL_COVARIANCE, {"held_by": {"a": ["x", "y"], "b": []}}, "held_by"),
    (VERTICAL_COVARIANCE, {"bounds": {"x": [0, 1], "y": [1, 0]}}, "bounds"),
    (VERTICAL_COVARIANCE, {"bounds": {}}, "bounds"),
    (VERTICAL_COVARIANCE, {"target": "y"}, "key in the vertical_covariance query q"),
    (JOINT, {"rows": 7}, "rows of q"),
    (JOINT, {"rows": {}}, "party in rows of q"),
    (JOINT, {"rows": {**BANK, "colum": "x"}}, "key in rows of q"),
    (JOINT, {"rows": {**BANK, "party": 7}}, "rows of q, party"),
    (JOINT, {"rows": {**BANK, "party": "b"}}, "columns of q, party"),
    (JOINT, {"rows": {**BANK, "edges": []}}, "edges or categories of rows of q"),
    (JOINT, {"rows": {**BANK, "edges": [0]}}, "edges of rows of q"),
    (JOINT, {"rows": {**BANK, "edges": [1, 0]}}, "edges of rows of q"),
    (JOINT, {"rows": {**BANK, "categories": ["r"]}}, "edges or categories of rows of q"),
    (JOINT, {"columns": {"party": "b", "column": "y"}}, "edges or categories of columns of q"),
    (JOINT, {"columns": {**CLINIC, "categories": []}}, "categories of columns of q"),
    (JOINT, {"columns": {**CLINIC, "categories": ["p", "p"]}}, "categories of columns of q"),
    (JOINT, {"columns": {**CLINIC, "categories": ["p", 1]}}, "categories of columns of q"),
    (JOINT, {"columns": {**CLINIC, "categories": [*range(6000)]}}, "cells of q"),
    (JOINT, {"where": "x = 1"}, "key in the joint_table query q"),
]


@pytest.mark.parametrize(("entry", "change", "field"), WRONG, ids=[f"{c!s:.50} {e['kind']}" for e, c, _ in WRONG])
def test_a_wrong_value_is_refused_by_its_field(entry: dict[str, Any], change: dict[str, Any], field: str) -> None:
    make_query(entry)
    with pytest.raises(InputError) as caught:
        make_query({**entry, **change})
    assert caught.value.field.startswith(field)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 500


def title_of(entry: dict[str, Any]) -> str:
    return f"the {entry['kind']} query {entry['name']}"


REQUIRED: Final = [
    (entry, key)
    for entry in (MEAN, QUANTILES, COVARIANCE, LINEAR, LOGISTIC, MAXIMUM, VERTICAL, VERTICAL_COVARIANCE, JOINT, TEXTS)
    for key in entry
    if key not in ("kind", "categories")
]


@pytest.mark.parametrize(("entry", "key"), REQUIRED, ids=[f"{key} of {entry['kind']}" for entry, key in REQUIRED])
def test_a_missing_key_is_named(entry: dict[str, Any], key: str) -> None:
    with pytest.raises(InputError) as caught:
        make_query({name: value for name, value in entry.items() if name != key})
    assert caught.value.field == ("name of a query" if key == "name" else f"{key} in {title_of(entry)}")


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_unknown_key_is_named(kind: str) -> None:
    with pytest.raises(InputError, match="lenght") as caught:
        make_query({**ENTRIES[kind], "lenght": 3})
    assert caught.value.field == f"key in {title_of(ENTRIES[kind])}"


def test_a_count_of_all_records_is_refused_as_it_is_public() -> None:
    with pytest.raises(InputError, match="which is public"):
        make_query({"name": "q", "kind": "count"})


@pytest.mark.parametrize("kind", [["count"], {"count": 1}])
def test_a_kind_may_be_anything(kind: Any) -> None:
    with pytest.raises(InputError):
        make_query({**COUNT, "kind": kind})


def test_a_number_may_be_huge() -> None:
    """As TOML has them in hexadecimal."""
    with pytest.raises(InputError):
        make_query({**QUANTILES, "bins": 1 << 20_000})


def test_a_complaint_about_bounds_is_one_line() -> None:
    with pytest.raises(InputError) as caught:
        make_query({**COVARIANCE, "bounds": {"a\nb": "x"}})
    assert str(caught.value).isprintable()


def test_a_maximum_keeps_its_name() -> None:
    """Or refuses another one."""
    try:
        query = make_query({**MAXIMUM, "of": {"name": "other", **MAXIMUM["of"]}})
    except InputError:
        return
    assert query.name == "q"


_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", EXAMPLES)
def test_any_value_of_any_key_is_taken_or_refused(kind: str, data: st.DataObject) -> None:
    """Never another exception."""
    key = data.draw(st.sampled_from([*(key for key in ENTRIES[kind] if key != "kind"), "where", "by", "weight"]))
    with suppress(InputError):
        make_query({**ENTRIES[kind], key: data.draw(_ANYTHING)})


# Round trips ----------------------------------------------------------------------------------------------------------


def read_again(study: Study) -> Study:
    return Study.parse(tomllib.loads(study.toml()))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_a_study_is_the_same_after_it_is_written_and_read(case: Case) -> None:
    for weight in ({}, {"weight": 0.1}):
        study = study_of({"name": "q", **case.entry, **weight})
        again = read_again(study)
        assert again == study
        assert again.queries[0].settings() == study.queries[0].settings()


@pytest.mark.parametrize("kind", EXAMPLES)
def test_an_example_is_the_same_after_it_is_written_and_read(kind: str) -> None:
    counts = records_at(ENTRIES[kind], ("bank", "school", "family", "lab"), 10)
    parties = [{"name": name, "records": records} for name, records in counts.items()]
    study = study_of(ENTRIES[kind], parties=parties)
    assert read_again(study) == study


@pytest.mark.parametrize("kind", [kind for kind in SUM_KINDS if kind != "count"])
def test_names_may_have_quotes_and_any_letters(kind: str) -> None:
    entry = {key: value for key, value in ENTRIES[kind].items() if key not in ("where", "by")}
    text = '"città" = \'it\'\'s "x" \\ 東\' and "a b" in (1, -2.5, 1e-300)'
    study = study_of({**entry, "name": STRANGE, "where": text, "by": {STRANGE: [STRANGE, "b", "''"]}}, where="age < 99")
    again = read_again(study)
    assert again == study
    assert again.queries[0].name == STRANGE
    assert again.columns_of("a") == study.columns_of("a")
    assert again.columns_of("a")[STRANGE] == "text"


def test_numbers_survive_to_the_last_bit() -> None:
    edges = [-math.inf, -1e300, -5e-324, 0.0, 5e-324, 0.1, 1 / 3, 1e16, math.inf]
    study = study_of({**BINS, "edges": edges}, {**QUANTILES, "name": "r", "low": 0.1, "high": 1 / 3, "weight": 1 / 7})
    again = read_again(study)
    assert again == study
    assert again.queries[0].settings()["edges"] == tuple(edges)


def test_a_condition_of_the_whole_study_joins_that_of_each_query() -> None:
    study = study_of(COUNT, {**MEAN, "name": "m", "where": "y = 1 or y = 2"}, where="z = 'a'")
    assert study.queries[0].settings()["where"] == "z = 'a'"
    assert study.queries[1].settings()["where"] == "z = 'a' and (y = 1 or y = 2)"
    assert read_again(study) == study


@pytest.mark.parametrize("entry", [MAXIMUM, VERTICAL, VERTICAL_COVARIANCE, JOINT], ids=lambda entry: str(entry["kind"]))
def test_a_query_that_is_no_sum_takes_no_condition_of_the_study(entry: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="cannot be used with"):
        study_of(entry, where="x = 1")


def test_queries_have_different_names() -> None:
    with pytest.raises(InputError, match="must have different names"):
        study_of(COUNT, MEAN)


def test_a_column_is_text_or_numbers_in_all_queries() -> None:
    with pytest.raises(InputError, match="is used as text and as numbers"):
        study_of(COUNT, {**TEXTS, "name": "other"})


@pytest.mark.parametrize("text", ["x = 'a\x7f'", "x = 'a\x00'"])
def test_control_characters_in_conditions_survive(text: str) -> None:
    study = study_of({"name": "q", "kind": "count", "where": text})
    assert read_again(study) == study


def test_bounds_made_in_python_may_be_whole_numbers() -> None:
    study = replace(study_of(COUNT), queries=(Covariance("c", (Range("x", 0, 10),)),))
    keys = {name: name.encode() * 32 for name in ("a", "b", "c")}
    assert study.with_keys(keys).terms().query


def test_a_vertical_regression_needs_two_holders() -> None:
    parties = [{"name": "a", "records": 10}, {"name": "b", "records": 0}, {"name": "c", "records": 0}]
    with pytest.raises(InputError):
        study_of({**VERTICAL, "held_by": {"a": ["x", "y"]}}, parties=parties)
