"""The table of parties that Plan and Study share: edited in place, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import numpy as np

from tpmdp._util.budget_rules import check_delta, check_epsilon
from tpmdp._util.numbers import plural
from tpmdp.errors import InputError
from tpmdp.page.forms import PageForm, Place, button, control, gather, parse_count, parse_number, parse_whole, void
from tpmdp.report.markup import Html, joined, tag
from tpmdp.spec import Spec
from tpmdp.study.identity import check_party_names, names_to_mend

PARTIES_MAX: Final = 2_000
NAMELESS: Final = "a party without a name"
_COLUMNS: Final = ("name", "epsilon", "delta", "records")
_IN_LINES: Final = ("", "epsilon in ", "delta in ", "records in ")
_MENDED_SHOWN: Final = 6
_RECEIVES: Final = (
    "Receives: who gets the answer. Parties that pool what they see need one who gets it, so fewer receivers often "
    "mean much less noise."
)
_RECORDS: Final = "1000"  # where a pasted line has none, and the page says so


@dataclass(frozen=True)
class PartyRow:
    """A party as it is typed: texts, which may be wrong."""

    name: str
    epsilon: str
    delta: str
    records: str
    receives: bool

    @property
    def label(self) -> str:
        """What errors call it."""
        return self.name or NAMELESS


EXAMPLE: Final = (
    PartyRow("statistics_office", "2", "1e-6", records="900", receives=True),
    PartyRow("hospital_north", "0.5", "1e-6", records="400", receives=True),
    PartyRow("hospital_south", "1", "1e-6", records="650", receives=False),
    PartyRow("insurer", "1", "1e-6", records="1200", receives=False),
    PartyRow("university", "2", "1e-6", records="300", receives=False),
)


@dataclass(frozen=True)
class PartyTable:
    """All parties of a form."""

    rows: tuple[PartyRow, ...] = EXAMPLE

    @classmethod
    def of(cls, form: PageForm) -> PartyTable:
        """The table as the form has it, after its action: a row more or less."""
        columns = [form.all(f"party-{column}") for column in _COLUMNS]
        numbers, receiving = form.all("party-row"), set(form.all("party-receives"))
        if form.text("action") == "paste-parties":
            return cls(pasted(form.text("pasted")).rows)
        if len({len(numbers), *map(len, columns)}) != 1:
            raise InputError("parties", "(broken)", "do not come from this page", "load the page again")
        rows = [
            PartyRow(name, epsilon, delta, records=records, receives=place in receiving)
            for place, name, epsilon, delta, records in zip(numbers, *columns, strict=True)
        ]
        return cls(tuple(rows)).after(form.text("action"))

    def after(self, action: str) -> PartyTable:
        """With a row more (add-party) or less (remove-party-3)."""
        if action == "use-names":
            return self.with_names(names_to_mend(self.names))
        if action == "add-party":
            last = self.rows[-1] if self.rows else EXAMPLE[0]
            return PartyTable((*self.rows, replace(last, name=self._new_name(), receives=False)))
        if action.startswith("remove-party-"):
            place = parse_whole("party", action.removeprefix("remove-party-"))
            return PartyTable(self.rows[:place] + self.rows[place + 1 :])
        return self

    def with_epsilon(self, place: int, epsilon: str) -> PartyTable:
        """With another epsilon of one party."""
        rows = [replace(row, epsilon=epsilon) if each == place else row for each, row in enumerate(self.rows)]
        return PartyTable(tuple(rows))

    def with_receiver(self, place: int) -> PartyTable:
        """With this party as the only receiver."""
        return PartyTable(tuple(replace(row, receives=each == place) for each, row in enumerate(self.rows)))

    def _new_name(self) -> str:
        names = {row.name for row in self.rows}
        return next(
            name for number in range(len(names) + 1, 3 + 2 * len(names)) if (name := f"party_{number}") not in names
        )

    def with_names(self, names: Mapping[str, str]) -> PartyTable:
        """With other names for some."""
        return PartyTable(tuple(replace(row, name=names.get(row.name, row.name)) for row in self.rows))

    def names_note(self) -> Html:
        """Names that a study refuses, said before somebody writes one; or nothing."""
        mended = names_to_mend([row.name for row in self.rows if row.name])
        if not mended:
            return Html("")
        pairs = "; ".join(f"{new} for {old}" for old, new in list(mended.items())[:_MENDED_SHOWN])
        more = f"; and {len(mended) - _MENDED_SHOWN} more" if len(mended) > _MENDED_SHOWN else ""
        text = f"In a study, names are letters, digits, _ . - without blanks. Write {pairs}{more}. "
        return tag("p", text, button("Use these names", "use-names", class_="small"), class_="warning")

    @property
    def newest(self) -> str:
        """The id of the field with the last name."""
        return f"name-{len(self.rows) - 1}"

    @property
    def names(self) -> list[str]:
        """The names of all parties."""
        return [row.name for row in self.rows]

    def check(self) -> None:
        """Refuse tables that no plan can be made for."""
        if len(self.rows) < 2:
            raise InputError("parties", len(self.rows), "must be at least 2", "add a party")
        if len(self.rows) > PARTIES_MAX:
            rule = f"must be at most {PARTIES_MAX:,} on this page"
            raise InputError("parties", len(self.rows), rule, "plan them with tpmdp plan parties.csv")
        gather(*(partial(_check_row, row) for row in self.rows))

    def epsilons(self) -> list[float]:
        """The budgets."""
        return [parse_number(f"epsilon of {row.label}", row.epsilon) for row in self.rows]

    def deltas(self) -> list[float]:
        """The deltas."""
        return [parse_number(f"delta of {row.label}", row.delta) for row in self.rows]

    def records(self) -> list[int]:
        """How many records each party has."""
        return [parse_count(f"records of {row.label}", row.records) for row in self.rows]

    def receivers(self) -> list[int]:
        """Who learns the answer, by number."""
        return [place for place, row in enumerate(self.rows) if row.receives]

    def spec(self, threshold: int, sensitivity: float = 1.0) -> Spec:
        """What a plan is made for; a party without records cannot change the answer."""
        self.check()
        each = [sensitivity if count else 0.0 for count in self.records()]
        return Spec(
            epsilon=self.epsilons(),
            delta=self.deltas(),
            sensitivity=each,
            threshold=threshold,
            receivers=self.receivers(),
            names=self.names,
        )

    def entries(self) -> list[dict[str, Any]]:
        """The parties as a study file has them."""
        self.check()
        check_party_names(self.names)
        columns = zip(self.rows, self.epsilons(), self.deltas(), self.records(), strict=True)
        return [
            {"name": row.name, "epsilon": epsilon, "delta": delta, "records": records}
            for row, epsilon, delta, records in columns
        ]

    def html(self) -> Html:
        """The table with its fields."""
        headings = ["Party", "Epsilon", "Delta", "Records", "Receives", ""]
        cells = [text or tag("span", "Remove", class_="hidden") for text in headings]
        head = tag("tr", *(tag("th", cell, scope="col") for cell in cells))
        body = joined(_row(place, row) for place, row in enumerate(self.rows))
        size = plural(len(self.rows), "party", "parties")
        caption = tag("caption", f"{size}: name, budget, and who learns the answer", class_="hidden")
        table = tag("table", caption, tag("thead", head), tag("tbody", body), class_="parties")
        return joined(
            [
                tag("div", table, class_="wide"),
                tag("p", _RECEIVES, class_="hint", id="receives-hint"),
                tag("p", button("Add a party", "add-party", id="add-party")),
                _paste(),
            ]
        )


def _check_row(row: PartyRow) -> None:
    """Refuse all that is wrong in a row, at once."""

    def check_name() -> None:
        if not row.name:
            raise InputError("name of a party", row.name, "is missing", "give each party a name")

    def check_budget() -> None:
        epsilon = np.array([parse_number(f"epsilon of {row.label}", row.epsilon)])
        check_epsilon(epsilon, lambda _: row.label)

    def check_failure() -> None:
        delta = np.array([parse_number(f"delta of {row.label}", row.delta)])
        check_delta(delta, np.array([_epsilon_or(row, 1.0)]), lambda _: row.label)

    gather(check_name, check_budget, check_failure, lambda: parse_count(f"records of {row.label}", row.records))


def _epsilon_or(row: PartyRow, otherwise: float) -> float:
    try:
        return parse_number("epsilon", row.epsilon)
    except InputError:
        return otherwise


def party_places(form: PageForm) -> list[Place]:
    """The fields of the table as it was typed, as errors name them."""
    columns = {column: form.all(f"party-{column}") for column in _COLUMNS}
    places = [Place("parties", "pasted"), Place("pasted list", "pasted"), Place("receivers", "receives-0", "(none)")]
    for row, name in enumerate(columns["name"]):
        label = name or NAMELESS
        places += [Place(each, f"name-{row}", name) for each in ("name of a party", f"name of party {row + 1}")]
        for column in _COLUMNS[1:]:
            text = columns[column][row] if row < len(columns[column]) else ""
            places.append(Place(f"{column} of {label}", f"{column}-{row}", text))
    if form.text("action") == "paste-parties":
        lines = form.text("pasted").splitlines()
        places += [Place(f"{what}line {number}", "pasted") for number in range(1, len(lines) + 1) for what in _IN_LINES]
    return places


# A pasted list --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pasted:
    """The parties of a pasted list, and what was read, in words."""

    rows: tuple[PartyRow, ...]
    text: str


def _paste() -> Html:
    hint = (
        "A line for each party: name, epsilon, delta, and if you like the number of records and the word receives. Put "
        "commas, semicolons, tabs or blanks between them. A first line with headings is left out."
    )
    area = tag(
        "textarea", "", id="pasted", name="pasted", rows=5, cols=40, spellcheck="false", aria_describedby="pasted-hint"
    )
    inside = joined([control("Many parties at once", area, hint, id="pasted"), button("Use these", "paste-parties")])
    return tag("details", tag("summary", "Paste a list of parties"), inside, id="paste")


def pasted(text: str) -> Pasted:
    """The parties of a pasted list; a line without name, epsilon and delta is refused.

    >>> pasted("north, 0.5, 1e-6, 400, receives\\nsouth\\t1\\t1e-6\\t300").text
    '2 parties were read, 1 receiver.'
    >>> pasted("north 0.5 1e-6\\nsouth 1 1e-6 300").rows[1].delta
    '1e-6'
    """
    rows: list[PartyRow] = []
    without_records = 0
    for number, line in enumerate(text.splitlines(), 1):
        cells = _cells(line)
        if not any(cells) or (not rows and [cell.lower() for cell in cells[1:2]] == ["epsilon"]):
            continue  # empty, or headings
        name, epsilon, delta, records, last = [*cells, *[""] * 5][:5]
        if len(cells) > 5 or not (name and epsilon and delta) or last.lower() not in ("receives", "yes", "no", ""):
            rule = "must be name, epsilon and delta, and if you like records and the word receives"
            remedy = "write such as: north, 0.5, 1e-6, 400, receives"
            raise InputError(f"line {number}", ", ".join(cells), rule, remedy)
        parse_number(f"epsilon in line {number}", epsilon)
        parse_number(f"delta in line {number}", delta)
        if records:
            parse_count(f"records in line {number}", records)
        without_records += not records
        receives = last.lower() in ("receives", "yes")
        rows.append(PartyRow(name, epsilon, delta, records=records or _RECORDS, receives=receives))
    if len(rows) < 2:
        rule = "must have at least 2 parties"
        raise InputError("pasted list", plural(len(rows), "party", "parties"), rule, "write a line for each party")
    return Pasted(tuple(rows), _read_text(rows, without_records))


def _cells(line: str) -> list[str]:
    """A line cut at its tabs; else at semicolons, else at commas, else at blanks.

    >>> _cells("A;0,3;1e-6"), _cells("A 0.3  1e-6")
    (['A', '0,3', '1e-6'], ['A', '0.3', '1e-6'])
    """
    between = next((each for each in "\t;," if each in line.strip()), None)
    return [cell.strip() for cell in line.split(between)]


def _read_text(rows: Sequence[PartyRow], without_records: int) -> str:
    receivers = sum(row.receives for row in rows)
    text = f"{plural(len(rows), 'party', 'parties')} were read, {plural(receivers, 'receiver')}."
    if not receivers:
        text += " Tick who receives the answer."
    if without_records:
        text += f" {plural(without_records, 'line')} had no number of records: {_RECORDS} stands there."
    return text


# Its rows -------------------------------------------------------------------------------------------------------------


def _row(place: int, row: PartyRow) -> Html:
    number = place + 1
    cells = [
        joined([void("input", type="hidden", name="party-row", value=place), _field("name", row.name, number)]),
        _field("epsilon", row.epsilon, number),
        _field("delta", row.delta, number),
        _field("records", row.records, number),
        void(
            "input",
            type="checkbox",
            name="party-receives",
            value=place,
            aria_label=f"party {number} receives the answer",
            id=f"receives-{place}",
            **({"checked": "checked"} if row.receives else {}),
        ),
        button("Remove", f"remove-party-{place}", class_="small", aria_label=f"Remove party {number}, {row.name}"),
    ]
    labels: Sequence[str] = ("Party", "Epsilon", "Delta", "Records", "Receives", "")
    marked = [tag("td", cell, data_label=label) for cell, label in zip(cells, labels, strict=True)]
    return tag("tr", *marked, data_point=place)


def _field(column: str, value: str, number: int) -> Html:
    kinds = {"epsilon": "decimal", "delta": "text", "records": "numeric"}
    more = {"inputmode": kinds[column]} if column in kinds else {}
    return void(
        "input",
        type="text",
        name=f"party-{column}",
        value=value,
        id=f"{column}-{number - 1}",
        aria_label=f"{column} of party {number}",
        autocomplete="off",
        spellcheck="false",
        maxlength=200,
        class_=f"cell {column}",
        **more,
    )
