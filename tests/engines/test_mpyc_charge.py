"""What is wrong on our own side shows before anything is charged; and what a job lets a party give."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.engines.direct_studies import NAMES, Parties
from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp import InputError
from tpmdp.engines.direct import worker_process
from tpmdp.engines.direct.network import listen
from tpmdp.engines.direct.worker_process import WorkerProcess
from tpmdp.engines.mpyc.engine import MpycEngine
from tpmdp.engines.mpyc.job import MpycJob
from tpmdp.engines.mpyc.runtime import require_mpyc
from tpmdp.errors import DeadlineError, TpmdpError
from tpmdp.ledger.witness import RestoredLedgerError
from tpmdp.queries.maximum import Maximum
from tpmdp.study.events import SessionEvent
from tpmdp.study.file import parse_address
from tpmdp.study.join import join
from tpmdp.study.release import PartyRelease

pytestmark = pytest.mark.process

MAXIMUM = "tpmdp.engines.mpyc.functions:maximum"


@pytest.mark.parametrize(
    ("addresses", "options", "message"),
    [
        ({}, {"listen": "nonsense"}, "listen = .* must be host:port"),
        ({}, {"listen": "a..b:7000"}, "listen = .* must be host:port"),
        ({"school": "0.0.0.0:7102"}, {}, "address = 0.0.0.0:7102 must be a host"),
        ({"school": "192.0.2.1:7102"}, {}, "address = 192.0.2.1:7102 cannot be listened on"),
        ({}, {"listen": "192.0.2.1:7102"}, "address = 192.0.2.1:7102 cannot be listened on"),
        ({}, {"listen": "no-such-host.invalid:7102"}, "cannot be listened on"),
    ],
)
def test_an_address_that_cannot_be_used_costs_nothing(
    tmp_path: Path, addresses: dict[str, str], options: dict[str, Any], message: str
) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"], **addresses)
    with pytest.raises(InputError, match=message):
        parties.join("school", **options)
    assert parties.charges("school") == 0


def test_a_port_in_use_or_another_key_costs_nothing(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    address = parse_address("address", parties.study.parties[1].address)
    with socket.create_server(address), pytest.raises(InputError, match="cannot be listened on"):
        parties.join("school")
    with parties.ledger("school") as ledger, pytest.raises(InputError, match=r"key of school = .not shown."):
        join(parties.study, "school", Ed25519PrivateKey.generate(), parties.table("school"), ledger, None)
    assert parties.charges("school") == 0


def test_a_process_that_is_ready_too_late_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = WorkerProcess.port

    def late(self: WorkerProcess) -> int:
        port = plain(self)
        monkeypatch.setattr(worker_process, "now_s", lambda: self.deadline)
        return port

    monkeypatch.setattr(WorkerProcess, "port", late)
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    with pytest.raises(DeadlineError, match="before our own process had started"):
        parties.join("school")
    assert parties.charges("school") == 0


def test_a_party_that_never_comes_costs_nothing_and_the_session_goes_on(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"], deadline="8s")
    said = parties.begin("school", "bank").end()
    for name in ("school", "bank"):
        assert isinstance(said[name], DeadlineError)
        assert parties.charges(name) == 0
    patient = Parties.load(tmp_path, deadline="30m")
    said = patient.begin("school", "bank", "registry").end()
    assert isinstance(said["bank"], PartyRelease), said
    assert [patient.charges(name) for name in NAMES] == [1, 1, 1]


def test_parties_with_different_studies_learn_what_differs_and_pay_nothing(tmp_path: Path) -> None:
    """A typo in one study file: everybody hears of it, and the same session works once it is mended."""
    parties = Parties.of(tmp_path, "maximum", ["bank"], deadline="30m")
    typo = Parties.load(tmp_path, at_least=2)
    all_know = threading.Barrier(3)

    def stop(event: SessionEvent) -> None:
        if event.kind == "difference":
            all_know.wait(HANG_S)
            raise TpmdpError(event.text)

    others = parties.begin("bank", "registry", on_event=stop)
    mistaken = typo.begin("school", on_event=stop)
    assert {str(error) for error in others.end().values()} == {'school has another query "m"'}
    assert str(mistaken.end()["school"]) in ('bank has another query "m"', 'registry has another query "m"')
    assert [parties.charges(name) for name in NAMES] == [0, 0, 0]
    said = parties.begin(*NAMES).end()
    assert isinstance(said["bank"], PartyRelease), said
    assert said["bank"].answers is not None
    assert [parties.charges(name) for name in NAMES] == [1, 1, 1]


def test_a_restored_ledger_is_noticed_before_anybody_pays(tmp_path: Path) -> None:
    parties = Parties.of(tmp_path, "maximum", ["bank"], deadline="30m")
    copy = (tmp_path / "school.ledger").read_bytes()
    said = parties.begin(*NAMES).end()
    assert isinstance(said["bank"], PartyRelease), said
    (tmp_path / "school.ledger").write_bytes(copy)
    second = Parties.load(tmp_path, session=2)
    said = second.begin(*NAMES).end()
    assert isinstance(said["school"], RestoredLedgerError)
    assert "it was restored from an old copy" in str(said["school"])
    assert parties.charges("school") == 0


def test_numbers_beyond_the_limits_of_the_query_cost_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Maximum, "parameters", lambda *_: {"limits": [[[1, 0]]] * 3})
    parties = Parties.of(tmp_path, "maximum", ["bank"])
    with pytest.raises(InputError, match=r"must lie within \+-0 as the query says"):
        parties.join("school")
    assert parties.charges("school") == 0


@pytest.mark.parametrize("host", ["a..b", ".a", "a" * 64, "a." * 127 + "a", ""])
def test_hosts_that_are_no_names_are_refused(host: str) -> None:
    with pytest.raises(InputError, match="must be host:port"):
        parse_address("address", f"{host}:7000")
    if host == "a..b":
        with pytest.raises(InputError, match="cannot be listened on"):
            listen(host, 7000)


def test_hosts_that_are_names_are_taken() -> None:
    for host in ("a", "a.b.", "x-1.example.org", "a" * 63 + ".b", "127.0.0.1", "a." * 126 + "a"):
        assert parse_address("address", f"{host}:7000") == (host, 7000)


@pytest.mark.parametrize("version", ["0.10", "0.11.1", "0.12", "1.0"])
def test_another_version_of_mpyc_is_refused(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    assert require_mpyc() in ("0.11", "0.11.0")
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    with pytest.raises(InputError, match=f"version of mpyc = {version} must be 0.11"):
        require_mpyc()
    world = World(3, 1)
    with pytest.raises(InputError, match="version of mpyc"):
        MpycEngine().run(world.terms, world.identities, world.vectors, 500.0)


def test_a_job_says_what_a_party_may_give() -> None:
    world = World(3, 1, [0])
    sections = {"limits": [[[1, 5], [2, 7]], [[3, 9]], [[3, 0]]]}
    job = MpycJob.of(world.terms, MAXIMUM, sections, [3, 3, 3], noise_apart=False)
    job.check(0, np.array([-5, 7, -7]), None)
    job.check(2, np.zeros(3, dtype=np.int64), None)
    for party, values in ((0, [6, 0, 0]), (0, [0, 0, 8]), (0, [-6, 0, 0]), (1, [0, -10, 0]), (2, [0, 0, 1])):
        with pytest.raises(InputError, match=r"values = \(not shown\) must lie within"):
            job.check(party, np.array(values), None)
    assert job.digest() != MpycJob.of(world.terms, MAXIMUM, None, [3, 3, 3], noise_apart=False).digest()
    for bad in (5, [[[3, 1]]] * 2, [[[2, 1]]] * 3, [[[3, -1]]] * 3, [[[3]]] * 3, [[["x", 1]]] * 3):
        with pytest.raises(InputError, match="limits"):
            MpycJob.of(world.terms, MAXIMUM, {"limits": bad}, [3, 3, 3])
