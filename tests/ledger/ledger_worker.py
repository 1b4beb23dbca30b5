"""Other processes for test_ledger.py: `python -m tests.ledger.ledger_worker ROLE FILE ...`; prints lines of JSON."""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import sys
import time
from pathlib import Path

from tpmdp.errors import FileError
from tpmdp.ledger import Charge, Ledger, OverspendError, SessionKey

COST = Charge(0.05, 1e-50, 0.2, 1e-6)
PLAN = bytes(range(32))


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
    with Ledger.open(file) as ledger:
        while True:
            session = os.urandom(32)
            ledger.charge(SessionKey(session, PLAN), "s", COST, unit="record", private={"seed": os.urandom(9000)})
            os.write(pipe, session.hex().encode() + b"r\n")
            if session[0] < 128:
                ledger.settle(SessionKey(session, PLAN), "answer", {"receipt": b"x"})
                os.write(pipe, session.hex().encode() + b"s\n")


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
        select.select([reader], [], [], 30)  # it is at work
        time.sleep(chance.uniform(0, 0.03))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        hot += Path(f"{file}-journal").exists()
        with os.fdopen(reader, "rb") as stream:
            reported += stream.read().decode().split()
        with Ledger.open(file) as ledger:
            ledger.verify()
    print(json.dumps({"reported": reported, "hot": hot}))


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
    else:
        disk_full(Path(target))
