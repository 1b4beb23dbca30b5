"""A real Flower deployment on loopback for tests: a SuperLink with TLS, and SuperNodes that prove their keys.

    with deployment(tmp_path, [Node("north", {"site": "north"}), ...]) as flower:
        result = flower.run(app_folder, {"rounds": 2})
        assert result.ok, result.log

Everything is in one folder, every output goes to a file there, and every process is ended at the end. Should the
tests themselves be killed, a small keeper process (this file, run as a program) ends what they started.
"""

from __future__ import annotations

import datetime
import ipaddress
import json
import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

Scalar = str | int | float | bool  # what Flower takes as a value of a node's or a run's configuration

START_S = 300.0  # for a process to be ready; these only end a hang
CLI_S = 300.0  # for a command of `flwr`
KILL_S = 60.0  # for killed processes to be gone
TAIL_LINES = 40
CONNECTION = "test"  # the name of the connection in the configuration of `flwr`
BIN = Path(sys.executable).parent
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


class DeploymentError(RuntimeError):
    """The deployment did not do what it was asked; the message has the tail of the log that matters."""


@dataclass(frozen=True)
class Node:
    """A SuperNode: its name, and what its apps find in `context.node_config`."""

    name: str
    config: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    run_id: int
    status: str  # "finished:completed", "finished:failed" or "finished:stopped"
    details: str  # of a failure
    log: str  # what the ServerApp wrote
    seconds: float

    @property
    def ok(self) -> bool:
        return self.status == "finished:completed"


@dataclass(eq=False)
class _Process:
    """A process of ours, the leader of its own session, with the sessions that its descendants opened."""

    popen: subprocess.Popen[bytes]
    output: Path
    sessions: set[int]

    def ended(self) -> bool:
        return self.popen.poll() is not None

    def text(self) -> str:
        return COLOURS.sub("", self.output.read_text(errors="replace"))


@dataclass
class Run:
    """A run under way."""

    run_id: int
    _flower: Deployment
    _process: _Process
    _started: float

    def log(self) -> str:
        """What the ServerApp wrote so far."""
        return self._process.text()

    def wait_for(self, text: str, timeout_s: float = START_S) -> None:
        """Wait until the ServerApp has written a text."""
        _wait(lambda: text in self.log() or self._process.ended(), timeout_s, f"{text!r} in the run's log", self.log)
        if text not in self.log():
            raise DeploymentError(f"the run ended without {text!r}:\n{_tail(self.log())}")

    def stop(self) -> None:
        """Ask the SuperLink to stop the run; `wait` then tells "finished:stopped"."""
        self._flower.flwr_json("stop", str(self.run_id))

    def wait(self, timeout_s: float = 180.0) -> RunResult:
        """Wait for the end of the run; a run that takes too long goes on, and keeps its nodes busy, until `stop`."""
        try:
            _wait(self._process.ended, timeout_s, "the end of the run", self._flower.story)
        finally:
            self._flower.kill(self._process)
        seconds = time.monotonic() - self._started
        (row,) = self._flower.flwr_json("list", "--run-id", str(self.run_id))["runs"]
        if not row["status"].startswith("finished"):
            raise DeploymentError(f"the log of a run that is {row['status']} ended:\n{self._flower.story()}")
        return RunResult(self.run_id, row["status"], row["status-details"], self.log(), seconds)


class Deployment:
    """A SuperLink and its SuperNodes; `deployment` makes one and ends it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.address = ""
        self.node_ids: dict[str, int] = {}
        self._all: list[_Process] = []
        self._named: dict[str, _Process] = {}
        self._commands = 0
        for name in ("certificates", "keys", "logs", "homes"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self._keeper = subprocess.Popen(
            [sys.executable, "-I", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    # What tests use

    def run(self, app: Path, run_config: Mapping[str, Scalar] | None = None, timeout_s: float = 180.0) -> RunResult:
        """Run an app to its end. Keys of `run_config` must be in the app's `[tool.flwr.app.config]`."""
        started = time.monotonic()
        run = self.start_run(app, run_config)
        return run.wait(timeout_s - (time.monotonic() - started))

    def start_run(self, app: Path, run_config: Mapping[str, Scalar] | None = None) -> Run:
        """Start an app without waiting for its end."""
        started = time.monotonic()
        arguments = ["run", str(app), CONNECTION, "--stream"]
        if run_config:
            arguments += ["--run-config", str(self._write_toml(f"run-{self._commands}", run_config))]
        process = self._flwr(arguments)

        def run_id() -> re.Match[str] | None:
            return re.search(r"Successfully started run (\d+)", process.text())

        _wait(lambda: run_id() is not None or process.ended(), CLI_S, "`flwr run`", process.text)
        found = run_id()
        if found is None:
            raise DeploymentError(f"`flwr run` failed:\n{_tail(process.text())}\n{self.story()}")
        return Run(int(found[1]), self, process, started)

    def register(self, *names: str) -> None:
        """Make key pairs for nodes and register the public keys with the SuperLink."""
        commands = {}
        for name in names:
            arguments = ["supernode", "register", str(self._key_pair(name)), CONNECTION, "--name", name]
            commands[name] = self._flwr([*arguments, "--format", "json"])
        for name, process in commands.items():
            self.node_ids[name] = int(self._finish(process)["node-id"])

    def start_node(self, node: Node, *, wait: bool = True) -> None:
        """Start a SuperNode; one whose name was not given to `register` has a key that the SuperLink does not know.

        The SuperLink refuses a node that was killed for as long as it thinks it online: 60 s after its last sign of
        life. Use `stop_node` for a node that is to come back.
        """
        previous = self._named.get(node.name)
        if previous is not None and not previous.ended():
            raise ValueError(f"node {node.name} is running")
        if not self._private_key(node.name).exists():
            self._key_pair(node.name)
        (port,) = _free_ports(1)
        self._start(
            node.name,
            [
                "flower-supernode",
                *("--superlink", self.address),
                *("--root-certificates", str(self.authority)),
                *("--auth-supernode-private-key", str(self._private_key(node.name))),
                *("--host", "127.0.0.1", "--port", str(port)),  # where its own app processes find it
                *("--node-config", str(self._write_toml(f"node-{node.name}", node.config))),
            ],
        )
        if wait:
            self.wait_for_node(node.name)

    def wait_for_node(self, name: str, timeout_s: float = START_S) -> None:
        """Wait until a SuperNode was accepted by the SuperLink."""
        self.wait_for_log(name, "SuperNode ID:", timeout_s)

    def wait_for_log(self, name: str, text: str, timeout_s: float = START_S) -> None:
        """Wait until a process ("superlink" or a node's name) has written a text."""
        process = self._named[name]
        _wait(lambda: text in process.text() or process.ended(), timeout_s, f"{text!r} from {name}", process.text)
        if text not in process.text():
            raise DeploymentError(f"{name} ended with {process.popen.returncode}:\n{_tail(process.text())}")

    def wait_for_end(self, name: str, timeout_s: float = START_S) -> int:
        """Wait until a process ended by itself, and return its exit code."""
        process = self._named[name]
        _wait(process.ended, timeout_s, f"the end of {name}", process.text)
        self.kill(process)  # what it may have left
        return process.popen.wait()

    def refused(self, node: Node, timeout_s: float = START_S) -> str:
        """Start a SuperNode that must be refused, and return what it wrote; raise if it is accepted."""
        self.start_node(node, wait=False)
        process = self._named[node.name]
        _wait(
            lambda: process.ended() or "SuperNode ID:" in process.text(),
            timeout_s,
            f"a refusal of {node.name}",
            process.text,
        )
        accepted = not process.ended()
        self.kill(process)
        if accepted or process.popen.returncode == 0:
            raise DeploymentError(f"{node.name} was not refused:\n{_tail(process.text())}")
        return process.text()

    def kill_node(self, name: str) -> None:
        """SIGKILL to a SuperNode and all its app processes."""
        self.kill(self._named[name])

    def stop_node(self, name: str, timeout_s: float = KILL_S) -> None:
        """SIGTERM to a SuperNode: it takes its leave of the SuperLink, so that it may come back at once."""
        process = self._named[name]
        process.popen.terminate()
        _wait(process.ended, timeout_s, f"the end of {name}", process.text)
        self.kill(process)

    def log_of(self, name: str) -> str:
        """What a process ("superlink" or a node's name) and its app processes wrote since it was started last."""
        return self._named[name].text()

    def nodes(self) -> list[dict[str, Any]]:
        """The SuperNodes as the SuperLink sees them: "node-id", "status" ("online", "offline"...), ..."""
        found: list[dict[str, Any]] = self.flwr_json("supernode", "list")["nodes"]
        return found

    def flwr_json(self, *arguments: str, timeout_s: float = CLI_S) -> dict[str, Any]:
        """Run a command of `flwr` for this SuperLink (its name goes last), and return its JSON."""
        return self._finish(self._flwr([*arguments, CONNECTION, "--format", "json"]), timeout_s)

    def story(self) -> str:
        """The tails of all logs, for errors."""
        return "\n".join(f"--- {name}\n{_tail(process.text())}" for name, process in self._named.items())

    # Start and end

    def start(self, nodes: Sequence[Node]) -> None:
        """Start the SuperLink, register the nodes and start them."""
        _write_certificates(self.folder / "certificates")
        (port,) = _free_ports(1)
        self.address = f"127.0.0.1:{port}"
        superlink = self._start(
            "superlink",
            [
                "flower-superlink",
                *("--host", "127.0.0.1", "--port", str(port)),
                *("--ssl-ca-certfile", str(self.authority)),
                *("--ssl-certfile", str(self.folder / "certificates/server.pem")),
                *("--ssl-keyfile", str(self.folder / "certificates/server.key")),
                "--enable-supernode-auth",
                "--disable-runtime-dependency-installation",
            ],
        )
        _wait(lambda: superlink.ended() or self._answers(port), START_S, "the SuperLink", superlink.text)
        if superlink.ended():
            raise DeploymentError(f"the SuperLink ended:\n{_tail(superlink.text())}")
        self._note(superlink)  # its SuperExec has a session of its own
        home = self.folder / "homes/flwr"
        home.mkdir(exist_ok=True)
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            + _toml({"address": self.address, "root-certificates": str(self.authority)})
        )
        self.register(*(node.name for node in nodes))
        for node in nodes:
            self.start_node(node, wait=False)
        for node in nodes:
            self.wait_for_node(node.name)

    def close(self) -> None:
        """Kill everything that was started."""
        try:
            for process in list(self._all):
                self.kill(process)
        finally:
            assert self._keeper.stdin is not None
            with suppress(OSError):
                self._keeper.stdin.close()
            self._keeper.wait(2 * KILL_S)

    @property
    def authority(self) -> Path:
        """The certificate that the SuperLink's one is signed with."""
        return self.folder / "certificates/ca.pem"

    def kill(self, process: _Process) -> None:
        """End a process and all its descendants, and forget their ids: the system may give them to others."""
        if process in self._all:
            _kill(process.sessions)
            process.popen.wait(KILL_S)
            self._all.remove(process)
            for session in process.sessions:
                self._tell(f"-{session}")

    # Inside

    def _start(self, name: str, command: Sequence[str]) -> _Process:
        times = len(list((self.folder / "logs").glob(f"{name}.*.log")))
        process = self._popen(command, self.folder / f"logs/{name}.{times}.log", home=name)
        self._named[name] = process
        return process

    def _flwr(self, arguments: Sequence[str]) -> _Process:
        self._commands += 1
        return self._popen(["flwr", *arguments], self.folder / f"logs/flwr.{self._commands}.log", home="flwr")

    def _popen(self, command: Sequence[str], output: Path, home: str) -> _Process:
        folder = self.folder / "homes" / home
        folder.mkdir(exist_ok=True)
        with output.open("wb") as file:
            popen = subprocess.Popen(
                [str(BIN / command[0]), *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=_environment(folder),
                start_new_session=True,
            )
        process = _Process(popen, output, {popen.pid})
        self._all.append(process)
        self._tell(str(popen.pid))
        return process

    def _note(self, process: _Process) -> None:
        _family(process.sessions)
        for session in process.sessions:
            self._tell(str(session))

    def _tell(self, line: str) -> None:
        assert self._keeper.stdin is not None
        with suppress(OSError):
            self._keeper.stdin.write(f"{line}\n".encode())
            self._keeper.stdin.flush()

    def _finish(self, process: _Process, timeout_s: float = CLI_S) -> dict[str, Any]:
        """Wait for a command of `flwr`, and return the JSON it wrote."""
        try:
            _wait(process.ended, timeout_s, "a command of flwr", process.text)
        finally:
            self.kill(process)
        text = process.text()
        answer: dict[str, Any] = {}
        with suppress(ValueError):
            answer = json.loads(text[text.index("{") : text.rindex("}") + 1])
        if process.popen.returncode != 0 or not answer.get("success"):
            raise DeploymentError(f"{process.popen.args!r} failed:\n{_tail(text)}\n{self.story()}")
        return answer

    def _answers(self, port: int) -> bool:
        context = ssl.create_default_context(cafile=str(self.authority))
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=5.0) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1"),
            ):
                return True
        except ssl.SSLCertVerificationError:
            raise
        except OSError:
            return False

    def _private_key(self, name: str) -> Path:
        return self.folder / "keys" / name

    def _key_pair(self, name: str) -> Path:
        """Make a key pair in the format Flower reads, and return the path of the public key."""
        key = ec.generate_private_key(ec.SECP384R1())
        _write_secret(self._private_key(name), key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
        public = self.folder / f"keys/{name}.pub"
        public.write_bytes(key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH))
        return public

    def _write_toml(self, name: str, values: Mapping[str, Scalar]) -> Path:
        path = self.folder / f"{name}.toml"
        path.write_text(_toml(values))
        return path


@contextmanager
def deployment(folder: Path, nodes: Sequence[Node]) -> Iterator[Deployment]:
    """A deployment that is ready, and that is ended whatever happens."""
    flower = Deployment(folder)
    try:
        flower.start(nodes)
        yield flower
    finally:
        flower.close()


def _environment(home: Path) -> dict[str, str]:
    """Ours without proxies and Flower settings, with a home of its own: nodes do not share unpacked apps."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("FLWR_") and not key.lower().endswith("_proxy")
    }
    return kept | {
        "PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}",  # Flower starts its own programs by name
        "HOME": str(home),
        "FLWR_HOME": str(home),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.25",  # instead of 1 s; shorter costs more CPU than it saves
        "PYTHONUNBUFFERED": "1",
        "NO_COLOR": "1",
    }


def _toml(values: Mapping[str, Scalar]) -> str:
    def text(value: Scalar) -> str:
        return json.dumps(value) if isinstance(value, str | bool) else repr(value)

    return "".join(f"{json.dumps(key)} = {text(value)}\n" for key, value in values.items())


def _wait(ready: Callable[[], bool], timeout_s: float, what: str, log: Callable[[], str]) -> None:
    end = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > end:
            raise DeploymentError(f"waited {timeout_s:.0f} s for {what}:\n{log()[-20_000:]}")
        time.sleep(0.05)


def _tail(text: str) -> str:
    return "\n".join(text.splitlines()[-TAIL_LINES:])


def _free_ports(count: int) -> list[int]:
    """Ports below those that the system gives to outgoing connections, which could take one before it is used."""
    found: list[int] = []
    while len(found) < count:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            found.append(port)
    return found


# Certificates


def _write_secret(path: Path, content: bytes) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)


def _write_certificates(folder: Path) -> None:
    """Write ca.pem, server.pem and server.key; the authority's own key is not kept."""
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)

    def builder(subject: str, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test authority")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key()), critical=False
            )
        )

    def usage(*, authority: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=True,
            key_cert_sign=authority,
            crl_sign=authority,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            encipher_only=False,
            decipher_only=False,
        )

    authority = (
        builder("test authority", authority_key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage(authority=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    server = (
        builder("localhost", server_key)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    (folder / "ca.pem").write_bytes(authority.public_bytes(Encoding.PEM))
    (folder / "server.pem").write_bytes(server.public_bytes(Encoding.PEM))
    _write_secret(folder / "server.key", server_key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


# Ends of processes


def _family(sessions: set[int]) -> set[int]:
    """The living processes of sessions and their descendants; sessions opened by descendants are added."""
    table: list[tuple[int, int, int]] = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            state, parent, _group, session, *_ = stat.read_text().rpartition(")")[2].split()
            if state not in "ZX":
                table.append((int(stat.parent.name), int(parent), int(session)))
    members: set[int] = set()
    while True:
        found = {pid for pid, parent, session in table if session in sessions or parent in members}
        if found == members:
            return members
        members = found
        sessions.update(session for pid, _parent, session in table if pid in members)


def _kill(sessions: set[int]) -> None:
    """Kill every process of sessions of ours, by its id, until none is left."""
    _family(sessions)  # while descendants can still be told by their parents
    for session in sessions:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(session, signal.SIGKILL)
    end = time.monotonic() + KILL_S
    while members := _family(sessions):
        if time.monotonic() > end:
            raise DeploymentError(f"processes {sorted(members)} do not end")
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _keep(lines: Iterable[str]) -> None:
    """Read ids of sessions that were opened (12) or ended (-12) until the end of the input; kill what remains."""
    sessions: set[int] = set()
    for line in lines:
        session = int(line)
        if session > 0:
            sessions.add(session)
        else:
            sessions.discard(-session)
    _kill(sessions)


if __name__ == "__main__":
    _keep(sys.stdin)
