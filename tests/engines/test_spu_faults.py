"""The spu engine when processes die, peers cheat and sessions run side by side: real processes and real commands."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.direct_commands import Commands, Ending, Place, names_of
from tests.engines.direct_stage import Puppet, Stage, frame
from tests.engines.direct_studies import NAMES, Parties
from tests.pairs import Session
from tests.patience import DEADLINE, HANG_S, wait_until
from tests.processes import Process
from tests.protocol.sessions import World
from tpmdp import InputError
from tpmdp.engines.direct.link import LinkKind
from tpmdp.engines.direct.record import LENGTH_BYTES, RECORD_MAX, TAG_BYTES, DirectError
from tpmdp.engines.spu import job as spu_job
from tpmdp.engines.spu import pair_process
from tpmdp.engines.spu.job import GRAM, SpuJob
from tpmdp.engines.spu.pair_process import PairProcess, socket_base
from tpmdp.engines.spu.tunnel import _HEAD, _STREAMS_MAX, TunnelKind
from tpmdp.errors import TpmdpError
from tpmdp.protocol.masks import KEY_BYTES, from_words
from tpmdp.study.contribution import contribute
from tpmdp.study.events import SessionEvent
from tpmdp.study.session import party_release
from tpmdp.study.shared_job import shared_job

pytestmark = [pytest.mark.spu, pytest.mark.process]

MAXIMUM = "tpmdp.engines.spu.functions:maximum"
TWO = NAMES[:2]
STUDIES: dict[str, dict[str, Any]] = {
    "maximum of two": {"kind": "maximum", "names": TWO},
    "regression of two": {"kind": "vertical", "names": TWO},
    "maximum of two, with a third": {"kind": "maximum", "idle": ["registry"]},
    "regression of three": {"kind": "vertical"},
}


def parties_of(folder: Path, study: str, receivers: Sequence[str] = ("bank",), **options: Any) -> Parties:
    settings = {"deadline": DEADLINE, **STUDIES[study], **options}
    return Parties.of(folder, settings.pop("kind"), list(receivers), engine="spu", **settings)


def answers_of(parties: Parties, vectors: dict[str, bytes]) -> list[float | None]:
    """The bank's answers with this noise, computed in Python's whole numbers."""
    study, terms = parties.study, parties.terms
    job = shared_job(study, terms)
    assert isinstance(job, SpuJob)
    given = {name: contribute(study, terms, name, table=parties.table(name)) for name in vectors}
    words = [np.frombuffer(vector, dtype=f"<u{terms.grid.word // 8}") for vector in vectors.values()]
    noises = [from_words(each, terms.grid.word) for each in words]
    result = Session(job, [each.encoded for each in given.values()], noises).exact()
    release = party_release(given["bank"], np.array(result), sent=0, guarantee="")
    assert release.answers is not None
    return [answer.plain()["value"] for answer in release.answers]


def is_charged_once(parties: Parties) -> bool:
    """Also verifies the ledgers."""
    return [parties.charges(name) for name in names_of(parties)] == [1] * len(names_of(parties))


# --- killed --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("victim", "who", "study"),
    [
        ("command", "bank", "maximum of two"),
        ("worker", "school", "regression of two"),
        ("spu", "school", "maximum of two, with a third"),
        ("worker", "registry", "maximum of two, with a third"),
        ("command", "school", "regression of three"),
        ("spu", "registry", "regression of three"),
    ],
)
def test_a_party_that_is_killed_while_computing_is_named_and_the_same_commands_go_on(
    tmp_path: Path, place: Place, victim: str, who: str, study: str
) -> None:
    parties = parties_of(tmp_path, study)
    commands, names = Commands.of(parties, place), names_of(parties)
    endings = commands.all_join(**{who: ("computing", victim)})
    for name, ending in endings.items():
        if name != who:
            assert ending.code == 3
            assert who in ending.error
        elif victim == "command":
            assert ending.code == -signal.SIGKILL
        else:
            assert "process ended" in ending.error
    place.check_clean()
    vectors = {name: parties.private_state(name)["vector"] for name in names}
    assert not any("opening" in parties.private_state(name) for name in names)
    endings = commands.all_join()
    assert endings["bank"].answers == answers_of(parties, vectors)
    assert all(endings[name].answers is None for name in names if name != "bank")
    assert is_charged_once(parties)


@pytest.mark.parametrize("victim", ["command", "worker", "spu"])
def test_a_party_that_is_killed_before_all_are_connected_costs_nothing_but_time(
    tmp_path: Path, place: Place, victim: str
) -> None:
    parties = parties_of(tmp_path, "maximum of two")
    commands = Commands.of(parties, place)
    bank = commands.join("bank", "connecting", victim)
    if victim == "spu":  # its command notices when it needs SPU
        school_end = Ending.of(commands.join("school"))
        bank_end = Ending.of(bank)
        assert "SPU's process ended while it computed with school" in bank_end.error
        assert "bank ended the session because of an error on its side" in school_end.error
    else:
        assert Ending.of(bank).code in (-signal.SIGKILL, 2)
        assert parties.charges("bank") == 0
    place.check_clean()
    assert commands.all_join()["bank"].answers is not None
    assert is_charged_once(parties)


AGAIN = "set session = 2"


@pytest.mark.parametrize(
    ("moment", "victim", "who", "bank_again", "school_says"),
    [
        # all are ready, and the bank has noted nothing: the school has opened, so there is nobody to open it with
        ("ready", "command", "bank", None, "after the result was opened: run again to settle"),
        ("ready", "worker", "bank", AGAIN, "after the result was opened: run again to settle"),
        ("opened", "command", "bank", AGAIN, "after the result was opened: run again to settle"),
        ("settling", "command", "bank", AGAIN, "after the result was opened: run again to settle"),
        ("opened", "command", "school", AGAIN, ""),
    ],
)
def test_a_result_is_opened_once_whoever_is_killed(
    tmp_path: Path, place: Place, moment: str, victim: str, who: str, bank_again: str | None, school_says: str
) -> None:
    parties = parties_of(tmp_path, "regression of two" if who == "bank" else "maximum of two")
    commands = Commands.of(parties, place)
    endings = commands.all_join(**{who: (moment, victim)})
    assert all(ending.outcome is None for ending in endings.values())
    assert school_says in endings["school"].error
    if who == "school":
        assert "connection to school was lost, after the result was opened: it must not be opened again" in (
            endings["bank"].error
        )
    place.check_clean()
    receipt = Ending.of(commands.join("school"))
    assert receipt.answers is None
    assert receipt.outcome is not None
    assert "cut off before a receiver confirmed" in receipt.outcome["outcome"]["note"]
    assert ("opening" in parties.private_state("bank")) == (bank_again is not None)
    if bank_again is not None:
        refused = Ending.of(commands.join("bank"))
        assert refused.code == 2
        assert bank_again in refused.error
    assert is_charged_once(parties)


def test_spu_is_not_needed_any_more_when_all_are_ready(tmp_path: Path, place: Place) -> None:
    parties = parties_of(tmp_path, "maximum of two", receivers=["bank", "school"])
    commands = Commands.of(parties, place)
    endings = commands.all_join(bank=("ready", "spu"))
    assert endings["bank"].answers == endings["school"].answers
    assert endings["bank"].answers is not None
    assert is_charged_once(parties)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_ends_all_processes_of_a_party(tmp_path: Path, place: Place, number: int, code: int) -> None:
    """As Ctrl-C does, SIGINT goes to all of them at once."""
    parties = parties_of(tmp_path, "maximum of two")
    bank = Commands.of(parties, place).join("bank")
    wait_until(lambda: list(place.temporary.glob("tpmdp-*/log")))  # SPU is loaded
    for pid in place.processes() if number == signal.SIGINT else [bank.pid]:
        os.kill(pid, number)
    assert Ending.of(bank).code == code
    place.check_clean()
    assert parties.charges("bank") == 0


def test_a_run_that_is_killed_ends_all_processes_and_is_resumed(tmp_path: Path, place: Place) -> None:
    parties = parties_of(tmp_path, "regression of three")
    Commands.of(parties, place)
    first = started_run(parties, place)
    wait_until(lambda: list(place.temporary.glob("tpmdp-*/*/own")))  # one of them computes
    first.kill()
    assert first.end() == -signal.SIGKILL
    place.check_clean()
    assert answered(started_run(parties, place))
    for name in NAMES:
        with Parties(parties.folder / "state", parties.study).ledger(name) as ledger:
            ledger.verify()
            assert sum(entry.is_charge for entry in ledger.entries()) == 1


def started_run(parties: Parties, place: Place) -> Process:
    words = ["--data", parties.folder, "--state", parties.folder / "state", "--json", "--events", "none"]
    for name in names_of(parties):
        state = parties.folder / "state"
        state.mkdir(mode=0o700, exist_ok=True)
        if not (state / f"{name}.key").exists():
            (state / f"{name}.key").symlink_to(parties.folder / f"{name}.key")
    return place.start("tpmdp", "run", parties.folder / "study.toml", *words)


def answered(process: Process) -> list[Any]:
    out, log = process.communicate()
    assert process.wait() == 0, log
    answers = json.loads(out)["parties"][0]["answers"]
    assert answers
    return list(answers)


# --- side by side --------------------------------------------------------------------------------------------------


def test_two_sessions_at_once_do_not_disturb_each_other_and_listen_on_loopback_only(
    tmp_path: Path, place: Place
) -> None:
    started = []
    for study in ("maximum of two", "regression of three"):
        folder = tmp_path / study.replace(" ", "")
        folder.mkdir()
        parties = parties_of(folder, study)
        Commands.of(parties, place)
        started.append(started_run(parties, place))
    seen: dict[str, set[str]] = {}  # by what listens
    while any(process.poll() is None for process in started):
        for pid, command in place.processes().items():
            kind = "spu" if "pair_worker.py" in command else "tpmdp"
            seen.setdefault(kind, set()).update(listening(pid))
    assert seen == {"spu": set(), "tpmdp": {"127.0.0.1"}}
    for process in started:
        answered(process)


def listening(pid: int) -> set[str]:
    """Where a process listens for TCP connections, of IPv6 the raw address."""
    try:
        sockets = {os.readlink(entry) for entry in Path(f"/proc/{pid}/fd").iterdir()}
        rows = [
            line.split()
            for table in ("tcp", "tcp6")
            for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()
        ]
    except OSError:  # it has ended, or a descriptor was closed
        return set()
    found = {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}
    return {"127.0.0.1" if address == "0100007F" else address for address in found}


# --- what is refused before any charge -----------------------------------------------------------------------------


def test_parties_with_different_queries_learn_what_differs_and_pay_nothing(tmp_path: Path) -> None:
    parties = parties_of(tmp_path, "maximum of two")
    typo = Parties.load(tmp_path, at_least=2)
    both_know = threading.Barrier(2)

    def stop(event: SessionEvent) -> None:
        if event.kind == "difference":
            both_know.wait(HANG_S)
            raise TpmdpError(event.text)

    bank, school = parties.begin("bank", on_event=stop), typo.begin("school", on_event=stop)
    assert str(bank.end()["bank"]) == 'school has another query "m"'
    assert str(school.end()["school"]) == 'bank has another query "m"'
    assert [parties.charges(name) for name in TWO] == [0, 0]


def test_another_function_requirement_or_length_gives_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both sides of a link compare it before there is a link."""
    world = World(2, 1, [0], dimension=1)

    def digest(function: str, parameters: Any, sizes: list[int]) -> bytes:
        return SpuJob.of(world.terms, function, parameters, sizes).digest()

    digests = [digest(MAXIMUM, None, [1, 1]), digest(MAXIMUM, {"limits": [[[1, 9]], [[1, 9]]]}, [1, 1])]
    digests += [digest(GRAM, PRODUCT, [3, 3]), digest(GRAM, {**PRODUCT, "records": 4}, [4, 4])]
    monkeypatch.setattr(spu_job, "REQUIREMENTS", {"spu": "0.9.6"})
    digests.append(digest(MAXIMUM, None, [1, 1]))
    monkeypatch.setattr(spu_job, "function_file", lambda _: Path(__file__))
    digests.append(digest(MAXIMUM, None, [1, 1]))
    assert len(set(digests)) == len(digests)


# --- cheats --------------------------------------------------------------------------------------------------------

PRODUCT = {"records": 3, "columns": [1, 1], "local": [0, 0], "scale": 1}


def stage_of(deadline_s: float = HANG_S) -> Stage:
    """Two parties with a column each; the first is played by the test."""
    values = [np.ones(3, dtype=np.int64)] * 2
    world = World(2, 1, [1], dimension=1)
    return Stage(world, GRAM, PRODUCT, engine="spu", values=values, deadline_s=deadline_s)


def connected(stage: Stage, *workers: int) -> dict[int, Puppet]:
    """A puppet that all workers compute with."""
    stage.start(*workers)
    stage.go()
    puppets = stage.puppet(0)
    for puppet in puppets.values():
        say(puppet, LinkKind.NOTES)
    return puppets


def say(puppet: Puppet, kind: LinkKind, body: bytes = b"", label: int = 0) -> None:
    content = frame(kind, body, label=label)
    for start in range(0, len(content), RECORD_MAX):
        puppet.send(puppet.seal.record(content[start : start + RECORD_MAX]))


def message(kind: int, stream: int = 0, data: bytes = b"") -> bytes:
    return _HEAD.pack(kind, stream) + data


@pytest.mark.parametrize("change", ["identity", "session", "plan_hash", "work"])
def test_another_key_session_plan_or_job_gets_no_link(change: str) -> None:
    with stage_of() as stage:
        stage.start(1)
        stage.go()
        changes: dict[str, Any] = {change: bytes(32)}
        if change == "identity":
            changes = {change: stage.world.identities[1]}
        with Puppet(stage.addresses[1]) as puppet:
            puppet.handshake(stage.exchange(0, 1, **changes))
            if change in ("plan_hash", "work"):  # they compare the parts of their studies, if they have one
                puppet.read(LENGTH_BYTES + TAG_BYTES)
                puppet.send(puppet.seal.record(b""))
            assert puppet.refused()
        assert stage.puppet(0)[1] is not None  # the true one is still welcome


STRANGE = "party 1 sent a message that is not of this protocol"
CHEATS: dict[str, tuple[str, list[bytes]]] = {
    "too short": (STRANGE, [b"x"]),
    "of no kind": (STRANGE, [message(9)]),
    "opens our side's stream": (STRANGE, [message(TunnelKind.OPEN, 1)]),
    "opens a stream twice": (STRANGE, [message(TunnelKind.OPEN)] * 2),
    "opens many streams": (STRANGE, [message(TunnelKind.OPEN, 2 * each) for each in range(_STREAMS_MAX + 1)]),
    "writes to no stream": (STRANGE, [message(TunnelKind.BYTES, 4, b"x")]),
    "is done twice": (STRANGE, [message(TunnelKind.DONE)] * 2),
    "leaves": ("party 1 left the computation too early", [message(TunnelKind.LAST)]),
    "floods": (
        "party 1 sent more than the function needs",
        [message(TunnelKind.OPEN), *[message(TunnelKind.BYTES, 0, bytes(1 << 23))] * 9],
    ),
}


@pytest.mark.parametrize("how", CHEATS)
def test_messages_that_no_tunnel_sends_end_the_session_and_name_their_sender(how: str) -> None:
    error, messages = CHEATS[how]
    with stage_of() as stage:
        puppet = connected(stage, 1)[1]
        for label, body in enumerate(messages):
            try:
                say(puppet, LinkKind.DATA, body, label=label)
            except ConnectionError:
                assert how == "floods"  # it hangs up while we talk
        with pytest.raises(DirectError, match=error) as caught:
            stage.outcome(1)
        assert caught.value.culprit == 0


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [message(TunnelKind.OPEN), message(TunnelKind.BYTES, 0, os.urandom(5000))],
        [message(TunnelKind.OPEN), message(TunnelKind.BYTES, 0, b"PRPC" + bytes(4) + b"\xff" * 900)],
    ],
)
def test_a_party_that_sends_nonsense_to_spu_or_nothing_is_named_at_the_deadline(messages: list[bytes]) -> None:
    with stage_of(deadline_s=2.5) as stage:
        puppet = connected(stage, 1)[1]
        for label, body in enumerate(messages):
            say(puppet, LinkKind.DATA, body, label=label)
        with pytest.raises(TpmdpError, match="party 1"):
            stage.outcome(1)


@pytest.mark.parametrize("what", ["a seed", "a masked sum"])
def test_a_seed_or_sum_of_a_wrong_length_names_its_sender(what: str) -> None:
    """The first of three parties has no columns, so it only adds a mask and a sum."""
    product = {"records": 3, "columns": [0, 1, 1], "local": [0, 0, 0], "scale": 1}
    values = [np.ones(size, dtype=np.int64) for size in (0, 3, 3)]
    with Stage(World(3, 1, [1], dimension=1), GRAM, product, engine="spu", values=values, deadline_s=HANG_S) as stage:
        for puppet in connected(stage, 1, 2).values():
            say(puppet, LinkKind.DATA, bytes(KEY_BYTES - (what == "a seed")), label=-1)
            say(puppet, LinkKind.READY)
            say(puppet, LinkKind.DATA, bytes(5), label=-2)
        with pytest.raises(DirectError, match=f"party 1 sent {what} of a wrong length") as caught:
            stage.outcome(1)
        assert caught.value.culprit == 0


# --- what SPU's process shows --------------------------------------------------------------------------------------


def test_spu_has_a_private_folder_no_dumps_and_no_secrets_in_its_arguments() -> None:
    process = PairProcess()
    process.ready()
    try:
        assert process.folder.stat().st_mode & 0o777 == 0o700
        shown = Path(f"/proc/{process._child.pid}")
        assert (shown / "environ").read_bytes() == f"PATH={os.defpath}\0".encode()
        assert (shown / "cmdline").read_bytes().split(b"\0")[-2] == bytes(process.folder)
        (core,) = [line for line in (shown / "limits").read_text().splitlines() if "core file" in line]
        assert core.split()[4:6] == ["0", "0"]
    finally:
        process.stop()
    assert not process.folder.exists()


def test_sockets_go_where_their_paths_are_short_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(long))
    assert socket_base() == Path("/tmp")  # noqa: S108
    assert list(long.iterdir()) == []

    def nowhere() -> str:
        raise FileNotFoundError

    monkeypatch.setattr("tempfile.gettempdir", nowhere)
    assert socket_base() == Path("/tmp")  # noqa: S108
    monkeypatch.setattr(pair_process, "_BELOW", 200)
    with pytest.raises(InputError, match=r"temporary folder = .* must take sockets, which SPU needs: set TMPDIR"):
        socket_base()
