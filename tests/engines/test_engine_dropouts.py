"""Engines where parties drop out: the sum of those that are left, or an error that names who is lost.

Started as a program this is a party of the relay engine that kills itself before it sends a message of some kind.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Collection
from io import BytesIO
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from tests.engines.patience import drops_only, pass_deadline_after
from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.engines.contract import Outcome
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.relay import worker
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.engine import RelayEngine, _task, relay_process
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.errors import DeadlineError, TpmdpError
from tpmdp.planning.losses import most_lost
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.messages import Kind, decode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Guarantee

GUARANTEES: Final[tuple[Guarantee, ...]] = ("computational", "statistical")
KINDS: Final = (Kind.AGREE, Kind.KEYS, Kind.PAD, Kind.SUBMIT)
SHAPES: Final = [
    (guarantee, (count, colluders, tolerate))
    for guarantee in GUARANTEES
    for count in range(3, 8)
    for colluders in range(1, count)
    for tolerate in range(1, most_lost(count, colluders, guarantee) + 1)
]
LOST: Final = "TPMDP_TEST_LOST"  # party:KIND, comma-separated
KILLED: Final = "TPMDP_TEST_KILLED"  # a file that a process makes before it is killed


def tolerant(count: int, colluders: int, tolerate: int, receivers: Any, guarantee: Guarantee) -> World:
    """A session without noise, so that the sum of every group is known."""
    return World(count, colluders, receivers, guarantee, tolerate=tolerate, has_noise=False)


def run(engine: MemoryEngine | RelayEngine, world: World, deadline_s: float = HANG_S) -> Outcome:
    return engine.run(world.terms, world.identities, world.vectors, deadline_s, plain=list(world.inputs))


def check(world: World, outcome: Outcome, lost: set[int], late: Collection[int] = ()) -> None:
    """`late` are lost after their submission, and counted."""
    left = set(range(world.terms.count)) - lost
    receivers = set(np.flatnonzero(world.terms.spec.receivers).tolist()) & left
    assert outcome.missing == lost
    assert set(outcome.sums) == receivers - set(late)
    assert outcome.receipts == left - receivers - set(late)
    for total in outcome.sums.values():
        assert total.tolist() == world.inputs[sorted(left)].sum(axis=0).tolist()


def sends(world: World, party: int, kind: Kind, lost: Collection[int] = ()) -> bool:
    """Whether a party sends this kind to one that is left, in any attempt: one that never does is not lost."""
    graph = MaskGraph.draw(world.terms.count, world.terms.colluders, bytes(32))  # of the first attempt: a circulant
    return kind != Kind.PAD or any(other not in lost for other in graph.partners(party).outgoing.tolist())


def cases(
    shape: tuple[int, int, int], guarantee: Guarantee, size: int, most: int
) -> list[tuple[World, dict[int, Kind]]]:
    """Some sets of so many lost parties, each lost at some kind of message; not the lead receiver."""
    random = np.random.default_rng([*shape, size])
    made = []
    for _ in range(most):
        count = shape[0]
        receivers = sorted(random.choice(count, int(random.integers(1, count + 1)), replace=False).tolist())
        world = tolerant(*shape, receivers, guarantee)
        others = [party for party in range(count) if party != world.terms.lead]
        gone = random.choice(others, size, replace=False).tolist()
        kinds = {party: [kind for kind in KINDS if sends(world, party, kind, gone)] for party in gone}
        made.append((world, {party: some[int(random.integers(len(some)))] for party, some in kinds.items()}))
    return made


def may_leave_out_more(world: World, lost: dict[int, Kind]) -> bool:
    """Whether parties wait for a pad of somebody who is lost, and few enough to be taken for lost."""
    return Kind.PAD in lost.values() and len(lost) < world.terms.tolerate


@pytest.mark.parametrize(("guarantee", "shape"), SHAPES)
@pytest.mark.slow
def test_those_that_are_left_get_their_sum_whoever_is_lost(shape: tuple[int, int, int], guarantee: Guarantee) -> None:
    for size in range(shape[2] + 1):
        for world, lost in cases(shape, guarantee, size, 2):
            if not may_leave_out_more(world, lost):
                check(world, run(MemoryEngine(lost), world), set(lost))


@pytest.mark.parametrize(
    ("guarantee", "shape"),
    [(guarantee, shape) for guarantee, shape in SHAPES if shape in ((4, 1, 1), (4, 1, 2), (6, 1, 2))],
)
@pytest.mark.slow
def test_every_set_of_lost_parties_at_every_message_is_survived(
    guarantee: Guarantee, shape: tuple[int, int, int]
) -> None:
    for receivers in ([0], [1, 2]):
        world = tolerant(*shape, receivers, guarantee)
        others = [party for party in range(shape[0]) if party != world.terms.lead]
        for size in range(1, shape[2] + 1):
            for lost in combinations(others, size):
                for kind in KINDS:
                    gone = {party: kind for party in lost if sends(world, party, kind)}
                    if not may_leave_out_more(world, gone):
                        check(world, run(MemoryEngine(gone), world), set(gone))


@pytest.mark.parametrize("shape", [(4, 1, 1), (5, 2, 1), (6, 1, 2), (10, 2, 3), (20, 5, 7)])
@pytest.mark.parametrize("kind", [Kind.REVEAL, Kind.RECEIPT])
def test_parties_lost_after_they_have_submitted_are_counted(shape: tuple[int, int, int], kind: Kind) -> None:
    """As many as may drop out: the others open the session without them."""
    world = tolerant(*shape, [0, 1], "computational")
    late = range(shape[0] - shape[2], shape[0]) if kind == Kind.REVEAL else ()
    check(world, run(MemoryEngine(dict.fromkeys(late, kind)), world), set(), late)


@pytest.mark.parametrize("shape", [(6, 1, 2), (10, 2, 3), (20, 5, 7)])
def test_parties_lost_before_and_after_their_submissions_count_together(shape: tuple[int, int, int]) -> None:
    world = tolerant(*shape, [0], "computational")
    late = range(2, 1 + shape[2])
    lost = {1: Kind.SUBMIT, **dict.fromkeys(late, Kind.REVEAL)}
    check(world, run(MemoryEngine(lost), world), {1}, late)
    with pytest.raises(DeadlineError, match=f"party {shape[2] + 2} dropped out in step reveal"):
        run(MemoryEngine({**lost, shape[2] + 1: Kind.REVEAL}), world)


@pytest.mark.parametrize("kind", [Kind.SHARE, Kind.SUBMIT, Kind.REVEAL])
def test_keepers_that_are_lost_are_survived(kind: Kind) -> None:
    """Before their shares have left, and after; of every two parties, for some are keepers."""
    world = tolerant(7, 1, 2, [0], "computational")
    for keepers in combinations(range(1, 7), 2):
        outcome = run(MemoryEngine(dict.fromkeys(keepers, kind)), world)
        late = set(keepers) - outcome.missing
        assert kind != Kind.REVEAL or late == set(keepers)
        check(world, outcome, set(outcome.missing), late if kind == Kind.REVEAL else ())


def test_a_party_that_waits_for_a_pad_of_a_lost_one_is_not_left_out() -> None:
    world = tolerant(6, 1, 2, [0, 5], "statistical")
    check(world, run(MemoryEngine({4: Kind.PAD}), world), {4})


def test_left_out_for_want_of_a_pad_or_not_the_sum_is_that_of_the_group() -> None:
    """No party is both in the sum and missing, whoever the lead receiver takes for lost."""
    for shape in [(5, 1, 3), (6, 1, 2), (6, 2, 3)]:
        world = tolerant(*shape, "all", "statistical")
        for party in range(1, shape[0] - 1):
            outcome = run(MemoryEngine({party: Kind.PAD}), world)
            assert party in outcome.missing
            assert len(outcome.missing) <= shape[2]
            check(world, outcome, set(outcome.missing))


@pytest.mark.parametrize(("guarantee", "shape"), SHAPES)
@pytest.mark.slow
def test_more_lost_than_may_be_is_an_error_that_names_them_and_nobody_has_a_sum(
    shape: tuple[int, int, int], guarantee: Guarantee, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties: list[PartySession] = []
    make = PartySession.__init__

    def noted(self: PartySession, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **options)
        parties.append(self)

    monkeypatch.setattr(PartySession, "__init__", noted)
    for world, lost in cases(shape, guarantee, shape[2] + 1, 2):
        parties.clear()
        with pytest.raises(DeadlineError, match="dropped out in step") as caught:
            run(MemoryEngine(lost), world)
        named = {party for party in range(shape[0]) if world.terms.spec.name(party) in str(caught.value)}
        assert named
        assert named <= set(lost)
        assert not any(party.done for party in parties)


def test_a_party_lost_when_self_masks_are_revealed_ends_the_session() -> None:
    """With the statistical guarantee, where no shares can stand in for a whole pad."""
    for shape in [(3, 1, 1), (5, 2, 2), (6, 1, 4)]:
        world = tolerant(*shape, [0, 1], "statistical")
        with pytest.raises(DeadlineError, match="party 3 dropped out in step reveal"):
            run(MemoryEngine({2: Kind.REVEAL}), world)
    world = tolerant(6, 1, 2, [0], "statistical")
    with pytest.raises(DeadlineError, match="party 3 dropped out in step reveal"):  # in a later attempt, too
        run(MemoryEngine({5: Kind.SUBMIT, 2: Kind.REVEAL}), world)


# Real processes -------------------------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize(("guarantee", "lost"), [("computational", {2: Kind.SUBMIT}), ("statistical", {1: Kind.PAD})])
def test_the_sum_of_the_others_when_processes_are_killed(
    guarantee: Guarantee, lost: dict[int, Kind], monkeypatch: pytest.MonkeyPatch
) -> None:
    world = tolerant(4, 1, len(lost), [0, 3], guarantee)
    monkeypatch.setenv(LOST, ",".join(f"{party}:{kind.name}" for party, kind in lost.items()))
    outcome = run(RelayEngine("tests.engines.test_engine_dropouts", patience_s=1.0), world)
    check(world, outcome, set(lost))
    assert [sent > 0 for sent in outcome.bytes_sent] == [party not in lost for party in range(4)]


@pytest.mark.process
def test_a_process_killed_before_it_reveals_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = tolerant(4, 1, 1, [0, 3], "computational")
    monkeypatch.setenv(LOST, "2:REVEAL")
    check(world, run(RelayEngine("tests.engines.test_engine_dropouts", patience_s=1.0), world), set(), [2])


class KilledError(Exception):
    """In place of a process that is killed."""


@pytest.mark.process
@pytest.mark.parametrize("kind", [Kind.SHARE, Kind.SUBMIT, Kind.REVEAL])
def test_a_party_that_is_killed_and_started_again_finishes_and_so_do_the_others(tmp_path: Path, kind: Kind) -> None:
    """Over a real relay, where party 3 is lost after its submission: party 2 is needed to open the sum."""
    world = tolerant(4, 1, 1, [0], "computational")
    ends: dict[int, Any] = {}

    def live(index: int, deadly: Kind | None = None) -> None:
        class DeadlyMailbox(Mailbox):
            def post(self, messages: list[bytes]) -> None:
                hit = deadly is not None and any(decode(data).kind == deadly for data in messages)
                if hit and index == 2:
                    raise KilledError
                super().post(messages)
                if hit:
                    raise KilledError

        secrets = world.secrets[index]
        assert isinstance(secrets, FreshSecrets)
        with DeadlyMailbox(url, world.terms, index, identity=world.identities[index], deadline=end) as mailbox:
            mailbox.connect()
            party, left = drive(lambda: world.party(index, secrets.last_attempt()), mailbox, end, patience_s=3600.0)
            mailbox.post(left)
            ends[index] = party

    def work(index: int) -> None:
        try:
            live(index, {2: kind, 3: Kind.SUBMIT}.get(index))
        except KilledError:
            if index == 2:
                live(index)
        except TpmdpError as error:
            ends[index] = error

    with relay_process(tmp_path / "relay.sqlite") as url:
        end = now_s() + HANG_S
        threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {index: type(each) for index, each in ends.items()} == dict.fromkeys(range(3), PartySession)
    assert ends[0].result.tolist() == world.total


@pytest.fixture(scope="module")
def lost_at_the_end(tmp_path_factory: pytest.TempPathFactory) -> TpmdpError:
    """How the relay engine fails when a process is killed before it reveals its self-mask."""
    world = tolerant(3, 1, 1, [0], "statistical")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(LOST, "2:REVEAL")
        patch.setenv(KILLED, str(tmp_path_factory.mktemp("lost") / "killed"))
        with pytest.raises(TpmdpError) as caught:
            run(RelayEngine("tests.engines.test_engine_dropouts", patience_s=1.0), world)
    return caught.value


@pytest.mark.process
def test_no_sum_when_a_process_is_killed_before_it_reveals(lost_at_the_end: TpmdpError) -> None:
    assert "no opening from party 3" in str(lost_at_the_end)


@pytest.mark.process
def test_a_deadline_that_passed_in_a_process_is_a_deadline_error(lost_at_the_end: TpmdpError) -> None:
    assert isinstance(lost_at_the_end, DeadlineError)


class NoMailbox:
    """A mailbox that is never used."""

    bytes_sent = 0

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> NoMailbox:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def connect(self) -> None:
        pass


def test_a_worker_goes_on_in_its_attempt_when_the_relay_was_started_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """At attempt 1, once a later attempt is to be opened, nobody can go on any more."""
    world = tolerant(4, 1, 1, [0], "computational")
    attempts: list[int] = []

    def drive(make: Callable[[], PartySession], *_: object, **__: object) -> None:
        party = make()
        party.start()
        party.retry()
        attempts.extend([party.attempt, make().attempt])
        raise DeadlineError("enough")

    times = {"deadline_s": 1.0, "patience_s": 1.0}
    task = _task(world.terms, 0, world.identities[0], url="http://127.0.0.1:1", has_plain=False, **times)
    monkeypatch.setattr(worker, "Mailbox", NoMailbox)
    monkeypatch.setattr(worker, "drive", drive)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=BytesIO(task + world.vectors[0].tobytes() + b"go\n")))
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=BytesIO()))
    worker.main()
    assert attempts == [2, 2]


def main() -> None:
    """The worker of the relay engine, but killed before it sends a message of the kind that is set for it.

    With KILLED, the deadline of the others passes when they have read all that was sent before.
    """
    lost = {int(party): Kind[kind] for party, kind in (one.split(":") for one in os.environ[LOST].split(","))}
    post = Mailbox.post

    def deadly(self: Mailbox, messages: list[bytes]) -> None:
        for data in messages:
            if lost.get(decode(data).sender) == decode(data).kind:
                if KILLED in os.environ:
                    Path(os.environ[KILLED]).touch()
                os.kill(os.getpid(), signal.SIGKILL)
        post(self, messages)

    Mailbox.post = deadly  # type: ignore[method-assign]
    setattr(PartySession, "drop_missing", drops_only(set(lost)))  # noqa: B010
    if KILLED in os.environ:
        pass_deadline_after(Path(os.environ[KILLED]))
    worker.main()


if __name__ == "__main__":
    main()
