"""Reading parties and budgets from CSV, Parquet or TOML. Every complaint names the file, the line and the remedy."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import check_delta, check_epsilon, check_sensitivity
from tpmdp._util.fields import parse_float
from tpmdp._util.files import readable
from tpmdp._util.progress import Progress
from tpmdp.data.csv import check_width, csv_rows
from tpmdp.data.duck import read_whole_parquet
from tpmdp.errors import FileError, InputError, shown
from tpmdp.planning.weights import check_records, check_weights
from tpmdp.spec import Spec, check_names, check_threshold

COLUMNS: Final = ("name", "epsilon", "delta", "sensitivity", "threshold", "weight", "records")
_REQUIRED: Final = ("epsilon", "delta")
_SIZE_MAX: Final = 4 << 30


@dataclass(frozen=True, eq=False)
class Parties:
    """What a parties file says; None where it is silent."""

    columns: dict[str, Any]
    names: tuple[str, ...]
    threshold: Any = None
    receivers: list[str] | str | None = None
    weights: FloatArray | None = None
    records: FloatArray | None = None

    def spec(self, threshold: Any, receivers: Any) -> Spec:
        """The spec for these parties.

        >>> parties = Parties({"epsilon": [1.0, 2.0], "delta": 1e-6}, ("a", "b"))
        >>> parties.spec(1, "all").count
        2
        """
        return Spec(**self.columns, names=self.names, threshold=threshold, receivers=receivers)


def read_parties(path: Path, progress: Progress | None = None) -> Parties:
    """Read a .csv, .parquet or .toml file of parties.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "parties.csv"
    ...     _ = file.write_text("name,epsilon,delta" + chr(10) + "bank,0.5,1e-6" + chr(10))
    ...     read_parties(file).names
    ('bank',)
    """
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".toml": _read_toml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileError(path, "is of no known kind", "use a .csv, .parquet or .toml file of parties")
    with readable(path, _SIZE_MAX) as size:
        if size == 0:
            raise FileError(path, "is empty", "give one entry a party")
        return reader(path, progress)


def _check_header(path: Path, names: Sequence[str]) -> list[str]:
    header = [name.strip().lower() for name in names]
    for name in _REQUIRED:
        if name not in header:
            problem = f"has no column {name} (it has {shown(', '.join(names))})"
            raise FileError(path, problem, f"add it; columns are {', '.join(COLUMNS)}, separated by commas")
    for name in header:
        if name not in COLUMNS:
            raise FileError(path, f"has an unknown column {shown(name)}", f"columns are {', '.join(COLUMNS)}")
        if header.count(name) > 1:
            raise FileError(path, f"has the column {name} twice", "keep one of them")
    return header


def _finish(path: Path, columns: dict[str, Any], names: Sequence[Any] | None, label: Callable[[int], str]) -> Parties:
    """Check the parties here, where a complaint can still name the line, and hand over."""
    count = len(columns["epsilon"])
    if not count:
        raise FileError(path, "has no parties", "give one line a party")
    arrays = {field: np.asarray(column, dtype=np.float64) for field, column in columns.items()}
    threshold, weights, records = (arrays.pop(field, None) for field in ("threshold", "weight", "records"))
    try:
        named = tuple(f"party_{i + 1}" for i in range(count)) if names is None else check_names(names, label)
        if threshold is not None:
            check_threshold(threshold, count, label)
        check_epsilon(arrays["epsilon"], label)
        check_delta(arrays["delta"], arrays["epsilon"], label)
        if "sensitivity" in arrays:
            check_sensitivity(arrays["sensitivity"], label)
        sizes = np.ones(count) if records is None else check_records(records, label)
        if weights is not None:
            check_weights(weights, sizes, label)
    except InputError as error:
        raise FileError(path, f"has {error.field} = {shown(error.value)}, which {error.rule}", error.remedy) from None
    return Parties(arrays, named, threshold, None, weights, records)


# CSV ------------------------------------------------------------------------------------------------------------------


def _number(path: Path, line: int, field: str, text: str) -> float:
    try:
        number = float(text)
        if "_" in text or (isinf(number) and "inf" not in text.lower()):  # only the word means infinity
            raise ValueError
    except ValueError:
        problem = f"line {line} has {field} = {shown(text.strip())}, which is not a number in range"
        whole = field in ("threshold", "records")
        remedy = "write a whole number such as 2" if whole else "write a number such as 0.5, 1e-6 or inf"
        raise FileError(path, problem, remedy) from None
    return number


def _read_csv(path: Path, progress: Progress | None) -> Parties:
    rows = csv_rows(path, progress)
    _, first = next(rows, (0, []))
    header = _check_header(path, first)
    numeric = [(position, field) for position, field in enumerate(header) if field != "name"]
    names: list[str] | None = [] if "name" in header else None
    where = header.index("name") if "name" in header else -1
    values: dict[str, list[float]] = {field: [] for _, field in numeric}
    lines: list[int] = []
    blank = 0
    for line, row in rows:
        if not row or (len(row) == 1 and not row[0].strip()):
            blank = blank or line
            continue
        if blank:
            raise FileError(path, f"line {blank} is blank", "remove it, or fill in the party that is missing")
        check_width(path, line, row, header=header)
        for position, field in numeric:
            values[field].append(_number(path, line, field, row[position]))
        if names is not None:
            names.append(row[where].strip())
        lines.append(line)
    return _finish(path, dict(values), names, lambda index: f"line {lines[index]}")


# Parquet --------------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, progress: Progress | None) -> Parties:
    del progress  # DuckDB reads a million rows in well under a second
    table = read_whole_parquet(path)
    header = _check_header(path, list(table))
    columns: dict[str, Any] = {}
    names: list[Any] | None = None
    for field, column in zip(header, table.values(), strict=True):
        missing = np.ma.getmaskarray(column)
        if missing.any():
            raise FileError(path, f"row {int(np.argmax(missing)) + 1} has no {field}", "fill it in")
        plain = np.ma.getdata(column)
        if field == "name":
            names = plain.tolist()
        elif plain.dtype.kind not in "fiu":
            raise FileError(path, f"has {field} of type {plain.dtype}, not numbers", "store plain numbers")
        else:
            columns[field] = plain
    return _finish(path, columns, names, lambda index: f"row {index + 1}")


# TOML -----------------------------------------------------------------------------------------------------------------


def _read_toml(path: Path, progress: Progress | None) -> Parties:
    del progress
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"), parse_float=parse_float)
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
    except (ValueError, RecursionError) as error:
        raise FileError(path, f"is not valid TOML ({shown(str(error))})", "fix it") from None
    known = ("parties", "receivers", "threshold", *_REQUIRED, "sensitivity")
    for key in document:
        if key not in known:
            raise FileError(path, f"has an unknown key {shown(key)}", f"keys are {', '.join(known)}")
    entries = document.get("parties")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise FileError(path, "has no parties", "add a [[parties]] table for each")
    defaults = {
        "sensitivity": 1.0,
        "weight": 1.0,
        "records": 1.0,
        **{key: document[key] for key in known[2:] if key in document},
    }
    for key, value in defaults.items():
        _toml_number(path, f"has {key}", value)
    optional = [field for field in ("threshold", "weight", "records") if any(field in entry for entry in entries)]
    fields = [*_REQUIRED, "sensitivity", *optional]
    columns: dict[str, Any] = {field: [] for field in fields}
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in COLUMNS:
                problem = f"party {number} has an unknown key {shown(key)}"
                raise FileError(path, problem, f"keys are {', '.join(COLUMNS)}")
        for field in fields:
            value = entry.get(field, defaults.get(field))
            if value is None:
                raise FileError(path, f"party {number} has no {field}", "give it one, or one for all at the top")
            columns[field].append(_toml_number(path, f"party {number} has {field}", value))
    names = [entry.get("name", f"party_{number}") for number, entry in enumerate(entries, 1)]
    parties = _finish(path, columns, names, lambda index: f"party {index + 1}")
    threshold = parties.threshold if parties.threshold is not None else document.get("threshold")
    receivers = _toml_receivers(path, document.get("receivers"))
    return replace(parties, threshold=threshold, receivers=receivers)


def _toml_receivers(path: Path, receivers: Any) -> list[str] | str | None:
    if receivers == "none":
        return []
    if receivers is None or receivers == "all":
        return None if receivers is None else "all"
    if not isinstance(receivers, list) or not all(isinstance(name, str) for name in receivers):
        raise FileError(path, f"has receivers = {shown(receivers)}", 'list names, or write "all" or "none"')
    return receivers


def _toml_number(path: Path, what: str, value: Any) -> float:
    try:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError
        return float(value)
    except (ValueError, OverflowError):
        problem = f"{what} = {shown(value)}, which is not a number in range"
        raise FileError(path, problem, "write a number such as 0.5, 1e-6 or inf") from None
