"""A Flower simulation as a child process of the engine: runs one session after the other, and reports a line for each.

The key and the vector of a party are in files that only its node reads; a receiver's node writes the sum there. Only
the user that started the process can read the folder.
"""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from tpmdp._util.child_side import private_output
from tpmdp.engines.contract import stuck
from tpmdp.errors import DeadlineError, TpmdpError, shown
from tpmdp.flower.driver import SessionDriver
from tpmdp.flower.message_replay import Memory, replay
from tpmdp.flower.nodes import Nodes
from tpmdp.flower.simulation import run_private_simulation
from tpmdp.flower.wire import Value, bytes_of, fields_of, pack, record_of, text_of, unpack
from tpmdp.protocol.masks import Mask, word_type
from tpmdp.protocol.messages import Kind, MessageError, decode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets, MappingStore, StoredSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import attempt_vectors

TERMS: Final = "terms.json"
_NODES_WAIT_S: Final = 0.05
_START_S: Final = 600.0  # only ends a hang
_NAME: Final = re.compile("[0-9a-f]{16}")


def task_name(index: int, in_server: bool) -> str:
    """The file with a party's key; a node does not find that of the party in the server app.

    >>> task_name(3, False), task_name(0, True)
    ('3.json', 'server.json')
    """
    return "server.json" if in_server else f"{index}.json"


class _PartyFiles:
    """The files of one party in one session."""

    def __init__(self, folder: Path, name: str, index: int, in_server: bool = False) -> None:
        if not _NAME.fullmatch(name):
            raise MessageError("not the name of a session")
        self._folder, self._index = folder / name, index
        self._task = self._folder / task_name(index, in_server)

    def party(self, secrets: StoredSecrets) -> tuple[PartySession, Kind | None]:
        """The party, and the kind of message before which it is to fail, for tests."""
        terms = Terms.parse((self._folder / TERMS).read_text())
        task = json.loads(self._task.read_text())
        identity = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"]))
        vector = np.fromfile(self._folder / f"{self._index}.vector", dtype=word_type(terms.grid.word))
        path = self._folder / f"{self._index}.plain"
        plain = np.fromfile(path, dtype="<i8").astype(np.int64) if path.exists() else None
        source = attempt_vectors(terms, self._index, vector, plain=plain)

        def same(attempt: int, members: frozenset[int]) -> Mask:
            """The vector of an attempt, drawn once: this party is started anew for every message."""
            word = word_type(terms.grid.word)
            return np.frombuffer(secrets.vector(attempt, lambda: source(attempt, members).tobytes()), dtype=word)

        lost = None if task["lost"] is None else Kind(task["lost"])
        attempt = secrets.last_attempt()
        return PartySession(terms, self._index, identity, vector=same, secrets=secrets, attempt=attempt), lost

    def finish(self, party: PartySession) -> None:
        """Write what the party got."""
        if party.result is not None:
            party.result.astype("<i8").tofile(self._folder / f"{self._index}.sum")
        elif party.receipt:
            (self._folder / f"{self._index}.receipt").touch()


class LostError(RuntimeError):
    """Raised by a node that is to fail, for tests."""


def _client_app(folder: Path) -> ClientApp:
    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        fields, index = fields_of(message.content), int(context.node_config["partition-id"])
        if "name" not in fields:  # the simulation starts
            return Message(record_of({"index": index}), reply_to=message)
        try:
            reply = _advance(folder, fields, index, context=context)
        except TpmdpError as error:
            reply = {"problem": str(error)}
        return Message(record_of(reply), reply_to=message)

    return app


def _advance(folder: Path, fields: dict[str, Value], index: int, context: Context) -> dict[str, Value]:
    """Hand a party its messages."""
    name = text_of(fields, "name")
    files, session, memory = _PartyFiles(folder, name, index), bytes.fromhex(name), Memory(context, "tpmdp")
    secrets = cast(dict[str, bytes], context.state.setdefault(f"secrets {name}", ConfigRecord()))
    party, lost = files.party(StoredSecrets(MappingStore(secrets)))
    inbox = memory.inbox(session) + unpack(bytes_of(fields, "inbox") or b"-")
    out, useful = replay(party, inbox, fields.get("late") is True)
    out = memory.unsent(session, out)
    if any(decode(data).kind == lost for data in out):
        raise LostError("lost")
    memory.write_inbox(session, useful)
    files.finish(party)
    return {"outbox": pack(out), "done": party.done, "stuck": stuck(party) if party.is_lead else ""}


class NodeError(TpmdpError):
    """A node refuses a request, and says why."""


class EngineSession(SessionDriver):
    """A session of the engine; the lead receiver may be at a node or in the server app."""

    def __init__(
        self, nodes: Nodes, terms: Terms, name: str, node_of: Mapping[int, int], local: Mapping[int, PartySession]
    ) -> None:
        party_at = {node: party for party, node in node_of.items() if party < terms.count and party not in local}
        super().__init__(nodes, terms, party_at, local=local)
        self._name, self._lead_node = name, node_of.get(terms.lead, -1)
        self._lead_done, self._problem, self._late = False, "", False

    @property
    def finished(self) -> bool:
        lead = self._local_lead
        return (self._lead_done if lead is None else lead.done) and not self.ready()

    def requests(self, messages: Mapping[int, list[bytes]]) -> tuple[dict[int, RecordDict], float]:
        fields: dict[str, Value] = {"name": self._name, "late": self._late}
        contents = {node: record_of({**fields, "inbox": pack(data)}) for node, data in messages.items()}
        return contents, self.deadline - time.monotonic()

    def accept(self, node: int, fields: dict[str, Value]) -> None:
        problem = text_of(fields, "problem")
        if problem:
            raise NodeError(f"{self.terms.spec.name(self.party_at[node])}: {shown(problem)}")
        if node == self._lead_node:
            self._lead_done, self._problem = fields.get("done") is True, text_of(fields, "stuck")

    def drop_missing(self) -> bool:
        if self._local_lead is not None:
            return super().drop_missing()
        if self._lead_node not in self.gone:
            self._late = True
            self.exchange({self._lead_node: []})
            self._late = False
        return bool(self.ready())

    def failure(self) -> str:
        if self._local_lead is not None:
            return stuck(self._local_lead)
        if self._lead_node in self.gone:
            return f"{self.terms.spec.name(self.terms.lead)}, the lead receiver, is lost: start a new session"
        return self._problem


def _server_app(folder: Path, count: int, out: IO[bytes]) -> ServerApp:
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        nodes = Nodes(grid, "query", expire=False)
        while len(nodes.ids()) < count:
            time.sleep(_NODES_WAIT_S)
        # Every node answers once, so that the time for Ray's workers to start is not taken from the first session.
        replies, failed = nodes.exchange({node: record_of({}) for node in nodes.ids()}, _START_S)
        if failed:
            raise DeadlineError(f"nodes of the simulation do not answer: {sorted(failed.values())[0]}")
        node_of = {int(cast(int, fields_of(reply)["index"])): node for node, reply in replies.items()}
        _write_line(out, {"ready": count})
        for line in sys.stdin.buffer:
            _write_line(out, _run_session(folder, nodes, node_of, task=json.loads(line)))

    return app


def _run_session(folder: Path, nodes: Nodes, node_of: Mapping[int, int], task: dict[str, Any]) -> dict[str, Any]:
    """Run the session of a task and report on it."""
    name, local = task["name"], {}
    terms = Terms.parse((folder / name / TERMS).read_text())
    began = time.monotonic()
    try:
        if task["server"] is not None:
            files = _PartyFiles(folder, name, task["server"], in_server=True)
            local[task["server"]] = files.party(FreshSecrets())[0]
        session = EngineSession(nodes, terms, name, node_of=node_of, local=local)
        session.deadline = began + task["deadline_s"]
        session.run()
        for index, party in local.items():
            _PartyFiles(folder, name, index).finish(party)
    except TpmdpError as error:
        return {"error": str(error), "kind": type(error).__name__}
    return {"sent": session.carrier.bytes_sent, "seconds": time.monotonic() - began}


def _write_line(out: IO[bytes], line: dict[str, Any]) -> None:
    out.write(json.dumps(line).encode() + b"\n")
    out.flush()


def main() -> None:
    """Run until standard input ends; the arguments are the folder and the number of nodes."""
    folder, nodes = Path(sys.argv[1]), int(sys.argv[2])
    out = private_output()
    apps = _server_app(folder, nodes, out), _client_app(folder)
    run_private_simulation(*apps, nodes, folder=folder)
