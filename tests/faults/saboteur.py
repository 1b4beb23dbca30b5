"""Runs a tpmdp command with something going wrong: `python -m tests.faults.saboteur WHAT... -- ARGUMENTS`.

kill:before:Class.method:N   SIGKILL this very process just before the N-th call of a method
kill:after:Class.method:N    ... just after it
skew:SECONDS                 a clock that is wrong by so much
full:BYTES                   no file may grow beyond so many bytes
late:FILE                    the deadline passes once the file is there and the party has read all that was sent
"""

from __future__ import annotations

import datetime
import functools
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.ledger import Ledger


def targets() -> dict[str, type[Any]]:
    owners: dict[str, type[Any]] = {"Mailbox": Mailbox, "Ledger": Ledger}
    if "relay" in sys.argv:
        from tpmdp.engines.relay.store import RelayStore

        owners["RelayStore"] = RelayStore
    return owners


def kill(when: str, place: str, number: str) -> None:
    name, method = place.split(".")
    owner = targets()[name]
    original = getattr(owner, method)
    calls = 0

    @functools.wraps(original)
    def wrapped(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == int(number) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if calls == int(number):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method, wrapped)


def skew(seconds: str) -> None:
    shift, real_time = float(seconds), time.time
    time.time = lambda: real_time() + shift

    class Meta(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, datetime.datetime)

    class SkewedDatetime(datetime.datetime, metaclass=Meta):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> Any:
            return datetime.datetime.fromtimestamp(real_time() + shift, tz)

    import tpmdp.study.model

    tpmdp.study.model.datetime = SkewedDatetime  # type: ignore[attr-defined]


def full(size: str) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), resource.RLIM_INFINITY))


def late(event: str) -> None:
    from tests.engines.patience import pass_deadline_after

    pass_deadline_after(Path(event))


def main() -> None:
    split = sys.argv.index("--")
    for order in sys.argv[1:split]:
        what, *rest = order.split(":")
        harms: dict[str, Callable[..., None]] = {"kill": kill, "skew": skew, "full": full, "late": late}
        harms[what](*rest)
    from tpmdp.cli.main import main as run

    run(sys.argv[split + 1 :])


if __name__ == "__main__":
    main()
