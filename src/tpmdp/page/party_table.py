"""The table of parties that Plan and Study share: edited in place, read once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from tpmdp._util.numbers import plural
from tpmdp.errors import InputError
from tpmdp.page.forms import PageForm, button, control, parse_number, parse_whole, void
from tpmdp.report.markup import Html, joined, tag
from tpmdp.spec import Spec

PARTIES_MAX: Final = 2_000
_COLUMNS: Final = ("name", "epsilon", "delta", "records")


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
        return self.name or "a party without a name"


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
            return cls(pasted_rows(form.text("pasted")))
        if len({len(numbers), *map(len, columns)}) != 1:
            raise InputError("parties", "(broken)", "do not come from this page", "load the page again")
        rows = [
            PartyRow(name, epsilon, delta, records=records, receives=place in receiving)
            for place, name, epsilon, delta, records in zip(numbers, *columns, strict=True)
        ]
        return cls(tuple(rows)).after(form.text("action"))

    def after(self, action: str) -> PartyTable:
        """With a row more (add-party) or less (remove-party-3)."""
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

    def _new_name(self) -> str:
        names = {row.name for row in self.rows}
        return next(
            name for number in range(len(names) + 1, 3 + 2 * len(names)) if (name := f"party_{number}") not in names
        )

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
        for row in self.rows:
            if not row.name:
                raise InputError("name of a party", row.name, "is missing", "give each party a name")

    def epsilons(self) -> list[float]:
        """The budgets."""
        return [parse_number(f"epsilon of {row.label}", row.epsilon) for row in self.rows]

    def deltas(self) -> list[float]:
        """The deltas."""
        return [parse_number(f"delta of {row.label}", row.delta) for row in self.rows]

    def records(self) -> list[int]:
        """How many records each party has."""
        return [parse_whole(f"records of {row.label}", row.records) for row in self.rows]

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
        return joined([tag("div", table, class_="wide"), tag("p", button("Add a party", "add-party")), _paste()])


def _paste() -> Html:
    hint = (
        "A line for each party: name, epsilon, delta, records, and the word receives, with commas or tabs between. A "
        "first line with headings is left out."
    )
    area = tag(
        "textarea", "", id="pasted", name="pasted", rows=5, cols=40, spellcheck="false", aria_describedby="pasted-hint"
    )
    inside = joined([control("Many parties at once", area, hint, id="pasted"), button("Use these", "paste-parties")])
    return tag("details", tag("summary", "Paste a list of parties"), inside)


def pasted_rows(text: str) -> tuple[PartyRow, ...]:
    """The parties of a pasted list; what a line leaves out is as in the example.

    >>> pasted_rows("north, 0.5, 1e-6, 400, receives\\nsouth\\t1")[1].records
    '1000'
    """
    rows: list[PartyRow] = []
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in re.split(r"[,;\t]", line)]
        if not any(cells) or (not rows and [cell.lower() for cell in cells[1:2]] == ["epsilon"]):
            continue  # empty, or headings
        name, epsilon, delta, records, last = [*cells, *[""] * 5][:5]
        if len(cells) > 5 or last not in ("receives", "yes", "no", ""):
            rule = "must be name, epsilon, delta, records and the word receives"
            raise InputError(
                f"line {number}",
                ", ".join(cells),
                rule,
                "put one comma or tab between two of them, and points into numbers: 0.5",
            )
        receives = last in ("receives", "yes")
        rows.append(PartyRow(name, epsilon or "1", delta or "1e-6", records=records or "1000", receives=receives))
    if not any(row.receives for row in rows):
        rows = [replace(row, receives=True) for row in rows]
    return tuple(rows)


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
