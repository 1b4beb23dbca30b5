"""What somebody has chosen in Take part: names of files in the folder, and the settings of a session."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

from tpmdp.errors import InputError, TpmdpError
from tpmdp.ledger import rounded_up
from tpmdp.page.folder import Folder
from tpmdp.page.forms import PageForm
from tpmdp.page.join_files import StudyFile, data_names, open_study, study_names, usual_data, usual_party
from tpmdp.page.join_resume import begun_here, interrupted_sessions, said_before
from tpmdp.page.runs import RunKey
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, PartyCheck
from tpmdp.study.party_folder import PartyFiles
from tpmdp.study.peers import PEERS_FILE
from tpmdp.study.session import key_of

Words = Literal["", "pinned", "compared", "not compared"]
"""Whether somebody knows that the other parties are real; empty: not said yet."""
COMPARED: Final = "compared"
NOT_COMPARED: Final = "not compared"


@dataclass(frozen=True)
class JoinChoice:
    """What somebody has chosen in the form."""

    folder: Folder
    file: str = ""
    party: str = ""
    data: str = ""
    relay: str = ""
    plain_http: bool = False
    authority: str = ""
    agreed: str = ""
    words: str = ""

    @classmethod
    def of(cls, form: PageForm, folder: Folder) -> JoinChoice:
        """The choice in a form; a party and data of another study than before are chosen anew."""
        chosen = cls(folder, form.text("study"))
        party, is_before = form.text("party"), form.text("party-of") == chosen.file
        if chosen.opened is None or party not in [each.name for each in chosen.opened.study.parties]:
            party = ""
        if chosen.opened is not None and (not party or not is_before):
            party = usual_party(folder, chosen.opened, party)
        if form.text("data-of") != chosen.place_of(party):
            return cls.first(folder, chosen.file, party)
        return replace(
            chosen,
            party=party,
            data=form.text("data"),
            relay=_typed_relay(form, chosen.invited),
            plain_http=form.has("plain-http"),
            authority=form.text("authority"),
            agreed=form.text("agreed"),
            words=form.text("words"),
        )

    @classmethod
    def first(cls, folder: Folder, file: str, party: str) -> JoinChoice:
        """The choice before somebody has changed it; of a session that was begun here, as it was then."""
        chosen = replace(cls(folder, file), party=party)
        said = chosen.said
        data = str(said.get("data", ""))
        return replace(
            chosen,
            data=data if data in data_names(folder) else usual_data(folder, party),
            relay=str(said.get("relay", "")) or chosen.invited,
            plain_http=bool(said.get("plain_http")),
            authority=str(said.get("authority", "")),
            words=str(said.get("words", "")),
        )

    @classmethod
    def usual(cls, folder: Folder) -> JoinChoice:
        """The session that was interrupted, if there is one; or the only study of the folder."""
        names, begun = study_names(folder), [each for each in interrupted_sessions(folder) if each.file]
        if len(begun) == 1:
            return cls.first(folder, begun[0].file, begun[0].party)
        chosen = cls(folder, names[0] if len(names) == 1 else "")
        try:
            party = "" if chosen.opened is None else usual_party(folder, chosen.opened)
        except TpmdpError:
            return cls(folder)
        return cls.first(folder, chosen.file, party)

    @cached_property
    def opened(self) -> StudyFile | None:
        """The study that is chosen."""
        return open_study(self.folder.file("study", self.file)) if self.file else None

    @property
    def invited(self) -> str:
        """The relay that the invitation names."""
        return "" if self.opened is None else self.opened.relay

    @property
    def lacks_relay(self) -> bool:
        """Whether the study needs the address of a relay, and nobody has given one."""
        return self.study.uses_relay and not self.relay

    @property
    def meant_for(self) -> str:
        """Whom the invitation is for, where that is somebody else; empty if it fits."""
        invited = "" if self.opened is None else self.opened.invited
        return invited if invited != self.party else ""

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
    def ledger_file(self) -> Path:
        """Where the party's ledger is, or will be."""
        return self.folder.file("ledger", f"{self.party}.ledger")

    @property
    def place(self) -> str:
        """What buttons and fields call this choice: the study and the party."""
        return self.place_of(self.party)

    def place_of(self, party: str) -> str:
        """The same for another party."""
        return f"{self.file}|{party}"

    @property
    def files(self) -> PartyFiles:
        """The party's files; as long as it has no key, none is named."""
        key, has_key = self.key_file, self.key_file.exists()
        ledger = self.ledger_file
        peers = self.folder.path / PEERS_FILE
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

    @property
    def begun(self) -> Begun | None:
        """The session, if this party has begun it and it has not ended."""
        if self.run_key is None or self.opened is None or self.opened.terms is None:
            return None
        return begun_here(self.ledger_file, key_of(self.opened.terms))

    @property
    def said(self) -> Mapping[str, Any]:
        """What was said on the page when the session was begun; empty if it was not."""
        if self.run_key is None or self.opened is None or self.opened.terms is None:
            return {}
        return said_before(self.ledger_file, key_of(self.opened.terms))

    def to_keep(self) -> dict[str, object]:
        """What is kept with a session that is begun."""
        names = ("data", "relay", "plain_http", "authority", "words")
        return {each: getattr(self, each) for each in names}

    # What somebody has said -------------------------------------------------------------------------------------------

    def agreement(self, check: PartyCheck) -> str:
        """What a ticked box stands for: this plan, at this charge. Another study or charge needs another tick."""
        if self.opened is None or self.opened.terms is None or check.cost is None:
            return ""
        return f"{self.opened.terms.plan_hash.hex()} {rounded_up(check.cost)}"

    def words_value(self, said: str) -> str:
        """What a choice about the ten words stands for: those of this plan. Another study has others."""
        terms = None if self.opened is None else self.opened.terms
        return "" if terms is None else f"{said} {terms.plan_hash.hex()}"

    @property
    def compared(self) -> Words:
        """What is known about the other parties: pinned keys, or what somebody has said about the ten words."""
        if self.party and self.files.peers_file is not None:
            return "pinned"
        said: tuple[Words, ...] = ("compared", "not compared")
        return next((each for each in said if self.words and self.words == self.words_value(each)), "")

    def command(self) -> str:
        """The command that goes on with the session."""
        words = ["tpmdp", "join", self.file, "--as", self.party, "--key", f"{self.party}.key"]
        if self.data and self.study.party(self.party).records:
            words += ["--data", self.data]
        if self.study.uses_relay:
            words += ["--relay", self.relay or "https://RELAY"]
            words += ["--plain-http"] if self.plain_http else []
            words += ["--ca", self.authority] if self.authority else []
        return f"cd {shlex.quote(str(self.folder.path))} && {shlex.join(words)}"


def _typed_relay(form: PageForm, invited: str) -> str:
    """The relay in a form; one that nobody has typed follows the invitation, which may have been replaced."""
    typed = form.text("relay")
    is_untouched = "relay" not in form.values or (
        "relay-invited" in form.values and typed == form.text("relay-invited")
    )
    return invited or typed if is_untouched else typed
