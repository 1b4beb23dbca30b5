"""Queries of your own, from a Python file that you name yourself: a study never makes anybody run code.

Mistakes in that file must cost nothing: what it defines is tried before anybody is charged, its errors become one line
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

from tpmdp._util.files import readable
from tpmdp.errors import FileError, InputError, TpmdpError, shown
from tpmdp.queries.base import Answer, Query, Unit
from tpmdp.queries.catalogue import JOINT_KINDS, KINDS, Kinds, keys_of
from tpmdp.queries.search import search

_SIZE_MAX: Final = 1 << 20
_TRIES: Final = 300
_METHODS: Final = ("features", "statistic", "answers", "limits", "typical", "partial", "__post_init__")
_VALUES: Final = ("columns", "dimension", "spread", "size", "largest")


def load_queries(path: Path | None) -> Kinds:
    """The kinds tpmdp has and those of a file: its classes that are queries. All parties need the very same file.

    >>> sorted(load_queries(None)) == sorted(KINDS)
    True
    """
    if path is None:
        return KINDS
    with readable(path, _SIZE_MAX):
        source = path.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    module = _run(path, source, f"tpmdp_queries_{digest[:16]}")
    found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Query)]
    mine = [one for one in dict.fromkeys(found) if one.__module__ == module.__name__]
    for one in mine:
        if isabstract(one) and one.__subclasses__() == []:
            lacks = ", ".join(sorted(one.__abstractmethods__))
            raise FileError(path, f"has the query {shown(one.__name__)}, which lacks {shown(lacks)}", "define it")
    whole = [one for one in mine if not isabstract(one)]
    own = {one.kind_name(): one for one in whole}
    if not own:
        raise FileError(path, "has no query", "define a frozen dataclass that derives from tpmdp.Query")
    if len(own) < len(whole):
        raise FileError(path, "has two queries of one kind", "give each its own name")
    for kind, one in own.items():
        _check_class(path, kind, one)
        one.code = digest  # part of what all parties sign
    for one in mine:
        _guard(path, one)
    return {**KINDS, **own}


def _check_class(path: Path, kind: str, one: type[Query]) -> None:
    if kind in KINDS or kind in JOINT_KINDS:
        raise FileError(path, f"has a query of kind {shown(kind)}, which tpmdp has", "choose another name")
    if "__dataclass_fields__" not in vars(one) or not is_dataclass(one):
        problem = f"has the query {shown(kind)}, which is no dataclass"
        raise FileError(path, problem, "write @dataclass(frozen=True) above it")
    keys_of(one)


def _run(path: Path, source: bytes, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        with redirect_stdout(sys.stderr):
            exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102  # the user named this file
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


def _guard(path: Path, one: type[Query]) -> None:
    """Let every error of the class become one line without the values of records, and nothing reach standard output."""
    for name in _METHODS:
        if name in vars(one):
            setattr(one, name, _guarded(path, name, vars(one)[name]))
    for name in _VALUES:
        value = vars(one).get(name)
        if isinstance(value, property) and value.fget is not None:
            setattr(one, name, property(_guarded(path, name, value.fget)))


def _guarded(path: Path, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(self: Query, *arguments: Any, **more: Any) -> Any:
        try:
            with redirect_stdout(sys.stderr):
                found = function(self, *arguments, **more)
        except TpmdpError:
            raise
        except Exception as error:  # its text may hold a value of a record
            problem = f"{_place(path, error)}: {name} of the query {shown(self.name)} fails ({type(error).__name__})"
            raise FileError(path, problem, "correct it, and declare every column in columns") from None
        return _as_arrays(path, self, found) if name == "features" else found

    return call


def _as_arrays(path: Path, query: Query, found: Any) -> list[Any]:
    """What `features` gave, as arrays of doubles."""
    try:
        if isinstance(found, str | bytes) or not hasattr(found, "__iter__"):
            raise TypeError
        return [np.asarray(feature, dtype=np.float64) for feature in found]
    except (TypeError, ValueError):
        problem = f"features of the query {shown(query.name)} gave no list of arrays of numbers"
        raise FileError(path, problem, "return one array an entry") from None


# Trying before anybody is charged -------------------------------------------------------------------------------------


def check_own(query: Query, unit: Unit, records: int) -> None:
    """Refuse a query that declares nonsense, cannot answer, or moves further than it declares.

    >>> from tpmdp.queries.count import Count
    >>> check_own(Count("old", "age", at_least=65.0), "record", 100)
    """
    found = query.answers(np.asarray(query.typical(float(records)), dtype=np.float64), records, 1.0)
    if not isinstance(found, list) or not found or not all(isinstance(one, Answer) for one in found):
        _refuse(query, "answers", type(found).__name__, "must be a list of Answers, at least one")
    for one in found:
        if one.query != query.name or not _is_number(one.value) or not _is_number(one.standard_error):
            _refuse(query, "answers", one, "must carry the query's name and finite numbers")
    worst = search(query, unit, _TRIES)
    if not worst.is_safe:
        value = f"{worst.declared:.6g}"
        rule = f"is wrong ({worst.verdict}; found {worst.largest:.6g})"
        raise InputError(f"sensitivity of {query.name}", value, rule, "correct it; tpmdp check-query says more")


def check_values(query: Query) -> None:
    """Refuse a query whose declarations are of the wrong type.

    >>> from tpmdp.queries.count import Count
    >>> check_values(Count("old", "age", at_least=65.0))
    """
    columns: Any = query.columns
    if not isinstance(columns, Mapping) or not columns or not set(columns.values()) <= {"number", "text"}:
        _refuse(query, "columns", columns, 'must map column names to "number" or "text"')
    dimension: Any = query.dimension
    if isinstance(dimension, bool) or not isinstance(dimension, int) or dimension < 1:
        _refuse(query, "dimension", dimension, "must be a whole number of at least 1")
    for name, value in (("spread", query.spread), ("size", query.size), ("largest", query.largest)):
        if not _is_number(value) or not value > 0:
            _refuse(query, name, value, "must be a number above 0")
    if math.frexp(query.largest)[0] != 0.5:
        _refuse(query, "largest", query.largest, "must be a power of two")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.floating) and not isinstance(value, bool) and math.isfinite(value)


def _refuse(query: Query, name: str, value: Any, rule: str) -> None:
    raise InputError(f"{name} of the query {query.name}", value, rule, "correct the query")
