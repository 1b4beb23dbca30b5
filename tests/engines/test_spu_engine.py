"""The spu engine: exact results for random studies, whole sessions in real processes, and what SPU's process shows."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import pairs
from tests.experiments.test_scenario import CENSUS
from tests.pairs import check_studies, session_of
from tests.patience import DEADLINE, HANG_S
from tests.study.test_shares_study import VERTICAL, least_squares, people
from tpmdp import InputError, Study, TpmdpError, run
from tpmdp.engines.spu.interpreter import REQUIREMENTS, SETTING, spu_python
from tpmdp.engines.spu.pair_process import PairProcess
from tpmdp.engines.spu.pair_task import PairTask
from tpmdp.engines.spu.tunnel import Tunnel, TunnelKind
from tpmdp.experiments.population import RANGES, read_adults
from tpmdp.study.local_run import run_study

pytestmark = [pytest.mark.spu, pytest.mark.process]
FUNCTIONS = Path("src/tpmdp/engines/spu/functions.py").resolve()
PARTIES = ("bank", "shop")


def study_of(query: dict[str, Any], **changes: Any) -> Study:
    """Two parties of 50 records; what SPU computes is exact, so hardly any noise shows more."""
    parties = [{"name": name, "records": 50, "epsilon": 1e4} for name in PARTIES]
    base = {"name": "two", "threshold": 1, "receivers": ["bank"], "delta": 1e-6, "deadline": DEADLINE}
    return Study.parse({**base, "parties": parties, "queries": [{"name": "q", **query}], **changes})


REGRESSION: dict[str, Any] = {
    "kind": "vertical_regression",
    "target": "default",
    "bounds": {"default": [0, 1], "spending": [0, 1000]},
    "held_by": {"bank": ["default"], "shop": ["spending"]},
}
MAXIMUM: dict[str, Any] = {"kind": "maximum", "of": {"kind": "mean", "column": "x", "low": 0, "high": 10}}


@pytest.fixture(scope="module")
def processes() -> Iterator[list[PairProcess]]:
    """SPU's processes of six parties, which stay alive."""
    started = [PairProcess() for _ in range(6)]
    for process in started:
        process.ready()
    yield started
    for process in started:
        process.stop()


def test_fifty_random_studies_have_exact_results(processes: list[PairProcess]) -> None:
    """Two to six parties, every threshold, any columns anywhere."""
    assert check_studies(50, seed=20261119, processes=processes) > 1000


def test_the_maximum_of_two_is_exact_at_ties_and_at_the_edges(processes: list[PairProcess]) -> None:
    session = session_of(
        study_of(MAXIMUM), {name: {"x": np.full(50, 5.0)} for name in PARTIES}, np.random.default_rng(1)
    )

    most = int(session.job.parameters["limits"][0][0][1])
    for left, right in [(0, 0), (most, -most), (-most, most), (most, most), (-most, -most), (-1, 0), (7, 7)]:
        session.values = [np.array([value], dtype=np.int64) for value in (left, right)]
        assert asyncio.run(session.run(processes)) == {0: session.exact()}


@pytest.mark.parametrize("cells", [9, 900])
def test_a_large_study_is_exact_and_sends_a_quarter_of_what_it_may(processes: list[PairProcess], cells: int) -> None:
    """Few results, which are sent one by one, and many, which are packed; `Session.run` checks what is sent."""
    records, edges = 20_000, np.linspace(0, 1, int(cells**0.5) + 1).tolist()
    sides = [{"party": name, "column": "x", "edges": edges} for name in PARTIES]
    parties = [{"name": name, "records": records, "epsilon": 1.0} for name in PARTIES]
    study = study_of({"kind": "joint_table", "rows": sides[0], "columns": sides[1]}, parties=parties)
    random = np.random.default_rng(6)
    session = session_of(study, {name: {"x": random.random(records)} for name in PARTIES}, random)
    assert session.job.terms.grid.dimension == cells
    own, other = (each.reshape(-1, records) for each in session.values)
    expected = (own @ other.T * session.job.parameters["scale"]).ravel() + sum(session.noises)
    assert asyncio.run(session.run(processes))[0] == expected.tolist()


def test_two_organisations_get_a_regression_in_real_processes() -> None:
    random = np.random.default_rng(2)
    spending = random.uniform(0, 1000, 50)
    default = np.clip(0.2 + 0.0005 * spending + random.normal(0, 0.05, 50), 0, 1)
    release = run(study_of(REGRESSION), {"bank": {"default": default}, "shop": {"spending": spending}})
    slope = next(answer for answer in release.answers if answer.part == "spending")
    assert slope.value == pytest.approx(np.polyfit(spending, default, 1)[0], rel=1e-2)
    assert release.parties["shop"].answers is None
    assert "CHEETAH" in release.parties["shop"].guarantee
    assert "not against quantum computers" in release.parties["bank"].guarantee


def test_three_organisations_of_which_two_may_collude_agree_with_least_squares() -> None:
    """On people like those of the census; the same study on shares is in test_shares_study.py."""
    release = run(Study.parse({**VERTICAL, "threshold": 2}), people())
    answers = {answer.part: answer for answer in release.answers}
    for part, truth in zip(("intercept", "children", "age", "education"), least_squares(), strict=True):
        assert abs(answers[part].value - truth) <= 6 * answers[part].standard_error, part


@pytest.mark.skipif(not CENSUS.exists(), reason="the census file is not part of the package")
@pytest.mark.parametrize("threshold", [1, 2])
def test_a_regression_of_the_census_is_that_of_a_trusted_curator(threshold: int) -> None:
    """With threshold 1 two organisations hold all columns, otherwise three."""
    count = 50_000
    held = {"bank": ["income"], "school": ["education", "age", "children"]}
    if threshold == 2:
        held = {"bank": ["income"], "school": ["education", "age"], "registry": ["children"]}
    table = read_adults(CENSUS, count, seed=1)
    columns = {
        each.column: np.clip(np.asarray(table[each.column], dtype=np.float64), each.low, each.high) for each in RANGES
    }
    query = {**VERTICAL["queries"][0], "held_by": held}
    parties = [{"name": name, "records": count} for name in held]
    document = {**VERTICAL, "threshold": threshold, "epsilon": 2.0, "parties": parties, "queries": [query]}
    tables = {name: {column: table[column] for column in each} for name, each in held.items()}
    release = run(Study.parse(document), tables)
    answers = {answer.part: answer for answer in release.answers}
    inputs = np.column_stack([np.ones(count), columns["children"], columns["age"], columns["education"]])
    truth = np.linalg.lstsq(inputs, columns["income"], rcond=None)[0]
    for part, value in zip(("intercept", "children", "age", "education"), truth, strict=True):
        assert abs(answers[part].value - value) <= 6 * answers[part].standard_error, part
        assert answers[part].standard_error <= abs(value), part
    assert "CHEETAH" in release.parties["bank"].guarantee


def test_what_travels_is_frames_of_brpc_without_pickles(
    processes: list[PairProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each direction of each connection starts with a frame, and nothing in the frames can be unpickled."""
    started: dict[tuple[int, int], bytes] = {}
    send = Tunnel._send

    def watched(self: Tunnel, kind: TunnelKind, stream: int = 0, data: bytes = b"") -> None:
        if kind == TunnelKind.BYTES:
            started[id(self), stream] = started.get((id(self), stream), b"") + data
        send(self, kind, stream, data)

    monkeypatch.setattr(Tunnel, "_send", watched)
    random = np.random.default_rng(3)
    tables = {"bank": {"default": random.random(50)}, "shop": {"spending": random.random(50)}}
    asyncio.run(session_of(study_of(REGRESSION), tables, random).run(processes))
    assert len(started) == 4  # two connections, both ways
    for sent in started.values():
        frames = list(frames_of(sent))
        assert frames
        assert not any(frame.startswith(b"\x80") and frame.endswith(b".") for frame in frames)  # a pickle would


def frames_of(sent: bytes) -> Iterator[bytes]:
    """The bodies of brpc's own frames: PRPC, length of the body, length of its head."""
    while sent:
        magic, body = sent[:4], int.from_bytes(sent[4:8], "big")
        assert magic == b"PRPC"
        yield sent[12 : 12 + body]
        sent = sent[12 + body :]


def test_the_benchmark_runs() -> None:
    assert len(pairs.all_rows(pairs.TOY)) == 2


def test_a_third_party_without_columns_adds_noise_and_may_receive() -> None:
    parties = [{"name": name, "records": 50, "epsilon": 1e4} for name in PARTIES]
    parties.append({"name": "office", "records": 0, "epsilon": float("inf")})
    study = study_of(MAXIMUM, parties=parties, receivers=["office"], threshold=2)
    release = run(study, {"bank": {"x": np.full(50, 3.0)}, "shop": {"x": np.full(50, 7.0)}})
    assert release.parties["bank"].answers is None
    (answer,) = release.answers
    assert answer.value == pytest.approx(7.0, abs=0.01)


def test_the_maximum_of_three_needs_shares(processes: list[PairProcess]) -> None:
    del processes
    parties = [{"name": name, "records": 50, "epsilon": 1.0} for name in ("bank", "shop", "post")]
    with pytest.raises(InputError, match="must be less than half the number of parties"):
        study_of(MAXIMUM, parties=parties, threshold=2)


PAIR: dict[str, Any] = {
    "kind": "pair_function",
    "function": "tpmdp.engines.spu.functions:count_larger",
    "bounds": {"x": [-20, 20], "y": [-20, 20]},
    "held_by": {"bank": ["x"], "shop": ["y"]},
    "sensitivity": 1,
    "largest": 50,
}


def test_a_function_of_ones_own_is_exact_and_gets_noise() -> None:
    random = np.random.default_rng(4)
    x, y = random.integers(-20, 21, 50), random.integers(-20, 21, 50)
    release = run(study_of(PAIR, receivers="all"), {"bank": {"x": x + 0.4}, "shop": {"y": y - 0.4}})
    (answer,) = release.answers
    assert answer.value == pytest.approx(int((x > y).sum()), abs=6 * answer.standard_error)
    assert 0 < answer.standard_error < 0.05


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sensitivity": 0.9}, r"sensitivity of q = 0.9 is wrong: one record was found to move the results by 1"),
        ({"largest": 3}, r"largest of q = 3.0 is wrong: a result of \d was found"),
        ({"results": ["a", "b"]}, "must give 2 whole numbers of 64 bits"),
        ({"function": "tpmdp.engines.spu.functions:missing"}, r"SPU could not compute the function \(AttributeError\)"),
    ],
)
def test_a_wrong_declaration_is_found_before_anybody_pays(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    tables = {"bank": {"x": np.ones(50)}, "shop": {"y": np.ones(50)}}
    with pytest.raises(TpmdpError, match=message):
        run(study_of({**PAIR, **change}), tables)


def test_a_rare_move_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function that moves by 3 only where a value is at the end of its bounds in both tables."""
    (tmp_path / "rare.py").write_text(
        "def rare(left, right):\n    import jax.numpy as jnp\n"
        "    both = (left[0][0] == 20) & (right[0][0] == -20)\n"
        "    return jnp.where(both, 3, jnp.sum(left[0] > 100)).reshape(1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="was found to move the results by 3"):
        study_of({**PAIR, "function": "rare:rare"}).check_custom()


def test_spu_listens_in_a_private_folder_and_serves_nothing_but_the_session(tmp_path: Path) -> None:
    """A stranger who reached the socket (nobody can) would find no service of brpc."""
    tmp_path.chmod(0o700)
    sockets = [str(tmp_path / "own"), str(tmp_path / "other")]
    task = PairTask(0, 1, FUNCTIONS, function="gram", shapes=((1, 4), (4, 1)), start=0, size=1)
    process = PairProcess()
    process.ready()
    words = {"do": "compute", "rank": 0, "sockets": sockets, "noise": False, **task.plain()}
    process._tell(words, [np.ones((1, 4), dtype=np.int64)])  # it waits for the other side
    try:
        for page in ("/", "/flags", "/vars", "/pprof/cmdline", "/status", "/dir/etc"):
            reply = asked(sockets[0], page)
            assert b"Fail to find method" in reply, page
        listening = subprocess.run(["ss", "-ltnp"], capture_output=True, text=True, check=False).stdout
        assert f"pid={process._child.pid}," not in listening
    finally:
        process.stop()


def asked(path: str, page: str) -> bytes:
    end = time.monotonic() + HANG_S
    while time.monotonic() < end:
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(HANG_S)
                connection.connect(path)
                connection.sendall(f"GET {page} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
                return connection.recv(4096)
        except OSError:
            time.sleep(0.02)
    raise AssertionError("nobody listens")


def test_spu_refuses_pickle_and_sees_nothing_of_our_environment(processes: list[PairProcess], tmp_path: Path) -> None:
    evil = tmp_path / "evil.py"
    evil.write_text(
        "def pickled(left, right):\n    import pickle\n    return left + pickle.loads(pickle.dumps(3))\n\n"
        "def environment(left, right):\n    import os\n    return left + 10 * ('HOME' in os.environ)\n"
    )
    ones = np.ones((2, 3), dtype=np.int64)
    with pytest.raises(Exception, match=r"SPU could not compute the function \(RuntimeError\)"):
        processes[0].evaluate(evil, "pickled", ones, ones)
    seen = processes[0].evaluate(evil, "environment", ones, ones)
    assert seen is not None
    assert "HOME" in os.environ
    assert (seen == 1).all()


def test_an_error_in_a_function_tells_its_type_and_no_number(processes: list[PairProcess], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.py"
    wrong.write_text("def wrong(left, right):\n    raise ValueError(f'secret {left}')\n")
    ones = np.ones((2, 3), dtype=np.int64)
    with pytest.raises(Exception, match=r"^SPU could not compute the function \(ValueError\): check the function$"):
        processes[0].evaluate(wrong, "wrong", ones, ones)


def test_a_missing_or_wrong_environment_says_how_to_make_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert Path(spu_python()).exists()
    monkeypatch.setenv(SETTING, str(tmp_path / "python"))
    with pytest.raises(InputError, match=r"python3.11 -m venv .*-spu && .*pip install spu==0.9.5"):
        spu_python()
    fake = tmp_path / "bin" / "python"
    fake.parent.mkdir()
    versions = {**REQUIREMENTS, "spu": "0.9.4"}
    fake.write_text(f"#!/bin/sh\necho '{str(versions).replace(chr(39), chr(34))}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv(SETTING, str(fake))
    with pytest.raises(InputError, match=r"must have spu==0.9.5.*but has spu 0.9.4"):
        spu_python()


def test_without_the_environment_nothing_is_charged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(SETTING, str(tmp_path / "nowhere"))
    tables = {name: {"x": np.ones(50)} for name in PARTIES}
    with pytest.raises(InputError, match=SETTING):
        run(study_of(MAXIMUM), tables)
    found = study_of(MAXIMUM).check("bank", tables["bank"])
    assert any(SETTING in str(problem) for problem in found.problems)
    for name in PARTIES:
        (tmp_path / f"{name}.csv").write_text("x\n" + "1\n" * 50)
    with pytest.raises(InputError, match=SETTING):
        run_study(study_of(MAXIMUM), tmp_path, tmp_path / "state")
    assert not (tmp_path / "state").exists()
