"""What a second invitation has changed, said when somebody brings it."""

from __future__ import annotations

from typing import Final

from tpmdp.errors import TpmdpError, shown
from tpmdp.ledger import rounded_up
from tpmdp.page.folder import Folder
from tpmdp.page.join_files import BroughtStudy, StudyFile, open_study, usual_party
from tpmdp.report.markup import Html, joined, name, tag
from tpmdp.study.differences import added_keys, differences
from tpmdp.study.expectation import expect

_SHOWN: Final = 12
_TEXT_SHOWN: Final = 200


def changes_part(folder: Folder, file: str, brought: BroughtStudy) -> Html:
    """What differs from the invitation of this file name that was there before; nothing if there was none."""
    if brought.before is None:
        return Html("")
    before, after = brought.before, open_study(folder.path / brought.name)
    changed = differences(before.study, after.study)
    added = [*(["keys"] if added_keys(before.study, after.study) else []), *_relay(before, after)]
    if brought.name == file:
        if not changed and not added:
            return tag("p", "This is the invitation that you had: nothing has changed.", class_="good")
        new = f"{' and '.join(added)} added" if added else ""
        texts = [*([new] if new else []), *changed, *_cost(folder, before, after, changed=changed)]
        same = ", all else the same" if not changed else ""
        mood = "warning" if changed else "good"
        return tag("p", f"Replaces the invitation you had: {_listed(texts)}{same}.", class_=mood)
    if not changed:
        return Html("")
    texts = [*changed, *_cost(folder, before, after, changed=changed)]
    stays = joined([" The file that you had, ", name(file), ", is still there."])
    text = f"This is not the invitation you had. What differs: {_listed(texts)}. Ask its sender why."
    return tag("p", tag("strong", text), stays, class_="warning")


def _relay(before: StudyFile, after: StudyFile) -> list[str]:
    return ["relay"] if after.relay and after.relay != before.relay else []


def _cost(folder: Folder, before: StudyFile, after: StudyFile, *, changed: list[str]) -> list[str]:
    """What the study costs the party that the invitation is for, before and now."""
    party = usual_party(folder, after)
    if not changed or not party:
        return []
    try:
        costs = [rounded_up(expect(each.study).charges[party]) for each in (before, after)]
    except (TpmdpError, KeyError):  # it took no part before, say
        return []
    return [f"your cost {costs[0]} -> {costs[1]}"] if costs[0] != costs[1] else []


def _listed(texts: list[str]) -> str:
    more = f" and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
    return ", ".join(shown(each, _TEXT_SHOWN) for each in texts[:_SHOWN]) + more
