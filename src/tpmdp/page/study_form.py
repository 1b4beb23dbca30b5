"""The form of a study: what is typed, as a study, and a study as texts for the form."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from functools import partial
from typing import Any, Final

from tpmdp.errors import FileError, InputError
from tpmdp.page.forms import PageForm, Place, gather, parse_whole
from tpmdp.page.party_table import PARTIES_MAX, PartyRow, PartyTable, party_places
from tpmdp.page.plan_form import DEADLINE, PLACES, WEIGHTINGS, PlanForm, study_document
from tpmdp.page.query_form import OFFERED, QUERIES_MAX, TypedQuery, kind_label, queries_of, query_places
from tpmdp.queries.categories import exact_name
from tpmdp.study.file import parse_deadline
from tpmdp.study.identity import parse_public
from tpmdp.study.invitation import key_for, refuse_twin
from tpmdp.study.model import Study
from tpmdp.study.peers import peer_line
from tpmdp.study.template import STUDY_FILE

_EXAMPLES: Final = (TypedQuery.example("count", []), TypedQuery.example("mean", []))
_PLAN_FIELDS: Final = ("threshold", "tolerate", "weighting", "threshold-lowered", "tolerate-lowered", "pasted")
_PLACES: Final = (
    ("name", "study-name"),
    ("session", "session"),
    ("deadline", "deadline"),
    ("unit", "unit"),
    ("purpose", "purpose"),
    ("contact", "contact"),
    ("relay", "relay"),
    ("file in the folder", "file"),
    ("study file", "open-file"),
)
_STEPS: Final = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True)
class PartyKey:
    """The public key of a party as far as it has returned one, or what is wrong with what it returned."""

    party: str
    key: bytes | None = None
    problem: str = ""


@dataclass(frozen=True)
class StudyForm:
    """What the form asks for: texts, which may be wrong."""

    plan: PlanForm = field(default_factory=PlanForm)
    queries: tuple[TypedQuery, ...] = _EXAMPLES
    name: str = "length of stay"
    session: str = "1"
    unit: str = "record"
    deadline: str = DEADLINE
    lines: tuple[str, ...] = ()  # what each party returned: the line of tpmdp keygen
    relay: str = ""
    file: str = STUDY_FILE
    new_kind: str = "count"
    purpose: str = ""
    contact: str = ""

    @classmethod
    def of(cls, form: PageForm) -> StudyForm:
        """The form, after its action: a party or a query more or less."""
        asked = cls.of_plan(form)
        lines = _lines(form, len(asked.plan.parties.rows))
        if form.text("action") == "paste-parties":  # other parties stand there now
            lines = _lines_by_name(asked.plan, dict(zip(form.all("key-party"), form.all("key-line"), strict=False)))
        return replace(
            asked,
            queries=queries_of(form),
            name=form.text("study-name"),
            session=form.text("session"),
            unit=form.text("unit", "record"),
            deadline=form.text("deadline"),
            lines=lines,
            relay=form.text("relay"),
            file=form.text("file", STUDY_FILE),
            new_kind=form.text("new-kind", "count"),
            purpose=form.text("purpose"),
            contact=form.text("contact"),
        )

    @classmethod
    def of_plan(cls, form: PageForm) -> StudyForm:
        """The parties, threshold, losses and weights of Plan, with the example's queries."""
        names = [name for name in form.values if name.startswith("party-") or name in _PLAN_FIELDS]
        given = {name: form.values[name] for name in names}
        plan = PlanForm.of(PageForm({**given, "action": [form.text("action")]}))
        if plan.weighting not in WEIGHTINGS:
            rule = f"must be one of {', '.join(WEIGHTINGS)}"
            raise InputError("weights", plan.weighting, rule, "choose one")
        return cls(plan)

    def with_plan(self, plan: PlanForm) -> StudyForm:
        """With other parties, threshold, losses and weights; a party that keeps its name keeps its public key."""
        lines = dict(zip(self.plan.parties.names, self.lines, strict=False))
        return replace(self, plan=plan, lines=_lines_by_name(plan, lines))

    @classmethod
    def of_study(cls, study: Study, file: str) -> StudyForm:
        """A study as texts; a study with something that the form cannot show is refused."""
        lacking = _kinds_not_shown(study)
        if not lacking:
            form = cls._texts(study, file)
            try:
                lacking = _differences(study, form.study())
            except InputError as error:
                lacking = [error.field]
        if lacking:
            problem = f"has something that this form cannot show: {'; '.join(lacking[:5])}"
            raise FileError(file, problem, "change the file in an editor; nothing was changed here")
        return form

    @classmethod
    def _texts(cls, study: Study, file: str) -> StudyForm:
        rows = [
            PartyRow(
                party.name,
                exact_name(party.epsilon),
                f"{party.delta!r}",
                records=str(party.records),
                receives=party.name in study.receivers,
            )
            for party in study.parties
        ]
        keys = [(party.name, party.public_key) for party in study.parties]
        return cls(
            PlanForm(PartyTable(tuple(rows)), study.threshold, study.tolerate, weighting=study.weighting),
            tuple(TypedQuery.of_entry(query.settings()) for query in study.queries),
            name=study.name.strip(),
            session=str(study.session),
            unit=study.unit,
            deadline=deadline_text(study.deadline),
            lines=tuple("" if key is None else peer_line(party, key) for party, key in keys),
            file=file,
            purpose=study.purpose,
            contact=study.contact,
        )

    def as_sent(self) -> PageForm:
        """The texts as a browser would send them back."""
        rows = self.plan.parties.rows
        sent: dict[str, list[str]] = {
            "party-name": [row.name for row in rows],
            "party-epsilon": [row.epsilon for row in rows],
            "party-delta": [row.delta for row in rows],
            "party-records": [row.records for row in rows],
            "query-row": [str(place) for place in range(len(self.queries))],
            "study-name": [self.name],
            "session": [self.session],
            "deadline": [self.deadline],
            "unit": [self.unit],
            "purpose": [self.purpose],
            "contact": [self.contact],
        }
        for place, query in enumerate(self.queries):
            sent[f"query-{place}-kind"] = [query.kind]
            sent |= {f"query-{place}-{key}": [text] for key, text in query.texts.items()}
        return PageForm(sent)

    def keys(self) -> list[PartyKey]:
        """What each party has returned, checked; names must match."""
        states: list[PartyKey] = []
        for name, line in zip(self.plan.parties.names, self.lines, strict=False):
            try:
                known = {state.party: state.key for state in states}
                raw = parse_public(f"public key of {name}", key_for(name, line)) if line else None
                if raw is not None:
                    refuse_twin(name, raw, known)
                states.append(PartyKey(name, raw))
            except InputError as error:
                states.append(PartyKey(name, problem=str(error)))
        return states + [PartyKey(name) for name in self.plan.parties.names[len(states) :]]

    def document(self) -> dict[str, Any]:
        """The study as a file has it, without public keys."""
        numbered = enumerate(self.queries, 1)
        gather(
            self.plan.parties.check,
            lambda: parse_whole("session", self.session),
            lambda: parse_deadline(self.deadline),
            *(partial(query.entry, number) for number, query in numbered),
        )
        document = study_document(self.plan.within())
        deadline = parse_deadline(self.deadline)
        document |= {
            "name": self.name,
            "session": parse_whole("session", self.session),
            "unit": self.unit,
            "deadline": deadline if isinstance(deadline, datetime) else self.deadline,
            **({"purpose": self.purpose} if self.purpose else {}),
            **({"contact": self.contact} if self.contact else {}),
        }
        if not self.queries:
            raise InputError("queries", "(none)", "are missing", "add a query")
        return document | {"queries": [query.entry(number) for number, query in enumerate(self.queries, 1)]}

    def plain_study(self) -> Study:
        """The study before the parties have keys."""
        return Study.parse(self.document(), OFFERED)

    def study(self) -> Study:
        """The study with the public keys that are there."""
        study, keys = self.plain_study(), self.keys()
        for state in keys:
            if state.problem:
                rule = f"cannot be used ({state.problem})"
                raise InputError(f"line of {state.party}", "(given)", rule, "correct it, or leave it empty")
        parties = [replace(party, public_key=state.key) for party, state in zip(study.parties, keys, strict=True)]
        return replace(study, parties=tuple(parties))


def _lines(form: PageForm, count: int) -> tuple[str, ...]:
    """The lines by party, after a party more or less."""
    lines, action = form.all("key-line"), form.text("action")
    if action.startswith("remove-party-"):
        place = parse_whole("party", action.removeprefix("remove-party-"))
        lines[place : place + 1] = []
    return tuple([*lines, *[""] * count][:count])


def _lines_by_name(plan: PlanForm, lines: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(lines.get(name, "") for name in plan.parties.names)


def study_places(form: PageForm) -> list[Place]:
    """The fields of Study, as errors name them."""
    names = form.all("party-name")
    places = [Place(label, field, form.text(field)) for label, field in _PLACES]
    keys = [Place(f"line of {name}", f"key-line-{row}", "(given)") for row, name in enumerate(names)]
    return [*places, *PLACES, *party_places(form), *keys, *query_places(form)]


def deadline_text(deadline: float | datetime) -> str:
    """A deadline as it is typed.

    >>> deadline_text(600.0), deadline_text(90.0), deadline_text(7200.0)
    ('10m', '90s', '2h')
    """
    if isinstance(deadline, datetime):
        return deadline.isoformat()
    seconds = math.ceil(deadline)
    step = next(step for step, size in _STEPS.items() if seconds % size == 0)
    return f"{seconds // _STEPS[step]}{step}"


def _kinds_not_shown(study: Study) -> list[str]:
    lacking = [
        f"the {kind_label(query.settings()['kind'])} query {query.name}"
        for query in study.queries
        if query.settings()["kind"] not in OFFERED
    ]
    if len(study.queries) > QUERIES_MAX:
        lacking.append(f"more than {QUERIES_MAX} queries")
    if len(study.parties) > PARTIES_MAX:
        lacking.append(f"more than {PARTIES_MAX:,} parties")
    return lacking + ([f"weighting = {study.weighting}"] if study.weighting not in WEIGHTINGS else [])


def _differences(study: Study, shown: Study) -> list[str]:
    """What the form would lose, by name."""
    lost = []
    for party, again in zip(study.parties, shown.parties, strict=True):
        changed = [each.name for each in fields(party) if getattr(party, each.name) != getattr(again, each.name)]
        lost += [f"{key} of {party.name}" for key in changed]
    for query, other in zip(study.queries, shown.queries, strict=True):
        lost += [f"the query {query.name}"] if query != other else []
    if set(study.receivers) != set(shown.receivers):
        lost.append("receivers")
    single = [each.name for each in fields(study) if each.name not in ("parties", "queries", "receivers")]
    return lost + [key for key in single if getattr(study, key) != getattr(shown, key)]
