"""Witnessed heads in trainings: a client whose ledger was restored from an old copy is told, and pays nothing."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from tests.flower.world import World, make_world, record_of_arrays
from tpmdp.flower.head_notes import NoteBoard, pack_heads, unpack_heads
from tpmdp.ledger import Ledger
from tpmdp.protocol.messages import MessageError
from tpmdp.protocol.notes import NOTES_MAX

NOTE = b"n" * 68


def train(world: World, rounds: int = 1) -> list[int]:
    """A training with a new server; the number of clients in each round."""
    strategy, grid = world.strategy(), cast(Any, world.grid)
    strategy.start(grid, record_of_arrays({"w": np.zeros(3)}), rounds, timeout=0.01)
    return [report.clients for report in strategy.reports]


def test_a_restored_ledger_is_noticed_in_the_next_training(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    assert train(world) == [3]
    ledger = world.folder / "client-1.ledger"
    copy = ledger.read_bytes()  # with the charge of the first training
    assert train(world) == [3]
    ledger.write_bytes(copy)
    before = world.charged(1)
    monkeypatch.setattr(logging.getLogger("flwr"), "propagate", True)
    with caplog.at_level(logging.WARNING, "flwr"):
        assert train(world) == [2]
    assert world.charged(1) == before
    assert "it was restored from an old copy" in caplog.text
    replies = [str(reply.content) for number, _, reply in world.grid.made if number == 1]
    assert any("cannot take part: its own log says why" in reply for reply in replies)
    assert not any("restored" in reply for reply in replies)  # the server learns nothing about the ledger


def test_the_charges_of_the_last_round_are_witnessed_too(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    copy = (world.folder / "client-1.ledger").read_bytes()  # before any training
    assert train(world, rounds=2) == [3, 3]
    (world.folder / "client-1.ledger").write_bytes(copy)
    assert train(world) == [2]
    assert world.charged(1) == []


def test_old_notes_cause_no_alarm(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    for _ in range(4):
        assert train(world) == [3]


def test_what_a_server_invents_is_ignored_or_refused() -> None:
    heads = [(bytes([number]) * 32, NOTE) for number in range(100)]
    assert len(unpack_heads(pack_heads(heads))) == 64  # some of many
    for field in (b"x", NOTE, bytes(100 * 65)):
        with pytest.raises(MessageError, match="not a list of notes"):
            unpack_heads(field)
    board = NoteBoard()
    board.take(bytes(32), {"note": b"short"})
    board.take(bytes(32), {"note": NOTE, "witnessed": pack_heads([(bytes(31) + b"1", NOTE)])})
    assert board.fields_for(bytes(31) + b"1", [bytes(32)]) == {"notes": NOTE, "heads": bytes(32) + NOTE}
    for number in range(100):
        board.take(bytes([number]) * 32, {"witnessed": bytes(32) + bytes([number]) * 68})
    assert len(cast(bytes, board.fields_for(bytes(32), [])["notes"])) == 16 * 68  # some of them


def test_a_client_that_returns_rubbish_takes_no_place_of_others() -> None:
    board, owner, hostile, honest = NoteBoard(), b"o" * 32, b"h" * 32, b"w" * 32
    for number in range(100):
        rubbish = [(owner, bytes([number, other]) * 34) for other in range(60)]
        board.take(hostile, {"witnessed": pack_heads(rubbish)})
        board.take(b"n" * 32, {"witnessed": pack_heads([(os.urandom(32), NOTE) for _ in range(60)])})
    assert sum(map(len, board._returned.values())) == 120  # and it fills no memory
    board.take(honest, {"witnessed": pack_heads([(owner, NOTE)])})
    returned = cast(bytes, board.fields_for(owner, [])["notes"])
    assert len(returned) == (1 + NOTES_MAX) * 68
    assert NOTE in returned


def test_a_client_returns_notes_of_the_parties_in_the_terms_only(tmp_path: Path) -> None:
    world = make_world(tmp_path, 3, rounds=8)
    stranger = b"s" * 32
    with Ledger.open(world.folder / "client-1.ledger") as ledger:
        ledger.keep_witnessed({stranger: NOTE})
    assert train(world) == [3]
    assert train(world) == [3]
    fields = [reply.content.config_records["tpmdp"] for number, _, reply in world.grid.made if number == 1]
    returned = {key for each in fields for key, _ in unpack_heads(cast(bytes, each.get("witnessed", b"")))}
    assert returned == {world.settings(number).public_key for number in (0, 2)}


def test_a_note_goes_once_to_sixteen_clients() -> None:
    board, keys = NoteBoard(), [bytes([number]) * 32 for number in range(100)]
    for key in keys:
        board.take(key, {"note": key[:1] * 68})

    def sent() -> list[bytes]:
        fields = [board.fields_for(key, keys) for key in keys]
        return [owner for each in fields for owner, _ in unpack_heads(cast(bytes, each["heads"]))]

    first = sent()
    assert all(first.count(key) == 16 for key in keys)
    assert sent() == []
    board.take(keys[50], {"note": NOTE})
    assert sent() == [keys[50]] * 16
