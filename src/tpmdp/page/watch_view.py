"""Watch: how far a session is, for its parties; and how a relay is doing, for its operator."""

from __future__ import annotations

import re
import secrets
import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.exceptions import HTTPException
from starlette.routing import Route

from tpmdp.engines.relay.look import RelayNumbers, StoredLook, check_own_url, look_at_relay, stored_sessions
from tpmdp.engines.relay.mailbox import check_url
from tpmdp.errors import InputError, TpmdpError
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, button, choice, text_field, tick
from tpmdp.page.join_controls import PLAIN_HTTP
from tpmdp.page.join_files import open_study
from tpmdp.page.routes import Parts, poll, view
from tpmdp.protocol.terms import Terms
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import plural, three_digits
from tpmdp.report.status import STATUS_COLUMNS, STATUS_NOTE, deadline_text, status_cells
from tpmdp.study.identity import read_key
from tpmdp.study.model import Study
from tpmdp.study.status import StudyStatus, asking_party, stored_status, study_status

_WATCHES_MAX: Final = 20
_EVERY_MS: Final = 2_000
_SPAN_S: Final = 60.0  # over which a rate is measured
_SESSIONS_SHOWN: Final = 100
_STUDIES_MAX: Final = 100
_UNKNOWN: Final = "How it stands is not known."  # when the page has lost its program
_FINISHED: Final = " It is finished, so it is not looked at again."
_ID: Final = re.compile("[0-9a-f]{32}")
_ID_SHOWN: Final = 12
_ROWS: Final = {  # name in the relay's metrics -> what it is called here, and whether it only grows
    "sessions_opened_total": ("sessions opened", True),
    "sessions_completed_total": ("sessions completed", True),
    "messages_total": ("messages", True),
    "message_bytes_total": ("bytes of messages", True),
    "logins": ("logins", True),
    "refused": ("other requests refused", True),
    "connections": ("connections now", False),
    "waiting": ("parties waiting now", False),
    "stored_bytes": ("bytes stored now", False),
}


# What is watched ------------------------------------------------------------------------------------------------------


class Watched(Protocol):
    """Something that is looked at again and again."""

    def look(self) -> Mapping[str, Html]:
        """The parts of its panel as they are now, by the last word of their id. It never raises a TpmdpError."""


@dataclass(frozen=True, repr=False)
class StudyWatch:
    """A session at a relay, seen as one of its parties. The key stays in memory, on the server's side."""

    study: Study
    terms: Terms
    identity: Ed25519PrivateKey
    relay: str
    authority: Path | None

    def check(self) -> None:
        """Refuse what no look could mend: a study without a relay, or a key of nobody in it."""
        asking_party(self.study, self.identity, self.relay, terms=self.terms)

    def ask(self) -> StudyStatus:
        """What the relay says now."""
        return study_status(
            self.study, self.identity, self.relay, certificate_authority=self.authority, terms=self.terms
        )

    def look(self) -> Mapping[str, Html]:
        """The panel as it is now; a relay that is away leaves the table as it was."""
        try:
            status = self.ask()
        except TpmdpError as error:
            return {"state": _trouble(error), "deadline": tag("span", deadline_text(self.study)), "time": _time()}
        more = {"again": Html(_FINISHED)} if status.is_finished else {}
        return {
            **more,
            "state": tag(
                "p",
                tag("strong", _sentence(status.summary())),
                class_="good" if status.is_finished else "waiting",
                data_clock=_UNKNOWN,
            ),
            "table": _status_table(status),
            "deadline": tag("span", deadline_text(self.study)),
            "time": _time(),
        }


@dataclass(repr=False)
class RelayWatch:
    """A relay on this machine, and its store if that is in the page's folder."""

    relay: str
    store: Path | None
    folder: Folder
    _looks: deque[RelayNumbers] = field(default_factory=deque)
    _studies: dict[tuple[str, int, int], Study | None] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look(self) -> Mapping[str, Html]:
        """The panel as it is now; the store is read also if the relay does not answer."""
        with self._lock:
            fresh = {"time": _time(), "sessions": self._sessions()}
            try:
                numbers = look_at_relay(self.relay)
            except TpmdpError as error:
                return {**fresh, "state": _trouble(error)}
            while self._looks and numbers.seconds - self._looks[0].seconds > _SPAN_S:
                self._looks.popleft()
            before = self._looks[0] if self._looks else None
            self._looks.append(numbers)
            version = f" (tpmdp {numbers.version})" if numbers.version else ""
            state = tag("p", tag("strong", "The relay is well"), f"{version}.", class_="good", data_clock=_UNKNOWN)
            return {**fresh, "state": state, "table": _numbers_table(numbers, before)}

    def _sessions(self) -> Html:
        if self.store is None:
            text = "No store was chosen, so sessions cannot be listed. Put the relay's store into the page's folder."
            return tag("p", text, class_="empty")
        try:
            looks, count = stored_sessions(self.store, _SESSIONS_SHOWN)
        except TpmdpError as error:
            return tag("p", str(error), class_="problem")
        if not looks:
            return tag("p", "The relay keeps no session.", class_="empty")
        studies = self._known()
        rows = [_session_row(each, studies.get(each.name)) for each in looks]
        headings = ["session", "joined", "waiting for", "state", "last active"]
        more = count - len(rows)
        cut = [tag("p", f"{more:,} older ones are not shown.", class_="note")] if more > 0 else []
        note = (
            "Names are known from study files in the page's folder; other sessions show how their id begins. The store "
            "knows the last use to the hour."
        )
        return joined([table(headings, rows, has_cards=True), *cut, tag("p", note, class_="note")])

    def _known(self) -> dict[bytes, Study]:
        """The studies in the folder, by the id of their session; each file is read once."""
        fresh: dict[tuple[str, int, int], Study | None] = {}
        known: dict[bytes, Study] = {}
        for each in self.folder.names(".toml")[:_STUDIES_MAX]:
            try:
                path = self.folder.file("study", each)
                status = path.stat()
                place = (each, status.st_mtime_ns, status.st_size)
                fresh[place] = self._studies[place] if place in self._studies else _read_study(path)
            except (OSError, TpmdpError):
                continue
            study = fresh[place]
            if study is not None:
                known[study.session_id] = study
        self._studies = fresh
        return known


def _read_study(path: Path) -> Study | None:
    """A study whose session is known; None for any other file."""
    try:
        study = Study.read(path)
        return study if study.session_id else None
    except TpmdpError:
        return None


@dataclass
class Watches:
    """What is watched, by a random id; the oldest give way."""

    _watches: dict[str, Watched] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, watch: Watched) -> str:
        """Watch something; returns its id."""
        own = secrets.token_hex(16)
        with self._lock:
            self._watches[own] = watch
            while len(self._watches) > _WATCHES_MAX:
                del self._watches[next(iter(self._watches))]
        return own

    def get(self, own: str) -> Watched | None:
        """What is watched under this id."""
        with self._lock:
            return self._watches.get(own)

    def end(self, own: str) -> None:
        """Forget it, with its key."""
        with self._lock:
            self._watches.pop(own, None)


# The page -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WatchView:
    """The view over a folder."""

    folder: Folder
    watches: Watches = field(default_factory=Watches)

    def show(self) -> Html:
        """The view before anything is watched."""
        lead = (
            "Who has joined, whose messages are missing, and how the relay is doing. Looking changes nothing and costs "
            "nothing."
        )
        return joined(
            [
                tag("h1", "Watch"),
                tag("p", lead, class_="lead"),
                tag("div", id="problem"),
                self._form("study", "A session, as one of its parties", self._study_fields()),
                self._form("relay", "A relay, as its operator", self._relay_fields()),
            ]
        )

    def _form(self, kind: str, title: str, contents: Html) -> Html:
        return tag(
            "form",
            tag("h2", title),
            contents,
            tag("p", "Looking ...", class_="when-busy", role="status"),
            tag("div", _nothing(), id=f"{kind}-watch"),
            id=kind,
            method="post",
            action="/watch",
            data_live="/watch",
            data_when="asked",
            data_enter=kind,
            autocomplete="off",
        )

    def _study_fields(self) -> Html:
        studies, keys = self.folder.names(".toml"), self.folder.names(".key")
        where = joined(["the page's folder, ", tag("code", name(str(self.folder.path)))])
        if not studies or not keys:
            lacking = "study file (.toml)" if not studies else "key file (.key)"
            return tag(
                "p", f"There is no {lacking} in ", where, ". Put yours there to watch its session.", class_="empty"
            )
        authorities = self.folder.names(".pem", ".crt")
        more = []
        if authorities:
            options = {"": "a public one", **{each: each for each in authorities}}
            hint = "Only for a relay whose certificate is not a public one."
            more.append(choice("Certificate of the relay", "authority", options, chosen="", hint=hint))
        return joined(
            [
                choice("Study", "study-file", {each: each for each in studies}, chosen=studies[0]),
                choice(
                    "Your key",
                    "key-file",
                    {each: each for each in keys},
                    chosen=keys[0],
                    hint="The relay tells parties of the study only. The key is used on this machine, and stays here.",
                ),
                text_field(
                    "Address of the relay",
                    "relay",
                    hint="Such as https://relay.example.org. Empty: the one that the invitation names.",
                    inputmode="url",
                ),
                *more,
                tick(PLAIN_HTTP, "plain-http"),
                tag("p", button("Watch the session", "study"), class_="buttons"),
            ]
        )

    def _relay_fields(self) -> Html:
        stores = self.folder.names(".sqlite")
        options = {**{each: each for each in stores}, "": "none" if stores else "none in the page's folder"}
        return joined(
            [
                text_field(
                    "Address of the relay on this machine",
                    "own-relay",
                    "http://127.0.0.1:8400",
                    hint="A relay gives its numbers to its own machine only.",
                    inputmode="url",
                ),
                choice(
                    "Store of the relay",
                    "store",
                    options,
                    chosen=stores[0] if stores else "",
                    hint="The file of tpmdp relay, for the list of sessions; it is read, never changed.",
                ),
                tag("p", button("Watch the relay", "relay"), class_="buttons"),
            ]
        )

    def answer(self, form: PageForm) -> Parts:
        """Begin to watch, or end it."""
        action, _, own = form.text("action").partition("=")
        if action == "study":
            study_watch = self._study_watch(form)
            study_watch.check()
            return {"study-watch": self._panel("study", study_watch, study_watch.study.label)}
        if action == "relay":
            relay_watch = self._relay_watch(form)
            return {"relay-watch": self._panel("relay", relay_watch, relay_watch.relay)}
        if action in ("stop-study", "stop-relay"):
            self.watches.end(own)
            return {f"{action.removeprefix('stop-')}-watch": _nothing()}
        return {}

    def _study_watch(self, form: PageForm) -> StudyWatch:
        file = open_study(self.folder.file("study", form.text("study-file")))
        study = file.study
        identity = read_key(self.folder.file("key", form.text("key-file")))
        if not (relay := form.text("relay") or file.relay):
            raise InputError("address of the relay", "(none)", "is not in this study file", "write it, or ask for it")
        relay = _address(relay, form.has("plain-http"))
        authority = form.text("authority")
        return StudyWatch(
            study,
            study.terms(),
            identity,
            relay=relay,
            authority=self.folder.file("certificate", authority) if authority else None,
        )

    def _relay_watch(self, form: PageForm) -> RelayWatch:
        store = form.text("store")
        relay = check_own_url(form.text("own-relay"))
        return RelayWatch(relay, self.folder.file("store", store) if store else None, self.folder)

    def _panel(self, kind: str, watch: Watched, title: str) -> Html:
        own = self.watches.add(watch)
        now = watch.look()
        contents: list[object] = [
            tag("h3", name(title)),
            tag("div", now.get("state", ""), id=f"{own}-state", aria_live="polite"),
        ]
        if "deadline" in now:
            contents.append(tag("p", "Deadline: ", tag("span", now["deadline"], id=f"{own}-deadline"), "."))
        contents.append(tag("div", now.get("table", ""), id=f"{own}-table"))
        if kind == "study":
            contents.append(tag("p", STATUS_NOTE, class_="note"))
        else:
            contents += [tag("h4", "Sessions"), tag("div", now.get("sessions", ""), id=f"{own}-sessions")]
        poller = tag("span", " It looks again every 2 seconds.", id=f"{own}-poller", **_polled(own))
        again = now.get("again", poller)
        contents += [
            tag("p", tag("span", now["time"], id=f"{own}-time"), tag("span", again, id=f"{own}-again"), class_="note"),
            tag("p", button("Stop watching", f"stop-{kind}={own}", class_="quiet")),
        ]
        return tag("div", *contents, id=f"watch-{own}", class_="panel")

    def looked(self, place: Mapping[str, str]) -> Parts:
        """The parts of a panel as they are now."""
        own = place["own"]
        if not _ID.fullmatch(own):
            raise HTTPException(404)
        watch = self.watches.get(own)
        if watch is None:
            text = "This is not watched any more: press the button above again."
            return {f"{own}-state": tag("p", text, class_="warning")}
        return {f"{own}-{part}": contents for part, contents in watch.look().items()}


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    own = WatchView(folder)
    return [poll("/watch/look/{own}", own.looked), *view("/watch", own.show, own.answer)]


# Parts of panels ------------------------------------------------------------------------------------------------------


def _polled(own: str) -> dict[str, object]:
    """What makes the page look again; without this element it does not."""
    return {"data_poll": f"/watch/look/{own}", "data_every": _EVERY_MS}


def _address(text: str, plain_http: bool) -> str:
    try:
        return check_url(text, plain_http)
    except InputError as error:
        remedy = "use https, or tick the box below the address" if "must be https" in error.rule else error.remedy
        raise InputError(error.field, error.value, error.rule, remedy) from None


def _nothing() -> Html:
    return tag("p", "Nothing is watched here.", class_="empty")


def _time() -> Html:
    return Html(f"Last look: {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC.")


def _trouble(error: TpmdpError) -> Html:
    return tag("p", str(error).replace(" (--ca)", ""), class_="warning")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + "."


def _status_table(status: StudyStatus) -> Html:
    rows = [
        [name(party.party), *(_mark(cell) for cell in status_cells(party, party.party == status.lead))]
        for party in status.parties
    ]
    contents: list[object] = [table(["party", *STATUS_COLUMNS], rows, has_cards=True)]
    if status.attempt > 1:
        contents.append(tag("p", f"Attempt {status.attempt}.", class_="note"))
    others = [party.party for party in status.parties if party.other_plan]
    if others:
        text = ". Compare the ten words with them; nothing is charged meanwhile."
        contents.append(tag("p", "Another study or plan: ", names(others), text, class_="warning"))
    contents.append(tag("p", "lead: ", name(status.lead), " adds up what the others submit.", class_="note"))
    return joined(contents)


def _mark(cell: str) -> str:
    return "not yet" if cell == "-" else cell.strip("()")


def _numbers_table(numbers: RelayNumbers, before: RelayNumbers | None) -> Html:
    rows = []
    for key, (title, grows) in _ROWS.items():
        rate = numbers.per_minute(key, before) if grows else None
        speed = "" if not grows else "at the next look" if rate is None else three_digits(rate)
        rows.append([title, f"{numbers.get(key):,.0f}", speed])
    notes = []
    for key, title in (
        ("messages_total", "Messages by kind"),
        ("refusals_total", "Requests answered with an error status (401: asked to log in)"),
    ):
        each = numbers.labelled.get(key)
        if each:
            listed = ", ".join(f"{label} {value:,.0f}" for label, value in each.items())
            notes.append(tag("p", f"{title}: {listed}.", class_="note"))
    headings = ["number", "in all", "per minute"]
    notes.append(tag("p", "Counted since the relay was started. Each look of a party is a login.", class_="note"))
    return joined([table(headings, rows, numbers={1, 2}), *notes])


def _session_row(look: StoredLook, study: Study | None) -> list[object]:
    active = f"{datetime.fromtimestamp(look.touched, UTC):%Y-%m-%d %H:%M} UTC"
    if study is not None and len(study.parties) == look.parties:
        status = stored_status(study, look.status)
        joined_names = names([party.party for party in status.parties if party.agreed])
        missing = [party.party for party in status.parties if not party.agreed]
        if missing:
            return [name(study.label), joined_names, names(missing), "joining", active]
        return [name(study.label), joined_names, "nobody to join", status.summary(), active]
    state = look.status
    agreed = len(state.agreed)
    stages = {
        "finished: answers were sent": state.answered,
        f"{len(state.submitted)} submitted": state.submitted,
        f"{len(state.keys)} sent a key": state.keys,
    }
    text = next((stage for stage, reached in stages.items() if reached), "joining")
    many = look.parties - agreed
    waiting = plural(many, "party", "parties") if many else "nobody to join"
    return [tag("code", look.name.hex()[:_ID_SHOWN]), f"{agreed} of {look.parties}", waiting, text, active]
