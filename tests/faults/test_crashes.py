"""SIGKILL of every role at every step, of the relay too: the session is finished by the same command, charged once."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

from tests.faults.consortium import NAMES, Consortium, check_answers, ended, wait_until
from tests.patience import HANG_S
from tpmdp.ledger import Ledger
from tpmdp.protocol.masks import from_words, word_type
from tpmdp.study.session import key_of

pytestmark = pytest.mark.process

STEPS = [
    "before:Ledger.hold:1",
    "after:Ledger.hold:1",
    "before:Ledger.charge:1",
    "after:Ledger.charge:1",
    "before:Mailbox.post:1",
    "after:Mailbox.post:1",
    "before:Mailbox.post:2",
    "after:Mailbox.post:2",
    "before:Ledger.settle:1",
    "after:Ledger.settle:1",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("name", [NAMES[0], *(pytest.param(name, marks=pytest.mark.long) for name in NAMES[1:])])
def test_a_party_killed_at_any_step_finishes_the_session_when_it_comes_back(
    tmp_path: Path, name: str, step: str
) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        others = {other: consortium.join(other) for other in NAMES if other != name}
        victim = consortium.join(name, harm=(f"kill:{step}",))
        victim.communicate(timeout=HANG_S)
        assert victim.returncode == -signal.SIGKILL
        consortium.check_ledgers()
        again = consortium.join(name)
        told = {other: ended(process) for other, process in {**others, name: again}.items()}
        value = check_answers(told, consortium.study)
        consortium.check_ledgers()
        assert {one.outcome["attempt"] for one in told.values()} == {1}
        # Asked once more, everybody tells the same, and nothing is charged.
        assert ended(consortium.join("lab")).outcome["answers"][0]["value"] == value
        consortium.check_ledgers()


@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_all_killed_before_they_settle_get_the_answer_of_the_noise_they_had_drawn(
    tmp_path: Path, guarantee: str
) -> None:
    """The answer after the crash is exactly the sum of the noisy vectors fixed before it: no noise lost or redrawn."""
    with Consortium(tmp_path, guarantee) as consortium:
        consortium.relay()
        others = {name: consortium.join(name) for name in ("south", "lab")}
        lead = consortium.join("north", harm=("kill:before:Ledger.settle:1",))
        lead.communicate(timeout=HANG_S)  # it had the sum, and told nobody
        assert lead.returncode == -signal.SIGKILL
        for process in others.values():
            process.kill()
            process.communicate()
        terms = consortium.terms
        total = np.zeros(1, dtype=word_type(terms.grid.word))
        for name in NAMES:
            with Ledger.open(consortium.ledger_file(name)) as ledger:
                kept = ledger.private_state(key_of(terms))
                total += np.frombuffer(kept["vector"], dtype=total.dtype)
        told = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        expected = terms.grid.decode(from_words(total, terms.grid.word))[0]
        assert check_answers(told, consortium.study) == expected
        consortium.check_ledgers()
        for name in NAMES:  # what could undo the noise is erased
            with Ledger.open(consortium.ledger_file(name)) as ledger:
                assert set(ledger.private_state(key_of(terms))) - {"outbox"} == {"plan", "data", "told"}


@pytest.mark.parametrize(
    "step",
    [
        "before:RelayStore.open_session:1",
        "after:RelayStore._add:1",
        "before:RelayStore._add:2",
        "after:RelayStore._add:3",
        "before:RelayStore._add:4",
        "after:RelayStore._add:5",
        "before:RelayStore._add:6",
        "before:RelayStore.pick:3",
    ],
)
def test_a_relay_killed_at_any_step_and_started_again_loses_nothing(tmp_path: Path, step: str) -> None:
    with Consortium(tmp_path) as consortium:
        relay = consortium.relay(f"kill:{step}")
        processes = dict(zip(NAMES, consortium.join_all(), strict=True))
        relay.communicate(timeout=HANG_S)
        assert relay.returncode == -signal.SIGKILL
        consortium.relay()
        told = {name: ended(process) for name, process in processes.items()}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


def test_an_answer_to_the_first_attempt_reaches_a_party_that_was_killed_in_its_second(tmp_path: Path) -> None:
    """south gave up on the first attempt and was killed before its new key left; meanwhile the first one finished."""
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "south submitted"
        lab, south = consortium.join("lab"), consortium.join_until(event, "south")
        lead = consortium.join("north", harm=("kill:before:Ledger.settle:1",))
        lead.communicate(timeout=HANG_S)
        event.touch()
        assert ended(south).code == 3  # it had submitted, and heard nothing
        again = consortium.join("south", harm=("kill:before:Mailbox.post:2",))  # its new key is drawn, not sent
        again.communicate(timeout=HANG_S)
        assert again.returncode == -signal.SIGKILL
        told = {"north": ended(consortium.join("north")), "lab": ended(lab)}
        told["south"] = ended(consortium.join("south"))
        check_answers(told, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize("step", ["before:Ledger.discard:1", "after:Ledger.discard:1"])
def test_a_party_killed_while_it_gives_up_an_attempt_keeps_its_pads_straight(tmp_path: Path, step: str) -> None:
    """Statistical mode: pads are forgotten only after the next attempt's key is kept."""
    with Consortium(tmp_path, "statistical") as consortium:
        consortium.relay()
        event = tmp_path / "lab was killed"
        others = [consortium.join_until(event, name) for name in ("north", "south")]
        late = consortium.join("lab", harm=("kill:before:Mailbox.post:2",))  # keys and agreement, nothing more
        late.communicate(timeout=HANG_S)
        event.touch()
        assert [ended(process).code for process in others] == [3, 3]
        killed = consortium.join("north", harm=(f"kill:{step}",))
        killed.communicate(timeout=HANG_S)
        assert killed.returncode == -signal.SIGKILL
        told = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize("moment", ["agree", "submit"])
def test_a_relay_replaced_by_an_empty_one_gets_everything_again(tmp_path: Path, moment: str) -> None:
    with Consortium(tmp_path) as consortium:
        relay = consortium.relay()
        processes = {name: consortium.join(name) for name in ("south", "lab")}
        if moment == "submit":
            lead = consortium.join("north", harm=("kill:before:Ledger.settle:1",))
            lead.communicate(timeout=HANG_S)
        else:
            wait_until(lambda: consortium.senders() == {1, 2})
        relay.kill()
        relay.communicate()
        for path in tmp_path.glob("relay.sqlite*"):
            path.unlink()
        consortium.relay()
        processes["north"] = consortium.join("north")
        check_answers({name: ended(process) for name, process in processes.items()}, consortium.study)
        consortium.check_ledgers()


def test_the_lead_receiver_sends_answers_again_when_the_relay_lost_them(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        relay = consortium.relay()
        processes = {name: consortium.join(name, harm=("kill:before:Ledger.settle:1",)) for name in ("south", "lab")}
        told = {"north": ended(consortium.join("north"))}
        for process in processes.values():
            process.communicate(timeout=HANG_S)
        relay.kill()
        relay.communicate()
        for path in tmp_path.glob("relay.sqlite*"):
            path.unlink()
        consortium.relay()
        late = {name: consortium.join(name) for name in ("south", "lab")}
        assert ended(consortium.join("north")).outcome["again"]
        told |= {name: ended(process) for name, process in late.items()}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_no_process_outlives_a_run_that_is_stopped(tmp_path: Path, number: signal.Signals) -> None:
    with Consortium(tmp_path) as consortium:
        state = tmp_path / "state"
        words = ["run", str(consortium.study_file), "--state", str(state), "--deadline", "30m"]
        bare = consortium.study_file.read_text()
        consortium.study_file.write_text("\n".join(line for line in bare.splitlines() if "public_key" not in line))
        process = consortium.start(*words)
        wait_until(lambda: (state / "relay.sqlite").exists())
        process.send_signal(number)
        process.communicate(timeout=HANG_S)
        wait_until(lambda: not holders(state))
        assert ended(consortium.start(*words)).code == 0  # and the study can be run again


def holders(folder: Path) -> list[str]:
    """Processes with a command line that names the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes()
        except OSError:
            continue
        if str(folder).encode() in command:
            found.append(path.parent.name)
    return found


def test_two_processes_of_one_party_at_once_charge_once_and_agree(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        twins = [consortium.join("north"), consortium.join("north")]
        others = {name: consortium.join(name) for name in ("south", "lab")}
        ends = [ended(process) for process in twins]
        told = {"north": ends[0], **{name: ended(process) for name, process in others.items()}}
        value = check_answers(told, consortium.study)
        assert ends[1].code == 0
        assert ends[1].outcome["answers"][0]["value"] == value
        consortium.check_ledgers()


def test_parties_need_not_be_online_at_the_same_time(tmp_path: Path) -> None:
    """Each comes, does what it can, is cut off, and comes back: no two are ever there together."""
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        keys = [("south", 1), ("lab", 1), ("north", 1)]
        pads_and_submissions = [("north", 2), ("south", 2), ("lab", 2), ("south", 3), ("lab", 3)]
        for name, post in keys + pads_and_submissions:
            process = consortium.join(name, harm=(f"kill:after:Mailbox.post:{post}",))
            process.communicate(timeout=HANG_S)
            assert process.returncode == -signal.SIGKILL
        told = {name: ended(consortium.join(name)) for name in ("north", "south", "lab")}
        check_answers(told, consortium.study)
        consortium.check_ledgers()
