"""Signs of life: what `tpmdp join`, `run` and `status` show while a session goes on."""

from __future__ import annotations

import http.server
import io
import json
import re
import signal
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.test_commands import EXAMPLE, refused, tpmdp
from tests.cli.test_start_commands import Terminal
from tests.faults.consortium import NAMES, Consortium, ended
from tests.patience import wait_until
from tests.processes import Process
from tpmdp._util.warm_process import WarmProcess
from tpmdp.report.status import print_status
from tpmdp.study.status import PartyStatus, StudyStatus


def join_words(consortium: Consortium, name: str, *more: str) -> list[str]:
    words = ["join", str(consortium.study_file), "--as", name, "--key", str(consortium.key(name))]
    return [*words, "--data", str(consortium.data(name)), "--relay", consortium.url, *more]


def status_words(consortium: Consortium, *more: str, name: str = "lab") -> list[str]:
    words = ["status", str(consortium.study_file), "--key", str(consortium.key(name)), "--relay", consortium.url]
    return [*words, *more]


def shown_lines(process: Process | WarmProcess, text: str) -> list[str]:
    """Lines of standard error up to the first with this text."""
    lines: list[str] = []
    while not lines or text not in lines[-1]:
        line = process.stderr.readline().decode()
        assert line, lines
        lines.append(line.rstrip("\n"))
    return lines


pytestmark = pytest.mark.process


def test_without_a_terminal_a_party_logs_each_arrival_and_its_answer_stays_alone(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        south = consortium.start(*join_words(consortium, "south"))
        line = shown_lines(south, "1 of 3 have joined; waiting for north, lab; ")[-1]
        assert re.search(r"; [0-9]+ min [0-9]+ s left$", line)
        lab = consortium.join("lab")
        line = shown_lines(south, "has joined")[-1]
        assert line.startswith("tpmdp: lab has joined (2 of 3); waiting for north; ")
        north = consortium.start(*join_words(consortium, "north", "--events", "none"))
        out, errors = south.communicate()
        lines = errors.splitlines()
        assert lines[0] == "tpmdp: north has joined (3 of 3)"
        between = "tpmdp: all 3 have joined; waiting for the "
        assert all(line.startswith((between + "list of keys of ", between + "mask of ")) for line in lines[1:-2])
        assert lines[-2].startswith("tpmdp: submitted; waiting for the answer of north; ")
        assert lines[-1] == "tpmdp: done"
        assert "receipt" in out
        assert "joined" not in out
        out, errors = north.communicate()
        assert "Answer for north" in out
        assert "joined" not in errors
        end = ended(lab)
        assert [list(line) for line in end.lines] == [["outcome"]]  # nothing else on standard output
        assert (end.events[0]["event"], end.events[0]["joined"]) == ("joined", 2)  # south was there before it
        assert end.events[0]["waiting_for"] == ["north"]
        assert {name for event in end.events for name in event["names"]} == {"north", "south"}
        assert (end.events[-1]["step"], end.events[-1]["joined"]) == ("done", 3)
        assert all(0 < event["seconds_left"] <= 1800 for event in end.events)


def test_the_status_tells_who_has_come_and_changes_nothing(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()

        def status() -> dict[str, object]:
            plain: dict[str, object] = json.loads(tpmdp(*status_words(consortium, "--json"), folder=tmp_path).stdout)
            return plain

        first = status()
        assert (first["known"], first["summary"]) == (False, "nobody has joined at this relay yet")
        assert sessions(consortium) == 0  # not even registered
        assert not consortium.ledger_file("lab").exists()
        north, south = consortium.join("north"), consortium.join("south")
        wait_until(lambda: len(consortium.senders()) == 2)
        south.stderr.close()  # nobody reads its log any more, which must not stop it
        south.stderr = None
        assert status()["summary"] == "2 of 3 have joined; waiting for lab"
        table = tpmdp(*status_words(consortium), folder=tmp_path).stdout
        rows = [line.split() for line in table.splitlines()]
        assert ["north", "yes", "yes", "(lead)", "-"] in rows
        assert ["lab", "-", "-", "-", "-"] in rows
        assert not consortium.ledger_file("lab").exists()
        lab = consortium.join("lab")
        assert [ended(process).code for process in (north, south, lab)] == [0, 0, 0]
        before = {name: consortium.ledger_file(name).read_bytes() for name in NAMES}
        done = status()
        assert done["summary"] == "finished: the lead receiver has sent answers and receipts"
        assert done["lead"] == "north"
        parties = done["parties"]
        assert isinstance(parties, list)
        assert [party["submitted"] for party in parties] == [False, True, True]
        assert all(party["agreed"] and party["key"] and party["answered"] for party in parties)
        assert {name: consortium.ledger_file(name).read_bytes() for name in NAMES} == before


def sessions(consortium: Consortium) -> int:
    with closing(sqlite3.connect(consortium.store)) as connection:
        count: int = connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]
        return count


def test_the_status_names_a_party_with_another_study(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        other = tmp_path / "other.toml"
        other.write_text(consortium.study_file.read_text().replace("65", "66"))
        consortium.join("south", study=other)
        wait_until(lambda: consortium.senders() == {1})
        done = tpmdp(*status_words(consortium), folder=tmp_path)
        assert "0 of 3 have joined; waiting for north, south, lab" in done.stdout
        assert "Another study or plan: south." in done.stdout
        assert ["south", "other", "-", "-", "-"] in [line.split() for line in done.stdout.splitlines()]


def test_a_narrow_status_says_how_far_each_party_is_and_cuts_nothing() -> None:
    from rich.console import Console

    stages = ["-", "agreed", "sent a key", "submitted", "been answered", "another study"]
    parties = tuple(
        PartyStatus(
            f"party_with_a_long_name_{place}",
            agreed=place in range(1, 5),
            key=place in range(2, 5),
            submitted=place in range(3, 5),
            answered=place == 4,
            other_plan=place == 5,
        )
        for place in range(6)
    )
    state = StudyStatus("x / session 1", known=True, attempt=3, lead="party_with_a_long_name_0", parties=parties)
    console = Console(file=io.StringIO(), width=40, highlight=False)
    with console.capture() as capture:
        print_status(state, console)
    text = capture.get()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 40
    for stage in stages:
        assert stage in text
    assert "attempt 3" in text


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that is no relay."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_status_that_cannot_be_asked_for_gets_one_line(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        good = status_words(consortium)

        def changed(flag: str, value: object) -> str:
            words = list(good)
            words[words.index(flag) + 1] = str(value)
            return refused(*words, folder=tmp_path)

        assert "cannot be reached ([Errno 111] Connection refused): check its address" in refused(
            *good, folder=tmp_path
        )
        assert "no.key does not exist" in changed("--key", "no.key")
        assert "is not an address" in changed("--relay", "relay")
        assert "must be https off this machine" in changed("--relay", "http://relay.example.org")
        tpmdp("keygen", "stranger", folder=tmp_path)
        assert "--key = (not shown) is of no party of this study" in changed("--key", "stranger.key")
        assert "no.toml does not exist" in refused("status", "no.toml", *good[2:], folder=tmp_path)
        assert "no.pem" in refused(*good[:-1], "https://127.0.0.1:9", "--ca", "no.pem", folder=tmp_path)
        assert "no.json does not exist" in refused(*good, "--terms", "no.json", folder=tmp_path)
        assert "Missing option '--relay'" in refused(*good[:-2], folder=tmp_path)
        for code, body, words in (
            (404, b"not here", "is no tpmdp relay, or too old to tell the status"),
            (401, b"who are you", "this is not a tpmdp relay"),
            (200, b"<html>", "the relay sent nonsense"),
            (200, b"[]", "the relay sent nonsense"),
            (200, json.dumps({"attempt": 1, "agreed": "ff"}).encode(), "the relay sent nonsense"),
            (200, b"0" * (4 << 20), "sent more than"),
            (302, b"", "the relay refused (302"),
        ):
            with answering(code, body) as url:
                assert words in changed("--relay", url), body[:20]


def test_a_study_without_a_relay_has_no_status_there(tmp_path: Path) -> None:
    queries = [{"name": "m", "kind": "maximum", "of": {"kind": "count", "column": "age", "at_least": 65}}]
    with Consortium(tmp_path, queries=queries) as consortium:
        line = refused(*status_words(consortium), folder=tmp_path)
        assert "is not used by this study, whose parties connect to each other" in line


def test_a_terminal_of_40_columns_shows_the_present_state_and_ctrl_c_leaves_it_tidy(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        with Terminal(tmp_path, *join_words(consortium, "south")) as terminal:
            terminal.read_until("1 of 3 have joined")
            terminal.read_until(" left")
            consortium.join("lab")
            terminal.read_until("2 of 3 have joined; waiting for north")
            terminal.read_until("\x1b[2K")  # drawn again, in its place
            terminal.process.send_signal(signal.SIGINT)
            assert terminal.end() == 130
            assert "\x1b[?25h" in terminal.text  # the cursor is back
            assert terminal.text.rstrip().endswith("tpmdp: interrupted")


def test_the_same_session_again_is_explained(tmp_path: Path) -> None:
    state = tmp_path / "state"
    first = tpmdp("run", EXAMPLE, "--state", state, folder=tmp_path)
    lines = [line.partition(";")[0] for line in first.stderr.splitlines()]
    for word in ("has joined", "is done"):
        places = [line.partition(word)[2] for line in lines if word in line]
        assert places == [f" ({place} of 5)" for place in range(1, 6)]
    assert "finished before" not in first.stdout
    again = tpmdp("run", EXAMPLE, "--state", state, folder=tmp_path)
    assert again.stderr == ""
    assert "Session 1 was finished before. This is its answer again" in again.stdout
    assert "A new session has new noise and a new charge: --session 2, which needs higher limits" in again.stdout
    folder = tmp_path / "changed"
    folder.mkdir()
    for path in EXAMPLE.parent.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    study = folder / "study.toml"
    study.write_text(study.read_text().replace("at_least = 65", "at_least = 60"))
    line = refused("run", study, "--state", state, folder=tmp_path)
    assert "length of stay / session 1 was charged with another plan or query" in line
    assert "session = 2 in the study, or --session 2 for every party" in line
