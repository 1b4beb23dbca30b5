"""A new study: a commented study file, and a trial with a key, a ledger and made-up records for every party."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.files import check_output, replacing
from tpmdp._util.party_files import TRIAL, party_file
from tpmdp.errors import FileError, InputError
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.study.file import to_toml
from tpmdp.study.identity import write_key
from tpmdp.study.model import Study
from tpmdp.study.sample import sample_columns
from tpmdp.study.session import open_or_create_ledger

STUDY_FILE: Final = "study.toml"
DELTA: Final = 1e-6
_SAMPLE_MAX: Final = 100_000  # made-up records per party

_HEAD: Final = """\
# A study for tpmdp. Every party needs this same file.
#   tpmdp query explain --study {file}   what it would give and cost; nothing is run
#   tpmdp run {file}                     a trial on this machine
#   tpmdp invite {file}                  a file for every party, with the command to join
# Two lines that every invitation shows, if you write them here without the first #:
# purpose = "what the answer is for"
# contact = "whom to ask, and how"
"""
_COMMENTS: Final = {
    "name = ": "shown to all parties",
    "session = ": "a new number is a new release, charged anew",
    "threshold = ": "how many parties may pool what they see, without breaking any budget",
    "receivers = ": "who learns the answer; everybody else gets a receipt",
    "unit = ": 'what is protected: one "record", or all records of a "party"',
    "deadline = ": "how long a party waits for the others; or a moment: 2027-01-31T12:00:00Z",
    "delta = ": "the chance that the promise of epsilon fails; well below 1 / records",
    "epsilon = ": "the privacy budget: smaller is stricter",
    "records = ": "public",
    "low = ": "values outside low and high are moved to them, so choose plausible ones",
}


@dataclass(frozen=True)
class Draft:
    """What `tpmdp init` asks for."""

    name: str
    parties: Sequence[str]
    epsilon: Sequence[float]
    records: Sequence[int]
    threshold: int
    receivers: Sequence[str]
    queries: Sequence[dict[str, Any]]
    delta: float = DELTA

    def study(self) -> Study:
        """The study, checked as a file is."""
        members = zip(self.parties, self.epsilon, self.records, strict=True)
        return Study.parse(
            {
                "name": self.name,
                "threshold": self.threshold,
                "receivers": "all" if list(self.receivers) == ["all"] else list(self.receivers),
                "delta": self.delta,
                "parties": [{"name": name, "epsilon": eps, "records": size} for name, eps, size in members],
                "queries": list(self.queries),
            }
        )


def commented_toml(draft: Draft, file: str = STUDY_FILE) -> str:
    """The text of the study file, with a comment at the first of each key.

    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> draft = Draft("flu", ["north", "south"], [1.0, 2.0], records=[9, 5], threshold=1, receivers=["all"],
    ...               queries=[query])
    >>> print(commented_toml(draft).splitlines()[8])
    name = "flu"  # shown to all parties
    """
    study = draft.study()
    top = {
        "name": draft.name,
        "session": 1,
        "threshold": draft.threshold,
        "receivers": "all" if list(draft.receivers) == ["all"] else list(draft.receivers),
        "unit": "record",
        "deadline": "10m",
        "delta": draft.delta,
    }
    text = to_toml(top, [_without_delta(party) for party in study.parties], draft.queries)
    waiting = dict(_COMMENTS)
    lines = []
    for line in text.splitlines():
        key = next((key for key in waiting if line.startswith(key)), None)
        lines.append(line if key is None else f"{line}  # {waiting.pop(key)}")
    return _HEAD.format(file=file) + "\n" + "\n".join(lines) + "\n"


def _without_delta(party: Any) -> dict[str, Any]:
    return {"name": party.name, "epsilon": party.epsilon, "records": party.records}


def renew_trial(folder: Path, sample: bool, kinds: Kinds = KINDS) -> None:
    """Make the trial of a study file anew, with new keys, ledgers and records, in place of the one before."""
    study = Study.read(folder / STUDY_FILE, kinds).without_keys()
    _check_sample(study, sample)
    trial, new, old = (folder / name for name in (TRIAL, f".{TRIAL}-new", f".{TRIAL}-old"))
    try:
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)
        _write_trial(new, study, sample)
        if trial.exists():
            trial.rename(old)
        new.rename(trial)
    except OSError as error:
        raise FileError(folder, f"cannot be written ({error.strerror or error})", "choose another folder") from None
    finally:
        for left in (new, old):
            shutil.rmtree(left, ignore_errors=True)


def _check_sample(study: Study, sample: bool) -> None:
    size = max(party.records for party in study.parties)
    if sample and size > _SAMPLE_MAX:
        rule = f"must be at most {_SAMPLE_MAX:,} for made-up records"
        raise InputError("records", size, rule, "leave the sample out, or make up fewer")


def write_study(folder: Path, draft: Draft, sample: bool) -> Study:
    """Write study.toml and a trial folder; with `sample` also made-up records. Nothing is left if that fails."""
    study = draft.study()
    path, trial = folder / STUDY_FILE, folder / TRIAL
    for taken in (path, trial):
        if taken.exists():
            remedy = "choose another folder; or, for a new trial of that study, add --again"
            raise FileError(taken, "exists already", remedy)
    _check_sample(study, sample)
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        check_output(path)
        _write_trial(trial, study, sample)
        with replacing(path) as temporary:
            temporary.write_text(commented_toml(draft), encoding="utf-8")
    except BaseException as error:
        shutil.rmtree(trial, ignore_errors=True)
        if new:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise FileError(folder, f"cannot be written ({error.strerror or error})", "choose another folder") from None
        raise
    return study


def _write_trial(trial: Path, study: Study, sample: bool) -> None:
    trial.mkdir(mode=0o700)
    random = np.random.default_rng(1)
    for party in study.parties:
        (trial / party.name).mkdir(mode=0o700)
        identity = Ed25519PrivateKey.generate()
        write_key(party_file(trial, party.name, ".key"), identity)
        ledger = party_file(trial, party.name, ".ledger")
        open_or_create_ledger(ledger, study, party.name, identity=identity).close()
        if sample and party.records:
            columns = sample_columns(study, party.name, random)
            with party_file(trial, party.name, ".csv").open("w", encoding="utf-8", newline="") as stream:
                rows = csv.writer(stream, lineterminator="\n")
                rows.writerow(columns)
                rows.writerows(zip(*columns.values(), strict=True))
