"""Reading parties and budgets from CSV, Parquet or TOML. Every error names the file, the line and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util import fields as read
from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import check_delta, check_epsilon, check_sensitivity
from tpmdp._util.files import StrPath, as_path, readable
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
class PartiesTable:
    """What a parties file says, one column per field, which suits millions of parties. None: the file does not say."""

    columns: dict[str, Any]
    names: tuple[str, ...]
    threshold: Any = None
    receivers: list[str] | str | None = None
    weights: FloatArray | None = None
    records: FloatArray | None = None

    def spec(self, threshold: Any, receivers: Any) -> Spec:
        """The spec for these parties.

        >>> parties = PartiesTable({"epsilon": [1.0, 2.0], "delta": 1e-6}, ("a", "b"))
        >>> parties.spec(1, "all").count
        2
        """
        return Spec(**self.columns, names=self.names, threshold=threshold, receivers=receivers)


def read_parties(path: StrPath, progress: Progress | None = None) -> PartiesTable:
    """Read a .csv, .parquet or .toml file of parties.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "parties.csv"
    ...     _ = file.write_text("name,epsilon,delta" + chr(10) + "bank,0.5,1e-6" + chr(10))
    ...     read_parties(file).names
    ('bank',)
    """
    path = as_path(path)
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".toml": _read_toml}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise FileError(path, "has an unknown type", "use a .csv, .parquet or .toml file of parties")
    with readable(path, _SIZE_MAX) as size, read.in_file(path):
        if size == 0:
            raise FileError(path, "is empty", "give one entry per party")
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


def _finish(columns: dict[str, Any], names: Sequence[Any] | None, label: Callable[[int], str]) -> PartiesTable:
    """Check the parties here, where an error can still name the line."""
    count = len(columns["epsilon"])
    if not count:
        raise InputError("parties", "none", "must be at least one", "give one line per party")
    arrays = {field: np.asarray(column, dtype=np.float64) for field, column in columns.items()}
    threshold, weights, records = (arrays.pop(field, None) for field in ("threshold", "weight", "records"))
    checked_names = tuple(f"party_{i + 1}" for i in range(count)) if names is None else check_names(names, label)
    if threshold is not None:
        check_threshold(threshold, count, label)
    check_epsilon(arrays["epsilon"], label)
    check_delta(arrays["delta"], arrays["epsilon"], label)
    if "sensitivity" in arrays:
        check_sensitivity(arrays["sensitivity"], label)
    sizes = np.ones(count) if records is None else check_records(records, label)
    if weights is not None:
        check_weights(weights, sizes, label)
    return PartiesTable(arrays, checked_names, threshold, weights=weights, records=records)


# CSV ------------------------------------------------------------------------------------------------------------------


def _number(line: int, field: str, text: str) -> float:
    try:
        number = float(text)
        if "_" in text or (isinf(number) and "inf" not in text.lower()):  # only the word means infinity
            raise ValueError
    except ValueError:
        whole = field in ("threshold", "records")
        remedy = "write a whole number such as 2" if whole else "write a number such as 0.5, 1e-6 or inf"
        raise InputError(f"{field} of line {line}", text.strip(), "is not a number in range", remedy) from None
    return number


def _read_csv(path: Path, progress: Progress | None) -> PartiesTable:
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
            values[field].append(_number(line, field, row[position]))
        if names is not None:
            names.append(row[where].strip())
        lines.append(line)
    return _finish(dict(values), names, lambda index: f"line {lines[index]}")


# Parquet --------------------------------------------------------------------------------------------------------------


def _read_parquet(path: Path, progress: Progress | None) -> PartiesTable:
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
    return _finish(columns, names, lambda index: f"row {index + 1}")


# TOML -----------------------------------------------------------------------------------------------------------------


def _read_toml(path: Path, progress: Progress | None) -> PartiesTable:
    del progress
    document = read.read_toml(path, _SIZE_MAX)
    shared = ("threshold", *_REQUIRED, "sensitivity")
    read.check_keys("the file", document, (), optional=["parties", "receivers", *shared])
    entries = read.tables("parties", document.get("parties"))
    defaults = {"sensitivity": 1.0, "weight": 1.0, "records": 1.0}
    defaults |= {key: read.number(key, document[key]) for key in shared if key in document}
    optional = [field for field in ("threshold", "weight", "records") if any(field in entry for entry in entries)]
    columns: dict[str, Any] = {field: [] for field in (*_REQUIRED, "sensitivity", *optional)}
    for number, entry in enumerate(entries, 1):
        read.check_keys(f"party {number}", entry, (), optional=COLUMNS)
        for field, column in columns.items():
            value = entry.get(field, defaults.get(field))
            if value is None:
                remedy = "give the party its own, or one for all at the top"
                raise InputError(f"{field} of party {number}", "(none)", "is missing", remedy)
            column.append(read.number(f"{field} of party {number}", value))
    names = [entry.get("name", f"party_{number}") for number, entry in enumerate(entries, 1)]
    parties = _finish(columns, names, lambda index: f"party {index + 1}")
    threshold = parties.threshold if parties.threshold is not None else document.get("threshold")
    return replace(parties, threshold=threshold, receivers=_toml_receivers(document.get("receivers")))


def _toml_receivers(receivers: Any) -> list[str] | str | None:
    if receivers == "none":
        return []
    if receivers is None or receivers == "all":
        return None if receivers is None else "all"
    if not isinstance(receivers, list) or not all(isinstance(name, str) for name in receivers):
        rule = 'must be a list of names, "all" or "none"'
        raise InputError("receivers", read.written(receivers), rule, "change it")
    return receivers
