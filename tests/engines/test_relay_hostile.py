"""The relay under hostile peers: slow senders and readers, many uploads, shared addresses; what its operator sees."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.engines.test_relay_server import Running, Study, command, error, open_study
from tests.patience import HANG_S, wait_until
from tests.processes import Process
from tpmdp.engines.relay import wire
from tpmdp.engines.relay.journal import Journal
from tpmdp.engines.relay.limits import RelaySettings
from tpmdp.engines.relay.uploads import RATE_MIN, Pace
from tpmdp.errors import InputError
from tpmdp.protocol.messages import EVERYONE, Kind, Message, encode

pytestmark = pytest.mark.process

PATIENT = {"head_timeout_s": 100.0}  # slow peers stay as long as the test
HEAD = "{} HTTP/1.1\r\nhost: x\r\n"


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    started: list[Running] = []

    def start(**settings: Any) -> Running:
        started.append(Running(tmp_path, **settings))
        return started[-1]

    yield start
    for running in started:
        running.end(signal.SIGKILL)


def upload(study: Study, party: int, announced: int, sent: bytes = b"x") -> socket.socket:
    """A POST that announces much and sends little."""
    connection = study.relay.connect()
    authorization = study.token(party)["authorization"]
    head = HEAD.format(f"POST {study.mail}") + f"authorization: {authorization}\r\ncontent-length: {announced}\r\n\r\n"
    connection.sendall(head.encode() + sent)
    return connection


def number(relay: Running, name: str) -> float:
    """A number at /metrics."""
    found = re.search(rf"^tpmdp_relay_{re.escape(name)} (\S+)$", relay.client.get("/metrics").text, re.MULTILINE)
    return 0.0 if found is None else float(found[1])


def from_address(relay: Running, address: str) -> httpx.Client:
    return httpx.Client(base_url=relay.url, timeout=HANG_S, transport=httpx.HTTPTransport(local_address=address))


# Slow peers ----------------------------------------------------------------------------------------------------------


def test_slow_bodies_hold_no_memory(begin: Callable[..., Running]) -> None:
    """Eight senders that announce all the memory there is, and send a byte, stop nobody."""
    body = (1 << 20) + (64 << 10)
    relay = begin(message_max=1 << 20, memory_max=8 * body, **PATIENT)
    study, other = open_study(relay, 8), open_study(relay)
    with ExitStack() as stack:
        for party in range(study.count):
            stack.enter_context(upload(study, party, body))
        wait_until(lambda: number(relay, "uploads") == 8)
        message = other.message(0, 1, bytes(1 << 19))
        assert other.post(0, message).json() == {"stored": 1, "known": 0}
        assert [data for _, data in other.get(1)] == [message]
        assert number(relay, "uploads") == 8  # while they all were there


def test_slow_registrations_keep_no_newcomers_out(begin: Callable[..., Running]) -> None:
    relay = begin(**PATIENT)
    with ExitStack() as stack:
        for size in [3_200_032] * 20 + [(64 << 20) - 20 * 3_200_032]:  # 64 MiB in all
            connection = stack.enter_context(relay.connect())
            head = HEAD.format(f"PUT {Study(relay).path}") + f"content-length: {size}\r\n\r\nx"
            connection.sendall(head.encode())
        wait_until(lambda: number(relay, "uploads") == 21)
        study = open_study(relay)
        assert study.post(0, study.message(0, 1)).status_code == 200
        assert number(relay, "uploads") == 21


def test_readers_that_stall_hold_no_memory(begin: Callable[..., Running]) -> None:
    relay = begin(message_max=8 << 20, memory_max=(8 << 20) + (64 << 10))
    study = open_study(relay, 4)
    large = study.message(0, EVERYONE, bytes(7 << 20))
    assert study.post(0, large).status_code == 200
    with ExitStack() as stack:
        for party in (1, 2):
            connection = stack.enter_context(socket.socket())
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(HANG_S)
            connection.connect(("127.0.0.1", relay.port))
            authorization = study.token(party)["authorization"]
            head = HEAD.format(f"GET {study.mail}?after=4:0") + f"authorization: {authorization}\r\n\r\n"
            connection.sendall(head.encode())
            assert connection.recv(12) == b"HTTP/1.1 200"  # and it reads no more
        assert [data for _, data in study.get(3)] == [large]


@pytest.mark.parametrize("first", [1, 1 << 20])
def test_a_body_that_only_trickles_ends(begin: Callable[..., Running], first: int) -> None:
    """Also when it began fast. Every pause is short, and the body announced is long."""
    relay = begin(head_timeout_s=1.0, message_max=16 << 20)
    study = open_study(relay)
    with upload(study, 0, 16 << 20, bytes(first)) as connection:
        connection.setblocking(False)
        trickled, answer = 0, b""
        while not answer:
            assert trickled < 3000, "it took 3000 pauses"
            time.sleep(0.05)
            with suppress(BlockingIOError):
                answer = connection.recv(12)
                continue
            with suppress(OSError):
                connection.send(b"x")
            trickled += 1
        assert answer == b"HTTP/1.1 408"
    assert study.post(0, study.message(0, 1)).status_code == 200


def test_a_steady_sender_may_take_its_time() -> None:
    """An hour at little more than the minimum rate; and not a second longer when it stops."""
    clock = [0.0]
    pace = Pace(30.0, lambda: clock[0])
    while clock[0] < 3600:
        clock[0] += 1.0
        assert pace.left_s() > 0
        pace.arrived(RATE_MIN * 11 // 10, own_s=0.0)
    left = pace.left_s()
    clock[0] += 2.0
    pace.arrived(1, own_s=2.0)  # the relay's own time does not count
    assert pace.left_s() == left
    clock[0] += left
    assert pace.left_s() == 0


# Caps ----------------------------------------------------------------------------------------------------------------


def test_uploads_of_a_party_are_capped(begin: Callable[..., Running]) -> None:
    relay = begin(party_uploads_max=2, **PATIENT)
    study = open_study(relay)
    with upload(study, 0, 1000) as first, upload(study, 0, 1000):
        wait_until(lambda: number(relay, "uploads") == 2)
        with upload(study, 0, 1000) as third:
            assert third.recv(12) == b"HTTP/1.1 429"
        with upload(study, 1, 1000):
            wait_until(lambda: number(relay, "uploads") == 3)
        assert study.post(0, study.message(0, 1)).status_code == 200  # what comes at once is not limited
        first.close()
        wait_until(lambda: number(relay, "uploads") == 1)
        message = wire.frame(study.message(0, 2, bytes(1000)))
        with upload(study, 0, len(message), message[:10]) as again:
            wait_until(lambda: number(relay, "uploads") == 2)
            again.sendall(message[10:])
            assert again.recv(12) == b"HTTP/1.1 200"


def test_uploads_of_an_address_are_capped_in_number_and_bytes(begin: Callable[..., Running]) -> None:
    body = (1 << 20) + (64 << 10)
    relay = begin(message_max=1 << 20, address_uploads_max=3, uploads_bytes_max=2 * body, **PATIENT)
    study = open_study(relay, 5)
    with ExitStack() as stack:
        for party in range(3):
            stack.enter_context(upload(study, party, body))
        wait_until(lambda: number(relay, "uploads") == 3)
        with upload(study, 3, 1000) as fourth:
            assert fourth.recv(12) == b"HTTP/1.1 429"
        large = wire.frame(study.message(3, 0, bytes(1 << 19)))
        with from_address(relay, "127.0.0.2") as elsewhere:
            answer = elsewhere.post(study.mail, content=large, headers=study.token(3))
        assert answer.json() == {"stored": 1, "known": 0}
    wait_until(lambda: number(relay, "uploads") == 0)
    assert number(relay, "upload_bytes") == 0
    with upload(study, 0, body, bytes(1 << 20)):
        wait_until(lambda: number(relay, "upload_bytes") == 1 << 20)
        assert "uploads" in error(study.send(3, large), 503)  # one address has half of what there is
        with from_address(relay, "127.0.0.2") as elsewhere:
            assert elsewhere.post(study.mail, content=large, headers=study.token(3)).status_code == 200


def test_connections_of_an_address_are_capped(begin: Callable[..., Running]) -> None:
    relay = begin(address_connections_max=2, **PATIENT)
    assert relay.client.get("/health").status_code == 200
    with relay.connect(), relay.connect() as third:
        assert third.recv(12) == b"HTTP/1.1 503"
        with from_address(relay, "127.0.0.2") as elsewhere:
            assert elsewhere.get("/health").status_code == 200


@pytest.mark.long
def test_idle_connections_of_a_greedy_address_make_room_for_others(begin: Callable[..., Running]) -> None:
    relay = begin(connections_max=6, address_connections_max=6, **PATIENT)
    assert number(relay, "connections") == 1
    with ExitStack() as stack:
        greedy = [stack.enter_context(relay.connect()) for _ in range(5)]  # and one is the client's
        wait_until(lambda: number(relay, "connections") == 6)
        assert stack.enter_context(relay.connect()).recv(12) == b"HTTP/1.1 503"  # nobody makes room for itself
        for host in range(2, 5):
            elsewhere = stack.enter_context(from_address(relay, f"127.0.0.{host}"))
            assert elsewhere.get("/health").status_code == 200
        for connection in greedy:
            connection.setblocking(False)
        wait_until(lambda: number(relay, "connections") == 6)
        assert sum(is_closed(connection) for connection in greedy) in (2, 3)  # the client's own may be among them


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False


# A proxy in front ----------------------------------------------------------------------------------------------------


def test_clients_behind_a_trusted_proxy_have_rates_of_their_own(begin: Callable[..., Running]) -> None:
    relay = begin(address_rate=0.01, address_burst=3, forwarded_by=["127.0.0.1"], address_connections_max=1)

    def status(forwarded: str, client: httpx.Client = relay.client) -> int:
        return client.get("/health", headers={"x-forwarded-for": forwarded}).status_code

    assert [status("203.0.113.1") for _ in range(4)] == [200, 200, 200, 429]
    assert status("203.0.113.2") == 200
    assert status("203.0.113.2, 203.0.113.1") == 429  # the last entry is the proxy's own
    assert status("203.0.113.1, 203.0.113.2:4711") == 200
    assert [status(f"2001:db8::{digit}") for digit in range(1, 5)] == [200, 200, 200, 429]
    assert [status(text) for text in ("", "unknown", "x" * 1000, "203.0.113.3,")] == [200, 200, 200, 429]
    with from_address(relay, "127.0.0.2") as elsewhere:  # is no proxy, and can claim nothing
        assert [status(f"203.0.113.{digit}", elsewhere) for digit in range(10, 14)] == [200, 200, 200, 429]
    with from_address(relay, "127.0.0.1") as second:  # and the proxy has as many connections as it needs
        assert status("203.0.113.4", second) == 200


def test_without_a_trusted_proxy_nobody_chooses_an_address(begin: Callable[..., Running]) -> None:
    relay = begin(address_rate=0.01, address_burst=3)
    statuses = [
        relay.client.get("/health", headers={"x-forwarded-for": f"203.0.113.{digit}"}).status_code for digit in range(4)
    ]
    assert statuses == [200, 200, 200, 429]


def test_the_address_of_a_proxy_is_checked() -> None:
    with pytest.raises(InputError, match=r"--forwarded-by = proxy must be an address such as 192\.0\.2\.1: name"):
        command("--forwarded-by", "proxy", "--port", 0)
    with pytest.raises(InputError, match="forwarded_by = proxy must be an address"):
        RelaySettings(forwarded_by=frozenset({"proxy"}))


# A mended study file -------------------------------------------------------------------------------------------------


def test_a_party_with_a_mended_study_file_posts_again(begin: Callable[..., Running]) -> None:
    relay = begin()
    study = open_study(relay)

    def agree(plan: int) -> bytes:
        message = Message(Kind.AGREE, 0, 0, EVERYONE, study.id, bytes([plan]) * 32, b"")
        return encode(message, study.identities[0])

    for plan in range(8):
        assert study.post(0, agree(plan)).json() == {"stored": 1, "known": 0}
    assert "8 plan hashes" in error(study.post(0, agree(8)), 403)
    assert study.post(0, agree(0)).json() == {"stored": 0, "known": 1}
    assert [data for _, data in study.get(1)] == [agree(plan) for plan in range(8)]


# What the operator sees ----------------------------------------------------------------------------------------------


def test_health_and_metrics(begin: Callable[..., Running]) -> None:
    relay = begin()
    study = open_study(relay)
    assert study.post(0, study.message(0, 1, b"four")).status_code == 200
    error(study.post(0, study.message(0, 1, b"other")), 409)
    assert study.post(2, study.message(2, 0, bytes(32), Kind.RECEIPT)).status_code == 200
    for path in ("/health", "/v1/health"):
        answer = relay.client.get(path)
        assert answer.json()["status"] == "ok"
        assert bytes.fromhex(answer.headers[wire.NONCE_HEADER]) == study.nonce
    answer = relay.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    lines = answer.text.splitlines()
    assert all(re.fullmatch(r'# TYPE \w+ (counter|gauge)|\w+(\{\w+="[^"]*"\})? \d+', line) for line in lines), lines
    assert 'tpmdp_relay_messages_total{kind="submit"} 1' in lines
    assert 'tpmdp_relay_refusals_total{status="409"} 1' in lines
    assert number(relay, "sessions_opened_total") == number(relay, "sessions_completed_total") == 1
    assert number(relay, "connections") == 1
    assert number(relay, "message_bytes_total") == len(study.message(0, 1, b"four")) + len(
        study.message(0, 1, bytes(32))
    )
    assert "own machine" in error(relay.client.get("/metrics", headers={"x-forwarded-for": "127.0.0.1"}), 403)


def test_metrics_can_be_given_to_all(begin: Callable[..., Running]) -> None:
    relay = begin(public_metrics=True)
    assert relay.client.get("/metrics", headers={"x-forwarded-for": "203.0.113.1"}).status_code == 200


def test_the_log_has_a_line_for_each_event_and_no_secret(tmp_path: Path) -> None:
    arguments = ("relay", "--port", 0, "--store", tmp_path / "relay.sqlite", "--log", "json")
    with Process("tpmdp", *arguments) as process:
        relay = Running.__new__(Running)
        relay.url = process.line().split()[-1]
        relay.client = httpx.Client(base_url=relay.url, timeout=HANG_S)
        study = open_study(relay)
        secret = b"a body that nobody may see"
        assert study.post(0, study.message(0, 1, secret)).status_code == 200
        error(study.post(0, study.message(0, 1, secret + b"!")), 409)
        error(relay.client.get(study.mail, headers={"authorization": study.token(1)["authorization"] + "0"}), 401)
        error(relay.client.get("/nowhere"), 404)
        with relay.connect() as connection:
            connection.sendall(b"nonsense\r\n\r\n")
            assert connection.recv(12) == b"HTTP/1.1 400"
        study.post(1, study.message(1, 0, bytes(32), Kind.RECEIPT), study.message(1, 2, bytes(32), Kind.RECEIPT))
        study.post(1, study.message(1, EVERYONE, bytes(32), Kind.KEYS, attempt=2))
        relay.client.close()
        process.send_signal(signal.SIGTERM)
        _, text = process.communicate()
    events = [json.loads(line) for line in text.splitlines()]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", event.pop("time")) for event in events)
    place = {"session": study.id.hex()[:12], "plan": "0" * 12}
    size = len(study.message(0, 1, secret))
    receipt = {
        "event": "message",
        **place,
        "kind": "receipt",
        "attempt": 1,
        "from": 1,
        "bytes": size - len(secret) + 32,
    }
    refusal = {"event": "refusal", "address": "127.0.0.1"}
    assert events == [
        {"event": "message", **place, "kind": "submit", "attempt": 1, "from": 0, "to": 1, "bytes": size},
        {**refusal, "status": 409, "field": "message"},
        {**refusal, "status": 401, "field": "authorization"},
        {**refusal, "status": 404, "field": "request"},
        {**refusal, "status": 400, "field": "request"},
        {**receipt, "to": 0},
        {"event": "completed", **place, "parties": 3, "attempt": 1},
        {**receipt, "to": 2},
        {**receipt, "kind": "keys", "attempt": 2, "to": "everyone"},
    ]
    words = [study.id.hex(), secret.decode(), secret.hex(), study.nonce.hex(), study.label.hex()]
    words += [token[8:28] for party in range(3) for token in study.token(party).values()]
    words += [key.hex() for key in study.roster] + [key.private_bytes_raw().hex() for key in study.identities]
    assert not any(word in text for word in words)


def test_a_log_that_nobody_reads_stops_nobody(tmp_path: Path) -> None:
    """Standard error is a pipe that is full long before the end."""
    arguments = ("relay", "--port", 0, "--store", tmp_path / "relay.sqlite", "--log", "json")
    with Process("tpmdp", *arguments, stderr=subprocess.PIPE) as process:
        relay = Running.__new__(Running)
        relay.url = process.line().split()[-1]
        relay.client = httpx.Client(base_url=relay.url, timeout=HANG_S)
        study = open_study(relay, 120)
        for attempt in range(1, 8):
            messages = [study.message(0, to, b"", Kind.PAD, attempt) for to in range(1, study.count)]
            assert study.post(0, *messages).json() == {"stored": len(messages), "known": 0}
        assert number(relay, 'messages_total{kind="pad"}') == 7 * 119  # at 200 bytes each: more than a pipe takes
        process.send_signal(signal.SIGTERM)
        relay.client.close()
        assert process.wait(HANG_S) == 0


def test_refusals_of_one_address_do_not_fill_the_log() -> None:
    lines: list[str] = []
    journal = Journal(lines.append)
    for _ in range(10_000):
        journal.refusal(401, "token = x", address="a")
    journal.refusal(401, "token = x", address="b")
    journal.close()
    addresses = [json.loads(line)["address"] for line in lines]
    assert addresses.count("b") == 1
    assert 200 <= addresses.count("a") <= 5000
    assert journal.dropped == 10_000 - addresses.count("a")
