"""Sessions that were begun and have not ended: what the ledgers in the folder say of them, and the way back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from tpmdp.errors import TpmdpError, shown
from tpmdp.ledger import Ledger, SessionKey
from tpmdp.page.folder import Folder
from tpmdp.page.forms import button
from tpmdp.page.join_files import StudyFile, open_study, state_of, study_names, usual_party
from tpmdp.report.html_sections import show_time
from tpmdp.report.markup import Html, joined, name, tag
from tpmdp.study.begun import begun_sessions
from tpmdp.study.party_check import Begun
from tpmdp.study.session import key_of

_SUFFIX: Final = ".ledger"
_SAID: Final = "page"  # in the private state of a session: what was said on the page when it was begun
_LABEL_SHOWN: Final = 100
_STANDINGS: Final = {  # by the last entry of a session
    "hold": "begun, not finished",
    "charge": "begun and charged, not finished",
    "reserve": "begun and charged, not finished",
    "settle": "finished",
    "cancel": "withdrawn",
}
_DIFFERS: Final = {"settle": "differs from the session you finished", "cancel": "differs from the session you left"}
_DIFFERS_ELSE: Final = "differs from the session you began"


@dataclass(frozen=True)
class Interrupted:
    """A session that a ledger in the folder has begun, and the invitation that leads back to it, if it is there."""

    begun: Begun
    party: str
    file: str


def begun_here(ledger: Path | None, key: SessionKey) -> Begun | None:
    """This session, if the ledger has begun it and it has not ended."""
    return next((begun for begun, _ in _begun(ledger, state_of(ledger)) if begun.key == key), None)


def said_before(ledger: Path | None, key: SessionKey) -> Mapping[str, Any]:
    """What was said on the page when the session was begun; empty if it was begun elsewhere."""
    for begun, text in _begun(ledger, state_of(ledger)):
        if begun.key == key and text:
            said = json.loads(text)
            return said if isinstance(said, dict) else {}
    return {}


def keep_said(ledger: Ledger, key: SessionKey, said: Mapping[str, object]) -> bool:
    """Keep what was said with the session, until it ends; False as long as there is no such session."""
    if ledger.status(key) not in ("held", "charged"):
        return False
    ledger.keep(key, _SAID, json.dumps(said).encode())
    return True


def interrupted_sessions(folder: Folder, running: Collection[tuple[bytes, str]] = ()) -> list[Interrupted]:
    """What was begun with the ledgers of the folder and does not run; `running` are sessions and parties."""
    sessions = []
    for ledger in folder.names(_SUFFIX):
        path, party = folder.path / ledger, ledger.removesuffix(_SUFFIX)
        for begun, _ in _begun(path, state_of(path)):
            if (begun.key.session, party) not in running:
                sessions.append(Interrupted(begun, party, _invitation(folder, begun, party)))
    return sessions


@lru_cache(maxsize=64)
def _begun(ledger: Path | None, state: Hashable) -> tuple[tuple[Begun, bytes], ...]:
    if ledger is None or state is None:
        return ()
    try:
        with Ledger.open(ledger) as opened:
            return tuple((each, opened.private_state(each.key).get(_SAID, b"")) for each in begun_sessions(opened))
    except TpmdpError:  # the check of the party's files says what is wrong
        return ()


def _invitation(folder: Folder, begun: Begun, party: str) -> str:
    """The file of this session; the one that is meant for the party first."""
    fitting = []
    for file in study_names(folder):
        try:
            study_file = open_study(folder.path / file)
            if study_file.study.label != begun.study or study_file.terms is None:
                continue
            if key_of(study_file.terms) == begun.key:
                fitting.append((study_file.invited != party, file))
        except TpmdpError:
            continue
    return min(fitting)[1] if fitting else ""


# What the view shows --------------------------------------------------------------------------------------------------


def interrupted_part(sessions: Collection[Interrupted]) -> Html:
    """The banner: what was begun and waits for its party, with the way back."""
    return joined(_banner(each) for each in sessions)


def _banner(each: Interrupted) -> Html:
    begun = each.begun
    what = "You agreed to " if begun.has_agreed else "You began "
    paid = " It was charged, so going on costs nothing more." if begun.is_charged else ""
    text = [what, tag("strong", name(begun.study)), f" as {each.party} on {show_time(begun.time)}"]
    rest = f", and it was interrupted.{paid} The others may be waiting."
    if each.file:
        place = f"{each.file}|{each.party}"
        buttons = [
            *([button("Go on", f"go-on={place}")] if begun.has_agreed else []),
            button("Look at it first", f"look-at={place}", class_="quiet"),
        ]
        return tag("div", tag("p", *text, rest), tag("p", *buttons, class_="buttons"), class_="warning")
    missing = " Its invitation is not in this folder: bring it below, to go on or to withdraw."
    return tag("div", tag("p", *text, rest, missing), class_="warning")


def label_id(file: str) -> str:
    """The id of a file's entry in the list of invitations: a poll renews its text."""
    return f"invitation-{hashlib.sha256(file.encode()).hexdigest()[:12]}"


def study_label(folder: Folder, file: str) -> str:
    """An entry of the list of invitations: study, session, party and how it stands; and the file."""
    try:
        study_file = open_study(folder.path / file)
        party = usual_party(folder, study_file)
        standing = _standing(folder, study_file, party)
    except TpmdpError:
        return file
    who = f", for {party}" if party else ""
    return f"{shown(study_file.study.label, _LABEL_SHOWN)}{who}{standing} ({file})"


def _standing(folder: Folder, file: StudyFile, party: str) -> str:
    if not party or file.lacking:
        return ": keys are missing" if file.lacking else ""
    kind, differs = _last(folder, file, party)
    if differs:
        return f": {_DIFFERS.get(kind, _DIFFERS_ELSE)}"
    return f": {_STANDINGS[kind]}" if kind in _STANDINGS else ""


def differs_from_done(folder: Folder, file: StudyFile, party: str) -> bool:
    """Whether the party was charged for this session with another study or plan: the file was changed since."""
    kind, differs = _last(folder, file, party)
    return differs and kind in ("charge", "reserve", "settle")


def _last(folder: Folder, file: StudyFile, party: str) -> tuple[str, bool]:
    """The kind of the last entry of a session, and whether every entry is of another study or plan than the file."""
    if not party or file.lacking:
        return "", False
    ledger = folder.path / f"{party}{_SUFFIX}"
    kinds = _kinds(ledger, state_of(ledger)).get(file.study.session_id.hex(), {})
    if not kinds or file.terms is None:
        return "", False
    own = key_of(file.terms).plan.hex()
    plan = next((each for each in (own, "") if each in kinds), "")  # before format 2 an entry had no plan
    return (kinds[plan], False) if plan in kinds else (list(kinds.values())[-1], True)


@lru_cache(maxsize=64)
def _kinds(ledger: Path, state: Hashable) -> Mapping[str, Mapping[str, str]]:
    """The kind of the last entry of each session, by its plans; the plan that was entered last stands last."""
    if state is None:
        return {}
    kinds: dict[str, dict[str, str]] = {}
    try:
        with Ledger.open(ledger) as opened:
            for entry in opened.entries():
                if entry.session:
                    kinds.setdefault(entry.session, {}).pop(entry.plan, None)
                    kinds[entry.session][entry.plan] = entry.kind
    except TpmdpError:
        return {}
    return kinds
