"""SIGKILL of a party in and between rounds: the same command finishes the study, and every round is charged once."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.faults.consortium import NAMES, Consortium, ended, wait_until
from tests.patience import HANG_S
from tests.study.rounds import QUERIES
from tpmdp.ledger import Ledger

pytestmark = pytest.mark.process

ASKED = [
    {"name": "mean", "kind": "zoom", "column": "age", "rounds": 3},
    {"name": "old", "kind": "count", "column": "age", "at_least": 65},
]
STEPS = [
    "before:Ledger.hold_all:1",
    "after:Ledger.hold_all:1",
    "before:Ledger.charge:1",
    "after:Ledger.settle:1",
    "after:Ledger.hold:1",  # of the second round
    "after:Ledger.charge:2",
    "before:Ledger.settle:2",
    "after:Ledger.settle:2",
    "after:Ledger.charge:3",  # of the last round, which erases the records
    "before:Ledger.settle:3",
    "after:Ledger.settle:3",  # at the end
]


def consortium_in(folder: Path) -> Consortium:
    (folder / "queries.py").write_text(QUERIES)
    return Consortium(folder, queries_file=folder / "queries.py", receivers="all", queries=ASKED)


def charges(consortium: Consortium, name: str) -> list[str]:
    with Ledger.open(consortium.ledger_file(name)) as ledger:
        ledger.verify()
        assert ledger.spent().epsilon <= consortium.study.party(name).epsilon
        return [entry.study.rpartition(", ")[2] for entry in ledger.entries() if entry.is_charge]


@pytest.mark.parametrize(
    ("name", "step"),
    [
        pytest.param("south", STEPS[3], marks=pytest.mark.slow),
        *(pytest.param(name, step, marks=pytest.mark.long) for name in NAMES[:2] for step in STEPS),
    ],
)
def test_a_party_killed_at_any_step_finishes_the_study(tmp_path: Path, name: str, step: str) -> None:
    with consortium_in(tmp_path) as consortium:
        consortium.relay()
        others = {other: consortium.join(other) for other in NAMES if other != name}
        victim = consortium.join(name, harm=(f"kill:{step}",))
        victim.communicate(timeout=HANG_S)
        assert victim.returncode == -signal.SIGKILL
        if "charge" in step or "settle" in step or "hold:" in step:  # it agreed: its file is not opened again
            consortium.data(name).write_text("age\nthis is no number\n")
        ends = {other: ended(process) for other, process in {**others, name: consortium.join(name)}.items()}
        outcomes: list[Any] = []
        for other, end in ends.items():
            assert end.code == 0, (other, end.errors)
            outcomes.append(end.outcome)
            assert charges(consortium, other) == ["round 1", "round 2", "round 3"]
            with Ledger.open(consortium.ledger_file(other)) as ledger:
                assert ledger.spent().held == 0
                assert end.outcome["epsilon"] == ledger.spent().epsilon
        assert all(outcome["answers"] == outcomes[0]["answers"] for outcome in outcomes)
        assert [answer["query"] for answer in outcomes[0]["answers"]] == ["mean", "old"]
        assert (outcomes[0]["rounds"], outcomes[0]["rounds_done"]) == (3, 3)


@pytest.mark.slow
def test_a_deadline_after_the_first_round_gives_its_result_and_the_same_command_goes_on(tmp_path: Path) -> None:
    with consortium_in(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "south is gone"
        others = {name: consortium.join_until(event, name) for name in ("north", "lab")}
        victim = consortium.join("south", harm=("kill:after:Ledger.settle:1",))
        victim.communicate(timeout=HANG_S)
        wait_until(lambda: all(charged_once(consortium, name) for name in others))
        event.touch()
        for name, process in others.items():
            end = ended(process)
            assert end.code == 3, (name, end.errors)
            assert end.outcome["rounds_done"] == 1
            assert end.outcome["note"].startswith("stopped after round 1 of 3: the deadline passed")
            assert [answer["query"] for answer in end.outcome["answers"]] == ["mean"]
            assert end.outcome["answers"][0]["low"] is None
            assert charges(consortium, name) == ["round 1"]
        ends = [ended(process) for process in consortium.join_all()]
        assert [end.code for end in ends] == [0, 0, 0]
        assert all(charges(consortium, name) == ["round 1", "round 2", "round 3"] for name in NAMES)


def charged_once(consortium: Consortium, name: str) -> bool:
    """Whether a party has settled the first round."""
    path = consortium.ledger_file(name)
    if not path.exists():
        return False
    with Ledger.open(path) as ledger:
        return any(entry.kind == "settle" for entry in ledger.entries())
