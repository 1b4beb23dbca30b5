"""How far a party is in a study, by its ledger: one session, or several rounds. Nothing is changed."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from tpmdp.ledger import Ledger, SessionKey, Status
from tpmdp.ledger.entry import stand_in_plan
from tpmdp.protocol.terms import Terms, hash_label, session_id
from tpmdp.study.cost import joint_epsilon
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import RELEASE, key_of


@dataclass(frozen=True, eq=False)
class Reached:
    """A session of a study, as far as a ledger knows it."""

    study: Study
    terms: Terms
    status: Status
    release: PartyRelease | None  # of a session that is settled


def sessions_in(ledger: Ledger, study: Study, terms: Terms) -> list[Reached]:
    """The sessions of a study up to the one that goes on; `terms` are those of the first.

    The terms of a later round follow from what the rounds before it gave.
    """
    result: list[Reached] = []
    now = study.first
    while True:
        status = ledger.status(key_of(terms))
        stored = ledger.private_state(key_of(terms)).get(RELEASE) if status == "settled" else None
        release = None if stored is None else PartyRelease.of_plain(json.loads(stored))
        result.append(Reached(now, terms, status, release=release))
        if release is None or now.part is None or now.part.is_last:
            return result
        now = study.round(now.part.number + 1, release.points)
        terms = now.terms()


def stand_ins(whole: Study, first: Terms) -> list[SessionKey]:
    """What stands in a ledger for the rounds after the first while their plans, which bind points, are not known."""
    if whole.rounds == 1:
        return []
    part = whole.first.part
    assert part is not None
    plan = stand_in_plan(first.plan_hash)
    labels = [replace(whole.first, part=replace(part, number=number)).label for number in range(2, part.count + 1)]
    return [SessionKey(session_id(hash_label(label), first.roster), plan) for label in labels]


def status_of(reached: list[Reached]) -> Status:
    """How far the study is: that of its last round, or `charged` if only rounds before it are."""
    status = reached[-1].status
    return "charged" if len(reached) > 1 and status in ("unknown", "held") else status


def finished_release(study: Study, party: str, reached: list[Reached]) -> PartyRelease | None:
    """What a finished study gave; None if it is not finished."""
    done = [each.release for each in reached if each.release is not None]
    if len(done) < study.rounds:
        return None
    if study.rounds == 1:
        return done[0]
    epsilon = joint_epsilon(study, study.index(party), [each.terms for each in reached])
    return PartyRelease.of_rounds(done, study, epsilon=epsilon)


def rounds_text(reached: list[Reached]) -> str:
    """Which rounds are done, for people; empty for a study of one session, or if none is done.

    >>> rounds_text([])
    ''
    """
    part = reached[-1].study.part if reached else None
    if part is None or len(reached) == 1:
        return ""
    done = len(reached) - (reached[-1].release is None)
    return f"{'round 1' if done == 1 else f'rounds 1 to {done}'} of {part.count} {'is' if done == 1 else 'are'} done"
