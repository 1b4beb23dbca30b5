"""What two versions of tpmdp must agree on, as short texts: hashes, canonical texts, encodings.

`expected.json` was written by version 0.5.0, before the source tree was rearranged. A value may only change
together with the version that is written into it ("tpmdp plan 1", "tpmdp message 1", ...).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tpmdp
from tpmdp.engines.direct.record import Hello
from tpmdp.engines.mpyc.job import MpycJob
from tpmdp.engines.relay.wire import join_frames
from tpmdp.experiments.jobs import Job as Piece
from tpmdp.flower.round_terms import Training
from tpmdp.ledger.entry import entry_hash, origin_hash
from tpmdp.planning.plan_file import plan_document
from tpmdp.protocol.channel import seal
from tpmdp.protocol.hybrid import (
    CIPHERTEXT_BYTES,
    INNER_BYTES,
    PUBLIC_BYTES,
    SECRET_BYTES,
    Capsule,
    HybridKey,
    exchange_hash,
)
from tpmdp.protocol.masks import expand, mask_key
from tpmdp.protocol.messages import EVERYONE, Kind, Message, digest_of, encode
from tpmdp.queries.share_query import ShareQuery
from tpmdp.spec import Party
from tpmdp.study.identity import public_key_text

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
STUDIES = ("sums", "own_weights", "maximum", "vertical")


def digits(values: list[float]) -> str:
    """Twelve digits: the last ones of a logarithm may differ between machines."""
    return " ".join(f"{value:.12g}" for value in values)


def keys(names: list[str]) -> dict[str, bytes]:
    return {name: hashlib.sha256(name.encode()).digest() for name in names}


def studies() -> dict[str, tpmdp.Study]:
    found = {name: tpmdp.Study.read(HERE / f"{name}.toml") for name in STUDIES}
    found["custom"] = tpmdp.Study.read(HERE / "custom.toml", tpmdp.load_queries(HERE / "custom_query.py"))
    for name in ("stay", "income"):
        study = tpmdp.Study.read(EXAMPLES / name / "study.toml")
        found[name] = study.with_keys(keys([member.name for member in study.parties]))
    return found


def of_studies() -> dict[str, str]:
    seen = {}
    for name, study in studies().items():
        terms = study.terms()
        seen[f"{name}: canonical text"] = hashlib.sha256(terms.canonical().encode()).hexdigest()
        seen[f"{name}: query text"] = terms.query
        seen[f"{name}: plan hash"] = terms.plan_hash.hex()
        seen[f"{name}: session"] = terms.session.hex()
        seen[f"{name}: file"] = hashlib.sha256(study.toml().encode()).hexdigest()
        seen[f"{name}: charges"] = digits([value for index in range(terms.count) for value in terms.charge(index)])
        seen[f"{name}: neighbours"] = repr([terms.neighbours(index) for index in range(terms.count)])
    return seen


def of_shares() -> dict[str, str]:
    seen = {}
    for name in ("maximum", "vertical"):
        study = tpmdp.Study.read(HERE / f"{name}.toml")
        terms, query, parties = study.terms(), study.queries[0], study.party_records
        assert isinstance(query, ShareQuery)
        job = MpycJob.of(terms, query.functions["mpyc"], query.parameters(parties, terms.grid), query.sizes(parties))
        seen[f"{name}: function"] = job.function
        seen[f"{name}: job"] = job.digest().hex()
    hello = Hello(bytes(32), b"p" * 32, b"w" * 32, 0, 1, b"k" * PUBLIC_BYTES)
    return {**seen, "hello": hashlib.sha256(hello.encode()).hexdigest()}


def of_messages() -> dict[str, str]:
    identity = Ed25519PrivateKey.from_private_bytes(b"i" * 32)
    own, other = (HybridKey(letter * SECRET_BYTES) for letter in (b"a", b"b"))
    capsule = Capsule(b"c" * CIPHERTEXT_BYTES, b"d" * INNER_BYTES)
    seen = {}
    for kind in Kind:
        recipient = EVERYONE if kind in (Kind.AGREE, Kind.KEYS) else 1
        message = Message(kind, int(kind != Kind.AGREE), 0, recipient, b"s" * 32, b"p" * 32, b"body")
        data = encode(message, identity)
        seen[f"message {kind.name}"] = data.hex()
        seen[f"digest {kind.name}"] = digest_of(data).hex()
    envelope = Message(Kind.SUBMIT, 1, 0, 1, b"s" * 32, b"p" * 32, b"")
    seen["public keys"] = hashlib.sha256(own.public + other.public).hexdigest()
    seen["exchange"] = exchange_hash(own.public, other.public, capsule.ciphertext).hex()
    sealed = seal(own, other.public, envelope, capsule=capsule, content=b"content").body
    seen["sealed"] = sealed[CIPHERTEXT_BYTES:].hex()
    seen["opened"] = other.opened(capsule.ciphertext).hex()
    key = mask_key(own.agreed(other.public, capsule.inner), b"s" * 32, 0, high=1, context=b"context")
    seen["mask key"] = key.hex()
    for word in (32, 64):
        seen[f"mask of {word} bits"] = expand(key, 5, word).tobytes().hex()
    seen["frames"] = join_frames([b"one", b"", b"three"]).hex()
    seen["public key"] = public_key_text(identity.public_key().public_bytes_raw())
    return seen


def of_ledgers() -> dict[str, str]:
    row = (2, "reserve", "2026-11-01T00:00:00+00:00", "ab" * 32, "flu", 0.1, 1e-50, 0.5, 1e-6)
    row = (*row, 0.01, 1e-50, 1.0, 1e-6, "", "cd" * 32, "")  # type: ignore[assignment]
    return {"origin": origin_hash("id", "north", "record"), "entry": entry_hash(row)}


def of_training() -> dict[str, str]:
    clients = [
        Party(name, epsilon, 1e-5, public_key=hashlib.sha256(name.encode()).digest(), threshold=1)
        for name, epsilon in (("a", 1.0), ("b", 4.0), ("c", 16.0))
    ]
    seen = {}
    for name, training in {
        "plain": Training("digits", 1.0, 10),
        "counted": Training("digits", 0.5, 7, examples=100, threshold=1, tolerate=1, weighting="balanced"),
    }.items():
        terms = training.terms(f"{name} / round 1", 1, b"k" * 32, clients)
        seen[f"training, {name}: query"] = terms.query
        seen[f"training, {name}: plan hash"] = terms.plan_hash.hex()
    return seen


def of_plans() -> dict[str, str]:
    epsilon = [0.5, 0.8, 1.0, 2.0, 3.0]
    specs = {
        "all": tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=2),
        "some": tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=2, receivers=[0, 4]),
        "personal": tpmdp.Spec(epsilon=epsilon, delta=1e-6, threshold=np.array([1, 2, 3, 2, 1]), receivers=[0, 4]),
        "two": tpmdp.Spec(epsilon=[1.0, 2.0], delta=[1e-6, 1e-9], threshold=1, sensitivity=[1.0, 3.0]),
    }
    seen = {}
    for name, spec in specs.items():
        for weighting in ("equal", "balanced"):
            if name == "personal" and weighting == "balanced":
                continue
            plan = tpmdp.plan(spec, weighting=weighting)
            seen[f"plan {name}, {weighting}: variance"] = digits(plan.variance.tolist())
            seen[f"plan {name}, {weighting}: keys"] = repr(sorted(plan_document(plan)))
    piece = Piece("count", "density", 0.1, 0, 5, 1, (("parties", 10),))
    return {**seen, "experiment": piece.key, "experiment randomness": piece.random(3).random().hex()}


def observe() -> dict[str, str]:
    parts = (of_studies(), of_shares(), of_messages(), of_ledgers(), of_training(), of_plans())
    return {name: value for part in parts for name, value in part.items()}
