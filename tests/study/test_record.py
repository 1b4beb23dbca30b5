"""The record of a session: what it proves, and that no part of it can be changed unnoticed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.study.sessions import Finished, finish, study
from tpmdp import InputError, Ledger
from tpmdp.errors import CertificateError
from tpmdp.ledger import Entry
from tpmdp.ledger.entry import COLUMNS, entry_hash
from tpmdp.study.party_record import OpenPoints
from tpmdp.study.record import SessionRecord

Document = dict[str, Any]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    return finish(study(), tmp_path_factory.mktemp("ledgers"))


def record(done: Finished, *names: str, with_answer: bool = False) -> SessionRecord:
    ledgers = [done.ledger(name) for name in names]
    try:
        return SessionRecord.of(done.study, ledgers, with_answer=with_answer)
    finally:
        for ledger in ledgers:
            ledger.close()


def test_a_record_says_what_it_proves_and_survives_its_document(done: Finished) -> None:
    first = record(done, "lab", "north", with_answer=True)
    again = SessionRecord.parse(json.loads(first.text()))
    assert again.text() == first.text()
    assert [each.party for each in first.parties] == ["north", "lab"]  # in the study's order
    statements = "\n".join(again.check())
    assert "every budget holds against coalitions of up to 1, proved in exact arithmetic" in statements
    assert "the entries of north in this file fit together: charged epsilon" in statements
    with done.ledger("north") as ledger:
        compared = again.check_ledger(ledger)
    assert compared.proved[0] == "the ledger of north has these entries, this limit and this head"
    assert compared.proved[1] == "the answer is the one in the ledger of north"


def test_without_the_answer_no_number_of_it_is_inside(done: Finished) -> None:
    answers = record(done, "north", with_answer=True).answers
    assert answers is not None
    text = record(done, "north", "south", "lab").text()
    assert repr(answers[0].value)[:8] not in text
    assert json.loads(text)["answers"] is None


def test_only_a_receiver_has_the_answer(done: Finished) -> None:
    with pytest.raises(InputError, match=r"has no answer of this session: give the ledger of a receiver .* north, lab"):
        record(done, "south", with_answer=True)
    with pytest.raises(InputError, match="only a receiver's ledger has the answer"):
        record(done, with_answer=True)


def test_a_plan_without_keys_is_a_draft() -> None:
    draft = SessionRecord.of(study())
    assert draft.is_draft
    assert draft.check()[-1] == "not all parties have keys yet: nothing was signed or charged"
    assert SessionRecord.parse(json.loads(draft.text())).text() == draft.text()


def test_ledgers_that_do_not_belong_are_refused(done: Finished, tmp_path: Path) -> None:
    other = finish(study(), tmp_path)
    with other.ledger("north") as ledger, pytest.raises(InputError, match="whose key is not in the study"):
        SessionRecord.of(done.study, [ledger])
    with done.ledger("north") as ledger:
        with pytest.raises(InputError, match="has no entry of test / session 2"):
            SessionRecord.of(done.study.with_session(2), [ledger])
        with pytest.raises(InputError, match="has no public keys"):
            SessionRecord.of(study(), [ledger])
        with pytest.raises(InputError, match="has a party twice"):
            SessionRecord.of(done.study, [ledger, ledger])
        asked = [{"name": "old", "kind": "count", "column": "age", "at_least": 99}]
        keys = {party.name: party.public_key or b"" for party in done.study.parties}
        with pytest.raises(InputError, match="with another plan or query"):
            SessionRecord.of(study(queries=asked).with_keys(keys), [ledger])


def entry_of(document: Document, place: int = 1) -> dict[str, Any]:
    entry: dict[str, Any] = document["parties"][0]["entries"][place]
    return entry


def rehashed(entry: dict[str, Any]) -> None:
    """The hash of a changed entry, as a forger would compute it."""
    floats = [item for item in COLUMNS if Entry.__annotations__[item] == "float"]
    values = [float.fromhex(entry[item]) if item in floats else entry[item] for item in COLUMNS]
    entry["hash"] = entry_hash(values)


def cheaper(document: Document) -> None:
    entry_of(document)["mu"] = (0.001).hex()


def cheaper_with_its_hash(document: Document) -> None:
    cheaper(document)
    rehashed(entry_of(document))


def other_session(document: Document) -> None:
    entry_of(document)["session"] = "00" * 32
    rehashed(entry_of(document))


def less_noise(document: Document) -> None:
    document["terms"] = re.sub(r'"sigma":\[[^]]*\]', '"sigma":[4,4,4]', document["terms"])


def other_budget(document: Document) -> None:
    document["study"] = document["study"].replace("epsilon = 1.0", "epsilon = 0.5")


def other_question(document: Document) -> None:
    document["study"] = document["study"].replace("at_least = 65", "at_least = 66")


def other_head(document: Document) -> None:
    document["parties"][0]["head"][1] = "00" * 32


def without_charge(document: Document) -> None:
    del document["parties"][0]["entries"][1]


def out_of_order(document: Document) -> None:
    document["parties"][0]["entries"].reverse()


def other_query(document: Document) -> None:
    document["answers"][0]["query"] = "young"


def no_receiver(document: Document) -> None:
    document["parties"] = [each for each in document["parties"] if each["party"] == "south"]


def dropped_out(document: Document) -> None:
    document["parties"][0]["missing"] = ["south"]


def other_limit(document: Document) -> None:
    document["parties"][0]["balance"]["limit_epsilon"] = (2.0).hex()


def less_spent(document: Document) -> None:
    document["parties"][0]["balance"]["spent"] = (0.5).hex()


def more_left(document: Document) -> None:
    document["parties"][0]["balance"]["left"] = (11.0).hex()


def signed_draft(document: Document) -> None:
    document["draft"] = True


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (cheaper, "does not match its hash"),
        (cheaper_with_its_hash, "is not what the plan costs"),
        (other_session, "is about another session"),
        (less_noise, "breaks the budget of north"),
        (other_budget, "budgets or sensitivities differ from the study"),
        (other_question, "query differ from the study"),
        (other_head, "is not a later entry"),
        (without_charge, "entries of north are hold, settle"),
        (out_of_order, "entries of north are settle, charge, hold"),
        (other_query, "young is not a query of the study"),
        (no_receiver, "no receiver in this record has finished"),
        (dropped_out, "north says that 1 dropped out"),
        (other_limit, "limit violated: that of north is not the one in its newest entry"),
        (less_spent, "north has spent more than the record says"),
        (more_left, "north cannot have so much left"),
        (signed_draft, "a study without keys has no session"),
    ],
)
def test_what_was_changed_is_noticed(done: Finished, change: Callable[[Document], None], complaint: str) -> None:
    document = json.loads(record(done, "north", "south", with_answer=True).text())
    change(document)
    with pytest.raises((CertificateError, InputError)) as caught:
        document["plan_hash"] = SessionRecord.parse(document | {"plan_hash": ""}).terms.plan_hash.hex()
    assert "does not agree with itself" in str(caught.value)
    from tpmdp.protocol.terms import Terms

    terms = Terms.parse(document["terms"])
    document |= {"plan_hash": terms.plan_hash.hex(), "keyless_hash": terms.keyless_hash.hex()}  # as a forger would
    with pytest.raises(CertificateError, match=complaint):
        SessionRecord.parse(document).check()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"format": "tpmdp.plan"}, "is not tpmdp.session version 2"),
        ({"version": 1}, "is not tpmdp.session version 2: use the tpmdp that wrote it, or make it again"),
        ({"answers": [{"query": "old"}]}, "is missing"),
        ({"answers": 3}, "is not a list"),
        ({"study": "name = "}, "is not valid TOML"),
        ({"terms": "{}"}, "are not terms"),
        ({"terms": 3}, "is not text"),
        ({"written_by": ["x"]}, "is not a version"),
        ({"written_by": "0.7.0 "}, "is not a version"),
        ({"written_by": "another"}, "is not a version"),
        ({"parties": [{}]}, "is missing"),
        ({"more": 1}, "is unknown"),
    ],
)
def test_a_document_of_another_shape_is_refused(done: Finished, change: Document, complaint: str) -> None:
    document = json.loads(record(done, "north").text())
    with pytest.raises(InputError, match=complaint):
        SessionRecord.parse(document | change)


@pytest.mark.parametrize(
    "change", [{"receivers": ["south"]}, {"plan_hash": "00" * 32}, {"keyless_hash": "x"}, {"session": "another"}]
)
def test_a_number_that_does_not_fit_the_others_makes_a_record_invalid(done: Finished, change: Document) -> None:
    document = json.loads(record(done, "north").text())
    with pytest.raises(CertificateError, match=r"record violated: .* does not agree with itself: it was changed"):
        SessionRecord.parse(document | change)


def test_a_ledger_shows_a_forged_answer_and_forged_entries(done: Finished, tmp_path: Path) -> None:
    document = json.loads(record(done, "north", with_answer=True).text())
    document["answers"][0]["value"] += 1
    with done.ledger("north") as ledger, pytest.raises(CertificateError, match="has another answer"):
        SessionRecord.parse(document).check_ledger(ledger)
    document = json.loads(record(done, "north").text())
    document["parties"][0]["bytes_sent"] = 1
    with done.ledger("north") as ledger, pytest.raises(CertificateError, match="bytes_sent violated: the ledger of"):
        SessionRecord.parse(document).check_ledger(ledger)
    document = json.loads(record(done, "north").text())
    entry_of(document, 2)["time"] = "2020-01-01T00:00:00+00:00"
    rehashed(entry_of(document, 2))
    document["parties"][0]["head"][1] = entry_of(document, 2)["hash"]
    forged = SessionRecord.parse(document)
    forged.check()  # nothing in it contradicts itself
    with done.ledger("north") as ledger, pytest.raises(CertificateError, match="has no such entry"):
        forged.check_ledger(ledger)
    with done.ledger("south") as ledger, pytest.raises(InputError, match="who is not in the record"):
        forged.check_ledger(ledger)


def test_a_session_under_way_has_a_record(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tests.study.sessions import TABLES
    from tpmdp.study.contribution import contribute
    from tpmdp.study.session import SessionAccount

    identity = Ed25519PrivateKey.generate()
    keys = {party.name: bytes(31) + bytes([place]) for place, party in enumerate(study().parties)}
    keyed = study().with_keys({**keys, "north": identity.public_key().public_bytes_raw()})
    with Ledger.create(tmp_path / "north.ledger", "north", 10.0, 1e-6) as ledger:
        contribution = contribute(keyed, keyed.terms(), "north", table=TABLES["north"])
        account = SessionAccount(keyed, keyed.terms(), "north", identity=identity, ledger=ledger)
        account.hold(contribution)
        assert SessionRecord.of(keyed, [ledger]).status == "held"
        account.charge(contribution)
        under_way = SessionRecord.of(keyed, [ledger])
        assert under_way.status == "charged"
        assert "north in this file fit together: charged epsilon" in under_way.check()[-1]


def test_what_is_not_proved_names_those_whose_ledgers_were_not_compared(done: Finished) -> None:
    whole = record(done, "north", "south", "lab", with_answer=True)
    alone = "\n".join(whole.open_points().every)
    assert "that the ledgers of north, south, lab really have these entries: give yours" in alone
    assert "bytes sent and drop-outs as north, south, lab saw them" in alone
    with done.ledger("south") as ledger:
        points = whole.open_points([whole.check_ledger(ledger)]).every
    assert points[0] == "that the ledgers of north, lab really have these entries: give theirs with --ledger"
    assert "bytes sent and drop-outs as north, lab saw them" in points[1]
    assert any(point.startswith("that this is the answer") for point in points)
    mine = "\n".join(record(done, "south").open_points().every)
    assert "what north, lab did: this report has no entries of theirs" in mine
    with done.ledger("south") as south, done.ledger("north") as north, done.ledger("lab") as lab:
        compared = [whole.check_ledger(ledger) for ledger in (south, north, lab)]
    keys = "who holds the keys: one person can make them all; compare tpmdp fingerprint by telephone"
    others = [
        "whether every party adds its noise: nobody can see whether another one did",
        "whether the data of the other parties are true: nobody can see it",
    ]
    assert whole.open_points(compared, is_approved=True) == OpenPoints(never=(keys, *others))


def test_a_report_is_compared_with_the_draft_that_was_approved(done: Finished) -> None:
    whole = record(done, "south")
    approved = whole.terms.keyless_hash.hex()
    assert "that was approved" in whole.check_approved(approved.upper())
    with pytest.raises(CertificateError, match="approval violated"):
        whole.check_approved("0" * 64)
    with pytest.raises(InputError, match="must be 64 characters"):
        whole.check_approved(approved[:63])


def test_a_limit_that_was_raised_after_the_session_shows(tmp_path: Path) -> None:
    done = finish(study(), tmp_path)
    before = record(done, "south")
    with done.ledger("south") as ledger:
        ledger.set_limit(20.0, 1e-6)
        compared = before.check_ledger(ledger)
    assert compared.proved == (
        "the ledger of south has these entries; 1 newer entry followed",
        "the limit of south was epsilon 10 at delta 1e-06 then and is epsilon 20 at delta 1e-06 now",
    )
    assert compared.open_points[0].startswith("what south had spent and left in all")
    after = record(done, "south")
    assert (after.parties[0].later, after.parties[0].balance.limit_epsilon) == (1, 20.0)
    assert after.parties[0].entries[-1].limit_epsilon == 10.0
    forged = json.loads(after.text())
    forged["parties"][0]["balance"]["limit_epsilon"] = (15.0).hex()
    with done.ledger("south") as ledger, pytest.raises(CertificateError, match="had another one at entry 6"):
        SessionRecord.parse(forged).check_ledger(ledger)


def test_what_is_left_is_that_of_the_ledger(done: Finished) -> None:
    forged = json.loads(record(done, "south").text())
    forged["parties"][0]["balance"]["left"] = (9.9).hex()
    changed = SessionRecord.parse(forged)
    changed.check()  # only the ledger can tell
    with done.ledger("south") as ledger, pytest.raises(CertificateError, match="left is another number"):
        changed.check_ledger(ledger)


def test_a_draft_and_the_study_with_keys_have_one_hash(done: Finished) -> None:
    draft = SessionRecord.of(done.study.without_keys())
    assert draft.is_draft
    assert draft.terms.keyless_hash == record(done, "north").terms.keyless_hash
    assert draft.terms.plan_hash != record(done, "north").terms.plan_hash
    assert SessionRecord.of(done.study.with_session(2)).terms.keyless_hash != draft.terms.keyless_hash


def test_a_record_of_a_session_that_a_ledger_lacks_is_not_valid(done: Finished, tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "new.ledger", "north", 10.0, 1e-6) as ledger:
        ledger.bind(done.study.party("north").public_key or b"")
        with pytest.raises(CertificateError, match="has no such entry"):
            record(done, "north").check_ledger(ledger)
