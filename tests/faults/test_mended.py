"""A session that ends before it is charged costs nothing, and goes on under its number once the cause is mended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.consortium import NAMES, Consortium, check_answers, ended, wait_until
from tests.processes import Process, run
from tpmdp.ledger import Ledger
from tpmdp.study.session import key_of

pytestmark = pytest.mark.process


def spent(consortium: Consortium, name: str) -> float:
    with Ledger.open(consortium.ledger_file(name)) as ledger:
        ledger.verify()
        return ledger.spent().mu


def with_mistake(consortium: Consortium, old: str, new: str) -> Path:
    text = consortium.study_file.read_text()
    assert old in text
    path = consortium.folder / "mistake.toml"
    path.write_text(text.replace(old, new, 1))
    return path


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        ("at_least = 65", "at_least = 66", 'south has another query "old"'),
        ("epsilon = 3.0", "epsilon = 2.5", "south has another epsilon of lab"),
    ],
)
def test_a_mistake_in_one_study_file_is_told_and_costs_nobody_anything(
    tmp_path: Path, old: str, new: str, difference: str
) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "enough"
        wrong = with_mistake(consortium, old, new)
        waiting = {name: consortium.join_until(event, name) for name in ("north", "lab")}
        south = consortium.join("south", study=wrong, harm=(f"late:{event}",))
        wait_until(lambda: consortium.kinds_of(0) & consortium.kinds_of(1) & consortium.kinds_of(2) >= {10})
        event.touch()
        for process in waiting.values():
            late = ended(process)
            assert late.code == 3
            assert difference in late.errors
        assert ended(south).code == 3
        assert [spent(consortium, name) for name in NAMES] == [0.0, 0.0, 0.0]
        # Mended: the same session, the same command.
        again = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        check_answers(again, consortium.study)
        assert all(spent(consortium, name) > 0 for name in NAMES)
        with Ledger.open(consortium.ledger_file("south")) as ledger:
            assert [entry.kind for entry in ledger.entries() if entry.session] == ["hold", "hold", "charge", "settle"]


def test_a_party_that_never_comes_costs_the_others_nothing(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "enough"
        event.touch()
        waiting = [consortium.join_until(event, name) for name in ("north", "lab")]
        for process in waiting:
            assert ended(process).code == 3
        assert spent(consortium, "north") == spent(consortium, "lab") == 0.0
        with Ledger.open(consortium.ledger_file("lab")) as ledger:
            assert ledger.status(key_of(consortium.terms)) == "held"


def test_data_can_be_mended_until_the_agreement_leaves_and_not_afterwards(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        # No relay: nothing leaves, and the next call reads the data again.
        nobody = consortium.join("south", "--deadline", "1s")
        assert ended(nobody).code == 3
        consortium.relay()
        event = tmp_path / "enough"
        event.touch()
        assert ended(consortium.join_until(event, "south")).code == 3  # it has agreed
        data = consortium.data("south")
        data.write_text("this is no table at all\n")
        processes: dict[str, Process] = dict(zip(NAMES, consortium.join_all(), strict=True))
        out, errors = processes["south"].communicate()
        assert processes["south"].wait() == 0, errors
        assert "south has agreed before: its data are as they were then, not read again" in errors
        del out
        answers = {name: ended(processes[name]) for name in ("north", "lab")}
        assert {answer.code for answer in answers.values()} == {0}


def test_a_cancelled_session_is_never_used_again_and_another_number_is(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "enough"
        event.touch()
        assert ended(consortium.join_until(event, "south")).code == 3
        session = consortium.terms.session.hex()
        ledger = consortium.ledger_file("south")
        done = run("ledger", "cancel", ledger, session[:8])
        assert (done.returncode, done.stderr) == (0, "")
        assert "cancelled faults / session 1" in done.stdout
        assert "your agreement may already be with them: it cannot be called back" in done.stdout
        refused = ended(consortium.join("south"))
        assert refused.code == 2
        assert "was cancelled: set another number for the session in the study" in refused.errors
        again = run("ledger", "cancel", ledger, session[:8])
        assert again.returncode == 2
        assert len(again.stderr.splitlines()) == 1
        second = {name: consortium.join(name, "--session", "2") for name in NAMES}
        for process in second.values():
            assert ended(process).code == 0
