"""How a client introduces itself: what it claims, signed with its key over a nonce of the server.

The signature also covers the server's key and the node: an answer is of no use at another server, and no other node can
give it. Without it any node could enrol with the name and the public key of another client.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from tpmdp._util import fields as read
from tpmdp._util.budget_rules import DELTA_MIN, EPSILON_MIN
from tpmdp._util.canonical import canonical_json
from tpmdp.errors import InputError
from tpmdp.flower.client_settings import ClientSettings
from tpmdp.flower.round_terms import SERVER
from tpmdp.flower.wire import Value, bytes_of, text_of
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.terms import PUBLIC_KEY_BYTES
from tpmdp.spec import Party
from tpmdp.study.identity import check_name

CLIENTS_MAX: Final = 100_000
NONCE_BYTES: Final = 32
_DOMAIN: Final = b"tpmdp enrolment 1\n"
_EPSILONS: Final = (2 * EPSILON_MIN, 1e6)
_DELTA_LEAST: Final = 2 * DELTA_MIN


def question(server_key: bytes, nonce: bytes) -> dict[str, Value]:
    """What the server asks a node.

    >>> sorted(question(bytes(32), bytes(32)))
    ['enrol', 'nonce', 'server']
    """
    return {"enrol": True, "server": server_key, "nonce": nonce}


def introduce(settings: ClientSettings, asked: Mapping[str, Value], node: int, *, ready: bool) -> dict[str, Value]:
    """The client's answer: its name, key and budget for a round, and whether it has budget left."""
    server_key, nonce = bytes_of(asked, "server"), bytes_of(asked, "nonce")
    if len(server_key) != PUBLIC_KEY_BYTES or len(nonce) != NONCE_BYTES:
        raise MessageError("the server asks without its key or a nonce: use the same tpmdp on both sides")
    if settings.peers is not None and settings.peers.get(SERVER) != server_key:
        rule = f"is not the server that {settings.name} knows"
        raise InputError("server", server_key.hex()[:16], rule, "give all sides the same peers file")
    party = settings.round_party
    claim: dict[str, Value] = {
        "name": party.name,
        "key": settings.public_key,
        "epsilon": party.epsilon,
        "delta": party.delta,
        "threshold": settings.threshold,
        "ready": ready,
    }
    return {**claim, "signature": settings.identity.sign(statement(claim, server_key, nonce, node=node))}


def read_introduction(fields: Mapping[str, Any], server_key: bytes, nonce: bytes, *, node: int) -> tuple[Party, bool]:
    """Check a node's answer: the client with its budget for a round, and whether it has budget left."""
    problem = text_of(fields, "problem")
    if problem:
        raise MessageError(problem)
    name, key = check_name("name", text_of(fields, "name")), bytes_of(fields, "key")
    if len(key) != PUBLIC_KEY_BYTES:
        raise MessageError("a public key must have 32 bytes")
    epsilon, delta = fields.get("epsilon"), fields.get("delta")
    if not isinstance(epsilon, float) or not isinstance(delta, float):
        raise MessageError("a budget must be two numbers")
    if not (_EPSILONS[0] <= epsilon <= _EPSILONS[1] or epsilon == math.inf) or not _DELTA_LEAST <= delta < 1:
        raise MessageError("a budget for a round is out of the range that plans can have")
    threshold = read.whole("threshold", fields.get("threshold"), 1, high=CLIENTS_MAX)
    signed = statement(fields, server_key, nonce, node=node)
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(bytes_of(fields, "signature"), signed)
    except (InvalidSignature, ValueError):
        raise MessageError("an answer that is not signed with the key it names, for this server and node") from None
    return Party(name, epsilon, delta, public_key=key, threshold=threshold), fields.get("ready") is True


def statement(claim: Mapping[str, Any], server_key: bytes, nonce: bytes, *, node: int) -> bytes:
    """What is signed.

    >>> claim = {"name": "lab", "key": bytes(32), "epsilon": 1.0, "delta": 1e-5, "threshold": 2, "ready": True}
    >>> statement(claim, bytes(32), bytes(32), node=1)[:17]
    b'tpmdp enrolment 1'
    """
    content = {
        "server": server_key.hex(),
        "nonce": nonce.hex(),
        "node": str(node),
        "name": claim["name"],
        "key": claim["key"].hex(),
        "epsilon": claim["epsilon"].hex(),
        "delta": claim["delta"].hex(),
        "threshold": claim["threshold"],
        "ready": claim.get("ready") is True,
    }
    return _DOMAIN + canonical_json(content).encode()
