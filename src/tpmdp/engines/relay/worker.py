"""One party of the relay engine in its own process: it reads a task from standard input and writes its outcome.

A task is one line of JSON and the raw vector, with noise and perhaps without. The line is a secret, because it holds
the party's key: it travels through a pipe and not through arguments, environment or files.
"""

from __future__ import annotations

import json
import sys
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.child_side import error_report, write_report
from tpmdp._util.clock import now_s
from tpmdp.engines.relay.drive import drive
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.errors import TpmdpError
from tpmdp.protocol.masks import word_type
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import attempt_vectors

_IDLE_S: Final = 300.0  # between the report that it is ready and the start signal


def main() -> None:
    """Report ready, wait for the start signal, run, and report the outcome."""
    out = sys.stdout.buffer
    task = json.loads(sys.stdin.buffer.readline())
    terms = Terms.parse(task["terms"])
    vector = np.frombuffer(sys.stdin.buffer.read(terms.words_bytes), dtype=word_type(terms.grid.word))
    plain: IntArray | None = None
    if task["has_plain"]:
        plain = np.frombuffer(sys.stdin.buffer.read(8 * terms.grid.dimension), dtype="<i8").astype(np.int64)
    identity = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"]))
    index, deadline_s = int(task["index"]), float(task["deadline_s"])
    secrets, source = FreshSecrets(), attempt_vectors(terms, index, vector, plain=plain)

    def make() -> PartySession:
        attempt = secrets.last_attempt()
        return PartySession(terms, index, identity, vector=source, secrets=secrets, attempt=attempt)

    make()  # refuses bad terms before anything is sent
    with Mailbox(task["url"], terms, index, identity=identity, deadline=now_s() + _IDLE_S + deadline_s) as mailbox:
        try:
            mailbox.connect()
            write_report(out, {"ready": index})
            if not sys.stdin.buffer.readline():
                return  # the engine is gone
            party, left = drive(make, mailbox, now_s() + deadline_s, patience_s=float(task["patience_s"]))
            if left:
                mailbox.post(left)
        except TpmdpError as error:
            write_report(out, error_report(error))
            return
        sent = mailbox.bytes_sent
    members = sorted(party.members)
    report = {"sent": sent, "receipt": party.receipt, "sum": party.result is not None, "members": members}
    write_report(out, report, b"" if party.result is None else party.result.astype("<i8").tobytes())
    sys.stdin.buffer.read()  # the engine ends us when all are done: ending now would cost the others time


if __name__ == "__main__":
    main()
