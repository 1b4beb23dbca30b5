"""A result is opened once: with the same noise, two results of different inputs would tell the data of others."""

from __future__ import annotations

import select
import time
from pathlib import Path

import numpy as np
import pytest

from tests.engines.direct_stage import Stage
from tests.engines.direct_studies import Parties
from tests.protocol.sessions import World
from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.direct.session import Notes
from tpmdp.engines.direct.worker_process import WorkerProcess
from tpmdp.errors import DeadlineError
from tpmdp.ledger import LedgerError
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import key_of
from tpmdp.study.shared_job import shared_job

pytestmark = pytest.mark.process


def low_and_high(parties: Parties) -> tuple[IntArray, IntArray]:
    """Two inputs within the query's range, whose results differ by data of others if their noise is the same."""
    size = shared_job(parties.study, parties.terms).sizes[0]
    low, high = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64)
    high[-1] = 1
    return low, high


def is_receipt(told: object, note: str) -> bool:
    return (
        isinstance(told, PartyRelease) and told.answers is None and note in told.note and bool(told.note) == bool(note)
    )


@pytest.mark.parametrize("receivers", [pytest.param(["bank"], marks=pytest.mark.long), ["bank", "school"]])
@pytest.mark.parametrize("kind", ["maximum", "vertical"])
def test_a_corrupt_receiver_sees_one_result_and_no_second_one_with_the_same_noise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, receivers: list[str]
) -> None:
    parties = Parties.of(tmp_path, kind, receivers)
    low, high = low_and_high(parties)
    for values, expected in ((low, True), (high, False)):
        found = tmp_path / f"seen {expected}"
        monkeypatch.setenv("VANISH_TO", str(found))
        worker = parties.corrupt(values)
        try:
            said = parties.begin("school", "registry").end()
        finally:
            worker.stop()
        assert found.exists() == expected
        for name, told in said.items():
            if expected:
                assert isinstance(told, DirectError)
                assert "after the result was opened" in str(told)
                assert "opening" in parties.private_state(name)
            elif name in receivers:
                assert isinstance(told, LedgerError)
                assert "must not be opened again: set session = 2" in str(told)
                assert len(str(told).splitlines()) == 1
            else:
                assert is_receipt(told, "cut off before a receiver confirmed")
    assert parties.charges("school") == parties.charges("registry") == 1


def test_a_party_that_vanishes_before_the_opening_costs_nothing_but_time(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    worker = parties.corrupt(np.zeros(1, dtype=np.int64))
    try:
        said = parties.begin("school", "registry").end()
    finally:
        worker.stop()
    for name in ("school", "registry"):
        assert "run again" in str(said[name])
        assert "opened" not in str(said[name])
        assert "opening" not in parties.private_state(name)
    said = parties.begin("bank", "school", "registry").end()
    assert isinstance(said["bank"], PartyRelease), said
    assert said["bank"].answers is not None
    assert is_receipt(said["school"], "")
    assert is_receipt(said["registry"], "")
    assert [parties.charges(name) for name in ("bank", "school", "registry")] == [1, 1, 1]


def test_a_receiver_that_is_killed_before_it_settles_is_refused_and_the_others_have_theirs(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank", "school"])
    dying = parties.killed("school", "settle")
    said = parties.begin("bank", "registry").end()
    assert dying.end() == -9
    assert isinstance(said["bank"], PartyRelease), said
    assert is_receipt(said["registry"], "")
    for _ in range(2):
        with pytest.raises(LedgerError, match=r"was opened before and did not arrive.*set session = 2"):
            parties.join("school")
    assert parties.charges("school") == 1


def test_nobody_hears_of_a_result_that_is_not_settled(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    dying = parties.killed("bank", "settle")
    said = parties.begin("school", "registry").end()
    assert dying.end() == -9
    for name in ("school", "registry"):
        assert "after the result was opened: run again to settle" in str(said[name])
        assert is_receipt(parties.join(name), "cut off")
        again = parties.join(name)
        assert again.again
        assert again.answers is None


def test_a_party_that_is_killed_after_the_opening_has_a_receipt_with_a_note(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    dying = parties.killed("registry", "opened")
    parties.begin("bank", "school").end()
    assert dying.end() == -9
    assert is_receipt(parties.join("registry"), "cut off")
    assert parties.charges("registry") == 1


def test_two_processes_of_a_party_do_not_both_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has noted its opening after we looked for it."""
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    plain = WorkerProcess.opening

    def while_another_opens(self: WorkerProcess) -> Notes:
        notes = plain(self)
        if self._index == 1:
            with parties.ledger("school") as ledger:
                ledger.keep(key_of(parties.terms), "opening", b"another")
        return notes

    monkeypatch.setattr(WorkerProcess, "opening", while_another_opens)
    said = parties.begin("bank", "school", "registry").end()
    assert isinstance(said["school"], LedgerError)


# --- step by step --------------------------------------------------------------------------------------------------


def says_nothing(worker: WorkerProcess, seconds: float = 0.7) -> bool:
    stdout = worker.child._process.stdout
    assert stdout is not None
    return not select.select([stdout], [], [], seconds)[0]


def test_a_share_of_the_result_leaves_only_at_the_word_and_done_only_at_the_next() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(0, 1, 2)
        workers = stage.workers
        for party, worker in workers.items():
            stage.set_deadline(party)
            worker.go(stage.addresses)
            worker.put_in(stage.values[party], None)
        for worker in workers.values():
            worker.connected()
            worker.opening()
        workers[0].say("open")
        assert says_nothing(workers[0])  # no share of the others
        workers[1].say("open")
        workers[2].say("open")
        result, _ = workers[0].outcome()
        assert result is not None
        assert result.tolist() == stage.world.total
        assert says_nothing(workers[1])  # not settled yet
        workers[0].say("done")
        assert workers[1].outcome()[0] is None
        assert workers[2].outcome()[0] is None


def test_a_party_that_stalls_before_the_opening_is_named_at_the_deadline() -> None:
    with Stage(World(3, 1, [0]), deadline_s=8.0) as stage:
        stage.start(0, 1, 2)
        for party, worker in stage.workers.items():
            stage.set_deadline(party)
            worker.go(stage.addresses)
            worker.put_in(stage.values[party], None)
        stage.workers[0].connected()
        stage.workers[0].opening()
        stage.workers[0].say("open", "done")
        with pytest.raises(DeadlineError, match=r"waiting for party [23].*after the result was opened: it must not"):
            stage.workers[0].outcome()


def test_the_deadline_counts_from_where_it_was_set_and_not_from_the_start() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(0)
        stage.deadline = now_s() + 8.0
        time.sleep(8.0)
        began = time.monotonic()
        stage.go()
        with pytest.raises(DeadlineError):
            stage.outcome(0)
        assert time.monotonic() - began < 8.0  # the worker alone could not wait less, if it counted from its start
