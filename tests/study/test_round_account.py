"""A study by rounds in one party's ledger: withdrawn in between, mended, and of two consortia with one name."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.study.rounds import study_by_rounds, tables_for
from tpmdp import Ledger, Study
from tpmdp.ledger import LedgerError
from tpmdp.study.begun import begun_sessions, earlier_sessions, give_up
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.cost import all_terms, joint_charge
from tpmdp.study.release import PartyRelease
from tpmdp.study.round_account import RoundAccount
from tpmdp.study.rounds_join import PartyRounds
from tpmdp.study.session import check_room

OWN = Ed25519PrivateKey.generate()
POINTS = {"mean": (0.5,)}


def keyed(study: Study, own: str = "a") -> Study:
    """The study with fresh keys for all parties but one."""
    keys = {party.name: Ed25519PrivateKey.generate() for party in study.parties} | {own: OWN}
    return study.with_keys({name: key.public_key().public_bytes_raw() for name, key in keys.items()})


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "a.ledger", "a", 1.0, 1e-6) as made:
        yield made


def account(study: Study, ledger: Ledger, number: int = 1) -> RoundAccount:
    part = study.round(number, POINTS if number > 1 else {})
    return RoundAccount(part, part.terms(), "a", identity=OWN, ledger=ledger)


def agree(study: Study, ledger: Ledger, number: int = 1) -> RoundAccount:
    """Hold a round and agree to it, as `join` does."""
    now = account(study, ledger, number)
    table = tables_for(study)["a"] if number == 1 else now.columns()
    asked = study if number == 1 else study.round(number, POINTS)
    now.hold(contribute(asked, now._terms, "a", table))
    now.agree()
    return now


def finish(study: Study, ledger: Ledger, number: int) -> None:
    """One round from the hold to its end."""
    now = agree(study, ledger, number)
    charge(now)
    settle(now)


def charge(now: RoundAccount) -> None:
    contribution = now.stored_contribution()
    assert contribution is not None
    now.charge(contribution)


def settle(now: RoundAccount) -> None:
    now.settle(PartyRelease("a", (), "computational", 1.0, 1e-6, None, None, bytes_sent=0, attempt=1, points=POINTS))


def private(ledger: Ledger) -> set[str]:
    """The names of all private state, wherever it lies."""
    return {row[0] for row in ledger._read("SELECT name FROM private WHERE session <> 'witnessed'")}


def kinds(ledger: Ledger) -> list[str]:
    ledger.verify()
    return [entry.kind for entry in ledger.entries()][1:]


def test_a_withdrawn_study_is_neither_held_nor_charged_by_a_process_that_still_runs(ledger: Ledger) -> None:
    """The process has read the columns for round 2 when another one cancels what is held."""
    study = keyed(study_by_rounds("abc"))
    finish(study, ledger, 1)
    late = account(study, ledger, 2)
    contribution = contribute(study.round(2, POINTS), late._terms, "a", late.columns())
    give_up(ledger, ledger.holds()[:1])
    assert ledger.spent().held == 0
    before = kinds(ledger)
    for act in (late.hold, late.charge):
        with pytest.raises(LedgerError, match="was cancelled: set another number for the session in the study"):
            act(contribution)
    assert kinds(ledger) == before


def test_a_round_that_is_held_under_its_plan_is_withdrawn_with_the_others(ledger: Ledger) -> None:
    study = keyed(study_by_rounds("abc"))
    finish(study, ledger, 1)
    second = agree(study, ledger, 2)
    give_up(ledger, ledger.holds()[-1:])
    assert ledger.holds() == []
    with pytest.raises(LedgerError, match="was cancelled"):
        second.charge(contribute(study.round(2, POINTS), second._terms, "a", tables_for(study)["a"]))
    assert kinds(ledger).count("charge") == 1


def test_a_round_that_is_charged_is_charged_whatever_is_cancelled_later(ledger: Ledger) -> None:
    study = keyed(study_by_rounds("abc"))
    finish(study, ledger, 1)
    second = agree(study, ledger, 2)
    contribution = second.stored_contribution()
    assert contribution is not None
    first_time = second.charge(contribution).tobytes()
    give_up(ledger, ledger.holds())
    assert second.charge(contribution).tobytes() == first_time
    assert kinds(ledger).count("charge") == 2


def test_all_rounds_are_withdrawn_or_none(ledger: Ledger) -> None:
    study = keyed(study_by_rounds("abc"))
    agree(study, ledger)
    holds = ledger.holds()
    ended = replace(holds[-1], session="ee" * 32)
    with pytest.raises(LedgerError, match="is unknown, not held: nothing was changed"):
        give_up(ledger, [*holds, ended])
    assert ledger.holds() == holds


KEPT = {"plan", "data", "told"}  # of what is settled


def test_the_records_are_erased_by_the_charge_of_the_last_round(ledger: Ledger) -> None:
    """Whatever happens to the process after it."""
    study = keyed(study_by_rounds("abc"))
    for number in (1, 2):
        finish(study, ledger, number)
    last = agree(study, ledger, 3)
    assert "table" in private(ledger)
    charge(last)
    assert "table" not in private(ledger)
    again = account(study, ledger, 3)  # after a crash
    charge(again)
    settle(again)
    assert private(ledger) <= KEPT


def test_a_slow_process_does_not_bring_the_records_back(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has read what round 1 stores, and settles it when another process has done all rounds."""
    study = keyed(study_by_rounds("abc"))
    slow = agree(study, ledger)
    charge(slow)
    read_before = slow.stored()
    settle(account(study, ledger))
    for number in (2, 3):
        finish(study, ledger, number)
    monkeypatch.setattr(slow, "stored", lambda: read_before)
    settle(slow)
    assert private(ledger) <= KEPT


@pytest.mark.parametrize("number", [2, 3])
def test_a_process_goes_on_when_another_one_has_charged_all_rounds_meanwhile(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """It has found nothing stored for a round, and looks for the records when they are erased."""
    study = keyed(study_by_rounds("abc"))
    for done in range(1, number):
        finish(study, ledger, done)
    read, seen = RoundAccount.stored_contribution, list[Contribution]()

    def stored_contribution(self: RoundAccount) -> Contribution | None:
        before = read(self)
        monkeypatch.setattr(RoundAccount, "stored_contribution", read)
        for following in range(number, 4):
            finish(study, ledger, following)
        return before

    def session(contribution: Contribution) -> PartyRelease:
        seen.append(contribution)
        return account(study, ledger, number).release()

    monkeypatch.setattr(RoundAccount, "stored_contribution", stored_contribution)
    first = contribute(study, study.terms(), "a", tables_for(study)["a"])
    rounds = PartyRounds(first, OWN, ledger, session=session, stop=lambda _: None)
    now = study.round(number, POINTS)
    assert rounds._round(now, now.terms()).again
    assert [each.terms.session for each in seen] == [account(study, ledger, number).key.session]


def mended(study: Study) -> Study:
    """The same session with smaller budgets."""
    return replace(study, parties=tuple(replace(party, epsilon=party.epsilon * 0.9) for party in study.parties))


def test_what_a_mended_study_stored_before_is_erased_when_the_new_plan_is_charged(ledger: Ledger) -> None:
    study = keyed(study_by_rounds("abc"))
    old = agree(study, ledger)
    now = agree(mended(study), ledger)
    assert "table" in ledger.private_names(old.key)
    charge(now)
    assert ledger.private_names(old.key) == []
    with pytest.raises(LedgerError, match="was charged with another plan"):
        ledger.keep(old.key, "key 1", b"1")
    settle(now)
    for number in (2, 3):
        finish(mended(study), ledger, number)
    assert private(ledger) <= KEPT


def test_what_an_older_version_left_is_erased_when_the_last_round_is_repeated(ledger: Ledger) -> None:
    study = keyed(study_by_rounds("abc"))
    old = agree(study, ledger)
    for number in (1, 2, 3):
        finish(mended(study), ledger, number)
    last = account(mended(study), ledger, 3)
    for key in (old.key, last.stand_ins[-1]):
        ledger._connection.execute(
            "INSERT INTO private VALUES (?, 'table', x'00')", (key.session.hex() + key.plan.hex(),)
        )
    ledger.erase_other_plans(last.sessions)
    assert private(ledger) <= KEPT
    assert ledger.private_names(last.key) == ["data", "plan", "told"]


def test_studies_of_two_consortia_with_one_name_are_apart(ledger: Ledger) -> None:
    ledger.set_limit(9.0, 1e-6)
    ours, theirs = keyed(study_by_rounds("abc")), keyed(study_by_rounds("abc"))
    assert ours.label == theirs.label
    for study in (ours, theirs):
        agree(study, ledger)
    assert [each.key.session for each in begun_sessions(ledger)] == [ours.session_id, theirs.session_id]
    assert give_up(ledger, [each for each in ledger.holds() if each.session == ours.session_id.hex()]) == 3
    assert [each.key.session for each in begun_sessions(ledger)] == [theirs.session_id]
    for number in (1, 2, 3):
        finish(theirs, ledger, number)
    assert begun_sessions(ledger) == []


def test_rounds_of_another_consortium_count_as_earlier_sessions_and_those_of_the_study_do_not(ledger: Ledger) -> None:
    ledger.set_limit(9.0, 1e-6)
    done, other = keyed(study_by_rounds("abc")), keyed(study_by_rounds("abc"))
    for number in (1, 2, 3):
        finish(done, ledger, number)
    cost = joint_charge(other, 0, all_terms(other, other.terms()))
    assert earlier_sessions(done, ledger, cost, session=done.session_id) is None
    for study in (other, other.with_session(2), done.with_session(2)):
        earlier = earlier_sessions(study, ledger, cost, session=study.session_id)
        assert earlier is not None
        assert [label for label, _ in earlier.sessions] == [done.label]
        assert earlier.mu_squared > 1.9 * cost.mu**2


@pytest.mark.parametrize(("first", "second"), [(2, 4), (4, 2)])
def test_another_number_of_rounds_needs_no_further_room_and_leaves_nothing_held(
    ledger: Ledger, first: int, second: int
) -> None:
    """The limit is the budget, as of a new ledger."""
    old, new = keyed(study_by_rounds("abc", rounds=first)), study_by_rounds("abc", rounds=second)
    new = new.with_keys({party.name: party.public_key or b"" for party in old.parties})
    agree(old, ledger)
    check_room(new.first, new.terms(), 0, ledger=ledger)
    agree(new, ledger)
    assert ledger.spent().held == max(first, second)
    for number in range(1, second + 1):
        finish(new, ledger, number)
    assert ledger.holds() == []
    assert begun_sessions(ledger) == []
    assert kinds(ledger).count("charge") == second
    assert ledger.spent().epsilon <= 1.0
    assert private(ledger) <= KEPT


def test_the_plan_that_was_agreed_first_can_still_be_charged(ledger: Ledger) -> None:
    old = keyed(study_by_rounds("abc", rounds=4))
    new = study_by_rounds("abc", rounds=2).with_keys({party.name: party.public_key or b"" for party in old.parties})
    agree(old, ledger)
    late = agree(new, ledger)
    contribution = late.stored_contribution()
    assert contribution is not None
    for number in (1, 2, 3, 4):
        finish(old, ledger, number)
    with pytest.raises(LedgerError, match="was charged with another plan"):
        late.charge(contribution)
    assert ledger.holds() == []
    assert kinds(ledger).count("charge") == 4


def test_what_another_process_charges_between_two_looks_is_no_other_plan(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = keyed(study_by_rounds())
    finish(study, ledger, 1)
    part = study.round(2, POINTS)
    terms, plain, looks = part.terms(), Ledger.charged_plan, [0]

    def charged_plan(self: Ledger, session: bytes) -> bytes | None:
        looks[0] += 1
        if looks[0] == 2:  # after the first look, which finds nothing, the other process is at it
            charge(agree(study, ledger, 2))
        return plain(self, session)

    assert ledger.status(account(study, ledger, 2).key) == "unknown"
    monkeypatch.setattr(Ledger, "charged_plan", charged_plan)
    check_room(part, terms, 0, ledger=ledger)
    assert looks[0] > 2
    assert ledger.status(account(study, ledger, 2).key) == "charged"
