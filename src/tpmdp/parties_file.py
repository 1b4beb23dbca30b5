"""Reading parties and budgets from CSV, Parquet or TOML. Every complaint names the file, the line and the remedy."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp.errors import FileError, InputError, MissingDependencyError, shown
from tpmdp.progress import Progress
from tpmdp.spec import Spec
from tpmdp.validate import check_delta, check_epsilon, check_sensitivity

COLUMNS: Final = ("name", "epsilon", "delta", "sensitivity", "threshold")
_REQUIRED: Final = ("epsilon", "delta")
_SIZE_MAX: Final = 4 << 30
_GLOB: Final = frozenset("*?[]{}")


@dataclass(frozen=True, eq=False)
class Parties:
    """What a parties file says; `threshold` and `receivers` are None where it is silent."""

    columns: dict[str, Any]
    names: tuple[str, ...]
    threshold: Any = None
    receivers: list[str] | None = None

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
    try:
        size = path.stat().st_size
        if path.is_dir():
            raise FileError(path, "is a folder", "name a file of parties")
        if size == 0:
            raise FileError(path, "is empty", "give a header line and one line a party")
        if size > _SIZE_MAX:
            raise FileError(path, f"has {size} bytes", f"files of parties are limited to {_SIZE_MAX} bytes")
        return reader(path, progress)
    except FileNotFoundError:
        raise FileError(path, "does not exist", "check the path") from None
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})", "check the file and its rights") from None


def _check_header(path: Path, names: Sequence[str]) -> list[str]:
    header = [name.strip().lower() for name in names]
    for name in _REQUIRED:
        if name not in header:
            raise FileError(path, f"has no column {name}", f"add it; columns are {', '.join(COLUMNS)}")
    for name in header:
        if name not in COLUMNS:
            remedy = f"columns are {', '.join(COLUMNS)}"
            raise FileError(path, f"has an unknown column {shown(name) or '(blank)'}", remedy)
        if header.count(name) > 1:
            raise FileError(path, f"has the column {name} twice", "keep one of them")
    return header


def _finish(path: Path, columns: dict[str, Any], names: Sequence[str] | None, label: Callable[[int], str]) -> Parties:
    """Check the budgets here, where a complaint can still name the line, and hand over."""
    count = len(columns["epsilon"])
    if not count:
        raise FileError(path, "has no parties", "give one line a party")
    arrays = {field: np.asarray(column, dtype=np.float64) for field, column in columns.items()}
    threshold = arrays.pop("threshold", None)
    try:
        check_epsilon(arrays["epsilon"], label)
        check_delta(arrays["delta"], arrays["epsilon"], label)
        if "sensitivity" in arrays:
            check_sensitivity(arrays["sensitivity"], label)
    except InputError as error:
        raise FileError(path, f"has {error.field} = {shown(error.value)}, which {error.rule}", error.remedy) from None
    named = tuple(names) if names is not None else tuple(f"party_{number + 1}" for number in range(count))
    return Parties(arrays, named, threshold)


def _lines(path: Path, text: io.TextIOBase) -> Iterator[tuple[int, list[str]]]:
    """Rows with their line numbers; undecodable bytes and broken quoting become a FileError."""
    reader = csv.reader(text, strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:
            raise FileError(path, f"is not UTF-8 text after line {reader.line_num}", "save it as CSV UTF-8") from None
        except csv.Error as error:
            raise FileError(path, f"line {reader.line_num} is not valid CSV ({error})", "fix the quotes") from None
        yield reader.line_num, row


def _number(path: Path, line: int, field: str, text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        value = shown(text.strip()) or "(blank)"
        raise FileError(
            path, f"line {line} has {field} = {value}, which is not a number", "write 0.5, 1e-6 or inf"
        ) from None


def _read_csv(path: Path, progress: Progress | None) -> Parties:
    with path.open("rb") as raw:
        if raw.read(2) in (b"\xff\xfe", b"\xfe\xff"):
            raise FileError(path, "is UTF-16 text", "save it as CSV UTF-8")
    size = path.stat().st_size
    with path.open(encoding="utf-8-sig", newline="") as text:
        rows = _lines(path, text)
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
            if len(row) != len(header):
                problem = f"line {line} has {len(row)} values for {len(header)} columns"
                raise FileError(path, problem, "give every column one value")
            for position, field in numeric:
                values[field].append(_number(path, line, field, row[position]))
            if names is not None:
                names.append(row[where].strip())
            lines.append(line)
            if progress is not None and len(lines) % 65536 == 0:
                progress(min(text.buffer.raw.tell(), size), size)  # type: ignore[attr-defined]
    return _finish(path, dict(values), names, lambda index: f"line {lines[index]}")


def _read_parquet(path: Path, progress: Progress | None) -> Parties:
    del progress  # DuckDB reads a million rows in well under a second
    try:
        import duckdb
    except ImportError:
        raise MissingDependencyError("duckdb", "parquet", "to read Parquet files") from None
    if _GLOB & set(str(path)):
        raise FileError(path, "has a wildcard in its path", "rename it")
    try:
        with duckdb.connect(":memory:") as connection:
            table = connection.execute("SELECT * FROM read_parquet(?)", [str(path)]).fetchnumpy()
    except duckdb.Error as error:
        raise FileError(path, f"is not a readable Parquet file ({shown(str(error))})", "write it anew") from None
    header = _check_header(path, list(table))
    columns: dict[str, Any] = {}
    names: list[str] | None = None
    for field, column in zip(header, table.values(), strict=True):
        missing = np.ma.getmaskarray(column)
        if missing.any():
            raise FileError(path, f"row {int(np.argmax(missing)) + 1} has no {field}", "fill it in")
        plain = np.ma.getdata(column)
        if field == "name":
            names = [str(name).strip() for name in plain.tolist()]
        elif plain.dtype.kind not in "fiu":
            raise FileError(path, f"has {field} of type {plain.dtype}, not numbers", "store plain numbers")
        else:
            columns[field] = plain
    return _finish(path, columns, names, lambda index: f"row {index + 1}")


def _read_toml(path: Path, progress: Progress | None) -> Parties:
    del progress
    try:
        document = tomllib.loads(path.read_bytes().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise FileError(path, f"is not valid TOML ({shown(str(error))})", "fix it") from None
    known = ("parties", "threshold", "receivers", *_REQUIRED, "sensitivity")
    for key in document:
        if key not in known:
            raise FileError(path, f"has an unknown key {shown(key)}", f"keys are {', '.join(known)}")
    entries = document.get("parties")
    if not isinstance(entries, list) or not entries or not all(isinstance(entry, dict) for entry in entries):
        raise FileError(path, "has no parties", "add a [[parties]] table for each")
    defaults: dict[str, Any] = {
        "sensitivity": 1.0,
        **{key: document[key] for key in (*_REQUIRED, "sensitivity") if key in document},
    }
    fields = [*_REQUIRED, "sensitivity", *(["threshold"] if any("threshold" in entry for entry in entries) else [])]
    columns: dict[str, Any] = {field: [] for field in fields}
    names: list[str] = []
    for number, entry in enumerate(entries, 1):
        for key in entry:
            if key not in COLUMNS:
                raise FileError(
                    path, f"party {number} has an unknown key {shown(key)}", f"keys are {', '.join(COLUMNS)}"
                )
        for field in fields:
            value = entry.get(field, defaults.get(field))
            if isinstance(value, bool) or not isinstance(value, int | float):
                problem = f"party {number} has {field} = {shown(value)}, which is not a number"
                raise FileError(path, "has no value: " + problem if value is None else problem, "write a number")
            columns[field].append(float(value))
        names.append(str(entry.get("name", f"party_{number}")))
    receivers = document.get("receivers")
    listed = isinstance(receivers, list) and all(isinstance(name, str) for name in receivers)
    if receivers is not None and receivers != "all" and not listed:
        raise FileError(path, f"has receivers = {shown(receivers)}", 'list names, or write "all"')
    parties = _finish(path, columns, names, lambda index: f"party {index + 1}")
    threshold = parties.threshold if parties.threshold is not None else document.get("threshold")
    return Parties(parties.columns, parties.names, threshold, receivers)
