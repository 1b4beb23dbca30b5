"""What a coalition with the lead receiver can compute where parties may drop out, whatever it sends to whom and when.

The real parties run, but every vector and every mask is a unit vector of its own: what a party submits then shows
which masks went into it. All is linear, masks are uniform and those between honest parties unknown, so the coalition
can compute the combinations of what it has in which no unknown mask is left, and nothing else. Allowed are, for each
honest party, one sum that contains it, and that over all honest parties of one group.
"""

from __future__ import annotations

import dataclasses
import hashlib
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from typing import Any, Final

import numpy as np
import pytest

from tests.protocol.mask_symbols import MaskSymbols, computable
from tests.protocol.sessions import World
from tpmdp.protocol import attempt as attempt_module
from tpmdp.protocol.channel import open_sealed, seal
from tpmdp.protocol.graph import MaskGraph
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import SECRET_BYTES, Capsule, HybridKey
from tpmdp.protocol.masks import word_type
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, Message, MessageError, decode, digest_of, encode
from tpmdp.protocol.party import PartySession, ProtocolError, TooEarlyError
from tpmdp.protocol.secrets import FreshSecrets
from tpmdp.protocol.shares import SHARE_BYTES, check_value, combine
from tpmdp.protocol.terms import Guarantee

SYMBOLS: Final = 400
GUARANTEES: Final[tuple[Guarantee, ...]] = ("computational", "statistical")


# Symbols instead of numbers -------------------------------------------------------------------------------------------


class Book(MaskSymbols):
    """Every vector and mask of a run has a place of its own in the vector; the first are the parties' vectors."""

    def __init__(self, count: int, guarantee: Guarantee, word: int) -> None:
        super().__init__(SYMBOLS, word, statistical=guarantee == "statistical")
        self.count, self.guarantee, self.used = count, guarantee, count
        self._capsules: dict[tuple[int, int, int, bytes], Capsule] = {}

    def capsule(self, sender: int, attempt: int, other: int, *, public: bytes) -> Capsule:
        """The same one whenever it is asked for."""
        place = (sender, attempt, other, public)
        if place not in self._capsules:
            self._capsules[place] = Capsule.to(public)
        return self._capsules[place]


class SymbolSecrets(FreshSecrets):
    """Keys from a seed, so that a run can be repeated; masks from the book."""

    def __init__(self, book: Book, index: int) -> None:
        super().__init__()
        self._book, self._index = book, index

    def key(self, attempt: int) -> bytes:
        return self._store.keep(f"key {attempt}", private_of(self._index, attempt, 0))

    def capsules(self, attempt: int, publics: Mapping[int, bytes]) -> dict[int, Capsule]:
        capsules = {other: self._book.capsule(self._index, attempt, other, public=publics[other]) for other in publics}
        names = {other: f"capsule {attempt} {other}" for other in publics}
        return {other: Capsule.parse(self._store.keep(names[other], capsules[other].joined())) for other in publics}

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        name = f"pad {attempt} {other}"
        kept = self._store.keep(name, b"" if name in self._store.names() else self._book.draw(self._index, other))
        assert len(kept) == size
        return kept


def private_of(index: int, attempt: int, variant: int) -> bytes:
    return hashlib.shake_256(bytes([index, attempt, variant])).digest(SECRET_BYTES)


@cache
def key_of(index: int, attempt: int, variant: int) -> HybridKey:
    return HybridKey(private_of(index, attempt, variant))


# The coalition --------------------------------------------------------------------------------------------------------

View = tuple[frozenset[int], tuple[int, ...]]  # the group a party is told, and which key of each corrupt party


class Coalition:
    """Corrupt parties with the lead receiver among them, who also own the network; everybody else is a real party."""

    def __init__(self, shape: tuple[int, int, int], corrupt: Iterable[int], guarantee: Guarantee) -> None:
        count, colluders, tolerate = shape
        self.corrupt = tuple(sorted(corrupt))
        assert len(self.corrupt) <= colluders
        receivers = [self.corrupt[0]]
        self.world = World(count, colluders, receivers, guarantee, dimension=SYMBOLS, tolerate=tolerate)
        self.terms, self.count, self.lead = self.world.terms, count, self.corrupt[0]
        self.book = Book(count, guarantee, self.terms.grid.word)
        self.honest = [party for party in range(count) if party not in self.corrupt]
        self.least = count - colluders - tolerate
        self.everyone = frozenset(range(count))
        self.capsules: dict[tuple[int, int, int], Capsule] = {}  # by attempt, corrupt party and honest one
        self.pool: dict[bytes, None] = {}  # every message an honest party sent
        self.keepers_of: dict[tuple[int, int], tuple[int, ...]] = {}  # of the attempts that parties have opened
        self.stopped: set[int] = set()
        self.parties: dict[int, PartySession] = {}
        self.told: set[frozenset[int]] = {self.everyone}  # groups that somebody was told
        for index in self.honest:
            self.world.vectors[index] = self.book.unit(index)[:SYMBOLS]
            self.world.secrets[index] = SymbolSecrets(self.book, index)
            self.parties[index] = self.world.party(index)
            self.note(self.parties[index].start())

    def note(self, sent: Sequence[bytes]) -> list[bytes]:
        for message in map(decode, sent):
            if message.kind == Kind.REVEAL:
                self.keepers_of[message.attempt, message.sender] = self.parties[message.sender].current.keepers
        fresh = [data for data in sent if data not in self.pool]
        self.pool.update(dict.fromkeys(sent))
        return fresh

    def deliver(self, index: int, data: bytes) -> list[bytes] | None:
        """What the party answers; None if it is too early."""
        if index in self.stopped:
            return []
        try:
            return self.note(self.parties[index].receive(data))
        except TooEarlyError:
            return None
        except ProtocolError:
            self.stopped.add(index)
            return []

    def rebuild(self, index: int) -> list[bytes]:
        """The party is started again: after a crash, or because the relay says it has lost everything."""
        secrets = self.world.secrets[index]
        assert isinstance(secrets, SymbolSecrets)
        self.parties[index] = self.world.party(index, attempt=secrets.last_attempt())
        self.stopped.discard(index)
        return self.note(self.parties[index].start())

    # What corrupt parties say

    def message(self, kind: Kind, attempt: int, sender: int, recipient: int, body: bytes) -> bytes:
        message = Message(kind, attempt, sender, recipient, self.terms.session, self.terms.plan_hash, body)
        return encode(message, self.world.identities[sender])

    def keys(self, corrupt: int, attempt: int, variant: int) -> bytes:
        return self.message(Kind.KEYS, attempt, corrupt, EVERYONE, key_of(corrupt, attempt, variant).public)

    def group(self, attempt: int, members: Iterable[int]) -> bytes:
        self.told.add(frozenset(members))
        return self.message(Kind.GROUP, attempt, self.lead, EVERYONE, to_bits(members, self.count))

    def opening(self, index: int, attempt: int) -> list[bytes]:
        """OPEN for every submission of the party to the attempt."""
        return [
            self.message(Kind.OPEN, attempt, self.lead, index, digest_of(data))
            for data in self.sent(Kind.SUBMIT, attempt, index)
        ]

    def owed_to(self, index: int) -> list[bytes]:
        """The pads and shares that the party lacks from corrupt ones, for the view it has now: zeros."""
        party = self.parties[index]
        if index in self.stopped or not party.ready or party.done:
            return []
        attempt, current = party.attempt, party.current
        owed = []
        for corrupt in self.corrupt:
            if party.step == "pads" and corrupt in party.waiting_for():
                content = current.transcript + bytes(self.terms.masked_bytes)
                owed.append(self.between(Kind.PAD, attempt, corrupt, index, content))
            if corrupt in set(current.keepers) - set(current.shares):
                nothing = bytes(SHARE_BYTES)
                content = current.transcript + check_value(nothing) + nothing
                owed.append(self.between(Kind.SHARE, attempt, corrupt, index, content))
        return owed

    def between(self, kind: Kind, attempt: int, corrupt: int, index: int, content: bytes) -> bytes:
        """What a corrupt party sends an honest one; in computational mode a pad is a ciphertext alone."""
        seen = self.parties[index].current.keys[corrupt]
        own = next(key for key in (key_of(corrupt, attempt, each) for each in range(3)) if key.public == seen)
        public = key_of(index, attempt, 0).public
        capsule = self.capsules.setdefault((attempt, corrupt, index), Capsule.to(public))
        header = (attempt, corrupt, index, self.terms.session, self.terms.plan_hash)
        message = Message(kind, *header, body=b"")
        if kind == Kind.PAD and self.terms.guarantee == "computational":
            message = dataclasses.replace(message, body=capsule.ciphertext)
        else:
            message = seal(own, public, message, capsule=capsule, content=content)
        return encode(message, self.world.identities[corrupt])

    def capsule_of(self, honest: int, index: int) -> bytes:
        """What an honest party sends a later neighbour in attempt 2."""
        capsule = self.book.capsule(honest, 2, index, public=key_of(index, 2, 0).public)
        return self.message(Kind.PAD, 2, honest, index, capsule.ciphertext)

    def view(self, index: int, attempt: int, view: View) -> list[bytes]:
        """What tells a party this view of an attempt, as far as it exists."""
        members, variants = view
        told = [self.group(attempt, members)] if attempt > 1 else []
        chosen = zip(self.corrupt, variants, strict=True)
        told += [self.keys(corrupt, attempt, variant) for corrupt, variant in chosen if corrupt in members]
        told.append(self.listing(attempt, view))
        return told + [data for data in self.sent(Kind.KEYS, attempt) if decode(data).sender != index]

    def listing(self, attempt: int, view: View) -> bytes:
        """The list of the keys in a view."""
        members, variants = view
        chosen = dict(zip(self.corrupt, variants, strict=True))
        digests = [bytes(HASH_BYTES)] * self.count
        for member in members:
            digests[member] = digest_of(self.keys(member, attempt, chosen.get(member, 0)))
        return self.message(Kind.LIST, attempt, self.lead, EVERYONE, b"".join(digests))

    def sent(self, kind: Kind, attempt: int, sender: int | None = None, recipient: int | None = None) -> list[bytes]:
        found = []
        for data in self.pool:
            message = decode(data)
            if (message.kind, message.attempt) == (kind, attempt) and sender in (None, message.sender):
                found += [data] if recipient in (None, message.recipient) else []
        return found

    # What it learns

    def rows(self) -> list[tuple[Kind, int, int, np.ndarray[Any, Any]]]:
        """Every submission and self-mask that it knows: kind, attempt, sender, and how often each symbol is in it."""
        found: list[tuple[Kind, int, int, np.ndarray[Any, Any]]] = []
        for data in self.pool:
            message = decode(data)
            if message.kind in (Kind.SUBMIT, Kind.REVEAL):
                content = self._open(message)
                if message.kind == Kind.SUBMIT:
                    words = np.frombuffer(content[HASH_BYTES:], dtype=word_type(self.terms.grid.word))
                elif self.terms.guarantee == "statistical":
                    words = np.frombuffer(content, dtype=word_type(self.terms.grid.word))
                else:
                    continue
                half = 1 << (self.terms.grid.word - 1)
                signed = (words.astype(np.int64) + half) % (2 * half) - half
                found.append((message.kind, message.attempt, message.sender, signed))
        for (attempt, keeper), secret in self.opened_secrets().items():
            for place in self.book.of_secret.get(secret, ()):
                found.append((Kind.SHARE, attempt, keeper, self.book.unit(place).astype(np.int64)))
        return found

    def opened_secrets(self) -> dict[tuple[int, int], bytes]:
        """The secrets of honest keepers, by attempt and keeper, of which it has enough shares."""
        shares: dict[tuple[int, int], dict[int, bytes]] = {}
        for data in self.pool:
            message = decode(data)
            if message.kind == Kind.SHARE and message.recipient in self.corrupt:
                content = self._open(message, message.recipient)
                shares.setdefault((message.attempt, message.sender), {})[message.recipient] = content[-SHARE_BYTES:]
            if message.kind == Kind.REVEAL and self.terms.guarantee == "computational":
                content, keepers = self._open(message), self.keepers_of[message.attempt, message.sender]
                for place, keeper in enumerate(keepers):
                    share = content[place * SHARE_BYTES : (place + 1) * SHARE_BYTES]
                    shares.setdefault((message.attempt, keeper), {})[message.sender] = share
        return {
            place: combine(dict(list(each.items())[: self.terms.openings]))
            for place, each in shares.items()
            if len(each) >= self.terms.openings and place[1] in self.honest
        }

    def revealed(self) -> set[tuple[int, int]]:
        """Which honest parties have opened which attempts."""
        messages = [decode(data) for data in self.pool]
        return {(message.attempt, message.sender) for message in messages if message.kind == Kind.REVEAL}

    def _open(self, message: Message, recipient: int | None = None) -> bytes:
        public, reader = (
            key_of(message.sender, message.attempt, 0).public,
            self.lead if recipient is None else recipient,
        )
        for variant in range(3):
            try:
                return open_sealed(key_of(reader, message.attempt, variant), public, message)
            except MessageError:
                continue
        raise AssertionError("sealed for a key that the lead receiver never sent")

    def learned(self) -> list[list[int]]:
        """A basis, in reduced form, of the combinations of honest vectors that it can compute."""
        return computable([row.tolist() for *_, row in self.rows()], self.unknown(), self.honest)

    def unknown(self) -> list[int]:
        """Masks that no corrupt party shares."""
        return [place for place, known in self.book.known_to.items() if not known & set(self.corrupt)]

    def check(self) -> list[set[int]]:
        """Whether it learned no more than it may; the sums it learned."""
        return allowed(self.learned(), self.honest, self.told, self.least)


def allowed(basis: list[list[int]], honest: Sequence[int], told: set[frozenset[int]], least: int) -> list[set[int]]:
    """The sums in a reduced basis, if it is nothing but sums over whole groups of different parties."""
    sums: list[set[int]] = []
    for row in basis:
        assert set(row) <= {0, 1}, f"a combination of honest vectors is known: {row}"
        sums.append({party for party, value in zip(honest, row, strict=True) if value})
    counted = Counter(party for one in sums for party in one)
    assert all(times == 1 for times in counted.values()), f"a vector is in two known sums: {sums}"
    for one in sums:
        assert len(one) >= least, f"a sum of too few honest parties is known: {one}"
        assert any(one == group & set(honest) for group in told), f"a sum of a part of a group is known: {one}"
    return sums


@pytest.fixture
def symbols(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Coalition]:
    """Makes a coalition and lets the parties work with symbols."""

    def make(shape: tuple[int, int, int], corrupt: Iterable[int], guarantee: Guarantee) -> Coalition:
        made = Coalition(shape, corrupt, guarantee)
        monkeypatch.setattr(attempt_module, "mask_key", made.book.mask_key)
        monkeypatch.setattr(attempt_module, "mask_seed", made.book.mask_seed)
        monkeypatch.setattr(attempt_module, "expand", made.book.expand)
        return made

    return make


Make = Callable[[tuple[int, int, int], Iterable[int], Guarantee], Coalition]


def tell(coalition: Coalition, messages: dict[int, list[bytes]]) -> None:
    """Deliver these, the pads that corrupt parties owe, and the pads among these parties, until nothing moves."""
    waiting = {index: list(items) for index, items in messages.items()}
    moved = True
    while moved:
        moved = False
        for index in waiting:
            items, waiting[index] = waiting[index] + coalition.owed_to(index), []
            for data in items:
                sent = coalition.deliver(index, data)
                waiting[index] += [data] if sent is None else []
                moved |= sent is not None
                for pad in map(decode, sent or []):
                    if pad.kind in (Kind.PAD, Kind.SHARE) and pad.recipient in waiting:
                        waiting[pad.recipient] += coalition.sent(pad.kind, pad.attempt, index, pad.recipient)


def take_part(coalition: Coalition, attempt: int, views: dict[int, View]) -> None:
    """Lead these parties through an attempt, each with its view, up to their submissions."""
    groups = {i: [coalition.group(attempt, members)] for i, (members, _) in views.items() if attempt > 1}
    tell(coalition, groups)
    tell(coalition, {index: coalition.view(index, attempt, view) for index, view in views.items()})


def open_all(coalition: Coalition, attempt: int) -> None:
    """Ask everybody to reveal the self-mask of this attempt."""
    tell(coalition, {index: coalition.opening(index, attempt) for index in coalition.honest})


# One attack after the other -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_coalition_that_keeps_to_the_rules_learns_the_sum_of_the_group(symbols: Make, guarantee: Guarantee) -> None:
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    take_part(coalition, 1, dict.fromkeys(coalition.honest, (coalition.everyone, (0, 0))))
    assert coalition.check() == []
    group = coalition.everyone - {4}
    take_part(coalition, 2, dict.fromkeys([1, 2, 5], (group, (0, 0))))
    assert coalition.check() == []
    open_all(coalition, 2)
    assert coalition.check() == [{1, 2, 5}]
    assert not coalition.stopped
    kinds = Counter((kind, attempt) for kind, attempt, *_ in coalition.rows() if kind == Kind.SUBMIT)
    assert kinds == {(Kind.SUBMIT, 1): 4, (Kind.SUBMIT, 2): 3}
    assert coalition.revealed() == {(2, 1), (2, 2), (2, 5)}


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_neighbours_told_different_groups_are_not_isolated_together(symbols: Make, guarantee: Guarantee) -> None:
    """Parties 1 and 2 share a mask. The other honest neighbour of 1 is 5, that of 2 is 4: each is told that its own is
    gone. Were masks not bound to the group, the sum of 1 and 2 would be known, and 3 is the least."""
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    assert (coalition.terms.neighbours(1), coalition.terms.neighbours(2)) == ([0, 2, 3, 5], [0, 1, 3, 4])
    one, two = (coalition.everyone - {5}, (0, 0)), (coalition.everyone - {4}, (0, 0))
    take_part(coalition, 2, {1: one, 4: one, 2: two, 5: two})
    open_all(coalition, 2)
    assert coalition.check() == []
    revealed = {sender for _, sender in coalition.revealed()}
    assert revealed <= {1, 2, 5}
    if guarantee == "statistical":
        assert revealed == {1, 5}  # a pad for another group stops 2


def test_two_groups_in_one_attempt_can_give_two_sums_of_different_parties(symbols: Make) -> None:
    """Where all of a group must open it. Nobody is in both, so nobody's vector is seen twice."""
    coalition = symbols((4, 1, 2), (0,), "statistical")
    take_part(coalition, 2, {1: (frozenset({0, 1}), (0,)), 2: (frozenset({0, 2, 3}), (0,))})
    take_part(coalition, 2, {3: (frozenset({0, 2, 3}), (0,)), 2: (frozenset({0, 2, 3}), (0,))})
    open_all(coalition, 2)
    assert sorted(map(sorted, coalition.check())) == [[1], [2, 3]]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_submission_that_comes_late_tells_nothing(symbols: Make, guarantee: Guarantee, told: bool) -> None:
    """All have submitted to attempt 1, that of party 4 is held back; attempt 2, without it, is opened; then it comes.
    The difference of the two attempts would be its vector alone."""
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    take_part(coalition, 1, dict.fromkeys(coalition.honest, (coalition.everyone, (0, 0))))
    take_part(coalition, 2, dict.fromkeys([1, 2, 5], (coalition.everyone - {4}, (0, 0))))
    open_all(coalition, 2)
    if told:
        coalition.deliver(4, coalition.group(2, coalition.everyone - {4}))
    open_all(coalition, 1)
    assert coalition.revealed() == {(2, 1), (2, 2), (2, 5)} | (set() if told else {(1, 4)})
    assert coalition.check() == [{1, 2, 5}]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_opening_different_attempts_for_different_parties_opens_none(symbols: Make, guarantee: Guarantee) -> None:
    coalition = symbols((6, 1, 2), (0,), guarantee)
    everyone = (coalition.everyone, (0,))
    take_part(coalition, 1, dict.fromkeys(coalition.honest, everyone))
    tell(coalition, {index: coalition.opening(index, 1) for index in (1, 2)})
    take_part(coalition, 2, dict.fromkeys(coalition.honest, everyone))
    assert coalition.stopped == {1, 2}  # a new group after they revealed
    for attempt in (2, 1):
        open_all(coalition, attempt)
    assert coalition.check() == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_kinds_of_keys_split_a_group_and_open_nothing(symbols: Make, guarantee: Guarantee) -> None:
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    one, two = (coalition.everyone, (0, 0)), (coalition.everyone, (0, 1))
    take_part(coalition, 1, {1: one, 2: one, 4: two, 5: two})
    open_all(coalition, 1)
    assert coalition.check() == []


@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_a_group_for_the_first_attempt_after_pads_were_sent_isolates_nobody(
    symbols: Make, guarantee: Guarantee
) -> None:
    """Parties 4 and 5 have exchanged their pad and wait for those of 2 and 1. Now each is told, for the same attempt,
    that the one it waits for is gone: both would submit with the one pad between them, and 3 is the least."""
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    assert (coalition.terms.neighbours(4), coalition.terms.neighbours(5)) == ([0, 2, 3, 5], [0, 1, 3, 4])
    for index in (4, 5):  # all keys but the last: a party without pads submits with the last one
        told = coalition.view(index, 1, (coalition.everyone, (0, 0)))
        for data in told if guarantee == "statistical" else told[:-1]:
            coalition.deliver(index, data)
    for data in coalition.sent(Kind.PAD, 1, 4, 5):
        coalition.deliver(5, data)
    everything = {index: coalition.view(index, 1, (coalition.everyone, (0, 0))) for index in (4, 5)}
    for index, lost in ((4, 2), (5, 1)):
        coalition.deliver(index, coalition.group(1, coalition.everyone - {lost}))
        tell(coalition, {index: everything[index]})
    open_all(coalition, 1)
    coalition.check()


@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_a_party_started_again_before_it_submitted_is_not_isolated(symbols: Make, guarantee: Guarantee) -> None:
    """Party 1 sends party 2 its pad, bound to the group without 4, which 2 knows. Before it has submitted, the relay
    says that it has lost everything, and party 1 is told another group for the same attempt: the one without 5."""
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    one, two = (coalition.everyone - {5}, (0, 0)), (coalition.everyone - {4}, (0, 0))
    coalition.note([coalition.keys(index, 2, 0) for index in coalition.honest])  # as each would send it
    for data in coalition.view(1, 2, two)[: None if guarantee == "statistical" else -1]:
        coalition.deliver(1, data)  # and no pad of a corrupt party
    assert coalition.parties[1].step == ("pads" if guarantee == "statistical" else "keys")
    pads = coalition.sent(Kind.PAD, 2, 1, 2)
    coalition.rebuild(1)
    tell(coalition, {1: coalition.view(1, 2, one)})
    tell(coalition, {2: [*coalition.view(2, 2, two), *pads]})
    open_all(coalition, 2)
    coalition.check()


@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_a_party_started_again_after_it_submitted_is_not_isolated(symbols: Make, guarantee: Guarantee) -> None:
    """The other way round: party 1 submits with the group without 5, is started again and told the one without 4. It
    does not submit again, but must not send pads for the second group either."""
    coalition = symbols((6, 2, 1), (0, 3), guarantee)
    one, two = (coalition.everyone - {5}, (0, 0)), (coalition.everyone - {4}, (0, 0))
    coalition.note([coalition.keys(index, 2, 0) for index in coalition.honest])
    tell(coalition, {index: coalition.view(index, 2, one) for index in (1, 4)})  # 4 sends 1 its pad
    (submission,) = coalition.sent(Kind.SUBMIT, 2, 1)
    before = coalition.sent(Kind.PAD, 2, 1, 2)
    coalition.rebuild(1)
    tell(coalition, {1: coalition.view(1, 2, two)})
    assert coalition.stopped == {1}
    pads = [data for data in coalition.sent(Kind.PAD, 2, 1, 2) if data not in before]
    tell(coalition, {2: [*coalition.view(2, 2, two), *pads]})
    coalition.rebuild(1)
    tell(coalition, {1: coalition.view(1, 2, one)})
    assert coalition.sent(Kind.SUBMIT, 2, 1) == [submission]
    open_all(coalition, 2)
    if guarantee == "statistical":  # otherwise it may lack shares of keepers in the other group
        assert coalition.sent(Kind.REVEAL, 2, 1)
    coalition.check()


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_processes_of_a_party_do_not_both_submit_to_an_attempt(symbols: Make, guarantee: Guarantee) -> None:
    """Both have read the ledger before the other submitted; the coalition tells them different groups. With one and
    the same self-mask in both submissions, party 1 is in two sums that are opened together."""
    coalition = symbols((4, 1, 1), (0,), guarantee)
    everyone, alone = (coalition.everyone, (0,)), (frozenset({0, 1, 2}), (0,))
    twin = coalition.world.party(1)
    twin.start()
    take_part(coalition, 2, {1: everyone, 2: everyone, 3: everyone})
    first = coalition.parties[1]
    coalition.parties[1] = twin
    take_part(coalition, 2, {1: alone})
    coalition.parties[1] = first
    open_all(coalition, 2)
    coalition.check()


# All views of one attempt ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("shape", "corrupt"), [((6, 2, 1), (0, 3)), ((6, 2, 1), (1, 2)), ((6, 1, 2), (0,))])
@pytest.mark.slow
def test_no_choice_of_groups_and_keys_for_each_party_shows_a_part_of_a_group(
    symbols: Make, shape: tuple[int, int, int], corrupt: tuple[int, ...]
) -> None:
    """A party's submission depends on its own view only: run each party once a view, then combine the views."""
    coalition = symbols(shape, corrupt, "computational")
    others = [party for party in range(shape[0]) if party != coalition.lead]
    lost = [frozenset(some) for size in range(shape[2] + 1) for some in combinations(others, size)]
    variants = [(0,) * len(corrupt), *([(0, 1)] if len(corrupt) > 1 else [])]
    views = [(coalition.everyone - some, variant) for some in lost for variant in variants]
    for members, _ in views:
        coalition.group(2, members)
    rows: dict[int, list[np.ndarray[Any, Any]]] = {index: [] for index in coalition.honest}
    for index, (members, variant) in product(coalition.honest, views):
        if index in members:
            coalition.pool.clear()
            coalition.world.secrets[index] = SymbolSecrets(coalition.book, index)
            coalition.rebuild(index)
            told = [coalition.keys(other, 2, 0) for other in coalition.honest if other != index]
            group = sorted(members)
            graph = MaskGraph.draw(len(group), coalition.terms.colluders, bytes(32))  # a circulant, whatever the seed
            earlier = [group[rank] for rank in graph.partners(group.index(index)).incoming.tolist()]
            told += [coalition.capsule_of(other, index) for other in earlier if other in coalition.honest]
            tell(coalition, {index: [*coalition.view(index, 2, (members, variant)), *told]})
            open_all(coalition, 2)
            ((_, _, _, submitted),) = coalition.rows()
            own = [place for place, known in coalition.book.known_to.items() if known == {index}]
            submitted[own] = 0  # as if the keepers' masks were known
            rows[index].append(submitted)
    unknown = np.array(coalition.unknown())
    assert all(row[coalition.honest].sum() == 1 for some in rows.values() for row in some)
    random = np.random.default_rng(0)
    total = int(np.prod([len(some) for some in rows.values()]))
    found = set()
    for number in random.choice(total, min(total, 6000), replace=False).tolist():
        chosen = []
        for some in rows.values():
            number, place = divmod(number, len(some))
            chosen.append(some[place])
        table = np.array(chosen)
        used = unknown[table[:, unknown].any(axis=0)].tolist()
        basis = computable([row.tolist() for row in chosen], used, coalition.honest)
        sums = allowed(basis, coalition.honest, coalition.told, coalition.least)
        found |= {len(one) for one in sums}
    assert found <= {len(coalition.honest) - lost for lost in range(shape[2] + 1)}


# Any order ------------------------------------------------------------------------------------------------------------


class Storm:
    """Random schedules: views for each attempt, and everything delivered late, twice, out of order or never."""

    def __init__(self, coalition: Coalition, seed: int, rebuilds: bool, attempts: int = 3) -> None:
        self.coalition, self.rebuilds, self.attempts = coalition, rebuilds, attempts
        self.random = np.random.default_rng(seed)
        self.queue: list[tuple[float, int, int, bytes, int]] = []
        self.number, self.now = 0, 0.0
        self.loss, self.lies = self.random.choice([0.0, 0.02, 0.1]), self.random.choice([0.0, 0.0, 0.2])
        self.views = {attempt: [self.any_view(attempt) for _ in range(2)] for attempt in range(1, attempts + 1)}

    def any_view(self, attempt: int) -> View:
        coalition, random = self.coalition, self.random
        size = int(random.integers(coalition.terms.tolerate + 1)) if attempt > 1 else 0
        others = [party for party in coalition.everyone if party != coalition.lead]
        lost = frozenset(random.choice(others, size, replace=False).tolist())
        variants = tuple(int(random.random() < self.lies) for _ in coalition.corrupt)
        return coalition.everyone - lost, variants

    def push(self, index: int, data: bytes, delay: float, tries: int = 0) -> None:
        if self.random.random() >= self.loss:
            self.number += 1
            heapq.heappush(self.queue, (self.now + self.random.exponential(delay), self.number, index, data, tries))

    def tell(self, index: int, attempt: int) -> None:
        """A view of the attempt, of the two there are; mostly the first."""
        view = self.views[attempt][int(self.random.random() < self.lies)]
        for data in self.coalition.view(index, attempt, view):
            self.push(index, data, 2.0)

    def spread(self, sent: Iterable[bytes]) -> None:
        """What honest parties send goes on, and is answered."""
        for data in sent:
            message = decode(data)
            everyone = [other for other in self.coalition.honest if other != message.sender]
            for other in everyone if message.recipient == EVERYONE else [message.recipient]:
                if other in self.coalition.parties:
                    self.push(other, data, 1.0)
            if message.kind == Kind.SUBMIT and self.random.random() < 0.8:
                for opening in self.coalition.opening(message.sender, message.attempt):
                    self.push(message.sender, opening, 4.0)

    def rebuild(self, index: int) -> None:
        coalition = self.coalition
        self.spread(coalition.rebuild(index))
        attempt = coalition.parties[index].attempt
        self.tell(index, attempt)
        for kind in (Kind.PAD, Kind.SHARE):
            for data in coalition.sent(kind, attempt, recipient=index):
                self.push(index, data, 2.0)

    def run(self) -> list[set[int]]:
        coalition, random = self.coalition, self.random
        begins = [0.0, *np.cumsum(random.choice([1.0, 6.0, 14.0], self.attempts - 1)).tolist()]
        for attempt, begin in enumerate(begins, 1):
            for index in coalition.honest:
                self.now = begin
                self.tell(index, attempt)
        self.now = 0.0
        self.spread(list(coalition.pool))
        owed: set[bytes] = set()
        for _ in range(1200):
            if not self.queue:
                break
            self.now, _, index, data, tries = heapq.heappop(self.queue)
            sent = coalition.deliver(index, data)
            if sent is None:
                if tries < 8:
                    self.push(index, data, 2.0, tries + 1)
                continue
            self.spread(sent)
            for pad in set(coalition.owed_to(index)) - owed:
                owed.add(pad)
                self.push(index, pad, 1.0)
            if random.random() < 0.02:
                self.push(index, data, 5.0)
            if self.rebuilds and random.random() < 0.03:
                self.rebuild(int(random.choice(coalition.honest)))
        return coalition.check()


SHAPES: Final[dict[Guarantee, list[tuple[tuple[int, int, int], tuple[int, ...]]]]] = {
    "computational": [
        ((4, 1, 1), (0,)),
        ((5, 1, 1), (2,)),
        ((5, 2, 1), (1, 4)),
        ((6, 2, 1), (0, 3)),
        ((6, 1, 2), (0,)),
        ((7, 2, 2), (0, 5)),
        ((7, 3, 1), (1, 2, 6)),
    ],
    "statistical": [
        ((4, 1, 1), (0,)),
        ((4, 1, 2), (0,)),
        ((4, 2, 1), (0, 2)),
        ((5, 2, 1), (1, 4)),
        ((5, 1, 2), (2,)),
        ((6, 2, 1), (0, 3)),
        ((6, 1, 2), (0,)),
        ((6, 2, 2), (0, 5)),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("rebuilds", [False, True])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_whatever_comes_in_whatever_order_each_vector_is_in_one_sum_of_a_group(
    symbols: Make, guarantee: Guarantee, rebuilds: bool
) -> None:
    found: Counter[str] = Counter()
    for seed in range(96 if rebuilds else 48):
        shape, corrupt = SHAPES[guarantee][seed % len(SHAPES[guarantee])]
        coalition = symbols(shape, corrupt, guarantee)
        sums = Storm(coalition, seed, rebuilds).run()
        found["no sum" if not sums else "a sum"] += 1
        opened = Counter(sender for _, sender in coalition.revealed())
        assert all(times == 1 for times in opened.values())
        submitted = Counter(sender for kind, _, sender, _ in coalition.rows() if kind == Kind.SUBMIT)
        found["many submissions"] += any(times > 1 for times in submitted.values())
    assert min(found["a sum"], found["no sum"], found["many submissions"]) >= 5
