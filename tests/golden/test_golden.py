"""Files and texts of version 0.5.0 mean the same today: hashes, encodings, plans, ledgers, studies.

The files beside this one were written by that version (`state` by `tpmdp run`; `begun.ledger` by a party that was
charged and then stopped). Write `expected.json` anew only where a format changes on purpose:
`python -m tests.golden.test_golden`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import tpmdp
from tests.golden.observe import HERE, observe
from tpmdp.cli.main import cli
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.planning.plan_file import read_plan
from tpmdp.study import join as participation
from tpmdp.study.contribution import contribute
from tpmdp.study.identity import read_key
from tpmdp.study.session import SessionAccount, check_room

EXPECTED = HERE / "expected.json"
HEADS = {
    "north": "d8db643007a3136ecc05921ac9667265337ca3e268627ffb3e0f2dfb9648787b",
    "south": "14d4f3379dd9f7d692a9f8ad8720f136c87d25756dd531f770df840d89e5d3af",
}
VECTOR = "d363f3a49fb4270d565ad7e9dae8f25e9ed4539daab7c74dd312be958282213b"


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    shutil.copytree(HERE / "state", folder)
    for file in folder.iterdir():
        file.chmod(0o600)
    return folder


def test_what_both_ends_of_a_session_agree_on_is_unchanged() -> None:
    assert observe() == json.loads(EXPECTED.read_text())


@pytest.mark.parametrize("name", ["equal", "balanced"])
def test_plans_of_the_version_before_are_valid(name: str) -> None:
    spec, certificate = read_plan(HERE / f"plan_{name}.json")
    assert spec.count == 5
    assert certificate.check(spec).gap < 1e-9


@pytest.mark.parametrize("name", sorted(HEADS))
def test_ledgers_of_the_version_before_verify(state: Path, name: str) -> None:
    with tpmdp.Ledger.open(state / f"{name}.ledger") as ledger:
        ledger.verify(head=HEADS[name])
        assert [entry.kind for entry in ledger.entries()] == ["open", "reserve", "settle"]
        assert ledger.spent().sessions == 1


def test_a_settled_session_gives_the_same_answer_again(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(participation, "_RESEND_S", 0.1)  # nobody listens
    files = {name: str(state / f"north.{name}") for name in ("key", "ledger")}
    command = ["join", str(state / "study.toml"), "--as", "north", "--json", "--deadline", "1s"]
    command += ["--key", files["key"], "--ledger", files["ledger"], "--data", str(state / "north.csv")]
    done = CliRunner().invoke(cli, [*command, "--relay", "http://127.0.0.1:1"])
    assert done.exit_code == 0, done.output
    outcome = json.loads(done.stdout.splitlines()[-1])["outcome"]
    assert outcome["again"] is True
    assert [(answer["query"], answer["value"]) for answer in outcome["answers"]] == [
        ("old", 1.8765907901710732),
        ("stay", 9.238773391190897),
    ]


def test_a_session_begun_by_the_version_before_can_be_read_and_not_gone_on_with(state: Path) -> None:
    """Parties agreed on keys in another way then. What it drew lies in the ledger unchanged."""
    study = tpmdp.Study.read(state / "study.toml").with_session(2)
    terms = study.terms().before
    table = tpmdp.read_table(state / "south.csv", study.columns_of("south"))
    with tpmdp.Ledger.open(state / "begun.ledger") as ledger:
        account = SessionAccount(study, terms, "south", identity=read_key(state / "south.key"), ledger=ledger)
        contribution = replace(contribute(study, study.terms(), "south", table), terms=terms)
        vector = account.charge(account.hold(contribution))
        assert hashlib.sha256(vector.tobytes()).hexdigest() == VECTOR
        assert LedgerSecrets(ledger, account.key).last_attempt() == 1
        assert ledger.spent().sessions == 1
        with pytest.raises(tpmdp.InputError, match="was begun with other data"):
            account.hold(
                replace(contribute(study, study.terms(), "south", {**table, "age": np.full(9, 90.0)}), terms=terms)
            )
        ledger.verify()
        with pytest.raises(tpmdp.LedgerError, match=r"was begun by a version of tpmdp before 0\.12"):
            check_room(study, study.terms(), study.index("south"), ledger)
    with pytest.raises(tpmdp.InputError, match=r"key agreement = x25519 must be x25519\+ml-kem-768"):
        terms.check(0)


if __name__ == "__main__":
    EXPECTED.write_text(json.dumps(observe(), indent=1) + "\n")
