"""The one reader of fields in TOML and JSON documents.

`read_toml` and `read_json` parse a file. The other functions check one value each and raise an `InputError` that names
the field, the value as the document writes it, the rule and the remedy. Within `in_file` that error becomes a
`FileError` that also names the file.
"""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

from tpmdp._util.files import readable
from tpmdp.errors import FileError, InputError, shown

NAME_MAX: Final = 100
REMARK_MAX: Final = 500
_PROBLEM_SHOWN: Final = 300


# Documents ------------------------------------------------------------------------------------------------------------


@contextmanager
def in_file(path: Path, remedy: str | None = None) -> Iterator[None]:
    """An `InputError` in the block becomes a `FileError` for this file, with its own remedy if none is given here.

    >>> with in_file(Path("study.toml")):
    ...     whole("session", 0, 1, 10)
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: study.toml has session = 0, which must be a whole number from 1 to 10: change it
    """
    try:
        yield
    except InputError as error:
        problem = f"has {error.field} = {shown(error.value)}, which {error.rule}"
        raise FileError(path, problem, remedy or error.remedy) from None


def read_toml(path: Path, size_max: int) -> dict[str, Any]:
    """The values of a TOML file. A number that does not fit a double is refused, not turned into infinity."""
    with readable(path, size_max):
        data = path.read_bytes()
    try:
        return tomllib.loads(data.decode("utf-8-sig"), parse_float=parse_float)
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"is not valid TOML ({shown(str(error), _PROBLEM_SHOWN)})", "fix it") from None


def read_json(path: Path, size_max: int, remedy: str) -> Any:
    """The value of a JSON file. Repeated keys, NaN and infinity are refused."""

    def fail(problem: str) -> NoReturn:
        raise FileError(path, problem, remedy) from None

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        return keys if len(keys) == len(pairs) else fail("has a key twice")

    def constant(name: str) -> NoReturn:
        fail(f"holds {name}, which JSON does not allow")

    with readable(path, size_max):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8")
        if not text.strip():
            fail("is empty")
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except UnicodeDecodeError:
        fail("is not UTF-8 text")
    except (ValueError, RecursionError) as error:
        fail(f"is not valid JSON ({shown(str(error))})")


def table(field: str, value: Any, required: Sequence[str], optional: Sequence[str] = ()) -> dict[str, Any]:
    """A table with these keys.

    >>> table("parties", {"count": 2}, ["count"])
    {'count': 2}
    """
    if not isinstance(value, dict):
        raise InputError(field, written(value), "is not a table", "write a table of keys and values")
    check_keys(field, value, required, optional=optional)
    return value


def check_keys(where: str, table: Mapping[str, Any], required: Sequence[str], optional: Sequence[str]) -> None:
    """Refuse missing and unknown keys.

    >>> check_keys("a party", {"nam": "x"}, ["name"], [])
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: key in a party = nam is unknown: did you mean name?
    """
    known = [*required, *optional]
    for key in table:
        if key not in known:
            near = get_close_matches(key, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"keys are {', '.join(known)}"
            raise InputError(f"key in {where}", key, "is unknown", remedy)
    for key in required:
        if key not in table:
            raise InputError(f"{key} in {where}", "(none)", "is missing", "add it")


# Values ---------------------------------------------------------------------------------------------------------------


def parse_float(text: str) -> float:
    """The number that a text writes; only the word inf means infinity.

    >>> parse_float("1e-6"), parse_float("inf")
    (1e-06, inf)
    >>> parse_float("1e400")
    Traceback (most recent call last):
        ...
    ValueError: 1e400 is out of range
    """
    number = float(text)
    if not text.isascii() or (math.isinf(number) and text.lower().lstrip("+-") != "inf"):
        raise ValueError(f"{shown(text)} is out of range")
    return number


def entries(field: str, value: Any) -> list[Any]:
    """A list of anything.

    >>> entries("members", [1, 2])
    [1, 2]
    """
    if not isinstance(value, list):
        raise InputError(field, written(value), "is not a list", "write the values in [ ], with commas")
    return value


def tables(field: str, value: Any) -> list[dict[str, Any]]:
    """A list of at least one table.

    >>> tables("parties", [{"name": "bank"}])
    [{'name': 'bank'}]
    """
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        raise InputError(field, value, "must be one table or more", f"add a [[{field}]] table for each")
    return value


def title(field: str, value: Any) -> str:
    """Short printable text.

    >>> title("name", "length of stay")
    'length of stay'
    """
    if not isinstance(value, str) or not value.strip() or len(value) > NAME_MAX or not value.isprintable():
        raise InputError(field, value, f"must be text of at most {NAME_MAX} printable characters", "change it")
    return value


def remark(field: str, value: Any) -> str:
    """Text for people on one line; it may be empty.

    >>> remark("purpose", "to plan beds")
    'to plan beds'
    """
    if not isinstance(value, str) or len(value) > REMARK_MAX or not value.isprintable():
        rule = f"must be text of at most {REMARK_MAX} printable characters, on one line"
        raise InputError(field, written(value), rule, "shorten it")
    return value.strip()


def whole(field: str, value: Any, low: int, high: int) -> int:
    """A whole number.

    >>> whole("bins", "10", 1, 100)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: bins = "10" must be a whole number from 1 to 100: remove the quotes
    """
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        remedy = "remove the quotes" if isinstance(value, str) else "change it"
        raise InputError(field, written(value), f"must be a whole number from {low} to {high}", remedy)
    return value


def number(field: str, value: Any, finite: bool = False) -> float:
    """A number, not NaN; infinity only if `finite` is not set.

    >>> number("low", 3)
    3.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        remedy = "remove the quotes" if isinstance(value, str) else "write a number such as 0.5, 1e-6 or inf"
        raise InputError(field, written(value), "is not a number", remedy)
    try:
        converted = float(value)
    except OverflowError:
        raise InputError(field, value, "is out of range", "write a smaller number") from None
    if math.isnan(converted):
        raise InputError(field, value, "is not a number", "write a number such as 0.5, 1e-6 or inf")
    if finite and math.isinf(converted):
        raise InputError(field, value, "is out of range", "write a finite number")
    return converted


def numbers(field: str, value: Any) -> tuple[float, ...]:
    """A list of numbers.

    >>> numbers("edges", [0, 1.5])
    (0.0, 1.5)
    """
    if not isinstance(value, list):
        raise InputError(field, written(value), "must be a list of numbers", "write them in [ ], with commas")
    return tuple(number(field, entry) for entry in value)


def categories(field: str, value: Any) -> tuple[str, ...] | tuple[float, ...]:
    """A list of texts or a list of numbers.

    >>> categories("regions", ["north", "south"])
    ('north', 'south')
    """
    if not isinstance(value, list) or not value:
        raise InputError(field, written(value), "must be a list", 'write such as ["north", "south"]')
    if all(isinstance(entry, str) for entry in value):
        return tuple(title(field, entry) for entry in value)
    if any(isinstance(entry, str) for entry in value):
        raise InputError(field, written(value), "must be all text or all numbers", "quote all or none")
    return numbers(field, value)


def choice(field: str, value: Any, choices: Sequence[str]) -> Any:
    """One of several words.

    >>> choice("unit", "record", ["record", "party"])
    'record'
    """
    if value not in choices:
        raise InputError(field, written(value), f"must be one of {', '.join(choices)}", "choose one")
    return value


def truth(field: str, value: Any) -> bool:
    """True or false.

    >>> truth("normalised", True)
    True
    """
    if not isinstance(value, bool):
        raise InputError(field, written(value), "must be true or false", "choose one")
    return value


def written(value: Any) -> str:
    """A value as a TOML file writes it.

    >>> written("a"), written(True), written(None)
    ('"a"', 'true', '(none)')
    """
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    try:
        return "(none)" if value is None else str(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        return "(a huge number)"
