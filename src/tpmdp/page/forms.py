"""Forms: what a browser sends, read once, and the controls that it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qs

from starlette.requests import Request

from tpmdp._util.fields import parse_float
from tpmdp.errors import InputError, TpmdpError
from tpmdp.report.markup import Html, joined, tag

FIELDS_MAX: Final = 20_000
_WHOLE_DIGITS: Final = 15
_THOUSANDS: Final = re.compile(r"[1-9][0-9]{0,2}(,[0-9]{3}){1,5}(\.[0-9]{1,20})?")
_DECIMAL_COMMA: Final = re.compile(r"[0-9]{1,20},[0-9]{1,20}")
_GROUPS: Final = re.compile(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:[ \u00a0\u2009\u202f][0-9]{3})+)")
_POINTS: Final = re.compile(r"[1-9][0-9]{0,2}(?:\.[0-9]{3})+")


NOTHING: Final = Html("")
NO_IDS: Final[Mapping[str, str]] = {}


@dataclass(frozen=True)
class PageForm:
    """The fields of a form. All of them come from outside: text, until a method here has checked it."""

    values: Mapping[str, Sequence[str]]

    @classmethod
    async def of(cls, request: Request) -> PageForm:
        """The form that a request carries; the gate has limited its size."""
        text = (await request.body()).decode("utf-8", "replace")
        try:
            return cls(parse_qs(text, keep_blank_values=True, max_num_fields=FIELDS_MAX))
        except ValueError:
            rule = f"must have at most {FIELDS_MAX} fields"
            raise InputError("form", f"{len(text)} bytes", rule, "remove some") from None

    def text(self, name: str, default: str = "") -> str:
        """A field's text, without blanks around it.

        >>> PageForm({"name": [" flu "]}).text("name")
        'flu'
        """
        return (self.values.get(name) or [default])[0].strip()

    def all(self, name: str) -> list[str]:
        """The texts of a field that is there several times."""
        return [value.strip() for value in self.values.get(name, [])]

    def without_action(self) -> PageForm:
        """The fields as they are typed, before the button did anything."""
        return PageForm({name: values for name, values in self.values.items() if name != "action"})

    def has(self, name: str) -> bool:
        """Whether a box is ticked."""
        return name in self.values

    def number(self, name: str, field: str, default: float | None = None) -> float:
        """A number; `field` is what people call it.

        >>> PageForm({"epsilon": ["x"]}).number("epsilon", "epsilon of north")
        Traceback (most recent call last):
            ...
        tpmdp.errors.InputError: epsilon of north = x is not a number: write digits, such as 0.5
        """
        text = self.text(name)
        return default if not text and default is not None else parse_number(field, text)

    def whole(self, name: str, field: str, default: int | None = None) -> int:
        """A whole number that is 0 or more."""
        text = self.text(name)
        return default if not text and default is not None else parse_whole(field, text)


def parse_number(field: str, text: str) -> float:
    """A number that somebody typed; a comma is refused, as it means different things in different countries.

    >>> parse_number("largest change by one record", "1,500")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: largest change by one record = 1,500 has a comma: write 1500, or 1.500, with a point
    >>> parse_number("epsilon", "0,3")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: epsilon = 0,3 has a comma: write 0.3, with a point
    """
    try:
        if "_" in text:
            raise ValueError
        return parse_float(text)
    except ValueError:
        _refuse_commas(field, text)
        raise InputError(field, text, "is not a number", "write digits, such as 0.5") from None


def _refuse_commas(field: str, text: str) -> None:
    point = f"{text.replace(',', '.')}, with a point"
    if _THOUSANDS.fullmatch(text):
        whole = text.replace(",", "")
        remedy = f"write {whole}, or {point}" if text.count(",") == 1 and "." not in text else f"write {whole}"
        raise InputError(field, text, "has a comma", remedy) from None
    if _DECIMAL_COMMA.fullmatch(text):
        raise InputError(field, text, "has a comma", f"write {point}") from None


def parse_whole(field: str, text: str) -> int:
    """A whole number that somebody typed.

    >>> parse_whole("records", "12")
    12
    """
    if not (text.isascii() and text.isdigit() and len(text) <= _WHOLE_DIGITS):
        if _THOUSANDS.fullmatch(text):
            raise InputError(field, text, "has a comma", f"write {text.replace(',', '')}")
        if text.isascii() and text.isdigit():
            raise InputError(field, text, "is too large", f"write at most {_WHOLE_DIGITS} digits")
        raise InputError(field, text, "must be a whole number", "write digits, such as 2")
    return int(text)


def parse_count(field: str, text: str) -> int:
    """A number of records that somebody typed, perhaps with blanks or commas between thousands.

    >>> parse_count("records", "3,000"), parse_count("records", "1 203 000")
    (3000, 1203000)
    >>> parse_count("records", "3.000")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: records = 3.000 may mean 3 or 3000: write 3000
    """
    if _POINTS.fullmatch(text):
        whole, few = text.replace(".", ""), text.split(".", 1)[0]
        raise InputError(field, text, f"may mean {few} or {whole}", f"write {whole}")
    return parse_whole(field, re.sub(r"[^0-9]", "", text) if _GROUPS.fullmatch(text) else text)


class WrongFieldsError(TpmdpError):
    """Several fields are wrong: an error for each of them."""

    def __init__(self, errors: Sequence[InputError]) -> None:
        self.errors = tuple(errors)
        super().__init__("; ".join(map(str, errors)))


def gather(*reads: Callable[[], object]) -> None:
    """Read all of these, and refuse all that is wrong at once.

    >>> gather(lambda: parse_whole("a", "x"), lambda: parse_whole("b", "1"), lambda: parse_whole("c", "y"))
    Traceback (most recent call last):
        ...
    tpmdp.page.forms.WrongFieldsError: a = x must be a whole number: write digits, such as 2;
    c = y must be a whole number: write digits, such as 2
    """
    wrong: list[InputError] = []
    for read in reads:
        try:
            read()
        except WrongFieldsError as errors:
            wrong += errors.errors
        except InputError as error:
            wrong.append(error)
    if len(wrong) > 1:
        raise WrongFieldsError(wrong)
    if wrong:
        raise wrong[0]


# Controls -------------------------------------------------------------------------------------------------------------


def control(label: str, inner: Html, hint: str = "", *, id: str) -> Html:  # noqa: A002
    """A labelled control. `inner` has this id, and `aria-describedby` for the hint."""
    parts = [tag("label", label, for_=id), inner]
    if hint:
        parts.append(tag("p", hint, class_="hint", id=f"{id}-hint"))
    return tag("div", *parts, class_="control")


def text_field(
    label: str, name: str, value: object = "", *, hint: str = "", kind: str = "text", **more: object
) -> Html:
    """A field for a line of text. `kind` may be "decimal" or "numeric", for the keyboard of a phone."""
    attributes: dict[str, object] = {"id": name, "name": name, "value": value, "type": "text", "autocomplete": "off"}
    if kind != "text":
        attributes |= {"inputmode": kind}
    if hint:
        attributes["aria_describedby"] = f"{name}-hint"
    return control(label, void("input", **attributes, **more), hint, id=name)


def slider(label: str, name: str, value: int, *, most: int, hint: str = "", note: Html = NOTHING) -> Html:
    """A slider for a whole number from 0, whose value stands beside it; `note` is what follows from the others."""
    attributes: dict[str, object] = {"id": name, "name": name, "type": "range", "min": 0, "max": most, "value": value}
    if hint:
        attributes["aria_describedby"] = f"{name}-hint"
    if not most:
        attributes["disabled"] = "disabled"
    shown = tag("output", value, for_=name, id=f"{name}-value")
    after = tag("div", note, class_="hint", id=f"{name}-note", data_fresh="", aria_live="polite")
    return joined([control(label, joined([void("input", **attributes), shown]), hint, id=name), after])


def choice(
    label: str,
    name: str,
    options: Mapping[str, str],
    chosen: str,
    *,
    hint: str = "",
    ids: Mapping[str, str] = NO_IDS,
    is_wide: bool = False,
) -> Html:
    """A list to choose one from: values and their texts. `ids` are those of entries whose text changes by itself."""
    items = []
    for value, text in options.items():
        marks = {"id": ids[value]} if value in ids else {}
        marks |= {"selected": "selected"} if value == chosen else {}
        items.append(tag("option", text, value=value, **marks))
    more: dict[str, object] = {"aria_describedby": f"{name}-hint"} if hint else {}
    more |= {"class_": "wide-choice"} if is_wide else {}
    return control(label, tag("select", *items, id=name, name=name, **more), hint, id=name)


def tick(label: object, name: str, *, value: str = "yes", checked: bool = False, id: str = "") -> Html:  # noqa: A002
    """A box to tick, with its label."""
    own = id or name
    more: dict[str, object] = {"checked": "checked"} if checked else {}
    box = void("input", type="checkbox", id=own, name=name, value=value, **more)
    return tag("div", box, tag("label", label, for_=own), class_="tick")


def button(text: str, action: str = "", **more: object) -> Html:
    """A button that sends its form with this action; without one it submits the form natively, as for downloads."""
    return tag("button", text, **({"type": "button", "data_action": action} if action else {"type": "submit"}), **more)


def problem(error: object, at: str = "") -> Html:
    """An error for people; announced by a screen reader. `at` is the field that it is about: the script marks it."""
    if not str(error):
        return NOTHING
    more = {"data_field": at} if at else {}
    more |= {"data_fix": error.field} if at and isinstance(error, InputError) else {}
    return tag("p", problem_text(error), class_="problem", role="alert", **more)


def problem_text(error: object) -> str:
    """An error as a sentence: what is missing or blank has no value to show.

    >>> problem_text(InputError("key of north", "(none)", "is missing", "make one here"))
    'Key of north is missing: make one here.'
    >>> problem_text(InputError("low of stay", "", "is missing", "fill it in"))
    'Low of stay is missing: fill it in.'
    """
    if not isinstance(error, InputError):
        return str(error)
    value = str(error.value)
    if value.strip() and not value.startswith("("):
        return str(error)
    return f"{error.field[:1].upper()}{error.field[1:]} {error.rule}: {error.remedy}."


# Where an error belongs -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """A control: what errors call it, its id, and what is typed there."""

    label: str
    id: str
    text: str = ""

    def holds(self, value: object) -> bool:
        """Whether the value of an error is what is typed here."""
        if isinstance(value, str):
            return self.text == value.strip()
        try:
            return not isinstance(value, bool) and parse_float(self.text) == value
        except ValueError:
            return False


def place_of(error: object, places: Sequence[Place]) -> str:
    """The id of the control that an error is about; empty if it is about none.

    >>> twice = [Place("epsilon of north", "epsilon-0", "1"), Place("epsilon of north", "epsilon-1", "-1")]
    >>> place_of(InputError("epsilon of north", -1.0, "must be more than 0", "write such as 0.5"), twice)
    'epsilon-1'
    """
    if not isinstance(error, InputError):
        return ""
    named = [each for each in places if error.field == each.label or error.field.startswith(f"{each.label},")]
    return next((each.id for each in named if each.holds(error.value)), named[0].id if named else "")


def placed_problem(error: object, places: Sequence[Place]) -> Html:
    """An error for people, or several, each with the control that it is about."""
    errors: Sequence[object] = error.errors if isinstance(error, WrongFieldsError) else [error]
    return joined(problem(each, place_of(each, places)) for each in errors)


OUTDATED: Final = tag("p", class_="outdated", data_outdated="")
"""Where the script says that results are out of date, and why. It takes no room."""


def void(name: str, /, **attributes: object) -> Html:
    """An element without contents, such as input."""
    return Html(tag(name, **attributes).removesuffix(f"</{name}>"))


def parts(contents: Mapping[str, object]) -> Html:
    """What a live form answers with: the new contents of elements, by their id."""
    return joined(tag("template", inner, data_part=part) for part, inner in contents.items())
