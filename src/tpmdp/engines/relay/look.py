"""A look at a relay by its operator, on its own machine: numbers, and the sessions in its store. It changes nothing."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import ssl
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpcore

from tpmdp._util.clock import now_s
from tpmdp._util.files import readable
from tpmdp.engines.relay.database import APPLICATION, VERSION
from tpmdp.engines.relay.mailbox import RelayError, check_url
from tpmdp.engines.relay.status import SessionStatus, query_status
from tpmdp.engines.relay.transport import DeadlineNetwork
from tpmdp.engines.relay.wire import is_loopback
from tpmdp.errors import FileError, InputError, shown
from tpmdp.protocol.messages import HASH_BYTES

_TIMEOUT_S: Final = 5.0
_ANSWER_MAX: Final = 1 << 20
_STORE_MAX: Final = 1 << 44
_BUSY_S: Final = 2.0
_LOGIN: Final = "401"  # the first request of every party, whose proof follows
_PREFIX: Final = "tpmdp_relay_"
_SAMPLE: Final = re.compile(rf'{_PREFIX}(\w+)(?:\{{\w+="([^"]*)"\}})? ([-+0-9.eE]+)', re.ASCII)


# Numbers --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RelayNumbers:
    """The numbers of a relay since it was started, at one moment."""

    version: str
    seconds: float
    """Of a clock that only goes forward, when they were read."""
    values: Mapping[str, float]
    """By name, without the prefix; sums over labels. `logins` are those that were asked for a proof of who asks."""
    labelled: Mapping[str, Mapping[str, float]]
    """By name and label, such as the kinds of messages."""

    def get(self, name: str) -> float:
        """A number; 0 if the relay does not have it."""
        return self.values.get(name, 0.0)

    def per_minute(self, name: str, before: RelayNumbers | None) -> float | None:
        """How fast a number has grown since an earlier look; None if that is not known, as after a restart."""
        if before is None or self.seconds <= before.seconds or self.get(name) < before.get(name):
            return None
        return 60.0 * (self.get(name) - before.get(name)) / (self.seconds - before.seconds)


def parse_metrics(text: str, seconds: float = 0.0) -> RelayNumbers:
    """The numbers in the text of /metrics; what is not ours is passed over.

    >>> numbers = parse_metrics('tpmdp_relay_messages_total{kind="keys"} 3\\ntpmdp_relay_connections 2')
    >>> numbers.get("messages_total"), numbers.get("connections"), numbers.labelled["messages_total"]
    (3.0, 2.0, {'keys': 3.0})
    """
    values: dict[str, float] = {}
    labelled: dict[str, dict[str, float]] = {}
    version = ""
    for line in text.splitlines():
        match = _SAMPLE.fullmatch(line)
        if match is None:
            continue
        name, label, number = match.groups()
        if name == "info":
            version = shown(label or "", 30)
            continue
        try:
            value = float(number)
        except ValueError:
            continue
        values[name] = values.get(name, 0.0) + value
        if label is not None:
            labelled.setdefault(name, {})[shown(label, 30)] = value
    logins = labelled.get("refusals_total", {}).get(_LOGIN, 0.0)
    values |= {"logins": logins, "refused": values.get("refusals_total", 0.0) - logins}
    return RelayNumbers(version, seconds, values, labelled=labelled)


def check_own_url(url: str) -> str:
    """The address of a relay on this machine, without a final slash.

    >>> check_own_url("https://relay.example.org")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: relay = https://relay.example.org is on another machine, and a relay gives its numbers to
    its own machine only: write http://127.0.0.1:port, on the relay's machine
    """
    address = check_url(url, plain_http=True)
    if not is_loopback(urlsplit(address).hostname or ""):
        rule = "is on another machine, and a relay gives its numbers to its own machine only"
        raise InputError("relay", address, rule, "write http://127.0.0.1:port, on the relay's machine")
    return address


def look_at_relay(url: str) -> RelayNumbers:
    """Ask a relay on this machine whether it is well, and for its numbers; RelayError if it cannot be used now."""
    address = check_own_url(url)
    status, body = _get(address, "/health")
    try:
        is_ours = status == 200 and json.loads(body)["service"] == "tpmdp relay"
    except (ValueError, KeyError, TypeError):
        is_ours = False
    if not is_ours:
        what = f"it answered {status}" if status != 200 else "it is something else"
        raise RelayError(f"{address} is not a tpmdp relay that is well ({what}): check its address and its log")
    status, body = _get(address, "/metrics")
    if status != 200:
        raise RelayError(f"the relay gives no numbers (it answered {status}): ask it on its own machine")
    return parse_metrics(body.decode("utf-8", "replace"), now_s())


def _own_tls() -> ssl.SSLContext:
    """TLS to this machine: its certificate is for the name that others use, so it proves nothing here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _get(address: str, path: str) -> tuple[int, bytes]:
    network = DeadlineNetwork(now_s() + _TIMEOUT_S)
    headers = [(b"host", urlsplit(address).netloc.encode()), (b"user-agent", b"tpmdp")]
    limits = dict.fromkeys(("connect", "read", "write", "pool"), _TIMEOUT_S)
    try:
        with (
            httpcore.ConnectionPool(_own_tls(), max_connections=1, network_backend=network) as pool,
            pool.stream("GET", address + path, headers=headers, extensions={"timeout": limits}) as answer,
        ):
            body = b""
            for piece in answer.iter_stream():
                body += piece
                if len(body) > _ANSWER_MAX:
                    raise RelayError(f"{address} sent more than {_ANSWER_MAX} bytes: check its address")
            return answer.status, body
    except (httpcore.NetworkError, httpcore.TimeoutException, httpcore.ProtocolError) as error:
        text = shown(str(error) or type(error).__name__, 200)
        problem = f"the relay at {address} cannot be reached ({text})"
        raise RelayError(f"{problem}: check its address, and that it runs") from None


# The store ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredLook:
    """A session as the relay's store has it."""

    name: bytes
    """Its id, a hash."""
    parties: int
    touched: int
    """Unix time of the last use, known to the hour."""
    status: SessionStatus
    """Under the plan that most parties use."""
    plans: int
    """How many plans parties have sent messages under."""


def stored_sessions(path: Path, most: int) -> tuple[list[StoredLook], int]:
    """The sessions in a relay's store, last used first and at most so many, and how many there are.

    The file is opened to read only, also while the relay runs.
    """
    with readable(path, _STORE_MAX):
        has_log = path.with_name(path.name + "-wal").exists()
    # Without a log nobody writes; SQLite would make one to read a file of this mode.
    mode = "mode=ro" if has_log else "immutable=1"
    address = f"{Path(os.path.realpath(path)).as_uri()}?{mode}"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=_BUSY_S)) as connection:
            connection.execute("PRAGMA query_only=ON")
            if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION:
                raise FileError(path, "is not the store of a relay", "choose the file that tpmdp relay writes")
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version != VERSION:
                problem = f"is a store of version {version}, and this tpmdp reads version {VERSION}"
                raise FileError(path, problem, "start the relay of this tpmdp with it once")
            count = connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0]
            rows = connection.execute(
                "SELECT id, name, touched, LENGTH(keys) FROM sessions JOIN rosters ON session = id "
                "ORDER BY touched DESC, id DESC LIMIT ?",
                (most,),
            ).fetchall()
            return [_look(connection, row) for row in rows], count
    except sqlite3.Error as error:
        problem = f"cannot be read now ({shown(str(error), 100)})"
        raise FileError(path, problem, "try again; if it stays so, ask the relay itself") from None


def _look(connection: sqlite3.Connection, row: tuple[int, bytes, int, int]) -> StoredLook:
    session, name, touched, size = row
    count = size // HASH_BYTES
    plans = connection.execute(
        "SELECT plan FROM usage WHERE session = ? GROUP BY plan ORDER BY COUNT(DISTINCT party) DESC, SUM(bytes) DESC",
        (session,),
    ).fetchall()
    plan = plans[0][0] if plans else bytes(HASH_BYTES)
    status = query_status(connection, session, plan, count=count)
    return StoredLook(name, count, touched, status=status, plans=len(plans))
