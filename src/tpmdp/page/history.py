"""What buttons have changed, so that it can be said and undone: for all changes of many fields at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tpmdp.page.forms import PageForm, button
from tpmdp.page.party_table import pasted
from tpmdp.page.plan_form import PlanForm
from tpmdp.report.markup import Html, tag
from tpmdp.report.numbers import number

_STEPS_MAX: Final = 30
_NOTHING: Final = Html("")


@dataclass(frozen=True)
class Change:
    """What a button did, in words, and the form before and after."""

    text: str
    place: str  # "parties" or "backwards": where it is said
    before: PlanForm
    after: PlanForm


@dataclass
class History:
    """The changes of a view, newest last. Fields that are typed are not changes: a browser undoes these itself."""

    _changes: list[Change] = field(default_factory=list)

    def note(self, form: PageForm, before: PlanForm, after: PlanForm) -> None:
        """Remember what the form's button has done, if it is one of those that change many fields."""
        action = form.text("action").partition("=")[0]
        text = _pasted_text(form) if action == "paste-parties" else _change_text(action, before, after)
        if text:
            place = "backwards" if action.startswith("use-") and action != "use-names" else "parties"
            self._changes = [*self._changes, Change(text, place, before=before, after=after)][-_STEPS_MAX:]

    def undo(self, now: PlanForm) -> PlanForm:
        """The form with the parties, threshold and losses before the newest change."""
        return now.with_settings(self._changes.pop().before) if self._changes else now

    def html(self, place: str, now: PlanForm) -> Html:
        """The newest change and its undo, where it is said."""
        if not self._changes or self._changes[-1].place != place:
            return _NOTHING
        newest = self._changes[-1]
        if now.parties != newest.after.parties or now.threshold != newest.after.threshold:
            return _NOTHING  # something was typed since, which an undo would lose
        return tag("p", f"{newest.text} ", button("Undo", "undo", class_="small"), class_="good")


def _pasted_text(form: PageForm) -> str:
    return pasted(form.text("pasted")).text


def _change_text(action: str, before: PlanForm, after: PlanForm) -> str:
    if action == "use-threshold":
        return f"The threshold was changed from {before.threshold} to {after.threshold}."
    if action.startswith("remove-party-"):
        gone = [row.label for row in before.parties.rows if row not in after.parties.rows]
        return f"{gone[0] if gone else 'A party'} was removed."
    if action == "use-receiver":
        only = [row.label for row in after.parties.rows if row.receives]
        return f"Only {only[0]} receives the answer now." if len(only) == 1 else ""
    if action == "use-names":
        return "Names were changed, so that a study accepts them."
    if action not in ("use-factor", "use-epsilon"):
        return ""
    pairs = [
        (new.label, old.epsilon, new.epsilon)
        for old, new in zip(before.parties.rows, after.parties.rows, strict=True)
        if old.epsilon != new.epsilon
    ]
    if action == "use-factor" and len(pairs) > 1:
        low, high = min(after.parties.epsilons()), max(after.parties.epsilons())
        return f"All epsilons were changed: they are now {number(low)} to {number(high)}."
    return " ".join(f"Epsilon of {label} was changed from {old} to {new}." for label, old, new in pairs[:5])
