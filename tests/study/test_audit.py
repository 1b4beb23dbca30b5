"""An audit finds planted faults, and none in studies without. Noise is real, so bounds are stricter than in use."""

from __future__ import annotations

import io
import json
import math
import tomllib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import tpmdp.protocol.vectors as vectors
import tpmdp.study.session as session
from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.gaussian.composition import epsilon_of
from tpmdp.gaussian.lower_bounds import DRAWS_MIN, draws_for
from tpmdp.ledger import Charge
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.grid import Grid
from tpmdp.noise.source import NoiseSource
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.masks import Mask, to_words
from tpmdp.protocol.terms import Terms
from tpmdp.queries.catalogue import EXAMPLES, KINDS, SUM_KINDS
from tpmdp.queries.computation import MaskedSum
from tpmdp.queries.count import Count
from tpmdp.queries.search import farthest_records
from tpmdp.report.audit import audit_json, print_audit
from tpmdp.spec import Party, Spec
from tpmdp.study.audit import audit_study
from tpmdp.study.audit_entries import EntryWatch
from tpmdp.study.audit_view import drawn_noise, worst_coalition
from tpmdp.study.contribution import Contribution
from tpmdp.study.cost import trial_study
from tpmdp.study.expectation import trial_terms
from tpmdp.study.model import Study
from tpmdp.study.neighbours import neighbours_of

pytestmark = pytest.mark.slow
DOUBT = 1e-8  # that an honest study is blamed, or a planted fault missed
DRAWS = 4000
COUNT = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
MEAN = {"name": "age", "kind": "mean", "column": "age", "low": 0, "high": 100}
EDGES = [0, 18, 40, 65, 80, 100]
BINS = {"name": "ages", "kind": "histogram", "column": "age", "edges": EDGES}


@dataclass(frozen=True)
class TooNarrow(Count):
    """A count that declares nine tenths of its sensitivity."""

    @property
    def spread(self) -> float:  # type: ignore[override]
        return 0.9


def study_of(*queries: Mapping[str, Any], count: int = 4, **more: Any) -> Study:
    parties = [{"name": f"p{each}", "epsilon": 1 + each / 4, "records": 100} for each in range(count)]
    head = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all", "parties": parties}
    return Study.parse({**head, "queries": list(queries), **more}, {**KINDS, "too_narrow": TooNarrow})


# Faults --------------------------------------------------------------------------------------------------------------


def without_noise_of(party: int) -> Callable[..., Mask]:
    right = vectors.noisy_vector

    def faulty(terms: Terms, index: int, encoded: IntArray, source: NoiseSource) -> Mask:
        return to_words(encoded, terms.grid.word) if index == party else right(terms, index, encoded, source=source)

    return faulty


def test_missing_noise_of_one_party_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "noisy_vector", without_noise_of(2))
    result = audit_study(study_of(COUNT), draws=DRAWS)
    assert result.exceeds
    victims = [each for each in result.parties if "p2" not in each.coalition and each.party != "p2"]
    assert victims
    assert all(each.exceeds and each.gaussian > each.charged for each in victims)


def test_missing_noise_of_the_party_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "noisy_vector", without_noise_of(0))
    result = audit_study(study_of(COUNT, count=2), draws=2000)
    assert all(each.exceeds for each in result.parties if each.party == "p0")
    assert result.parties[0].counted > result.parties[0].charged  # whatever the noise is
    assert result.parties[0].gaussian == np.inf


def test_a_sensitivity_too_small_by_a_tenth_is_found() -> None:
    query = {**COUNT, "kind": "too_narrow"}
    result = audit_study(study_of(query), draws=DRAWS)
    assert all(each.exceeds for each in result.parties)
    assert all(each.reached == pytest.approx(1 / 0.9, rel=1e-3) for each in result.parties)


def weighted_study() -> Study:
    rows = [("a", 0.5, 0.5), ("b", 1.0, 0.7), ("c", 2.0, 1.0)]
    parties = [{"name": name, "epsilon": epsilon, "records": 100, "weight": weight} for name, epsilon, weight in rows]
    return study_of(COUNT, parties=parties, weighting="own")


def test_weights_that_the_charge_counts_and_the_data_do_not_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MaskedSum.encode

    def faulty(self: MaskedSum, party: Party, table: Table, grid: Grid, *, bound: float, weight: float) -> IntArray:
        return right(self, party, table, grid, bound=bound / weight, weight=1.0)

    study = weighted_study()
    assert not audit_study(study, draws=DRAWS, doubt=DOUBT).exceeds
    monkeypatch.setattr(MaskedSum, "encode", faulty)
    assert [each.exceeds for each in audit_study(study, draws=DRAWS).parties] == [True, True, False]


def test_a_charge_that_counts_the_least_weight_for_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Terms.charge

    def faulty(self: Terms, party: int, colluders: int | None = None) -> tuple[float, float]:
        mu, closeness = right(self, party, colluders)
        return mu * float(self.spec.sensitivity.min() / self.spec.sensitivity[party]), closeness

    monkeypatch.setattr(Terms, "charge", faulty)
    result = audit_study(weighted_study(), draws=DRAWS, doubt=DOUBT)
    assert [each.exceeds for each in result.parties] == [False, True, True]


def with_noise_of_the_session_before() -> Callable[[Contribution], Mask]:
    right, last = session.draw_vector, dict[str, IntArray]()

    def faulty(contribution: Contribution) -> Mask:
        terms, party = contribution.terms, contribution.party
        if contribution.study.session > 1:
            return to_words(contribution.under_noise + last[party], terms.grid.word)
        drawn = right(contribution)
        last[party] = drawn.astype(np.uint32).view(np.int32).astype(np.int64) - contribution.under_noise
        return drawn

    return faulty


def test_the_same_noise_twice_is_found_in_two_sessions_only(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(COUNT)
    assert trial_terms(study).grid.word == 32
    monkeypatch.setattr(session, "draw_vector", with_noise_of_the_session_before())
    assert not audit_study(study, draws=2000, doubt=DOUBT).exceeds
    for releases in (2, 3):
        result = audit_study(study, releases, draws=2000)
        assert all(each.exceeds for each in result.parties)
    assert audit_study(study, 2, draws=200).parties[0].gaussian == np.inf  # their difference has no noise at all


def without_noise_in(entries: Sequence[int], calls: Collection[int] = ()) -> Callable[..., IntArray]:
    """Noise that lacks these entries: always, or only for these of every four parties that draw."""
    right, drawn = discrete_gaussian, count()

    def faulty(sigma: int, dimension: int, source: NoiseSource) -> IntArray:
        noise = right(sigma, dimension, source)
        if next(drawn) % 4 in (calls or range(4)):
            noise[list(entries)] = 0
        return noise

    return faulty


@pytest.mark.parametrize("entry", range(6))
def test_an_entry_without_noise_is_found_and_named(monkeypatch: pytest.MonkeyPatch, entry: int) -> None:
    monkeypatch.setattr(vectors, "discrete_gaussian", without_noise_in([entry]))
    result = audit_study(study_of(COUNT, BINS), 2, draws=200, doubt=DOUBT)
    thinnest = result.entries
    assert thinnest is not None
    assert result.exceeds
    assert thinnest.tested == 2 * 2 * 6  # sessions, coalitions (the loudest, and the next loudest against it), entries
    assert thinnest.thin == 2 * 2
    assert (thinnest.query, thinnest.entry) == (("old", 1) if entry == 0 else ("ages", entry))
    assert thinnest.share == 0


def test_most_entries_without_noise_pass_the_bounds_and_not_the_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = neighbours_of(trial_study(study_of(BINS)), {f"p{each}": 1 for each in range(4)}, 0)["p0"]
    bins = [np.histogram(np.asarray(each["age"]), EDGES)[0] for each in (tables.first, tables.neighbour)]
    still = np.flatnonzero(bins[0] == bins[1]).tolist()
    assert len(still) == 3
    monkeypatch.setattr(vectors, "discrete_gaussian", without_noise_in(still))
    result = audit_study(study_of(BINS), draws=1000, doubt=DOUBT)
    assert not any(each.exceeds for each in result.parties if each.party == "p0")
    assert result.exceeds
    assert result.entries is not None
    assert result.entries.entry - 1 in still


def test_an_entry_that_lacks_the_noise_of_one_party_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    parties = [{"name": f"p{each}", "epsilon": 1.0, "records": 100} for each in range(4)]
    monkeypatch.setattr(vectors, "discrete_gaussian", without_noise_in([2], calls=[0]))
    result = audit_study(study_of(BINS, parties=parties), draws=1500)
    assert result.entries is not None
    assert result.entries.thin > 0
    assert result.entries.entry == 3
    assert 0.6 < result.entries.share < 1
    assert "p0" not in result.entries.coalition


def test_tests_of_entries_are_wrong_as_often_as_stated() -> None:
    """2,000 of them at a doubt of 5 %: outside 100 +- 54 with chance below 1e-6. And few enough are taken."""
    study = trial_study(study_of({**BINS, "edges": list(range(2001))}))
    terms = study.terms()
    watch = EntryWatch.of(study, terms, [(0,), (0,), ()], most=1 << 20)
    random = np.random.default_rng(5)
    for draw in range(60):
        noise = random.normal(size=(4, 2000)) * terms.sigma[:, None]
        watch.add(draw % 2, np.rint(noise).astype(np.int64))
    assert watch.tests == 2000
    assert abs(int((watch.shares(0.05) < 1).sum()) - 100) < 54
    few = EntryWatch.of(study, terms, [(0,), (1,)], most=10)
    assert few.entries.tolist() == [0, 400, 800, 1200, 1600]
    assert EntryWatch.of(study, terms, [(0,), (1,)], most=1).tests == 2


# Honest studies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [kind for kind in EXAMPLES if KINDS[kind] in SUM_KINDS.values()])
def test_no_kind_of_sum_is_blamed(kind: str) -> None:
    result = audit_study(study_of(tomllib.loads(EXAMPLES[kind]), count=2), draws=200, doubt=DOUBT)
    assert len(result.parties) == 2
    assert not result.exceeds
    least = 0.6 if "regression" in kind else 0.9  # by rounds, no record is the worst at every point
    assert all(least < each.reached < 1 + 1e-4 for each in result.parties)


@pytest.mark.parametrize(
    "settings",
    [
        {"count": 2},
        {"count": 9, "threshold": 8},
        {"receivers": ["p1"], "threshold": 2},
        {"receivers": ["p0", "p3"], "threshold": 3},
        {"unit": "party"},
        {"weighting": "balanced"},
        {"tolerate": 1},
        {"delta": 0.01},
        {"guarantee": "statistical", "count": 3},
    ],
    ids=str,
)
def test_no_setting_is_blamed_and_estimates_are_near_the_charge(settings: dict[str, Any]) -> None:
    releases = 1 if len(settings) > 1 else 3
    result = audit_study(study_of(COUNT, MEAN, BINS, **settings), releases, draws=600, doubt=DOUBT)
    assert result.parties
    assert not result.exceeds
    for each in result.parties:
        assert max(each.gaussian, each.counted) < each.charged <= each.promised
        assert each.gaussian <= each.estimated
        assert each.estimated == pytest.approx(each.charged * each.reached, rel=0.5)


@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
def test_tiny_and_large_budgets(epsilon: float) -> None:
    parties = [{"name": name, "epsilon": epsilon, "records": 1000} for name in "ab"]
    result = audit_study(study_of(COUNT, parties=parties), draws=2000, doubt=DOUBT)
    assert not result.exceeds
    assert all(0.6 < each.estimated / epsilon < 1.4 for each in result.parties)


def test_who_is_not_audited_and_why() -> None:
    parties = [
        {"name": "a", "epsilon": 1, "records": 10},
        {"name": "b", "epsilon": float("inf"), "records": 10},
        {"name": "c", "epsilon": 1, "records": 0},
    ]
    result = audit_study(study_of(COUNT, parties=parties, receivers=["a"]), draws=1000, doubt=DOUBT)
    assert "a" in result.skipped  # the only receiver: nobody else learns anything
    assert "c" not in {*result.skipped, *(each.party for each in result.parties)}
    exact = audit_study(study_of(COUNT, threshold=0))
    assert exact.parties == ()
    assert set(exact.skipped.values()) == {"nothing is promised, as its charge is infinite"}
    assert not exact.exceeds


# Its parts -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [0, 1, 2, 4])
@pytest.mark.parametrize("receivers", ["all", ["p4"], ["p0", "p1"]])
def test_the_worst_coalition_is_the_worst_of_all(threshold: int, receivers: Any) -> None:
    study = study_of(COUNT, count=5, threshold=max(threshold, 1), receivers=receivers)
    terms = trial_terms(study.varied(threshold=threshold) if threshold else study)
    size = max(1, int(np.max(terms.spec.threshold)))
    squares = terms.sigma.astype(object) ** 2
    for party in range(5):
        others = [each for each in range(5) if each != party]
        allowed = [
            members
            for many in range(1, size + 1)
            for members in combinations(others, many)
            if any(terms.spec.receivers[each] for each in members)
        ]
        coalition = worst_coalition(terms, party)
        most = max((sum(squares[list(members)]) for members in allowed), default=0)
        assert sum(squares[list(coalition)]) == most
        if coalition:
            honest = float(sum(squares) - most) * terms.grid.step**2
            mu, _ = terms.charge(party)
            assert mu == pytest.approx(1 / honest**0.5, rel=1e-3)
            assert mu > 1 / honest**0.5  # rounded up, with what rounding to the grid costs


def test_personal_thresholds_have_coalitions_of_their_own() -> None:
    plan = plan_on_grid(Spec(epsilon=[1.0] * 4, delta=1e-6, threshold=[1, 2, 3, 2]), bound=1.0)
    terms = Terms.of("demo", plan, 1.0, tuple(bytes([each]) * 32 for each in range(4)))
    assert [len(worst_coalition(terms, party)) for party in range(4)] == [1, 2, 3, 2]


@pytest.mark.parametrize("unit", ["record", "party"])
def test_neighbours_differ_in_what_is_protected(unit: str) -> None:
    study = study_of(MEAN, {**COUNT, "where": "sex = 'f'"}, unit=unit)
    tables = neighbours_of(trial_study(study), {f"p{each}": 5 for each in range(4)}, 3)["p1"]
    first, neighbour, group = (np.asarray(each["age"]) for each in (tables.first, tables.neighbour, tables.group))
    changed = 100 if unit == "party" else 1
    assert np.count_nonzero(first != neighbour) == changed
    assert np.count_nonzero(first != group) == (100 if unit == "party" else 5)
    assert tables.apart == (1 if unit == "party" else 5)


def test_draws_are_as_many_as_show_the_excess() -> None:
    parties = [{"name": name, "epsilon": 1, "records": 50} for name in "ab"]
    study = study_of(COUNT, parties=parties)
    coarse, fine = audit_study(study, excess=0.2, doubt=DOUBT), audit_study(study, excess=0.1, doubt=DOUBT)
    assert coarse.excess <= 0.2
    assert fine.excess <= 0.1
    assert 3.5 < fine.draws / coarse.draws < 4.5


def test_draws_are_enough_to_miss_the_noise_of_one_party_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def few(targets: Any, all_sessions: Any, draws: int, **further: Any) -> FloatArray:
        asked.append(draws)
        return drawn_noise(targets, all_sessions, 100, **further)

    monkeypatch.setattr("tpmdp.study.audit.drawn_noise", few)
    audit_study(study_of(COUNT, count=16))
    audit_study(study_of(COUNT, count=3), excess=0.3)
    assert asked == [draws_for(math.sqrt(15 / 14), 1e-3 / 2 / (2 * 16)), DRAWS_MIN]


@pytest.mark.long
def test_false_alarms_are_as_rare_as_stated_and_bounds_not_much_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a doubt of 0.2, more than 121 of 400 audits raise an alarm with chance below 1e-6 if the doubt is right."""
    pair = farthest_records([Count("old", "age", at_least=65.0)], [1.0], "record", tries=200)
    monkeypatch.setattr("tpmdp.study.neighbours.farthest_records", lambda *_, **__: pair)
    alarms = sum(audit_study(study_of(COUNT, count=2), draws=300, doubt=0.2).exceeds for _ in range(400))
    assert 4 < alarms <= 121


@pytest.mark.parametrize(
    ("field", "value"), [("releases", 0), ("releases", 1000), ("excess", 0.0), ("excess", float("nan")), ("seed", -1)]
)
def test_bad_numbers_are_refused(field: str, value: float) -> None:
    arguments: dict[str, Any] = {field: value}
    with pytest.raises(InputError, match=field):
        audit_study(study_of(COUNT), **arguments)


def test_functions_on_shares_are_refused() -> None:
    query = {"name": "top", "kind": "maximum", "of": {key: COUNT[key] for key in ("kind", "column", "at_least")}}
    with pytest.raises(InputError, match="cannot be audited"):
        audit_study(study_of(query))


def test_the_table_and_the_json_say_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(terms: Terms, index: int) -> Charge:
        mu, closeness = terms.charge(index)
        return Charge(mu / 2, closeness, float(terms.spec.epsilon[index]), delta=1e-6)

    study = study_of(COUNT, count=7, threshold=6)
    right = audit_study(study, draws=2000, doubt=DOUBT)
    monkeypatch.setattr("tpmdp.study.audit.charge_of", half)
    wrong = audit_study(study, draws=2000)
    for result in (right, wrong):
        console = Console(width=160, file=io.StringIO())
        print_audit(result, console)
        assert isinstance(console.file, io.StringIO)
        text = console.file.getvalue()
        assert "Audit of demo / session 1: epsilon of one session" in text
        assert "p1, p2, p3, p4 and 2 more" in text
        assert ("EXCEEDED: p0 loses at least epsilon" in text) is result.exceeds
        shown = json.loads(json.dumps(audit_json(result), allow_nan=False))
        assert shown["exceeds"] is result.exceeds
        assert shown["parties"][0]["gaussian"] == result.parties[0].gaussian
    assert wrong.exceeds
    assert epsilon_of(1.0, 1e-6) > 1


def test_an_entry_without_noise_has_a_line_and_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "discrete_gaussian", without_noise_in([1]))
    result = audit_study(study_of(BINS, count=2), draws=200, doubt=DOUBT)
    console = Console(width=400, file=io.StringIO())
    print_audit(result, console)
    assert isinstance(console.file, io.StringIO)
    line = (
        "EXCEEDED: noise is smaller than planned in 2 of 10 tests of single entries. Entry 2 of ages in demo / session "
        "1, as p0 would see it, has at most 0 % of the planned variance: do not take part, and report it"
    )
    assert line in console.file.getvalue().splitlines()
    shown = json.loads(json.dumps(audit_json(result), allow_nan=False))
    assert shown["exceeds"] is True
    assert {key: shown["entries"][key] for key in ("tested", "thin", "entry", "coalition")} == {
        "tested": 10,
        "thin": 2,
        "entry": 2,
        "coalition": ["p0"],
    }
