"""The study: who takes part, with which budgets and keys, what is asked, and until when. From study.toml to terms."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp.data_file import find_records, read_columns
from tpmdp.errors import FileError, InputError, shown
from tpmdp.files import readable
from tpmdp.identity import check_name, parse_public, public_key_text
from tpmdp.planning.grid_plan import GridPlan, plan_on_grid
from tpmdp.protocol.terms import GUARANTEES, Guarantee, Terms, hash_label, session_id
from tpmdp.queries.base import Answer, Query, Table, Unit
from tpmdp.queries.count import Count
from tpmdp.queries.histogram import Histogram
from tpmdp.queries.mean import Mean
from tpmdp.queries.sum import Sum
from tpmdp.queries.variance import Variance
from tpmdp.spec import Spec
from tpmdp.validate import FloatArray, IntArray, parse_float

UNITS: Final = ("record", "party")
RECORDS_MAX: Final = 1 << 40
SESSION_MAX: Final = 1_000_000
BINS_MAX: Final = 1_000_000
_SIZE_MAX: Final = 16 << 20
_NAME_MAX: Final = 100
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_KINDS: Final[dict[str, tuple[type[Any], tuple[str, ...], tuple[str, ...]]]] = {  # class, required, optional keys
    "count": (Count, ("column",), ("at_least", "below")),
    "histogram": (Histogram, ("column", "edges"), ()),
    "mean": (Mean, ("column", "low", "high"), ()),
    "sum": (Sum, ("column", "low", "high"), ()),
    "variance": (Variance, ("column", "low", "high"), ()),
}


@dataclass(frozen=True)
class Member:
    """One party of a study. `public_key` may be missing only where tpmdp makes the keys itself (`tpmdp run`)."""

    name: str
    epsilon: float
    delta: float
    records: int
    public_key: bytes | None = None


@dataclass(frozen=True)
class Study:
    """A validated study. Equal studies give equal terms; the deadline is not part of them, so it can be extended."""

    name: str
    session: int
    members: tuple[Member, ...]
    threshold: int
    receivers: tuple[str, ...]
    queries: tuple[Query, ...]
    unit: Unit = "record"
    guarantee: Guarantee = "computational"
    deadline: float | datetime = 600.0  # seconds from the start of each party, or a moment

    @classmethod
    def read(cls, path: Path) -> Study:
        """Read a study.toml file; see docs/guide.md, "A study"."""
        with readable(path, _SIZE_MAX):
            data = path.read_bytes()
        try:
            return cls.parse(tomllib.loads(data.decode("utf-8-sig"), parse_float=parse_float))
        except UnicodeDecodeError:
            raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
        except InputError as error:
            problem = f"has {error.field} = {shown(error.value)}, which {error.rule}"
            raise FileError(path, problem, error.remedy) from None
        except (ValueError, RecursionError) as error:
            raise FileError(path, f"is not valid TOML ({shown(str(error))})", "fix it") from None

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Study:
        """A study from plain values, such as a parsed TOML file.

        >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
        >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
        >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
        ...                      "parties": parties, "queries": [query]})
        >>> study.spec().sensitivity
        array([1., 1.])
        """
        return _parse(document)

    @property
    def label(self) -> str:
        """What a session is known by: study and number."""
        return f"{self.name} / session {self.session}"

    @property
    def dimension(self) -> int:
        """Entries of the joint vector."""
        return sum(query.dimension for query in self.queries)

    @property
    def records(self) -> int:
        """Records of all parties."""
        return sum(member.records for member in self.members)

    def with_keys(self, keys: Mapping[str, bytes]) -> Study:
        """The same study with these public keys."""
        return replace(self, members=tuple(replace(m, public_key=keys[m.name]) for m in self.members))

    def with_session(self, session: int) -> Study:
        """The same study as another session, which is charged anew.

        A failed session is resumed under its own number; a new number is a new release.
        """
        return replace(self, session=_whole("session", session, 1, SESSION_MAX))

    def toml(self) -> str:
        """The study as a file, such that reading it gives the same study.

        >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
        >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
        >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
        ...                      "parties": parties, "queries": [query]})
        >>> Study.parse(tomllib.loads(study.toml())) == study
        True
        """
        deadline = self.deadline if isinstance(self.deadline, datetime) else f"{math.ceil(self.deadline)}s"
        top = {
            "name": self.name,
            "session": self.session,
            "threshold": self.threshold,
            "receivers": list(self.receivers),
            "unit": self.unit,
            "guarantee": self.guarantee,
            "deadline": deadline,
        }
        lines = [f"{key} = {_toml(value)}" for key, value in top.items()]
        for member in self.members:
            fields = {key: value for key, value in vars(member).items() if value is not None}
            lines += ["", "[[parties]]", *(f"{key} = {_toml(value)}" for key, value in fields.items())]
        for query in self.queries:
            fields = {"kind": type(query).__name__.lower(), **vars(query)}
            lines += ["", "[[queries]]", *(f"{key} = {_toml(value)}" for key, value in fields.items())]
        return "\n".join(lines) + "\n"

    def index(self, name: str) -> int:
        """The place of a party, by name."""
        names = [member.name for member in self.members]
        if name not in names:
            raise InputError("--as", name, "is not a party of the study", f"use one of {shown(', '.join(names))}")
        return names.index(name)

    def spec(self) -> Spec:
        """Budgets and sensitivities. Substitution of one record, or of all records of a party."""
        sensitivity = [self._sensitivity(member.records) for member in self.members]
        return Spec(
            epsilon=[member.epsilon for member in self.members],
            delta=[member.delta for member in self.members],
            sensitivity=sensitivity,
            threshold=self.threshold,
            receivers=list(self.receivers),
            names=[member.name for member in self.members],
        )

    def _sensitivity(self, records: int) -> float:
        """Of the joint vector, rounded up: the root of the sum of squares."""
        each = [query.sensitivity(self.unit, records) for query in self.queries]
        return each[0] if len(each) == 1 else math.hypot(*each) * (1 + 2.0**-50)

    def bounds(self) -> FloatArray:
        """The largest absolute value of any entry, by party."""
        return np.array([max(query.bound(member.records) for query in self.queries) for member in self.members])

    def plan(self) -> GridPlan:
        """The noise plan on a grid; the same for every party that computes it."""
        return plan_on_grid(self.spec(), self.bounds(), self.dimension)

    def terms(self, plan: GridPlan | None = None) -> Terms:
        """What all parties sign."""
        made = self.plan() if plan is None else plan
        return Terms.of(self.label, made, self.bounds(), self.roster, self._asked, self.guarantee)

    @property
    def _asked(self) -> str:
        """Canonical text of what is computed."""
        query = json.dumps([_describe(query) for query in self.queries], sort_keys=True, separators=(",", ":"))
        return f"{self.unit} {[member.records for member in self.members]} {query}"

    @property
    def roster(self) -> tuple[bytes, ...]:
        """The public keys of all parties."""
        for member in self.members:
            if member.public_key is None:
                remedy = f"run tpmdp keygen {member.name} and paste the line it prints"
                raise InputError(f"public_key of {member.name}", "(none)", "is missing", remedy)
        return tuple(member.public_key for member in self.members if member.public_key is not None)

    @property
    def session_id(self) -> bytes:
        """The session as the relay knows it."""
        return session_id(hash_label(self.label), self.roster)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns a party's data must have."""
        return tuple(dict.fromkeys(column for query in self.queries for column in query.columns))

    def read_tables(self, folder: Path) -> dict[str, Table]:
        """The columns the study needs of every party, from NAME.csv or NAME.parquet in one folder."""
        names = [member.name for member in self.members if member.records]
        return {name: read_columns(find_records(folder, name), self.columns) for name in names}

    def statistic(self, name: str, table: Table) -> FloatArray:
        """A party's joint vector; refuses data with another number of records than the study says."""
        records = self.members[self.index(name)].records
        if not records:
            return np.zeros(self.dimension)
        checked = {column: _check_column(name, column, table, records) for column in self.columns}
        return np.concatenate([query.statistic(checked) for query in self.queries])

    def check_terms(self, terms: Terms) -> None:
        """Refuse terms, whoever made them, that are not about this study; only grid and noise are the plan's matter."""
        ours = {
            "label": self.label,
            "budgets or sensitivities": self.spec(),
            "query": self._asked,
            "bounds": self.bounds().tolist(),
            "guarantee": self.guarantee,
            "dimension": self.dimension,
        }
        theirs = {
            "label": terms.label,
            "budgets or sensitivities": terms.spec,
            "query": terms.query,
            "bounds": terms.bounds.tolist(),
            "guarantee": terms.guarantee,
            "dimension": terms.grid.dimension,
        }
        keys = tuple(member.public_key for member in self.members)
        if None not in keys:
            ours["public keys"], theirs["public keys"] = keys, terms.roster
        for field, value in ours.items():
            if theirs[field] != value:
                remedy = "compare the study files; do not take part before they are the same"
                raise InputError("terms", field, "differ from the study", remedy)

    def answers(self, terms: Terms, steps: IntArray) -> list[Answer]:
        """What the sum says, with error bars."""
        total = terms.grid.decode(steps)
        found, start = [], 0
        for query in self.queries:
            part = total[start : start + query.dimension]
            found += query.answers(part, self.records, terms.standard_deviation)
            start += query.dimension
        return found

    def seconds_left(self, now: datetime | None = None) -> float:
        """How long a party that starts now may wait."""
        if isinstance(self.deadline, datetime):
            return (self.deadline - (now or datetime.now(UTC))).total_seconds()
        return self.deadline


def _check_column(name: str, column: str, table: Table, records: int) -> FloatArray:
    """A column as the queries' proofs need it: one finite double a record. Its values are private and not shown."""
    if column not in table:
        raise InputError(f"data of {name}", ", ".join(table), f"has no column {column}", "add it")
    values = np.asarray(table[column])
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        rule = "must be one number a record"
        raise InputError(f"column {column} of {name}", f"{values.dtype}{values.shape}", rule, "give a flat array")
    if len(values) != records:
        rule = f"must be the number the study states ({records}), which is public"
        raise InputError(f"records of {name}", len(values), rule, "correct the data or the study")
    column_values = values.astype(np.float64)
    if not np.isfinite(column_values).all():
        where = int(np.argmin(np.isfinite(column_values)))
        raise InputError(f"column {column} of {name}", f"record {where + 1}", "is not a finite number", "correct it")
    return column_values


def _describe(query: Query) -> dict[str, Any]:
    fields = {key: _exact(value) for key, value in vars(query).items()}
    return {"kind": type(query).__name__.lower(), **fields}


def _exact(value: Any) -> Any:
    """Floats in hexadecimal, for the canonical text."""
    if isinstance(value, tuple):
        return [_exact(entry) for entry in value]
    return value.hex() if isinstance(value, float) else value


def _toml(value: Any) -> str:
    if isinstance(value, bytes):
        return json.dumps(public_key_text(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple | list) and not all(isinstance(entry, str) for entry in value):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | list) else repr(value)


# Reading --------------------------------------------------------------------------------------------------------------

_TOP: Final = ("name", "threshold", "receivers", "parties", "queries")
_TOP_OPTIONAL: Final = ("session", "unit", "guarantee", "deadline", "epsilon", "delta")


def _parse(document: Mapping[str, Any]) -> Study:
    _check_keys("study", document, _TOP, _TOP_OPTIONAL)
    entries = _tables("parties", document["parties"])
    members = tuple(_member(place, entry, document) for place, entry in enumerate(entries, 1))
    names = [member.name for member in members]
    folded: dict[str, str] = {}
    for name in names:
        other = folded.get(name.casefold())
        if other is not None:
            rule = "is listed twice" if other == name else f"differs from {other} in upper and lower case only"
            raise InputError("parties", name, rule, "give every party its own name")
        folded[name.casefold()] = name
    if len(members) < 2:
        raise InputError("parties", len(members), "must be at least 2", "add parties")
    queries = tuple(_query(entry) for entry in _tables("queries", document["queries"]))
    titles = [query.name for query in queries]
    if len(set(titles)) < len(titles):
        raise InputError("queries", ", ".join(titles), "must have different names", "rename one")
    study = Study(
        name=_title("name", document["name"]),
        session=_whole("session", document.get("session", 1), 1, SESSION_MAX),
        members=members,
        threshold=_whole("threshold", document["threshold"], 0, len(members) - 1),
        receivers=_receivers(document["receivers"], names),
        queries=queries,
        unit=_choice("unit", document.get("unit", "record"), UNITS),
        guarantee=_choice("guarantee", document.get("guarantee", "computational"), GUARANTEES),
        deadline=_deadline(document.get("deadline", "10m")),
    )
    if not study.records:
        raise InputError("records", 0, "must not be 0 for all parties", "say how many records each party has")
    study.spec()  # checks budgets
    return study


def _check_keys(where: str, table: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...]) -> None:
    for key in required:
        if key not in table:
            raise InputError(f"{key} in {where}", "(none)", "is missing", "add it")
    for key in table:
        if key not in required + optional:
            raise InputError(f"key in {where}", key, "is unknown", f"keys are {', '.join(required + optional)}")


def _tables(field: str, value: Any) -> list[dict[str, Any]]:
    if not isinstance(value, list) or not value or not all(isinstance(entry, dict) for entry in value):
        raise InputError(field, value, "must be one table or more", f"add a [[{field}]] table for each")
    return value


def _member(place: int, entry: dict[str, Any], document: Mapping[str, Any]) -> Member:
    _check_keys(f"party {place}", entry, ("name", "records"), ("epsilon", "delta", "public_key"))
    name = check_name("name of a party", entry["name"])
    records = _whole(f"records of {name}", entry["records"], 0, RECORDS_MAX)
    fallback = {"epsilon": math.inf, "delta": 0.5} if records == 0 else {}  # no data, nothing to protect
    budget = {}
    for field in ("epsilon", "delta"):
        value = entry.get(field, document.get(field, fallback.get(field)))
        if value is None:
            raise InputError(f"{field} of {name}", "(none)", "is missing", "give it one, or one for all at the top")
        budget[field] = _number(f"{field} of {name}", value)
    key = entry.get("public_key")
    public = None if key is None else parse_public(f"public_key of {name}", key)
    return Member(name, budget["epsilon"], budget["delta"], records, public)


def _query(entry: dict[str, Any]) -> Query:
    kind = _choice("kind of a query", entry.get("kind"), tuple(_KINDS))
    maker, required, optional = _KINDS[kind]
    _check_keys(f"a {kind} query", entry, ("name", "kind", *required), optional)
    fields: dict[str, Any] = {"name": _title("name of a query", entry["name"])}
    for key in (*required, *optional):
        if key == "column":
            fields[key] = _title(f"column of {fields['name']}", entry[key])
        elif key == "edges":
            fields[key] = _edges(f"edges of {fields['name']}", entry[key])
        elif key in entry:
            fields[key] = _number(f"{key} of {fields['name']}", entry[key])
    _check_range(kind, fields)
    made: Query = maker(**fields)
    return made


def _edges(field: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list) or not 2 <= len(value) <= BINS_MAX + 1:
        raise InputError(field, _written(value), f"must be a list of 2 to {BINS_MAX + 1} numbers", "list the edges")
    edges = tuple(_number(field, entry) for entry in value)
    if not all(low < high for low, high in pairwise(edges)):
        raise InputError(field, _written(value), "must rise", "sort them, each once")
    return edges


def _check_range(kind: str, fields: dict[str, Any]) -> None:
    field = f"bounds of {fields['name']}"
    if "low" in fields:
        low, high = fields["low"], fields["high"]
        widest = max(abs(low), abs(high))
        if not (math.isfinite(widest) and 0 < high - low <= 1e300 and high - low >= 1e-9 * widest):
            remedy = "give public bounds, low less than high, not too close for their size"
            raise InputError(field, f"{low!r} to {high!r}", "must be a finite range", remedy)
        return
    if kind != "count":
        return
    least, below = fields.get("at_least", -math.inf), fields.get("below", math.inf)
    if not least < below or least == math.inf or below == -math.inf:
        raise InputError(field, f"{least!r} to {below!r}", "hold no value", "give at_least less than below")
    if math.isinf(least) and math.isinf(below):
        raise InputError(field, "(none)", "leave a count of all records, which is public", "give at_least or below")


def _receivers(value: Any, names: list[str]) -> tuple[str, ...]:
    if value == "all":
        return tuple(names)
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise InputError("receivers", value, "must be a list of names", 'list at least one party, or write "all"')
    return tuple(value)


def _deadline(value: Any) -> float | datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        rule = "must be a duration such as 90s, 10m, 2h, 3d or a date and time with its offset"
        raise InputError("deadline", str(value), rule, 'write deadline = "10m" or deadline = 2027-01-31T12:00:00Z')
    return float(int(match[1]) * _SECONDS[match[2]])


def parse_deadline(text: str) -> float | datetime:
    """A deadline from the command line: a duration or a moment.

    >>> parse_deadline("2m")
    120.0
    """
    try:
        return _deadline(text)
    except InputError:
        try:
            return _deadline(datetime.fromisoformat(text))
        except ValueError:
            return _deadline(text)


def _title(field: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or len(value) > _NAME_MAX or not value.isprintable():
        raise InputError(field, value, f"must be text of at most {_NAME_MAX} printable characters", "change it")
    return value


def _whole(field: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        remedy = "remove the quotes" if isinstance(value, str) else "change it"
        raise InputError(field, _written(value), f"must be a whole number from {low} to {high}", remedy)
    return value


def _written(value: Any) -> str:
    """A value as a study file has it."""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, bool):
        return str(value).lower()
    return "(none)" if value is None else str(value)


def _number(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(field, _written(value), "is not a number", "write a number such as 0.5, 1e-6 or inf")
    try:
        number = float(value)
    except OverflowError:
        raise InputError(field, value, "is out of range", "write a smaller number") from None
    if math.isnan(number):
        raise InputError(field, value, "is not a number", "write a number such as 0.5, 1e-6 or inf")
    return number


def _choice(field: str, value: Any, choices: tuple[str, ...]) -> Any:
    if value not in choices:
        raise InputError(field, _written(value), f"must be one of {', '.join(choices)}", "choose one")
    return value
