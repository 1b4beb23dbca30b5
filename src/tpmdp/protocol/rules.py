"""What each kind of message must look like. A refusal names the rule that the message breaks.

`FORMS` is the table of kinds among parties with the same plan: who sends a message to whom, in which attempts, and what
its body holds. The rules check
that table (`FORM_RULES`), what the recipient must have seen before (`STATE_RULES`) and what a sealed message must agree
with (`CONTENT_RULES`). A message that breaks one of `ENVELOPE_RULES` proves nothing against anybody and is dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from tpmdp.errors import TpmdpError
from tpmdp.protocol.channel import SEAL_BYTES
from tpmdp.protocol.group import from_bits
from tpmdp.protocol.hybrid import CIPHERTEXT_BYTES, PUBLIC_BYTES
from tpmdp.protocol.messages import (
    ATTEMPTS_MAX,
    EVERYONE,
    HASH_BYTES,
    Kind,
    Message,
    MessageError,
    ProtocolError,
    TooEarlyError,
)
from tpmdp.protocol.shares import SHARE_BYTES
from tpmdp.protocol.state import PartyState
from tpmdp.protocol.terms import Terms

COUNTED_BYTES: Final = HASH_BYTES // 2
Role = Literal["anyone", "lead receiver", "receiver"]
Part = Literal["key", "hash", "list", "counted", "group", "opening", "share", "pad", "masked", "words", "seal"]


@dataclass(frozen=True)
class Form:
    """One row of the table: what a kind of message looks like, whatever its recipient has seen."""

    body: tuple[Part, ...]
    broadcast: bool = False
    sender: Role = "anyone"
    recipient: Role = "anyone"
    attempts: range = range(1, ATTEMPTS_MAX + 1)
    only_with_dropouts: bool = False  # only where parties may drop out

    def length(self, terms: Terms) -> int:
        """The length of the body."""
        is_statistical = terms.guarantee == "statistical"
        sizes: dict[Part, int] = {
            "key": PUBLIC_BYTES,
            "hash": HASH_BYTES,
            "list": HASH_BYTES * terms.count,
            "counted": COUNTED_BYTES * terms.count,
            "pad": SEAL_BYTES + HASH_BYTES + terms.masked_bytes if is_statistical else CIPHERTEXT_BYTES,
            "group": (terms.count + 7) // 8,
            "opening": opening_bytes(terms),
            "share": HASH_BYTES + SHARE_BYTES,
            "masked": terms.masked_bytes,
            "words": terms.words_bytes,
            "seal": SEAL_BYTES,
        }
        return sum(sizes[part] for part in self.body)


def opening_bytes(terms: Terms) -> int:
    """Size of what a party reveals: its self-mask in statistical mode, otherwise its shares of all seeds."""
    return terms.masked_bytes if terms.guarantee == "statistical" else terms.keepers_max * SHARE_BYTES


FORMS: Final = {
    Kind.AGREE: Form((), broadcast=True, attempts=range(1)),
    Kind.KEYS: Form(("key",), broadcast=True),
    Kind.LIST: Form(("list",), broadcast=True, sender="lead receiver"),
    Kind.PAD: Form(("pad",)),
    Kind.PAIRED: Form((), broadcast=True),
    Kind.SUBMIT: Form(("seal", "hash", "masked"), recipient="lead receiver"),
    Kind.RESULT: Form(("seal", "words"), sender="lead receiver", recipient="receiver"),
    Kind.RECEIPT: Form(("counted",), broadcast=True, sender="lead receiver"),
    Kind.GROUP: Form(
        ("group",),
        broadcast=True,
        sender="lead receiver",
        attempts=range(2, ATTEMPTS_MAX + 1),  # all parties are in the first attempt
        only_with_dropouts=True,
    ),
    Kind.OPEN: Form(("hash",), sender="lead receiver", only_with_dropouts=True),
    Kind.REVEAL: Form(("seal", "opening"), recipient="lead receiver", only_with_dropouts=True),
    Kind.SHARE: Form(("seal", "hash", "share"), only_with_dropouts=True),
}


@dataclass(frozen=True)
class Rule:
    """A rule with its name. `fault` says what the sender did; `error` is what breaking the rule means."""

    name: str
    fault: str
    holds: Callable[[PartyState, Message], bool]
    error: type[TpmdpError] = ProtocolError

    def refuse(self, state: PartyState, message: Message) -> TpmdpError:
        """The error for a message that breaks this rule."""
        fault = self.fault.format(
            kind=message.kind.name, theirs=message.plan_hash.hex()[:12], ours=state.terms.plan_hash.hex()[:12]
        )
        if self.error is ProtocolError:
            fault = f"{state.terms.spec.name(message.sender)} {fault}: stop"
            return ProtocolError(f"{fault} (rule: {self.name})", offender=message.sender)
        return self.error(f"{fault} (rule: {self.name})")


def check(rules: Iterable[Rule], state: PartyState, message: Message) -> None:
    """Raise the error of the first rule that the message breaks."""
    for rule in rules:
        if not rule.holds(state, message):
            raise rule.refuse(state, message)


# For every kind of message --------------------------------------------------------------------------------------------

ENVELOPE_RULES: Final = (
    Rule(
        "session",
        "a message of another session",
        lambda state, message: message.session == state.terms.session,
        error=MessageError,
    ),
    Rule(
        "known sender",
        "a message from nobody else in this session",
        lambda state, message: message.sender < state.terms.count and message.sender != state.index,
        error=MessageError,
    ),
    Rule(
        "addressed",
        "a message to somebody else",
        lambda state, message: message.recipient in (state.index, EVERYONE),
        error=MessageError,
    ),
)


def _has_role(role: Role, party: int, terms: Terms) -> bool:
    if role == "anyone":
        return True
    if role == "lead receiver":
        return party == terms.lead
    return bool(terms.spec.receivers[party])


_BREAKS: Final = "sent a {kind} message that breaks the protocol"
FORM_RULES: Final = (
    Rule("body length", _BREAKS, lambda state, message: len(message.body) == FORMS[message.kind].length(state.terms)),
    Rule(
        "broadcast or to one party",
        _BREAKS,
        lambda _, message: (message.recipient == EVERYONE) == FORMS[message.kind].broadcast,
    ),
    Rule("attempt", _BREAKS, lambda _, message: message.attempt in FORMS[message.kind].attempts),
    Rule(
        "sender",
        _BREAKS,
        lambda state, message: _has_role(FORMS[message.kind].sender, message.sender, state.terms),
    ),
    Rule(
        "recipient",
        _BREAKS,
        lambda state, message: _has_role(FORMS[message.kind].recipient, state.index, state.terms),
    ),
    Rule(
        "drop-outs",
        _BREAKS,
        lambda state, message: state.may_drop or not FORMS[message.kind].only_with_dropouts,
    ),
)
ONCE: Final = Rule("one message each", "sent two different {kind} messages", lambda _state, _message: False)


# By kind --------------------------------------------------------------------------------------------------------------


def group_of(state: PartyState, message: Message) -> frozenset[int] | None:
    """The parties that a GROUP message names; None if its bits are not valid."""
    try:
        return from_bits(message.body, state.terms.count)
    except MessageError:
        return None


def _is_large_enough(state: PartyState, message: Message) -> bool:
    members = group_of(state, message) or frozenset()
    return state.terms.lead in members and state.terms.count - len(members) <= state.terms.tolerate


def _names_one_group(state: PartyState, message: Message) -> bool:
    members = group_of(state, message) or frozenset()
    if state.index not in members or message.attempt > state.attempt:
        return True
    return state.current.members in (None, members)


def _is_counted(state: PartyState, message: Message) -> bool:
    """Whether the lead receiver has counted what we have submitted."""
    digest = state.submission(message).digest
    if message.kind == Kind.OPEN:
        return message.body == digest
    return message.body[state.index * COUNTED_BYTES :][:COUNTED_BYTES] == digest[:COUNTED_BYTES]


def _lists_known_keys(state: PartyState, message: Message) -> bool:
    known = state.current.digests
    own, lead = state.index, state.terms.lead
    return all(listed(message.body, party) == known[party] for party in (own, lead) if party in known)


def listed(body: bytes, party: int) -> bytes:
    """The digest of a party in a LIST."""
    return body[HASH_BYTES * party : HASH_BYTES * (party + 1)]


_ANSWERS: Final = Rule(
    "after the submission",
    "an answer before our submission, or before we know its group",
    lambda state, message: state.answers_submission(message),
    error=TooEarlyError,
)
_COUNTED: Final = "counted something that we did not submit"
ONE_OPENING: Final = Rule(
    "one opening",
    "wants to open a second time",
    lambda state, message: not state.opened_attempt or message.attempt <= state.opened_attempt,
)
STATE_RULES: Final[dict[Kind, tuple[Rule, ...]]] = {
    Kind.AGREE: (),
    Kind.KEYS: (
        Rule(
            "after the group",
            "a key before we know who is in the attempt",
            lambda state, message: message.attempt <= state.attempt or not state.may_drop,
            error=TooEarlyError,
        ),
        Rule(
            "one submission",
            "wants a new attempt after we have submitted our share of what was computed in pairs",
            lambda state, message: message.attempt <= state.attempt or not (state.is_holder and state.submissions),
        ),
    ),
    Kind.LIST: (
        Rule(
            "after the group",
            "a list of keys before we know who is in the attempt",
            lambda state, message: message.attempt <= state.attempt and state.current.members is not None,
            error=TooEarlyError,
        ),
        Rule("same keys", "lists another key than we have sent, or than it has", _lists_known_keys),
    ),
    Kind.PAIRED: (
        Rule("from a holder", _BREAKS, lambda state, message: message.sender in state.holders),
        Rule(
            "after the keys",
            "a share in place before the keys",
            lambda state, message: message.attempt <= state.attempt and state.ready,
            error=TooEarlyError,
        ),
    ),
    Kind.PAD: (
        Rule(
            "after the keys",
            "a pad before the keys",
            lambda state, message: message.attempt <= state.attempt and state.ready,
            error=TooEarlyError,
        ),
    ),
    Kind.SUBMIT: (
        Rule(
            "after the keys",
            "a submission before the keys",
            lambda state, message: message.attempt <= state.attempt and bool(state.current.submitted),
            error=TooEarlyError,
        ),
        Rule(
            "from a member",
            "submitted to an attempt it is not in",
            lambda state, message: message.sender in state.current.group,
        ),
    ),
    Kind.RESULT: (_ANSWERS,),
    Kind.RECEIPT: (_ANSWERS, Rule("own submission", _COUNTED, _is_counted)),
    Kind.GROUP: (
        Rule(
            "valid group",
            "sent a group that names nobody",
            lambda state, message: group_of(state, message) is not None,
        ),
        Rule("enough parties", "went on with too few parties", _is_large_enough),
        ONE_OPENING,
        Rule("one group", "named two groups for one attempt", _names_one_group),
    ),
    Kind.OPEN: (  # of an attempt that was given up since, it is ignored
        Rule(
            "after the submission",
            "to be opened before our submission",
            lambda state, message: message.attempt <= state.attempt and message.attempt in state.submissions,
            error=TooEarlyError,
        ),
        Rule(
            "after the group",
            "to be opened before we know its group",
            lambda state, message: message.attempt < state.newest or state.answers_submission(message),
            error=TooEarlyError,
        ),
        Rule(
            "own submission",
            _COUNTED,
            lambda state, message: message.attempt < state.newest or _is_counted(state, message),
        ),
        Rule(
            "after the shares",
            "to be opened before we have our shares",
            lambda state, message: message.attempt < state.newest or state.can_open,
            error=TooEarlyError,
        ),
    ),
    Kind.REVEAL: (
        Rule(
            "after the submissions",
            "an opening before all have submitted",
            lambda state, message: message.attempt <= state.attempt and state.current.opened,
            error=TooEarlyError,
        ),
        Rule(
            "from a member",
            "revealed in an attempt it is not in",
            lambda state, message: message.sender in state.current.group,
        ),
    ),
    Kind.SHARE: (
        Rule(
            "after the keys",
            "a share before the keys",
            lambda state, message: message.attempt <= state.attempt and state.ready,
            error=TooEarlyError,
        ),
    ),
}


@dataclass(frozen=True)
class ContentRule:
    """A rule about the content of a sealed message: what comes before its words."""

    name: str
    fault: str
    expected: Callable[[PartyState], bytes]

    def check(self, state: PartyState, message: Message, content: bytes) -> bytes:
        """What follows; refused if it comes with anything but what is expected."""
        expected = self.expected(state)
        split = len(expected)
        if content[:split] != expected:
            sender = state.terms.spec.name(message.sender)
            problem = f"{sender} {self.fault}: stop (rule: {self.name})"
            raise ProtocolError(problem, offender=message.sender)
        return content[split:]


CONTENT_RULES: Final = {
    Kind.PAD: ContentRule(
        "same group and keys", "saw another group or other keys than we did", lambda state: state.current.transcript
    ),
    Kind.SHARE: ContentRule(
        "same group and keys", "saw another group or other keys than we did", lambda state: state.current.transcript
    ),
    Kind.SUBMIT: ContentRule(
        "same keys",
        "saw other keys than we did, so somebody sent two kinds",
        lambda state: state.current.transcript,
    ),
}
