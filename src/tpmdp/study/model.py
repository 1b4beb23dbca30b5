"""The study: its parties with their budgets and keys, its queries and its deadline. From study.toml to terms."""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from importlib import import_module
from typing import Any, Final

import numpy as np

from tpmdp._util import fields as read
from tpmdp._util.arrays import FloatArray
from tpmdp._util.canonical import canonical_json
from tpmdp._util.files import StrPath, as_path, replacing
from tpmdp._util.numbers import plural
from tpmdp._version import __version__
from tpmdp.data.frame import Records
from tpmdp.data.source import find_source, read_table
from tpmdp.data.table import ColumnKind, Table
from tpmdp.errors import InputError, NoNoiseWarning, shown
from tpmdp.gaussian.budget_share import share_of_budget
from tpmdp.ledger import Ledger
from tpmdp.planning.grid_plan import GridPlan, plan_on_grid
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import Kind as WeightKind
from tpmdp.planning.weights import Weights, make_weights, shortened
from tpmdp.protocol.terms import Guarantee, Terms, hash_label, session_id
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery, Unit
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.queries.computation import Computation, ComputationSetting, computation_of
from tpmdp.queries.condition import add_column
from tpmdp.queries.guesses import NO_GUESSES, Guesses
from tpmdp.queries.pair_function import PairFunction
from tpmdp.queries.rounds import Point
from tpmdp.queries.schedule import Schedule
from tpmdp.spec import Party, Spec
from tpmdp.study.builder import StudyBuilder, begin_study
from tpmdp.study.display import study_html
from tpmdp.study.file import SESSION_MAX, exact_settings, parse_fields, to_toml
from tpmdp.study.function_check import check_function
from tpmdp.study.identity import MissingKeysError
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.round_part import RoundPart
from tpmdp.study.sweep import Sweep, SweepPoint, settings_of

_SIZE_MAX: Final = 16 << 20


@dataclass(frozen=True)
class Study:
    """A validated study. Equal studies give equal terms.

    Deadline, guesses, purpose and contact are not part of the terms: these may be changed.
    """

    name: str
    session: int
    parties: tuple[Party, ...]
    threshold: int
    receivers: tuple[str, ...]
    queries: tuple[BaseQuery, ...]
    unit: Unit = "record"
    guarantee: Guarantee = "computational"
    deadline: float | datetime = 600.0  # seconds from the start of each party, or a moment
    weighting: WeightKind = "equal"
    spread: float = 1.0  # how much parties' averages vary, as a share of the most they could; for weights only
    tolerate: int = 0  # how many parties may drop out
    engine: str = ""  # what computes a query that is not a sum, if the study says so
    sum_through: str = ""  # relay: pairs keep shares of what they compute, for a sum through a relay
    patience: float = 60.0  # seconds that the lead receiver waits for parties before it goes on without them
    typical: Guesses = NO_GUESSES  # public guesses about the data, for previews only
    purpose: str = ""  # what the answer is for, in the author's words; nobody signs it
    contact: str = ""  # whom to ask, in the author's words; nobody signs it
    part: RoundPart[Study] | None = field(default=None, repr=False)  # if this is one round of a study by rounds

    def __repr__(self) -> str:
        return f"Study({self.label}: {self._summary}; {plural(len(self.queries), 'query', 'queries')})"

    def _repr_html_(self) -> str:
        summary = f"{self._summary}; protects each {self.unit}."
        return study_html(self.label, summary, self.parties, receivers=self.receivers, queries=self.queries)

    @property
    def _summary(self) -> str:
        sizes = f"{plural(len(self.parties), 'party', 'parties')}, {plural(self.records, 'record')}"
        drop = f", {self.tolerate} may drop out" if self.tolerate else ""
        return f"{sizes}, threshold {self.threshold}{drop}, {plural(len(self.receivers), 'receiver')}"

    @classmethod
    def read(cls, path: StrPath, kinds: Kinds = KINDS) -> Study:
        """Read a study.toml file; see docs/how-to/running.md. `kinds` may include custom queries."""
        file = as_path(path)
        document = read.read_toml(file, _SIZE_MAX)
        with read.in_file(file):
            return cls.parse(document, kinds)

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
        study.check_settings()
        return study

    @classmethod
    def new(
        cls,
        name: str,
        *,
        threshold: int | None = None,
        receivers: Sequence[str] | str | None = None,
        epsilon: float | None = None,
        delta: float | None = None,
        where: str | None = None,
        session: int | None = None,
        unit: Unit | None = None,
        guarantee: Guarantee | None = None,
        engine: str | None = None,
        sum_through: str | None = None,
        deadline: str | timedelta | datetime | None = None,
        weighting: WeightKind | None = None,
        spread: float | None = None,
        tolerate: int | None = None,
        patience: str | timedelta | None = None,
        purpose: str | None = None,
        contact: str | None = None,
        kinds: Kinds = KINDS,
        **further: Any,
    ) -> StudyBuilder[Study]:
        """Begin a study in code: add parties and queries to the builder, then call `build`.

        The arguments are the keys at the top of a study file; `epsilon` and `delta` are for parties without their own.

        >>> builder = Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
        >>> study = builder.party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build()
        >>> study.records
        180
        """
        given: dict[str, Any] = {
            "name": name,
            "threshold": threshold,
            "receivers": receivers,
            "epsilon": epsilon,
            "delta": delta,
        }
        given |= {"where": where, "session": session, "unit": unit, "guarantee": guarantee, "deadline": deadline}
        given |= {"engine": engine, "sum_through": sum_through}
        given |= {"weighting": weighting, "spread": spread, "tolerate": tolerate, "patience": patience}
        given |= {"purpose": purpose, "contact": contact}
        return begin_study(cls.parse, kinds, given | further)

    def check_settings(self) -> None:
        """Refuse combinations of keys that do not fit each other."""
        if not self.records:
            raise InputError("records", 0, "must not be 0 for all parties", "say how many records each party has")
        self.computation.check(self.setting)
        for party in self.parties:
            self.columns_of(party.name)  # refuses a column read in two ways
        self.spec()  # checks budgets
        self._check_rounds()

    def _check_rounds(self) -> None:
        """Refuse what a study by rounds cannot have."""
        self.schedule.check()
        if self.rounds == 1:
            return
        lacking = [party.name for party in self.parties if party.name not in self.receivers]
        if lacking:
            rule = f"leaves out {shown(', '.join(lacking))}, but by rounds all parties learn every round's result"
            remedy = 'write receivers = "all", or rounds = 1 in its queries'
            raise InputError("receivers", ", ".join(self.receivers), rule, remedy)
        if self.tolerate:
            rule = "must be 0 by rounds: a party that drops out of one round cannot take part in the next"
            raise InputError("tolerate", self.tolerate, rule, "remove it, or write rounds = 1 in the queries")
        for number in range(1, self.rounds + 1):
            self._budgets_in(number)  # refuses budgets too small to share

    def check_custom(self) -> None:
        """Refuse a custom query that declares nonsense, cannot answer, or moves further than it declares.

        In all rounds, at guessed points.
        """
        whole = self if self.part is None else self.part.whole
        for each in whole.preview_rounds:
            each._check_custom({query.name for query in whole.queries if query.code})

    def _check_custom(self, names: Collection[str]) -> None:
        for each in self.queries:
            if isinstance(each, PairFunction):
                check_function(each, self.party_records)
        self.computation.check_custom(self.unit, self.records, names)
        for query in self.computation.sums:
            if query.name in names:
                for noise in (0.0, 1.0, float(self.records)):
                    self.answers_of(query, np.asarray(query.typical(float(self.records)), dtype=np.float64), noise)

    @cached_property
    def computation(self) -> Computation:
        """How the queries are computed."""
        return computation_of(self.queries)

    @property
    def setting(self) -> ComputationSetting:
        """What decides how the queries are computed."""
        return ComputationSetting(
            self.party_records,
            self.threshold,
            self.tolerate,
            weighting=self.weighting,
            guarantee=self.guarantee,
            engine=self.engine,
            sum_through=self.sum_through,
        )

    @property
    def engine_used(self) -> str:
        """What computes the queries on shares, mpyc or spu; nothing if they are sums."""
        return self.computation.engine_of(self.setting)

    @property
    def uses_relay(self) -> bool:
        """Whether the parties send messages through a relay."""
        return self.computation.is_sum or self.sum_through == "relay"

    @property
    def party_records(self) -> dict[str, int]:
        """How many records each party has."""
        return {party.name: party.records for party in self.parties}

    @property
    def label(self) -> str:
        """The name of a session: study and number, and the round if it is one of several."""
        label = f"{self.name} / session {self.session}"
        return label if self.part is None else f"{label}, round {self.part.number}"

    def is_session(self, label: str) -> bool:
        """Whether this is the label of any session of the study."""
        return label.rpartition(" / session ")[0] == self.name

    @property
    def dimension(self) -> int:
        """Entries of the vector of all queries."""
        return sum(query.dimension for query in self.queries)

    @property
    def records(self) -> int:
        """Records of all parties; people, where parties hold different columns of the same people."""
        return self.computation.records_of(self.party_records)

    # Rounds -----------------------------------------------------------------------------------------------------------

    @cached_property
    def schedule(self) -> Schedule:
        """Which query is asked in which round."""
        return Schedule(self.queries)

    @property
    def rounds(self) -> int:
        """How many sessions the study takes, one after the other; 1 for most studies, and for a round itself."""
        return 1 if self.part is not None else self.schedule.count

    def round(self, number: int, points: Mapping[str, Point]) -> Study:
        """One round of a study by rounds, as a study of its own: its queries at these points, its share of budgets.

        Whatever the points: the rounds cost a party its budget at most, all together. Theory, "Studies by rounds".
        """
        parties = tuple(
            replace(party, epsilon=epsilon, delta=delta)
            for party, epsilon, delta in zip(self.parties, *self._budgets_in(number), strict=True)
        )
        whole_points = tuple(sorted(points.items()))
        part = RoundPart(number, self.rounds, self, points=whole_points)
        return replace(self, parties=parties, queries=self.schedule.asked(number, points), part=part)

    def _budgets_in(self, number: int) -> tuple[list[float], list[float]]:
        epsilon, delta = [party.epsilon for party in self.parties], [party.delta for party in self.parties]
        shares = share_of_budget(epsilon, delta, self.schedule.share(number))
        return shares[0].tolist(), shares[1].tolist()

    @cached_property
    def first(self) -> Study:
        """The study of the first session: the first round, or this study if there is only one."""
        return self if self.rounds == 1 else self.round(1, {})

    @cached_property
    def preview_rounds(self) -> tuple[Study, ...]:
        """All rounds, at guessed points; noise, costs and sizes are those of the real ones.

        >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
        ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
        >>> study.preview_rounds == (study,)
        True
        """
        if self.rounds == 1:
            return (self,)
        points = self.schedule.guessed_points
        later = [self.round(number, points) for number in range(2, self.rounds + 1)]
        return (self.first, *later)

    @cached_property
    def preview_terms(self) -> tuple[Terms, ...]:
        """The terms of `preview_rounds`."""
        return tuple(study.terms() for study in self.preview_rounds)

    def with_keys(self, keys: Mapping[str, bytes]) -> Study:
        """The same study with these public keys."""
        return replace(self, parties=tuple(replace(party, public_key=keys[party.name]) for party in self.parties))

    def without_keys(self) -> Study:
        """The same study before the parties had keys, for a trial."""
        return replace(self, parties=tuple(replace(party, public_key=None) for party in self.parties))

    def with_session(self, session: int) -> Study:
        """The same study as another session, which is charged anew.

        A failed session is resumed under its own number; a new number is a new release.
        """
        return replace(self, session=read.whole("session", session, 1, high=SESSION_MAX))

    def toml(self) -> str:
        """The study as a file; reading it gives the same study.

        >>> import tomllib
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
            **({"purpose": self.purpose} if self.purpose else {}),
            **({"contact": self.contact} if self.contact else {}),
            "session": self.session,
            "threshold": self.threshold,
            "receivers": list(self.receivers),
            "unit": self.unit,
            "guarantee": self.guarantee,
            **({"engine": self.engine} if self.engine else {}),
            **({"sum_through": self.sum_through} if self.sum_through else {}),
            "deadline": deadline,
            **({} if self.weighting == "equal" else {"weighting": self.weighting}),
            **({} if self.spread == 1.0 else {"spread": self.spread}),
            **({"tolerate": self.tolerate, "patience": f"{math.ceil(self.patience)}s"} if self.tolerate else {}),
            **({"typical": self.typical.settings()} if self.typical.settings() else {}),
        }
        parties = [{field.name: getattr(party, field.name) for field in fields(party)} for party in self.parties]
        return to_toml(top, parties, [query.settings() for query in self.queries])

    def write(self, path: StrPath) -> None:
        """Write the study as a file, completely or not at all; a file that is there is replaced.

        >>> import tempfile
        >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
        ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     study.write(f"{folder}/study.toml")
        ...     Study.read(f"{folder}/study.toml") == study
        True
        """
        with replacing(as_path(path)) as temporary:
            temporary.write_text(self.toml(), encoding="utf-8")

    def index(self, name: str) -> int:
        """The position of a party."""
        names = [party.name for party in self.parties]
        if name not in names:
            raise InputError("party", name, "is not a party of the study", f"use one of {shown(', '.join(names))}")
        return names.index(name)

    def party(self, name: str) -> Party:
        """A party by its name."""
        return self.parties[self.index(name)]

    def spec(self) -> Spec:
        """Budgets and sensitivities of what parties contribute, weights included.

        One record is replaced, or all records of a party.
        """
        return self._weighted_spec

    def plain_spec(self) -> Spec:
        """The same before weights: what `tpmdp.plan` takes to choose weights itself."""
        return self._spec([1.0] * len(self.parties))

    @cached_property
    def _weighted_spec(self) -> Spec:
        return self._spec(self.weights.each.tolist())

    def _spec(self, weights: Sequence[float]) -> Spec:
        pairs = zip(self.parties, weights, strict=True)
        return Spec(
            epsilon=[party.epsilon for party in self.parties],
            delta=[party.delta for party in self.parties],
            sensitivity=[self.computation.sensitivity(self.unit, party, weight) for party, weight in pairs],
            threshold=self.threshold,
            receivers=list(self.receivers),
            names=[party.name for party in self.parties],
        )

    @cached_property
    def weights(self) -> Weights:
        """What each party's contribution is multiplied by; the same for every party that computes it."""
        width = self.computation.width
        # Variances of vectors within a width add up to at most width^2 d/(2 (d + 1)) (Jung): this is the average.
        typical = self.spread * width / math.sqrt(2 * (self.dimension + 1))
        records = [float(party.records) for party in self.parties]
        plain = self.plain_spec()
        own = [1.0 if party.weight is None else party.weight for party in self.parties]
        chosen = own if self.weighting == "own" else self.weighting
        weights = make_weights(plain, lambda: needs(plain), chosen, spread=typical, records=records, width=width)
        return weights if self.weighting == "own" else replace(weights, each=shortened(weights.each))

    def varied(
        self,
        *,
        threshold: int | None = None,
        budget: float = 1.0,
        epsilon: float | None = None,
        party: str | None = None,
    ) -> Study:
        """The same study with another threshold, all epsilons times `budget`, or another epsilon; checked.

        With `party`, only the budget of that party changes.
        """
        factor = read.number("budget", budget, finite=True)
        if factor <= 0:
            raise InputError("budget", budget, "must be greater than 0", "1 leaves the budgets as they are")
        chosen = [each.name for each in self.parties if each.records] if party is None else [self.party(party).name]
        changed = tuple(
            replace(each, epsilon=each.epsilon * factor if epsilon is None else read.number("epsilon", epsilon))
            if each.name in chosen
            else each
            for each in self.parties
        )
        highest = len(self.parties) - 1
        lowest = 1 if self.tolerate else 0
        count = self.threshold if threshold is None else read.whole("threshold", threshold, lowest, high=highest)
        study = replace(self, parties=changed, threshold=count)
        study.computation.check(study.setting)
        study.spec()  # checks budgets
        return study

    def sweep(
        self,
        *,
        threshold: Iterable[int] | None = None,
        budget: Iterable[float] | None = None,
        epsilon: Iterable[float] | None = None,
        party: str | None = None,
    ) -> Sweep:
        """The errors to expect at other thresholds and budgets, in every combination; nothing is run or charged.

        `budget` multiplies every party's epsilon; `epsilon` gives all parties the same one. With `party`, only the
        budget of that party changes.

        >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
        ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
        >>> [round(row["standard_error"], 1) for row in study.sweep(budget=[0.5, 1, 2]).rows()]
        [9.1, 4.8, 2.5]
        """
        expect = import_module("tpmdp.study.expectation").expect  # it builds on studies, so it cannot be imported above
        if budget is not None and epsilon is not None:
            raise InputError("epsilon", "(given)", "cannot be combined with budget", "give one of them")
        points = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NoNoiseWarning)  # the sweep says so itself
            for setting in settings_of({"threshold": threshold, "budget": budget, "epsilon": epsilon}):
                study = self.varied(**setting, party=party)  # type: ignore[arg-type]
                expected = expect(study)
                answers = tuple(answer for query in expected.queries for answer in query.answers)
                exact = not study.plan().sigma.any()
                points.append(SweepPoint(setting, answers, expected.charges, is_study=study == self, is_exact=exact))
        title = self.label if party is None else f"{self.label}, budget of {party}"
        return Sweep(title, tuple(points[0].values), tuple(points))

    def bounds(self) -> FloatArray:
        """The largest absolute value of any entry, by party."""
        return np.array(self._bounds)

    @cached_property
    def _bounds(self) -> list[float]:
        pairs = zip(self.parties, self.weights.each.tolist(), strict=True)
        return [self.computation.bound(party, weight) for party, weight in pairs]

    def plan(self) -> GridPlan:
        """The noise plan on a grid; the same for every party that computes it. By rounds, that of the last round."""
        if self.rounds > 1:
            return self.preview_rounds[-1].plan()
        finest = self.computation.finest_grid
        return plan_on_grid(self.spec(), self.bounds(), self.dimension, finest=finest, groups=self.tolerate > 0)

    def terms(self, plan: GridPlan | None = None) -> Terms:
        """What all parties sign; by rounds, for the first one, which binds the whole study."""
        if self.rounds > 1:
            return self.first.terms()
        return Terms.of(
            self.label,
            self.plan() if plan is None else plan,
            self.bounds(),
            roster=self.roster,
            query=self._asked,
            guarantee=self.guarantee,
            tolerate=self.tolerate,
        )

    @cached_property
    def _asked(self) -> str:
        """Canonical text of what is computed."""
        query = canonical_json([exact_settings(each.signed_settings()) for each in self.queries])
        each = [weight.hex() for weight in self.weights.each.tolist()]
        weights = "" if self.weighting == "equal" else f"weights {each} spread {self.spread.hex()} "
        engine = "engine spu " if self.engine_used == "spu" else ""  # nobody may compute it otherwise
        engine += "sum through relay " if self.sum_through else ""
        asked = f"{self.unit} {[party.records for party in self.parties]} {weights}{engine}{query}"
        part = self.part
        return asked if part is None else f"{asked} {part.bound_text(part.whole._asked, part.whole.parties)}"

    def parts(self) -> dict[str, str]:
        """Every part of the study that the parties must agree on, by name, to say what differs."""
        if self.part is not None:
            points = {f'point of query "{name}"': text for name, text in self.part.point_texts.items()}
            return {**self.part.whole.parts(), **points}
        parts = {
            "version of tpmdp": __version__,
            "threshold": str(self.threshold),
            "receivers": ", ".join(sorted(self.receivers)),
            "guarantee": self.guarantee,
            "number of parties that may drop out": str(self.tolerate),
            "unit": self.unit,
            "weights": f"{self.weighting} {self.spread.hex()}",
            **({"engine": self.engine_used} if self.engine_used else {}),
            **({"sum_through": self.sum_through} if self.sum_through else {}),
        }
        for party, weight in zip(self.parties, self.weights.each.tolist(), strict=True):
            parts[f"epsilon of {party.name}"] = party.epsilon.hex()
            parts[f"delta of {party.name}"] = party.delta.hex()
            parts[f"number of records of {party.name}"] = str(party.records)
            parts[f"threshold of {party.name}"] = str(party.threshold)
            parts[f"weight of {party.name}"] = weight.hex()
        for query in self.queries:
            parts[f'query "{query.name}"'] = canonical_json(exact_settings(query.signed_settings()))
        return parts

    @property
    def roster(self) -> tuple[bytes, ...]:
        """The public keys of all parties."""
        lacking = [party.name for party in self.parties if party.public_key is None]
        if lacking:
            raise MissingKeysError(lacking)
        return tuple(party.public_key for party in self.parties if party.public_key is not None)

    @property
    def session_id(self) -> bytes:
        """The identifier of the session at the relay."""
        return session_id(hash_label(self.first.label), self.roster)

    def check_terms(self, terms: Terms) -> None:
        """Refuse terms that are not about this study, from any source; only grid and noise are left to the plan."""
        if self.rounds > 1:
            self.first.check_terms(terms)
            return
        ours = {
            "label": self.label,
            "budgets or sensitivities": self.spec(),
            "query": self._asked,
            "bounds": self._bounds,
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
        keys = tuple(party.public_key for party in self.parties)
        if None not in keys:
            ours["public keys"], theirs["public keys"] = keys, terms.roster
        for part, value in ours.items():
            if theirs[part] != value:
                remedy = "compare the study files; do not take part before they are the same"
                raise InputError("terms", part, "differ from the study", remedy)

    def columns_of(self, name: str) -> dict[str, ColumnKind]:
        """The columns a party's data must have, and whether as numbers or as text; of all rounds together."""
        if self.part is not None:
            return self.part.whole.columns_of(name)
        columns: dict[str, ColumnKind] = {}
        for query in self.queries:
            for column, kind in query.columns_of(name).items():
                add_column(columns, column, kind)
        return columns

    def check(self, party: str, data: Records | None, ledger: Ledger | None = None) -> PartyCheck:
        """Everything that a party can know before it takes part: data, cost, expected errors, coalitions.

        `data` is a file, a table or columns. Nothing is charged, sent or written; see `tpmdp check`.
        """
        logic = import_module("tpmdp.study.check")  # which needs this module
        result: PartyCheck = logic.check_party(self, party, data, ledger=ledger)
        return result

    def read_tables(self, folder: StrPath) -> dict[str, Table]:
        """The columns the study needs of every party, from NAME.csv, NAME.parquet or NAME.toml in one folder."""
        names = [party.name for party in self.parties if party.records]
        return {name: read_table(find_source(as_path(folder), name), self.columns_of(name)) for name in names}

    def answers_of(self, query: BaseQuery, total: FloatArray, noise: float) -> list[Answer]:
        """The answers of one query from its part of the vector, scaled back; error bars count weights, too."""
        return self.computation.answers_of(
            query, total, self.records, noise=noise, weights=self.weights, spread=self.spread
        )

    @property
    def assumes(self) -> str:
        """What the answers assume besides; nothing with equal weights."""
        return self.computation.assumption(self.weights, self.spread)

    def seconds_left(self, now: datetime | None = None) -> float:
        """How long a party that starts now may wait."""
        if isinstance(self.deadline, datetime):
            return (self.deadline - (now or datetime.now(UTC))).total_seconds()
        return self.deadline
