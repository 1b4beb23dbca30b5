"""Weighted studies: sensitivities of what is sent, terms, charges, files, refusals, and what is told again later."""

from __future__ import annotations

import copy
import json
import math
import tomllib
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scipy import stats
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from tests.oracles import least_honest
from tests.queries.cases import PLAIN, VERTICAL_KINDS, Case, exact_distance, records_at, statistic, table_of
from tpmdp import InputError, Ledger, Study, run
from tpmdp.queries.answer import Answer
from tpmdp.study.answers import answers as answers_from
from tpmdp.study.contribution import contribute
from tpmdp.study.expectation import expect
from tpmdp.study.identity import public_text
from tpmdp.study.join import join
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import SessionAccount, party_release

KEYS: Final = [Ed25519PrivateKey.from_private_bytes(bytes([place]) * 32) for place in range(4)]
NAMES: Final = ("north", "south", "lab", "city")
EPSILON: Final = (0.05, 0.5, 1.0, 2.0)
RECORDS: Final = (40, 10, 25, 5)
COUNT: Final = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
MEAN: Final = {"name": "stay", "kind": "mean", "column": "days", "low": 0, "high": 30}
OWN: Final = (0.25, 1.0, 1 / 3, 0.0)


def document(weights: Any = None, **changes: Any) -> dict[str, Any]:
    parties: list[dict[str, Any]] = [
        {"name": name, "epsilon": epsilon, "records": records, "public_key": public_text(key)}
        for name, epsilon, records, key in zip(NAMES, EPSILON, RECORDS, KEYS, strict=True)
    ]
    for one, weight in zip(parties, weights or [None] * len(parties), strict=True):
        if weight is not None:
            one["weight"] = weight
    found = {
        "name": "stay",
        "threshold": 2,
        "receivers": ["north", "city"],
        "delta": 1e-6,
        "parties": parties,
        "queries": [COUNT],
        **changes,
    }
    return copy.deepcopy(found)


def study(weights: Any = None, **changes: Any) -> Study:
    return Study.parse(document(weights, **changes))


BALANCED: Final = {"weighting": "balanced"}


# Sensitivity ----------------------------------------------------------------------------------------------------------


SEARCHED: Final = [case for case in PLAIN if case.label not in ("correlation", "covariance", "log_rank")]


@pytest.mark.parametrize("unit", ["record", "party"])
@pytest.mark.parametrize("case", SEARCHED, ids=lambda case: case.label)
@pytest.mark.slow
def test_no_change_of_records_moves_what_is_sent_by_more_than_the_sensitivity(case: Case, unit: str) -> None:
    """All pairs of hard records, in a party whose weight is no round number; whatever the other queries are."""
    records = case.records()
    random = np.random.default_rng(len(records))
    parties = [{"name": name, "records": 3, "weight": weight} for name, weight in zip("ab", (0.3, 1.0), strict=True)]
    base = {"name": "s", "threshold": 1, "receivers": "all", "delta": 1e-6, "epsilon": 1.0, "unit": unit}
    entry = {"name": "q", **case.entry}
    column = next(iter(case.query.columns))
    more = {"name": "r", "kind": "mean", "column": column, "low": 0, "high": 5, "weight": 2.0}
    text = case.query.columns[column] == "text"
    for queries in ([entry],) if text else ([entry], [entry, more]):
        made = Study.parse({**base, "parties": parties, "queries": queries})
        sensitivity = Fraction(float(made.spec().sensitivity[0]))
        bound = float(made.bounds()[0])
        rest = [records[int(place)] for place in random.integers(len(records), size=2)]
        largest = Fraction(0)
        vectors = []
        for record in records[:60]:
            rows = [record, *rest] if unit == "record" else [record] * 3
            vectors.append(statistic(made, "a", table_of(rows)))
            assert np.abs(vectors[-1]).max() <= bound
        for one, two in product(vectors, vectors):
            largest = max(largest, exact_distance(one, two))
        assert largest <= sensitivity**2
        if len(queries) == 1:  # two queries are seldom both at their worst
            assert largest >= (Fraction(9, 10) * sensitivity) ** 2


def test_what_is_sent_is_the_weight_times_the_statistic() -> None:
    made, plain = study(OWN, queries=[COUNT, MEAN]), study(queries=[COUNT, MEAN])
    random = np.random.default_rng(1)
    for name, weight, records in zip(NAMES, OWN, RECORDS, strict=True):
        table = {"age": random.uniform(0, 99, records), "days": random.uniform(0, 30, records)}
        np.testing.assert_allclose(statistic(made, name, table), weight * statistic(plain, name, table), rtol=1e-14)
    np.testing.assert_allclose(made.spec().sensitivity, np.array(OWN) * plain.spec().sensitivity, rtol=1e-9)
    np.testing.assert_allclose(made.bounds(), np.array(OWN) * plain.bounds(), rtol=1e-9)
    assert (made.spec().sensitivity >= np.array(OWN) * plain.spec().sensitivity).all()


def test_the_answer_is_the_sum_scaled_back() -> None:
    """Of data that are the same everywhere, weights change nothing; a party of weight 0 adds nothing."""
    for made in (study(OWN, queries=[COUNT, MEAN]), study(**BALANCED, queries=[COUNT, MEAN])):
        tables = {
            name: {"age": np.tile([70.0, 20, 20, 20, 90], records // 5), "days": np.full(records, 12.0)}
            for name, records in zip(NAMES, RECORDS, strict=True)
        }
        total = sum(statistic(made, name, table) for name, table in tables.items())
        terms = made.terms()
        old, stay = answers_from(made, terms, terms.grid.encode(total, 1e6))
        assert old.value == pytest.approx(0.4 * 80, rel=1e-3)
        assert stay.value == pytest.approx(12, rel=1e-3)
        weights = made.weights.each
        scale = 80 / float(np.array(RECORDS) @ weights)
        assert old.noise == pytest.approx(terms.standard_deviation * math.sqrt(2) * scale, rel=1e-9)
        assert stay.noise == pytest.approx(terms.standard_deviation * math.sqrt(2) * 30 / 80 * scale, rel=1e-9)


def test_balanced_weights_favour_those_who_allow_more() -> None:
    weights = study(**BALANCED).weights
    assert weights.each.tolist() == sorted(weights.each.tolist())
    assert weights.each[0] < 0.2
    assert weights.each[3] == 1.0
    assert all((math.frexp(weight)[0] * 2**24).is_integer() for weight in weights.each.tolist())  # on every machine
    assert study(**BALANCED, spread=1e-3).weights.misplaced > weights.misplaced  # alike parties: weights matter less


# Terms ----------------------------------------------------------------------------------------------------------------


def test_terms_carry_the_weights() -> None:
    hashes = [
        made.terms().plan_hash
        for made in (
            study(),
            study(**BALANCED),
            study(**BALANCED, spread=0.5),
            study(OWN),
            study((0.25, 1.0, 0.3333, 0.0)),
            study((1.0, 1.0, 1.0, 1.0)),
            study((0.5, 0.5, 0.5, 0.5)),
        )
    ]
    assert len(set(hashes)) == len(hashes)
    assert study(**BALANCED).terms().plan_hash == study(**BALANCED).terms().plan_hash
    assert study(weighting="equal").terms().plan_hash == study().terms().plan_hash


@pytest.mark.parametrize("other", [{}, BALANCED, {"weights": (0.25, 1.0, 0.5, 0.0)}, {"weights": (1.0,) * 4}])
def test_terms_of_other_weights_are_refused(other: dict[str, Any]) -> None:
    ours = study(OWN)
    ours.check_terms(ours.terms())
    theirs = study(**other).terms()
    with pytest.raises(InputError, match="differ from the study"):
        ours.check_terms(theirs)
    with pytest.raises(InputError, match="differ from the study"):
        study(**other).check_terms(ours.terms())
    # Nor with the study's own words on somebody else's numbers.
    with pytest.raises(InputError, match="differ from the study"):
        ours.check_terms(replace(theirs, query=ours.terms().query))


@pytest.mark.parametrize("changes", [{"weights": OWN}, BALANCED, {**BALANCED, "unit": "party"}], ids=str)
def test_every_party_may_sign_and_is_charged_what_it_really_costs(changes: dict[str, Any]) -> None:
    """The charge from the terms alone: weight times 1 a record, the grid's rounding, and the worst coalition."""
    made = study(**changes)
    terms = made.terms()
    honest = least_honest((terms.sigma**2).astype(float), 2, terms.spec.receivers)
    charges = expect(made).charges
    for place, (name, weight, records) in enumerate(zip(NAMES, made.weights.each.tolist(), RECORDS, strict=True)):
        terms.check(place)
        mu, _ = terms.charge(place)
        if weight == 0:
            assert mu == 0
            assert charges[name] == 0
            continue
        least = honest[place]
        assert least is not None
        moved = weight * (records if made.unit == "party" else 1)
        expected = (moved + terms.grid.step) / (terms.grid.step * math.sqrt(least - 9))
        assert mu == pytest.approx(expected, rel=1e-6)
        assert mu >= expected * (1 - 1e-12)

        def surplus(epsilon: float, mu: float = mu) -> float:
            above = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
            return float(ndtr(mu / 2 - epsilon / mu)) - math.exp(above) - 1e-6

        assert charges[name] == pytest.approx(float(brentq(surplus, 1e-9, 1e3)), rel=1e-4)
        assert charges[name] <= made.parties[place].epsilon


# Files and refusals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{"weights": OWN}, {"weights": (0.5, None, None, 1e-12)}, BALANCED, {**BALANCED, "spread": 0.25}, {}],
    ids=str,
)
def test_a_weighted_study_survives_its_file(changes: dict[str, Any]) -> None:
    made = study(**changes)
    again = Study.parse(tomllib.loads(made.toml()))
    assert again == made
    assert again.weights.each.tolist() == made.weights.each.tolist()
    assert again.terms().plan_hash == made.terms().plan_hash


def test_a_spread_beside_equal_weights_survives_its_file() -> None:
    made = study(spread=0.5)
    assert Study.parse(tomllib.loads(made.toml())) == made


def test_a_party_without_a_weight_counts_fully() -> None:
    assert study((0.5, None, None, None)).weights.each.tolist() == [0.5, 1.0, 1.0, 1.0]
    assert study((0.5, None, None, None)).weighting == "own"


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (document(weighting="heavy"), 'weighting = "heavy" must be one of equal, balanced, own: choose one'),
        (document(weighting=1), "weighting = 1 must be one of equal, balanced, own: choose one"),
        (document(weighting="own"), "weighting = own needs weights of the parties: give parties weight"),
        (document((2, 1, 1, 1)), "weight of north = 2.0 must be 0 or lie in [1e-12, 1]: divide all"),
        (document((1, -1, 1, 1)), "weight of south = -1.0 must be 0 or lie in [1e-12, 1]: give each"),
        (document((1, math.inf, 1, 1)), "weight of south = inf must be 0 or lie in [1e-12, 1]: give each"),
        (document((1, math.nan, 1, 1)), "weight of south = nan is not a number: write a number"),
        (document((1, True, 1, 1)), "weight of south = true is not a number: write a number"),
        (document((1, "1", 1, 1)), 'weight of south = "1" is not a number: remove the quotes'),
        (document((1, 10**400, 1, 1)), "is out of range: write a smaller number"),
        (document((0, 0, 0, 0)), "weights = 0.0 are 0 for all parties with records: give at least one"),
        (
            document(OWN, weighting="balanced"),
            "weight of north = 0.25 cannot be used with weighting = balanced: remove",
        ),
        (document(OWN, weighting="equal"), "weight of north = 0.25 cannot be used with weighting = equal: remove"),
        (document(spread=0), "spread = 0.0 must lie in [1e-06, 1]"),
        (document(spread=2), "spread = 2.0 must lie in [1e-06, 1]"),
        (document(spread=-0.5), "spread = -0.5 must lie in [1e-06, 1]"),
        (document(spread=math.nan), "spread = nan is not a number"),
        (document(spread="1"), 'spread = "1" is not a number: remove the quotes'),
        (document(spread=True), "spread = true is not a number"),
    ],
)
def test_bad_weights_of_a_study_are_refused(found: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Study.parse(found)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


JOINT: Final = [
    {"name": "q", "kind": "maximum", "of": {"kind": "count", "column": "age", "at_least": 65}},
    {
        "name": "q",
        "kind": "vertical_regression",
        "target": "pay",
        "bounds": {"pay": [0, 1], "age": [0, 1]},
        "held_by": {"north": ["pay"], "south": ["age"]},
    },
    {
        "name": "q",
        "kind": "joint_table",
        "rows": {"party": "north", "column": "pay", "edges": [0, 1, 2]},
        "columns": {"party": "south", "column": "age", "categories": [0, 1]},
    },
]


@pytest.mark.parametrize("entry", JOINT, ids=lambda entry: str(entry["kind"]))
@pytest.mark.parametrize("changes", [BALANCED, {"weights": (0.5, 1, 1, 1)}], ids=str)
def test_a_query_that_is_no_sum_has_no_weights(entry: dict[str, Any], changes: dict[str, Any]) -> None:
    found = document(**changes, threshold=1, queries=[entry])
    if entry["kind"] in VERTICAL_KINDS:
        counts = records_at(entry, [one["name"] for one in found["parties"]], 9)
        for one in found["parties"]:
            one["records"] = counts[one["name"]]
    plain = {**found, "weighting": "equal", "parties": [{**one} for one in found["parties"]]}
    for one in plain["parties"]:
        one.pop("weight", None)
    assert Study.parse(plain).weights.are_equal
    with pytest.raises(InputError) as caught:
        Study.parse(found)
    assert caught.value.field == "weighting"
    assert "cannot be used with a non-additive query (q): write weighting =" in str(caught.value)


# Releases -------------------------------------------------------------------------------------------------------------


TABLES: Final = {
    name: {"age": np.tile([70.0, 20, 20, 20, 90], records // 5)} for name, records in zip(NAMES, RECORDS, strict=True)
}


@pytest.mark.parametrize("changes", [{"weights": OWN}, BALANCED], ids=str)
@pytest.mark.slow
def test_weighted_releases_err_as_their_noise_says_where_weights_do_nothing(changes: dict[str, Any]) -> None:
    """All parties have the same mix of records, so that only real noise is left: a chi-square test of it."""
    made, runs = study(**changes), 40
    found = [run(made, TABLES) for _ in range(runs)]
    answers = [one.answers[0] for one in found]
    assert all(answer.noise is not None and answer.always is not None for answer in answers)
    scaled = np.array([(answer.value - 32) / (answer.noise or math.nan) for answer in answers])
    assert 1e-6 < stats.chi2(runs).cdf(float((scaled**2).sum())) < 1 - 1e-6
    assert abs(scaled.mean()) < 5 / math.sqrt(runs)
    assert all(answer.standard_error > (answer.noise or math.inf) for answer in answers)
    told = found[0].parties
    assert told["south"].answers is None
    assert all("have nothing to do with the data" in one.assumes for one in told.values())


def test_equal_weights_assume_nothing_and_tell_no_second_interval() -> None:
    for made in (study(), study((0.5,) * 4)):
        told = run(made, TABLES).parties["north"]
        assert told.assumes == ""
        assert told.answers is not None
        assert (told.answers[0].noise, told.answers[0].always) == (None, None)


def test_what_is_assumed_names_the_spread_and_the_models() -> None:
    assert study().assumes == ""
    assert "50 %" in study(**BALANCED, spread=0.5).assumes
    assert "%" not in study(**BALANCED).assumes
    model = {"name": "fit", "kind": "linear_regression", "target": "age", "bounds": {"age": [0, 99], "days": [0, 9]}}
    assert "fit: weighted least squares" in study(**BALANCED, queries=[COUNT, model]).assumes
    assert "fit: weighted least squares" in study(**BALANCED, queries=[{**model, "where": "days > 1"}]).assumes
    assert "least squares" not in study(**BALANCED).assumes


def test_a_finished_session_is_told_again_with_all_it_said(tmp_path: Path) -> None:
    """From the ledger, without the relay, to the last bit."""
    made = study(OWN, queries=[COUNT, {**MEAN, "where": "age >= 65"}], receivers=["city", "lab"])
    tables = {
        name: {"age": np.full(records, 70.0), "days": np.full(records, 12.0)}
        for name, records in zip(NAMES, RECORDS, strict=True)
    }
    terms = made.terms()
    for name in ("lab", "south"):
        place = made.index(name)
        with Ledger.create(tmp_path / f"{name}.ledger", name, 10.0, 1e-6) as ledger:
            contribution = contribute(made, terms, name, tables[name])
            account = SessionAccount(made, terms, name, identity=KEYS[place], ledger=ledger)
            account.charge(account.hold(contribution))
            steps = terms.grid.encode(np.array([20.0, 0.1, 30.0]), 1e6) if name == "lab" else None
            first = account.settle(party_release(contribution, steps, sent=99))
            again = join(made, name, KEYS[place], tables[name], ledger, "http://127.0.0.1:9")
        assert again.again
        assert again.assumes == first.assumes != ""
        assert again.answers == first.answers
        if name == "lab":
            assert again.answers is not None
            assert all(answer.always is not None for answer in again.answers)
        with Ledger.open(tmp_path / f"{name}.ledger") as ledger:
            (entry,) = [one for one in ledger.entries() if one.is_charge]
            assert entry.charge.mu == terms.charge(place)[0]


@pytest.mark.parametrize("noise", [0.0, 1.5, math.inf])
@pytest.mark.parametrize("always", [(1.0, 2.0), (-math.inf, math.inf), (-math.inf, 3.0), (0.1, math.inf)])
@pytest.mark.parametrize("limits", [None, (1.0, 1.75), (-math.inf, math.inf)])
def test_answers_survive_json_with_noise_and_always(noise: float, always: Any, limits: Any) -> None:
    error = math.inf if limits is not None and math.isinf(limits[0]) else 0.25
    answer = Answer("q", 1.5, error, "part", limits, "a note", noise, always)
    text = json.dumps(answer.plain(), allow_nan=False)
    found = Answer.of_plain(json.loads(text))
    assert found.interval == answer.interval  # limits of no interval at all may be left out
    assert replace(found, limits=None) == replace(answer, limits=None)
    told = PartyRelease("a", (found,), "g", math.inf, 1e-6, None, None, 9, 1, assumes="that")
    assert PartyRelease.of_plain(json.loads(json.dumps(told.plain(), allow_nan=False))) == told


def test_answers_stored_before_there_were_weights_are_still_read() -> None:
    answer = {"query": "q", "part": "", "value": 1.0, "standard_error": 0.5, "low": None, "high": 2.0, "note": ""}
    found = Answer.of_plain(answer)
    assert (found.noise, found.always, found.interval) == (None, None, (-math.inf, 2.0))
    told = PartyRelease("a", None, "g", 1.0, 1e-6, None, None, 9, 1).plain()
    del told["assumes"]
    assert PartyRelease.of_plain({**told, "answers": [answer]}).assumes == ""
    assert "noise" not in Answer("q", 1.0, 0.5).plain()


def test_what_is_expected_of_a_weighted_study_counts_its_weights() -> None:
    made = study(**BALANCED, queries=[COUNT, MEAN])
    found, terms = expect(made), made.terms()
    scale = 80 / float(np.array(RECORDS) @ made.weights.each)
    excess = np.array(RECORDS) * (scale * made.weights.each - 1)
    count = np.count_nonzero(RECORDS)
    dealt = np.linalg.norm(excess) / 2 * math.sqrt(count / (count - 1))
    old = found.queries[0]
    noise = terms.standard_deviation * math.sqrt(2) * scale
    assert old.noise == pytest.approx(noise, rel=1e-9)
    (answer,) = old.answers
    assert answer.noise == pytest.approx(noise, rel=1e-9)
    assert answer.standard_error == pytest.approx(math.hypot(noise, dealt), rel=1e-6)
    assert answer.always is not None
    half = 1.959963984540054 * noise + np.abs(excess).sum() / 2
    assert (answer.always[1] - answer.always[0]) / 2 == pytest.approx(half, rel=1e-6)
    smaller = expect(study(**BALANCED, queries=[COUNT])).queries[0].noise
    assert smaller < expect(study(queries=[COUNT])).queries[0].noise / 2
