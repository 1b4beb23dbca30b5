"""The commands of a release as a user calls them: exit codes, one line for each mistake, tables that fit."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path

import pytest

from tests import processes
from tests.patience import HANG_S
from tests.processes import Process
from tpmdp.study.identity import parse_public, read_key

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "stay" / "study.toml"
ENVIRONMENT = {**os.environ, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}


def tpmdp(*words: object, folder: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = processes.run(*words, folder=folder, environment=ENVIRONMENT)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    return done


def refused(*words: object, folder: Path, code: int = 2) -> str:
    done = tpmdp(*words, folder=folder, code=code)
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    return done.stderr


def test_keygen_writes_a_secret_file_and_prints_name_and_key(tmp_path: Path) -> None:
    done = tpmdp("keygen", "north", folder=tmp_path)
    key, _, text = done.stdout.strip().partition(" = ")
    assert key == "north"
    identity = read_key(tmp_path / "north.key")
    assert parse_public("public_key", json.loads(text)) == identity.public_key().public_bytes_raw()
    assert identity.private_bytes_raw().hex() not in done.stdout + done.stderr
    assert "exists already" in refused("keygen", "north", folder=tmp_path)
    assert "letters, digits" in refused("keygen", "../x", folder=tmp_path)
    assert "does not exist" in refused("keygen", "a", "--out", "no/a.key", folder=tmp_path)


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example study, run once."""
    folder = tmp_path_factory.mktemp("run")
    done = tpmdp("run", EXAMPLE, "--state", folder / "state", "--json", folder=folder)
    (folder / "told.json").write_text(done.stdout)
    return folder / "state"


def test_the_example_gives_answers_receipts_and_charges(state: Path) -> None:
    parties = {one["party"]: one for one in json.loads((state.parent / "told.json").read_text())["parties"]}
    assert len(parties) == 5
    receivers = [name for name, one in parties.items() if one["answers"] is not None]
    assert receivers == ["hospital_north", "statistics_office"]
    count, mean = parties["hospital_north"]["answers"]
    assert parties["statistics_office"]["answers"] == [count, mean]
    assert abs(count["value"] - true_count()) < 6 * count["standard_error"]
    assert count["low"] < count["value"] < count["high"]
    for one in parties.values():
        assert 0 < one["epsilon"] <= 0.8000001
        assert one["spent"] >= one["epsilon"] > 0
        assert one["bytes_sent"] > 500
        assert one["guarantee"].startswith("computational")


def true_count() -> int:
    rows = [path.read_text().splitlines()[1:] for path in EXAMPLE.parent.glob("*.csv")]
    return sum(float(line.split(",")[0]) >= 65 for lines in rows for line in lines)


def test_nothing_in_the_state_folder_is_open_to_others(state: Path) -> None:
    for path in state.iterdir():
        if path.name != "study.toml":  # public
            assert path.stat().st_mode & 0o077 == 0, path


def test_the_ledger_of_a_run_can_be_shown_verified_and_exported(state: Path) -> None:
    file = state / "insurer.ledger"
    shown = tpmdp("ledger", "show", file, folder=state)
    assert "length of stay" in shown.stdout
    head = json.loads(tpmdp("ledger", "verify", file, "--json", folder=state).stdout)["head"]
    tpmdp("ledger", "verify", file, "--head", head, folder=state)
    assert "noted earlier" in refused("ledger", "verify", file, "--head", "0" * 64, folder=state)
    lines = tpmdp("ledger", "export", file, folder=state).stdout.splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["open", "bind", "hold", "charge", "settle"]
    tpmdp("ledger", "export", file, "--out", "a.csv", folder=state)
    assert (state / "a.csv").read_text().count("\n") == 6
    (state / "a.csv").unlink()


def test_a_second_session_is_refused_when_it_would_overspend_and_says_what_is_left(state: Path) -> None:
    line = refused("run", EXAMPLE, "--state", state, "--session", 2, folder=state)
    assert "over the limit" in line
    assert "is left" in line
    again = tpmdp("run", EXAMPLE, "--state", state, folder=state)
    assert "nothing new was sent or charged" in again.stdout


def test_a_live_table_is_shown_on_a_terminal(state: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    words = ("run", EXAMPLE, "--state", tmp_path / "s")
    process = Process("tpmdp", *words, stderr=theirs, environment={**ENVIRONMENT, "TERM": "xterm"})
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate(timeout=HANG_S)
    os.close(ours)
    assert process.returncode == 0
    assert b"Parties at work" in shown
    assert b"university" in shown
    assert "Answer for hospital_north, statistics_office" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "no.toml"], "does not exist"),
        (["run", EXAMPLE, "--data", "no"], "does not exist"),
        (["run", EXAMPLE, "--session", "0"], "session = 0 must be"),
        (["run", EXAMPLE, "--deadline", "soon"], "duration"),
        (["join", EXAMPLE, "--as", "x", "--key", "k", "--relay", "http://127.0.0.1:1"], "not a party"),
        (["join", EXAMPLE, "--as", "insurer", "--key", "k", "--relay", "http://127.0.0.1:1"], "k does not exist"),
        (["join", EXAMPLE], "Missing option"),
        (["terms", EXAMPLE, "--out", "t.json"], "public_key of hospital_north"),
        (["relay", "--host", "192.0.2.1"], "needs TLS"),
        (["relay", "--host", "192.0.2.1", "--plain-http"], "name the studies"),
        (["relay", "--port", "99999"], "99999"),
        (["relay", "--port", "0", "--store", "no/relay.sqlite"], "does not exist"),
        (["relay", "--study", "no.toml"], "does not exist"),
        (["ledger", "show", "no.ledger"], "does not exist"),
        (["ledger", "export", "no.ledger", "--out", "a.xlsx"], "must end in .csv"),
        (["ledger", "limit", "no.ledger", "--epsilon", "1e400"], "not a number in range"),
        (["keygen", "all"], "has a special meaning"),
        (["ledger", "create", "a", "--party", "p", "--epsilon", "-1", "--delta", "1e-6"], "epsilon"),
    ],
)
def test_mistakes_get_one_line(tmp_path: Path, words: list[object], message: str) -> None:
    assert message in refused(*words, folder=tmp_path)
    assert [path.name for path in tmp_path.iterdir() if path.name != "tpmdp-state"] == []


def test_plain_http_to_another_machine_must_be_asked_for(tmp_path: Path) -> None:
    tpmdp("keygen", "insurer", folder=tmp_path)
    words = ["join", EXAMPLE, "--as", "insurer", "--key", "insurer.key", "--data", EXAMPLE]
    assert "must be https" in refused(*words, "--relay", "http://192.0.2.1", folder=tmp_path)
    for bad in ("ftp://x", "relay.example.org", "https://", "https://u:p@x", "https://x?y"):
        assert "is not an address" in refused(*words, "--relay", bad, folder=tmp_path)
