"""What one party knows in a session, and what follows from it. `party` changes this state; `rules` refer to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Final

from tpmdp._util.arrays import IntArray
from tpmdp.protocol.attempt import Attempt
from tpmdp.protocol.messages import Kind, Message
from tpmdp.protocol.parts import difference_text
from tpmdp.protocol.secrets import Secrets, Submitted
from tpmdp.protocol.terms import Terms

FEW: Final = 64  # among so many parties, each hears of all
WITNESSES: Final = 16  # otherwise, the parties whose notes each keeps


def everybody(count: int) -> frozenset[int]:
    """All parties.

    >>> sorted(everybody(3))
    [0, 1, 2]
    """
    return frozenset(range(count))


class PartyState:
    """The state of one party in one session. Nothing here changes it."""

    current: Attempt

    def __init__(self, terms: Terms, index: int, secrets: Secrets, holders: frozenset[int] = frozenset()) -> None:
        """`holders` are the parties that compute together before the sum, if any; see `pair_step`."""
        self.terms, self.index, self.holders = terms, index, holders
        self.result: IntArray | None = None  # receivers: the sum, in grid steps
        self.receipt = False  # others: the lead receiver counted this party's submission
        self.agreed: set[int] = set()
        self.groups: dict[int, frozenset[int]] = {1: frozenset(range(terms.count))}  # by attempt
        self.submissions = secrets.submissions()  # by attempt, including those before a restart
        self.other_plans: dict[int, dict[tuple[bytes, int], bytes]] = {}  # their keys, by plan and attempt
        self.differences: dict[int, list[str]] = {}  # what such a party has that we have not, in words
        self._secrets = secrets
        self._answered = 0  # the attempt whose answer this party has

    def __repr__(self) -> str:
        return f"PartySession({self.terms.spec.name(self.index)}, attempt {self.attempt})"

    @property
    def attempt(self) -> int:
        """The attempt this party is in."""
        return self.current.number

    @property
    def newest(self) -> int:
        """The highest attempt that this party is in or has heard of."""
        return max(self.attempt, *self.groups)

    @property
    def opened_attempt(self) -> int:
        """The one attempt of the session that may be opened; 0 if none was chosen yet."""
        return self._secrets.opening(0)

    @property
    def members(self) -> frozenset[int]:
        """The parties counted in the answer this party has, or in the attempt under way."""
        return self.groups.get(self._answered or self.attempt, frozenset())

    @property
    def left_out(self) -> bool:
        """Whether the lead receiver went on without this party."""
        return self.newest > self.attempt and self.index not in self.groups.get(self.newest, frozenset())

    @property
    def is_holder(self) -> bool:
        """Whether this party computes with others before the sum."""
        return self.index in self.holders

    @property
    def may_drop(self) -> bool:
        """Whether parties may drop out of this session."""
        return self.terms.tolerate > 0

    @property
    def is_lead(self) -> bool:
        """Whether this party adds up the submissions."""
        return self.index == self.terms.lead

    @property
    def is_receiver(self) -> bool:
        """Whether this party learns the answer."""
        return bool(self.terms.spec.receivers[self.index])

    @property
    def done(self) -> bool:
        """Whether this party has all it will get."""
        return self.result is not None or self.receipt

    @property
    def ready(self) -> bool:
        """Whether the keys that this party uses are here, all of one list. Nothing that depends on data leaves before.

        The lead receiver needs those of all; they are signed, and so is the plan hash in them.
        """
        current = self.current
        if current.members is None or not (self.is_lead or current.is_listed):
            return False
        if self.is_lead and not current.members <= self.agreed & set(current.keys):
            return False
        return current.needed <= set(current.keys)

    @property
    def can_open(self) -> bool:
        """Whether this party has all that it would reveal to open the attempt under way."""
        return not self.terms.has_keepers or (self.ready and self.current.has_all_shares)

    @property
    def step(self) -> str:
        """Where this party stands: agree, group, keys, pairs, pads, submit, reveal, receive or done."""
        if self.done:
            return "done"
        members = self.current.members
        if members is None:
            return "group"
        if not self.ready:
            knows_all = self.is_lead or not self.is_large
            return "agree" if knows_all and not members <= self.agreed else "keys"
        if self.current.opened:
            return "reveal"
        if not self.holders <= self.current.paired:
            return "pairs"
        return "receive" if self.current.submitted else "pads"

    @property
    def expects(self) -> frozenset[Kind]:
        """Kinds of message that can be used now. Asking for no others keeps a receiver's memory at one vector."""
        kinds = {Kind.KEYS, Kind.NOTES} | (set() if self.is_lead or self.ready else {Kind.LIST})
        if self.other_plans and not self.ready:
            kinds.add(Kind.PARTS)
        if self.is_lead and self.step == "agree":
            kinds.add(Kind.AGREE)
        if self.may_drop and not self.is_lead:
            kinds.add(Kind.GROUP)
            if self.can_open and self.attempt in self.submissions:  # a relay hands over an early one once
                kinds.add(Kind.OPEN)
        if self.step == "reveal":
            kinds.add(Kind.REVEAL)
        if self.ready and not self.current.has_all_shares:
            kinds.add(Kind.SHARE)
        if self.step == "pads":
            kinds.add(Kind.PAD)
        if self.step == "pairs":
            kinds.add(Kind.PAIRED)
        if self.step == "receive" and self.is_lead:
            kinds.add(Kind.SUBMIT)
        if self.submissions and not self.is_lead:  # the answer may be to an earlier attempt
            kinds.add(Kind.RESULT if self.is_receiver else Kind.RECEIPT)
        return frozenset(kinds)

    @property
    def is_large(self) -> bool:
        """Whether there are too many parties for each to hear of all."""
        return self.terms.count > FEW

    @cached_property
    def witnesses(self) -> frozenset[int]:
        """The parties whose notes this party reads: those that keep its own, and those whose notes it keeps."""
        count = self.terms.count
        near = (offset for offset in range(-WITNESSES, WITNESSES + 1) if offset)
        return frozenset((self.index + offset) % count for offset in near) if self.is_large else everybody(count)

    @property
    def senders(self) -> Mapping[Kind, frozenset[int]]:
        """From whom messages of some kinds are of use, among many parties; of all other kinds, from everybody."""
        if not self.is_large:
            return {}
        some = {Kind.NOTES: self.witnesses}
        if not self.is_lead:
            needed = self.current.needed if self.current.is_listed else {self.terms.lead}
            some |= {Kind.KEYS: frozenset(needed - {self.index}), Kind.AGREE: frozenset()}
        return some

    @property
    def missing(self) -> int:
        """How many messages are missing before this party can do more than store them."""
        members = self.current.members
        if self.step in ("agree", "keys") and members is not None:
            if self.is_large and not self.is_lead:
                return len(self._keys_missing())
            if not self.is_lead:
                return len(members - self.agreed) + (not self.current.is_listed)
            return len(members - self.agreed) + len(members - set(self.current.keys))
        if self.step == "reveal" and self.terms.has_keepers:
            return max(1, self.terms.openings - len(self.current.revealed))
        return len(self.waiting_for()) if self.step in ("pairs", "pads", "reveal") else 1

    def waiting_for(self) -> list[int]:
        """The parties whose message is missing now."""
        step, current, everyone = self.step, self.current, self.current.group
        if step == "pads":  # whose pads, follows from the keys
            return sorted(current.pads_from() - set(current.padded))
        missing = {
            "agree": everyone - self.agreed,
            "group": {self.terms.lead},
            "keys": self._keys_missing() if step == "keys" else set(),
            "pairs": self.holders - current.paired - {self.index},
            "receive": everyone - set(current.counted) if self.is_lead else {self.terms.lead},
            "reveal": everyone - set(current.revealed) - {self.index},
            "done": set(),
        }
        return sorted(missing[step])

    def _keys_missing(self) -> set[int]:
        current = self.current
        if not self.is_lead and not current.is_listed:
            return {self.terms.lead}
        return current.needed - set(current.keys)

    @property
    def awaited(self) -> str:
        """What is missing from each of the parties in `waiting_for`."""
        if self.step == "receive" and not self.is_lead:
            return "answer"
        if self.step == "keys" and not (self.is_lead or self.current.is_listed):
            return "list of keys"
        what = {"agree": "agreement", "keys": "key", "pairs": "computation in pairs", "pads": "mask"}
        what |= {"receive": "submission", "reveal": "opening"}
        return what.get(self.step, "message")

    def difference_texts(self) -> list[str]:
        """One line for each party that has another study or plan."""
        return [difference_text(self.terms.spec.name(party), parts) for party, parts in self.differences.items()]

    def answers_submission(self, message: Message) -> bool:
        """Whether this party has submitted to the message's attempt and knows its group."""
        return message.attempt in self.submissions and message.attempt in self.groups

    def submission(self, message: Message) -> Submitted:
        """This party's submission to the message's attempt."""
        return self.submissions[message.attempt]
