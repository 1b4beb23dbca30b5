"""A Flower simulation as a process of its own, for the engine: one session after the other, a line for each.

The key and the vector of a party lie in files that only its node reads: what a receiver gets, it writes there. The
folder is private to whoever started us. `python -m tpmdp.flower.simulation FOLDER NODES`.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import IO, Any, Final, cast

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.child import private_output
from tpmdp.engines.contract import stuck
from tpmdp.errors import TpmdpError
from tpmdp.protocol.masks import word_type
from tpmdp.protocol.messages import Kind, MessageError, decode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets, MappingStore, StoredSecrets
from tpmdp.protocol.terms import Terms

TERMS: Final = "terms.json"
QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_NODES_WAIT_S: Final = 0.05
_PLACE: Final = re.compile("[0-9a-f]{16}")


def task_name(index: int, in_server: bool) -> str:
    """The file with a party's key: one that the server app plays is no node's.

    >>> task_name(3, False), task_name(0, True)
    ('3.json', 'server.json')
    """
    return "server.json" if in_server else f"{index}.json"


class _Seat:
    """A party's files."""

    def __init__(self, folder: Path, place: str, index: int, in_server: bool = False) -> None:
        if not _PLACE.fullmatch(place):
            raise MessageError("a place that is none")
        self.folder = folder / place
        self.index = index
        self._task = self.folder / task_name(index, in_server)

    @property
    def exists(self) -> bool:
        return self._task.exists()

    def party(self, secrets: StoredSecrets) -> tuple[PartySession, Kind | None]:
        """The party, and the kind of message before which it is to vanish, for tests."""
        terms = Terms.parse((self.folder / TERMS).read_text())
        task = json.loads(self._task.read_text())
        identity = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"]))
        vector = np.fromfile(self.folder / f"{self.index}.vector", dtype=word_type(terms.grid.word))
        lost = None if task["lost"] is None else Kind(task["lost"])
        return PartySession(terms, self.index, identity, vector, secrets, secrets.last_attempt()), lost

    def finish(self, party: PartySession) -> None:
        """Write down what the party got."""
        if party.result is not None:
            party.result.astype("<i8").tofile(self.folder / f"{self.index}.sum")
        elif party.receipt:
            (self.folder / f"{self.index}.receipt").touch()


class LostError(RuntimeError):
    """A node that is to fail, for tests."""


def _client_app(folder: Path) -> Any:
    from flwr.app import ConfigRecord, Context, Message
    from flwr.clientapp import ClientApp

    from tpmdp.flower.desk import mark, replay, unsent
    from tpmdp.flower.wire import Value, bytes_of, fields_of, pack, record_of, text_of, unpack

    app = ClientApp()

    @app.query()
    def answer(message: Message, context: Context) -> Message:
        fields = fields_of(message.content)
        place = text_of(fields, "place")
        seat = _Seat(folder, place, int(context.node_config["partition-id"]))
        if not seat.exists:
            return Message(record_of({"outbox": pack([])}), reply_to=message)
        kept = context.state.setdefault(f"secrets {place}", ConfigRecord())
        memory = cast(ConfigRecord, context.state.setdefault(f"memory {place}", ConfigRecord()))
        inbox = cast(list[bytes], memory.get("inbox", [])) + unpack(bytes_of(fields, "inbox") or b"-")
        sent = cast(list[bytes], memory.get("sent", []))
        try:
            party, lost = seat.party(StoredSecrets(MappingStore(cast(dict[str, bytes], kept))))
            out, memory["inbox"] = replay(party, inbox, fields.get("late") is True)
        except TpmdpError as error:
            return Message(record_of({"problem": str(error)}), reply_to=message)
        out = unsent(out, sent)
        if any(decode(data).kind == lost for data in out):
            raise LostError("lost")
        memory["sent"] = sent + [mark(data) for data in out]
        seat.finish(party)
        told: dict[str, Value] = {
            "outbox": pack(out),
            "done": party.done,
            "stuck": stuck(party) if party.is_lead else "",
        }
        return Message(record_of(told), reply_to=message)

    return app


def _serve(folder: Path, nodes: int, out: IO[bytes]) -> Any:
    from flwr.app import Context
    from flwr.serverapp import Grid, ServerApp

    from tpmdp.flower.hub import Session

    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        while len(list(grid.get_node_ids())) < nodes:
            time.sleep(_NODES_WAIT_S)
        _tell(out, {"ready": nodes})
        for line in sys.stdin.buffer:
            task = json.loads(line)
            terms = Terms.parse((folder / task["place"] / TERMS).read_text())
            here = {}
            if task["server"] is not None:
                seat = _Seat(folder, task["place"], task["server"], in_server=True)
                here[seat.index] = seat.party(FreshSecrets())[0]
            began = time.monotonic()
            try:
                ids = list(grid.get_node_ids())
                session = Session(grid, ids, terms, here, task["place"], task["patience_s"], began + task["deadline_s"])
                session.run()
                for index, party in here.items():
                    _Seat(folder, task["place"], index).finish(party)
                _tell(out, {"sent": session.bytes_sent, "seconds": time.monotonic() - began})
            except TpmdpError as error:
                _tell(out, {"error": str(error), "kind": type(error).__name__})

    return app


def _tell(out: IO[bytes], line: dict[str, Any]) -> None:
    out.write(json.dumps(line).encode() + b"\n")
    out.flush()


def main() -> None:
    """Run until standard input ends."""
    os.environ.update(QUIET)
    folder, nodes = Path(sys.argv[1]), int(sys.argv[2])
    out = private_output()
    from flwr.simulation import run_simulation

    backend = {
        "init_args": {"include_dashboard": False, "log_to_driver": False, "num_cpus": 2},
        "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
    }
    run_simulation(_serve(folder, nodes, out), _client_app(folder), nodes, backend_config=cast(Any, backend))


if __name__ == "__main__":
    main()
