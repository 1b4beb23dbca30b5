"""Schedules: operations as plain data, drawn at random, played, shrunk when they fail."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.simulation.invariants import violations
from tests.simulation.world import PLANS, Process, Shape, World
from tpmdp.planning.losses import most_lost
from tpmdp.protocol.messages import Kind, decode

OPERATIONS: Final = {  # and how often
    "next": 60,  # a process reads the next message
    "any": 8,  # it gets any message that was ever sent
    "start": 8,
    "mend": 1,  # start with another plan
    "mend all": 2,
    "run": 3,  # all processes read all that there is
    "crash": 3,
    "crash in": 4,  # a transaction to come
    "patience": 4,
    "retry": 2,
    "cancel": 1,
    "keys": 6,  # from here on only hostile parties
    "group": 3,
    "list": 3,
    "open": 3,
    "pads": 4,
    "campaign": 10,  # lead some processes through an attempt, with one view of it
}
ATTACK: Final = {"campaign": 6, "open": 4, "start": 1, "crash": 1, "any": 1, "run": 1}
HOSTILE: Final = ("keys", "group", "list", "open", "pads", "campaign")


@dataclass(frozen=True)
class Operation:
    """A name and a number that says whom and what it is about; any number means something."""

    name: str
    number: int


@dataclass(frozen=True)
class Schedule:
    """A whole run: who takes part, and what happens."""

    shape: Shape
    operations: tuple[Operation, ...]


def draw(seed: int, length: int = 90) -> Schedule:
    chance = random.Random(seed)
    count = chance.choice((2, 3, 3, 4, 4, 5, 6, 7))
    guarantee = chance.choice(("computational", "computational", "statistical"))
    threshold = chance.randrange(1, count)
    if chance.random() < 0.5:  # most parties are honest
        threshold = min(threshold, max(1, count // 3))
    tolerate = min(chance.choice((0, 1, 1, count)), most_lost(count, threshold, guarantee))
    receivers = tuple(sorted(chance.sample(range(count), chance.randrange(1, count + 1))))
    colluders = chance.randrange(0, threshold + 1)
    corrupt = tuple(sorted(chance.sample(range(count), colluders)))
    if corrupt and chance.random() < 0.7:  # the lead receiver sees the most
        corrupt = tuple(sorted({receivers[0], *corrupt[1:]}))
    shape = Shape(count, threshold, tolerate, receivers, corrupt, guarantee)
    names = [name for name in OPERATIONS if corrupt or name not in HOSTILE]
    if receivers[0] in corrupt and chance.random() < 0.5:  # an attack of the lead receiver, and little else
        names, length = list(ATTACK), 24
    weights = [(ATTACK if len(names) == len(ATTACK) else OPERATIONS)[name] for name in names]
    operations = [Operation("start", index) for index in range(count)]
    operations += [
        Operation(name, chance.randrange(1 << 30))
        for name in chance.choices(names, weights, k=chance.randrange(length))
    ]
    return Schedule(shape, tuple(operations))


def play(schedule: Schedule, folder: Path | None = None) -> list[str]:
    """What is wrong after the run; in the end everything honest is started again and delivered, in order."""
    with ExitStack() as stack:
        where = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=_memory()))) if folder is None else folder
        world = World(schedule.shape, where, stack)
        for operation in schedule.operations:
            _apply(world, operation)
        _finish(world)
        found = violations(world)
        for process in list(world.processes):
            world.end(process)
        return found


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108


def _apply(world: World, operation: Operation) -> None:
    name, number = operation.name, operation.number
    honest, shape = world.honest, world.shape
    if name in ("start", "mend"):
        index = honest[number % len(honest)]
        plan = (number // 7) % PLANS if name == "mend" else 0
        running = [process for process in world.processes if process.party == index]
        if len(running) < 2:
            world.start(index, plan)
        return
    if name == "mend all":
        for process in list(world.processes):
            world.end(process)
        for index in honest:
            world.start(index, number % PLANS)
        return
    if name == "cancel":
        world.cancel(honest[number % len(honest)], (number // 7) % PLANS)
        return
    if name in ("keys", "group", "list", "open") and shape.corrupt:
        attempt = (1, 2, 2, 3)[(number // 5) % 4]
        if name == "keys":
            sender, plan = shape.corrupt[number % len(shape.corrupt)], (number // 97) % PLANS
            world.say_keys(sender, attempt, (number // 31) % 2, plan)
        elif name == "group":
            world.say_group(attempt, _members(world, number // 64))
        elif name == "list":
            everyone = frozenset(range(shape.count))
            world.say_list(attempt, _members(world, number // 64) if attempt > 1 else everyone)
        else:
            _open(world, attempt)
        return
    if name == "campaign":
        _campaign(world, number)
        return
    if name == "run":
        _run(world, world.processes)
        return
    if not world.processes:
        return
    process = world.processes[number % len(world.processes)]
    _apply_to(world, process, name, number // len(world.processes))


def _members(world: World, bits: int) -> frozenset[int]:
    """The lead receiver and some others."""
    return frozenset({world.terms[0].lead, *(index for index in range(world.shape.count) if bits >> index & 1)})


def _campaign(world: World, number: int) -> None:
    """Hostile parties lead some processes through an attempt, each with this view of it and nothing else."""
    attempt, variants, bits = (1, 2, 2, 3)[number % 4], (0, 0, 0, 1, 2, 3)[(number // 4) % 6], number // 64
    everyone = frozenset(range(world.shape.count))
    lost = {bits % world.shape.count, *([(bits // 512) % world.shape.count] if world.shape.tolerate > 1 else [])}
    members = everyone - lost | {world.terms[0].lead} if attempt > 1 else everyone
    told, keys = world.say_group(attempt, members), list[int]()
    for place, corrupt in enumerate(world.shape.corrupt):
        if corrupt in members:
            keys.append(world.say_keys(corrupt, attempt, (variants >> (place % 2)) & 1, plan=0))
    told += keys
    some = [process for process in world.processes if (bits // 8) >> process.party & 1]
    chosen = some if some and (number >> 20) & 1 else list(world.processes)
    for _ in range(4):
        for process in chosen:
            if process not in world.processes:
                continue
            among = [place for place, data in enumerate(world.log) if _is_of(world, data, attempt, members)]
            for place in [*told, *among, *world.say_list(attempt, members, keys), *world.say_pads(process)]:
                if process in world.processes:
                    world.deliver(process, place)


def _is_of(world: World, data: bytes, attempt: int, members: frozenset[int]) -> bool:
    """Whether an honest member sent a key, a pad or a share in this attempt."""
    message = decode(data)
    return (
        message.kind in (Kind.KEYS, Kind.PAD, Kind.SHARE)
        and message.attempt == attempt
        and message.sender in members
        and message.sender in world.honest
        and message.plan_hash == world.terms[0].plan_hash
    )


def _open(world: World, attempt: int) -> None:
    """Ask for what opens an attempt, and let those who are asked hear it."""
    for place in world.say_open(attempt):
        recipient = decode(world.log[place]).recipient
        for process in [process for process in world.processes if process.party == recipient]:
            world.deliver(process, place)


def _run(world: World, processes: list[Process]) -> None:
    """Deliver all that there is, in order, to these processes."""
    moved = True
    while moved:
        moved = False
        for process in list(processes):
            while process in world.processes and process.cursor < len(world.log):
                moved |= _read_next(world, process)


def _apply_to(world: World, process: Process, name: str, number: int) -> None:
    if name == "next":
        _read_next(world, process)
    elif name == "any" and world.log:
        world.deliver(process, number % len(world.log))
    elif name == "crash":
        world.end(process)
    elif name == "crash in":
        process.ledger.crash_in, process.ledger.crash_after = number % 4, bool(number & 8)
    elif name == "patience" and process.session.is_lead:
        world.go_on(process)
    elif name == "retry":
        world.retry(process)
    elif name == "pads":
        world.say_pads(process)


def _read_next(world: World, process: Process) -> bool:
    if process.cursor >= len(world.log):
        return False
    process.cursor += 1
    return world.deliver(process, process.cursor - 1)


ROUNDS_MAX: Final = 400


def _finish(world: World) -> None:
    """Start the parties that have not settled, deliver everything in order: no hang, and without losses an answer."""
    charged = [plan for plan in range(PLANS) if any(world.charged(index, plan) for index in world.honest)]
    plan = charged[0] if charged else 0
    for process in list(world.processes):
        world.end(process)
    for index in world.honest:
        world.start(index, plan)
    for _ in range(ROUNDS_MAX):
        _run(world, world.processes)
        moved = False
        for process in list(world.processes):
            if not moved and process.session.is_lead and process.session.may_drop:
                before = len(world.log)
                world.go_on(process)
                moved |= len(world.log) > before
        if not moved:
            break
    else:
        world.problems.append("the session never comes to rest")
    honest = not world.shape.corrupt and not world.cancelled
    if honest and world.processes and len(charged) < 2:  # all said yes to both plans, and some went back (L2)
        waiting = {process.party: process.session.step for process in world.processes if not process.session.left_out}
        if waiting:
            world.problems.append(f"nobody is hostile, and parties still wait: {waiting}")


def shrink(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
    """The same failure with as few operations as taking away blocks of them can reach."""
    operations = list(schedule.operations)
    size = max(1, len(operations) // 2)
    while size:
        at = 0
        while at < len(operations):
            fewer = operations[:at] + operations[at + size :]
            if fails(Schedule(schedule.shape, tuple(fewer))):
                operations = fewer
            else:
                at += size
        size //= 2
    return Schedule(schedule.shape, tuple(operations))
