"""Conditions on a record, as in the WHERE of SQL: age >= 18 and (region in ('north', 'south') or not smoker = 1).

This is a small language, not the SQL of a database: a study comes from other parties, and it must be clear what it can
ask of a party's data. A condition reads columns, compares them with constants and joins comparisons; nothing else.
"""

from __future__ import annotations

import math
import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import BoolArray
from tpmdp.data.table import ColumnKind, Table, Text
from tpmdp.errors import InputError, shown
from tpmdp.queries.categories import places

TEXT_MAX: Final = 10_000
DEPTH_MAX: Final = 50
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)(?![\w.])|(?P<name>[^\W\d]\w*)|\"(?P<quoted>[^\"]+)\""
    r"|'(?P<text>(?:[^']|'')*)'|(?P<sign><=|>=|<>|!=|=|<|>|\(|\)|,))"
)
_WORDS: Final = ("and", "or", "not", "in", "between")
_COMPARE: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(ABC):
    """A condition on a record."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnKind]:
        """The columns it reads, each as its constants are: as text or as numbers."""

    @abstractmethod
    def holds(self, table: Table) -> BoolArray:
        """For which records it holds."""


@dataclass(frozen=True)
class Compare(Condition):
    """A column against a constant."""

    column: str
    sign: str
    value: float | str

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "text" if isinstance(self.value, str) else "number"}

    def holds(self, table: Table) -> BoolArray:
        column = table[self.column]
        if isinstance(column, Text):
            by_value = np.array([_COMPARE[self.sign](value, self.value) for value in column.values] or [False])
            return np.asarray(by_value[column.codes], dtype=np.bool_)
        return np.asarray(_COMPARE[self.sign](column, self.value), dtype=np.bool_)

    def __str__(self) -> str:
        return f"{_name(self.column)} {self.sign} {_constant(self.value)}"


@dataclass(frozen=True)
class OneOf(Condition):
    """A column against a list of constants."""

    column: str
    values: tuple[str, ...] | tuple[float, ...]

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return {self.column: "text" if isinstance(self.values[0], str) else "number"}

    def holds(self, table: Table) -> BoolArray:
        return places(table[self.column], self.values) >= 0

    def __str__(self) -> str:
        return f"{_name(self.column)} in ({', '.join(map(_constant, self.values))})"


@dataclass(frozen=True)
class Not(Condition):
    """The opposite."""

    part: Condition

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        return self.part.columns

    def holds(self, table: Table) -> BoolArray:
        return ~self.part.holds(table)

    def __str__(self) -> str:
        return f"not ({self.part})"


@dataclass(frozen=True)
class Joined(Condition):
    """Several conditions: all of them ("and") or any of them ("or")."""

    word: str
    parts: tuple[Condition, ...]

    @property
    def columns(self) -> Mapping[str, ColumnKind]:
        columns: dict[str, ColumnKind] = {}
        for part in self.parts:
            for column, kind in part.columns.items():
                add_column(columns, column, kind)
        return columns

    def holds(self, table: Table) -> BoolArray:
        every = [part.holds(table) for part in self.parts]
        joined = np.logical_and if self.word == "and" else np.logical_or
        return np.asarray(joined.reduce(every), dtype=np.bool_)

    def __str__(self) -> str:
        return f" {self.word} ".join(f"({part})" if isinstance(part, Joined) else str(part) for part in self.parts)


def add_column(columns: dict[str, ColumnKind], column: str, kind: ColumnKind) -> None:
    """Note how a column is read; refuse to read it in two ways.

    >>> columns = {}
    >>> add_column(columns, "age", "number")
    >>> add_column(columns, "age", "text")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: column = age is used as text and as numbers: quote constants and categories alike
    """
    if columns.setdefault(column, kind) != kind:
        raise InputError("column", column, "is used as text and as numbers", "quote constants and categories alike")


def parse_condition(field: str, text: str) -> Condition:
    """Read a condition.

    >>> str(parse_condition("where", "age>=18 AND (region IN ('north','south') or not smoker = 1)"))
    "age >= 18 and (region in ('north', 'south') or not (smoker = 1))"
    >>> parse_condition("where", "age >= 18").holds({"age": np.array([17.0, 18.0])})
    array([False,  True])
    >>> parse_condition("where", "age => 18")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: where = age => 18 is not a condition (a constant is missing before > 18): write such as
    age >= 18 and region in ('north', 'south')
    """
    if len(text) > TEXT_MAX:
        raise InputError(field, text, f"must have at most {TEXT_MAX} characters", "shorten it")
    try:
        parser = _Parser(text)
        condition = parser.either(0)
        parser.end()
        condition.columns  # noqa: B018  # refuses a column read in two ways
        text_again = str(condition)  # with brackets and blanks, as it is written to study files
        if len(text_again) > TEXT_MAX or _Parser(text_again).either(0) != condition:
            raise _BrokenConditionError("it is too long, or has too many brackets or nots")
    except _BrokenConditionError as problem:
        remedy = "write such as age >= 18 and region in ('north', 'south')"
        raise InputError(field, text, f"is not a condition ({problem})", remedy) from None
    return condition


class _BrokenConditionError(Exception):
    """What is wrong, for the message."""


class _Parser:
    """Recursive descent over the tokens of a condition."""

    def __init__(self, text: str) -> None:
        self._text, self._tokens, self._place = text, list(_tokens(text)), 0

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._place]

    def _take(self, *wanted: str) -> str | None:
        """The next sign or word, if it is one of these."""
        kind, value, _ = self._peek()
        if kind in ("sign", "word") and value in wanted:
            self._place += 1
            return value
        return None

    def _need(self, what: str, *wanted: str) -> str:
        token = self._take(*wanted)
        if token is None:
            raise _BrokenConditionError(f"{what} is missing {self._where()}")
        return token

    def _where(self) -> str:
        kind, _, start = self._peek()
        return "at the end" if kind == "end" else f"before {shown(self._text[start : start + 20].strip())}"

    def end(self) -> None:
        if self._peek()[0] != "end":
            raise _BrokenConditionError(f"and or or is missing {self._where()}")

    def either(self, depth: int) -> Condition:
        return self._joined("or", self._both, depth)

    def _both(self, depth: int) -> Condition:
        return self._joined("and", self._single, depth)

    def _joined(self, word: str, part: Callable[[int], Condition], depth: int) -> Condition:
        if depth > DEPTH_MAX:
            raise _BrokenConditionError(f"more than {DEPTH_MAX} levels of brackets")
        parts = [part(depth)]
        while self._take(word):
            parts.append(part(depth))
        return parts[0] if len(parts) == 1 else Joined(word, tuple(parts))

    def _single(self, depth: int) -> Condition:
        if self._take("not"):
            if depth > DEPTH_MAX:
                raise _BrokenConditionError(f"more than {DEPTH_MAX} levels of not")
            return Not(self._single(depth + 1))
        if self._take("("):
            condition = self.either(depth + 1)
            self._need("a closing bracket", ")")
            return condition
        return self._comparison()

    def _comparison(self) -> Condition:
        kind, column, _ = self._peek()
        if kind != "name":
            raise _BrokenConditionError(f"a column is missing {self._where()}")
        self._place += 1
        if self._take("not"):
            self._need("in", "in")
            return Not(self._one_of(column))
        if self._take("in"):
            return self._one_of(column)
        if self._take("between"):
            low = Compare(column, ">=", self._constant())
            self._need("and", "and")
            return Joined("and", (low, Compare(column, "<=", self._constant())))
        sign = self._need("a comparison", *_COMPARE, "<>")
        return Compare(column, "!=" if sign == "<>" else sign, self._constant())

    def _one_of(self, column: str) -> OneOf:
        self._need("an opening bracket", "(")
        values = [self._constant()]
        while self._take(","):
            values.append(self._constant())
        self._need("a closing bracket", ")")
        texts = tuple(value for value in values if isinstance(value, str))
        numbers = tuple(value for value in values if not isinstance(value, str))
        if texts and numbers:
            raise _BrokenConditionError(f"text and numbers are mixed in the list of {shown(column)}")
        return OneOf(column, texts or numbers)

    def _constant(self) -> float | str:
        kind, value, _ = self._peek()
        if kind == "text":
            self._place += 1
            return value
        if kind != "number":
            raise _BrokenConditionError(f"a constant is missing {self._where()}")
        self._place += 1
        number = float(value)
        if not math.isfinite(number):
            raise _BrokenConditionError(f"{shown(value)} is out of range")
        return number


def _tokens(text: str) -> Iterator[tuple[str, str, int]]:
    """Kind, value and place of every token, then the end."""
    place = 0
    while text[place:].strip():
        match = _TOKEN.match(text, place)
        if match is None:
            raise _BrokenConditionError(f"not understood: {shown(text[place:].strip()[:20])}")
        kind = match.lastgroup or ""
        value, start = match[kind], match.start(kind)
        place = match.end()
        if kind == "name" and value.lower() in _WORDS:
            yield "word", value.lower(), start
        elif kind in ("name", "quoted"):
            yield "name", value, start
        else:
            yield kind, value.replace("''", "'") if kind == "text" else value, start
    yield "end", "", len(text)


def _name(column: str) -> str:
    plain = re.fullmatch(r"[^\W\d]\w*", column) and column.lower() not in _WORDS
    return column if plain else f'"{column}"'


def _constant(value: float | str) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(int(value)) if value == int(value) and abs(value) < 1e15 else repr(value)
