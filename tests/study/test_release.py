"""The orchestrator: every engine, ledgers charged once, guarantees told, noise as planned."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats

from tpmdp import InputError, Ledger, NoNoiseWarning, OverspendError, Study, run
from tpmdp.engines.ideal import IdealEngine
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.ledger import Charge, LedgerError, SessionKey
from tpmdp.noise.source import seeded_source, system_source
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import Mask, from_words
from tpmdp.protocol.vectors import noise_source, noisy_vector
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.session import SessionAccount, open_or_create_ledger

TABLES = {
    "north": {"age": np.array([70.0, 20, 66, 41])},
    "south": {"age": np.array([65.0, 10, 99])},
    "lab": {"age": np.array([80.0, 64])},
}
TRUTH = 5
IDENTITY = Ed25519PrivateKey.from_private_bytes(b"i" * 32)


def study(**changes: Any) -> Study:
    document = {
        "name": "test",
        "threshold": 1,
        "receivers": ["north", "lab"],
        "delta": 1e-6,
        "parties": [
            {"name": name, "epsilon": 1.0 + place, "records": len(table["age"])}
            for place, (name, table) in enumerate(TABLES.items())
        ],
        "queries": [{"name": "old", "kind": "count", "column": "age", "at_least": 65}],
        **changes,
    }
    return Study.parse(document)


@pytest.mark.parametrize(
    "engine",
    [IdealEngine(), MemoryEngine(), pytest.param(RelayEngine(), marks=pytest.mark.process)],
    ids=lambda engine: engine.name,
)
def test_every_engine_releases_to_receivers_only(engine: Any) -> None:
    result = run(study(), TABLES, engine=engine)
    assert result.parties["south"].answers is None
    assert result.parties["north"].answers == result.parties["lab"].answers
    (answer,) = result.answers
    assert answer.value != TRUTH
    assert abs(answer.value - TRUTH) < 8 * answer.standard_error


@pytest.mark.slow
@pytest.mark.long
def test_the_error_of_many_releases_is_as_stated() -> None:
    """A chi-square test of the standard error, and of the mean: 300 releases of the whole protocol."""
    found = [run(study(), TABLES).answers[0] for _ in range(300)]
    scaled = np.array([(answer.value - TRUTH) / answer.standard_error for answer in found])
    assert 1e-6 < stats.chi2(300).cdf(float((scaled**2).sum())) < 1 - 1e-6
    assert abs(scaled.mean()) < 5 / math.sqrt(300)
    covered = np.mean([answer.interval[0] <= TRUTH <= answer.interval[1] for answer in found])
    assert 0.90 < covered < 0.99


def test_every_party_is_charged_its_real_cost_once(tmp_path: Path) -> None:
    ledgers = {name: Ledger.create(tmp_path / f"{name}.ledger", name, 10.0, 1e-6) for name in TABLES}
    try:
        for count in (1, 2):
            result = run(study(), TABLES, ledgers)
            for ledger in ledgers.values():
                assert ledger.spent().sessions == count
                ledger.verify()
        one = result.parties["lab"]
        assert one.epsilon < 3.0  # offered 3, and better protected than that
        assert one.spent == ledgers["lab"].spent().epsilon > one.epsilon
    finally:
        for ledger in ledgers.values():
            ledger.close()


def test_without_room_in_one_ledger_nothing_is_released(tmp_path: Path) -> None:
    limits = {"north": 10.0, "south": 0.1, "lab": 10.0}
    ledgers = {name: Ledger.create(tmp_path / f"{name}.ledger", name, limits[name], 1e-6) for name in TABLES}
    try:
        with pytest.raises(OverspendError, match="south"):
            run(study(), TABLES, ledgers)
        assert ledgers["south"].spent().sessions == 0
    finally:
        for ledger in ledgers.values():
            ledger.close()


def test_no_noise_is_only_accepted_by_a_ledger_without_limit(tmp_path: Path) -> None:
    from tests.protocol.sessions import World

    assert World(3, 0, [0]).terms.charge(1)[0] == math.inf
    with Ledger.create(tmp_path / "a.ledger", "south", 100.0, 1e-6) as ledger:
        with pytest.raises(InputError, match="threshold = 0 lets receivers learn the exact answer"):
            prepare_one(study(threshold=0), "south", ledger)
        ledger.set_limit(math.inf, 1e-6)
        assert prepare_one(study(threshold=0), "south", ledger).tolist() == [2 * scale(study(threshold=0))]


def test_a_release_without_noise_says_so_loudly() -> None:
    with pytest.warns(NoNoiseWarning, match="no noise"):
        result = run(study(threshold=0), TABLES)
    assert result.answers[0].value == TRUTH
    assert result.parties["south"].guarantee.startswith("NONE")
    assert result.parties["south"].epsilon == math.inf


@pytest.mark.parametrize(
    "change", [{"sensitivity": 0.0}, {"sensitivity": 1e-3}, {"epsilon": 9.0}, {"threshold": 2}, {"receivers": [1]}]
)
def test_terms_about_something_else_are_not_signed(tmp_path: Path, change: dict[str, Any]) -> None:
    """Terms may come from anybody: a weaker budget or a smaller sensitivity in them must not pass."""
    made = study()
    keys = {member.name: bytes(31) + bytes([place]) for place, member in enumerate(made.parties)}
    keyed = made.with_keys(keys)
    weaker = plan_on_grid(made.spec().replace(**change), made.bounds(), 1)
    terms = keyed.terms(weaker)
    with (
        Ledger.create(tmp_path / "a.ledger", "north", 10.0, 1e-6) as ledger,
        pytest.raises(InputError, match="differ from the study"),
    ):
        charged(contribute(keyed, terms, "north", TABLES["north"]), ledger)


@pytest.mark.parametrize(
    "column",
    [
        np.array([70.0, math.nan, 66, 41]),
        np.array([70.0, math.inf, 66, 41]),
        np.full((4, 5), 70.0),
        np.array(["70", "20", "66", "41"]),
        np.zeros(3),
    ],
)
def test_tables_from_python_are_checked_and_their_values_not_shown(column: Any) -> None:
    with pytest.raises(InputError) as caught:
        run(study(), {**TABLES, "north": {"age": column}})
    assert "70" not in str(caught.value)


def scale(made: Study) -> int:
    return int(1 / made.plan().grid.step)


def prepare_one(made: Study, name: str, ledger: Ledger) -> Any:
    keys = {member.name: bytes(31) + bytes([place]) for place, member in enumerate(made.parties)}
    terms = made.with_keys(keys).terms()
    return from_words(charged(contribute(made, terms, name, TABLES[name]), ledger), terms.grid.word)


def charged(contribution: Contribution, ledger: Ledger, identity: Ed25519PrivateKey = IDENTITY) -> Mask:
    study, terms, party = contribution.study, contribution.terms, contribution.party
    account = SessionAccount(study, terms, party, identity=identity, ledger=ledger)
    return account.charge(account.hold(contribution))


def test_a_session_draws_its_noise_once(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "a.ledger", "north", 10.0, 1e-6) as ledger:
        first = prepare_one(study(), "north", ledger)
        assert prepare_one(study(), "north", ledger).tolist() == first.tolist()
        assert prepare_one(study(session=2), "north", ledger).tolist() != first.tolist()
        assert ledger.spent().sessions == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"queries": [{"name": "o", "kind": "count", "column": "age", "at_least": 99}]}, "another plan or query")],
)
def test_a_changed_study_under_the_same_number_is_refused(tmp_path: Path, changes: Any, message: str) -> None:
    with Ledger.create(tmp_path / "a.ledger", "north", 10.0, 1e-6) as ledger:
        prepare_one(study(), "north", ledger)
        with pytest.raises(LedgerError, match=message):
            prepare_one(study(**changes), "north", ledger)
        assert ledger.spent().sessions == 1


def test_a_release_refuses_a_seeded_source() -> None:
    from tests.protocol.sessions import World

    terms = World(3, 1, [0]).terms
    with pytest.raises(InputError, match="must be secure"):
        noisy_vector(terms, 1, np.zeros(3, dtype=np.int64), seeded_source(1))
    assert noisy_vector(terms, 1, np.zeros(3, dtype=np.int64), system_source()).any()


def test_noise_in_statistical_mode_comes_from_the_operating_system_itself() -> None:
    from tests.protocol.sessions import World

    assert noise_source(World(3, 1, [0], "statistical").terms)._stream is None
    assert noise_source(World(3, 1, [0]).terms)._stream is not None
    for guarantee in ("computational", "statistical"):
        result = run(study(guarantee=guarantee), TABLES)
        assert result.parties["lab"].guarantee.startswith(guarantee)


@pytest.mark.slow
def test_noise_has_the_planned_variance() -> None:
    from tests.protocol.sessions import World

    terms = World(3, 1, [0], dimension=20_000).terms
    for party in range(3):
        steps = from_words(noisy_vector(terms, party, np.zeros(20_000, dtype=np.int64), system_source()), 32)
        sigma = int(terms.sigma[party])
        if sigma:
            assert 1e-6 < stats.chi2(20_000).cdf(float((steps / sigma) @ (steps / sigma))) < 1 - 1e-6
        else:
            assert not steps.any()


def test_missing_data_is_named() -> None:
    with pytest.raises(InputError, match="has no data of south"):
        run(study(), {"north": TABLES["north"], "lab": TABLES["lab"]})


def test_a_ledger_of_somebody_else_is_refused(tmp_path: Path) -> None:
    path, other = tmp_path / "north.ledger", Ed25519PrivateKey.generate()
    with open_or_create_ledger(path, study(), "north", identity=IDENTITY) as ledger:
        assert ledger.spent().limit_epsilon == 1.0
    for name in ("north", "south"):
        with pytest.raises(LedgerError, match=r"belongs to the key .*: give the ledger of this key; if that is lost, "):
            open_or_create_ledger(path, study(), name, identity=other)


def test_another_name_for_the_same_key_brings_no_new_budget(tmp_path: Path) -> None:
    path = tmp_path / "north.ledger"
    with open_or_create_ledger(path, study(), "north", identity=IDENTITY) as ledger:
        assert ledger.owner == IDENTITY.public_key().public_bytes_raw()
        ledger.charge(SessionKey(bytes(32), bytes(32)), "s", Charge(0.2, 0, 1, 1e-6), unit="record", private={})
        spent = ledger.spent()
    with open_or_create_ledger(path, study(), "south", identity=IDENTITY) as ledger:  # whose budget is 2
        assert ledger.spent() == spent
        assert ledger.spent().limit_epsilon == 1.0


def test_an_old_ledger_is_bound_to_the_key_of_its_party_at_first_use(tmp_path: Path) -> None:
    path = tmp_path / "north.ledger"
    Ledger.create(path, "north", 5.0, 1e-6).close()
    with pytest.raises(InputError, match="belongs to north, not south: give the party's own ledger"):
        open_or_create_ledger(path, study(), "south", identity=IDENTITY)
    with open_or_create_ledger(path, study(), "north", identity=IDENTITY) as ledger:
        assert ledger.spent().limit_epsilon == 5.0
    with Ledger.open(path) as ledger:
        assert ledger.owner == IDENTITY.public_key().public_bytes_raw()
    with pytest.raises(LedgerError, match="belongs to the key"):
        open_or_create_ledger(path, study(), "north", identity=Ed25519PrivateKey.generate())


def test_a_study_by_party_gets_a_limit_of_its_own_in_the_ledger_of_the_key(tmp_path: Path) -> None:
    """Even if a charge by party was entered before any limit by party was set."""
    path, by_party = tmp_path / "north.ledger", study(unit="party")
    with open_or_create_ledger(path, study(), "north", identity=IDENTITY) as ledger:
        ledger.charge(SessionKey(bytes(32), bytes(32)), "s", Charge(0.1, 0, 1, 1e-6), unit="party", private={})
        assert not ledger.has_limit("party")
    with open_or_create_ledger(path, by_party, "north", identity=IDENTITY) as ledger:
        assert ledger.has_limit("party")
        assert ledger.spent("party").limit_epsilon == ledger.spent("record").limit_epsilon == 1.0
        ledger.verify()


def test_a_contribution_shows_no_secret() -> None:
    made = study()
    keys = {party.name: bytes(31) + bytes([place]) for place, party in enumerate(made.parties)}
    contribution = contribute(made, made.with_keys(keys).terms(), "north", TABLES["north"])
    shown = repr(contribution).replace(hex(id(contribution)), "")
    assert str(contribution.encoded[0]) not in shown
    assert "array" not in shown
