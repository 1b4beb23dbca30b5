"""One party of the masked-sum protocol: a state machine without input or output.

`start` and `receive` return the messages to send; the caller moves the bytes. Steps: *agree* (sign study and plan),
*keys* (a fresh key for this attempt), *submit* (the masked vector, sealed for the lead receiver) and *receive* (the sum
to the receivers, a receipt to the other parties). A retry is a new attempt with fresh keys for the same vector, noise
included; a party that hears of a higher attempt joins it. Theory, "The protocol".

If parties may drop out (`Terms.tolerate`), the lead receiver names the group of each attempt, and the noise is drawn
for that group. Some submissions then also carry a mask of their owner, a *keeper*, whose seed all of the group hold
shares of. When all have submitted, they give the lead receiver these shares, once in a session, and enough of them open
the attempt. All other attempts stay closed. In statistical mode every submission has a mask of its own, which its owner
reveals. Theory, "Parties that drop out".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.errors import InputError
from tpmdp.protocol.attempt import Attempt, unusable_key
from tpmdp.protocol.channel import Sender, open_sealed
from tpmdp.protocol.group import from_bits, to_bits
from tpmdp.protocol.hybrid import PUBLIC_BYTES, Capsule, HybridKey, is_usable
from tpmdp.protocol.masks import from_words, word_type
from tpmdp.protocol.messages import (
    ATTEMPTS_MAX,
    EVERYONE,
    HASH_BYTES,
    Kind,
    Message,
    MessageError,
    ProtocolError,
    TooEarlyError,
    decode,
    digest_of,
    verify,
)
from tpmdp.protocol.notes import HeadNotes, notes_for, take_notes
from tpmdp.protocol.pair_step import PairStep
from tpmdp.protocol.parts import PARTS_MAX, differences
from tpmdp.protocol.rules import (
    CONTENT_RULES,
    COUNTED_BYTES,
    ENVELOPE_RULES,
    FORM_RULES,
    ONCE,
    ONE_OPENING,
    STATE_RULES,
    check,
    group_of,
    listed,
)
from tpmdp.protocol.secrets import Secrets, Submitted
from tpmdp.protocol.shares import KEEPER_BYTES, check_value, secret_of, split
from tpmdp.protocol.state import PartyState
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import Vector

_PLANS_MAX: Final = 8  # other plans of one party that are answered
_UNPROVED_MAX: Final = 4  # messages in the name of one party that are kept until its key is listed
__all__ = ["PartySession", "ProtocolError", "TooEarlyError", "check_identity"]


def check_identity(terms: Terms, index: int, identity: Ed25519PrivateKey) -> None:
    """Refuse a key that is not the one the terms list for the party."""
    if terms.roster[index] != identity.public_key().public_bytes_raw():
        remedy = "use the key file whose public key the study lists"
        field = f"key of {terms.spec.name(index)}"
        raise InputError(field, "(not shown)", "does not fit its public key in the study", remedy)


class PartySession(PartyState):
    """One party in one session.

    `vector` gives its contribution to an attempt among these parties, as residues of the grid's word, with the noise
    that the plan for them asks for; always the same one for an attempt, and for all if nobody may drop out. It is asked
    for when all have agreed and before the first message leaves that depends on data: a party that pays for a session
    does so there.
    """

    def __init__(
        self,
        terms: Terms,
        index: int,
        identity: Ed25519PrivateKey,
        vector: Vector,
        secrets: Secrets,
        attempt: int = 1,
        parts: bytes = b"",
        notes: HeadNotes | None = None,
        pairs: PairStep | None = None,
    ) -> None:
        check_identity(terms, index, identity)
        terms.check(index)
        super().__init__(terms, index, secrets, frozenset() if pairs is None else pairs.holders)
        self._sender = Sender(index, identity, terms.session, plan_hash=terms.plan_hash)
        self._vector = vector
        self._parts = parts
        self._notes = notes
        self._pairs = pairs
        self._seen: dict[tuple[int, int, int, int], bytes] = {}
        self.current = self._new_attempt(attempt)

    # What the caller may do -------------------------------------------------------------------------------------------

    def start(self) -> list[bytes]:
        """The first messages: agreement and key. Sending them again after a crash is harmless: they are the same."""
        self.agreed.add(self.index)
        self._secrets.forget_before(self.attempt, self.may_drop)
        return [self._signed(Kind.AGREE, EVERYONE, b"", attempt=0), *self._noted(0), *self._announce()]

    def retry(self) -> list[bytes]:
        """Begin a new attempt with fresh keys; the vector, and so the noise in it, stays the same.

        If parties may drop out, only the lead receiver begins one, and none after it has chosen one to open. Where some
        compute in pairs before the sum, none is begun here: see `pair_step`.
        """
        if self.done or self.holders or (self.may_drop and not self.is_lead):
            return []
        return self._begin_next(frozenset(range(self.terms.count)))

    def drop_missing(self) -> list[bytes]:
        """At the lead receiver: begin a new attempt without the parties whose message is missing, if they may drop out.

        Empty if too many are missing, or if all have submitted: a party lost then ends the session. A party that waits
        for the pad of a lost party has not submitted either; it is not left out.
        """
        members, missing = self.current.members, frozenset(self.waiting_for())
        if self.done or not self.may_drop or not self.is_lead or members is None or not missing:
            return []
        lost = frozenset(self.lost())  # if none, new keys will show who
        if self.terms.count - len(members - lost) > self.terms.tolerate:
            return []
        if not lost and self.groups.get(self.attempt - 1) == members:
            return []  # all sent keys twice, and some party sends no pad
        return self._begin_next(members - lost)

    def lost(self) -> list[int]:
        """At the lead receiver: the parties whose message is missing, but for those that may wait for another's pad."""
        missing = self.waiting_for()
        if self.step not in ("agree", "keys", "receive"):
            return []
        if self.step != "receive":
            return missing
        waits = {party for party in missing if not set(self.current.partners(party)[1]).isdisjoint(missing)}
        return [party for party in missing if party not in waits]

    def _begin_next(self, members: frozenset[int]) -> list[bytes]:
        if self.may_drop and self.opened_attempt:
            return []
        return self._advance(self.attempt + 1, members)

    @property
    def is_to_pair(self) -> bool:
        """Whether this party is to compute with the other holders now: call `pair` once all messages are sent."""
        holds = self._pairs is not None and self.is_holder
        return holds and self.ready and not self.done and self.index not in self.current.paired

    def pair(self, is_news: Callable[[], bool] = lambda: False) -> list[bytes]:
        """Compute with the other holders, and say so when our share is stored.

        Nothing is sent if it gave up because there was news: then receive that, and call again.
        """
        assert self._pairs is not None
        if not self._pairs.compute(self.attempt, is_news):
            return []
        self.current.paired.add(self.index)
        return [self._signed(Kind.PAIRED, EVERYONE, b""), *self._proceed()]

    def receive(self, data: bytes) -> list[bytes]:
        """Process a message from outside and return the messages to send.

        MessageError: not a message of this session; drop it. TooEarlyError: deliver it again. ProtocolError: stop.
        """
        message = decode(data)
        check(ENVELOPE_RULES, self, message)
        if message.kind == Kind.AGREE and not self.is_lead:
            return []  # the key is signed with the plan hash, too
        if self._is_for_the_list(message):
            return self._keep_unproved(message, data)
        if message.kind == Kind.NOTES and message.sender not in self.witnesses:
            return []
        digest = verify(data, self.terms.roster[message.sender])
        if message.kind == Kind.NOTES:
            return self._on_notes(message)
        if message.plan_hash != self.terms.plan_hash:
            return self._on_other_plan(message)
        if message.kind == Kind.PARTS:
            return []  # its sender took us for a party with another plan: we have mended our study since
        if message.slot in self._seen:
            if self._seen[message.slot] != digest:
                raise ONCE.refuse(self, message)
            return []
        check(FORM_RULES, self, message)
        if self.done:
            return []
        answer = not self.may_drop and message.kind in (Kind.RESULT, Kind.RECEIPT)
        if message.attempt < self.attempt and message.kind != Kind.AGREE and not answer:
            return []  # of an attempt that was given up
        is_left_out = self.index not in self.groups.get(message.attempt, {self.index})
        if is_left_out and message.kind in (Kind.KEYS, Kind.LIST, Kind.RECEIPT):
            return []  # of an attempt that this party is not in
        if self.is_receiver and message.kind == Kind.RECEIPT:
            return []  # a receiver gets the answer
        check(STATE_RULES[message.kind], self, message)
        if message.kind == Kind.PAD and message.sender not in self.current.pads_from():
            return []  # we share no mask with it
        if message.kind == Kind.SHARE and message.sender not in self.current.keepers:
            return []  # it keeps nothing
        sent = self._handlers[message.kind](self, message, digest)
        self._seen[message.slot] = digest
        if self._is_for_the_list(message):  # it began this attempt
            return sent + self._keep_unproved(message, data)
        return sent + self._proceed()

    def _is_for_the_list(self, message: Message) -> bool:
        """Whether a message is a key of another party of this attempt, which counts once the lead receiver lists it."""
        is_current = message.kind == Kind.KEYS and message.attempt == self.attempt
        to_list = not self.is_lead and message.sender != self.terms.lead
        return is_current and to_list and message.plan_hash == self.terms.plan_hash and not self.done

    def _keep_unproved(self, message: Message, data: bytes) -> list[bytes]:
        """Keep a key whose signature is looked at if its owner is a neighbour: there may be many, and few are used."""
        if len(message.body) != PUBLIC_BYTES or message.recipient != EVERYONE:
            return []
        attempt = self.current
        copies = attempt.unproved.setdefault(message.sender, {})
        if message.sender in attempt.keys or len(copies) >= _UNPROVED_MAX:
            return []
        copies[digest_of(data)] = data
        self.agreed.add(message.sender)  # so it seems; nothing rests on it
        self.differences.pop(message.sender, None)  # it has mended its study
        if attempt.is_listed:
            self._prove_keys({message.sender})
        return self._proceed()

    def _prove_keys(self, senders: AbstractSet[int]) -> None:
        """Take the keys that this party uses from what these have sent, if they have signed them."""
        attempt = self.current
        for other in attempt.needed & senders - set(attempt.keys):
            data = attempt.unproved.get(other, {}).pop(attempt.digests[other], b"")
            with suppress(MessageError):  # of somebody else: the true one may still come
                if data:
                    verify(data, self.terms.roster[other])
                    attempt.keys[other] = decode(data).body

    def _on_other_plan(self, message: Message) -> list[bytes]:
        """A party with another study file or version: tell each other what differs, before anybody is charged."""
        sender, plans = message.sender, self.other_plans.setdefault(message.sender, {})
        if self.current.submitted or sender in self.current.keys or self.current.unproved.get(sender):
            return []
        if message.kind == Kind.KEYS and len(message.body) == PUBLIC_BYTES:
            # A number stands where others have the attempt: a party may mend its study, or try again, more than once.
            number = (self.attempt - 1) * _PLANS_MAX + len(plans) + 1
            if (message.plan_hash, message.attempt) in plans or len(plans) >= _PLANS_MAX or number > ATTEMPTS_MAX:
                return []
            plans[message.plan_hash, message.attempt] = message.body
            self.differences[sender] = ["another study or plan"]
            envelope = self._sender.envelope(Kind.PARTS, number, sender)
            if not self._parts:
                return []
            try:
                capsule = self._secrets.parts_capsule(number, sender, message.body)
            except InputError:  # its key is none
                return []
            own = self.current.own
            return [self._sender.sealed(envelope, own, message.body, capsule=capsule, content=self._parts)]
        if message.kind == Kind.PARTS and len(message.body) <= PARTS_MAX:
            keys = [key for (plan, _), key in plans.items() if plan == message.plan_hash]
            if not keys:
                raise TooEarlyError("the parts of another study before the key that opens them")
            for key in keys:
                with suppress(MessageError):  # for another plan or attempt that this party had before
                    self.differences[sender] = differences(self._parts, open_sealed(self.current.own, key, message))
        return []

    def _on_notes(self, message: Message) -> list[bytes]:
        """Keep the sender's note, and look for our own heads in our ledger."""
        if self._notes is not None:
            take_notes(self._notes, self.index, self.terms.roster[message.sender], body=message.body)
        return []

    def _noted(self, attempt: int) -> list[bytes]:
        """A message with the note of our ledger and, at the start, those of the others that we keep."""
        if self._notes is None:
            return []
        others = sorted(self.witnesses - {self.index}) if attempt == 0 else []
        body = notes_for(self._notes, self.terms.roster, others)
        return [self._signed(Kind.NOTES, EVERYONE, self._notes.fixed(attempt, body), attempt=attempt)]

    # Handlers, one per kind; the rules have been checked --------------------------------------------------------------

    def _on_agree(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        self.agreed.add(message.sender)
        return []

    def _on_keys(self, message: Message, digest: bytes) -> list[bytes]:
        everyone = frozenset(range(self.terms.count))
        sent = self._advance(message.attempt, everyone) if message.attempt > self.attempt else []
        if not self.is_lead or self.may_drop:  # a key is signed with the plan hash, too
            self.agreed.add(message.sender)
        if self.is_lead or message.sender == self.terms.lead:  # others are kept until they are listed
            if self.current.digests.setdefault(message.sender, digest) != digest:
                raise ONCE.refuse(self, message)
            self.current.keys[message.sender] = message.body
        self.differences.pop(message.sender, None)  # it has mended its study
        return sent

    def _on_list(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        attempt = self.current
        attempt.digests = {member: listed(message.body, member) for member in attempt.group}
        attempt.is_listed = True
        self.agreed |= attempt.group  # so the lead receiver says
        self._prove_keys(attempt.group)
        return []

    def _on_paired(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        self.current.paired.add(message.sender)
        return []

    def _on_pad(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        attempt = self.current
        if attempt.statistical:
            attempt.add_pad(message.sender, CONTENT_RULES[Kind.PAD].check(self, message, self._opened(message)))
        attempt.padded[message.sender] = b"" if attempt.statistical else message.body
        return []

    def _on_submit(self, message: Message, digest: bytes) -> list[bytes]:
        words = CONTENT_RULES[Kind.SUBMIT].check(self, message, self._opened(message))
        self.current.count_submission(message.sender, words, digest)
        return []

    def _on_result(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        own = HybridKey(self._secrets.key(message.attempt))
        words = self._open(own, self.submission(message).lead_key, message)
        self.result = from_words(np.frombuffer(words, dtype=word_type(self.terms.grid.word)), self.terms.grid.word)
        self._answered = message.attempt
        return []

    def _on_receipt(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        self.receipt = True
        self._answered = message.attempt
        return []

    def _on_group(self, message: Message, digest: bytes) -> list[bytes]:
        """A new attempt; or, after a restart, the group of the attempt under way."""
        del digest
        members = group_of(self, message) or frozenset()
        self.groups[message.attempt] = members
        if self.index not in members:
            return []  # the lead receiver went on without this party; a later attempt may include it again
        if message.attempt > self.attempt:
            return self._advance(message.attempt, members)
        self.current.members = members
        return []

    def _on_open(self, message: Message, digest: bytes) -> list[bytes]:
        """All of the group have submitted: reveal what opens it, once in a session and for this attempt only."""
        del digest
        if message.attempt < self.newest:
            return []
        if self._secrets.opening(self.attempt) != self.attempt:
            raise ONE_OPENING.refuse(self, message)
        # Perhaps submitted before a restart, so the others' keys may be missing here.
        lead_key = self.submission(message).lead_key
        content = self._self_mask() if self.current.statistical else self.current.opening()
        return [self._sealed(Kind.REVEAL, self.terms.lead, content, key=lead_key)]

    def _on_share(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        content = CONTENT_RULES[Kind.SHARE].check(self, message, self._opened(message))
        self.current.keep_share(message.sender, content)
        return []

    def _on_reveal(self, message: Message, digest: bytes) -> list[bytes]:
        del digest
        attempt, content = self.current, self._opened(message)
        if attempt.statistical:
            attempt.remove_self_mask(content)
            attempt.revealed[message.sender] = []
        else:
            attempt.add_opening(message.sender, content)
        return []

    _handlers = {  # noqa: RUF012
        Kind.AGREE: _on_agree,
        Kind.KEYS: _on_keys,
        Kind.LIST: _on_list,
        Kind.PAIRED: _on_paired,
        Kind.PAD: _on_pad,
        Kind.SUBMIT: _on_submit,
        Kind.RESULT: _on_result,
        Kind.RECEIPT: _on_receipt,
        Kind.GROUP: _on_group,
        Kind.OPEN: _on_open,
        Kind.REVEAL: _on_reveal,
        Kind.SHARE: _on_share,
    }

    # Steps ------------------------------------------------------------------------------------------------------------

    def _proceed(self) -> list[bytes]:
        if self.done or not self.ready:
            return []
        attempt = self.current
        self._bind()
        sent = self._list_keys() + self._send_pads()
        if not attempt.submitted and set(attempt.padded) == attempt.pads_from() and self.holders <= attempt.paired:
            sent += self._submit()
        if self.is_lead and attempt.counted and attempt.members == frozenset(attempt.counted):
            if not self.may_drop:
                sent += self._finish()
            elif not attempt.opened:
                sent += self._ask_to_reveal()
            if attempt.opened and self._is_open():
                sent += self._finish()
        return sent

    def _is_open(self) -> bool:
        """At the lead receiver: whether all masks are known; then they are no longer in the sum."""
        attempt = self.current
        if attempt.statistical:
            return attempt.group <= {*attempt.revealed, self.index}
        if not attempt.has_all_shares:
            return False
        attempt.add_opening(self.index, attempt.opening())
        secrets = attempt.secrets()
        for secret in secrets or ():
            attempt.remove_self_mask(secret)
        return secrets is not None

    def _ask_to_reveal(self) -> list[bytes]:
        """At the lead receiver: this attempt will be opened, and no other of the session."""
        attempt = self.current
        if self._secrets.opening(attempt.number) != attempt.number:
            raise ProtocolError("another attempt of this session was to be opened: start a new session")
        attempt.opened = True
        others = sorted(attempt.group - {self.index})
        return [self._signed(Kind.OPEN, other, attempt.counted[other]) for other in others]

    def _new_attempt(self, number: int, members: frozenset[int] | None = None) -> Attempt:
        if not 1 <= number <= ATTEMPTS_MAX:
            raise ProtocolError(f"attempt {number} is more than a session allows ({ATTEMPTS_MAX}): start a new session")
        if number == 1 or not self.may_drop:
            members = frozenset(range(self.terms.count))
        elif self.is_lead:  # the group named first holds, also after a crash: it is stored before the key
            bits = self._secrets.group(number, to_bits(members, self.terms.count) if members else b"")
            if not bits:
                raise ProtocolError(f"the group of attempt {number} is lost: start a new session")
            members = from_bits(bits, self.terms.count)
        own = HybridKey(self._secrets.key(number))
        if members is not None:
            self.groups[number] = members
        nothing = np.zeros(self.terms.masked_words, dtype=word_type(self.terms.grid.word))
        return Attempt(self.terms, self.index, number, own=own, total=nothing, members=members)

    def _advance(self, number: int, members: frozenset[int]) -> list[bytes]:
        self.other_plans.clear()  # what they were told is sealed for the key of the attempt before
        self.current = self._new_attempt(number, members)
        # After the new key is stored: a crash must not bring the old one back.
        self._secrets.forget_before(number, self.may_drop)
        return self._announce()

    def _announce(self) -> list[bytes]:
        attempt = self.current
        public = attempt.own.public
        data = self._signed(Kind.KEYS, EVERYONE, public)
        attempt.keys[self.index] = public
        attempt.digests[self.index] = digest_of(data)
        if self.is_lead and self.may_drop and attempt.number > 1:
            bits = to_bits(self.groups[attempt.number], self.terms.count)
            return [self._signed(Kind.GROUP, EVERYONE, bits), data]
        return [data]

    def _bind(self) -> None:
        """Before anything leaves that rests on these keys."""
        attempt = self.current
        if not attempt.is_bound:
            attempt.check_keys()
            self.terms.check_group(self.index, attempt.group)
            if self._secrets.bind(self.attempt, attempt.transcript) != attempt.transcript:
                raise _rebound()
            attempt.is_bound = True

    def _list_keys(self) -> list[bytes]:
        """At the lead receiver: tell the others whose keys are in this attempt."""
        attempt = self.current
        if not self.is_lead or attempt.is_listed:
            return []
        attempt.is_listed = True
        nobody = bytes(HASH_BYTES)
        each = [attempt.digests[party] if party in attempt.group else nobody for party in range(self.terms.count)]
        return [self._signed(Kind.LIST, EVERYONE, b"".join(each))]

    def _send_pads(self) -> list[bytes]:
        attempt, sent = self.current, []
        if not attempt.pads_sent:
            others, bound = attempt.pads_to(), attempt.transcript
            capsules = {} if attempt.statistical else self._capsules({other: attempt.keys[other] for other in others})
            for other in others:
                if attempt.statistical:
                    pad = self._secrets.pad(attempt.number, other, self.terms.masked_bytes)
                    attempt.add_pad(other, pad)
                    sent.append(self._sealed(Kind.PAD, other, bound + pad))
                else:
                    sent.append(self._signed(Kind.PAD, other, capsules[other].ciphertext))
            attempt.pads_sent = True
            sent += self._share_seed()
        return sent

    def _share_seed(self) -> list[bytes]:
        """At a keeper: give all of the group their shares of the seed of its mask."""
        attempt = self.current
        if not attempt.is_keeper:
            return []
        random = self._self_mask()
        check = check_value(secret_of(random))
        shares = split(random, self.terms.openings, sorted(attempt.group))
        attempt.keep_share(self.index, check + shares.pop(self.index))
        self._capsules({other: attempt.keys[other] for other in shares})
        bound = attempt.transcript + check
        return [self._sealed(Kind.SHARE, other, bound + share) for other, share in shares.items()]

    def _submit(self) -> list[bytes]:
        attempt, terms = self.current, self.terms
        paired = self._pairs is not None and self.is_holder
        share = self._pairs.share(attempt.number) if self._pairs is not None and paired else None
        attempt.add_vector(self._vector(attempt.number, attempt.group) if share is None else share)
        sent = self._noted(attempt.number)  # with the charge
        if not attempt.statistical:
            attempt.add_pairwise_masks()
        if self.is_lead:
            attempt.submitted = attempt.counted[self.index] = attempt.digests[self.index]
            return sent
        if attempt.is_keeper:
            attempt.add_self_mask(secret_of(self._self_mask()))
        elif self.may_drop and attempt.statistical:
            attempt.add_self_mask(self._self_mask())
        content = attempt.transcript + attempt.total.tobytes()
        attempt.total = attempt.total[:0]
        data = self._sealed(Kind.SUBMIT, terms.lead, content)
        attempt.submitted = digest_of(data)
        submitted = Submitted(attempt.keys[terms.lead], attempt.submitted)
        if self.submissions.setdefault(attempt.number, submitted) != submitted:
            raise ProtocolError("somebody sent two kinds of keys in this attempt: stop, and start a new session")
        if not self._secrets.note_submission(attempt.number, submitted, attempt.transcript):
            raise _rebound()
        return [*sent, data]

    def _finish(self) -> list[bytes]:
        """At the lead receiver: all masks have cancelled."""
        attempt, terms = self.current, self.terms
        total = attempt.opened_sum()
        self.result = from_words(total, terms.grid.word)
        self._answered = attempt.number
        words, sent = total.tobytes(), []
        others = sorted(attempt.group - {self.index})
        self._capsules({other: attempt.keys[other] for other in others if terms.spec.receivers[other]})
        for other in others:
            if terms.spec.receivers[other]:
                sent.append(self._sealed(Kind.RESULT, other, words))
        if not all(terms.spec.receivers[other] for other in others):
            digests = [attempt.counted.get(party, b"")[:COUNTED_BYTES] for party in range(terms.count)]
            body = b"".join(digest.ljust(COUNTED_BYTES, b"\0") for digest in digests)
            sent.append(self._signed(Kind.RECEIPT, EVERYONE, body))
        return sent

    # Messages ---------------------------------------------------------------------------------------------------------

    def _self_mask(self) -> bytes:
        """This party's self-mask in this attempt, or the random bytes that it follows from."""
        size = self.terms.masked_bytes if self.current.statistical else KEEPER_BYTES
        return self._secrets.pad(self.attempt, self.index, size)

    def _opened(self, message: Message) -> bytes:
        """The content of a message of the attempt under way."""
        return self._open(self.current.own, self.current.keys[message.sender], message)

    def _capsules(self, publics: Mapping[int, bytes]) -> Mapping[int, Capsule]:
        """What we encapsulate to these keys of other parties in this attempt, stored before it leaves."""
        attempt = self.current
        missing = {other: public for other, public in publics.items() if other not in attempt.capsules}
        try:
            attempt.capsules |= self._secrets.capsules(attempt.number, missing) if missing else {}
        except InputError:
            bad = next(other for other, public in missing.items() if not is_usable(public))
            raise unusable_key(self.terms.spec.name(bad), bad) from None
        return attempt.capsules

    def _open(self, own: HybridKey, other: bytes, message: Message) -> bytes:
        try:
            return open_sealed(own, other, message)
        except MessageError as error:
            problem = f"{self.terms.spec.name(message.sender)}: {error}, stop"
            raise ProtocolError(problem, offender=message.sender) from None

    def _signed(self, kind: Kind, recipient: int, body: bytes, *, attempt: int | None = None) -> bytes:
        number = self.attempt if attempt is None else attempt
        return self._sender.signed(self._sender.envelope(kind, number, recipient), body)

    def _sealed(self, kind: Kind, recipient: int, content: bytes, key: bytes = b"") -> bytes:
        envelope, own = self._sender.envelope(kind, self.attempt, recipient), self.current.own
        public = key or self.current.keys[recipient]
        capsule = self._capsules({recipient: public})[recipient]
        try:
            return self._sender.sealed(envelope, own, public, capsule=capsule, content=content)
        except MessageError as error:
            problem = f"{self.terms.spec.name(recipient)}: {error}, stop"
            raise ProtocolError(problem, offender=recipient) from None


def _rebound() -> ProtocolError:
    """Masks of one attempt serve one group only, also across restarts and other processes of this party."""
    return ProtocolError("another group or other keys were named in this attempt before: stop")
