"""Files of Study in the page's folder: studies that are saved and opened, and invitations."""

from __future__ import annotations

import hashlib
import io
import threading
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tpmdp._util.files import readable, replacing
from tpmdp.engines.relay.mailbox import check_url
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.page.folder import Folder
from tpmdp.study.invitation import invitation, invitation_name, write_invitations
from tpmdp.study.model import Study
from tpmdp.study.peers import PEERS_FILE

_FIELD: Final = "file in the folder"
_SUFFIX: Final = ".toml"
STUDY_BYTES_MAX: Final = 16 << 20


@dataclass
class StudyShelf:
    """The studies of a folder, and what this page has written there since it was started."""

    folder: Folder
    _written: dict[str, str] = field(default_factory=dict)  # hashes by name
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def names(self) -> list[str]:
        """The files that may be studies."""
        return [name for name in self.folder.names(_SUFFIX) if name != PEERS_FILE]

    def open(self, name: str) -> Study:
        """A study of the folder."""
        if name not in self.names():
            raise InputError("study file", name, "is not in the folder", "choose one from the list")
        return Study.read(self.folder.file("study file", name))

    def save(self, study: Study, name: str, *, may_replace: bool) -> Path:
        """Write the study; another study is replaced only if that is allowed, and other files never."""
        path = self._path(name)
        text = study.toml()
        with self._lock:
            self._check_free(path, may_replace)
            with replacing(path) as temporary:
                temporary.write_text(text, encoding="utf-8")
            self._written[name] = _hash(text.encode())
        return path

    def twin(self, study: Study, name: str) -> str:
        """Another file of the folder with another study of the same name and session; empty if there is none."""
        for other in self.names():
            try:
                present = Study.read(self.folder.file(_FIELD, other))
            except TpmdpError:
                continue
            if other != name and present.label == study.label and present.without_keys() != study.without_keys():
                return other
        return ""

    def _path(self, name: str) -> Path:
        if not name.endswith(_SUFFIX) or name.casefold() == PEERS_FILE:
            rule = f"must end in {_SUFFIX}, and not be {PEERS_FILE}, which is for public keys"
            raise InputError(_FIELD, name, rule, "write such as study.toml")
        try:
            return self.folder.file(_FIELD, name)
        except InputError as error:
            remedy = "use letters, digits and blanks, such as study.toml"
            raise InputError(error.field, error.value, error.rule, remedy) from None

    def _check_free(self, path: Path, may_replace: bool) -> None:
        if not path.exists():
            return
        with readable(path, STUDY_BYTES_MAX):
            present = _hash(path.read_bytes())
        if self._written.get(path.name) == present:
            return
        try:
            other = Study.read(path)
        except FileError:
            rule = "is there already, and is not a study that this page can read"
            raise InputError(_FIELD, path.name, rule, "choose another name") from None
        if not may_replace:
            rule = f"is there already (the study {other.label})"
            raise InputError(_FIELD, path.name, rule, "choose another name, or tick that it may be replaced")

    def invite(self, study: Study, name: str, *, relay: str | None) -> list[Path]:
        """Write the file of every party into a folder beside the study file of this name."""
        folder = self.folder.file("folder for invitations", f"{self._path(name).stem} invitations")
        with self._lock:
            return write_invitations(study, folder, relay=relay)


def read_study(path: Path, file: str) -> Study:
    """A study that was sent from the browser; errors call it by the name that it has for its owner."""
    try:
        return Study.read(path)
    except FileError as error:
        raise FileError(file, error.problem, error.remedy) from None


def zipped_invitations(study: Study, relay: str | None) -> bytes:
    """The files of all parties in one."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for party in study.parties:
            archive.writestr(invitation_name(party.name), invitation(study, party.name, relay=relay))
    return packed.getvalue()


def relay_of(text: str) -> str | None:
    """The address of a relay that somebody typed; None if it is left empty.

    >>> relay_of("https://relay.example.org/"), relay_of("")
    ('https://relay.example.org', None)
    """
    try:
        return check_url(text, plain_http=False) if text else None
    except InputError as error:
        remedy = "write https://host:port, or http://127.0.0.1:port for a relay on this machine"
        raise InputError(error.field, error.value, error.rule, remedy) from None


def _hash(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
