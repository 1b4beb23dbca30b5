"""From an idea to a study: `tpmdp init`, `invite`, `accept`, `keygen` and `key show` as a user calls them."""

from __future__ import annotations

import os
import pty
import select
import signal
import stat
import subprocess
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from tests.cli.test_commands import ENVIRONMENT, refused, tpmdp
from tests.patience import HANG_S, wait_until
from tpmdp._util.interpreter import python_command
from tpmdp.data.source import read_table
from tpmdp.data.table import Text
from tpmdp.study.identity import read_key
from tpmdp.study.model import Study

pytestmark = pytest.mark.process

PARTIES = ("--parties", "north,south,west")
QUESTIONS = ("--count", "age", "65", "--mean", "stay", "0", "30", "--histogram", "age", "0,18,65,120")


def start(folder: Path, *words: object) -> Path:
    tpmdp("init", "flu", *PARTIES, "--yes", *words, folder=folder)
    return folder / "flu" / "study.toml"


def test_a_new_study_is_commented_and_runs(tmp_path: Path) -> None:
    file = start(tmp_path, *QUESTIONS, "--epsilon", "0.5,1,2", "--records", "40", "--receivers", "north")
    study = Study.read(file)
    assert (study.name, study.threshold, study.receivers) == ("flu", 1, ("north",))
    assert [(party.name, party.epsilon, party.records) for party in study.parties] == [
        ("north", 0.5, 40),
        ("south", 1.0, 40),
        ("west", 2.0, 40),
    ]
    assert [query.settings()["kind"] for query in study.queries] == ["count", "mean", "histogram"]
    assert file.read_text().count("#") > 8
    done = tpmdp("run", "flu/study.toml", folder=tmp_path)
    assert "Answer for north" in done.stdout
    assert "new ones are made" not in done.stderr  # the trial has its ledgers
    assert sorted(path.name for path in tmp_path.iterdir()) == ["flu"]
    for name in ("north", "south", "west"):
        folder = tmp_path / "flu" / "trial" / name
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert sorted(path.name for path in folder.iterdir()) == [f"{name}.csv", f"{name}.key", f"{name}.ledger"]


def test_without_made_up_records_it_says_where_to_put_real_ones(tmp_path: Path) -> None:
    done = tpmdp("init", "flu", *PARTIES, "--yes", "--no-sample", folder=tmp_path)
    assert "trial/NAME/NAME.csv" in done.stdout
    line = refused("run", "flu/study.toml", folder=tmp_path)
    assert "flu/trial/north/north.csv does not exist" in line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parties", "north"], "--parties = 1 must be at least 2"),
        (["--parties", "north,no rth"], "name of a party = no rth must be letters"),
        (["--parties", 'north,"x"'], "must be letters"),
        (["--parties", "north,[bold]"], "must be letters"),
        (["--parties", "north,\u05e9\u05dc\u05d5\u05dd"], "must be letters"),
        (["--parties", "north,../x"], "must be letters"),
        (["--parties", "north,North"], "differs from north in upper and lower case only"),
        (["--epsilon", "1,2"], "must be one number for all 3 parties, or 3 numbers"),
        (["--epsilon", "none"], "epsilon = none is not a number"),
        (["--epsilon", "-1"], "epsilon = -1 must be more than 0"),
        (["--records", "2.5"], "records = 2.5 must be a whole number"),
        (["--records", "200000"], "--records = 200000 must be at most 100,000 for made-up records"),
        (["--threshold", "3"], "--threshold = 3 must be less than the number of parties (3)"),
        (["--receivers", "east"], "receivers"),
        (["--count", "age", "x"], "AT_LEAST of age = x is not a number"),
        (["--mean", "age", "9", "1"], "bounds of mean age"),
        (["--mean", "age", "0"], "HIGH of age = --yes is not a number"),
        (["--regression", "stay 0 60"], "--regression = stay 0 60 must name a column, the word on, and other columns"),
        (["--regression", "stay 0 60 on age 0"], "must name a column, the word on, and other columns"),
        (["--regression", "stay 0 60 on age 0 x"], "HIGH of age = x is not a number"),
        (["--delta", "2"], "delta of north = 2.0 must lie in (0, 1)"),
        (["--name", "a\nb"], "printable characters"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(tmp_path: Path, words: list[str], message: str) -> None:
    given = [*PARTIES, *words] if "--parties" not in words else words
    assert message in refused("init", "flu", *given, "--yes", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_changed_study_gets_a_new_trial(tmp_path: Path) -> None:
    file = start(tmp_path, "--records", "40", "--regression", "stay 0 60 on age 0 110, smoker 0 1")
    tpmdp("run", "flu/study.toml", folder=tmp_path)
    more = """
[[queries]]
name = "cost of the old"
kind = "mean"
column = "cost"
low = 0
high = 1000
where = "region in ('north', 'o''hare') and not ward = 7"
"""
    file.write_text(file.read_text() + more)
    assert "or make a new trial with tpmdp init flu --again" in refused("run", "flu/study.toml", folder=tmp_path)
    assert "tpmdp run flu/study.toml" in tpmdp("init", "flu", "--again", folder=tmp_path).stdout
    answers = tpmdp("run", "flu/study.toml", folder=tmp_path).stdout
    assert "cost of the old" in answers
    assert "stay by age, smoker" in answers
    assert sorted(path.name for path in (tmp_path / "flu").iterdir()) == ["study.toml", "trial"]
    table = read_table(tmp_path / "flu/trial/north/north.csv", {"region": "text", "smoker": "number", "cost": "number"})
    assert {"north", "o'hare"} == set(cast(Text, table["region"]).values)
    assert set(np.asarray(table["smoker"])) == {0.0, 1.0}
    assert "--again = flu takes the study as it is" in refused(
        "init", "flu", "--again", "--epsilon", "2", folder=tmp_path
    )
    assert "study.toml does not exist" in refused("init", "elsewhere", "--again", folder=tmp_path)
    assert not (tmp_path / "elsewhere").exists()


def test_a_folder_that_has_a_study_or_cannot_be_written_is_left_alone(tmp_path: Path) -> None:
    before = start(tmp_path).read_bytes()
    assert "flu/study.toml exists already" in refused("init", "flu", *PARTIES, "--yes", folder=tmp_path)
    assert (tmp_path / "flu" / "study.toml").read_bytes() == before
    (tmp_path / "file").write_text("")
    line = refused("init", "file/flu", *PARTIES, "--yes", folder=tmp_path)
    assert "file/flu cannot be written (Not a directory)" in line


def test_without_a_terminal_nothing_is_asked(tmp_path: Path) -> None:
    assert "--yes = (not given) is needed where there is no terminal" in refused("init", "flu", folder=tmp_path)


class Terminal:
    """The command-line tool at a terminal of 40 columns, with somebody who types."""

    def __init__(self, folder: Path, *words: object) -> None:
        self._ours, theirs = pty.openpty()
        environment = {**ENVIRONMENT, "COLUMNS": "40"}
        command = python_command("-m", "tpmdp", *map(str, words))
        self.process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment
        )
        os.close(theirs)
        self.text = ""

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._ours)

    def read_until(self, text: str) -> None:
        while text not in self.text:
            assert select.select([self._ours], [], [], HANG_S)[0]
            self.text += os.read(self._ours, 1000).decode()
        self.text = self.text.partition(text)[2]

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode() + b"\n")

    def interrupt(self) -> None:
        """Ctrl-C while it waits for an answer: an interpreter that is about to read would not notice it."""
        stat = Path(f"/proc/{self.process.pid}/stat")
        wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        os.kill(self.process.pid, signal.SIGINT)

    def end(self) -> int:
        with suppress(OSError):
            while data := os.read(self._ours, 1000):
                self.text += data.decode()
        return self.process.wait(HANG_S)


PROMPTS = ("Name of the study", "Names of the parties", "epsilon", "Records", "collude", "learns", "Ask for", "Make up")


def test_everything_is_asked_and_a_mistake_is_asked_again(tmp_path: Path) -> None:
    with Terminal(tmp_path, "init", "flu") as terminal:
        answers = ("winter flu", "a b, c", "0.5", "30", "1", "all", "count age 65", "yes")
        for prompt, answer in zip(PROMPTS, answers, strict=True):
            terminal.read_until(prompt)
            terminal.read_until("]: ")
            terminal.type(answer)
            if answer == "a b, c":
                terminal.read_until("must be letters")
                terminal.read_until("]: ")
                terminal.type("a, c")
        assert terminal.end() == 0
    study = Study.read(tmp_path / "flu" / "study.toml")
    assert (study.name, [party.name for party in study.parties]) == ("winter flu", ["a", "c"])


@pytest.mark.parametrize("at", range(len(PROMPTS)))
def test_ctrl_c_at_a_prompt_leaves_nothing(tmp_path: Path, at: int) -> None:
    with Terminal(tmp_path, "init", "flu") as terminal:
        for prompt in PROMPTS[:at]:
            terminal.read_until(prompt)
            terminal.read_until("]: ")
            terminal.type("")
        terminal.read_until(PROMPTS[at])
        terminal.read_until("]: ")
        terminal.interrupt()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.text
    assert list(tmp_path.iterdir()) == []


# --- keys and invitations ------------------------------------------------------------------------------------------


@pytest.fixture
def keys(tmp_path: Path) -> dict[str, str]:
    """The line that each party sends to the author of the study."""
    return {
        name: tpmdp("keygen", name, "--out", f"{name}.key", folder=tmp_path).stdout.strip()
        for name in ("north", "south", "west")
    }


def test_a_key_is_shown_again(tmp_path: Path, keys: dict[str, str]) -> None:
    assert tpmdp("key", "show", "north.key", folder=tmp_path).stdout.strip() == keys["north"]
    assert tpmdp("key", "show", "north.key", "--name", "st.mary", folder=tmp_path).stdout.startswith('"st.mary" = ')
    assert read_key(tmp_path / "north.key").private_bytes_raw().hex() not in str(keys)
    assert "no.key does not exist" in refused("key", "show", "no.key", folder=tmp_path)
    (tmp_path / "bad.key").touch(mode=0o600)
    assert "bad.key is not a key file" in refused("key", "show", "bad.key", folder=tmp_path)


def test_returned_keys_are_written_and_invitations_can_be_joined(tmp_path: Path, keys: dict[str, str]) -> None:
    file = start(tmp_path, "--count", "age", "65", "--records", "30")
    before = file.read_text()
    done = tpmdp("invite", file, folder=tmp_path)
    assert "no public key yet of north, south, west" in done.stderr
    asked = (tmp_path / "flu" / "invitations" / "south.study.toml").read_text()
    assert "# Key:      tpmdp keygen south" in asked
    assert "tpmdp join" not in asked
    for name, line in keys.items():
        done = tpmdp("accept", file, line, folder=tmp_path)
        assert f"wrote the key of {name}" in done.stdout
    assert "all parties have keys" in done.stdout
    added = [line for line in file.read_text().splitlines() if line not in before.splitlines()]
    assert [line.partition(" = ")[0] for line in added] == ["public_key"] * 3  # and every comment has stayed
    assert "has this key of north already" in tpmdp("accept", file, keys["north"], folder=tmp_path).stdout
    done = tpmdp("invite", file, "--relay", "https://relay.example.org", "--out", "out", folder=tmp_path)
    assert done.stderr == ""
    texts = {name: (tmp_path / "out" / f"{name}.study.toml").read_text() for name in keys}
    phrase = tpmdp("fingerprint", file, folder=tmp_path).stdout.splitlines()[1].partition(": ")[2].strip()
    for name, text in texts.items():
        command = f"tpmdp join {name}.study.toml --as {name} --key {name}.key --data {name}.csv"
        assert f"{command} --relay https://relay.example.org" in text
        assert phrase not in text  # whoever changes the file could write other words
    assert len({Study.parse(tomllib.loads(text)).terms().plan_hash for text in texts.values()}) == 1
    # The trial goes on with keys of its own.
    assert "Answer for north" in tpmdp("run", file, folder=tmp_path).stdout


def test_mistakes_of_keys_get_one_line_and_change_nothing(tmp_path: Path, keys: dict[str, str]) -> None:
    file = start(tmp_path)
    tpmdp("accept", file, keys["north"], folder=tmp_path)
    before = file.read_bytes()
    north, south = (keys[name].partition('"')[2].strip('"') for name in ("north", "south"))
    assert "is the key of north already" in refused("accept", file, "north", south, folder=tmp_path)
    assert "is that of north" in refused("accept", file, "south", north, folder=tmp_path)
    assert "party = east is not a party" in refused("accept", file, "east", south, folder=tmp_path)
    assert "is not a public key" in refused("accept", file, "south", "ed25519:AAAA", folder=tmp_path)
    assert "PUBLIC_KEY = (none) is missing" in refused("accept", file, "south", folder=tmp_path)
    assert "no.toml does not exist" in refused("accept", "no.toml", keys["south"], folder=tmp_path)
    assert "cannot be created" in refused("invite", file, "--out", "/dev/null/x", folder=tmp_path)
    assert "--relay = ftp://x" in refused("invite", file, "--relay", "ftp://x", folder=tmp_path)
    assert file.read_bytes() == before
    done = tpmdp("accept", file, "north", south, "--replace", folder=tmp_path)
    assert "wrote the key of north" in done.stdout
    assert before.decode().replace(north, south) == file.read_text()


def test_a_file_in_another_style_is_not_edited(tmp_path: Path, keys: dict[str, str]) -> None:
    file = tmp_path / "study.toml"
    parties = ", ".join(f'{{ name = "{name}", epsilon = 1, records = 5 }}' for name in keys)
    query = '{ name = "old", kind = "count", column = "age", at_least = 65 }'
    file.write_text(
        f'name = "x"\ndelta = 1e-6\nthreshold = 1\nreceivers = "all"\nparties = [{parties}]\nqueries = [{query}]\n'
    )
    before = file.read_bytes()
    line = refused("accept", file, keys["north"], folder=tmp_path)
    assert "lists north in a way that cannot be edited here: write public_key" in line
    assert file.read_bytes() == before
