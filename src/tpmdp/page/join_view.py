"""Take part: an invitation, the party's own key, data and ledger, its agreement, and a session that runs here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from starlette.responses import Response
from starlette.routing import Route

from tpmdp.errors import InputError, TpmdpError
from tpmdp.ledger import LedgerError
from tpmdp.page import join_controls as controls
from tpmdp.page import join_offer as offer_parts
from tpmdp.page import join_parts as show_parts
from tpmdp.page.answers import file_answer
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm, Place, button
from tpmdp.page.forms import problem as error_line
from tpmdp.page.join_changes import changes_part
from tpmdp.page.join_choice import JoinChoice
from tpmdp.page.join_files import DATA_MAX, STUDY_MAX, Checks, delete_copy, store_data, store_study
from tpmdp.page.join_offer import StudyOffer
from tpmdp.page.join_resume import (
    differs_from_done,
    interrupted_part,
    interrupted_sessions,
    keep_said,
    label_id,
    study_label,
)
from tpmdp.page.join_words import OTHER_STUDY, invitee_text
from tpmdp.page.routes import Parts, RefusedFormError, poll, upload, view
from tpmdp.page.runs import SessionRun, SessionRuns
from tpmdp.report.html_report import page as report_page
from tpmdp.report.markup import Html, joined, tag
from tpmdp.study.events import SessionEvent
from tpmdp.study.identity import read_key, write_key
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.party_folder import PartyFiles, check_relay
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import key_of

_POLL_MS: Final = 1000
_NAME_MAX: Final = 100
_NAMES_MAX: Final = 8
_STANDING: Final = {
    "unknown": "Nothing was charged.",
    "cancelled": "Nothing was charged.",
    "held": "Nothing was charged: room for this session is set aside in your ledger. Trying again goes on with it.",
    "charged": "This session was charged, once. Trying again goes on with it at no new cost.",
    "settled": "The session is finished in your ledger. Trying again costs nothing.",
}


class JoinView:
    """The view, with the sessions that it runs."""

    def __init__(self, folder: Folder) -> None:
        self.folder, self.runs, self.checks = folder, SessionRuns(), Checks()
        self._ended: dict[int, Html] = {}
        self._brought: set[str] = set()  # copies of records that were not checked yet
        self._changes: dict[str, Html] = {}  # what a second invitation has changed, by its name
        self._withdrawing = ""  # the session of which somebody is asked whether to withdraw
        self._uploaded: set[str] = set()  # copies that were made here
        self._deleting = ""  # the copy of which somebody is asked whether to delete it

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
            controls.file_field(
                "Or another file",
                "study-file",
                "/join/upload-study",
                most=STUDY_MAX,
                accept=".toml",
                then="brought",
                hint="It is stored in the folder of this page.",
            ),
            tag("div", contents["study-changes"], id="study-changes", aria_live="polite"),
            _part("party-choice", contents),
        )
        form = tag(
            "form",
            _part("interrupted", contents),
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
        word, _, value = action.partition("=")
        if word in ("go-on", "look-at"):
            return self._back_to(value, goes_on=word == "go-on")
        chosen = JoinChoice.of(form, self.folder)
        is_deciding = form.text("data-of") == chosen.place  # its fields are on the page
        if word in ("withdraw", "withdraw-now", "stay"):
            return self._withdraw(chosen, word, value, is_deciding=is_deciding)
        if action == "make-key":
            self._make_key(chosen)
        elif action == "brought-data":
            return self._brought_data(chosen)
        elif word in ("delete-data", "delete-data-now", "keep-data"):
            return self._delete(chosen, word, value, is_deciding=is_deciding)
        elif action in ("take-part", "again", "change"):
            before = self._run(chosen)
            if before is not None and action != "take-part" and not is_deciding:
                chosen = replace(before.about)  # with the study as it is now
            if action != "change":
                self.begin(chosen)
        is_changing = action == "change" or (is_deciding and action not in ("take-part", "again"))
        fresh = self.fragments(chosen, is_changing=is_changing)
        if form.text("relay-of") == chosen.place and not action:
            self._keep_relay(fresh, chosen)
        return fresh

    def _keep_relay(self, fresh: dict[str, object], chosen: JoinChoice) -> None:
        """The relay stays as it is typed; what is said about it follows."""
        if fresh.pop("relay-fields"):
            fresh["relay-problem"] = controls.relay_problem(chosen)

    def _back_to(self, place: str, *, goes_on: bool) -> Parts:
        """A session that was interrupted: shown again, and resumed if the party has agreed to it before."""
        file, _, party = place.rpartition("|")
        chosen = JoinChoice.first(self.folder, file, party)
        chosen.study.index(party)
        if goes_on:
            self.begin(chosen)
        return self.fragments(chosen)

    def _withdraw(self, chosen: JoinChoice, word: str, place: str, *, is_deciding: bool) -> Parts:
        """Ask whether to withdraw from a session that is held, or withdraw."""
        self._withdrawing = place if word == "withdraw" else ""
        if chosen.place != place:
            file, _, party = place.rpartition("|")
            chosen, is_deciding = JoinChoice.first(self.folder, file, party), False
        chosen.study.index(chosen.party)
        run = self._run(chosen)
        if word != "withdraw-now":
            focus = {"x-focus": "withdraw-now" if word == "withdraw" else "withdraw"}
            return self.fragments(chosen, is_changing=is_deciding) | focus
        try:
            chosen.files.withdraw()
        except LedgerError:
            if chosen.files.status() not in ("charged", "settled"):
                raise
            text = "This session was charged in the meantime, so it cannot be withdrawn. Going on costs nothing more."
            raise TpmdpError(text) from None
        if run is not None:
            run.withdraw()
            return self.fragments(chosen)
        return self.fragments(chosen) | {"run": show_parts.withdrawn_part(chosen.study)}

    def _make_key(self, chosen: JoinChoice) -> None:
        if chosen.meant_for:
            rule, remedy = (
                f"is not the one that this invitation is for ({chosen.meant_for})",
                "open your own invitation",
            )
            raise InputError("party", chosen.party, rule, remedy)
        write_key(chosen.key_file, Ed25519PrivateKey.generate())

    def _brought_data(self, chosen: JoinChoice) -> Parts:
        """A file of records that somebody has brought; a copy that the check refuses is not kept."""
        file = chosen.data
        if chosen.opened is None or not chosen.party or file not in self._brought:
            return self.fragments(chosen, is_changing=True)
        self._brought.discard(file)
        check = self.checks.of(chosen.opened, chosen.files)
        if not check.about_data:
            return self.fragments(chosen, is_changing=True)
        delete_copy(self.folder, file)
        fresh = self.fragments(replace(chosen, data=""), is_changing=True)
        why = [invitee_text(problem).replace(f"{self.folder.path}/", "") for problem in check.about_data]
        fresh["check"] = show_parts.refused_part(
            file, check, why, needed=controls.columns_text(chosen.study, chosen.party)
        )
        return fresh

    def _delete(self, chosen: JoinChoice, word: str, file: str, *, is_deciding: bool) -> Parts:
        """Ask whether to delete a copy of records, or delete it."""
        self._deleting = file if word == "delete-data" else ""
        if word == "delete-data-now":
            if any(run.is_running and run.about.data == file for run in self.runs.all()):
                raise InputError("file to delete", file, "is in use by a session", "wait until it has ended")
            delete_copy(self.folder, file)
            chosen = replace(chosen, data="" if chosen.data == file else chosen.data)
        return self.fragments(chosen, is_changing=is_deciding)

    def fragments(
        self, chosen: JoinChoice, *, is_changing: bool = False, lacks: Mapping[str, str] | None = None
    ) -> dict[str, object]:
        """The contents of every part; `lacks` says what is missing at the boxes."""
        fresh: dict[str, object] = dict.fromkeys(
            ("offer", "key", "data-choice", "check", "relay-fields", "agree", "run"), ""
        )
        shown = {(run.key.session, run.key.party) for run in self.runs.all()}
        fresh["interrupted"] = interrupted_part(interrupted_sessions(self.folder, shown))
        fresh["study-choice"] = controls.study_choice(self.folder, chosen.file)
        fresh["study-changes"] = self._changes.get(chosen.file, "")
        if chosen.opened is not None and differs_from_done(self.folder, chosen.opened, chosen.party):
            warning = tag("p", tag("strong", OTHER_STUDY), class_="warning", role="alert")
            fresh["study-changes"] = joined([warning, fresh["study-changes"]])
        fresh["party-choice"] = controls.party_choice(chosen)
        if chosen.opened is None or not chosen.party:
            return fresh
        run = self._run(chosen)
        release = None if run is not None or chosen.opened.terms is None else _finished(chosen.files)
        if release is not None:
            fresh["run"] = self._finished(chosen, release)
        elif run is not None:
            fresh["run"] = self._shown(run)
        check = self.checks.of(chosen.opened, chosen.files)
        is_over = release is not None or (run is not None and (run.is_running or run.release is not None))
        offer = self._offer(chosen, check, is_over=is_over)
        if is_over or (run is not None and not is_changing):
            summary = "What was asked, and what you agreed to"
            fresh["offer"] = tag("details", tag("summary", summary), offer, id="offer-details")
            return fresh
        return fresh | {"offer": offer} | self._decision(chosen, check, lacks or {})

    def _offer(self, chosen: JoinChoice, check: PartyCheck, *, is_over: bool) -> Html:
        file, files = chosen.opened, chosen.files
        assert file is not None
        own = None if files.key is None else _public(files.key)
        offer = StudyOffer.of(file.study, chosen.party)
        summary = [] if is_over else [offer_parts.summary_part(offer, check, chosen.compared)]
        return joined(
            [
                *summary,
                offer_parts.question_part(offer),
                offer_parts.parties_part(file.study, chosen.party),
                offer_parts.cost_part(offer, check, is_over=is_over),
                offer.promise_part,
                show_parts.trust_part(file, chosen.party, own=own, peers=files.peers_file),
            ]
        )

    def _decision(self, chosen: JoinChoice, check: PartyCheck, lacks: Mapping[str, str]) -> dict[str, object]:
        """Key, data, relay, the boxes and the button."""
        files, study = chosen.files, chosen.study
        public, problem = None, ""
        if files.key is not None:
            try:
                public = read_key(files.key).public_key().public_bytes_raw()
            except TpmdpError as error:
                problem = str(error)
        problems = _problems(chosen, check)
        in_study = study.party(chosen.party).public_key
        shown = [show_parts.records_part(check), show_parts.problems_part(problems, chosen.compared)]
        return {
            "key": show_parts.key_part(chosen.party, public, in_study, problem=problem, meant_for=chosen.meant_for),
            "data-choice": controls.data_choice(chosen, self._deleting, uploaded=self._uploaded),
            "check": joined(shown),
            "relay-fields": controls.relay_fields(chosen),
            "agree": controls.decision(
                chosen,
                check,
                is_ready=not problems,
                lacks=lacks,
                is_withdrawing=self._withdrawing == chosen.place,
            ),
        }

    # Sessions ---------------------------------------------------------------------------------------------------------

    def begin(self, chosen: JoinChoice) -> SessionRun:
        """Take part, if everything is as it should be now and the boxes are ticked for exactly this."""
        file, files = chosen.opened, chosen.files
        if file is None or files.key is None:
            raise InputError(f"key of {chosen.party}", "(none)", "is missing", "make one here")
        running = self._run(chosen)
        if running is not None and running.is_running:
            return running
        check = files.check()
        if check.problems:
            raise RefusedFormError(invitee_text(check.problems[0]), {})
        has_agreed = check.begun is not None and check.begun.has_agreed
        if check.ledger != "settled" and not has_agreed and (lacks := _lacks(chosen, check)):
            fresh = self.fragments(chosen, is_changing=True, lacks=lacks)
            self._keep_relay(fresh, chosen)
            raise RefusedFormError("", fresh, focus="words-1" if "words" in lacks else "agreed")
        if chosen.lacks_relay:
            fresh = self.fragments(chosen, is_changing=True)
            self._keep_relay(fresh, chosen)
            raise RefusedFormError("", fresh, focus="relay")
        relay = chosen.relay or None if file.study.uses_relay else None
        check_relay(file.study, relay, chosen.plain_http)
        authority = self.folder.file("certificate", chosen.authority) if chosen.authority else None
        key = chosen.run_key
        assert key is not None
        assert file.terms is not None
        terms = file.terms

        def work(run: SessionRun) -> PartyRelease:
            begun = files.begin(
                Path(file.path.name),
                relay,
                plain_http=chosen.plain_http,
                warns_of_author=False,  # the page has said it
                notice=run.note,
            )
            is_kept = False
            with begun as party:

                def take(event: SessionEvent) -> None:
                    nonlocal is_kept
                    is_kept = is_kept or keep_said(party.ledger, key_of(terms), chosen.to_keep())
                    run.take(event)

                return party.take_part(take, certificate_authority=authority)

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
            tag("p", show_parts.live_news(run), id=f"run-{number}-news", role="status", class_="news"),
            tag("p", show_parts.live_time(run), id=f"run-{number}-time", class_="note"),
            tag("div", self.body(run), id=f"run-{number}-body"),
        )

    def body(self, run: SessionRun) -> Html:
        """How a run stands; what has ended is drawn once."""
        chosen: JoinChoice = run.about
        if run.is_running:
            return show_parts.progress_part(
                run,
                chosen.study,
                chosen.command(),
                begun=chosen.begun,
                place=chosen.place,
                is_withdrawing=self._withdrawing == chosen.place,
            )
        if run.number not in self._ended:
            try:
                self._ended[run.number] = self._end(run, chosen)
            except TpmdpError as error:  # the ledger was moved, say
                return tag("p", str(error), class_="problem")
        if run.release is None:
            return self._ended[run.number]
        return joined([self._ended[run.number], self._reminder(chosen)])

    def _reminder(self, chosen: JoinChoice) -> Html:
        return show_parts.reminder_part(self.folder, chosen.data, self._deleting, uploaded=self._uploaded)

    def _end(self, run: SessionRun, chosen: JoinChoice) -> Html:
        if run.is_withdrawn:
            return show_parts.withdrawn_part(chosen.study)
        if run.release is None:
            return show_parts.failure_part(run, _STANDING[chosen.files.status()])
        hint: Html | str = ""
        if run.release.note:
            text = f"{run.release.note[:1].upper()}{run.release.note[1:]}."
            again = "Go on" if run.release.is_stopped else "Send them again"
            hint = joined([tag("p", text, class_="warning"), tag("p", button(again, "again"))])
        return self._outcome(chosen, run.release, hint)

    def _finished(self, chosen: JoinChoice, release: PartyRelease) -> Html:
        hint: Html | str = ""
        if release.note:
            text = "If another receiver still waits for its answer, this command sends it again:"
            command = tag("pre", tag("code", chosen.command()), tabindex="0")
            hint = joined([tag("p", text, class_="note"), command])
        outcome = self._outcome(replace(chosen, words=""), release, hint)
        return tag("section", tag("h2", "The session"), outcome, self._reminder(chosen))

    def _outcome(self, chosen: JoinChoice, release: PartyRelease, hint: object) -> Html:
        record = chosen.files.record(with_answer=release.answers is not None)
        return show_parts.outcome_part(chosen.study, release, record, compared=chosen.compared, hint=hint)

    def polled(self) -> dict[str, object]:
        """How all runs stand; a tab takes what it shows."""
        fresh: dict[str, object] = {}
        for run in self.runs.all():
            place = f"run-{run.number}"
            fresh |= {f"{place}-body": self.body(run), f"{place}-time": show_parts.live_time(run)}
            fresh[f"{place}-news"] = show_parts.live_news(run)
            file = run.about.file
            fresh[label_id(file)] = study_label(self.folder, file)  # of the list of invitations: it has ended, say
        return fresh

    # Files ------------------------------------------------------------------------------------------------------------

    def take_study(self, name: str, written: Path) -> Parts:
        """An uploaded invitation or study, which is chosen then; of one that was there before, what has changed."""
        brought = store_study(self.folder, name, written)
        self._changes[brought.name] = changes_part(self.folder, name, brought)
        return {
            "study-choice": controls.study_choice(self.folder, brought.name),
            "study-changes": self._changes[brought.name],
        }

    def take_data(self, name: str, written: Path) -> Parts:
        """Uploaded records, which are chosen then."""
        stored = store_data(self.folder, name, written)
        if stored.is_new:
            self._brought.add(stored.name)
            self._uploaded.add(stored.name)
        return {"data-list": controls.data_list(self.folder, stored.name, uploaded=self._uploaded)}

    def draft(self, form: PageForm) -> Response:
        """The report on the plan, before anything is charged."""
        record = SessionRecord.of(JoinChoice.of(form, self.folder).study)
        return file_answer(report_page(record), _report_name(record, "before"), "text/html; charset=utf-8")

    def report(self, form: PageForm, *, with_answer: bool) -> Response:
        """The report on the party's session, from its ledger."""
        record = JoinChoice.of(form, self.folder).files.record(with_answer)
        file = _report_name(record, "with answer" if with_answer else "")
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
            places=lambda form: [Place("relay", "relay", form.text("relay"))],
        ),
    ]


def _report_name(record: SessionRecord, what: str) -> str:
    """The name of a report, with its study and session; the name of a study may be anything."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", f"{record.study.name} session {record.study.session} {what}")
    return f"report {plain}".replace(" ", "-")[:_NAME_MAX].strip("-") + ".html"


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


def _lacks(chosen: JoinChoice, check: PartyCheck) -> dict[str, str]:
    """What nobody has said yet for this plan at this charge."""
    lacks = {}
    if not chosen.compared:
        lacks["words"] = "Say whether you have compared the ten words."
    if chosen.agreed != chosen.agreement(check):
        lacks["agreed"] = "Your agreement is missing: read what it costs you, and tick the box."
        if chosen.agreed:
            changed = "Your agreement was to something else: the study or its cost has changed"
            lacks["agreed"] = f"{changed}. Read it again, and tick the box."
    return lacks


def _problems(chosen: JoinChoice, check: PartyCheck) -> list[str]:
    file, has_key = chosen.opened, chosen.files.key is not None
    problems = check.problems
    if file is not None and file.lacking:
        problems = check.own_problems
    texts = [invitee_text(problem) for problem in problems]
    if file is not None and file.lacking:
        first = "Send the line above to the author of the study. " * (has_key and chosen.party in file.lacking)
        wait = f"{first}Keys of {', '.join(file.lacking[:_NAMES_MAX])} are missing in this file"
        texts.append(f"{wait}: open the new invitation here when it comes, which has them all.")
    if not has_key and chosen.meant_for:
        texts.insert(0, controls.not_meant_text(chosen.meant_for, chosen.party))
    elif not has_key:
        texts.insert(0, f"You have no key: make it above. It will be {chosen.party}.key in your folder.")
    if chosen.lacks_relay and not (file is not None and file.lacking):
        texts.append(controls.relay_text(chosen.study))
    return texts
