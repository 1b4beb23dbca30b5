"""The mpyc engine: right results to the right parties, losses, and what a process shows of itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.direct_stage import HOST, TOTAL, Stage
from tests.engines.mpyc_leak import differences
from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp import InputError
from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.engines.direct.gram_shape import GramShape
from tpmdp.engines.direct.network import check_addresses, listen
from tpmdp.engines.direct.record import DirectError, RecordError, decode_hello
from tpmdp.engines.direct.session import Notes, Numbers
from tpmdp.engines.direct.worker_process import run_in_process
from tpmdp.engines.ideal import IdealEngine
from tpmdp.engines.mpyc.engine import MpycEngine
from tpmdp.engines.mpyc.functions import load_function
from tpmdp.engines.mpyc.job import MpycJob
from tpmdp.errors import DeadlineError, MissingDependencyError

pytestmark = pytest.mark.process

MAXIMUM = "tpmdp.engines.mpyc.functions:maximum"
GRAM = "tpmdp.engines.mpyc.functions:gram"
HERE = "tests.engines.mpyc_functions"


def integers(seed: int, *shape: int) -> IntArray:
    return np.random.default_rng(seed).integers(-1000, 1000, shape)


# --- results -----------------------------------------------------------------------------------------------------


def test_a_sum_is_that_of_the_ideal_engine() -> None:
    world = World(4, 1, [3], dimension=5)
    ideal = IdealEngine().run(world.terms, world.identities, world.vectors, HANG_S)
    outcome = MpycEngine().run(world.terms, world.identities, world.vectors, HANG_S)
    assert outcome.sums[3].tolist() == ideal.sums[3].tolist()
    assert outcome.receipts == ideal.receipts == {0, 1, 2}
    assert min(outcome.bytes_sent) > 0
    for words in ("Shamir", "at most 1 party", "follow the protocol", "2^-40"):
        assert words in outcome.guarantee


@pytest.mark.parametrize("receivers", [[1], "all"])
def test_the_maximum_has_noise_on_top_and_goes_to_receivers_only(receivers: Any) -> None:
    world = World(5, 2, receivers, dimension=6)
    edge = 2**31 - 1
    rows = [[7, -5, 0, edge, -edge, 3], [7, -9, 0, -edge, -edge, 2], [], [6, -7, -1, edge, 1 - edge, 1], [1] * 6]
    rows[4] = [-1, -8, 0, 5, -edge, 3]
    values = [np.array(row, dtype=np.int64) for row in rows]
    noises = [integers(party, 6) for party in range(5)]
    noises[1] -= np.array([0, 0, 0, 10_000, -10_000, 0])  # keeps the sum within the word
    engine = MpycEngine(MAXIMUM)
    outcome = engine.run_function(world.terms, world.identities, values, noises, HANG_S)
    expected = np.max([row for row in rows if row], axis=0) + np.sum(noises, axis=0)
    chosen = {1} if receivers == [1] else set(range(5))
    assert set(outcome.sums) == chosen
    assert outcome.receipts == set(range(5)) - chosen
    for result in outcome.sums.values():
        assert result.tolist() == expected.tolist()


@pytest.mark.parametrize(("count", "threshold"), [(3, 1), (4, 1), (5, 2)])
def test_inner_products_are_those_of_numpy(count: int, threshold: int) -> None:
    records, columns, local = 50, [1, 2, 0, 1, 3][:count], [2, 0, 1, 0, 4][:count]
    parameters = {"records": records, "columns": columns, "local": local, "scale": 3}
    shape = GramShape(parameters)
    world = World(count, threshold, [0], dimension=shape.dimension)
    alone = [integers(party, size) for party, size in enumerate(local)]
    tables = [integers(10 + party, size, records) for party, size in enumerate(columns)]
    values = [np.concatenate([a, table.reshape(-1)]) for a, table in zip(alone, tables, strict=True)]
    noises = [integers(20 + party, shape.dimension) for party in range(count)]
    products = [3 * (tables[i] @ tables[j].T).reshape(-1) for i, j in combinations(range(count), 2)]
    expected = np.concatenate([*alone, *products]) + np.sum(noises, axis=0)
    outcome = MpycEngine(GRAM, parameters).run_function(world.terms, world.identities, values, noises, HANG_S)
    assert outcome.sums[0].tolist() == expected.tolist()
    assert [len(each) for each in values] == shape.sizes


def test_one_party_runs_in_a_process_of_its_own() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1, 2)
        stage.go()
        said: list[Any] = []

        def connected(notes: Notes) -> Numbers:
            said.append(notes)
            return Numbers(stage.values[0], None, note=b"")

        run_in_process(
            stage.job,
            0,
            stage.world.identities[0],
            stage.addresses,
            now_s() + HANG_S,
            on_connected=connected,
            on_opening=lambda _: said.append("opening"),
            on_result=lambda result, sent: said.extend([result, sent]),
        )
        assert said[:2] == [{}, "opening"]
        assert said[2].tolist() == stage.world.total
        assert said[3] > 0
        assert stage.outcome(1) is None


# --- what is refused ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "threshold", "reason"),
    [(2, 1, "parties = 2 must be at least 3"), (4, 2, r"threshold = 2 must be less than half .*\(4\).*relay engine")],
)
def test_parties_that_shamir_cannot_protect_are_refused(count: int, threshold: int, reason: str) -> None:
    world = World(count, threshold)
    with pytest.raises(InputError, match=reason):
        MpycEngine().run(world.terms, world.identities, world.vectors, HANG_S)


def test_at_threshold_0_shares_still_have_degree_1() -> None:
    world = World(3, 0, [0])
    outcome = MpycEngine(f"{HERE}:plus_degree").run(world.terms, world.identities, world.vectors, HANG_S)
    assert outcome.sums[0].tolist() == [value + 1 for value in world.total]
    with pytest.raises(InputError, match="at least 3"):
        MpycJob.of(World(2, 0).terms, TOTAL, None, [1, 1])


def test_numbers_and_lengths_that_do_not_fit_are_refused_and_not_shown() -> None:
    world = World(3, 1, [0])
    values, noises = list(world.inputs), list(world.inputs)
    engine = MpycEngine(MAXIMUM)
    for bad in (np.array([2**31, 0, 0]), np.array([-(2**31), 0, 0]), np.array([-(2**63), 0, 0])):
        for where in (values, noises):
            kept, where[1] = where[1], bad
            with pytest.raises(InputError, match=r"not shown.*32 bits"):
                engine.run_function(world.terms, world.identities, values, noises, HANG_S)
            where[1] = kept
    with pytest.raises(InputError, match="must be 3 whole numbers"):
        engine.run_function(world.terms, world.identities, values, [*noises[:2], np.array([1])])
    with pytest.raises(InputError, match="must be 3 whole numbers"):
        MpycJob.of(world.terms, TOTAL, None, [3, 3, 3]).check(0, np.zeros(3), values[0])  # type: ignore[arg-type]
    with pytest.raises(InputError, match="not as agreed"):
        MpycJob.of(world.terms, TOTAL, None, [3, 3, 3]).check(0, values[0], None)
    for sizes in ([3, 3], [0, 0, 0], [3, 3, -1], [3, 3, 1 << 40]):
        with pytest.raises(InputError, match="lengths of inputs"):
            MpycJob.of(world.terms, TOTAL, None, sizes)


@pytest.mark.parametrize("name", ["", "nothing", "no.such.module:total", "tpmdp.engines.mpyc.functions:nothing", ":x"])
def test_a_function_that_cannot_be_imported_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot be imported"):
        load_function(name)


@pytest.mark.parametrize(
    "changes",
    [{"columns": [1]}, {"columns": None}, {"records": 0}, {"records": "x"}, {"local": [-1, 0]}, {"scale": None}],
)
def test_parameters_of_inner_products_are_checked(changes: dict[str, Any]) -> None:
    good = {"records": 5, "columns": [1, 1], "local": [0, 0], "scale": 1}
    assert GramShape(good).sizes == [5, 5]
    with pytest.raises(InputError, match="parameters"):
        GramShape({**good, **changes})
    with pytest.raises(InputError, match="no two parties"):
        GramShape({**good, "columns": [3, 0]})


def test_parameters_must_travel_and_addresses_must_be_dialled() -> None:
    terms = World(3, 1).terms
    with pytest.raises(InputError, match="plain data"):
        MpycJob.of(terms, TOTAL, {"x": b"bytes"}, [1, 1, 1]).digest()
    for addresses in ([(HOST, 1)], [("", 1)] * 3, [("0.0.0.0", 1)] * 3, [(HOST, 70_000)] * 3):  # noqa: S104
        with pytest.raises(InputError, match="address"):
            check_addresses(addresses, 3)
    with listen(HOST, 0) as taken, pytest.raises(InputError, match="cannot be listened on"):
        listen(HOST, taken.getsockname()[1])
    with pytest.raises(RecordError, match="does not speak"):
        decode_hello(b"GET / HTTP/1.1")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    world = World(3, 1)
    with pytest.raises(MissingDependencyError, match=r"tpmdp\[mpyc\]"):
        MpycEngine().run(world.terms, world.identities, world.vectors, HANG_S)


# --- losses ------------------------------------------------------------------------------------------------------


def test_a_party_that_never_comes_is_named_at_the_deadline() -> None:
    with Stage(World(4, 1, [0]), deadline_s=8.0) as stage:  # from when all have started
        stage.start(0, 1, 3)
        stage.addresses[2] = (HOST, 1)
        stage.go()
        for party in (0, 1, 3):
            with pytest.raises(
                DeadlineError,
                match=r"the deadline passed while waiting for party 3: (not connected|party \d gave up|allow more)",
            ):
                stage.outcome(party)


def test_a_party_that_stalls_is_named_at_the_deadline(tmp_path: Path) -> None:
    parameters = {"who": 1, "folder": str(tmp_path)}
    with Stage(World(3, 1, [0]), f"{HERE}:stalls", parameters, deadline_s=8.0) as stage:
        stage.start(0, 1, 2)
        stage.go()
        errors = []
        for party in (0, 2):
            with pytest.raises((DeadlineError, DirectError)) as caught:
                stage.outcome(party)
            errors.append(str(caught.value))
        assert any("the deadline passed while waiting for party 2" in error for error in errors)


def test_a_party_that_is_killed_is_named_at_once(tmp_path: Path) -> None:
    parameters = {"who": 1, "folder": str(tmp_path)}
    with Stage(World(4, 1, [0]), f"{HERE}:stalls", parameters, deadline_s=HANG_S) as stage:
        stage.start(0, 1, 2, 3)
        stage.go()
        while not (tmp_path / "here").exists():
            assert now_s() < stage.workers[1].deadline
            time.sleep(0.01)
        os.kill(stage.workers[1].child.pid, signal.SIGKILL)
        for party in (0, 2, 3):
            with pytest.raises(DirectError, match=r"lost.*party 2|party 2 was lost") as caught:
                stage.outcome(party)
            assert caught.value.culprit == 1


def test_an_error_of_a_party_ends_the_session_without_its_data() -> None:
    world = World(3, 1, [0])
    with pytest.raises(DirectError, match=r"failed \(ValueError at line \d+ of mpyc_functions.py\)") as caught:
        MpycEngine(f"{HERE}:fails").run(world.terms, world.identities, world.vectors, HANG_S)
    assert "1234" not in str(caught.value)
    with pytest.raises(InputError, match="must have 3 entries"):
        MpycEngine(f"{HERE}:short").run(world.terms, world.identities, world.vectors, HANG_S)


def test_others_hear_of_an_error_on_one_side() -> None:
    with Stage(World(3, 1, [0]), f"{HERE}:fails", deadline_s=HANG_S) as stage:
        stage.start(0, 1, 2)
        stage.go()
        for party in (0, 2):
            with pytest.raises(DirectError, match="party 2 ended the session because of an error on its side"):
                stage.outcome(party)


# --- privacy of the process --------------------------------------------------------------------------------------


def test_nothing_is_pickled() -> None:
    world = World(3, 1, [0])
    zeros = [np.zeros(3, dtype=np.int64)] * 3
    engine = MpycEngine(MAXIMUM, module="tests.engines.mpyc_without_pickle")
    outcome = engine.run_function(world.terms, world.identities, list(world.inputs), zeros)
    assert outcome.sums[0].tolist() == world.inputs.max(axis=0).tolist()
    with pytest.raises(DirectError, match=r"mpc\.transfer must not be used"):
        MpycEngine(f"{HERE}:transfers").run(world.terms, world.identities, world.vectors, HANG_S)


@pytest.mark.parametrize(
    "module",
    [pytest.param("tests.engines.mpyc_as_it_comes", marks=pytest.mark.long), "tpmdp.engines.direct.worker"],
)
def test_a_comparison_tells_a_curious_party_nothing(tmp_path: Path, module: str) -> None:
    """MPyC as it comes opens what gives the inputs away; here there is no such opening to be seen."""
    world = World(3, 1, [0], dimension=30)
    values = [np.zeros(0, dtype=np.int64), *world.inputs[1:]]
    engine = MpycEngine(f"{HERE}:spied_maximum", {"folder": str(tmp_path)}, module=module)
    outcome = engine.run_function(world.terms, world.identities, values, [np.zeros(30, dtype=np.int64)] * 3)
    assert outcome.sums[0].tolist() == np.max(values[1:], axis=0).tolist()
    if module == "tpmdp.engines.direct.worker":
        assert not (tmp_path / "seen.json").exists()
        return
    seen = json.loads((tmp_path / "seen.json").read_text())
    for place in range(30):
        # A few candidates at most, now and then only false ones: one hit would be a wonder if nothing leaked.
        found = differences(seen, place, world.terms.grid.word + 1)
        assert len(found) <= 10
        if int(values[1][place] - values[2][place]) in found:
            return
    pytest.fail("all of 30 comparisons were of the half that hides: about once in 2^30")


def test_a_worker_listens_on_loopback_only() -> None:
    with Stage(World(3, 1, [0])) as stage:
        stage.start(1)
        port = f":{stage.addresses[1][1]:04X}"
        found = []
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            lines = Path(table).read_text().splitlines()[1:] if Path(table).exists() else []
            found += [line.split()[1] for line in lines if line.split()[1].endswith(port) and line.split()[3] == "0A"]
        assert found == [f"0100007F{port}"]


def test_only_the_answer_is_on_standard_output() -> None:
    world = World(3, 1, [0])
    outcome = MpycEngine(f"{HERE}:noisy").run(world.terms, world.identities, world.vectors, HANG_S)
    assert outcome.sums[0].tolist() == world.total


def test_a_worker_ends_with_its_input_and_its_errors_are_lines() -> None:
    command = [sys.executable, "-m", "tpmdp.engines.direct.worker"]
    done = subprocess.run(command, input=b"nonsense\n", capture_output=True, timeout=HANG_S, check=True)
    assert set(json.loads(done.stdout)) == {"error", "kind"}
    assert done.stderr == b""
    with Stage(World(3, 1, [0]), deadline_s=HANG_S) as stage:
        stage.start(1)
        stage.go()
        child = stage.workers[1].child
        child.close_input()
        assert child.wait(HANG_S) not in (None, 0)


def test_setting_up_leaves_arguments_environment_and_logging_alone() -> None:
    program = """
import asyncio, logging, os, sys
import tpmdp.engines.direct.engine, tpmdp.engines.direct.worker
from tpmdp.engines.mpyc.runtime import set_up
assert "mpyc" not in sys.modules
os.environ["MPYC_NONUMPY"] = "1"
before = list(sys.argv), dict(os.environ), list(logging.getLogger().handlers), logging.getLogger().level
async def main():
    mpc = await set_up(0, 3, 1, sec_param=66, links={}, fail=print)
    assert (mpc.threshold, mpc.options.no_prss, mpc.options.sec_param) == (1, True, 66)
    assert mpc.SecInt(33).array is not None
asyncio.run(main())
assert before == (list(sys.argv), dict(os.environ), list(logging.getLogger().handlers), logging.getLogger().level)
"""
    command = [sys.executable, "-c", program, "-M3", "--VERSION", "--threshold", "7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert "mpyc" not in sys.modules


def test_no_secret_is_shown() -> None:
    with Stage(World(3, 1, [0])) as stage:
        key = stage.world.identities[0].private_bytes_raw().hex()
        shown = [repr(stage.exchange(0, 1)), repr(stage.job), repr(stage.exchange(0, 1).hello)]
        assert all(key not in text for text in shown)
        stage.start(1)
        process = Path(f"/proc/{stage.workers[1].child.pid}")
        shown = [(process / name).read_text() for name in ("cmdline", "environ")]
        assert all(stage.world.identities[1].private_bytes_raw().hex() not in text for text in shown)
