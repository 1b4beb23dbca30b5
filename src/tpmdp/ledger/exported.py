"""A ledger as `tpmdp ledger export` wrote it, checked by somebody who has nothing but that file.

An export has every entry with all digits, so each hash, total and limit can be computed again. It lacks the ledger's
random id, its party and its unit, so the hash before the first entry is taken as given.
"""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NoReturn

from tpmdp._util.files import readable
from tpmdp.errors import FileError, InputError, shown
from tpmdp.ledger.check import Verification
from tpmdp.ledger.entry import COLUMNS, Entry
from tpmdp.ledger.file import parse_head
from tpmdp.ledger.schema import UNITS
from tpmdp.ledger.spending import LedgerError, Totals

_PAGE: Final = 2048  # entries checked at a time
_FIRST: Final = re.compile(rb'\s*(\{\s*"number"\s*:|number,kind,)')
_FLOATS: Final = frozenset(item.name for item in fields(Entry) if item.type == "float")
_SINCE_2: Final = ("plan", "unit")
_DIGITS_MAX: Final = 15
_REMEDY: Final = "export the ledger again, with tpmdp ledger export"
_ALTERED: Final = "the export was changed, or the ledger was; ask for the ledger to be checked where it is"


@dataclass(frozen=True)
class ExportCheck:
    """What the check of an exported ledger proved."""

    entries: int
    charges: int
    head: str
    """The hash of the newest entry."""
    public_key: str
    """That the ledger is bound to, in hexadecimal; empty if there is none."""
    units: tuple[str, ...]
    """What a budget protects; both where the export does not say."""
    balances: Mapping[str, Totals]
    """What is spent and allowed, by unit."""
    has_noted: bool
    """Whether a hash noted earlier was given, and is among the entries."""


def is_export(start: bytes) -> bool:
    """Whether a file that begins like this is an exported ledger.

    >>> is_export(b'{"number": 1, "kind": "open"'), is_export(b"number,kind,time"), is_export(b"{}")
    (True, True, False)
    """
    return _FIRST.match(start) is not None


def check_export(path: Path, size_max: int, head: str | None = None) -> ExportCheck:
    """Check every entry of an exported ledger: hashes, totals, limits, sessions. LedgerError: an entry is wrong.

    `head`: a hash noted earlier, which must be among the entries.
    """
    noted = None if head is None else parse_head(head)
    rows = list(_rows(path, size_max))
    if not rows:
        raise FileError(path, "has no entries", _REMEDY)
    first = Entry(*rows[0])
    units = (first.unit,) if first.unit else UNITS
    problems: list[tuple[int, str]] = []
    fitting: dict[str, Verification] = {}
    for unit in units:
        verification = Verification(first.previous, unit)
        problem = _first_problem(verification, rows)
        if problem is None:
            fitting[unit] = verification
        else:
            problems.append(problem)
    if not fitting:
        number, text = max(problems)
        raise LedgerError(f"entry {number} of {shown(str(path), 300)}", text, _ALTERED)
    hashes = {row[COLUMNS.index("hash")] for row in rows}
    if noted is not None and noted not in hashes:
        subject = f"the hash {noted[:16]}... noted earlier"
        problem_text = f"is not among the {len(rows)} entries of {shown(str(path), 300)}"
        raise LedgerError(subject, problem_text, "entries were cut off or rewritten since; ask for the ledger itself")
    verification = next(iter(fitting.values()))
    entries = [Entry(*row) for row in rows]
    return ExportCheck(
        len(rows),
        sum(entry.is_charge for entry in entries),
        verification.hash,
        public_key=next((entry.outcome for entry in entries if entry.kind == "bind"), ""),
        units=tuple(fitting),
        balances=verification.balances(),
        has_noted=noted is not None,
    )


def _first_problem(verification: Verification, rows: list[tuple[Any, ...]]) -> tuple[int, str] | None:
    for start in range(0, len(rows), _PAGE):
        problem = verification.page(rows[start : start + _PAGE])
        if problem is not None:
            return problem
    return None


def _rows(path: Path, size_max: int) -> Iterator[tuple[Any, ...]]:
    with readable(path, size_max):
        data = path.read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text", _REMEDY) from None
    documents = _json_lines(path, text) if text.lstrip().startswith("{") else _csv_lines(path, text)
    for place, document in enumerate(documents, 1):
        unknown = document.keys() - set(COLUMNS)
        missing = set(COLUMNS) - document.keys() - set(_SINCE_2)
        if unknown or missing:
            what = f"lacks {min(missing)}" if missing else f"has the unknown column {shown(str(min(unknown)))}"
            raise FileError(path, f"is not an exported ledger: line {place} {what}", _REMEDY)
        try:
            yield tuple(_value(name, document.get(name, "")) for name in COLUMNS)
        except InputError as error:
            problem = f"has {error.field} = {shown(error.value)} in entry {place}, which {error.rule}"
            raise FileError(path, problem, _REMEDY) from None


def _json_lines(path: Path, text: str) -> Iterator[dict[str, Any]]:
    def constant(name: str) -> NoReturn:
        raise ValueError(name)

    for place, line in enumerate(text.split("\n"), 1):
        try:
            document = json.loads(line, parse_constant=constant) if line.strip() else None
        except (ValueError, RecursionError):
            raise FileError(path, f"is cut off or damaged: line {place} is not JSON", _REMEDY) from None
        if isinstance(document, dict):
            yield document
        elif line.strip():
            raise FileError(path, f"is not an exported ledger: line {place} is not an entry", _REMEDY)


def _csv_lines(path: Path, text: str) -> Iterator[dict[str, Any]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = next(reader, [])
        for place, row in enumerate(reader, 2):
            if len(row) != len(columns):
                problem = f"is cut off or damaged: line {place} has {len(row)} cells in {len(columns)} columns"
                raise FileError(path, problem, _REMEDY)
            yield dict(zip(columns, row, strict=True))
    except csv.Error:
        raise FileError(path, "is not valid CSV", _REMEDY) from None


def _value(name: str, value: Any) -> Any:
    """A cell as the ledger has it. Numbers in CSV are texts."""
    if name == "number":
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
            return int(value)
        if type(value) is int:
            return value
        raise InputError(name, value, "is not a whole number", _REMEDY)
    if name not in _FLOATS:
        if isinstance(value, str):
            return value
        raise InputError(name, value, "is not text", _REMEDY)
    try:
        if type(value) not in (int, float, str) or (isinstance(value, str) and "_" in value):
            raise ValueError
        number = float(value)
        if math.isnan(number):
            raise ValueError
    except (ValueError, OverflowError):
        raise InputError(name, value, "is not a number", _REMEDY) from None
    return number
