"""What pairs compute, summed through a relay: real commands, a real relay, real SPU, and processes that die."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engines.direct_commands import Commands, Ending, Place, names_of
from tests.engines.direct_studies import Parties
from tests.engines.test_spu_faults import STUDIES as DIRECT_STUDIES
from tests.engines.test_spu_faults import answers_of
from tests.patience import DEADLINE, wait_until
from tpmdp.engines.relay.engine import relay_process

pytestmark = [pytest.mark.spu, pytest.mark.process]

STUDIES: dict[str, dict[str, Any]] = {
    "regression of two, with a third": {"kind": "vertical", "idle": ["registry"]},
    **{study: settings for study, settings in DIRECT_STUDIES.items() if study != "maximum of two"},
}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    with relay_process(tmp_path / "relay.sqlite") as url:
        yield url


def parties_of(folder: Path, study: str, **options: Any) -> Parties:
    settings = {"deadline": DEADLINE, "receivers": ["bank"], **STUDIES[study], **options}
    return Parties.of(folder, settings.pop("kind"), engine="spu", sum_through="relay", **settings)


def vectors_of(parties: Parties) -> dict[str, bytes]:
    return {name: parties.private_state(name)["vector"] for name in names_of(parties)}


def is_charged_once(parties: Parties) -> bool:
    """Also verifies the ledgers."""
    return [parties.charges(name) for name in names_of(parties)] == [1] * len(names_of(parties))


@pytest.mark.parametrize("study", STUDIES)
def test_the_answer_is_the_exact_one_with_the_noise_in_the_ledgers(
    tmp_path: Path, place: Place, relay: str, study: str
) -> None:
    """The lead receiver is killed before it settles, so that all ledgers still hold the noise."""
    parties = parties_of(tmp_path, study)
    commands = Commands.of(parties, place, relay)
    started = {name: commands.join(name) for name in names_of(parties) if name != "bank"}
    killed = Ending.of(commands.join("bank", "ending", "command"))
    assert killed.code == -signal.SIGKILL
    vectors = vectors_of(parties)
    endings = {name: Ending.of(each) for name, each in {**started, "bank": commands.join("bank")}.items()}
    assert endings["bank"].answers == answers_of(parties, vectors)
    assert all(endings[name].answers is None for name in started)
    assert is_charged_once(parties)
    again = Ending.of(commands.join("bank"))  # a settled session gives the same and costs nothing
    assert again.answers == endings["bank"].answers
    assert is_charged_once(parties)


@pytest.mark.parametrize(
    ("moment", "victim", "who", "study"),
    [
        ("connecting", "command", "school", "regression of two, with a third"),
        ("linked", "command", "registry", "regression of three"),  # it goes on with the attempt that the others leave
        ("computing", "command", "school", "regression of three"),
        ("computing", "spu", "bank", "maximum of two, with a third"),
        ("computing", "worker", "school", "regression of two, with a third"),
        ("settling", "command", "school", "regression of three"),
        ("settling", "command", "bank", "regression of two"),
        ("stored", "command", "school", "regression of three"),
        ("submitting", "command", "school", "regression of two, with a third"),
        ("submitting", "command", "registry", "regression of three"),
        ("ending", "command", "school", "maximum of two, with a third"),
    ],
)
def test_after_any_process_is_killed_the_same_commands_finish_the_session(
    tmp_path: Path, place: Place, relay: str, moment: str, victim: str, who: str, study: str
) -> None:
    parties = parties_of(tmp_path, study)
    commands, names = Commands.of(parties, place, relay), names_of(parties)
    started = {name: commands.join(name, *((moment, victim) if name == who else ())) for name in names}
    killed = Ending.of(started.pop(who))
    assert killed.outcome is None
    noise = parties.private_state(who).get("vector")
    answers = None
    for _ in range(3):  # those that lost a peer end, and go on with the same command
        started[who] = started.get(who) or commands.join(who)
        ended = {name: process for name, process in started.items() if process.poll() is not None}
        if not ended:
            wait_until(lambda: any(process.poll() is not None for process in started.values()))
            ended = {name: process for name, process in started.items() if process.poll() is not None}
        for name, process in ended.items():
            ending = Ending.of(process)
            del started[name]
            if ending.outcome is None:
                assert ending.code == 3, ending.error
                started[name] = commands.join(name)
            elif name == "bank":
                answers = ending.answers
    for name, process in started.items():
        ending = Ending.of(process)
        assert ending.outcome is not None, ending.error
        answers = ending.answers if name == "bank" else answers
    assert answers is not None
    assert is_charged_once(parties)
    assert noise is None or noise == parties.private_state(who).get("vector", noise)


def test_a_holder_without_an_address_is_refused_and_nobody_is_charged(tmp_path: Path, place: Place, relay: str) -> None:
    parties = parties_of(tmp_path, "regression of two, with a third")
    text = (tmp_path / "study.toml").read_text()
    address = f'address = "{parties.study.party("bank").address}"\n'
    assert address in text
    (tmp_path / "study.toml").write_text(text.replace(address, ""))
    ending = Ending.of(Commands.of(parties, place, relay).join("school"))
    assert ending.code == 2
    assert "address of bank = (none) is missing" in ending.error
    assert parties.charges("school") == 0


def test_nobody_is_charged_before_the_holders_are_connected(tmp_path: Path, place: Place, relay: str) -> None:
    """Somebody else has the school's port: its command says so, and the others wait without a charge."""
    parties = parties_of(tmp_path, "regression of two, with a third", deadline="8s")
    commands = Commands.of(parties, place, relay)
    host, _, port = str(parties.study.party("school").address).rpartition(":")
    with socket.create_server((host, int(port))):
        endings = commands.all_join()
    assert "cannot be listened on" in endings["school"].error
    assert endings["bank"].code == endings["registry"].code == 3
    assert "school" in endings["bank"].error
    assert [parties.charges(name) for name in names_of(parties)] == [0, 0, 0]
