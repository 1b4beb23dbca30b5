"""What happened at the relay: numbers for /metrics, and one line of JSON for each event if the operator wants it.

Lines name kinds, sizes, positions and the first digits of public hashes. They hold no content, no key and no token.
"""

from __future__ import annotations

import json
import os
import queue
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from tpmdp._version import __version__
from tpmdp.engines.relay.limits import Buckets
from tpmdp.engines.relay.session_rows import CheckedMessage, StoredSession
from tpmdp.protocol.messages import EVERYONE, Kind

_DIGITS: Final = 12  # of hashes
_WAITING_MAX: Final = 10_000  # lines; more are dropped, and counted
_COMPLETED_MAX: Final = 16_384  # sessions that are known to be complete
_REFUSALS_RATE: Final = 10.0  # lines per second about one address, which must not fill the operator's disk
_REFUSALS_BURST: Final = 200.0
_FIELD: Final = re.compile("[a-z_ -]{1,40}")
_ANSWERS: Final = (Kind.RESULT, Kind.RECEIPT)


class Journal:
    """Counts events, and writes lines from a thread of its own: a pipe that nobody reads must not stop the relay.

    >>> lines: list[str] = []
    >>> journal = Journal(lines.append)
    >>> journal.refusal(401, "authorization = tpmdp 3:ab... proves no party", address="192.0.2.1")
    >>> journal.close()
    >>> journal.refusals, json.loads(lines[0])["field"]
    (Counter({401: 1}), 'authorization')
    """

    def __init__(self, write: Callable[[str], object] | None = None) -> None:
        self.messages: Counter[str] = Counter()
        self.refusals: Counter[int] = Counter()
        self.bytes = self.sessions = self.completed = self.dropped = 0
        self._completed: dict[tuple[int, bytes], None] = {}
        self._rates = Buckets(_REFUSALS_RATE, _REFUSALS_BURST)
        self._write = write
        self._lines: queue.Queue[str | None] = queue.Queue(_WAITING_MAX)
        self._thread = threading.Thread(target=self._write_lines, name="relay-journal", daemon=True)
        if write is not None:
            self._thread.start()

    def close(self) -> None:
        """Write what waits, if it can be written soon. May be called twice."""
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._lines.put(None, timeout=1.0)
            self._thread.join(2.0)

    # Events ----------------------------------------------------------------------------------------------------------

    def opened(self) -> None:
        """A session was registered."""
        self.sessions += 1

    def arrivals(self, session: StoredSession, items: Sequence[CheckedMessage]) -> None:
        """Messages were stored. A session counts as completed with the first answer of its lead receiver."""
        for item in items:
            kind = Kind(item.kind)
            self.messages[kind.name.lower()] += 1
            self.bytes += len(item.data)
            where = {"session": session.name.hex()[:_DIGITS], "plan": item.plan.hex()[:_DIGITS]}
            if self._write is not None:
                to = "everyone" if item.recipient == EVERYONE else item.recipient
                place = {"attempt": item.attempt, "from": item.sender, "to": to, "bytes": len(item.data)}
                self._line("message", where | {"kind": kind.name.lower()} | place)
            if kind in _ANSWERS and (session.id, item.plan) not in self._completed:
                self._completed[session.id, item.plan] = None
                if len(self._completed) > _COMPLETED_MAX:
                    del self._completed[next(iter(self._completed))]
                self.completed += 1
                self._line("completed", where | {"parties": len(session.roster), "attempt": item.attempt})

    def refusal(self, status: int, error: object, address: str) -> None:
        """A request or a connection was refused. Of the error only the name of its field is written."""
        self.refusals[status] += 1
        if self._write is None or self._rates.take(address) > 0:
            self.dropped += self._write is not None
            return
        field = str(error).partition(" = ")[0]
        what = field if _FIELD.fullmatch(field) else "request"
        self._line("refusal", {"status": status, "field": what, "address": address})

    # Metrics ---------------------------------------------------------------------------------------------------------

    def metrics(self, gauges: Mapping[str, float]) -> str:
        """All numbers in the text format of Prometheus.

        >>> print(Journal().metrics({"connections": 2}).splitlines()[-1])
        tpmdp_relay_connections 2
        """
        lines = [
            "# TYPE tpmdp_relay_info gauge",
            f'tpmdp_relay_info{{version="{__version__}"}} 1',
            "# TYPE tpmdp_relay_messages_total counter",
            *(f'tpmdp_relay_messages_total{{kind="{kind}"}} {count}' for kind, count in sorted(self.messages.items())),
            "# TYPE tpmdp_relay_refusals_total counter",
            *(
                f'tpmdp_relay_refusals_total{{status="{status}"}} {count}'
                for status, count in sorted(self.refusals.items())
            ),
        ]
        counters = {
            "message_bytes_total": self.bytes,
            "sessions_opened_total": self.sessions,
            "sessions_completed_total": self.completed,
            "log_lines_dropped_total": self.dropped,
        }
        for kind, values in (("counter", counters), ("gauge", gauges)):
            for name, value in values.items():
                lines += [f"# TYPE tpmdp_relay_{name} {kind}", f"tpmdp_relay_{name} {value:.17g}"]
        return "\n".join(lines) + "\n"

    # Lines -----------------------------------------------------------------------------------------------------------

    def _line(self, event: str, fields: Mapping[str, Any]) -> None:
        if self._write is None:
            return
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        try:
            self._lines.put_nowait(json.dumps({"time": time, "event": event, **fields}))
        except queue.Full:
            self.dropped += 1

    def _write_lines(self) -> None:
        while (line := self._lines.get()) is not None:
            if self._write is not None:
                with suppress(OSError, ValueError):
                    self._write(line + "\n")


def write_stderr(text: str) -> None:
    """Write to standard error past its buffer: where nobody reads, the process must still be able to end."""
    left = text.encode()
    while left:
        left = left[os.write(sys.stderr.fileno(), left) :]
