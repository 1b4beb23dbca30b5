"""What the Take part view reads from its folder, remembered until a file changes: a form is sent with every key."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from tpmdp._util.fields import read_toml
from tpmdp._util.files import readable
from tpmdp.data.source import SUFFIXES
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.page.folder import Folder
from tpmdp.page.join_words import invitation_error
from tpmdp.protocol.terms import Terms
from tpmdp.study.fingerprint import phrase_of
from tpmdp.study.invitation import invitation_name, invited_party, invited_relay
from tpmdp.study.model import Study
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.party_folder import PartyFiles
from tpmdp.study.peers import PEERS_FILE

STUDY_MAX: Final = 1 << 20
DATA_MAX: Final = 256 << 20
COPIES: Final = (".csv", ".parquet")
_CHECKS_MAX: Final = 8
_SOURCE_S: Final = 30  # how long the check of a source that is not a plain file of records is remembered


@dataclass(frozen=True, eq=False)
class StudyFile:
    """A study in the folder, with what is computed from it once."""

    path: Path
    study: Study
    relay: str
    invited: str = ""  # the party that the file is for, if it says so

    @property
    def lacking(self) -> list[str]:
        """The parties without a public key."""
        return [party.name for party in self.study.parties if party.public_key is None]

    @cached_property
    def terms(self) -> Terms | None:
        """What the parties sign; None as long as keys are missing."""
        return None if self.lacking else self.study.terms()

    @cached_property
    def phrase(self) -> list[str]:
        """The words to compare by telephone."""
        return [] if self.terms is None else phrase_of(self.terms.plan_hash)


def open_study(path: Path) -> StudyFile:
    """The study in a file; read again when the file has changed."""
    return _study(path, state_of(path))


@lru_cache(maxsize=256)
def _study(path: Path, state: Hashable) -> StudyFile:
    del state
    with readable(path, STUDY_MAX):
        text = path.read_bytes().decode("utf-8", "replace")
    study, invited = Study.read(path), invited_party(text)
    names = [party.name for party in study.parties]
    return StudyFile(path, study, invited_relay(text), invited=invited if invited in names else "")


def state_of(path: Path | None) -> Hashable:
    """What changes when a file does; its contents are not read, since closing it would drop a ledger's locks."""
    try:
        status = None if path is None else path.stat()
    except OSError:
        status = None
    return None if status is None else (status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode)


def study_names(folder: Folder) -> list[str]:
    """The files of the folder that hold queries."""
    return [name for name in folder.names(".toml") if _keys(folder.path / name, state_of(folder.path / name))[0]]


def data_names(folder: Folder) -> list[str]:
    """The files of the folder that may hold records, or say where they are."""
    names = folder.names(*SUFFIXES)
    plain = [name for name in names if not name.lower().endswith(".toml")]
    sources = [name for name in names if name.lower().endswith(".toml") and name != PEERS_FILE]
    return plain + [name for name in sources if _keys(folder.path / name, state_of(folder.path / name))[1]]


@lru_cache(maxsize=1024)
def _keys(path: Path, state: Hashable) -> tuple[bool, bool]:
    """Whether a TOML file is a study, and whether it says where records are."""
    del state
    try:
        document = read_toml(path, STUDY_MAX)
    except TpmdpError:
        return False, False
    return "queries" in document, bool({"files", "sql", "sqlite", "postgresql"} & set(document))


def usual_party(folder: Folder, file: StudyFile, before: str = "") -> str:
    """Whom an invitation is for, the party of the study before, or the only one whose key is here; or nobody."""
    names = [party.name for party in file.study.parties]
    invited = [file.invited] if file.invited else [name for name in names if file.path.name == invitation_name(name)]
    keys = set(folder.names(".key"))
    holders = invited or [name for name in names if name == before] or [name for name in names if f"{name}.key" in keys]
    return holders[0] if len(holders) == 1 else ""


def usual_data(folder: Folder, party: str) -> str:
    """The party's own file of records, if it is here."""
    names = data_names(folder)
    return next((f"{party}{suffix}" for suffix in SUFFIXES if f"{party}{suffix}" in names), "")


# Checks ---------------------------------------------------------------------------------------------------------------


class Checks:
    """The last checks of parties: reading a large file of records takes time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[Hashable, PartyCheck] = {}

    def of(self, file: StudyFile, files: PartyFiles) -> PartyCheck:
        """The check of these files as they are now."""
        paths = (file.path, files.key, files.data, files.ledger_file, files.peers_file)
        is_source = files.data is not None and files.data.suffix.lower() == ".toml"
        key = (files.name, paths, tuple(map(state_of, paths)), int(time.time() / _SOURCE_S) if is_source else 0)
        with self._lock:
            if key not in self._known:
                check = files.check()
                while len(self._known) >= _CHECKS_MAX:
                    self._known.pop(next(iter(self._known)))
                self._known[key] = check
            return self._known[key]


# Uploads --------------------------------------------------------------------------------------------------------------


class BroughtStudy(NamedTuple):
    """An uploaded study in the folder, and the file that had its name before; None if there was none."""

    name: str
    before: StudyFile | None = None


def store_study(folder: Folder, name: str, written: Path) -> BroughtStudy:
    """Put an uploaded study into the folder, if it is one."""
    is_study, error = False, FileError(name, "is another kind of file", "choose another one")
    if name.lower().endswith(".toml"):
        is_study, _ = _keys(written, state_of(written))
        try:
            study = Study.read(written)
        except FileError as read_error:
            error = read_error
        else:
            return _store_read(folder, _target(folder, name, (".toml",)), written, study=study)
    raise invitation_error(name, error, is_study=is_study)


def _store_read(folder: Folder, target: Path, written: Path, *, study: Study) -> BroughtStudy:
    before = _present(target)
    if before is not None and _completes(study, before.study):
        os.replace(written, target)
        return BroughtStudy(target.name, before)
    return BroughtStudy(_store(folder, target, written).name, before)


def _present(path: Path) -> StudyFile | None:
    """The study that a file of the folder holds now, if it holds one."""
    try:
        return open_study(path) if path.exists() else None
    except TpmdpError:
        return None


def _completes(study: Study, before: Study) -> bool:
    """Whether this is the same study with keys that were lacking, or the same altogether: a second invitation."""
    is_lacking = any(party.public_key is None for party in before.parties)
    return study.without_keys() == before.without_keys() and (is_lacking or study == before)


class StoredFile(NamedTuple):
    """A file in the folder, and whether it is a new one: the same file may have been there before."""

    name: str
    is_new: bool


def store_data(folder: Folder, name: str, written: Path) -> StoredFile:
    """Put uploaded records into the folder, for their owner's eyes only."""
    return _store(folder, _target(folder, name, COPIES), written)


def copies(folder: Folder) -> list[str]:
    """The files of records in the folder, which may be deleted from there; not what says where records are."""
    return folder.names(*COPIES)


def delete_copy(folder: Folder, name: str) -> None:
    """Delete a file of records from the folder."""
    if name not in copies(folder):
        raise InputError("file to delete", name, "is not a file of records in the folder", "choose it from the list")
    path = folder.file("file to delete", name)
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise FileError(name, f"cannot be deleted ({error.strerror or error})", "check the folder's rights") from None


def _target(folder: Folder, name: str, suffixes: tuple[str, ...]) -> Path:
    if not name.lower().endswith(suffixes):
        raise FileError(name, f"must end in {' or '.join(suffixes)}", "choose another file")
    try:
        return folder.file("file", name)
    except InputError as error:
        remedy = "rename it: letters, digits, blanks and . _ - are fine"
        raise InputError("file", name, error.rule, remedy) from None


def _store(folder: Folder, target: Path, written: Path) -> StoredFile:
    """Move the file, whose mode is 0600. Another file is never replaced: this one gets a number then."""
    is_new = False
    try:
        os.link(written, target)
        is_new = True
    except FileExistsError:
        with readable(target, DATA_MAX) as size:
            is_same = size == written.stat().st_size and target.read_bytes() == written.read_bytes()
        if not is_same:
            return _store(folder, folder.path / folder.free_name(target.name), written)
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error})"
        raise FileError(target.name, problem, "check the disk and the folder") from None
    with suppress(FileNotFoundError):
        written.unlink()
    return StoredFile(target.name, is_new)
