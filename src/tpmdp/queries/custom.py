"""Custom queries, from a Python file that each party names itself: a study cannot make anybody run code.

Mistakes in that file must cost nothing. Its queries are tried before anybody is charged, its errors become one line
that shows no record, and what it prints goes to standard error.
"""

from __future__ import annotations

import functools
import hashlib
import math
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import is_dataclass
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from tpmdp._util.files import StrPath, as_path, readable
from tpmdp.errors import FileError, InputError, TpmdpError, shown
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query, Unit
from tpmdp.queries.catalogue import KINDS, SHARE_KINDS, SUM_KINDS, Kinds, keys_of
from tpmdp.queries.search import search

_SIZE_MAX: Final = 1 << 20
_TRIES: Final = 300
_METHODS: Final = ("features", "statistic", "answers", "limits", "typical", "partial", "__post_init__")
_VALUES: Final = ("columns", "dimension", "spread", "size", "largest")


def load_queries(path: StrPath | None) -> Kinds:
    """The built-in kinds and those that a file defines. All parties need exactly the same file.

    >>> sorted(load_queries(None)) == sorted(KINDS)
    True
    """
    if path is None:
        return KINDS
    file = as_path(path)
    with readable(file, _SIZE_MAX):
        source = file.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    module = _run(file, source, f"tpmdp_queries_{digest[:16]}")
    values = dict.fromkeys(value for value in module.__dict__.values() if isinstance(value, type))
    classes = [value for value in values if issubclass(value, Query) and value.__module__ == module.__name__]
    for maker in classes:
        if isabstract(maker) and maker.__subclasses__() == []:
            lacks = ", ".join(sorted(maker.__abstractmethods__))
            raise FileError(path, f"has the query {shown(maker.__name__)}, which lacks {shown(lacks)}", "define it")
    complete = [maker for maker in classes if not isabstract(maker)]
    custom = {maker.kind_name(): maker for maker in complete}
    if not custom:
        raise FileError(path, "has no query", "define a frozen dataclass that derives from tpmdp.Query")
    if len(custom) < len(complete):
        raise FileError(path, "has two queries of one kind", "give each its own name")
    for kind, maker in custom.items():
        _check_class(file, kind, maker)
        maker.code = digest  # part of what all parties sign
    for maker in classes:
        _guard(file, maker)
    return {**SUM_KINDS, **custom, **SHARE_KINDS}


def _check_class(path: Path, kind: str, maker: type[Query]) -> None:
    if kind in KINDS:
        raise FileError(path, f"has a query of kind {shown(kind)}, which tpmdp has", "choose another name")
    if "__dataclass_fields__" not in maker.__dict__ or not is_dataclass(maker):
        problem = f"has the query {shown(kind)}, which is not a dataclass"
        raise FileError(path, problem, "write @dataclass(frozen=True) above it")
    keys_of(maker)


def _run(path: Path, source: bytes, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        with redirect_stdout(sys.stderr):
            exec(compile(source, str(path), "exec"), module.__dict__)  # noqa: S102  # the user named this file
    except TpmdpError:
        raise
    except (Exception, SystemExit) as error:
        problem = f"{_place(path, error)} fails ({type(error).__name__}: {shown(str(error))})"
        raise FileError(path, problem, "correct it") from None
    return module


def _place(path: Path, error: BaseException) -> str:
    places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    return f"line {getattr(error, 'lineno', None) or (places[-1] if places else '?')}"


# Calls into the file --------------------------------------------------------------------------------------------------


def _guard(path: Path, maker: type[Query]) -> None:
    """Turn every error of the class into one line without values of records, and keep it off standard output."""
    for name in _METHODS:
        if name in maker.__dict__:
            setattr(maker, name, _guarded(path, name, maker.__dict__[name]))
    for name in _VALUES:
        value = maker.__dict__.get(name)
        if isinstance(value, property) and value.fget is not None:
            setattr(maker, name, property(_guarded(path, name, value.fget)))


def _guarded(path: Path, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Query, *arguments: Any, **more: Any) -> Any:
        try:
            with redirect_stdout(sys.stderr):
                result = function(self, *arguments, **more)
        except TpmdpError:
            raise
        except Exception as error:  # its text may hold a value of a record
            problem = f"{_place(path, error)}: {name} of the query {shown(self.name)} fails ({type(error).__name__})"
            raise FileError(path, problem, "correct it, and declare every column in columns") from None
        return _as_arrays(path, self, result) if name == "features" else result

    return call


def _as_arrays(path: Path, query: Query, features: Any) -> list[Any]:
    """The result of `features`, as arrays of doubles."""
    try:
        if isinstance(features, str | bytes) or not hasattr(features, "__iter__"):
            raise TypeError
        return [np.asarray(feature, dtype=np.float64) for feature in features]
    except (TypeError, ValueError):
        problem = f"features of the query {shown(query.name)} did not give a list of arrays of numbers"
        raise FileError(path, problem, "return one array per entry") from None


# Trying before anybody is charged -------------------------------------------------------------------------------------


def check_custom(query: Query, unit: Unit, records: int) -> None:
    """Refuse a query that declares nonsense, cannot answer, or moves further than it declares.

    >>> from tpmdp.queries.count import Count
    >>> check_custom(Count("old", "age", at_least=65.0), "record", 100)
    """
    answers = query.answers(np.asarray(query.typical(float(records)), dtype=np.float64), records, 1.0)
    if not isinstance(answers, list) or not answers or not all(isinstance(answer, Answer) for answer in answers):
        _refuse(query, "answers", type(answers).__name__, rule="must be a list of Answers, at least one")
    for answer in answers:
        is_told = _is_number(answer.value) and _is_number(answer.standard_error)
        if answer.query != query.name or not (is_told or (answer.is_drowned and answer.note)):
            _refuse(query, "answers", answer, rule="must carry the query's name and finite numbers")
    result = search(query, unit, _TRIES)
    if not result.is_safe:
        value = f"{result.declared:.6g}"
        rule = f"is wrong ({result.verdict}; found {result.largest:.6g})"
        raise InputError(f"sensitivity of {query.name}", value, rule, "correct it; tpmdp check-query shows more")


def check_values(query: Query) -> None:
    """Refuse a query whose declarations are of the wrong type.

    >>> from tpmdp.queries.count import Count
    >>> check_values(Count("old", "age", at_least=65.0))
    """
    columns: Any = query.columns
    if not isinstance(columns, Mapping) or not columns or not set(columns.values()) <= {"number", "text"}:
        _refuse(query, "columns", columns, rule='must map column names to "number" or "text"')
    dimension: Any = query.dimension
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        _refuse(query, "dimension", dimension, rule="must be a whole number of at least 1")
    for name, value in (("spread", query.spread), ("size", query.size), ("largest", query.largest)):
        if not _is_number(value) or not value > 0:
            _refuse(query, name, value, rule="must be a number above 0")
    if math.frexp(query.largest)[0] != 0.5:
        _refuse(query, "largest", query.largest, rule="must be a power of two")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(query: Query, name: str, value: Any, rule: str) -> None:
    raise InputError(f"{name} of the query {query.name}", value, rule, "correct the query")
