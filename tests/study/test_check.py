"""What a party is told before it pays is what happens when it does; and looking costs and changes nothing."""

from __future__ import annotations

import math
import re
from io import StringIO
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rich.console import Console
from scipy.optimize import brentq
from scipy.stats import norm

from tests.study.rounds import study_by_rounds, tables_for
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.ledger import Ledger, SessionKey, rounded_down
from tpmdp.report.check import cost_texts, print_check
from tpmdp.study.check import check_party
from tpmdp.study.contribution import contribute
from tpmdp.study.cost import charge_of
from tpmdp.study.expectation import trial_terms
from tpmdp.study.model import Study
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.round_account import account_of
from tpmdp.study.session import SessionAccount, open_or_create_ledger, party_release

KEYS: Final = {name: Ed25519PrivateKey.from_private_bytes(name.encode() * 32) for name in "abcd"}
MEAN: Final = {"name": "m", "kind": "mean", "column": "x", "low": 0, "high": 10}
EPSILON: Final = {"a": 0.5, "b": 1.0, "c": 2.0, "d": 3.0}
GOOD: Final = {"x": np.array([1.0, 2.0, 30.0, -1.0]), "w": np.array([0.0, 1.0, 1.0, 0.0])}


def study_of(*queries: dict[str, Any], **top: Any) -> Study:
    parties = [{"name": name, "records": 4, "epsilon": epsilon} for name, epsilon in EPSILON.items()]
    base = {"name": "s", "threshold": 2, "receivers": ["a", "b"], "delta": 1e-6, "parties": parties}
    study = Study.parse({**base, **top, "queries": list(queries) or [MEAN]})
    return study.with_keys({name: key.public_key().public_bytes_raw() for name, key in KEYS.items()})


def oracle_epsilon(mu: float, delta: float) -> float:
    """By bisection of the exact curve of the Gaussian mechanism."""

    def delta_of(epsilon: float) -> float:
        low = float(norm.cdf(-epsilon / mu - mu / 2))
        return float(norm.cdf(mu / 2 - epsilon / mu)) - math.exp(epsilon) * low

    return float(brentq(lambda epsilon: delta_of(epsilon) - delta, 0.0, 50.0))


def texts(check: PartyCheck) -> list[str]:
    return [str(problem) for problem in check.problems]


def test_a_party_that_is_ready() -> None:
    study = study_of(MEAN, {**MEAN, "name": "part", "where": "w = 1"})
    check = study.check("a", GOOD)
    assert check.is_ready
    assert (check.records, check.records_stated, check.bad_rows) == (4, 4, 0)
    assert [(row.query, row.below, row.above, row.records) for row in check.clipped] == [
        ("m", 1, 1, 4),
        ("part", 0, 1, 2),
    ]
    assert check.clipped[0].share == 0.5
    assert dict(check.counting) == {"part": 2}
    assert check.expected is not None
    assert check.cost == check.expected.charges["a"]
    assert check.after is not None
    assert check.after.epsilon == pytest.approx(check.cost)
    assert "30" not in repr(check)


def test_every_bad_value_is_counted_and_the_rest_is_still_told() -> None:
    bad: Table = {"x": np.array([1.0, np.nan, math.inf, np.nan, 7.0]), "w": np.zeros(5)}
    check = study_of({**MEAN, "where": "w = 1"}).check("a", bad)
    assert [(fault.kind, fault.count, fault.places) for fault in check.faults] == [
        ("missing", 2, ("record 2", "record 4")),
        ("not a finite number", 1, ("record 3",)),
    ]
    assert (check.records, check.bad_rows) == (5, 3)
    assert texts(check) == [
        "data of a = 3 of 5 records have bad values (column x, record 2, record 4, ...): correct these records, or "
        "remove them and lower `records` in the study",
        "records of a = 5 must be the number the study states (4), which is public: correct the data or the study",
    ]
    assert check.cost is not None
    assert check.coalitions


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "lists"])
def test_tables_of_other_libraries_are_checked_like_files(library: str) -> None:
    x, region = [1.0, None, 30.0, None], ["n", None, "s", "n"]
    columns: dict[str, list[Any]] = {"x": x, "region": region, "unused": [object()] * 4 if library == "pandas" else x}
    module = {"pandas": "pandas", "polars": "polars", "arrow": "pyarrow", "lists": "builtins"}[library]
    make = {"pandas": "DataFrame", "polars": "DataFrame", "arrow": "table", "lists": "dict"}[library]
    frame = getattr(pytest.importorskip(module), make)(columns)
    study = study_of({**MEAN, "where": "region = 'n'"}, {**MEAN, "name": "other", "column": "y"})
    check = study.check("a", frame)
    assert [(fault.column, fault.kind, fault.count, fault.places) for fault in check.faults] == [
        ("x", "missing", 2, ("row 2", "row 4")),
        ("region", "missing", 1, ("row 2",)),
    ]
    assert check.bad_rows == 2
    assert any("no column y" in text for text in texts(check))
    good = getattr(pytest.importorskip(module), make)({"x": [1.0, 2.0, 30.0, -1.0]})
    assert study_of().check("a", good).is_ready


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "data = (none) is missing for a party with 4 records"),
        ({}, "has no column x"),
        ({"x": np.zeros((2, 2))}, "must be one number per record"),
        ({"x": ["a", "b", "c", "d"]}, "must be one number per record"),
        ({"x": np.zeros(3)}, "records of a = 3 must be the number the study states (4)"),
        ("no-such.csv", "no-such.csv does not exist"),
        ("study.pdf", "is of no known kind"),
    ],
)
def test_data_that_join_would_refuse(data: Any, message: str) -> None:
    check = study_of().check("a", data)
    assert not check.is_ready
    assert message in texts(check)[0]
    assert check.cost is not None
    if isinstance(data, dict):
        with pytest.raises(InputError):
            contribute(study_of(), study_of().terms(), "a", table=data)


def test_a_party_without_records_needs_no_data() -> None:
    parties = [{"name": name, "records": 0 if name == "d" else 4, "epsilon": 1} for name in "abcd"]
    study = study_of(parties=parties)
    assert study.check("d", None).is_ready
    assert "has no records" in texts(study.check("d", GOOD))[0]


def test_keys_that_are_missing_or_wrong() -> None:
    study = study_of()
    keyless = study.without_keys().check("a", GOOD)
    assert "public_key of a, b, c, d = (none) is missing" in texts(keyless)[0]
    assert not keyless.is_ready
    assert keyless.own_problems == ()
    assert check_party(study, "a", GOOD, identity=KEYS["a"]).is_ready
    assert "does not fit its public key" in texts(check_party(study, "a", GOOD, identity=KEYS["b"]))[0]


def test_the_coalitions_are_the_smallest_the_worst_and_one_beyond() -> None:
    check = study_of().check("c", GOOD)
    smallest, worst, beyond = check.coalitions
    assert [len(each.members) for each in check.coalitions] == [1, 2, 3]
    assert [each.is_within for each in check.coalitions] == [True, True, False]
    assert set(smallest.members) <= {"a", "b"}  # a receiver
    assert smallest.epsilon <= worst.epsilon <= beyond.epsilon
    assert worst.epsilon == check.cost
    assert worst.epsilon <= 2.0
    alone = study_of(receivers=["a"]).check("a", GOOD)
    assert alone.coalitions == ()
    assert alone.cost == 0.0


def test_threshold_0_is_refused_by_a_ledger_with_a_limit() -> None:
    check = study_of(threshold=0).check("a", GOOD)
    assert "threshold = 0 lets receivers learn the exact answer" in texts(check)[0]
    assert any("threshold = 0" in note for note in check.notes)
    assert check.cost == math.inf
    assert not any(each.is_within for each in check.coalitions)


def test_a_deadline_that_has_passed_and_an_address_that_is_missing() -> None:
    from datetime import UTC, datetime

    past = study_of(deadline=datetime(2020, 1, 1, tzinfo=UTC))
    assert texts(past.check("a", GOOD)) == ["the deadline of the study has passed: join with a later one"]
    query = {"name": "x", "kind": "maximum", "of": {"kind": "count", "column": "x", "at_least": 0}}
    assert "address of a = (none) is missing" in texts(study_of(query, threshold=1).check("a", GOOD))[0]


# Ledgers ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    with open_or_create_ledger(tmp_path / "a.ledger", study_of(), "a", identity=KEYS["a"]) as opened:
        yield opened


def look(ledger: Ledger, study: Study | None = None, data: Any = GOOD, name: str = "a") -> PartyCheck:
    """Check, and see to it that not a byte of the ledger changes."""
    before = ledger.path.read_bytes()
    found = check_party(study or study_of(), name, data, ledger=ledger, identity=KEYS[name])
    assert ledger.path.read_bytes() == before
    assert sorted(path.name for path in ledger.path.parent.iterdir()) == [ledger.path.name]
    return found


def test_what_is_foretold_is_what_the_ledger_says_afterwards(ledger: Ledger) -> None:
    study, terms = study_of(), study_of().terms()
    check = look(ledger)
    assert check.is_ready
    account = SessionAccount(study, terms, "a", identity=KEYS["a"], ledger=ledger)
    contribution = contribute(study, terms, "a", table=GOOD)
    account.hold(contribution)
    held = look(ledger)
    assert held.ledger == "held"
    assert held.after is not None
    assert check.after is not None
    assert (held.after.epsilon, held.after.left) == (check.after.epsilon, check.after.left)
    account.charge(contribution)
    charged = look(ledger, data=None)
    assert (charged.ledger, charged.charged_now) == ("charged", False)
    assert charged.is_ready  # its data are not read again
    spent = ledger.spent("record")
    assert (spent.epsilon, spent.left) == (check.after.epsilon, check.after.left)
    account.settle(party_release(contribution, np.zeros(terms.grid.dimension, dtype=np.int64), sent=0))
    assert look(ledger).is_ready
    other = look(ledger, data={**GOOD, "x": np.zeros(4)})
    assert "was begun with other data" in texts(other)[0]
    assert "--session 2" in other.notes[0]


def test_what_was_begun_and_what_was_answered_before_is_told(ledger: Ledger, tmp_path: Path) -> None:
    study, terms = study_of(), study_of().terms()
    account = SessionAccount(study, terms, "a", identity=KEYS["a"], ledger=ledger)
    contribution = contribute(study, terms, "a", table=GOOD)
    assert look(ledger).begun is None
    account.hold(contribution)
    held = look(ledger).begun
    assert held is not None
    assert (held.study, held.is_charged, held.has_agreed) == ("s / session 1", False, False)
    account.agree()
    account.charge(contribution)
    charged = look(ledger, data=None).begun
    assert charged is not None
    assert (charged.time, charged.is_charged, charged.has_agreed) == (held.time, True, True)
    account.settle(party_release(contribution, np.zeros(terms.grid.dimension, dtype=np.int64), sent=0))
    done = look(ledger)
    assert done.begun is None
    assert done.earlier is None
    ledger.set_limit(9.0, 1e-5)
    again = look(ledger, study_of(session=2))
    assert again.earlier is not None
    assert [label for label, _ in again.earlier.sessions] == ["s / session 1"]
    mu = math.hypot(terms.charge(0)[0], study_of(session=2).terms().charge(0)[0])
    stream = StringIO()
    print_check(study, again, Console(file=stream, width=1000))
    date = again.earlier.sessions[0][1][:10]
    epsilon = oracle_epsilon(mu, 1e-6)
    guess = 100 * float(norm.cdf(mu / 2))
    assert f"You answered this study before: session 1 on {date}." in stream.getvalue()
    stated = re.search(r"all of it together is epsilon ([0-9.]+) at delta 1e-06 about one record", stream.getvalue())
    assert stated is not None
    assert epsilon <= float(stated[1]) <= epsilon + 0.01
    assert f"right at most {math.ceil(10 * guess) / 10:g} % of the time" in stream.getvalue()
    assert look(ledger, study_of(name="other")).earlier is None


def test_one_sentence_says_how_the_ledger_counts(ledger: Ledger) -> None:
    for limit, delta in ((9.0, 1e-5), (9.0, 1e-6)):
        ledger.set_limit(limit, delta)
        check = look(ledger)
        text = cost_texts(check)[1]
        here = oracle_epsilon(study_of().terms().charge(0)[0], delta)
        match = re.fullmatch(
            r"Your ledger counts at delta (\S+), where this session is (\S+)\. Afterwards: room for one further "
            r"session of up to (\S+), within your limit of 9\. \(Not (\S+): epsilons do not simply add\.\)",
            text,
        )
        assert match is not None, text
        assert float(match[1]) == delta
        assert here <= float(match[2]) <= here + 0.001
        assert check.after is not None
        assert check.after.left - 0.01 <= float(match[3]) <= check.after.left
        assert float(match[4]) == pytest.approx(9 - here, abs=0.01)
    ledger.set_limit(0.5, 1e-6)
    assert "no room for a further session within your limit of 0.5." in cost_texts(look(ledger))[1]


def test_a_ledger_without_room(ledger: Ledger) -> None:
    charge = charge_of(study_of().terms(), 0)
    ledger.charge(SessionKey(b"1" * 32, b"2" * 32), "other", charge, unit="record", private={})
    check = look(ledger)
    assert "over the limit" in texts(check)[0]
    assert check.after is not None
    assert check.after.epsilon > 0.5


def test_a_unit_without_a_limit_gets_that_of_the_study(ledger: Ledger) -> None:
    check = look(ledger, study_of(unit="party", parties=[{"name": n, "records": 4, "epsilon": 0.4} for n in "abcd"]))
    assert check.is_ready
    assert check.after is not None
    assert check.after.limit_epsilon == 0.4
    assert not ledger.has_limit("party")


def test_the_ledger_of_another_key(ledger: Ledger) -> None:
    assert "belongs to the key" in texts(look(ledger, name="b"))[0]


def test_a_ledger_that_cannot_be_opened_is_a_problem_and_the_rest_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.ledger").write_text("no ledger")
    check = check_party(study_of(), "a", GOOD, ledger=lambda: Ledger.open(tmp_path / "a.ledger"))
    assert check.ledger == "unreadable"
    assert check.notes == ()
    assert len(check.problems) == 1
    assert check.after is None
    assert check.cost is not None


def test_a_party_that_is_not_among_the_peers_is_a_problem(tmp_path: Path) -> None:
    from tpmdp.study.peers import peer_line

    keys = {name: key.public_key().public_bytes_raw() for name, key in KEYS.items()}
    path = tmp_path / "peers.toml"
    path.write_text("".join(peer_line(name, keys[name]) + "\n" for name in "bc"))
    assert "public_key of d" in texts(check_party(study_of(), "a", GOOD, peers=path))[0]
    path.write_text("".join(peer_line(name, keys[name]) + "\n" for name in "bcd"))
    assert check_party(study_of(), "a", GOOD, peers=path).is_ready


def test_an_empty_text_in_memory_is_a_text_as_for_join() -> None:
    study = study_of({"name": "h", "kind": "histogram", "column": "t", "categories": ["x", "y"]})
    table: Any = {"t": ["x", "", "y", "z"]}
    check = study.check("a", table)
    assert check.is_ready
    assert (check.bad_rows, dict(check.counting)) == (0, {"h": 2})


def test_an_unused_ledger_has_room_for_a_study_of_its_whole_limit(tmp_path: Path) -> None:
    """It is shown as left; plans are a little stricter than budgets."""
    chance = np.random.default_rng(5)
    for case in range(20):
        epsilon, delta = float(np.exp(chance.uniform(-3, 1.5))), float(10 ** -chance.uniform(3, 9))
        parties = [{"name": name, "epsilon": epsilon, "records": 3} for name in ("a", "b", "c")]
        query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
        document = {"name": "x", "delta": delta, "threshold": 1, "receivers": "all", "parties": parties}
        terms = trial_terms(Study.parse({**document, "queries": [query]}))
        with Ledger.create(tmp_path / f"{case}.ledger", "a", epsilon, delta) as ledger:
            ledger.check_room(SessionKey(bytes(32), bytes(32)), "x", charge_of(terms, 0), unit="record")
            assert ledger.spent().left_text == rounded_down(epsilon)


def test_without_data_there_is_no_empty_table() -> None:
    study, stream = study_of(MEAN), StringIO()
    print_check(study, check_party(study, "a", None), Console(file=stream, width=100))
    text = stream.getvalue()
    assert "Your columns" not in text
    assert "Records: not counted" in text


def test_one_party_more_can_put_shares_together() -> None:
    query = {"name": "largest", "kind": "maximum", "of": {"kind": "count", "column": "x", "at_least": 2}}
    check = study_of(query, threshold=1).check("c", {"x": np.array([1.0, 2.0, 3.0, 4.0])})
    assert [(coalition.is_within, coalition.epsilon == math.inf) for coalition in check.coalitions] == [
        (True, False),
        (False, True),
    ]


def test_a_study_by_rounds_is_checked_as_a_whole(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    keys = {name: KEYS[name] for name in "abc"}
    keyed = study.with_keys({name: key.public_key().public_bytes_raw() for name, key in keys.items()})
    tables = tables_for(study)
    whole = check_party(keyed, "a", tables["a"])
    assert whole.is_ready
    assert whole.cost is not None
    assert 0.99999 < whole.cost <= 1.0  # of all rounds, not of the first
    assert whole.after is not None
    assert whole.after.sessions == 3
    assert whole.after.epsilon == pytest.approx(whole.cost, rel=1e-9)
    assert whole.coalitions[0].epsilon == pytest.approx(whole.cost, rel=1e-9)
    assert whole.expected is not None
    assert whole.expected.charges["a"] == whole.cost
    assert check_party(study, "a", tables["a"]).cost == whole.cost  # before there are keys
    with open_or_create_ledger(tmp_path / "a.ledger", keyed, "a", identity=keys["a"]) as ledger:
        ledger.set_limit(0.7, 1e-6)
        (problem,) = check_party(keyed, "a", tables["a"], ledger=ledger, identity=keys["a"]).problems
        assert "study rounds / session 1 would cost a epsilon 1 " in str(problem)
        ledger.set_limit(1.0, 1e-6)
        terms = keyed.terms()
        account = account_of(keyed.first, terms, "a", identity=keys["a"], ledger=ledger)
        contribution = contribute(keyed, terms, "a", table=tables["a"])
        account.hold(contribution)
        held = check_party(keyed, "a", tables["a"], ledger=ledger, identity=keys["a"])
        assert (held.ledger, held.charged_now, held.after and held.after.sessions) == ("held", True, 3)
        account.agree()
        account.charge(contribution)
        account.settle(party_release(contribution, np.zeros(1, dtype=np.int64), sent=0))
        between = check_party(keyed, "a", {"x": np.zeros(7)}, ledger=ledger, identity=keys["a"])
        assert between.is_ready  # the records were read before
        assert between.ledger == "charged"
        assert between.after is not None
        assert between.after.sessions == 3
        assert between.after.epsilon == pytest.approx(whole.cost, rel=1e-9)
        assert any(note.startswith("round 1 of 3 is done: joining goes on") for note in between.notes)
