"""The same sum over the same relay without privacy: every vector in clear, added up by the lead receiver."""

from __future__ import annotations

import json
import sys

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.clock import now_s
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.protocol.masks import from_words, word_type
from tpmdp.protocol.messages import Kind, Message, decode, encode
from tpmdp.protocol.terms import Terms


def main() -> None:
    task = json.loads(sys.stdin.buffer.readline())
    terms = Terms.parse(task["terms"])
    kind = word_type(terms.grid.word)
    vector = np.frombuffer(sys.stdin.buffer.read(terms.words_bytes), dtype=kind)
    identity = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(task["key"]))
    index = int(task["index"])
    with Mailbox(task["url"], terms, index, identity, now_s() + float(task["deadline_s"])) as mailbox:
        mailbox.connect()
        write({"ready": index})
        sys.stdin.buffer.readline()
        total = vector.copy()
        if index != terms.lead:
            header = (Kind.SUBMIT, 1, index, terms.lead, terms.session, terms.plan_hash)
            mailbox.post([encode(Message(*header, vector.tobytes()), identity)])
        else:
            seen, missing = 0, terms.count - 1
            while missing:
                for number, data in mailbox.fetch({Kind.SUBMIT: seen}, 20.0):
                    total += np.frombuffer(decode(data).body, dtype=kind)
                    seen, missing = number, missing - 1
        sent = mailbox.bytes_sent
    members = list(range(terms.count))  # this worker tolerates no drop-out
    write({"sent": sent, "receipt": index != terms.lead, "sum": index == terms.lead, "members": members})
    if index == terms.lead:
        sys.stdout.buffer.write(from_words(total, terms.grid.word).astype("<i8").tobytes())
        sys.stdout.buffer.flush()
    sys.stdin.buffer.read()


def write(line: dict[str, object]) -> None:
    sys.stdout.buffer.write(json.dumps(line).encode() + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
