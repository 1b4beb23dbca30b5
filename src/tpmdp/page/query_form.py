"""Queries of the catalogue as forms: the fields of a kind follow from the types of its class."""

from __future__ import annotations

import re
import tomllib
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Final

from tpmdp.errors import InputError
from tpmdp.page.forms import PageForm, Place, button, choice, control, parse_number, parse_whole, text_field, void
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.bins import Spans
from tpmdp.queries.catalogue import EXAMPLES, KINDS, keys_of, make_query
from tpmdp.queries.categories import Categories, exact_name
from tpmdp.queries.joint_table import HeldColumn
from tpmdp.queries.moments import Ranges
from tpmdp.queries.vertical_moments import Holders
from tpmdp.report.markup import Html, joined, tag
from tpmdp.report.questions import kind_text

QUERIES_MAX: Final = 50
_PIECE: Final = re.compile(r'"(?:[^"]+|"")*"|[^",]+|,|"')
_NUMBER_HINT: Final = "A number."
_HINTS: Final[Mapping[str, str]] = {  # by key, or by kind and key
    "column": "Its name in the data of every party.",
    "target": "The column that is explained by the others.",
    "low": "A number. Smaller values count as this one.",
    "high": "A number. Larger values count as this one.",
    "at_least": "A number. Records with this value or more count.",
    "below": "A number. Records with less than this value count.",
    "edges": "Ends of the bins, with commas, such as 0, 18, 65, 120.",
    "ranges": "Counts of these instead of bins: one line each, two edges, such as 18 65.",
    "distribution edges": "Values with commas, such as 1, 7, 30. Or give low, high and bins.",
    "distribution low": "A number: the first edge.",
    "distribution high": "A number: the last edge.",
    "distribution bins": "How many equal steps from low to high.",
    "probabilities": "Shares with commas: 0.5 is the median.",
    "weight": "Its share of the budget against the other queries: 2 is twice the share of 1.",
}
_LABELS: Final[Mapping[str, tuple[str, ...]]] = {
    "by-column": ("column of groups",),
    "by-categories": ("groups",),
    "rows": ("rows", "edges of rows", "categories of rows", "cells"),
    "columns": ("columns", "edges of columns", "categories of columns"),
}
_WHERE_HINT: Final = 'Only records that meet a condition, such as age >= 65 and ward = "north".'


# Texts and values -----------------------------------------------------------------------------------------------------


def split_list(field: str, text: str) -> list[tuple[str, bool]]:
    """The entries of a list with commas, and whether each stands in double quotes.

    >>> split_list("categories", 'north, "1", "a, b"')
    [('north', False), ('1', True), ('a, b', True)]
    """
    entries: list[tuple[str, bool]] = []
    pieces: list[str] = []
    for piece in [*_PIECE.findall(text), ","]:
        if piece != ",":
            pieces += [piece.strip()] if piece.strip() else []
            continue
        if not pieces:
            raise InputError(field, text, "has an empty entry", "write one comma between two entries")
        entry, is_quoted = pieces[0], len(pieces[0]) > 1 and pieces[0].startswith('"')
        if len(pieces) > 1 or entry == '"':
            rule = "has a double quote without its partner, or text beside quotes"
            raise InputError(field, text, rule, 'write such as north, south or "1", "2"')
        entries.append((entry[1:-1].replace('""', '"') if is_quoted else entry, is_quoted))
        pieces = []
    return entries


def _number_list(field: str, text: str) -> list[float]:
    return [parse_number(field, entry) for entry, _ in split_list(field, text)]


def _category_list(field: str, text: str) -> list[Any]:
    """Numbers if all entries are, else texts; an entry in quotes is text."""
    entries = split_list(field, text)
    try:
        if not any(is_quoted for _, is_quoted in entries):
            return [parse_number(field, entry) for entry, _ in entries]
    except InputError:
        pass
    return [entry for entry, _ in entries]


def _write_categories(values: Sequence[Any]) -> str:
    if not all(isinstance(value, str) for value in values):
        return ", ".join(map(exact_name, values))
    plain = ", ".join(values)
    try:
        is_same = _category_list("", plain) == list(values)
    except InputError:
        is_same = False
    return plain if is_same else ", ".join(map(_quoted, values))


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _bounds(field: str, text: str) -> dict[str, list[float]]:
    bounds: dict[str, list[float]] = {}
    for line in filter(str.strip, text.splitlines()):
        parts = line.strip().rsplit(None, 2)
        if len(parts) != 3:
            raise InputError(field, line, "must be a column and two numbers", "write such as age 0 120")
        column = parts[0]
        if column in bounds:
            raise InputError(field, column, "is there twice", "give each column one line")
        bounds[column] = [parse_number(f"{field}, {column}", end) for end in parts[1:]]
    return bounds


def _write_bounds(ranges: Any) -> str:
    pairs = ranges.items() if isinstance(ranges, Mapping) else ((each.column, (each.low, each.high)) for each in ranges)
    return "\n".join(f"{column} {exact_name(float(low))} {exact_name(float(high))}" for column, (low, high) in pairs)


def _spans(field: str, text: str) -> list[list[float]]:
    spans = []
    for line in filter(str.strip, text.splitlines()):
        ends = line.split()
        if len(ends) != 2:
            raise InputError(field, line, "must be two numbers", "write such as 18 65")
        spans.append([parse_number(field, end) for end in ends])
    return spans


def _write_spans(spans: Any) -> str:
    return "\n".join(f"{exact_name(float(low))} {exact_name(float(high))}" for low, high in spans)


def _holders(field: str, text: str) -> dict[str, list[str]]:
    holders: dict[str, list[str]] = {}
    for line in filter(str.strip, text.splitlines()):
        party, colon, columns = line.partition(":")
        if not colon or not party.strip():
            raise InputError(field, line, "must be a party and its columns", "write such as bank: income, age")
        if party.strip() in holders:
            raise InputError(field, party.strip(), "is there twice", "give each party one line")
        holders[party.strip()] = [entry for entry, _ in split_list(f"{field}, {party.strip()}", columns)]
    return holders


def _write_holders(holders: Mapping[str, Sequence[str]]) -> str:
    return "\n".join(f"{party}: {', '.join(columns)}" for party, columns in holders.items())


def _held_column(field: str, text: str) -> dict[str, Any]:
    head, _, places = text.strip().partition("\n")
    party, colon, column = (each.strip() for each in head.partition(":"))
    key, second, values = (each.strip() for each in places.partition(":"))
    if not (colon and party and column and second and key in ("edges", "categories")):
        rule = "must be a line with party and column, and one with edges or categories"
        raise InputError(field, text, rule, "write such as bank: income, and below edges: 0, 20000, 50000")
    read = _number_list if key == "edges" else _category_list
    return {"party": party, "column": column, key: read(f"{key} of {field}", values)}


def _write_held_column(side: Mapping[str, Any]) -> str:
    return f"{side['party']}: {side['column']}\n" + "".join(
        f"{key}: {_write_categories(side[key])}" for key in ("edges", "categories") if key in side
    )


@dataclass(frozen=True)
class _Way:
    """How values of a type are typed."""

    read: Callable[[str, str], Any]  # field and text to a value as a study file has it
    write: Callable[[Any], str]
    hint: str
    keyboard: str = "text"
    is_long: bool = False


_WAYS: Final[Mapping[Any, _Way]] = {
    str: _Way(lambda _, text: text, str, "Text."),
    float: _Way(parse_number, lambda value: exact_name(float(value)), _NUMBER_HINT, keyboard="decimal"),
    int: _Way(parse_whole, str, "A whole number.", keyboard="numeric"),
    tuple[float, ...]: _Way(
        _number_list, lambda values: ", ".join(exact_name(float(value)) for value in values), "Numbers, with commas."
    ),
    Categories: _Way(
        _category_list,
        _write_categories,
        'With commas. Numbers if all of them are; for text that looks like numbers use quotes: "1", "2".',
    ),
    Ranges: _Way(_bounds, _write_bounds, "One line for each column: its name, lowest and highest value.", is_long=True),
    Spans: _Way(_spans, _write_spans, "One line for each: two edges, first and last, such as 18 65.", is_long=True),
    HeldColumn: _Way(
        _held_column,
        _write_held_column,
        "Two lines: party and column, such as bank: income, then edges: 0, 20000, 50000, or categories: yes, no.",
        is_long=True,
    ),
    Holders: _Way(_holders, _write_holders, "One line for each party: its name, a colon, its columns.", is_long=True),
}


# Kinds ----------------------------------------------------------------------------------------------------------------


@cache
def _types(kind: str) -> dict[str, Any]:
    """The types of the keys of a kind, required ones first."""
    maker = KINDS[kind]
    hints = typing.get_type_hints(maker)
    required, optional = keys_of(maker)
    return {key: hints[key] for key in (*required, *optional)}


OFFERED: Final[Mapping[str, type[BaseQuery]]] = {
    kind: maker for kind, maker in KINDS.items() if all(type_ in _WAYS for type_ in _types(kind).values())
}
NOT_OFFERED: Final = tuple(kind for kind in KINDS if kind not in OFFERED)


def _defaults(kind: str) -> dict[str, str]:
    """What optional keys are if they are left out, where that can be said."""
    own = {each.name: each.default for each in fields(KINDS[kind]) if each.default is not MISSING}
    texts = {key: _WAYS[type_].write(own[key]) for key, type_ in _types(kind).items() if own.get(key) not in (None, ())}
    return {key: text for key, text in texts.items() if text.strip("-") not in ("", "inf")}


def kind_label(kind: str) -> str:
    """A kind for people.

    >>> kind_label("linear_regression")
    'linear regression'
    """
    return kind.replace("_", " ")


@dataclass(frozen=True)
class TypedQuery:
    """A query as it is typed: texts by field, which may be wrong."""

    kind: str
    texts: Mapping[str, str]

    @classmethod
    def of_entry(cls, entry: Mapping[str, Any]) -> TypedQuery:
        """The texts of a query of a study file, or of its settings, as a browser would send them."""
        kind = entry["kind"]
        texts = {"name": str(entry["name"])}
        texts |= {key: _WAYS[type_].write(entry[key]) for key, type_ in _types(kind).items() if key in entry}
        texts |= {"where": str(entry["where"])} if "where" in entry else {}
        for column, values in entry.get("by", {}).items():
            texts |= {"by-column": column, "by-categories": _write_categories(values)}
        return cls(kind, {key: text.strip() for key, text in texts.items()})

    @classmethod
    def example(cls, kind: str, taken: Sequence[str]) -> TypedQuery:
        """The example of the catalogue, under a name that is not taken."""
        entry = tomllib.loads(EXAMPLES[kind])
        name, number = entry["name"], 2
        while entry["name"] in taken:
            entry["name"], number = f"{name} {number}", number + 1
        return cls.of_entry(entry)

    def entry(self, number: int) -> dict[str, Any]:
        """The query as a study file has it; `number` is its place, for errors."""
        name = self.texts.get("name", "")
        if not name:
            raise InputError(f"name of query {number}", name, "is missing", "give the query a name")
        entry: dict[str, Any] = {"name": name, "kind": self.kind}
        required, _ = keys_of(KINDS[self.kind])
        for key, type_ in _types(self.kind).items():
            text = self.texts.get(key, "")
            if text:
                entry[key] = _WAYS[type_].read(f"{kind_label(key)} of {name}", text)
            elif key in required:
                raise InputError(f"{kind_label(key)} of {name}", text, "is missing", "fill it in")
        if self.texts.get("where"):
            entry["where"] = self.texts["where"]
        column, values = self.texts.get("by-column", ""), self.texts.get("by-categories", "")
        if bool(column) != bool(values):
            missing = "groups" if column else "column of groups"
            raise InputError(f"{missing} of {name}", "", "is missing", "give the column and its values, or neither")
        if column:
            entry["by"] = {column: _category_list(f"groups of {name}", values)}
        _check(name, entry)
        return entry

    def html(self, place: int) -> Html:
        """A fieldset; what is optional and rare is folded away until it is used."""
        prefix, defaults = f"query-{place}", _defaults(self.kind)
        required, _ = keys_of(KINDS[self.kind])
        shown = [self._field(prefix, "name", _Way(lambda _, text: text, str, "Shown to all parties."), label="Name")]
        folded: list[Html] = []
        for key, type_ in _types(self.kind).items():
            default = defaults.get(key)
            more = "" if key in required else " Optional." + (f" If left out: {default}." if default else "")
            field = self._field(prefix, key, _WAYS[type_], more=more)
            (folded if key == "weight" else shown).append(field)
        if KINDS[self.kind].has_parts:
            values = _WAYS[Categories]
            folded = [
                self._field(prefix, "where", _Way(values.read, str, _WHERE_HINT), label="Where", more=" Optional."),
                self._field(
                    prefix,
                    "by-column",
                    _Way(values.read, str, "Optional: an answer for each group."),
                    label="Groups by column",
                    clears=f"{prefix}-by-categories",
                ),
                self._field(prefix, "by-categories", values, label="Values of that column"),
                *folded,
            ]
        rare = ("where", "by-column", "by-categories", "weight")
        is_open: dict[str, object] = {"open": "open"} if any(self.texts.get(key) for key in rare) else {}
        summary = tag("summary", "Condition, groups and weight" if len(folded) > 1 else "Weight")
        more_fields = [tag("details", summary, tag("div", *folded, class_="fields"), **is_open)] if folded else []
        name = self.texts.get("name", "")
        return tag(
            "fieldset",
            tag("legend", f"Query {place + 1}: {kind_label(self.kind)}"),
            void("input", type="hidden", name="query-row", value=place),
            void("input", type="hidden", name=f"{prefix}-kind", value=self.kind),
            tag("p", kind_text(self.kind), class_="hint"),
            tag("div", *shown, class_="fields"),
            *more_fields,
            button(
                "Remove this query",
                f"remove-query-{place}",
                class_="small",
                aria_label=f"Remove query {place + 1}, {name}",
            ),
        )

    def _field(self, prefix: str, key: str, way: _Way, *, label: str = "", more: str = "", clears: str = "") -> Html:
        field, text = f"{prefix}-{key}", self.texts.get(key, "")
        title = label or kind_label(key).capitalize()
        hint = _HINTS.get(f"{self.kind} {key}", _HINTS.get(key, way.hint)) + more
        if not way.is_long:
            attributes = {"data_clears": clears} if clears else {}  # an emptied field empties that one, too
            return text_field(title, field, text, hint=hint, kind=way.keyboard, spellcheck="false", **attributes)
        rows = max(3, text.count("\n") + 2)
        area = tag(
            "textarea",
            text,
            id=field,
            name=field,
            rows=rows,
            cols=28,
            spellcheck="false",
            autocomplete="off",
            aria_describedby=f"{field}-hint",
        )
        return control(title, area, hint, id=field)


def _check(name: str, entry: Mapping[str, Any]) -> None:
    """The rules of the library; its error names the query, and the fields as they are labelled here."""
    try:
        make_query(entry, OFFERED)
    except InputError as error:
        rule, remedy = error.rule, error.remedy
        for key in entry:
            rule, remedy = rule.replace(key, kind_label(key)), remedy.replace(key, kind_label(key))
        field = error.field
        if name not in field:
            bounds, _, column = field.partition("bounds of ")
            field = f"{field} of {name}" if bounds or not column else f"bounds of {name}, {column}"
        raise InputError(field, error.value, rule, remedy) from None


# All queries of a form ------------------------------------------------------------------------------------------------


def _fields(kind: str) -> list[str]:
    parts = ["where", "by-column", "by-categories"] if KINDS[kind].has_parts else []
    return ["name", *_types(kind), *parts]


def queries_of(form: PageForm) -> tuple[TypedQuery, ...]:
    """The queries of a form, after its action: a query more or less."""
    rows = form.all("query-row")
    if len(rows) > QUERIES_MAX:
        rule = f"must be at most {QUERIES_MAX} on this page"
        raise InputError("queries", len(rows), rule, "write the others into the study file")
    queries = []
    for row in rows:
        kind = form.text(f"query-{row}-kind")
        if kind not in OFFERED or rows.count(row) > 1:
            raise InputError("queries", "(broken)", "do not come from this page", "load the page again")
        queries.append(TypedQuery(kind, {key: form.text(f"query-{row}-{key}") for key in _fields(kind)}))
    action = form.text("action")
    if action == "add-query":
        kind = form.text("new-kind")
        if kind not in OFFERED:
            raise InputError("kind of a query", kind, f"must be one of {', '.join(OFFERED)}", "choose one")
        if len(rows) == QUERIES_MAX:
            rule = f"must be at most {QUERIES_MAX} on this page"
            raise InputError("queries", len(rows) + 1, rule, "write the others into the study file")
        queries.append(TypedQuery.example(kind, [query.texts["name"] for query in queries]))
    elif action.startswith("remove-query-"):
        place = parse_whole("query", action.removeprefix("remove-query-"))
        queries[place : place + 1] = []
    return tuple(queries)


def query_places(form: PageForm) -> list[Place]:
    """The fields of the queries, as errors name them."""
    places: list[Place] = [Place("queries", "new-kind"), Place("kind of a query", "new-kind")]
    for place, row in enumerate(form.all("query-row")):
        prefix, kind = f"query-{row}", form.text(f"query-{row}-kind")
        if kind not in OFFERED:
            continue
        name = form.text(f"{prefix}-name")
        places += [
            Place(f"name of query {place + 1}", f"{prefix}-name"),
            Place("name of a query", f"{prefix}-name", name),
        ]
        for key in _fields(kind)[1:]:
            text = form.text(f"{prefix}-{key}")
            labels = _LABELS.get(key, (key, kind_label(key)))
            places += [Place(f"{label} of {name}", f"{prefix}-{key}", text) for label in dict.fromkeys(labels)]
        end = next((key for key in ("high", "at_least") if key in _fields(kind)), "")
        places += [Place(f"bounds of {name}", f"{prefix}-{end}")] if end else []
    return places[:2] + places[:1:-1]  # of two queries with the same name, the later one is the one too many


def queries_html(queries: Sequence[TypedQuery], new_kind: str = "count") -> Html:
    """The fieldsets of all queries, and what adds another."""
    kinds = {kind: kind_label(kind) for kind in OFFERED}
    meanings = [joined([tag("dt", kind_label(kind)), tag("dd", kind_text(kind))]) for kind in OFFERED]
    empty = tag("p", "Nothing is asked yet: choose a kind of query and add it.", class_="empty")
    others = " and ".join(kind_label(kind) for kind in NOT_OFFERED)
    note = f"A study file can also have queries of the kind {others}, and custom ones." if NOT_OFFERED else ""
    return joined(
        [
            *(query.html(place) for place, query in enumerate(queries)),
            *([] if queries else [empty]),
            choice("Kind of query", "new-kind", kinds, chosen=new_kind, hint=note),
            tag("p", button("Add a query", "add-query", id="add-query")),
            tag("details", tag("summary", "What the kinds tell"), tag("dl", *meanings)),
        ]
    )
