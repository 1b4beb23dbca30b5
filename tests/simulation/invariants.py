"""What must hold whatever happened; each rule returns what is wrong, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from tests.protocol.mask_symbols import computable
from tests.simulation.world import World
from tpmdp.ledger import Ledger
from tpmdp.protocol.channel import open_sealed
from tpmdp.protocol.masks import word_type
from tpmdp.protocol.messages import HASH_BYTES, Kind, Message, MessageError, decode
from tpmdp.protocol.shares import SHARE_BYTES, combine
from tpmdp.study.session import key_of


def violations(world: World) -> list[str]:
    """All that is wrong."""
    return [*world.problems, *_ledgers(world), *_answers(world), *_knowledge(world)]


def _ledgers(world: World) -> Iterator[str]:
    """Every ledger verifies, one plan of a session is charged at most, and a cancelled one never."""
    for index in world.honest:
        with Ledger.open(world.file(index)) as ledger:
            ledger.verify()
            kinds = [
                [entry.kind for entry in ledger.entries() if entry.plan == key_of(t).plan.hex()] for t in world.terms
            ]
        if sum("charge" in each for each in kinds) > 1:
            yield f"party {index} was charged for two plans of one session"
        if any({"charge", "cancel"} <= set(each) for each in kinds):
            yield f"party {index} was charged for a session that it had cancelled"


def _answers(world: World) -> Iterator[str]:
    """Where the lead receiver is honest, all receivers have the same answer, and it has the noise of all it counts."""
    if world.terms[0].lead in world.shape.corrupt:
        return
    distinct = {tuple(result) for results in world.results.values() for _, result in results}
    if len(distinct) > 1:
        yield "receivers have different answers"
    for result in distinct:
        yield from _is_sum(world, list(result), "the answer")


def _is_sum(world: World, row: list[int], what: str) -> Iterator[str]:
    """Whether a row is a sum over whole statistics, each with one draw of noise of its party."""
    symbols = world.symbols
    counted, drawn = set[int](), set[frozenset[int]]()
    for index in world.honest:
        place = symbols.statistics.get(index)
        data = row[place] if place is not None else 0
        noise = [row[place] for place in symbols.noise.get(index, [])]
        if data not in (0, 1) or sorted(noise, reverse=True)[: data + 1] not in ([1] * data + [0], [1] * data):
            yield f"{what} has the data of party {index} {data} times, with noise {noise}"
        if data:
            counted.add(index)
        drawn |= {symbols.drawn_for[place] for place in symbols.noise.get(index, []) if data and row[place]}
    if counted and not any(counted == group & set(world.honest) for group in world.groups):
        yield f"{what} counts {sorted(counted)}, which is a part of a group"
    if world.shape.tolerate and len(drawn) == 1 and counted != set(*drawn) & set(world.honest):
        yield f"{what} counts {sorted(counted)} with noise for {sorted(*drawn)}"
    if world.shape.tolerate and len(drawn) > 1:
        yield f"{what} has noise for several groups: {[sorted(each) for each in drawn]}"
    least = world.shape.count - world.shape.threshold - world.shape.tolerate
    if counted and len(counted) < least:
        yield f"{what} counts only {sorted(counted)}"


def _knowledge(world: World) -> Iterator[str]:
    """What the hostile parties can compute together from all that was ever sent: sums over groups, each party once."""
    corrupt = set(world.shape.corrupt)
    rows = [row for data in world.log if (row := _readable(world, decode(data))) is not None]
    if not rows:
        return
    symbols = world.symbols
    rows += [symbols.signed(symbols.unit(place)) for secret in _secrets(world) for place in symbols.of_secret[secret]]
    unknown = [place for place, shared in symbols.known_to.items() if not shared & corrupt]
    parties = [index for index in world.honest if index in symbols.statistics]
    noise = [place for index in parties for place in symbols.noise.get(index, [])]
    wanted = [*(symbols.statistics[index] for index in parties), *noise]
    basis = computable(rows, unknown, wanted)
    times: Counter[int] = Counter()
    for values in basis:
        row = [0] * symbols.used
        for place, value in zip(wanted, values, strict=True):
            row[place] = value
        wrong = list(_is_sum(world, row, "what the coalition can compute"))
        yield from wrong
        times.update(index for index in parties if row[symbols.statistics[index]])
    for index, count in times.items():
        if count > 1:
            yield f"the coalition knows {count} sums with the data of party {index}"


def _readable(world: World, message: Message) -> list[int] | None:
    """What a message says to the hostile parties; None if nothing about honest vectors."""
    if message.sender in world.shape.corrupt or message.recipient not in world.shape.corrupt:
        return None
    is_share = message.kind == Kind.REVEAL and not world.symbols.statistical
    if message.kind not in (Kind.SUBMIT, Kind.REVEAL, Kind.RESULT) or is_share:
        return None
    content = _opened(world, message)
    words = content[HASH_BYTES:] if message.kind == Kind.SUBMIT else content
    return world.symbols.signed(np.frombuffer(words, dtype=word_type(world.terms[0].grid.word)))


def _secrets(world: World) -> list[bytes]:
    """The seeds of honest keepers that hostile parties can compute, and that masks were made of."""
    shares: dict[tuple[bytes, int, int], dict[int, bytes]] = {}  # by plan, attempt and keeper
    for message in map(decode, world.log):
        if message.sender in world.shape.corrupt or message.recipient not in world.shape.corrupt:
            continue
        place = message.plan_hash, message.attempt
        if message.kind == Kind.SHARE:
            content = _opened(world, message)
            shares.setdefault((*place, message.sender), {})[message.recipient] = content[-SHARE_BYTES:]
        if message.kind == Kind.REVEAL and not world.symbols.statistical:
            content = _opened(world, message)
            for number, keeper in enumerate(world.keepers_of[*place, message.sender]):
                share = content[number * SHARE_BYTES : (number + 1) * SHARE_BYTES]
                shares.setdefault((*place, keeper), {})[message.sender] = share
    needed = world.terms[0].openings
    found = [combine(dict(list(each.items())[:needed])) for each in shares.values() if len(each) >= needed]
    return [secret for secret in found if secret in world.symbols.of_secret]


def _opened(world: World, message: Message) -> bytes:
    keys = [
        decode(data).body
        for data in world.log
        if (other := decode(data)).kind == Kind.KEYS
        and (other.sender, other.attempt, other.plan_hash) == (message.sender, message.attempt, message.plan_hash)
    ]
    for public in keys:
        for variant in range(2):
            try:
                return open_sealed(world.private(message.recipient, message.attempt, variant), public, message)
            except MessageError:
                continue
    raise AssertionError(f"{message!r} is sealed for a key that its recipient never sent")
