"""The controls of Take part: files, the party, the relay, and the decision with its boxes."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from tpmdp.errors import shown
from tpmdp.ledger import rounded_up
from tpmdp.page.folder import Folder
from tpmdp.page.forms import button, choice, control, text_field, tick, void
from tpmdp.page.join_choice import COMPARED, NOT_COMPARED, JoinChoice, Words
from tpmdp.page.join_files import DATA_MAX, copies, data_names, study_names
from tpmdp.page.join_resume import label_id, study_label
from tpmdp.report.html_promise import KEEP_IT
from tpmdp.report.html_sections import show_time
from tpmdp.report.markup import Html, joined, name, tag
from tpmdp.study.begun import withdrawal_text
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, PartyCheck

PLAIN_HTTP: Final = "The relay is on another machine and has no TLS (plain HTTP)"
_GO_ON: Final = "Go on with the session"
_CONTACT_SHOWN: Final = 200
_DECLINE: Final = (
    "If you decline, you need do nothing more: nothing is charged, and no data leave this machine. Copies of your "
    "records stay in the folder until you delete them; there is a button at Your data."
)
WORDS_SAID: Final[dict[Words, str]] = {
    "": "",
    "compared": "You had compared the ten words with the other parties.",
    "not compared": "You took part without comparing the ten words.",
    "pinned": "The keys of the others were those in your own file.",
}
_SAID: Final = {
    COMPARED: "I have compared the ten words with the other parties, and they are the same",
    NOT_COMPARED: "I take part without comparing them; the author could then have invented the others",
}


# Files ----------------------------------------------------------------------------------------------------------------


def study_choice(folder: Folder, chosen: str) -> Html:
    """The invitations in the folder."""
    names = study_names(folder)
    if not names:
        text = "There is no invitation in your folder yet. Bring the file that you were sent."
        return tag("p", text, class_="empty")
    options = {"": "choose a file"} | {each: study_label(folder, each) for each in names}
    ids = {each: label_id(each) for each in names}
    hint = _in_folder(folder)
    return choice("Invitation or study", "study", options, chosen=chosen, hint=hint, ids=ids, is_wide=True)


def _in_folder(folder: Folder) -> str:
    return f"From the folder of this page, {folder.path}."


def party_choice(chosen: JoinChoice) -> Html:
    """Who the party is; an invitation may say it."""
    if chosen.opened is None:
        return Html("")
    options = {"": "choose"} | {party.name: party.name for party in chosen.opened.study.parties}
    of = void("input", type="hidden", name="party-of", value=chosen.file)
    parts = [choice("You are", "party", options, chosen=chosen.party)]
    invited = chosen.opened.invited
    if invited and chosen.party in ("", invited):
        parts.append(tag("p", "This invitation is for ", tag("strong", name(invited)), "."))
    elif invited:
        parts.append(tag("p", not_meant_text(invited, chosen.party), class_="warning"))
    return joined([*parts, of])


def not_meant_text(invited: str, party: str) -> str:
    """What to do with the invitation of somebody else."""
    return f"This invitation is for {invited}. If you are {party}, ask its sender for your own."


def file_field(label: str, field: str, to: str, *, most: int, accept: str, then: str, hint: str) -> Html:
    """A place to choose a file, or to drop it."""
    inner = void(
        "input",
        type="file",
        id=field,
        accept=accept,
        data_upload=to,
        data_most=most,
        data_then=then,
        aria_describedby=f"{field}-hint",
    )
    text = f"Choose a file, or drop it here. At most {most >> 20} MiB. {hint}"
    return tag("div", control(label, inner, text, id=field), class_="drop", data_drop=field)


def data_list(folder: Folder, chosen: str, deleting: str = "", *, uploaded: Collection[str] = ()) -> Html:
    """The files of records in the folder, and a way to delete the copy that is chosen."""
    options = {"": "choose a file"} | {each: each for each in data_names(folder)}
    shown = choice("Your records", "data", options, chosen=chosen, hint=_in_folder(folder))
    return joined([shown, delete_part(folder, chosen, deleting, uploaded=uploaded)])


def delete_part(folder: Folder, file: str, deleting: str = "", *, uploaded: Collection[str] = ()) -> Html:
    """The button that deletes a copy of records, or the question whether to."""
    if file not in copies(folder):
        return Html("")
    if deleting != file:
        label = "Delete this copy" if file in uploaded else "Delete this file"  # which may be the only one
        return tag("p", button(label, f"delete-data={file}", class_="small"))
    return tag(
        "div",
        tag("p", "Delete ", tag("strong", name(file)), f" from {folder.path}? This cannot be undone."),
        tag(
            "p",
            button("Yes, delete it", f"delete-data-now={file}", class_="small"),
            button("Keep it", "keep-data", class_="small"),
            class_="buttons",
        ),
        class_="warning",
        role="alert",
    )


def data_choice(chosen: JoinChoice, deleting: str = "", *, uploaded: Collection[str] = ()) -> Html:
    """The party's records."""
    of = void("input", type="hidden", name="data-of", value=chosen.place)
    heading = tag("h2", "Your data")
    if not chosen.study.party(chosen.party).records:
        text = "The study says that you have no records: no file is needed."
        return joined([heading, tag("p", text, class_="empty"), of])
    lead = "The file stays on this machine. It is read and checked here; nothing is sent by that. "
    lead += columns_text(chosen.study, chosen.party)
    field = file_field(
        "Or another file",
        "data-file",
        "/join/upload-data",
        most=DATA_MAX,
        accept=".csv,.parquet",
        then="brought-data",
        hint="A copy is stored in the folder of this page; a file that does not fit is not kept.",
    )
    chosen_file = tag("div", data_list(chosen.folder, chosen.data, deleting, uploaded=uploaded), id="data-list")
    return joined([heading, tag("p", lead), chosen_file, field, of])


def columns_text(study: Study, party: str) -> str:
    """The columns that a party's file must have.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                      "parties": parties, "queries": [query]})
    >>> columns_text(study, "bank")
    'It needs the column age. A CSV file names it in its first line, with commas between columns.'
    """
    needed = [shown(column, _CONTACT_SHOWN) for column in study.columns_of(party)]
    if not needed:
        return "It needs no particular column."
    listed = " and ".join([", ".join(needed[:-1]), needed[-1]] if len(needed) > 1 else needed)
    which, them = ("columns", "them") if len(needed) > 1 else ("column", "it")
    return f"It needs the {which} {listed}. A CSV file names {them} in its first line, with commas between columns."


# The relay ------------------------------------------------------------------------------------------------------------


def relay_fields(chosen: JoinChoice) -> Html:
    """Where the parties meet."""
    of = joined(
        [
            void("input", type="hidden", name="relay-of", value=chosen.place),
            void("input", type="hidden", name="relay-invited", value=chosen.invited),
        ]
    )
    heading = tag("h2", "Meeting the others")
    if not chosen.study.uses_relay:
        text = (
            "The parties of this study connect to each other, at the addresses that it gives; no relay is needed. To "
            "wait at another address than your own, as behind a router, use tpmdp join --listen."
        )
        return joined([heading, tag("p", text), of])
    certificates = chosen.folder.names(".pem", ".crt")
    authority = []
    if certificates:
        options = {"": "a public one"} | {each: each for each in certificates}
        authority = [choice("Certificate to trust for the relay", "authority", options, chosen=chosen.authority)]
    hint = "Such as https://relay.example.org. The relay passes messages on that it cannot read."
    address = text_field("Address of the relay", "relay", chosen.relay, hint=hint, spellcheck="false", maxlength=300)
    wrong = tag("div", relay_problem(chosen), id="relay-problem", aria_live="polite")
    secure = tick(PLAIN_HTTP, "plain-http", checked=chosen.plain_http)
    return joined([heading, address, wrong, *authority, secure, of])


def relay_problem(chosen: JoinChoice) -> Html:
    """That the address of the relay is missing, at its field; the script marks the field."""
    if not chosen.lacks_relay:
        return Html("")
    return tag("p", relay_text(chosen.study), class_="field-problem", id="relay-missing", data_marks="relay")


def relay_text(study: Study) -> str:
    """Who knows the address of the relay."""
    author = f"the author ({shown(study.contact, _CONTACT_SHOWN)})" if study.contact else "the author of the study"
    return f"The address of the relay is missing. Ask {author}, or whoever runs it."


# The decision ---------------------------------------------------------------------------------------------------------


def decision(
    chosen: JoinChoice, check: PartyCheck, *, is_ready: bool, lacks: Mapping[str, str], is_withdrawing: bool = False
) -> Html:
    """The boxes and the button; `lacks` says what is missing at "words" and "agreed".

    A session that the party has agreed to before asks nothing again: it goes on, or the party withdraws.
    """
    keep = tag("p", button("Report on this plan, for your files", formaction="/join/draft.html", class_="save"))
    begun = check.begun if check.begun is not None and check.begun.has_agreed else None
    lead = tag("p", _DECLINE) if check.begun is None else _begun_part(check.begun, chosen.compared)
    heading = joined([tag("h2", "Decide", id="decide"), lead, keep])
    if not is_ready or check.cost is None:
        text = "You can decide when nothing stands in the way any more."
        return joined([heading, tag("p", text, class_="empty"), _withdraw(chosen, check, is_withdrawing)])
    if begun is not None:
        said = void("input", type="hidden", name="words", value=chosen.words)
        return joined([heading, said, _button(_GO_ON), _withdraw(chosen, check, is_withdrawing)])
    value = chosen.agreement(check)
    text = f"I have read this and agree to spend epsilon {rounded_up(check.cost)}"
    if not check.charged_now:
        text = f"I have read this and agree to go on: epsilon {rounded_up(check.cost)} was charged before"
    study = chosen.study
    if len(study.receivers) < len(study.parties):
        text += f". {KEEP_IT} If I get it, I do not pass it on." if chosen.party in study.receivers else f". {KEEP_IT}"
    label = "Take part" if check.ledger in ("new", "unknown", "cancelled", "not given") else _GO_ON
    box = _box(text, "checkbox", "agreed", value=value, checked=chosen.agreed == value, lack=lacks.get("agreed", ""))
    boxes = [*_words_boxes(chosen, lacks.get("words", "")), box]
    return joined([heading, *boxes, _button(label), _withdraw(chosen, check, is_withdrawing)])


def _begun_part(begun: Begun, compared: Words) -> Html:
    """That the session was begun, and what it means to stop now."""
    what = "You agreed to this session" if begun.has_agreed else "You began this session"
    said = f" {WORDS_SAID[compared]}" if compared and begun.has_agreed else ""
    first = f"{what} on {show_time(begun.time)}.{said}"
    if begun.is_charged:
        rest = "It was charged, so it cannot be withdrawn. Going on costs nothing more, and the others may be waiting."
    else:
        rest = "It has not been charged yet; it is charged when all parties have agreed. The others may be waiting."
    return joined([tag("p", tag("strong", first)), tag("p", rest)])


def _withdraw(chosen: JoinChoice, check: PartyCheck, is_withdrawing: bool) -> Html:
    """The way out of a session that is held and not charged."""
    if check.begun is None or check.begun.is_charged:
        return Html("")
    return withdraw_part(chosen.study, chosen.place, is_withdrawing=is_withdrawing)


def withdraw_part(study: Study, place: str, *, is_withdrawing: bool) -> Html:
    """The button that withdraws, or the question whether to, with what it means for the others."""
    if not is_withdrawing:
        return tag("p", button("Withdraw ...", f"withdraw={place}", class_="small", id="withdraw"))
    own = "Withdraw? The session is then closed for you: nothing is charged, and no data of yours leave this machine."
    again = "To take part after all, you would need a new invitation, with another session number."
    return tag(
        "div",
        tag("p", tag("strong", own)),
        tag("p", withdrawal_text(study)),
        tag("p", again),
        tag(
            "p",
            button("Yes, withdraw", f"withdraw-now={place}", class_="small", id="withdraw-now"),
            button("Stay in", f"stay={place}", class_="small"),
            class_="buttons",
        ),
        class_="warning",
        role="alert",
    )


def _button(label: str) -> Html:
    return tag("p", button(label, "take-part"), class_="buttons")


def _words_boxes(chosen: JoinChoice, lack: str) -> list[Html]:
    """Whether the ten words were compared; nothing to say where a file of the party pins the keys."""
    said = chosen.compared
    if said == "pinned":
        return []
    boxes = [
        _box(
            text,
            "radio",
            "words",
            value=chosen.words_value(each),
            checked=said == each,
            lack=lack if place == len(_SAID) - 1 else "",
            own=f"words-{place + 1}",
            is_invalid=bool(lack),
        )
        for place, (each, text) in enumerate(_SAID.items())
    ]
    return [tag("fieldset", tag("legend", "The ten words"), *boxes)]


def _box(
    text: str,
    kind: str,
    field: str,
    *,
    value: str,
    checked: bool,
    lack: str,
    own: str = "",
    is_invalid: bool = False,
) -> Html:
    """A box to tick, with what is missing beneath it."""
    own = own or field
    more: dict[str, object] = {"checked": "checked"} if checked else {}
    if lack or is_invalid:
        more |= {"aria_invalid": "true", "aria_describedby": f"{field}-problem"}
    box = void("input", type=kind, id=own, name=field, value=value, **more)
    line = [tag("p", lack, class_="problem", id=f"{field}-problem", role="alert")] if lack else []
    style = "tick invalid" if lack or is_invalid else "tick"
    return joined([tag("div", box, tag("label", text, for_=own), class_=style), *line])
