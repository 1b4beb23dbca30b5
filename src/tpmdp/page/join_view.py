"""Take part: an invitation, the party's own key, data and ledger, its agreement, and a session that runs here."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.responses import Response
from starlette.routing import Route

from tpmdp.errors import InputError, TpmdpError
from tpmdp.ledger import rounded_up
from tpmdp.page import join_parts as show_parts
from tpmdp.page.answers import file_answer
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, button, choice, control, text_field, tick, void
from tpmdp.page.forms import problem as error_line
from tpmdp.page.join_files import (
    DATA_MAX,
    STUDY_MAX,
    Checks,
    StudyFile,
    data_names,
    open_study,
    store_data,
    store_study,
    study_names,
    usual_data,
    usual_party,
)
from tpmdp.page.routes import Parts, poll, upload, view
from tpmdp.page.runs import RunKey, SessionRun, SessionRuns
from tpmdp.report.html_report import page as report_page
from tpmdp.report.markup import Html, joined, tag
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.model import Study
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.party_folder import PartyFiles, check_relay
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease

_POLL_MS: Final = 1000
_NAMES_MAX: Final = 8
_STANDING: Final = {
    "unknown": "Nothing was charged.",
    "cancelled": "Nothing was charged.",
    "held": "Nothing was charged: room for this session is set aside in your ledger. Trying again goes on with it.",
    "charged": "This session was charged, once. Trying again goes on with it at no new cost.",
    "settled": "The session is finished in your ledger. Trying again costs nothing.",
}


@dataclass(frozen=True)
class JoinChoice:
    """What somebody has chosen in the form: names of files in the folder, and the settings of a session."""

    folder: Folder
    file: str = ""
    party: str = ""
    data: str = ""
    relay: str = ""
    plain_http: bool = False
    authority: str = ""
    agreed: str = ""

    @classmethod
    def of(cls, form: PageForm, folder: Folder) -> JoinChoice:
        """The choice in a form; a party and data of another study than before are chosen anew."""
        chosen = cls(folder, form.text("study"))
        party, is_before = form.text("party"), form.text("party-of") == chosen.file
        if chosen.opened is None or party not in [each.name for each in chosen.opened.study.parties]:
            party = ""
        if chosen.opened is not None and (not party or not is_before):
            party = usual_party(folder, chosen.opened, party)
        is_same = form.text("data-of") == f"{chosen.file} {party}"
        return replace(
            chosen,
            party=party,
            data=form.text("data") if is_same else usual_data(folder, party),
            relay=form.text("relay") if is_same and "relay" in form.values else chosen.invited,
            plain_http=form.has("plain-http"),
            authority=form.text("authority"),
            agreed=form.text("agreed"),
        )

    @classmethod
    def usual(cls, folder: Folder) -> JoinChoice:
        """The choice where there is only one."""
        names = study_names(folder)
        chosen = cls(folder, names[0] if len(names) == 1 else "")
        try:
            party = "" if chosen.opened is None else usual_party(folder, chosen.opened)
        except TpmdpError:
            return cls(folder)
        return replace(chosen, party=party, data=usual_data(folder, party), relay=chosen.invited)

    @cached_property
    def opened(self) -> StudyFile | None:
        """The study that is chosen."""
        return open_study(self.folder.file("study", self.file)) if self.file else None

    @property
    def invited(self) -> str:
        """The relay that the invitation names."""
        return "" if self.opened is None else self.opened.relay

    @property
    def study(self) -> Study:
        """The study; it must be chosen."""
        if self.opened is None:
            raise InputError("study", "(none)", "is not chosen", "choose an invitation or a study")
        return self.opened.study

    @property
    def key_file(self) -> Path:
        """Where the party's key is, or will be."""
        self.study.index(self.party)
        return self.folder.file("key", f"{self.party}.key")

    @property
    def files(self) -> PartyFiles:
        """The party's files; as long as it has no key, none is named."""
        key, has_key = self.key_file, self.key_file.exists()
        ledger = self.folder.file("ledger", f"{self.party}.ledger")
        peers = self.folder.path / "peers.toml"
        data = self.folder.file("data", self.data) if self.data else None
        return PartyFiles(
            self.study,
            self.party,
            key if has_key else None,
            data=data if self.study.party(self.party).records else None,
            ledger=ledger,
            peers=peers if not has_key and peers.exists() else None,
        )

    @property
    def run_key(self) -> RunKey | None:
        """What may run once at a time; None as long as keys are missing."""
        if self.opened is None or not self.party or self.opened.terms is None:
            return None
        return RunKey(str(self.folder.path), self.opened.terms.session, self.party)

    def agreement(self, check: PartyCheck) -> str:
        """What a ticked box stands for: this plan, at this charge. Another study or charge needs another tick."""
        if self.opened is None or self.opened.terms is None or check.cost is None:
            return ""
        return f"{self.opened.terms.plan_hash.hex()} {rounded_up(check.cost)}"

    def command(self) -> str:
        """The command that goes on with the session."""
        words = ["tpmdp", "join", self.file, "--as", self.party, "--key", f"{self.party}.key"]
        if self.data and self.study.party(self.party).records:
            words += ["--data", self.data]
        if self.study.computation.uses_relay:
            words += ["--relay", self.relay or "https://RELAY"]
            words += ["--plain-http"] if self.plain_http else []
            words += ["--ca", self.authority] if self.authority else []
        return f"cd {shlex.quote(str(self.folder.path))} && {shlex.join(words)}"


class JoinView:
    """The view, with the sessions that it runs."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.runs, self.checks = folder, SessionRuns(), Checks()
        self._ended: dict[int, Html] = {}

    # The page ---------------------------------------------------------------------------------------------------------

    def show(self) -> Html:
        """The view: the newest session that runs here, or the only study of the folder."""
        running = self.runs.all()
        problem = Html("")
        try:
            contents = self.fragments(replace(running[-1].about) if running else JoinChoice.usual(self.folder))
        except TpmdpError as error:
            problem, contents = error_line(error), self.fragments(JoinChoice(self.folder))
        begin = tag(
            "section",
            tag("h2", "The invitation"),
            _part("study-choice", contents),
            _file_field("Or another file", "study-file", "/join/upload-study", most=STUDY_MAX, accept=".toml"),
            _part("party-choice", contents),
        )
        form = tag(
            "form",
            begin,
            *(_part(part, contents) for part in ("run", "offer", "key", "data-choice", "check", "relay-fields")),
            _part("agree", contents),
            id="join",
            method="post",
            action="/join/report.html",
            data_live="/join",
            autocomplete="off",
        )
        poller = tag("div", id="poller", class_="hidden", data_poll="/join/runs", data_every=_POLL_MS)
        lead = "See what you are asked, what it costs you and who could learn from it. Then decide, and take part."
        return joined(
            [tag("h1", "Take part"), tag("p", lead, class_="lead"), tag("div", problem, id="problem"), form, poller]
        )

    def answer(self, form: PageForm) -> Parts:
        """New contents after a change, or after a button."""
        action = form.text("action")
        chosen = JoinChoice.of(form, self.folder)
        is_deciding = form.text("data-of") == f"{chosen.file} {chosen.party}"  # its fields are on the page
        if action == "make-key":
            write_key(chosen.key_file, Ed25519PrivateKey.generate())
        elif action in ("take-part", "again", "change"):
            before = self._run(chosen)
            if before is not None and action != "take-part" and not is_deciding:
                chosen = replace(before.about)  # with the study as it is now
            if action != "change":
                self.begin(chosen)
        is_changing = action == "change" or (is_deciding and action not in ("take-part", "again"))
        fresh = self.fragments(chosen, is_changing=is_changing)
        if form.text("relay-of") == f"{chosen.file} {chosen.party}" and not action:
            fresh.pop("relay-fields")  # it stays as it is typed
        return fresh

    def fragments(self, chosen: JoinChoice, *, is_changing: bool = False) -> dict[str, object]:
        """The contents of every part."""
        fresh: dict[str, object] = dict.fromkeys(
            ("offer", "key", "data-choice", "check", "relay-fields", "agree", "run"), ""
        )
        fresh["study-choice"] = _study_choice(self.folder, chosen.file)
        fresh["party-choice"] = _party_choice(chosen)
        if chosen.opened is None or not chosen.party:
            return fresh
        run = self._run(chosen)
        release = None if run is not None or chosen.opened.terms is None else _finished(chosen.files)
        if release is not None:
            fresh["run"] = self._finished(chosen, release)
        elif run is not None:
            fresh["run"] = self._shown(run)
        check = self.checks.of(chosen.opened, chosen.files)
        offer = self._offer(chosen, check)
        is_over = release is not None or (run is not None and (run.is_running or run.release is not None))
        if is_over or (run is not None and not is_changing):
            summary = "What was asked, and what you agreed to"
            fresh["offer"] = tag("details", tag("summary", summary), offer, id="offer-details")
            return fresh
        return fresh | {"offer": offer} | self._decision(chosen, check)

    def _offer(self, chosen: JoinChoice, check: PartyCheck) -> Html:
        file, files = chosen.opened, chosen.files
        assert file is not None
        own = None if files.key is None else _public(files.key)
        return joined(
            [
                show_parts.question_part(file.study),
                show_parts.parties_part(file.study, chosen.party),
                show_parts.cost_part(file.study, chosen.party, check),
                show_parts.promise_part(file.study),
                show_parts.trust_part(file, chosen.party, own=own, peers=files.peers_file),
            ]
        )

    def _decision(self, chosen: JoinChoice, check: PartyCheck) -> dict[str, object]:
        """Key, data, relay, the tick and the button."""
        files, study = chosen.files, chosen.study
        public, problem = None, ""
        if files.key is not None:
            try:
                public = read_key(files.key).public_key().public_bytes_raw()
            except TpmdpError as error:
                problem = str(error)
        problems = _problems(chosen, check)
        return {
            "key": show_parts.key_part(chosen.party, public, study.party(chosen.party).public_key, problem=problem),
            "data-choice": _data_choice(chosen),
            "check": joined([show_parts.records_part(check), show_parts.problems_part(problems)]),
            "relay-fields": _relay_fields(chosen),
            "agree": _agree(chosen, check, not problems),
        }

    # Sessions ---------------------------------------------------------------------------------------------------------

    def begin(self, chosen: JoinChoice) -> SessionRun:
        """Take part, if everything is as it should be now and the box is ticked for exactly this."""
        file, files = chosen.opened, chosen.files
        if file is None or files.key is None:
            raise InputError(f"key of {chosen.party}", "(none)", "is missing", "make one here")
        running = self._run(chosen)
        if running is not None and running.is_running:
            return running
        check = files.check()
        if check.problems:
            raise check.problems[0]
        if check.ledger != "settled" and chosen.agreed != chosen.agreement(check):
            if chosen.agreed:
                rule = "was to something else: the study or its cost has changed"
                raise InputError("your agreement", "(ticked)", rule, "read it again, and tick the box")
            raise InputError("your agreement", "(not ticked)", "is missing", "read what it costs you, and tick the box")
        relay = chosen.relay or None if file.study.computation.uses_relay else None
        check_relay(file.study, relay, chosen.plain_http)
        authority = self.folder.file("certificate", chosen.authority) if chosen.authority else None
        key = chosen.run_key
        assert key is not None
        assert file.terms is not None

        def work(run: SessionRun) -> PartyRelease:
            begun = files.begin(
                Path(file.path.name),
                relay,
                plain_http=chosen.plain_http,
                warns_of_author=False,  # the page has said it
                notice=run.note,
            )
            with begun as party:
                return party.take_part(run.take, certificate_authority=authority)

        run, _ = self.runs.begin(key, file.terms.plan_hash, chosen, work=work)
        return run

    def _run(self, chosen: JoinChoice) -> SessionRun | None:
        key = chosen.run_key
        run = None if key is None else self.runs.of(key)
        if run is None or chosen.opened is None or chosen.opened.terms is None:
            return None
        return run if run.plan == chosen.opened.terms.plan_hash or run.is_running else None

    def _shown(self, run: SessionRun) -> Html:
        """The place of a run on the page; polls renew its contents."""
        number = run.number
        return tag(
            "section",
            tag("h2", "The session"),
            tag("p", show_parts.news(run), id=f"run-{number}-news", role="status", class_="news"),
            tag("p", show_parts.time_left(run), id=f"run-{number}-time", class_="note"),
            tag("div", self.body(run), id=f"run-{number}-body"),
        )

    def body(self, run: SessionRun) -> Html:
        """How a run stands; what has ended is drawn once."""
        chosen: JoinChoice = run.about
        if run.is_running:
            return show_parts.progress_part(run, chosen.study, chosen.command())
        if run.number not in self._ended:
            try:
                self._ended[run.number] = self._end(run, chosen)
            except TpmdpError as error:  # the ledger was moved, say
                return tag("p", str(error), class_="problem")
        return self._ended[run.number]

    def _end(self, run: SessionRun, chosen: JoinChoice) -> Html:
        if run.release is None:
            return show_parts.failure_part(run, _STANDING[chosen.files.status()])
        hint: Html | str = ""
        if run.release.note:
            text = f"{run.release.note[:1].upper()}{run.release.note[1:]}."
            hint = joined([tag("p", text, class_="warning"), tag("p", button("Send them again", "again"))])
        return self._outcome(chosen, run.release, hint)

    def _finished(self, chosen: JoinChoice, release: PartyRelease) -> Html:
        hint: Html | str = ""
        if release.note:
            text = "If another receiver still waits for its answer, this command sends it again:"
            command = tag("pre", tag("code", chosen.command()), tabindex="0")
            hint = joined([tag("p", text, class_="note"), command])
        return tag("section", tag("h2", "The session"), self._outcome(chosen, release, hint))

    def _outcome(self, chosen: JoinChoice, release: PartyRelease, hint: object) -> Html:
        record = None if release.answers is None else chosen.files.record(with_answer=True)
        return show_parts.outcome_part(chosen.study, release, record, hint=hint)

    def polled(self) -> dict[str, object]:
        """How all runs stand; a tab takes what it shows."""
        fresh: dict[str, object] = {}
        for run in self.runs.all():
            place = f"run-{run.number}"
            fresh |= {f"{place}-body": self.body(run), f"{place}-time": show_parts.time_left(run)}
            fresh[f"{place}-news"] = show_parts.news(run)
        return fresh

    # Files ------------------------------------------------------------------------------------------------------------

    def take_study(self, name: str, written: Path) -> Parts:
        """An uploaded invitation or study, which is chosen then."""
        return {"study-choice": _study_choice(self.folder, store_study(self.folder, name, written))}

    def take_data(self, name: str, written: Path) -> Parts:
        """Uploaded records, which are chosen then."""
        stored = store_data(self.folder, name, written)
        return {"data-list": _data_list(self.folder, stored)}

    def draft(self, form: PageForm) -> Response:
        """The report on the plan, before anything is charged."""
        record = SessionRecord.of(JoinChoice.of(form, self.folder).study)
        return file_answer(report_page(record), "report-before.html", "text/html; charset=utf-8")

    def report(self, form: PageForm, *, with_answer: bool) -> Response:
        """The report on the party's session, from its ledger."""
        record = JoinChoice.of(form, self.folder).files.record(with_answer)
        file = "report-with-answer.html" if with_answer else "report.html"
        return file_answer(report_page(record), file, "text/html; charset=utf-8")


def routes(folder: Folder) -> list[Route]:
    """The routes of this view."""
    shown = JoinView(folder)

    return [
        poll("/join/runs", lambda _: shown.polled()),
        upload("/join/upload-study", STUDY_MAX, shown.take_study, folder=folder.path),
        upload("/join/upload-data", DATA_MAX, shown.take_data, folder=folder.path),
        *view(
            "/join",
            shown.show,
            shown.answer,
            downloads={
                "draft.html": shown.draft,
                "report.html": lambda form: shown.report(form, with_answer=False),
                "report-with-answer.html": lambda form: shown.report(form, with_answer=True),
            },
        ),
    ]


# Controls -------------------------------------------------------------------------------------------------------------


def _part(part: str, contents: Mapping[str, object]) -> Html:
    return tag("div", contents[part], id=part)


def _finished(files: PartyFiles) -> PartyRelease | None:
    try:
        return files.finished()
    except TpmdpError:  # a ledger that cannot be read is one of the problems of the check
        return None


def _public(path: Path) -> bytes | None:
    try:
        return read_key(path).public_key().public_bytes_raw()
    except TpmdpError:
        return None


def _problems(chosen: JoinChoice, check: PartyCheck) -> list[str]:
    texts = [str(problem) for problem in check.problems]
    file, has_key = chosen.opened, chosen.files.key is not None
    if file is not None and file.lacking:
        first = "Send the line above to the author of the study. " * (has_key and chosen.party in file.lacking)
        wait = f"{first}Keys of {', '.join(file.lacking[:_NAMES_MAX])} are missing in this file"
        texts = [text for text in texts if not text.startswith("public_key of ")]
        texts.append(f"{wait}: open the new invitation here when it comes, which has them all.")
    if not has_key:
        texts.insert(0, f"You have no key: make it above. It will be {chosen.party}.key in your folder.")
    return texts


def _study_choice(folder: Folder, chosen: str) -> Html:
    names = study_names(folder)
    if not names:
        text = "There is no invitation in your folder yet. Bring the file that you were sent."
        return tag("p", text, class_="empty")
    options = {"": "choose a file"} | {name: name for name in names}
    return choice("Invitation or study", "study", options, chosen=chosen, hint="From the folder of this page.")


def _party_choice(chosen: JoinChoice) -> Html:
    if chosen.opened is None:
        return Html("")
    options = {"": "choose"} | {party.name: party.name for party in chosen.opened.study.parties}
    of = void("input", type="hidden", name="party-of", value=chosen.file)
    return joined([choice("You are", "party", options, chosen=chosen.party), of])


def _file_field(label: str, field: str, to: str, *, most: int, accept: str) -> Html:
    inner = void(
        "input",
        type="file",
        id=field,
        accept=accept,
        data_upload=to,
        data_most=most,
        data_then="brought",
        aria_describedby=f"{field}-hint",
    )
    hint = f"Choose a file, or drop it here. At most {most >> 20} MiB; it is stored in the folder of this page."
    return tag("div", control(label, inner, hint, id=field), class_="drop", data_drop=field)


def _data_list(folder: Folder, chosen: str) -> Html:
    options = {"": "choose a file"} | {name: name for name in data_names(folder)}
    return choice("Your records", "data", options, chosen=chosen, hint="From the folder of this page.")


def _data_choice(chosen: JoinChoice) -> Html:
    of = void("input", type="hidden", name="data-of", value=f"{chosen.file} {chosen.party}")
    heading = tag("h2", "Your data")
    if not chosen.study.party(chosen.party).records:
        text = "The study says that you have no records: no file is needed."
        return joined([heading, tag("p", text, class_="empty"), of])
    lead = "The file stays on this machine. It is read and checked here; nothing is sent by that."
    return joined(
        [
            heading,
            tag("p", lead),
            tag("div", _data_list(chosen.folder, chosen.data), id="data-list"),
            _file_field("Or another file", "data-file", "/join/upload-data", most=DATA_MAX, accept=".csv,.parquet"),
            of,
        ]
    )


def _relay_fields(chosen: JoinChoice) -> Html:
    of = void("input", type="hidden", name="relay-of", value=f"{chosen.file} {chosen.party}")
    heading = tag("h2", "Meeting the others")
    if not chosen.study.computation.uses_relay:
        text = (
            "The parties of this study connect to each other, at the addresses that it gives; no relay is needed. To "
            "wait at another address than your own, as behind a router, use tpmdp join --listen."
        )
        return joined([heading, tag("p", text), of])
    certificates = chosen.folder.names(".pem", ".crt")
    authority = []
    if certificates:
        options = {"": "a public one"} | {name: name for name in certificates}
        authority = [choice("Certificate to trust for the relay", "authority", options, chosen=chosen.authority)]
    return joined(
        [
            heading,
            text_field(
                "Address of the relay",
                "relay",
                chosen.relay,
                hint="Such as https://relay.example.org. The relay passes messages on that it cannot read.",
                spellcheck="false",
                maxlength=300,
            ),
            *authority,
            tick(
                "Allow plain HTTP to a relay on another machine (as --plain-http does)",
                "plain-http",
                checked=chosen.plain_http,
            ),
            of,
        ]
    )


def _agree(chosen: JoinChoice, check: PartyCheck, is_ready: bool) -> Html:
    decline = (
        "If you decline, you need do nothing more: nothing is charged, and no data leave this machine. Files that you "
        "brought stay in the page's folder until you delete them there."
    )
    keep = tag("p", button("Report on this plan, for your files", formaction="/join/draft.html", class_="save"))
    heading = joined([tag("h2", "Decide"), tag("p", decline), keep])
    if not is_ready or check.cost is None:
        text = "You can decide when nothing stands in the way any more."
        return joined([heading, tag("p", text, class_="empty")])
    value = chosen.agreement(check)
    text = f"I have read this and agree to spend epsilon {rounded_up(check.cost)}"
    if not check.charged_now:
        text = f"I have read this and agree to go on: epsilon {rounded_up(check.cost)} was charged before"
    label = "Take part" if check.ledger in ("new", "unknown", "cancelled", "not given") else "Go on with the session"
    return joined(
        [
            heading,
            tick(text, "agreed", value=value, checked=chosen.agreed == value),
            tag("p", button(label, "take-part"), class_="buttons"),
        ]
    )
