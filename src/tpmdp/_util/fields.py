"""Plain values of a study file, checked: complaints name the field and show the value as the file has it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from tpmdp.errors import InputError, shown

NAME_MAX: Final = 100


def parse_float(text: str) -> float:
    """A number as it is written; only the word means infinity.

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


def tables(field: str, value: Any) -> list[dict[str, Any]]:
    """A list of one table or more.

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


def number(field: str, value: Any) -> float:
    """Any number but NaN.

    >>> number("low", 3)
    3.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        remedy = "remove the quotes" if isinstance(value, str) else "write a number such as 0.5, 1e-6 or inf"
        raise InputError(field, written(value), "is not a number", remedy)
    try:
        found = float(value)
    except OverflowError:
        raise InputError(field, value, "is out of range", "write a smaller number") from None
    if math.isnan(found):
        raise InputError(field, value, "is not a number", "write a number such as 0.5, 1e-6 or inf")
    return found


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
    """A value as a study file has it.

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
