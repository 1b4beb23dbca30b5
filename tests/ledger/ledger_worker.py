"""Other processes for test_ledger.py: `python -m tests.ledger.ledger_worker ROLE FILE ...`; prints lines of JSON."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

from tpmdp.errors import FileError
from tpmdp.ledger import Charge, Ledger, OverspendError, SessionKey

COST = Charge(0.05, 1e-50, 0.2, 1e-6)
PLAN = bytes(range(32))
_LINE = 66  # bytes of a report: a session, a step, the end of the line


def key_of(number: int) -> SessionKey:
    return SessionKey(number.to_bytes(32, "big"), PLAN)


def wait_for(path: Path) -> None:
    """All workers start at once."""
    print(json.dumps("ready"), flush=True)
    while not path.exists():
        time.sleep(0.001)


def hammer(file: Path, start: Path, name: str, rounds: int) -> None:
    """Charge until refused or done; print the sessions that were accepted."""
    wait_for(start)
    accepted, refused = [], 0
    with Ledger.open(file) as ledger:
        for number in range(rounds):
            session = name.encode().ljust(16, b".") + number.to_bytes(16, "big")
            try:
                ledger.charge(SessionKey(session, PLAN), "s", COST, unit="record", private={"seed": os.urandom(8)})
                accepted.append(session.hex())
            except OverspendError:
                refused += 1
    print(json.dumps([accepted, refused]))


def race(file: Path, start: Path, rounds: int) -> None:
    """Charge the same sessions as everybody else; print whether new, and the private state to be used."""
    wait_for(start)
    found = []
    with Ledger.open(file) as ledger:
        for number in range(rounds):
            got = ledger.charge(key_of(number), "s", COST, unit="record", private={"seed": os.urandom(16)})
            late = ledger.keep(key_of(number), "late", os.urandom(16))
            found.append([got.new, got.private["seed"].hex(), late.hex()])
    print(json.dumps(found))


def spend_for_ever(file: Path, pipe: int) -> None:
    """Hold, then cancel or charge, then perhaps settle; each step is reported once it has returned."""

    def report(session: bytes, step: str) -> None:
        os.write(pipe, session.hex().encode() + step.encode() + b"\n")

    with Ledger.open(file) as ledger:
        while True:
            session = os.urandom(32)
            key = SessionKey(session, PLAN)
            ledger.hold(key, "s", COST, unit="record", private={"statistic": os.urandom(3000)})
            report(session, "h")
            if session[1] < 64:
                ledger.cancel(key)
                report(session, "c")
                continue
            ledger.charge(key, "s", COST, unit="record", private={"seed": os.urandom(9000)})
            report(session, "r")
            if session[0] < 128:
                ledger.settle(key, "answer", {"receipt": b"x"})
                report(session, "s")


def kill(file: Path, rounds: int, seed: int) -> None:
    """Kill a spender at random moments; after each, check the file; print all it had reported as durable."""
    chance = random.Random(seed)
    reported: list[str] = []
    hot = 0
    for _ in range(rounds):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                spend_for_ever(file, writer)
            finally:
                os._exit(1)
        os.close(writer)
        for _ in range(chance.randrange(1, 9)):  # it has done so many steps, and is at work on the next
            select.select([reader], [], [], 30)
            reported.append(os.read(reader, _LINE).decode().strip())
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hot += Path(f"{file}-journal").exists()
        with os.fdopen(reader, "rb") as stream:
            reported += stream.read().decode().split()
        with Ledger.open(file) as ledger:
            ledger.verify()
    print(json.dumps({"reported": reported, "hot": hot}))


ONE, OTHER = key_of(1), SessionKey(key_of(1).session, bytes(32))
FIRST = {"statistic": b"s" * 5000}
OPERATIONS: dict[str, tuple[str, Callable[[Ledger], object], str]] = {  # state before, the operation, state after
    "hold": ("unknown", lambda ledger: ledger.hold(ONE, "s", COST, unit="record", private=FIRST), "held"),
    "charge": ("held", lambda ledger: ledger.charge(ONE, "s", COST, unit="record", private={"v": b"v"}), "charged"),
    "direct": ("unknown", lambda ledger: ledger.charge(ONE, "s", COST, unit="record", private={"v": b"v"}), "charged"),
    "settle": ("charged", lambda ledger: ledger.settle(ONE, "answer", {"receipt": b"r"}), "settled"),
    "cancel": ("held", lambda ledger: ledger.cancel(ONE), "cancelled"),
    "agree": ("held", lambda ledger: ledger.keep(ONE, "agreed", b"1"), "held"),
    "replace": ("held", lambda ledger: ledger.replace_unless(ONE, {"statistic": b"t" * 9000}, unless="agreed"), "held"),
    "bind": ("held", lambda ledger: ledger.bind(b"k" * 32), "held"),
}


def prepare(file: Path, state: str, old: Path | None) -> None:
    """A ledger in which session 1 has come so far; made from a file of format 1 if there is one."""
    if old is not None:
        shutil.copyfile(old, file)
        file.chmod(0o600)
        if state == "unknown":
            return  # the operation is the first change
    with Ledger.open(file) if old is not None else Ledger.create(file, "north", inf, 1e-6) as ledger:
        if state != "unknown":
            ledger.hold(OTHER, "s", COST, unit="record", private={"statistic": b"o"})
            ledger.hold(ONE, "s", COST, unit="record", private=FIRST)
        if state == "charged":
            ledger.charge(ONE, "s", COST, unit="record", private={"v": b"v"})


def what_is_there(file: Path) -> tuple[str, dict[str, bytes], list[str]]:
    with Ledger.open(file) as ledger:
        ledger.verify()
        return ledger.status(ONE), ledger.private_state(ONE), [entry.kind for entry in ledger.entries()]


def killed_at(file: Path, operate: Callable[[Ledger], object], unit: str, number: int) -> bool:
    """Run the operation in a process that kills itself at this statement or instruction; whether it got that far."""
    left = number

    def count(*_: object) -> int:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return 0

    child = os.fork()
    if child == 0:
        try:
            ledger = Ledger.open(file)
            if unit == "statement":
                ledger._connection.set_trace_callback(count)
            else:
                ledger._connection.set_progress_handler(count, 1)
            operate(ledger)
            os._exit(0)  # neither closed nor undone
        finally:
            os._exit(1)
    status = os.waitpid(child, 0)[1]
    assert status in (0, signal.SIGKILL), f"the operation failed: {status}"
    return status != 0


def crash(folder: Path, stride: int, old: Path | None) -> None:
    """Kill each operation at every statement, and at every `stride`-th instruction of SQLite's machine."""
    seen: dict[str, dict[str, int]] = {}
    for name, (before, operate, after) in OPERATIONS.items():
        if old is not None and before != "unknown":
            continue  # no longer of format 1
        base, done, copy = folder / f"{name}.ledger", folder / f"{name}-done.ledger", folder / f"{name}-copy.ledger"
        prepare(base, before, old)
        prepare(done, before, old)
        with Ledger.open(done) as ledger:
            operate(ledger)
        states = {"before": what_is_there(base), "after": what_is_there(done)}
        assert (states["before"][0], states["after"][0]) == (before, after)
        assert states["before"] != states["after"]
        counts = {"statements": 0, "instructions": 0, "before": 0, "after": 0}
        for unit, step in (("statement", 1), ("instruction", stride)):
            number, alive = 1, True
            while alive:
                shutil.copyfile(base, copy)
                copy.chmod(0o600)
                alive = killed_at(copy, operate, unit, number)
                found = what_is_there(copy)
                assert found in states.values(), (name, unit, number, found)
                if not alive:  # it had returned: what it reported is there
                    assert found == states["after"], (name, unit, number)
                counts["after" if found == states["after"] else "before"] += 1
                with Ledger.open(copy) as ledger:  # the same command again
                    if found == states["before"] or name != "cancel":
                        operate(ledger)
                    assert ledger.status(ONE) == after
                counts[f"{unit}s"] += alive
                number += step
        seen[name] = counts
    print(json.dumps(seen))


def disk_full(file: Path) -> None:
    """Charge under ever larger limits on the size of a file; print every error."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    errors, done = [], 0
    with Ledger.open(file) as ledger:
        before = ledger.spent().sessions
        for size in range(0, 200_000, 4_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
            try:
                ledger.charge(key_of(size), "s", COST, unit="record", private={"seed": b"SECRET" * 10_000})
                done += 1
            except FileError as error:
                errors.append(str(error))
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            ledger.verify()
            assert sum(entry.kind == "charge" for entry in ledger.entries()) == before + done
            assert (ledger.status(key_of(size)) == "charged") == bool(ledger.private_state(key_of(size)))
            if done == 2:
                break
        ledger.charge(SessionKey(b"\xff" * 32, PLAN), "s", COST, unit="record", private={})
    create_error = ""
    new = file.with_name("new.ledger")
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, resource.RLIM_INFINITY))
    try:
        Ledger.create(new, "north", 1.0, 1e-6).close()
    except FileError as error:
        create_error = str(error)
    print(json.dumps({"errors": errors, "done": done, "create": create_error, "left": os.listdir(file.parent)}))


def hold(file: Path, start: Path) -> None:
    """Hold the write lock until the start file appears."""
    with Ledger.open(file) as ledger, ledger._transaction():
        wait_for(start)


if __name__ == "__main__":
    role, target, *rest = sys.argv[1:]
    if role == "hammer":
        hammer(Path(target), Path(rest[0]), rest[1], int(rest[2]))
    elif role == "race":
        race(Path(target), Path(rest[0]), int(rest[1]))
    elif role == "kill":
        kill(Path(target), int(rest[0]), int(rest[1]))
    elif role == "hold":
        hold(Path(target), Path(rest[0]))
    elif role == "crash":
        crash(Path(target), int(rest[0]), Path(rest[1]) if len(rest) > 1 else None)
    else:
        disk_full(Path(target))
