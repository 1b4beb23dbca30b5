"""Study: saving and opening files, the steps of an invitation, and the public keys that the parties return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tpmdp.page.forms import button, choice, control, text_field, tick, void
from tpmdp.page.study_files import STUDY_BYTES_MAX
from tpmdp.page.study_form import StudyForm
from tpmdp.report.markup import Html, joined, name, names, tag
from tpmdp.report.numbers import plural
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.invitation import RELAY_TEXT, START_TEXT
from tpmdp.study.model import Study

_ROWS_MAX: Final = 60


def files_html(form: StudyForm) -> Html:
    """How to save the study."""
    return joined(
        [
            tag(
                "p",
                button("Download study.toml", formaction="/study/study.toml", class_="save", data_says="study-saved"),
                class_="buttons",
            ),
            tag("p", id="study-saved", class_="said", aria_live="polite"),
            text_field("File in the folder", "file", form.file, hint="It ends in .toml.", spellcheck="false"),
            tick("Replace another study that has this file name", "may-replace"),
            tag("p", button("Save in the folder", "save", data_aside="")),
        ]
    )


def opening_html(form: StudyForm, listed: Sequence[str]) -> Html:
    """Studies that can be opened: those of the folder, and any file."""
    if listed:
        chosen = form.file if form.file in listed else listed[0]
        opening = joined(
            [
                choice("Study in the folder", "open-file", {each: each for each in listed}, chosen=chosen),
                tag("p", button("Open it", "open", class_="quiet", data_aside="")),
            ]
        )
    else:
        opening = tag("p", "There is no study file in the page's folder yet.", class_="empty")
    field = void(
        "input",
        type="file",
        id="study-file",
        accept=".toml",
        data_upload="/study/upload",
        data_most=STUDY_BYTES_MAX,
        aria_describedby="study-file-hint",
    )
    hint = "A study.toml that was downloaded, here or in Plan. It takes the place of what stands above."
    return joined([tag("h3", "Open a study"), opening, control("Or a study file", field, hint, id="study-file")])


def steps_html() -> Html:
    """From the invitation to the session, for people who use the page and for those who use the command line."""
    steps = [
        "Write the invitations, and send each party its file.",
        "Each party makes a key and returns one line: on its own page, in Take part (Make my key), or with tpmdp "
        "keygen on the command line. Both give the same line. Paste it below.",
        "When all keys are there, write the invitations again, and send them again.",
        "Ten words then stand here. Compare them with every party by telephone.",
        START_TEXT,
    ]
    return tag("ol", *(tag("li", step) for step in steps))


def invite_html(form: StudyForm) -> Html:
    """The relay, and the buttons that write invitations."""
    hint = f"May be added later; needed before anybody joins. {RELAY_TEXT} Each invitation names it."
    write = "Write invitations into the folder"
    zipped = {"formaction": "/study/invitations.zip", "class_": "save", "data_says": "zip-saved"}
    return joined(
        [
            text_field("Address of the relay", "relay", form.relay, hint=hint, spellcheck="false", inputmode="url"),
            tag("p", "Writing them also saves the study under its file name.", class_="hint"),
            tag(
                "p",
                button(write, "invite", data_aside=""),
                button("Download all as a zip file", **zipped),
                class_="buttons",
            ),
            tag("p", id="zip-saved", class_="said", aria_live="polite"),
        ]
    )


def key_status(form: StudyForm, study: Study | None) -> Html:
    """Who has returned a key; with all keys, the words to compare."""
    states = form.keys()
    wrong = [
        tag("p", state.problem, class_="problem", id=f"key-problem-{place}", data_marks=f"key-line-{place}")
        for place, state in enumerate(states)
        if state.problem
    ]
    lacking = [state.party for state in states if state.key is None]
    if lacking:
        have = plural(len(states) - len(lacking), "public key")
        return joined([*wrong[:_ROWS_MAX], tag("p", f"{have} of {len(states)}. Missing: ", names(lacking), ".")])
    if study is None:
        return tag("p", "All public keys are there.")
    phrase = phrase_of(study.with_keys({each.party: each.key for each in states if each.key}).terms().plan_hash)
    text = "All public keys are there. Compare these words with every party by telephone: they are the same for all."
    return tag("div", tag("p", text), tag("p", " ".join(phrase), class_="phrase"), class_="good")


def keys_html(form: StudyForm) -> Html:
    """A field for the line of each party, in the order of the table."""
    lines = (*form.lines, *[""] * len(form.plan.parties.rows))
    rows = []
    for place, (party, line) in enumerate(zip(form.plan.parties.names, lines, strict=False)):
        label = tag("label", "Line from ", name(party), for_=f"key-line-{place}")
        hidden = void("input", type="hidden", name="key-party", value=party)
        entry = void(
            "input",
            type="text",
            id=f"key-line-{place}",
            name="key-line",
            value=line,
            autocomplete="off",
            spellcheck="false",
            maxlength=300,
            class_="line",
            aria_describedby="keys-hint",
        )
        rows.append(tag("div", label, hidden, entry, class_="control"))
    hint = 'Such as its name = "ed25519:...". Public keys are not secret; key files are.'
    return joined([tag("p", hint, class_="hint", id="keys-hint"), *rows])
