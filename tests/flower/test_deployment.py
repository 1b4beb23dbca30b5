"""A private training on a real deployment: TLS, SuperNodes with registered keys, and things that go wrong on the way.

Messages are slow there, so one run has it all: a server that asks for plain training, a client that the others do not
know, a round of all, and a round in which a node goes away. One test, too: pytest-xdist would run several of a module
in several processes, each with a deployment of its own.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from numpy.typing import NDArray

from tests.flower.deployment import Deployment, DeploymentError, Node, RunResult, Scalar, deployment
from tpmdp.ledger import Ledger
from tpmdp.study.identity import public_text, read_key, write_key
from tpmdp.study.session import FEWER

pytestmark = [
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
    pytest.mark.skipif(find_spec("flwr") is None, reason="needs pip install 'tpmdp[flower]'"),
]

APP = Path(__file__).parent / "app"
CLIP = 1.0  # as the app has it
ROUNDS = 2
WAIT_S = 1200.0  # for what takes seconds: only ends a hang
EPSILONS = {"north": 20_000.0, "east": 40_000.0, "south": 60_000.0, "west": 80_000.0}  # so the noise is small
STEPS = {
    "north": (0.2512873, -0.5037411, 0.1259173),
    "east": (-0.5046113, 0.2591377, 0.0071293),
    "south": (31.4159265, 0.0157079, 42.4264069),  # gets clipped
    "west": (0.0627459, 0.5018237, -0.3764913),
}
SECRETS = {name: 86_753_091 + 1_111 * place for place, name in enumerate([*STEPS, "stranger"])}  # in metrics of the app
LEAVES = "west"  # in round 2


@dataclass(frozen=True)
class Past:
    """What is left of the run."""

    flower: Deployment
    clients: Path  # their folder
    result: RunResult

    def told(self, what: str) -> dict[str, Any]:
        """A line of JSON that the server app has printed."""
        (line,) = re.findall(rf"^{what} (.*)$", self.result.log, re.MULTILINE)
        found: dict[str, Any] = json.loads(line)
        return found

    def reports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.told("PRIVATE")["reports"]
        return found

    def logs(self) -> dict[str, str]:
        """All that any process has written."""
        return {path.name: path.read_text(errors="replace") for path in (self.flower.folder / "logs").iterdir()}


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    clients = tmp_path / "clients"
    _make_clients(clients)
    nodes = [Node(name, _config(clients / f"{name}.toml", name)) for name in (*STEPS, "stranger")]
    with deployment(tmp_path / "flower", nodes) as flower:
        run = flower.start_run(APP, {"key": str(clients / "server.key"), "rounds": ROUNDS, "clients": len(STEPS)})
        try:
            flower.wait_for_log("north", "is not a peer", WAIT_S)
            flower.stop_node("stranger")
            flower.wait_for_log(LEAVES, "HOLDING", WAIT_S)
            flower.stop_node(LEAVES)
        except DeploymentError as error:
            raise DeploymentError(f"{error}\n--- the run\n{run.log()}") from None
        yield Past(flower, clients, run.wait(WAIT_S))
        assert _processes_in(tmp_path)
    assert not _processes_in(tmp_path)


def _make_clients(folder: Path) -> None:
    """Keys, ledgers and settings; nobody knows the stranger, who takes anybody."""
    from tpmdp.flower.client_settings import write_settings
    from tpmdp.spec import Party

    folder.mkdir(mode=0o700)
    server = Ed25519PrivateKey.generate()
    write_key(folder / "server.key", server)
    peers = [f'server = "{public_text(server)}"']
    peers += [
        write_settings(folder, Party(name, epsilon, 1e-5, threshold=2), ROUNDS) for name, epsilon in EPSILONS.items()
    ]
    (folder / "peers.toml").write_text("\n".join(peers) + "\n")
    write_settings(folder, Party("stranger", 1.0, 1e-5, threshold=1), ROUNDS, peers="any")


def _config(settings: Path, name: str) -> dict[str, Scalar]:
    step = " ".join(map(str, STEPS.get(name, (0.0, 0.0, 0.0))))
    holds = {"hold-in-round": 2} if name == LEAVES else {}
    return {"tpmdp-party": str(settings), "step": step, "secret": SECRETS[name], **holds}


def _processes_in(folder: Path) -> list[str]:
    """Living processes that were started in a folder or with it in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            known = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
        except OSError:  # ended, or somebody else's
            continue
        if str(folder).encode() in known:
            found.append(f"{process.name}: {known[-300:]!r}")
    return found


def _clipped(name: str) -> NDArray[np.float64]:
    step = np.array(STEPS[name])
    return step * min(1.0, CLIP / float(np.linalg.norm(step)))


@pytest.mark.long
def test_private_training_on_a_real_deployment(past: Past) -> None:
    assert past.result.ok, past.result.details + past.result.log
    check_that_a_plain_server_gets_nothing(past)
    check_that_clients_refuse_one_they_do_not_know(past)
    check_the_averages(past)
    for name in STEPS:
        check_that_every_round_is_charged_and_settled_once(past, name)
    check_that_a_node_without_a_registered_key_is_refused(past)
    check_that_no_log_has_a_secret(past)


def check_the_averages(past: Past) -> None:
    models = np.array(past.told("PRIVATE")["models"])
    first, second = past.reports()
    assert (first["number"], set(first["counted"]), first["missing"]) == (1, set(STEPS), [])
    assert (second["number"], set(second["counted"]), second["missing"]) == (2, set(STEPS) - {LEAVES}, [LEAVES])
    everyone = np.mean([_clipped(name) for name in STEPS], axis=0)
    others = np.mean([_clipped(name) for name in STEPS if name != LEAVES], axis=0)
    assert 0 < first["noise"] < second["noise"] < 0.01
    np.testing.assert_allclose(models[1] - models[0], everyone, rtol=0, atol=7 * first["noise"])
    np.testing.assert_allclose(models[2] - models[1], others, rtol=0, atol=7 * second["noise"])
    assert "tpmdp: round 1/2: 4 clients\n" in past.result.log
    assert f"tpmdp: {LEAVES}: Error: Node Unavailable" in past.result.log
    assert "tpmdp: round 2/2: 3 clients, 1 dropped out" in past.result.log


def check_that_every_round_is_charged_and_settled_once(past: Past, name: str) -> None:
    """Nothing for the plain server and the session with the stranger. Training that is cut off has been charged."""
    sessions = [report["session"] for report in past.reports()]
    counted = [report["session"] for report in past.reports() if name not in report["missing"]]
    assert len(counted) == (1 if name == LEAVES else 2)
    with Ledger.open(past.clients / f"{name}.ledger") as ledger:
        ledger.verify()
        spent, every = ledger.spent(), list(ledger.entries())
    entries = [entry for entry in every if not entry.study.endswith(FEWER)]
    added = sum(entry.kind == "charge" for entry in every) - sum(entry.kind == "charge" for entry in entries)
    assert [entry.study for entry in entries if entry.kind == "charge"] == sessions
    assert [(entry.study, entry.outcome) for entry in entries if entry.kind == "settle"] == [
        (session, "receipt") for session in counted
    ]
    assert spent.sessions == len(sessions) + added  # an attempt with fewer parties that costs more
    assert 0 < spent.epsilon <= spent.limit_epsilon == EPSILONS[name]


def check_that_a_plain_server_gets_nothing(past: Past) -> None:
    assert past.told("PLAIN") == {"arrays": [], "metrics": []}
    assert "aggregate_train: Received 0 results and 5 failures" in past.result.log
    reasons = re.findall(r"Received error in reply from node (\d+): (.*)", past.result.log)
    assert {int(node) for node, _ in reasons} == set(past.flower.node_ids.values())
    assert all("this client takes part in private trainings only" in reason for _, reason in reasons)
    assert all("use tpmdp.flower.PrivateStrategy" in reason for _, reason in reasons)


def check_that_clients_refuse_one_they_do_not_know(past: Past) -> None:
    for name in STEPS:
        refusal = f"stranger is not a peer of {name} with this public key"
        assert refusal in past.flower.log_of(name)
        assert refusal in past.result.log
    with Ledger.open(past.clients / "stranger.ledger") as ledger:
        ledger.verify()
        assert not {entry.study for entry in ledger.entries()} & {report["session"] for report in past.reports()}


def check_that_a_node_without_a_registered_key_is_refused(past: Past) -> None:
    text = past.flower.refused(Node("unregistered", _config(past.clients / "north.toml", "north")))
    assert "Failed to activate SuperNode" in text


def check_that_no_log_has_a_secret(past: Past) -> None:
    hidden = {str(number) for step in STEPS.values() for number in step}
    hidden |= {str(secret) for secret in SECRETS.values()}
    for path in past.clients.glob("*.key"):
        raw = read_key(path).private_bytes_raw()
        hidden |= {raw.hex(), base64.b64encode(raw).decode(), base64.urlsafe_b64encode(raw).decode(), repr(raw)[2:-1]}
    keys = [*past.clients.glob("*.key"), *(past.flower.folder / "certificates").glob("*.key")]
    keys += [path for path in (past.flower.folder / "keys").iterdir() if path.suffix != ".pub"]
    hidden |= {line for path in keys for line in path.read_text().splitlines() if len(line) > 20 and "---" not in line}
    assert len(hidden) > 50
    logs = past.logs()
    assert {"superlink.0.log", *(f"{name}.0.log" for name in STEPS)} <= set(logs)
    found = [(name, text) for name, log in logs.items() for text in sorted(hidden) if text in log]
    assert not found
