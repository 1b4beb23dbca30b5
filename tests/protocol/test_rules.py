"""The rules for messages: the table covers every kind, and every rule can be broken and is then named."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator

import pytest

from tests.protocol.holders import Stage
from tests.protocol.sessions import World, exchange
from tpmdp.errors import TpmdpError
from tpmdp.protocol.channel import SEAL_BYTES, seal
from tpmdp.protocol.group import to_bits
from tpmdp.protocol.hybrid import PUBLIC_BYTES, Capsule
from tpmdp.protocol.messages import EVERYONE, Kind, Message, MessageError, ProtocolError, TooEarlyError, decode, encode
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.rules import CONTENT_RULES, ENVELOPE_RULES, FORM_RULES, FORMS, ONCE, ONE_OPENING, STATE_RULES, Rule

ORDER = [Kind.AGREE, Kind.GROUP, Kind.KEYS, Kind.LIST, Kind.PAIRED, Kind.PAD, Kind.SHARE, Kind.SUBMIT, Kind.OPEN]
ORDER += [Kind.REVEAL, Kind.RESULT, Kind.RECEIPT, Kind.PARTS, Kind.NOTES]
Case = tuple[World, PartySession, Message]


def all_rules() -> Iterator[tuple[str, str]]:
    """Every rule, as the place where it stands and its name."""
    yield from (("envelope", rule.name) for rule in ENVELOPE_RULES)
    yield from (("form", rule.name) for rule in (*FORM_RULES, ONCE))
    for kind, rules in STATE_RULES.items():
        yield from ((kind.name, rule.name) for rule in rules)
    yield from ((kind.name, rule.name) for kind, rule in CONTENT_RULES.items())


def tolerant(**changes: object) -> World:
    return World(5, 1, [0, 4], tolerate=1, **changes)  # type: ignore[arg-type]


def world(**changes: object) -> World:
    return World(5, 3, [0, 4], **changes)  # type: ignore[arg-type]


def message(case: World, kind: Kind, sender: int, recipient: int, **changes: object) -> Message:
    """A message that fits the table, but for the changes."""
    form, terms = FORMS[kind], case.terms
    fitting = Message(
        kind,
        form.attempts[0],
        sender,
        recipient=EVERYONE if form.broadcast else recipient,
        session=terms.session,
        plan_hash=terms.plan_hash,
        body=bytes(form.length(terms)),
    )
    return dataclasses.replace(fitting, **changes)  # type: ignore[arg-type]


def started(case: World, index: int) -> PartySession:
    party = case.party(index)
    party.start()
    return party


def fresh(
    kind: Kind, sender: int, index: int, dropouts: bool = False, to: int | None = None, **changes: object
) -> Case:
    """A message for a party that has just started."""
    case = tolerant() if dropouts else world()
    bad = message(case, kind, sender, index, **changes)
    return case, started(case, index), bad if to is None else dataclasses.replace(bad, recipient=to)


def sealed(case: World, party: PartySession, kind: Kind, sender: int, *, content: bytes) -> Case:
    """A message of the attempt under way, sealed by a sender that breaks the protocol."""
    secrets = case.party(sender).current.own
    envelope = message(case, kind, sender, party.index, body=b"")
    public = party.current.keys[party.index]
    return case, party, seal(secrets, public, envelope, capsule=Capsule.to(public), content=content)


def after(kind: Kind, index: int, dropouts: bool = False, **changes: object) -> tuple[World, PartySession]:
    """A party that has received all that comes before messages of a kind."""
    case = tolerant(**changes) if dropouts else world(**changes)
    parties = case.parties()
    late = ORDER[ORDER.index(kind) :]
    exchange(parties, lambda to, data: [] if to == index and decode(data).kind in late else [data])
    return case, parties[index]


def pad_case() -> Case:
    case, party = after(Kind.PAD, 2, dropouts=True, guarantee="statistical")
    sender = min(party.current.pads_from())
    return sealed(case, party, Kind.PAD, sender, content=bytes(32 + case.terms.masked_bytes))


def submit_case(wrong: str) -> Case:
    case, lead = after(Kind.SUBMIT, 0, dropouts=True)
    if wrong == "member":
        lead.current.members = lead.current.group - {3}
        return case, lead, message(case, Kind.SUBMIT, 3, 0)
    return sealed(case, lead, Kind.SUBMIT, 1, content=bytes(32 + case.terms.masked_bytes))


def group_case(bits: bytes, opened: int = 0) -> Case:
    case = tolerant()
    party = started(case, 1)
    if opened:
        party._secrets.opening(opened)
    return case, party, message(case, Kind.GROUP, 0, 1, body=bits)


def two_groups() -> Case:
    case, party, first = group_case(to_bits(range(5), 5))
    party.receive(encode(first, case.identities[0]))
    restarted = case.party(1, attempt=2)
    restarted.start()
    restarted.current.members = frozenset(range(5))
    return case, restarted, dataclasses.replace(first, body=to_bits(range(4), 5))


def reveal_case() -> Case:
    case, lead = after(Kind.REVEAL, 0, dropouts=True)
    lead.current.members = lead.current.group - {3}
    return case, lead, message(case, Kind.REVEAL, 3, 0)


def other_share_case() -> Case:
    """A keeper's share for a group or for keys that the party knows nothing of."""
    case, lead = after(Kind.SHARE, 0, dropouts=True)
    size = FORMS[Kind.SHARE].length(case.terms) - SEAL_BYTES
    return sealed(case, lead, Kind.SHARE, lead.current.keepers[0], content=bytes(size))


def shareless_case() -> Case:
    """To be opened before the keepers' shares have come."""
    case = tolerant()
    parties, late = case.parties(), (Kind.SHARE, Kind.OPEN, Kind.RECEIPT)
    exchange(parties, lambda to, data: [] if to == 1 and decode(data).kind in late else [data])
    return case, parties[1], message(case, Kind.OPEN, 0, 1, body=parties[1].current.submitted)


def twice() -> Case:
    case, party, first = fresh(Kind.KEYS, 2, 0, body=bytes([9]) * PUBLIC_BYTES)
    party.receive(encode(first, case.identities[2]))
    return case, party, dataclasses.replace(first, body=bytes([8]) * PUBLIC_BYTES)


def known(kind: Kind, index: int) -> Case:
    """A false digest for a party that has submitted."""
    case, party = after(kind, index, dropouts=kind == Kind.OPEN)
    return case, party, message(case, kind, 0, index)


def ungrouped() -> Case:
    """To be opened after a restart, before the group of the attempt is known again."""
    case, party, first = group_case(to_bits(range(5), 5))
    party.submissions[2] = next(iter(after(Kind.OPEN, 1, dropouts=True)[1].submissions.values()))
    party.receive(encode(first, case.identities[0]))
    del party.groups[2]
    return case, party, message(case, Kind.OPEN, 0, 1, attempt=2)


def holder_case(kind: Kind, sender: int, *, has_submitted: bool = False, **changes: object) -> Case:
    """For a holder of columns."""
    stage = Stage()
    parties = stage.parties()
    if has_submitted:
        exchange(parties, lambda _, data: [] if decode(data).kind == Kind.RESULT else [data])
    return stage.world, parties[2], message(stage.world, kind, sender, 2, **changes)


CASES: dict[tuple[str, str], Callable[[], Case]] = {
    ("envelope", "session"): lambda: fresh(Kind.AGREE, 2, 1, session=bytes(32)),
    ("envelope", "known sender"): lambda: fresh(Kind.AGREE, 1, 1),
    ("envelope", "addressed"): lambda: fresh(Kind.SUBMIT, 2, 1, to=0),
    ("form", "body length"): lambda: fresh(Kind.KEYS, 2, 0, body=bytes(31)),
    ("form", "broadcast or to one party"): lambda: fresh(Kind.KEYS, 2, 0, to=0),
    ("form", "attempt"): lambda: fresh(Kind.GROUP, 0, 1, dropouts=True, attempt=1),
    ("form", "sender"): lambda: fresh(Kind.RESULT, 2, 4),
    ("form", "recipient"): lambda: fresh(Kind.RESULT, 0, 1),
    ("form", "drop-outs"): lambda: fresh(Kind.OPEN, 0, 1),
    ("form", ONCE.name): twice,
    ("KEYS", "after the group"): lambda: fresh(Kind.KEYS, 2, 1, dropouts=True, attempt=2),
    ("KEYS", "one submission"): lambda: holder_case(Kind.KEYS, 3, has_submitted=True, attempt=2),
    ("LIST", "after the group"): lambda: fresh(Kind.LIST, 0, 1, dropouts=True, attempt=2),
    ("LIST", "same keys"): lambda: fresh(Kind.LIST, 0, 1),
    ("PAIRED", "from a holder"): lambda: holder_case(Kind.PAIRED, 3),
    ("PAIRED", "after the keys"): lambda: holder_case(Kind.PAIRED, 1),
    ("PAD", "after the keys"): lambda: fresh(Kind.PAD, 2, 3),
    ("PAD", "same group and keys"): pad_case,
    ("SUBMIT", "after the keys"): lambda: fresh(Kind.SUBMIT, 2, 0),
    ("SUBMIT", "from a member"): lambda: submit_case("member"),
    ("SUBMIT", "same keys"): lambda: submit_case("content"),
    ("RESULT", "after the submission"): lambda: fresh(Kind.RESULT, 0, 4),
    ("RECEIPT", "after the submission"): lambda: fresh(Kind.RECEIPT, 0, 1),
    ("RECEIPT", "own submission"): lambda: known(Kind.RECEIPT, 1),
    ("GROUP", "valid group"): lambda: group_case(b"\xff"),
    ("GROUP", "enough parties"): lambda: group_case(to_bits({0, 1}, 5)),
    ("GROUP", ONE_OPENING.name): lambda: group_case(to_bits(range(5), 5), opened=1),
    ("GROUP", "one group"): two_groups,
    ("OPEN", "after the submission"): lambda: fresh(Kind.OPEN, 0, 1, dropouts=True),
    ("OPEN", "after the group"): ungrouped,
    ("OPEN", "own submission"): lambda: known(Kind.OPEN, 1),
    ("OPEN", "after the shares"): shareless_case,
    ("SHARE", "after the keys"): lambda: fresh(Kind.SHARE, 2, 3, dropouts=True),
    ("SHARE", "same group and keys"): other_share_case,
    ("REVEAL", "after the submissions"): lambda: fresh(Kind.REVEAL, 2, 0, dropouts=True),
    ("REVEAL", "from a member"): reveal_case,
}


def test_the_tables_cover_every_kind() -> None:
    kinds = set(Kind) - {Kind.PARTS, Kind.NOTES}  # which go between parties with any plans
    assert set(FORMS) == set(STATE_RULES) == set(PartySession._handlers) == kinds
    assert set(CONTENT_RULES) <= kinds


def test_a_share_of_a_party_that_is_no_keeper_is_ignored() -> None:
    case, lead = after(Kind.SHARE, 0, dropouts=True)
    sender = next(party for party in range(1, 5) if party not in lead.current.keepers)
    assert lead.receive(encode(message(case, Kind.SHARE, sender, 0), case.identities[sender])) == []
    assert sender not in lead.current.shares


def test_rules_of_one_kind_have_different_names() -> None:
    every = [*ENVELOPE_RULES, *FORM_RULES, ONCE]
    for kind, rules in STATE_RULES.items():
        content = [CONTENT_RULES[kind].name] if kind in CONTENT_RULES else []
        names = [rule.name for rule in (*every, *rules)] + content
        assert len(set(names)) == len(names)


def test_every_rule_has_a_message_that_breaks_it() -> None:
    assert sorted(CASES) == sorted(set(all_rules()))


@pytest.mark.parametrize(("place", "name"), sorted(set(all_rules())))
def test_a_broken_rule_is_named(place: str, name: str) -> None:
    case, party, bad = CASES[place, name]()
    error = error_of(place, name)
    before = (party.attempt, dict(party.current.keys), set(party.agreed), dict(party.groups), party.done)
    with pytest.raises(error) as caught:
        party.receive(encode(bad, case.identities[bad.sender]))
    assert type(caught.value) is error
    assert str(caught.value).endswith(f"(rule: {name})")
    if error is ProtocolError:
        assert str(caught.value).startswith(f"{case.terms.spec.name(bad.sender)} ")
    assert before == (party.attempt, dict(party.current.keys), set(party.agreed), dict(party.groups), party.done)


def error_of(place: str, name: str) -> type[TpmdpError]:
    if place in ("envelope", "form"):
        return MessageError if place == "envelope" else ProtocolError
    rules: dict[str, Rule] = {rule.name: rule for rule in STATE_RULES[Kind[place]]}
    error = rules[name].error if name in rules else ProtocolError
    assert error in (ProtocolError, TooEarlyError)
    return error


@pytest.mark.parametrize("kind", list(FORMS))
def test_every_column_of_the_table_is_checked_for_every_kind(kind: Kind) -> None:
    """A message that fits the table passes; each column broken alone is refused by its name."""
    form, case = FORMS[kind], tolerant()
    anyone = 0 if form.sender == "anyone" else 1  # others look at keys and agreements later, or never
    recipient = {"lead receiver": 0, "receiver": 4, "anyone": anyone}[form.recipient]
    sender = {"lead receiver": 0, "anyone": 2}[form.sender]
    good = message(case, kind, sender, recipient)
    breaks = {
        "body length": dataclasses.replace(good, body=good.body + b"x"),
        "broadcast or to one party": dataclasses.replace(good, recipient=recipient if form.broadcast else EVERYONE),
        "attempt": dataclasses.replace(good, attempt=1 if kind == Kind.AGREE else form.attempts[0] - 1),
    }
    if form.sender == "lead receiver":
        breaks["sender"] = dataclasses.replace(good, sender=2 if recipient != 2 else 3)
    for name, bad in breaks.items():
        with pytest.raises(ProtocolError, match=rf"\(rule: {name}\)$"):
            started(case, recipient).receive(encode(bad, case.identities[bad.sender]))
    if form.recipient != "anyone":
        wrong = {"lead receiver": 1, "receiver": 1}[form.recipient]
        bad = dataclasses.replace(good, recipient=wrong, sender=sender if sender != wrong else 3)
        with pytest.raises(ProtocolError, match=r"\(rule: recipient\)$"):
            started(case, wrong).receive(encode(bad, case.identities[bad.sender]))
    if form.only_with_dropouts:
        strict = world()
        bad = message(strict, kind, sender, recipient)
        with pytest.raises(ProtocolError, match=r"\(rule: drop-outs\)$"):
            started(strict, recipient).receive(encode(bad, strict.identities[bad.sender]))
