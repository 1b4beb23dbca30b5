"""The relay as strangers, parties that misbehave and a failing machine see it: a real process and real sockets."""

from __future__ import annotations

import asyncio
import datetime
import json
import os
import random
import re
import signal
import socket
import sqlite3
import ssl
import stat
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.effort import tries
from tests.patience import HANG_S
from tpmdp.cli.relay import relay as relay_command
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.database import RelayFullError, StoreError
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.requests import Wanted, parse_query
from tpmdp.engines.relay.session_rows import CheckedMessage
from tpmdp.engines.relay.status import SessionStatus
from tpmdp.engines.relay.store import RelayStore
from tpmdp.errors import FileError, InputError
from tpmdp.protocol.messages import EVERYONE, Kind, Message, encode
from tpmdp.protocol.terms import session_id

pytestmark = pytest.mark.process  # most tests share a relay in a process

SERVE = """
import json, sys
from pathlib import Path
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.server import serve
settings = json.loads(sys.argv[2])
if "sessions" in settings:
    settings["sessions"] = frozenset(map(bytes.fromhex, settings["sessions"]))
serve("127.0.0.1", 0, Path(sys.argv[1]), RelaySettings(**settings), ready=lambda url: print(url, flush=True))
"""


class Running:
    """A relay in its own process. Whatever it writes to standard error fails the test that stops it."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.store = folder / "relay.sqlite"
        self.stderr = folder / "stderr.txt"
        with self.stderr.open("ab") as stderr:
            arguments = [sys.executable, "-c", SERVE, str(self.store), json.dumps(settings)]
            self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=stderr, text=True)
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, self.stderr.read_text()
        self.client = httpx.Client(base_url=self.url, timeout=HANG_S)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=HANG_S)

    def has_closed(self, connection: socket.socket) -> bool:
        """Whether the relay has closed its side; unread bytes may hide that from the client. Linux."""
        sides = (f":{self.port:04X}", f":{connection.getsockname()[1]:04X}")
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        held = [row for row in rows if (row[1][-5:], row[2][-5:]) == sides and row[9] != "0"]
        return not held

    def end(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        code = self.process.wait(HANG_S)
        self.client.close()
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert self.stderr.read_text() == ""
        return code


@dataclass
class Study:
    """A session with its parties, as honest clients would act."""

    relay: Running
    count: int = 3
    identities: list[Ed25519PrivateKey] = field(init=False)
    nonce: bytes = b""
    source: random.Random = field(default_factory=random.SystemRandom)

    def __post_init__(self) -> None:
        keys = [self.source.randbytes(32) for _ in range(self.count)]
        self.identities = [Ed25519PrivateKey.from_private_bytes(key) for key in keys]
        self.roster = tuple(identity.public_key().public_bytes_raw() for identity in self.identities)
        self.label = self.source.randbytes(32)
        self.id = session_id(self.label, self.roster)
        self.path = f"/v1/sessions/{self.id.hex()}"
        self.mail = self.path + "/messages"

    @property
    def body(self) -> bytes:
        return self.label + b"".join(self.roster)

    def put(self) -> httpx.Response:
        answer = self.relay.client.put(self.path, content=self.body)
        self.nonce = bytes.fromhex(answer.headers.get(wire.NONCE_HEADER, ""))
        return answer

    def token(self, party: int) -> dict[str, str]:
        return {"authorization": wire.make_token(self.identities[party], self.nonce, self.id, party)}

    def message(
        self,
        sender: int,
        recipient: int,
        body: bytes = b"",
        kind: Kind = Kind.SUBMIT,
        attempt: int = 1,
        session: bytes | None = None,
        signer: int | None = None,
    ) -> bytes:
        message = Message(kind, attempt, sender, recipient, session or self.id, bytes(32), body)
        return encode(message, self.identities[sender if signer is None else signer])

    def post(self, party: int, *messages: bytes) -> httpx.Response:
        return self.send(party, wire.join_frames(messages))

    def send(self, party: int, body: Any, **headers: str) -> httpx.Response:
        return self.relay.client.post(self.mail, content=body, headers=self.token(party) | headers)

    def get(self, party: int, after: str = "1:0,2:0,3:0,4:0,5:0,6:0", wait: float = 0) -> list[tuple[int, bytes]]:
        parameters = {"after": after, "wait": f"{wait:g}"}
        answer = self.relay.client.get(self.mail, params=parameters, headers=self.token(party))
        assert answer.status_code == 200, answer.text
        return list(wire.frames(answer.content))


def error(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    text = answer.json()["error"]
    assert isinstance(text, str)
    assert " = " in text
    assert ": " in text
    assert "\n" not in text
    return text


def open_study(relay: Running, count: int = 3) -> Study:
    study = Study(relay, count)
    assert study.put().status_code == 201
    return study


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With the default limits, but for the fuzzer's rate of bad requests."""
    running = Running(tmp_path_factory.mktemp("relay"), address_burst=1e6)
    yield running
    assert running.end() == 0


@pytest.fixture(scope="module")
def tight(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """With short times and bodies."""
    running = Running(tmp_path_factory.mktemp("tight"), head_timeout_s=1.0, message_max=8 << 20)
    yield running
    assert running.end() == 0


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def begin(**settings: Any) -> Running:
        started.append(Running(tmp_path, **settings))
        return started[-1]

    yield begin
    for running in started:
        if running.process.returncode is None:
            running.end(signal.SIGKILL)


# Delivery ------------------------------------------------------------------------------------------------------------


def test_a_message_reaches_its_addressee_only(relay: Running) -> None:
    study = open_study(relay)
    secret, broadcast = study.message(0, 1, b"for one"), study.message(0, EVERYONE, bytes(32), Kind.KEYS)
    assert study.post(0, secret, broadcast).json() == {"stored": 2, "known": 0}
    assert [data for _, data in study.get(0)] == []
    assert [data for _, data in study.get(1)] == [secret, broadcast]
    assert [data for _, data in study.get(2)] == [broadcast]


def test_cursors_hold_by_kind_and_batches_are_bounded(relay: Running) -> None:
    study = open_study(relay, 4)
    large = [study.message(sender, 0, os.urandom(700_000)) for sender in (1, 2, 3)]
    keys = [study.message(sender, EVERYONE, bytes(32), Kind.KEYS) for sender in (1, 2, 3)]
    for sender, pair in enumerate(zip(large, keys, strict=True), 1):
        assert study.post(sender, *pair).status_code == 200
    assert [data for _, data in study.get(0, "2:0")] == keys
    seen: list[bytes] = []
    after = 0
    while batch := study.get(0, f"4:{after}"):
        assert len(batch) == 1  # two would be more than an answer holds
        after = batch[-1][0]
        seen += [data for _, data in batch]
    assert seen == large
    numbers = [number for number, _ in study.get(0, "2:0")]
    assert numbers == sorted(numbers)
    assert [number for number, _ in study.get(0, f"2:{numbers[0]}")] == numbers[1:]


def test_a_party_may_ask_for_the_messages_of_some_others_only(relay: Running) -> None:
    study = open_study(relay, 5)
    keys = {sender: study.message(sender, EVERYONE, bytes(32), Kind.KEYS) for sender in (1, 2, 3, 4)}
    for sender, key in keys.items():
        study.post(sender, key, study.message(sender, 0, b"%d" % sender))

    def got(query: str) -> list[bytes]:
        answer = relay.client.get(f"{study.mail}?{query}", headers=study.token(0))
        assert answer.status_code == 200, answer.text
        return [data for _, data in wire.frames(answer.content)]

    assert got("after=2:0&from=2:1.4") == [keys[1], keys[4]]
    assert got("after=2:0&from=2:0") == []  # what it sent itself is not for it
    assert len(got("after=2:0,4:0&from=2:3")) == 5  # other kinds come from all
    for wrong in ("from=2", "from=2:", "from=2:1,2", "from=2:1..2", "from=2:x", "from=2:1&from=2:2"):
        assert error(relay.client.get(f"{study.mail}?after=2:0&{wrong}", headers=study.token(0)), 400)


def test_a_message_of_another_party_than_asked_for_wakes_nobody(relay: Running) -> None:
    study = open_study(relay, 4)
    url, headers = f"{study.mail}?after=2:0&from=2:3&wait=25", study.token(0)
    found: list[httpx.Response] = []
    poll = threading.Thread(target=lambda: found.append(relay.client.get(url, headers=headers)))
    poll.start()
    time.sleep(0.3)  # likely waiting by now; if not, the test is only weaker
    study.post(1, study.message(1, EVERYONE, bytes(32), Kind.KEYS))
    poll.join(0.3)
    assert poll.is_alive()
    wanted = study.message(3, EVERYONE, bytes(32), Kind.KEYS)
    study.post(3, wanted)
    poll.join(HANG_S)
    assert [data for _, data in wire.frames(found[0].content)] == [wanted]


def test_nothing_without_a_token_and_no_token_of_others(relay: Running) -> None:
    study, other = open_study(relay), open_study(relay)
    study.post(0, study.message(0, 1, b"secret"))
    good = study.token(1)["authorization"]
    wrong = [
        "",
        "tpmdp",
        "Bearer abc",
        good[:-1],
        good.replace(" 1:", " 0:"),
        good.replace(" 1:", " 9:"),
        good.replace("tpmdp", "TPMDP"),
        good + "0" * 200,
        other.token(1)["authorization"],
        wire.make_token(study.identities[1], bytes(32), study.id, 1),
        wire.make_token(study.identities[2], study.nonce, study.id, 1),
    ]
    for token in wrong:
        for method in ("GET", "POST"):
            headers = {"authorization": token} if token else {}
            answer = relay.client.request(method, study.mail + "?after=4:0", headers=headers)
            assert "authorization" in error(answer, 401)
            assert bytes.fromhex(answer.headers[wire.NONCE_HEADER]) == study.nonce
    assert len(study.get(1)) == 1


def test_a_bad_token_is_refused_before_the_body_is_read(relay: Running) -> None:
    study = open_study(relay)
    with relay.connect() as connection:
        connection.sendall(f"POST {study.mail} HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n".encode())
        assert connection.recv(12) == b"HTTP/1.1 401"


def test_sessions_are_the_hash_of_their_content(relay: Running) -> None:
    study, other = Study(relay), Study(relay)
    put = relay.client.put
    assert "hash" in error(put(study.path, content=other.body), 400)
    for body in (b"", study.body[:-1], study.body[:64], study.body + b"x"):
        error(put(study.path, content=body), 400)
    twice = study.roster[:1] * 2
    name = session_id(study.label, twice).hex()
    assert "different" in error(put(f"/v1/sessions/{name}", content=study.label + b"".join(twice)), 400)
    error(put("/v1/sessions/" + "AB" * 32, content=study.body), 404)
    assert "PUT" in error(relay.client.get(study.mail, headers={"authorization": "tpmdp 0:00"}), 404)
    assert study.put().status_code == 201
    assert study.put().status_code == 200
    health = relay.client.get("/v1/health")
    assert health.json()["service"] == "tpmdp relay"
    assert bytes.fromhex(health.headers[wire.NONCE_HEADER]) == study.nonce


# Bad messages --------------------------------------------------------------------------------------------------------


def test_bad_messages_are_refused_and_nothing_is_stored(relay: Running) -> None:
    study, other = open_study(relay), open_study(relay)
    good = study.message(0, 1, b"x" * 100)
    cases = {
        "forged": (study.post(0, study.message(0, 1, signer=2)), 403, "signature"),
        "another sender": (study.post(0, study.message(2, 1)), 403, "sender"),
        "another session": (study.post(0, study.message(0, 1, session=other.id)), 400, "another session"),
        "recipient": (study.post(0, study.message(0, 3)), 400, "recipient"),
        "cut frame": (study.send(0, wire.frame(good)[:-1]), 400, "cut short"),
        "cut message": (study.post(0, good[:-1]), 400, "body has"),
        "no message": (study.send(0, b""), 400, "no message"),
        "numbered": (study.send(0, wire.frame(good, 5)), 400, "frame number"),
        "one bad of two": (study.post(0, good, study.message(0, 2, signer=2)), 403, "signature"),
        "too many": (study.post(0, *[good] * 14), 413, "more than 13"),
    }
    for name, (answer, status, word) in cases.items():
        assert word in error(answer, status), name
    for position in range(0, len(good), 3):
        flipped = bytearray(good)
        flipped[position] ^= 1 << position % 8
        assert study.post(0, bytes(flipped)).status_code in (400, 403), position
    assert study.get(1) == study.get(2) == []
    assert study.post(0, good).json() == {"stored": 1, "known": 0}


def test_queries_are_read_strictly(relay: Running) -> None:
    study = open_study(relay)
    for query in [
        "",
        "after=",
        "after=1",
        "after=1:-1",
        "after=1:0,",
        "after=1:0,1:0",
        "after=0:0",
        "after=99:0",
        "after=1:" + "9" * 19,
        "after=1:0&after=2:0",
        "after=1:0&wait=26",
        "after=1:0&wait=-1",
        "after=1:0&wait=nan",
        "after=1:0&wait=1e1",
        "after=1:0&x=1",
        "after=%31%3A%30%2c%ff",
        "after=" + ",".join(["1:0"] * 100),
    ]:
        error(relay.client.get(study.mail + "?" + query, headers=study.token(0)), 400)


def test_the_same_again_is_fine_and_something_else_in_its_place_is_a_conflict(relay: Running) -> None:
    study = open_study(relay)
    first, second = study.message(0, 1, b"first"), study.message(0, 1, b"second")
    beside = study.message(0, 2, b"beside")
    assert study.post(0, first).json() == {"stored": 1, "known": 0}
    assert study.post(0, first, first).json() == {"stored": 0, "known": 2}
    assert "differs" in error(study.post(0, beside, second), 409)
    assert "differs" in error(study.post(0, beside, study.message(0, 2, b"other")), 409)
    assert study.get(2) == []  # nothing of such a body is kept
    assert study.post(0, beside, first).json() == {"stored": 1, "known": 1}
    assert [data for _, data in study.get(1)] == [first]


def test_oversized_bodies_are_refused_early(tight: Running) -> None:
    study = open_study(tight)
    authorization = study.token(0)["authorization"]
    head = f"POST {study.mail} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n"
    with tight.connect() as connection:
        connection.sendall((head + "content-length: 100000000\r\n\r\n").encode())
        assert connection.recv(12) == b"HTTP/1.1 413"
    with tight.connect() as connection:
        connection.sendall((head + "transfer-encoding: chunked\r\n\r\n").encode())
        sent = 0
        with suppress(OSError):  # the relay hangs up while we are still sending
            while sent < 100_000_000:
                connection.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")
                sent += 1 << 20
        assert sent < 40_000_000  # the limit, and what sockets buffer
        with suppress(ConnectionResetError):
            assert connection.recv(12) == b"HTTP/1.1 413"
    assert "longer" in error(study.send(0, wire.frame(bytes((8 << 20) + 1))), 413)
    assert study.post(0, study.message(0, 1, b"fits")).status_code == 200


def test_chunked_bodies_within_the_limit_are_fine(relay: Running) -> None:
    study = open_study(relay)
    body = wire.frame(study.message(0, 1, os.urandom(300_000)))
    parts = (body[start : start + 50_000] for start in range(0, len(body), 50_000))
    assert study.send(0, parts).json() == {"stored": 1, "known": 0}
    assert wire.frame(study.get(1)[0][1]) == body


# Status --------------------------------------------------------------------------------------------------------------


def test_the_status_shows_who_has_sent_what_to_parties_only_and_changes_nothing(relay: Running) -> None:
    unknown, study = Study(relay), open_study(relay, 10)
    where = study.path + "/status?plan=" + bytes(32).hex()

    def status() -> dict[str, list[int]]:
        answer = relay.client.get(where, headers=study.token(9))
        assert answer.status_code == 200, answer.text
        seen = SessionStatus.of_plain(answer.json(), 10)
        return {
            "attempt": [seen.attempt],
            **{name: sorted(getattr(seen, name)) for name in ("agreed", "keys", "submitted", "answered", "other_plan")},
        }

    assert "is not known here" in error(relay.client.get(unknown.path + "/status?plan=" + bytes(32).hex()), 404)
    error(relay.client.get(where), 401)
    error(relay.client.get(where, headers=open_study(relay).token(0)), 401)
    assert set(map(tuple, status().values())) == {(0,), ()}
    for sender in (0, 1, 2, 3):
        study.post(sender, study.message(sender, EVERYONE, b"", Kind.AGREE, 0))
    for sender, attempt in ((0, 1), (1, 1), (2, 1), (0, 2), (1, 2)):
        study.post(sender, study.message(sender, EVERYONE, bytes(32), Kind.KEYS, attempt))
    study.post(1, study.message(1, 0, bytes(64), Kind.SUBMIT, 1))
    study.post(2, study.message(2, 0, bytes(64), Kind.SUBMIT, 2))
    expected = {
        "attempt": [2],
        "agreed": [0, 1, 2, 3],
        "keys": [0, 1],
        "submitted": [2],
        "answered": [],
        "other_plan": [],
    }
    before = [study.get(party) for party in (0, 9)]
    assert status() == expected
    mended = Message(Kind.KEYS, 1, 8, EVERYONE, study.id, bytes(31) + b"1", bytes(32))
    study.post(8, encode(mended, study.identities[8]))
    study.post(0, study.message(0, 1, bytes(32), Kind.RECEIPT, 2))
    assert status() == expected | {"answered": [0, 1], "other_plan": [8]}
    study.post(3, study.message(3, EVERYONE, bytes(32), Kind.RECEIPT, 2))  # to all that have submitted, and from 3
    assert status() == expected | {"answered": [0, 1, 2, 3], "other_plan": [8]}
    assert study.get(0)[: len(before[0])] == before[0]


def test_questions_for_the_status_are_read_strictly_and_not_too_many(relay: Running) -> None:
    study = open_study(relay)
    path, headers = study.path + "/status?", study.token(1)
    for query in ("", "plan=", "plan=" + "0" * 63, "plan=" + "g" * 64, "plan=" + "0" * 64 + "&x=1", "x=" + "0" * 64):
        error(relay.client.get(path + query, headers=headers), 400)
    answers = [relay.client.get(path + "plan=" + "0" * 64, headers=headers) for _ in range(60)]
    assert any("are too many" in error(answer, 429) for answer in answers if answer.status_code != 200)
    assert relay.client.get(path + "plan=" + "0" * 64, headers=study.token(2)).status_code == 200


# Waiting -------------------------------------------------------------------------------------------------------------


def test_a_long_poll_is_woken_by_a_post_and_only_by_one_for_it(relay: Running) -> None:
    study = open_study(relay)
    found: list[list[tuple[int, bytes]]] = []
    poll = threading.Thread(target=lambda: found.append(study.get(1, "4:0", wait=25)))
    begin = time.monotonic()
    poll.start()
    time.sleep(0.3)  # likely waiting by now; if not, the test is only weaker
    study.post(0, study.message(0, 2), study.message(0, EVERYONE, bytes(32), Kind.KEYS))
    poll.join(0.3)
    assert poll.is_alive()
    wanted = study.message(2, 1, b"wake up")
    study.post(2, wanted)
    poll.join(HANG_S)
    assert [data for _, data in found[0]] == [wanted]
    assert time.monotonic() - begin < 20  # it would have ended at 25 s by itself


def test_no_wake_up_is_lost_when_many_post_at_once(relay: Running) -> None:
    study = open_study(relay, 12)
    seen: list[set[int]] = [set() for _ in range(study.count)]

    def act(party: int) -> None:
        study.post(party, study.message(party, EVERYONE, bytes(32), Kind.KEYS))
        after = 0
        while len(seen[party]) < study.count - 1:
            batch = study.get(party, f"2:{after}", wait=20)
            assert batch, "slept although messages were there"
            after = batch[-1][0]
            seen[party] |= {number for number, _ in batch}

    threads = [threading.Thread(target=act, args=(party,)) for party in range(study.count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(HANG_S)
    assert [len(numbers) for numbers in seen] == [study.count - 1] * study.count


def test_a_long_poll_ends_at_its_time(relay: Running) -> None:
    study = open_study(relay)
    begin = time.monotonic()
    assert study.get(0, "4:0", wait=0.5) == []
    assert 0.45 < time.monotonic() - begin < 20


# Restarts ------------------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_survives_a_kill(start: Callable[..., Running]) -> None:
    first = start()
    study = open_study(first)
    sent = [study.message(0, 1, os.urandom(50_000), attempt=attempt) for attempt in range(1, 6)]
    for message in sent[:-1]:
        assert study.post(0, message).status_code == 200
    numbers = [number for number, _ in study.get(1)]
    assert study.post(0, sent[-1]).status_code == 200
    first.end(signal.SIGKILL)
    assert stat.S_IMODE(first.store.stat().st_mode) == 0o600
    second = start()
    old, study.relay = study.token(1), second
    answer = second.client.get(study.mail + "?after=4:0", headers=old)
    assert "nonce" in error(answer, 401)
    study.nonce = bytes.fromhex(answer.headers[wire.NONCE_HEADER])
    assert study.put().status_code == 200
    found = study.get(1)
    assert [data for _, data in found] == sent
    assert [number for number, _ in found][:-1] == numbers
    assert study.post(0, sent[0]).json() == {"stored": 0, "known": 1}
    error(study.post(0, study.message(0, 1, b"other")), 409)
    study.post(0, study.message(0, 1, b"new", attempt=9))
    assert study.get(1)[-1][0] > found[-1][0]


def test_it_stops_promptly_while_a_long_poll_is_pending(start: Callable[..., Running]) -> None:
    running = start()
    study = open_study(running)
    poller, writer = (f"host: x\r\nauthorization: {study.token(party)['authorization']}\r\n" for party in (1, 0))
    with running.connect() as upload, running.connect() as poll:  # the upload is cut off
        poll.sendall(f"GET {study.mail}?after=4:0&wait=25 HTTP/1.1\r\n{poller}\r\n".encode())
        upload.sendall(f"POST {study.mail} HTTP/1.1\r\n{writer}content-length: 1000\r\n\r\nx".encode())
        for _ in range(2):  # what was sent before these is in the relay's hands after them
            running.client.get("/v1/health")
        begin = time.monotonic()
        running.process.send_signal(signal.SIGTERM)
        answer = b"".join(iter(lambda: poll.recv(65536), b""))
        assert running.end() == 0
    assert time.monotonic() - begin < 20  # the poll alone would have taken 25 s
    assert answer.startswith(b"HTTP/1.1 200")
    assert answer.endswith(b"\r\n\r\n")


# Limits --------------------------------------------------------------------------------------------------------------


def test_rates_are_limited_by_party_and_for_strangers_by_address(start: Callable[..., Running]) -> None:
    running = start(party_rate=0.01, party_burst=5, address_rate=0.01, address_burst=4, connections_max=4)
    study = open_study(running)
    for _ in range(5):
        study.get(0)
    answer = running.client.get(study.mail + "?after=1:0", headers=study.token(0))
    assert "too many" in error(answer, 429)
    assert int(answer.headers["retry-after"]) > 0
    assert study.get(1) == []  # the others are not limited by it
    statuses = [running.client.get("/v1/health").status_code for _ in range(5)]
    assert statuses == [200] * 3 + [429] * 2
    error(running.client.get(study.mail), 429)  # strangers pay before their token is looked at
    error(running.client.get("/nowhere"), 429)
    assert study.get(1) == []  # whose token was seen before is not a stranger
    silent = [running.connect() for _ in range(4)]  # and one is the client's
    assert silent[-1].recv(12) == b"HTTP/1.1 503"
    for connection in silent:
        connection.close()
    assert study.get(1) == []


def test_caps_of_a_party_of_the_store_and_of_sessions(start: Callable[..., Running]) -> None:
    running = start(party_bytes_max=9 << 20, store_bytes_max=18 << 20, sessions_max=3)
    study = open_study(running)
    large = [study.message(0, recipient, bytes(5 << 20)) for recipient in (1, 2)]
    assert study.post(0, large[0]).status_code == 200
    assert "party = 0" in error(study.post(0, large[1]), 507)
    assert study.post(0, large[0]).json() == {"stored": 0, "known": 1}
    statuses = [study.post(party, study.message(party, 0, bytes(6 << 20))).status_code for party in (1, 2)]
    assert statuses == [200, 200]
    assert "all sessions" in error(study.post(2, study.message(2, 1, bytes(2 << 20))), 507)
    assert study.post(2, study.message(2, 1, b"small")).status_code == 200
    assert [Study(running).put().status_code for _ in range(3)] == [201, 201, 507]
    assert study.put().status_code == 200


def test_the_number_of_slots_is_capped(relay: Running) -> None:
    study = open_study(relay, 2)
    messages = [study.message(0, recipient, b"", kind) for kind in Kind for recipient in (0, 1, EVERYONE)]
    assert study.post(0, *messages[:9]).json() == {"stored": 9, "known": 0}
    assert "slots" in error(study.post(0, messages[9]), 507)
    assert study.post(0, study.message(0, 1, attempt=2)).status_code == 200


def test_a_connection_that_never_finishes_its_head_is_closed(tight: Running) -> None:
    with tight.connect() as silent, tight.connect() as dripping, tight.connect() as second:
        second.sendall(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert second.recv(65536).startswith(b"HTTP/1.1 200")
        for connection in (dripping, second):
            connection.sendall(b"GET /v1/health HTTP/1.1\r\nx: ")
        begin = time.monotonic()
        closed = False
        while not closed and time.monotonic() - begin < HANG_S:
            try:
                dripping.sendall(b"x")  # of a field's value that never ends
                second.sendall(b"x")
            except OSError:
                closed = True
            time.sleep(0.05)
        assert closed
        for connection in (silent, dripping, second):
            with suppress(ConnectionResetError):
                connection.recv(65536)


def test_slow_bodies_end(tight: Running) -> None:
    study = open_study(tight)
    authorization = study.token(0)["authorization"]
    with tight.connect() as connection:
        head = (
            f"POST {study.mail} HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\ncontent-length: 1000\r\n\r\n"
        )
        connection.sendall(head.encode() + b"x" * 10)
        assert connection.recv(12) == b"HTTP/1.1 408"
        while connection.recv(65536):  # and then it hangs up
            pass


def test_a_reader_that_stalls_is_cut_off(tight: Running) -> None:
    study = open_study(tight, 2)
    message = study.message(0, 1, os.urandom(7 << 20))
    assert study.post(0, message).status_code == 200
    authorization = study.token(1)["authorization"]
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(HANG_S)
        connection.connect(("127.0.0.1", tight.port))
        connection.sendall(
            f"GET {study.mail}?after=4:0 HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n\r\n".encode()
        )
        received = len(connection.recv(12))  # the answer has begun
        end = time.monotonic() + HANG_S
        while not tight.has_closed(connection):
            assert time.monotonic() < end
            time.sleep(0.1)
        with suppress(ConnectionResetError):
            while part := connection.recv(1 << 20):
                received += len(part)
        assert received < len(message)
    assert [data for _, data in study.get(1)] == [message]


def test_long_heads_are_refused(relay: Running) -> None:
    with relay.connect() as connection:
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"
    with relay.connect() as connection, suppress(ConnectionResetError, BrokenPipeError):
        connection.sendall(b"GET /v1/health HTTP/1.1\r\nx: ")
        for _ in range(1000):
            connection.sendall(b"y" * 10_000)
        pytest.fail("took ten million bytes of head")
    assert relay.client.get("/v1/health").status_code == 200


def test_only_listed_sessions_are_served(start: Callable[..., Running], relay: Running) -> None:
    listed = Study(relay)
    running = start(sessions=[listed.id.hex()])
    listed.relay = running
    assert listed.put().status_code == 201
    other = Study(running)
    assert "not one this relay serves" in error(other.put(), 403)
    error(running.client.get(other.mail), 403)


# Start-up ------------------------------------------------------------------------------------------------------------


def certificate_files(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(1).not_valid_before(now).not_valid_after(now + datetime.timedelta(days=1))
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    certificate = builder.add_extension(names, critical=False).sign(key, hashes.SHA256())
    paths = folder / "relay.pem", folder / "relay.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, serialization.NoEncryption()))
    return paths


def command(*arguments: object) -> None:
    relay_command.main([str(argument) for argument in arguments], standalone_mode=False)


def test_the_command_serves_tls(tmp_path: Path) -> None:
    certificate, private_key = certificate_files(tmp_path)
    program = "import sys; from tpmdp.cli.relay import relay; relay.main(sys.argv[1:], standalone_mode=False)"
    arguments = ["--host", "localhost", "--port", "0", "--store", str(tmp_path / "relay.sqlite")]
    arguments += ["--certificate", str(certificate), "--private-key", str(private_key)]
    process = subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    try:
        assert re.fullmatch(r"relay listening on https://localhost:\d+", line)
        url = line.split()[-1]
        trust = ssl.create_default_context(cafile=str(certificate))
        with httpx.Client(base_url=url, verify=trust, timeout=HANG_S) as client:
            assert client.get("/v1/health").status_code == 200
        with pytest.raises(httpx.TransportError):
            httpx.get(url.replace("https", "http") + "/v1/health", timeout=HANG_S)
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/v1/health", timeout=HANG_S)  # the certificate is not one the system trusts
    finally:
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
    assert process.returncode == 0
    assert errors == ""


def test_start_up_errors_are_one_line(tmp_path: Path, relay: Running) -> None:
    store = tmp_path / "relay.sqlite"
    certificate, private_key = certificate_files(tmp_path)
    with pytest.raises(InputError, match=r"--host = 0\.0\.0\.0 .* needs TLS: give --certificate"):
        command("--host", "0.0.0.0", "--store", store)  # noqa: S104
    with pytest.raises(InputError, match="contradicts"):
        command("--plain-http", "--certificate", certificate, "--private-key", private_key)
    with pytest.raises(InputError, match=r"port = \d+ is in use"):
        command("--port", relay.port, "--store", store)
    with pytest.raises(InputError, match="cannot be"):
        command("--host", "192.0.2.1", "--plain-http", "--open", "--store", store)
    with pytest.raises(InputError, match="name the studies it serves"):
        command("--host", "192.0.2.1", "--plain-http", "--store", store)
    with pytest.raises(InputError, match="give both"):
        command("--certificate", certificate, "--store", store)
    with pytest.raises(FileError, match="does not exist"):
        command("--certificate", tmp_path / "none.pem", "--private-key", private_key)
    with pytest.raises(FileError, match="check both files"):
        command("--certificate", private_key, "--private-key", certificate)
    (tmp_path / "other").mkdir()
    with pytest.raises(FileError, match="does not belong"):
        command("--certificate", certificate, "--private-key", certificate_files(tmp_path / "other")[1])
    with pytest.raises(InputError, match="message_max"):
        command("--message-max", 5)
    with pytest.raises(InputError, match="party_rate"):
        command("--rate", "nan")
    with pytest.raises(FileError, match="is in use by another relay"):
        command("--port", 0, "--store", relay.store)
    store.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(FileError, match="cannot be used as a relay store"):
        command("--port", 0, "--store", store)
    store.unlink()
    with sqlite3.connect(store) as connection:
        connection.execute("CREATE TABLE recipes (name)")
    connection.close()
    with pytest.raises(FileError, match="another program"):
        command("--port", 0, "--store", store)


# The store, where a process of its own shows too little --------------------------------------------------------------


def stored(attempt: int, data: bytes) -> CheckedMessage:
    """A submission of party 0 to party 1."""
    return CheckedMessage(4, attempt, 0, recipient=1, plan=bytes(32), digest=os.urandom(32), data=data)


def test_a_full_or_locked_disk_refuses_and_keeps_what_there_was(tmp_path: Path) -> None:
    async def act() -> None:
        store = RelayStore(tmp_path / "relay.sqlite", RelaySettings())
        await store.open_session(bytes(32), os.urandom(64))
        session = await store.session(bytes(32))
        items = [stored(attempt, os.urandom(300_000)) for attempt in range(4)]
        await store.add(session, items[:1])
        store._database._writer.execute("PRAGMA max_page_count = 60")
        small = stored(9, b"small")
        outcomes = await asyncio.gather(
            store.add(session, items[1:]), store.add(session, [small]), return_exceptions=True
        )
        assert isinstance(outcomes[0], RelayFullError)
        assert outcomes[1] == [small]  # one sender's failure is not another's
        store._database._writer.execute("PRAGMA busy_timeout = 10")
        other = sqlite3.connect(store.path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            await store.add(session, [stored(8, b"small")])
        other.close()
        picked = await store.pick(session, 1, Wanted({4: 0}))
        assert len(picked.numbers) == 2
        store.close()

    asyncio.run(act())


def test_old_sessions_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    async def act() -> None:
        store = RelayStore(tmp_path / "relay.sqlite", RelaySettings())
        names = [bytes([number]) * 32 for number in range(3)]
        for name in names:
            await store.open_session(name, os.urandom(64))
        old, used = await store.session(names[0]), await store.session(names[1])
        await store.add(old, [stored(1, bytes(1000))])
        clock[0] += 20 * 86_400
        await store.add(used, [stored(1, bytes(1000))])
        assert await store.sweep(30 * 86_400) == 1  # the one nobody wrote to
        clock[0] += 20 * 86_400
        before = store._database.stored_bytes
        assert await store.sweep(30 * 86_400) == 1
        assert store._database.stored_bytes < before
        for name in (names[0], names[2]):
            with pytest.raises(StoreError, match="not known"):
                await store.session(name)
        with pytest.raises(StoreError, match="expired"):
            await store.add(old, [stored(1, bytes(1000))])
        assert (await store.pick(used, 1, Wanted({4: 0}))).size == 1000
        store.close()

    asyncio.run(act())


def test_sessions_nobody_wrote_to_make_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Strangers who only announce sessions cannot keep parties out for more than a minute."""
    clock = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    async def act() -> None:
        store = RelayStore(tmp_path / "relay.sqlite", RelaySettings(sessions_max=3))
        names = [bytes([number]) * 32 for number in range(4)]
        for name in names[:3]:
            await store.open_session(name, os.urandom(64))
        used = await store.session(names[0])
        await store.add(used, [stored(1, bytes(1000))])
        with pytest.raises(RelayFullError, match="all this relay holds"):
            await store.open_session(names[3], os.urandom(64))
        clock[0] += 61
        await store.open_session(names[3], os.urandom(64))
        await store.session(names[3])
        assert (await store.pick(used, 1, Wanted({4: 0}))).size == 1000
        store.close()

    asyncio.run(act())


# Ten thousand random requests ----------------------------------------------------------------------------------------


class Raw:
    """A keep-alive connection that sends any bytes and reads answers."""

    def __init__(self, relay: Running) -> None:
        self.relay = relay
        self.connection: socket.socket | None = None
        self.buffer = b""

    def ask(self, request: bytes, head_only: bool, last: bool) -> tuple[int, bytes] | None:
        """Status and body, or None if the relay hung up."""
        if self.connection is None:
            self.connection, self.buffer = self.relay.connect(), b""
        try:
            self.connection.sendall(request)
            if last:
                self.connection.shutdown(socket.SHUT_WR)
            head = b"http/1.1 100"
            while head.startswith(b"http/1.1 100"):
                while (end := self.buffer.find(b"\r\n\r\n")) < 0:
                    self._more()
                head, self.buffer = self.buffer[:end].lower(), self.buffer[end + 4 :]
            length = re.search(rb"content-length: (\d+)", head)
            size = 0 if head_only or length is None else int(length[1])
            while len(self.buffer) < size:
                self._more()
            body, self.buffer = self.buffer[:size], self.buffer[size:]
        except (ConnectionError, EOFError):
            self.close()
            return None
        if last or b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    def _more(self) -> None:
        assert self.connection is not None
        part = self.connection.recv(1 << 16)
        if not part:
            raise EOFError
        self.buffer += part

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
        self.connection = None


def mutated(source: random.Random, data: bytes) -> bytes:
    """The same bytes with something wrong, most of the time."""
    found = bytearray(data)
    for _ in range(source.choice((0, 0, 1, 1, 2, 8))):
        position = source.randrange(len(found) + 1)
        action = source.randrange(4)
        if action == 0 and position < len(found):
            found[position] ^= 1 << source.randrange(8)
        elif action == 1:
            del found[position : position + source.choice((1, 2, 40))]
        elif action == 2:
            found[position:position] = source.randbytes(source.choice((1, 2, 40)))
        else:
            found[position:position] = found[: source.randrange(60)]
    return bytes(found)


ENDPOINTS = ("health", "session", "write", "read", "elsewhere")


def random_request(source: random.Random, study: Study, endpoint: str) -> tuple[bytes, bool]:
    """The bytes, and whether the request may be incomplete, so that nothing can follow it."""
    party = source.randrange(study.count)
    authorization = study.token(party)["authorization"].encode()
    path = {
        "health": b"/v1/health",
        "session": study.path.encode(),
        "elsewhere": source.choice((b"/", b"//", b"/v1", b"/v1/sessions/", b"/%00", b"/v1/health/", b"*", b"/../x")),
    }.get(endpoint, study.mail.encode())
    method = {"session": b"PUT", "write": b"POST"}.get(endpoint, b"GET")
    query = b""
    body = b""
    if endpoint == "session":
        body = mutated(source, study.body)
    elif endpoint == "write":
        kind, attempt = source.choice(list(Kind)), source.randrange(1, 21)
        message = study.message(party, source.choice((0, 1, 2, EVERYONE)), source.randbytes(8), kind, attempt)
        body = mutated(source, wire.frame(mutated(source, message)))
    elif endpoint == "read":
        query = mutated(source, b"after=1:0,2:0,4:0&wait=0")
        with suppress(InputError):
            if parse_query(query).wait_s > 0.01:
                query = b"after=4:1"  # it would wait, rightly
        query = b"?" + re.sub(rb"[\x00-\x20\x7f-\xff#]", b"%zz", query)
    if source.random() < 0.1:
        method = source.choice(
            (b"HEAD", b"OPTIONS", b"DELETE", b"PATCH", b"TRACE", b"CONNECT", b"POST", b"PUT", b"FOO")
        )
    if source.random() < 0.1:
        path = re.sub(rb"[\x00-\x20\x7f-\xff?#]", b"", mutated(source, path)) or b"/"
    if source.random() < 0.1:
        authorization = re.sub(rb"[\x00-\x1f\x7f]", b"", mutated(source, authorization))
    headers = [b"host: x", b"authorization: " + authorization, b"content-length: %d" % len(body)]
    if source.random() < 0.1:
        odd = (
            b"expect: 100-continue",
            b"upgrade: websocket\r\nconnection: upgrade",
            b"connection: close",
            b"x: \xff\xfe",
        )
        more = (b"range: bytes=0-1", b"accept-encoding: gzip", b"content-type: a/b; c", b"authorization: tpmdp 0:00")
        headers.append(source.choice(odd + more))
    if source.random() < 0.05:
        headers[2] = b"transfer-encoding: chunked"
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
    request = b"%b %b%b HTTP/1.1\r\n%b\r\n\r\n%b" % (method, path, query, b"\r\n".join(headers), body)
    if source.random() < 0.03:
        return mutated(source, request), True
    return request, b"upgrade" in request or method == b"CONNECT"


@pytest.mark.long
def test_random_requests_to_every_endpoint_do_no_harm(start: Callable[..., Running]) -> None:
    """Without rates, which would answer most of them before they do anything."""
    relay = start(address_burst=1e6, party_burst=1e6)
    study, bystander = Study(relay, source=random.Random(7)), open_study(relay)
    assert study.put().status_code == 201
    kept = bystander.message(0, 1, b"kept")
    bystander.post(0, kept)
    counts: Counter[tuple[str, int]] = Counter()
    each = tries(300, 2500)  # by each of four threads

    def attack(seed: int) -> None:
        source = random.Random(seed)
        raw = Raw(relay)
        for endpoint in source.sample(ENDPOINTS * each, len(ENDPOINTS) * each):
            request, last = random_request(source, study, endpoint)
            answer = raw.ask(request, request.startswith(b"HEAD"), last)
            if answer is None:
                counts[endpoint, 0] += 1
                continue
            status, body = answer
            counts[endpoint, status] += 1
            if status >= 400 and body:
                assert set(json.loads(body)) == {"error"}
        raw.close()

    failures: list[BaseException] = []

    def guarded(seed: int) -> None:
        try:
            attack(seed)
        except BaseException as problem:
            failures.append(problem)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10 * HANG_S)
    assert failures == []
    for endpoint in ENDPOINTS:
        assert sum(count for (name, _), count in counts.items() if name == endpoint) == 4 * each
    assert not any(status == 429 for _, status in counts), counts
    statuses = {status for _, status in counts}
    assert not statuses & {500, 501, 502, 503, 504}, counts
    assert {200, 400, 401, 403, 404, 405, 409} <= statuses, counts
    for endpoint in ("health", "session", "write", "read"):
        assert counts[endpoint, 200] > 50, counts
    assert relay.stderr.read_text() == ""
    assert [data for _, data in bystander.get(1)] == [kept]
    for number, data in study.get(0):
        assert number > 0
        assert data[9:13] != bytes(4)  # nothing of its own
    fresh = open_study(relay)
    message = fresh.message(0, 1, os.urandom(100_000))
    assert fresh.post(0, message).json() == {"stored": 1, "known": 0}
    assert [data for _, data in fresh.get(1, wait=5)] == [message]
