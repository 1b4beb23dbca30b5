"""Witnessed heads: a party whose ledger was restored from an old copy is told so by the notes that others return."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.protocol.sessions import World, exchange
from tpmdp.ledger import Charge, Ledger
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.ledger.witness import LedgerNotes, RestoredLedgerError
from tpmdp.protocol.messages import Kind, decode
from tpmdp.protocol.notes import NOTE_BYTES, NOTES_MAX, decode_notes
from tpmdp.protocol.party import PartySession
from tpmdp.study.session import key_of

COUNT = 3
COST = Charge(0.01, 1e-50, 0.1, 1e-6)


class Parties:
    """Parties with real ledgers, in one session after the other."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder, self.stack = folder, stack
        self.ledgers = [
            stack.enter_context(Ledger.create(self.file(index), f"party {index}", 10.0, 1e-6)) for index in range(COUNT)
        ]

    def file(self, index: int) -> Path:
        return self.folder / f"{index}.ledger"

    def restore(self, index: int, copy: Path) -> None:
        self.ledgers[index].close()
        shutil.copy(copy, self.file(index))
        self.ledgers[index] = self.stack.enter_context(Ledger.open(self.file(index)))

    def party(self, world: World, index: int) -> PartySession:
        ledger, key = self.ledgers[index], key_of(world.terms)
        ledger.hold(key, "study", COST, unit="record", private={})

        def vector(*_: object) -> object:
            ledger.charge(key, "study", COST, unit="record", private={})
            return world.vectors[index]

        identity = world.identities[index]
        notes = LedgerNotes(ledger, key, identity)
        secrets = LedgerSecrets(ledger, key)
        return PartySession(world.terms, index, identity, vector, secrets, notes=notes)  # type: ignore[arg-type]

    def session(self, label: str) -> list[tuple[int, bytes]]:
        world = World(COUNT, 1, [0], label=label)
        parties = [self.party(world, index) for index in range(COUNT)]
        sent = exchange(parties)
        assert all(party.done for party in parties)
        for ledger in self.ledgers:
            ledger.settle(key_of(world.terms), "answer", {})
        return sent


@pytest.fixture
def parties(tmp_path: Path) -> Iterator[Parties]:
    with ExitStack() as stack:
        yield Parties(tmp_path, stack)


def test_a_restored_ledger_is_noticed_in_the_next_session_and_nothing_is_charged(parties: Parties) -> None:
    parties.session("first")
    copy = parties.folder / "copy"
    shutil.copy(parties.file(1), copy)
    parties.session("second")
    parties.restore(1, copy)
    before = parties.ledgers[1].spent().mu
    with pytest.raises(RestoredLedgerError, match=r"lacks entry \d+, .* restored from an old copy: restore the newest"):
        parties.session("third")
    assert parties.ledgers[1].spent().mu == before


def test_a_copy_from_before_the_charge_is_noticed_too(parties: Parties) -> None:
    """The note that goes out with the submission has the charge."""
    world = World(COUNT, 1, [0], label="first")
    copy = parties.folder / "copy"
    running = [parties.party(world, index) for index in range(COUNT)]
    shutil.copy(parties.file(2), copy)  # holds, and is not charged yet
    exchange(running)
    parties.restore(2, copy)
    assert parties.ledgers[2].status(key_of(world.terms)) == "held"
    with pytest.raises(RestoredLedgerError):
        parties.session("second")


def test_a_new_ledger_for_an_old_key_is_noticed(parties: Parties, tmp_path: Path) -> None:
    parties.session("first")
    with Ledger.create(tmp_path / "new.ledger", "party 1", 10.0, 1e-6):
        pass
    parties.restore(1, tmp_path / "new.ledger")
    with pytest.raises(RestoredLedgerError):
        parties.session("second")


@pytest.mark.slow
def test_no_alarm_without_a_cause(parties: Parties) -> None:
    """Messages sent again, sessions side by side in any order, a second study, an entry in between."""
    sent = parties.session("first")
    for number in range(8):
        worlds = [World(COUNT, 1, [0], label=f"{number} {side}") for side in range(2)]
        sides = [[parties.party(world, index) for index in range(COUNT)] for world in worlds]
        for side in sides[:: 1 if number % 2 else -1]:
            sent += exchange(side)
            exchange(side, change=lambda _, data: [data, data])
        for ledger in parties.ledgers:
            ledger.set_limit(10.0 + number, 1e-6)
    parties.session("last")
    assert {decode(data).kind for _, data in sent} >= {Kind.NOTES}


def test_what_others_invent_is_ignored_and_takes_little_room(parties: Parties) -> None:
    world = World(COUNT, 1, [0])
    notes = [LedgerNotes(parties.ledgers[i], key_of(world.terms), world.identities[i]) for i in range(2)]
    notes[0].check(bytes(NOTE_BYTES))
    notes[0].check(notes[1].own())  # of another party
    for number in range(20):
        notes[0].keep(world.terms.roster[1], number.to_bytes(NOTE_BYTES, "big"))
    assert len(notes[0].of_other(world.terms.roster[1])) == NOTES_MAX


def test_a_note_tells_others_nothing(parties: Parties) -> None:
    """Neither number nor head are in it, and two notes of the same head differ."""
    sent = parties.session("first")
    heads = {entry.hash for ledger in parties.ledgers for entry in ledger.entries()}
    bodies = [decode(data).body for _, data in sent if decode(data).kind == Kind.NOTES]
    assert bodies
    for body in bodies:
        assert not any(bytes.fromhex(head) in body for head in heads)
        assert len(decode_notes(body)[0]) == NOTE_BYTES
    world = World(COUNT, 1, [0], label="first")
    notes = LedgerNotes(parties.ledgers[0], key_of(world.terms), world.identities[0])
    assert notes.own() != notes.own()
