"""What differs between two versions of a study, in words: for a party that is sent a second file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from tpmdp._util.numbers import number
from tpmdp.spec import Party
from tpmdp.study.model import Study

_SETTINGS: Final = (
    *("name", "session", "threshold", "tolerate", "unit", "guarantee"),
    *("weighting", "spread", "engine", "sum_through"),
)
_WHOLE: Final = ("deadline", "patience", "purpose", "contact", "typical")
_BUDGET: Final = ("epsilon", "delta", "records", "address", "weight", "threshold")


def added_keys(before: Study, after: Study) -> list[str]:
    """The parties whose public key is new in the second study."""
    old = {party.name: party.public_key for party in before.parties}
    return [each.name for each in after.parties if each.public_key is not None and old.get(each.name) is None]


def differences(before: Study, after: Study) -> list[str]:
    """What has changed, one text for each value; public keys that were added are none.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> document = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"], "parties": parties,
    ...             "queries": [query]}
    >>> again = {**document, "parties": [parties[0] | {"epsilon": 3}, parties[1]], "session": 2}
    >>> differences(Study.parse(document), Study.parse(again))
    ['session 1 -> 2', 'epsilon of bank 1 -> 3']
    """
    texts = _changed(before, after, _SETTINGS)
    texts += [key for key in _WHOLE if getattr(before, key) != getattr(after, key)]
    if set(before.receivers) != set(after.receivers):
        texts.append(f"receivers {', '.join(before.receivers)} -> {', '.join(after.receivers)}")
    return texts + _of_parties(before, after) + _of_queries(before, after)


def _changed(before: object, after: object, keys: tuple[str, ...], of: str = "") -> list[str]:
    pairs = [(key, getattr(before, key), getattr(after, key)) for key in keys]
    return [f"{key}{of} {_text(old, new)}" for key, old, new in pairs if old != new]


def _text(old: Any, new: Any) -> str:
    shown = [number(each) if isinstance(each, float) else str(each) or "(none)" for each in (old, new)]
    if shown[0] == shown[1]:  # they differ after four digits
        shown = [repr(old), repr(new)]
    return " -> ".join(each or "(none)" for each in shown)


def _of_parties(before: Study, after: Study) -> list[str]:
    old: Mapping[str, Party] = {party.name: party for party in before.parties}
    new = {party.name for party in after.parties}
    texts = [f"{name} takes part no more" for name in old if name not in new]
    for party in after.parties:
        if party.name not in old:
            texts.append(f"{party.name} takes part, too")
            continue
        texts += _changed(old[party.name], party, _BUDGET, of=f" of {party.name}")
        key = old[party.name].public_key
        texts += [f"another public key of {party.name}"] if key is not None and key != party.public_key else []
    same = [each.name for each in before.parties] == [each.name for each in after.parties]
    return texts if texts or same else ["the order of the parties"]


def _of_queries(before: Study, after: Study) -> list[str]:
    old = {query.name: query.settings() for query in before.queries}
    new = {query.name: query.settings() for query in after.queries}
    texts = [f"the query {name} is gone" for name in old if name not in new]
    texts += [f"the query {name} is new" for name in new if name not in old]
    texts += [f"another question in the query {name}" for name in new if name in old and new[name] != old[name]]
    return texts if texts or list(old) == list(new) else ["the order of the queries"]
