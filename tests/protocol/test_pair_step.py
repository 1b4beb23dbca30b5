"""Holders compute together before the sum: nobody submits before all shares are stored, and to one attempt only."""

from __future__ import annotations

import numpy as np
import pytest

from tests.protocol.holders import HOLDERS, CutError, Stage
from tests.protocol.sessions import exchange
from tpmdp.protocol.messages import EVERYONE, Kind, decode
from tpmdp.protocol.party import PartySession, ProtocolError


def results(parties: list[PartySession]) -> list[list[int]]:
    return [party.result.tolist() for party in parties if party.result is not None]


@pytest.mark.parametrize("seed", range(20))
def test_the_sum_is_exact_in_any_order(seed: int) -> None:
    stage = Stage()
    parties = stage.parties()
    exchange(parties, order=np.random.default_rng(seed))
    assert results(parties) == [stage.world.total] * 4


@pytest.mark.parametrize("receivers", [[0], [1], [3], [0, 2]])
def test_the_sum_is_exact_for_any_receivers(receivers: list[int]) -> None:
    stage = Stage(receivers)
    parties = stage.parties()
    exchange(parties)
    assert results(parties) == [stage.world.total] * len(receivers)
    assert all(party.done for party in parties)


def test_nobody_submits_before_all_holders_have_their_share() -> None:
    stage = Stage()
    parties = stage.parties()
    delivered = exchange(parties, lambda _, data: [] if _is_paired(data, 2) else [data])
    kinds = {decode(data).kind for _, data in delivered}
    assert Kind.KEYS in kinds
    assert Kind.PAIRED in kinds
    assert Kind.SUBMIT not in kinds
    assert [party.step for party in parties] == ["pairs", "pairs", "receive", "pairs"]  # the holder knows of both
    assert parties[0].waiting_for() == [2]
    assert parties[0].awaited == "computation in pairs"


def _is_paired(data: bytes, sender: int) -> bool:
    message = decode(data)
    return message.kind == Kind.PAIRED and message.sender == sender


def test_a_holder_that_was_cut_off_begins_a_new_attempt_and_the_others_join_it() -> None:
    stage = Stage()
    parties = [stage.party(index, dies=index == 2) for index in range(4)]
    with pytest.raises(CutError):
        exchange(parties)
    assert not any(party.current.submitted for party in parties)
    parties[2] = stage.party(2, attempt=2)  # what `join` does when it finds begun without a share
    exchange(parties)
    assert results(parties) == [stage.world.total] * 4
    assert {party.attempt for party in parties} == {2}
    assert stage.disks[1]["submitted"] == stage.disks[2]["submitted"] == 2


@pytest.mark.parametrize("lost", [Kind.KEYS, Kind.PAIRED, Kind.SUBMIT, Kind.RESULT])
def test_parties_that_crash_later_go_on_with_the_same_attempt(lost: Kind) -> None:
    """All crash before messages of one kind arrive; those with a share do not compute again."""
    stage = Stage()
    exchange(stage.parties(), lambda _, data: [] if decode(data).kind == lost else [data])
    fresh = stage.parties()
    exchange(fresh)
    assert results(fresh) == [stage.world.total] * 4
    assert {party.attempt for party in fresh} == {1}
    assert [stage.steps[holder].computed for holder in sorted(HOLDERS)] == [[1] if lost == Kind.KEYS else []] * 2


def test_no_new_attempt_begins_without_need() -> None:
    stage = Stage()
    assert stage.party(0).retry() == []
    assert stage.party(1).retry() == []


def test_a_holder_that_has_submitted_refuses_a_new_attempt() -> None:
    """A party that wants a second result with other data could otherwise see both with the same noise."""
    stage = Stage([0])
    parties = stage.parties()
    exchange(parties, lambda _, data: [] if decode(data).kind in (Kind.RESULT, Kind.RECEIPT) else [data])
    assert parties[2].current.submitted
    liar = PartySession(
        stage.world.terms,
        3,
        stage.world.identities[3],
        lambda *_: stage.world.vectors[3],
        stage.world.secrets[3],
        attempt=2,
    )
    keys = next(data for data in liar.start() if decode(data).kind == Kind.KEYS)
    with pytest.raises(ProtocolError, match="one submission") as caught:
        parties[2].receive(keys)
    assert caught.value.offender == 3
    again = stage.party(2)  # after a restart, too
    with pytest.raises(ProtocolError, match="one submission"):
        again.receive(keys)


def test_only_holders_say_that_they_have_a_share() -> None:
    stage = Stage()
    parties = stage.parties()
    forged = parties[3]._signed(Kind.PAIRED, EVERYONE, b"")
    with pytest.raises(ProtocolError, match="from a holder"):
        parties[0].receive(forged)
    plain = stage.world.party(0)
    with pytest.raises(ProtocolError, match="from a holder"):
        plain.receive(parties[1]._signed(Kind.PAIRED, EVERYONE, b""))
