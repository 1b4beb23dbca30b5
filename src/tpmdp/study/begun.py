"""Sessions in a party's ledger besides the one it is asked for: those that were begun, and those of the same study."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Final

from tpmdp.ledger import Charge, Entry, Ledger, SessionKey, add_up, square_up
from tpmdp.ledger.entry import SESSION_BYTES, stand_in_plan
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, Earlier
from tpmdp.study.session import agreed_before

_ROUND: Final = re.compile(r"(.* / session \d+), round \d+", re.DOTALL)


def begun_sessions(ledger: Ledger) -> list[Begun]:
    """What the ledger holds or has charged, and has not settled; oldest first. A study by rounds counts once.

    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
    ...         key = SessionKey(bytes(32), bytes(32))
    ...         _ = ledger.hold(key, "flu / session 1", Charge(0.1, 0, 0.5, 1e-6), unit="record", private={})
    ...         begun = begun_sessions(ledger)
    >>> [(each.study, each.is_charged, each.has_agreed) for each in begun]
    [('flu / session 1', False, False)]
    """
    sessions: dict[SessionKey, Begun] = {}
    rounds = first_sessions(ledger)
    for entry in ledger.under_way():
        first = _first_round(ledger, entry, rounds)
        key = _key_of(ledger, first)
        before = sessions.get(key)
        is_charged = entry.is_charge or first.is_charge or (before is not None and before.is_charged)
        has_agreed = is_charged or agreed_before(ledger, key)
        time = (ledger.entries_of(key) or [first])[0].time
        sessions[key] = Begun(whole_label(entry.study), key, time, is_charged=is_charged, has_agreed=has_agreed)
    return list(sessions.values())


def _key_of(ledger: Ledger, entry: Entry) -> SessionKey:
    session = bytes.fromhex(entry.session)
    return SessionKey(session, bytes.fromhex(entry.plan) or ledger.charged_plan(session) or bytes(SESSION_BYTES))


def first_sessions(ledger: Ledger) -> dict[str, str]:
    """By the session of a later round that of the first, as their stand-ins tell.

    Labels do not tell: two consortia may call their studies the same.
    """
    entries = [each for each in ledger.entries() if each.plan and each.kind in ("hold", "charge")]
    firsts = {stand_in_plan(bytes.fromhex(each.plan)).hex(): each.session for each in entries}
    return {each.session: firsts[each.plan] for each in entries if each.plan in firsts}


def _first_round(ledger: Ledger, entry: Entry, rounds: Mapping[str, str]) -> Entry:
    """The entry of the first round, where this is one of a later round; what was charged counts before a hold."""
    if entry.session not in rounds:
        return entry
    first = rounds[entry.session]
    firsts = [each for each in ledger.entries() if each.session == first and each.kind in ("hold", "charge")]
    return max(firsts, key=lambda each: (each.is_charge, each.number), default=entry)


def whole_label(label: str) -> str:
    """The label of a session without that of a round.

    >>> whole_label("flu / session 2, round 3"), whole_label("flu / session 2")
    ('flu / session 2', 'flu / session 2')
    """
    match = _ROUND.fullmatch(label)
    return label if match is None else match[1]


def give_up(ledger: Ledger, holds: Sequence[Entry]) -> int:
    """Cancel these holds, and if they are of a study by rounds, all that is held for it; returns how many sessions."""
    given_up = list(holds)

    def chosen() -> list[SessionKey]:
        rounds = first_sessions(ledger)
        firsts = {rounds.get(each.session, each.session) for each in holds} & set(rounds.values())
        others = [each for each in ledger.holds() if rounds.get(each.session, each.session) in firsts]
        given_up.extend(each for each in others if each not in holds)
        return [_key_of(ledger, entry) for entry in given_up]

    ledger.cancel_all(chosen)
    return len({entry.session for entry in given_up})


def earlier_sessions(study: Study, ledger: Ledger, charge: Charge, *, session: bytes) -> Earlier | None:
    """The other sessions of this study in the ledger, as its labels name them; None if there is none.

    What protects a whole party protects each of its records, so such sessions count for a record, too.
    """
    rounds = first_sessions(ledger)
    units = ("party",) if study.unit == "party" else ("record", "party")
    entries = [
        entry
        for entry in ledger.entries()
        if entry.is_charge
        and rounds.get(entry.session, entry.session) != session.hex()
        and (entry.unit or ledger.unit) in units
        and study.is_session(entry.study)
    ]
    if not entries:
        return None
    squares = reduce(add_up, [square_up(entry.mu) for entry in entries], square_up(charge.mu))
    closeness = reduce(add_up, [entry.closeness for entry in entries], charge.closeness)
    labels = {whole_label(entry.study): entry.time for entry in entries}
    return Earlier(tuple(labels.items()), squares, closeness)


def withdrawal_text(study: Study | None = None) -> str:
    """What it means for the others if a party withdraws after its agreement has left."""
    if study is not None and not study.uses_relay:
        return (
            "The others are not told: they wait for you until their deadline. None of them is charged before all "
            "parties are connected. Tell them."
        )
    drop = "" if study is not None and not study.tolerate else ", unless the study lets enough parties drop out"
    return (
        "The others are not told, and your agreement may already be with them: it cannot be called back. Once all "
        f"have agreed, the others are charged, and without you they get no answer{drop}. Tell them."
    )
