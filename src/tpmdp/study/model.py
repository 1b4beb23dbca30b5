"""The study: who takes part, with which budgets and keys, what is asked, and until when. From study.toml to terms."""

from __future__ import annotations

import json
import math
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import numpy as np

from tpmdp._util import fields as read
from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.fields import parse_float
from tpmdp._util.files import readable
from tpmdp.data.source import find_source, read_table
from tpmdp.data.table import Column, ColumnKind, Table, Text
from tpmdp.errors import FileError, InputError, shown
from tpmdp.planning.grid_plan import GridPlan, plan_on_grid
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import Kind as WeightKind
from tpmdp.planning.weights import Weights, make_weights, shortened
from tpmdp.protocol.terms import Guarantee, Terms, hash_label, session_id
from tpmdp.queries.base import Answer, Query, Unit
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.queries.condition import add_column
from tpmdp.queries.custom import check_own, check_values
from tpmdp.queries.joint import JointQuery
from tpmdp.queries.joint_vector import scaled_sensitivity, scales_of
from tpmdp.queries.vertical_regression import VerticalRegression
from tpmdp.queries.weighted import assumption, weighted_answers
from tpmdp.spec import Party, Spec
from tpmdp.study.file import SESSION_MAX, exact_settings, parse_fields, to_toml

_SIZE_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Study:
    """A validated study. Equal studies give equal terms; the deadline is not part of them, so it can be extended."""

    name: str
    session: int
    members: tuple[Party, ...]
    threshold: int
    receivers: tuple[str, ...]
    queries: tuple[Query | JointQuery, ...]
    unit: Unit = "record"
    guarantee: Guarantee = "computational"
    deadline: float | datetime = 600.0  # seconds from the start of each party, or a moment
    weighting: WeightKind = "equal"
    spread: float = 1.0  # how much parties' averages vary, of the most they could; for weights only
    tolerate: int = 0  # how many parties may drop out
    patience: float = 60.0  # seconds that the lead receiver waits for parties before it goes on without them

    @classmethod
    def read(cls, path: Path, kinds: Kinds = KINDS) -> Study:
        """Read a study.toml file; see docs/running.md. `kinds` may hold queries of your own."""
        with readable(path, _SIZE_MAX):
            data = path.read_bytes()
        try:
            return cls.parse(tomllib.loads(data.decode("utf-8-sig"), parse_float=parse_float), kinds)
        except UnicodeDecodeError:
            raise FileError(path, "is not UTF-8 text", "save it as UTF-8") from None
        except InputError as error:
            problem = f"has {error.field} = {shown(error.value)}, which {error.rule}"
            raise FileError(path, problem, error.remedy) from None
        except (ValueError, RecursionError) as error:
            raise FileError(path, f"is not valid TOML ({shown(str(error))})", "fix it") from None

    @classmethod
    def parse(cls, document: Mapping[str, Any], kinds: Kinds = KINDS) -> Study:
        """A study from plain values, such as a parsed TOML file.

        >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
        >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
        >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
        ...                      "parties": parties, "queries": [query]})
        >>> study.spec().sensitivity
        array([1., 1.])
        """
        study = cls(**parse_fields(document, kinds))
        study.check()
        return study

    def check(self) -> None:
        """Refuse what no single key shows to be wrong."""
        if not self.records:
            raise InputError("records", 0, "must not be 0 for all parties", "say how many records each party has")
        for query in self.sums:
            if query.code:
                check_values(query)
        joint = self.joint
        if joint is not None:
            if len(self.queries) > 1:
                rule = f"must be one where one is no sum ({joint.name})"
                raise InputError("queries", len(self.queries), rule, "put the others into a study of their own")
            if not 2 * max(1, self.threshold) < len(self.members):
                half = f"less than half the number of parties ({len(self.members)})"
                rule = f"must be {half} for a query that is no sum ({joint.name})"
                remedy = "add parties or lower it: shares protect against fewer than half (for sums any number works)"
                raise InputError("threshold", self.threshold, rule, remedy)
            joint.check(self.party_records)
            if self.tolerate:
                rule = f"must be 0 for a query that is no sum ({joint.name})"
                raise InputError("tolerate", self.tolerate, rule, "remove it: shares of all parties are needed")
            if self.weighting != "equal":
                rule = f"cannot be used with a query that is no sum ({joint.name})"
                raise InputError("weighting", self.weighting, rule, 'write weighting = "equal"')
        for member in self.members:
            self.columns_of(member.name)  # refuses a column read in two ways
        self.spec()  # checks budgets

    def check_own(self) -> None:
        """Refuse a query of one's own that declares nonsense, cannot answer, or moves further than it declares."""
        for query in self.sums:
            if query.code:
                check_own(query, self.unit, self.records)
                for noise in (0.0, 1.0, float(self.records)):
                    self.answers_of(query, np.asarray(query.typical(float(self.records)), dtype=np.float64), noise)

    @property
    def joint(self) -> JointQuery | None:
        """The query, if it is no sum."""
        return next((query for query in self.queries if isinstance(query, JointQuery)), None)

    @property
    def sums(self) -> list[Query]:
        """The queries that are sums."""
        return [query for query in self.queries if isinstance(query, Query)]

    @property
    def party_records(self) -> dict[str, int]:
        """How many records each party has."""
        return {member.name: member.records for member in self.members}

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
        """Records of all parties; people, where parties hold different columns of the same."""
        if isinstance(self.joint, VerticalRegression):
            return max(member.records for member in self.members)
        return sum(member.records for member in self.members)

    def with_keys(self, keys: Mapping[str, bytes]) -> Study:
        """The same study with these public keys."""
        return replace(self, members=tuple(replace(m, public_key=keys[m.name]) for m in self.members))

    def with_session(self, session: int) -> Study:
        """The same study as another session, which is charged anew.

        A failed session is resumed under its own number; a new number is a new release.
        """
        return replace(self, session=read.whole("session", session, 1, SESSION_MAX))

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
            **({} if self.weighting == "equal" else {"weighting": self.weighting}),
            **({} if self.spread == 1.0 else {"spread": self.spread}),
            **({"tolerate": self.tolerate, "patience": f"{math.ceil(self.patience)}s"} if self.tolerate else {}),
        }
        return to_toml(top, self.members, [query.settings() for query in self.queries])

    def index(self, name: str) -> int:
        """The place of a party, by name."""
        names = [member.name for member in self.members]
        if name not in names:
            raise InputError("--as", name, "is not a party of the study", f"use one of {shown(', '.join(names))}")
        return names.index(name)

    def spec(self) -> Spec:
        """Budgets and sensitivities of what parties contribute, weights included.

        Substitution of one record, or of all records of a party.
        """
        return self._spec(self.weights.each.tolist())

    def _spec(self, weights: Sequence[float]) -> Spec:
        sensitivity = [self._sensitivity(member, weight) for member, weight in zip(self.members, weights, strict=True)]
        return Spec(
            epsilon=[member.epsilon for member in self.members],
            delta=[member.delta for member in self.members],
            sensitivity=sensitivity,
            threshold=self.threshold + self.tolerate,  # the noise of who drops out is missing, like that of colluders
            receivers=list(self.receivers),
            names=[member.name for member in self.members],
        )

    @cached_property
    def weights(self) -> Weights:
        """What each party's contribution is multiplied by; the same for every party that computes it."""
        width = 1.0 if self.joint is not None else math.hypot(*self._widths) * (1 + 2.0**-50)
        # Variances of vectors within a width add up to at most width^2 d/(2 (d + 1)) (Jung): this is the average.
        typical = self.spread * width / math.sqrt(2 * (self.dimension + 1))
        records = [float(member.records) for member in self.members]
        plain = self._spec([1.0] * len(records))
        if self.weighting == "own":
            own = [1.0 if member.weight is None else member.weight for member in self.members]
            return make_weights(plain, lambda: needs(plain), own, typical, records, width)
        found = make_weights(plain, lambda: needs(plain), self.weighting, typical, records, width)
        return replace(found, each=shortened(found.each))

    @property
    def _widths(self) -> list[float]:
        """How far apart two records' scaled features can be, by query."""
        return [scale * query.spread for query, scale in zip(self.sums, self.scales, strict=True)]

    def _sensitivity(self, member: Party, weight: float) -> float:
        """Of the joint vector, rounded up: the root of the sum of squares."""
        if self.joint is not None:
            return self.joint.sensitivity(self.unit, member.name, member.records)
        each = [
            scaled_sensitivity(query, scale * weight, self.unit, member.records)
            for query, scale in zip(self.sums, self.scales, strict=True)
        ]
        return each[0] if len(each) == 1 else math.hypot(*each) * (1 + 2.0**-50)

    @property
    def scales(self) -> list[float]:
        """What each query's statistic is multiplied by, so that each gets its share of one budget.

        Noise is the same in all entries of the vector, so a query with a larger sensitivity would take more of it.
        """
        return scales_of(self.sums)

    def bounds(self) -> FloatArray:
        """The largest absolute value of any entry, by party."""
        scales = [1.0] if self.joint is not None else self.scales
        pairs = list(zip(self.queries, scales, strict=True))
        every = []
        for member, weight in zip(self.members, self.weights.each.tolist(), strict=True):
            bound = max(scale * weight * query.bound(member.records) for query, scale in pairs)
            every.append(bound if bound == 0 or (scales == [1.0] and weight == 1.0) else bound * (1 + 2.0**-50))
        return np.array(every)

    def plan(self) -> GridPlan:
        """The noise plan on a grid; the same for every party that computes it."""
        return plan_on_grid(self.spec(), self.bounds(), self.dimension, finest=self.joint is not None)

    def terms(self, plan: GridPlan | None = None) -> Terms:
        """What all parties sign."""
        made = self.plan() if plan is None else plan
        return Terms.of(self.label, made, self.bounds(), self.roster, self._asked, self.guarantee, self.tolerate)

    @property
    def _asked(self) -> str:
        """Canonical text of what is computed."""
        asked = [exact_settings({**query.settings(), "code": getattr(query, "code", "")}) for query in self.queries]
        query = json.dumps(asked, sort_keys=True, separators=(",", ":"))
        each = [weight.hex() for weight in self.weights.each.tolist()]
        weights = "" if self.weighting == "equal" else f"weights {each} spread {self.spread.hex()} "
        return f"{self.unit} {[member.records for member in self.members]} {weights}{query}"

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

    def columns_of(self, name: str) -> dict[str, ColumnKind]:
        """The columns a party's data must have, and whether as numbers or as text."""
        found: dict[str, ColumnKind] = {}
        for query in self.queries:
            wanted = query.columns_of(name) if isinstance(query, JointQuery) else query.columns
            for column, kind in wanted.items():
                add_column(found, column, kind)
        return found

    def read_tables(self, folder: Path) -> dict[str, Table]:
        """The columns the study needs of every party, from NAME.csv, NAME.parquet or NAME.toml in one folder."""
        names = [member.name for member in self.members if member.records]
        return {name: read_table(find_source(folder, name), self.columns_of(name)) for name in names}

    def checked_table(self, name: str, table: Table) -> Table:
        """A party's columns as the queries' proofs need them; refuses another number of records than the study says."""
        records = self.members[self.index(name)].records
        if not records:
            return {}
        return {
            column: _check_column(name, column, kind, table, records) for column, kind in self.columns_of(name).items()
        }

    def uncounted(self, name: str, table: Table) -> list[str]:
        """The queries for which none of a party's records counts: perhaps a category or a condition is misspelt."""
        checked = self.checked_table(name, table)
        return [query.name for query in self.sums if checked and query.has_nothing(checked)]

    def statistic(self, name: str, table: Table) -> FloatArray:
        """A party's joint vector, times its weight."""
        checked = self.checked_table(name, table)
        if not checked:
            return np.zeros(self.dimension)
        weight = float(self.weights.each[self.index(name)])
        return np.concatenate(
            [scale * weight * query.statistic(checked) for query, scale in zip(self.sums, self.scales, strict=True)]
        )

    def check_terms(self, terms: Terms) -> None:
        """Refuse terms, whoever made them, that are not about this study; only grid and noise are the plan's matter."""
        ours = {
            "label": self.label,
            "budgets or sensitivities": self.spec(),
            "query": self._asked,
            "bounds": self.bounds().tolist(),
            "guarantee": self.guarantee,
            "dimension": self.dimension,
            "tolerate": self.tolerate,
        }
        theirs = {
            "label": terms.label,
            "budgets or sensitivities": terms.spec,
            "query": terms.query,
            "bounds": terms.bounds.tolist(),
            "guarantee": terms.guarantee,
            "dimension": terms.grid.dimension,
            "tolerate": terms.tolerate,
        }
        keys = tuple(member.public_key for member in self.members)
        if None not in keys:
            ours["public keys"], theirs["public keys"] = keys, terms.roster
        for field, value in ours.items():
            if theirs[field] != value:
                remedy = "compare the study files; do not take part before they are the same"
                raise InputError("terms", field, "differ from the study", remedy)

    def without(self, names: Collection[str]) -> Study:
        """The study as it was answered: who dropped out has no records in it."""
        members = tuple(replace(one, records=0) if one.name in names else one for one in self.members)
        if self.weighting == "equal":
            return replace(self, members=members)
        pairs = zip(members, self.weights.each.tolist(), strict=True)  # those that were signed
        return replace(self, members=tuple(replace(one, weight=each) for one, each in pairs), weighting="own")

    def answers(self, terms: Terms, steps: IntArray, missing: Collection[str] = ()) -> list[Answer]:
        """What the sum says, with error bars; `missing` are parties that dropped out and are not counted."""
        if missing:
            return self.without(missing)._answers(terms, steps, frozenset(map(self.index, missing)))
        return self._answers(terms, steps, frozenset())

    def _answers(self, terms: Terms, steps: IntArray, missing: frozenset[int]) -> list[Answer]:
        total = terms.grid.decode(steps)
        noise = terms.standard_deviation_of(set(range(terms.count)) - missing)
        if self.joint is not None:
            if isinstance(self.joint, VerticalRegression):
                total = self.joint.ordered(total, list(self.party_records))
            return self.joint.answers(total, self.records, noise)
        found, start = [], 0
        back = self.weights.scale
        for query, scale in zip(self.sums, self.scales, strict=True):
            part = total[start : start + query.dimension] / scale * back
            found += self.answers_of(query, part, noise / scale * back)
            start += query.dimension
        return found

    def answers_of(self, query: Query, total: FloatArray, noise: float) -> list[Answer]:
        """What a query's sum, scaled back from weights, says: error bars count what the weights do, too."""
        return weighted_answers(query, total, self.records, noise, self.weights, self.spread)

    @property
    def assumes(self) -> str:
        """What the answers rest on besides; nothing with equal weights."""
        return "" if self.weights.are_equal else assumption(self.sums, self.weights, self.spread)

    def seconds_left(self, now: datetime | None = None) -> float:
        """How long a party that starts now may wait."""
        if isinstance(self.deadline, datetime):
            return (self.deadline - (now or datetime.now(UTC))).total_seconds()
        return self.deadline


def _check_column(name: str, column: str, kind: ColumnKind, table: Table, records: int) -> Column:
    """A column as the queries' proofs need it: one finite double or text a record. Values are private, not shown."""
    if column not in table:
        raise InputError(f"data of {name}", ", ".join(table), f"has no column {column}", "add it")
    if kind == "text":
        return _check_text(name, column, table[column], records)
    values = np.asarray(table[column])
    if values.ndim != 1 or values.dtype.kind not in "fiub":
        rule = "must be one number a record"
        raise InputError(f"column {column} of {name}", f"{values.dtype}{values.shape}", rule, "give a flat array")
    _check_length(name, len(values), records)
    column_values = values.astype(np.float64)
    if not np.isfinite(column_values).all():
        where = int(np.argmin(np.isfinite(column_values)))
        raise InputError(f"column {column} of {name}", f"record {where + 1}", "is not a finite number", "correct it")
    return column_values


def _check_text(name: str, column: str, values: Any, records: int) -> Text:
    if not isinstance(values, Text):
        entries = values.tolist() if isinstance(values, np.ndarray) else values
        if not isinstance(entries, list | tuple) or not all(isinstance(entry, str) for entry in entries):
            rule = "must be one text a record"
            raise InputError(f"column {column} of {name}", type(values).__name__, rule, "give a list of texts")
        return _check_text(name, column, Text.of(entries), records)
    _check_length(name, len(values), records)
    return values


def _check_length(name: str, found: int, records: int) -> None:
    if found != records:
        rule = f"must be the number the study states ({records}), which is public"
        raise InputError(f"records of {name}", found, rule, "correct the data or the study")
