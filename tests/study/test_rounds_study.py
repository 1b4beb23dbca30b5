"""Studies by rounds in one process: right answers, the promised cost, and nothing left behind."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp
from tests.study.rounds import ZOOM_KINDS, study_by_rounds, tables_for
from tpmdp import Ledger, Study
from tpmdp.engines.ideal import IdealEngine
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.errors import DeadlineError, InputError, NoNoiseWarning
from tpmdp.study.expectation import expect

ENGINES: dict[str, Any] = {"ideal": IdealEngine, "memory": MemoryEngine, "relay": RelayEngine}


def ledgers_for(study: Study, folder: Path) -> dict[str, Ledger]:
    return {
        party.name: Ledger.create(folder / f"{party.name}.ledger", party.name, party.epsilon, party.delta)
        for party in study.parties
    }


def exact(study: Study, tables: dict[str, dict[str, Any]]) -> float:
    return float(np.concatenate([table["x"] for table in tables.values()]).sum() / study.records)


@pytest.mark.parametrize(
    ("engine", "changes"),
    [
        ("ideal", {}),
        ("memory", {"guarantee": "statistical"}),
        ("memory", {"threshold": 2}),
        pytest.param("relay", {}, marks=pytest.mark.process),
    ],
)
def test_answers_within_the_noise_and_costs_as_promised(engine: str, changes: dict[str, Any], tmp_path: Path) -> None:
    study = study_by_rounds("abc", **changes)
    tables, ledgers = tables_for(study), ledgers_for(study, tmp_path)
    release = tpmdp.run(study, tables, ledgers, ENGINES[engine]())
    (answer,) = release.answers
    assert abs(answer.value - exact(study, tables)) < 7 * answer.standard_error  # false alarm below 1e-11
    (expected,) = expect(study).queries[0].answers
    assert math.isclose(answer.standard_error, expected.standard_error)
    for party in study.parties:
        each, ledger = release.parties[party.name], ledgers[party.name]
        assert (each.rounds, each.rounds_done, each.is_stopped, each.note) == (3, 3, False, "")
        assert each.delta == party.delta
        spent = ledger.spent()
        assert each.epsilon == spent.epsilon <= party.epsilon
        assert (spent.sessions, spent.held) == (3, 0)
        assert math.isclose(each.epsilon, expect(study).charges[party.name], rel_tol=1e-12)
        ledger.verify()
        left = [ledger.private_names(key) for key in keys_in(ledger)]
        assert not any("table" in names or "vector" in names or "statistic" in names for names in left)
        ledger.close()
    strictest = release.parties["a"]
    assert strictest.epsilon > 0.99999 * study.parties[0].epsilon  # what was promised is used


def keys_in(ledger: Ledger) -> list[Any]:
    return [
        tpmdp.ledger.SessionKey(bytes.fromhex(entry.session), bytes.fromhex(entry.plan))
        for entry in ledger.entries()
        if entry.session
    ]


@pytest.mark.parametrize("names", ["ab", "abcd"])
def test_without_noise_the_answer_is_exact(names: str) -> None:
    study = study_by_rounds(names, threshold=0)
    tables = tables_for(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoNoiseWarning)
        release = tpmdp.run(study, tables)
    assert release.answers[0].value == pytest.approx(exact(study, tables), abs=1e-4)
    assert release.parties["a"].epsilon == math.inf


def test_ordinary_queries_go_with_the_last_round() -> None:
    queries = [
        {"name": "high", "kind": "count", "column": "x", "at_least": 0.5},
        {"name": "mean", "kind": "zoom", "column": "x", "rounds": 2, "weight": 2.0},
        {"name": "upper", "kind": "zoom", "column": "x", "rounds": 3, "where": "x >= 0.2"},
    ]
    study = study_by_rounds("abc", queries=queries, threshold=0)
    assert study.rounds == 3
    tables = tables_for(study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoNoiseWarning)
        release = tpmdp.run(study, tables)
    everything = np.concatenate([table["x"] for table in tables.values()])
    assert [answer.query for answer in release.answers] == ["high", "mean", "upper"]
    assert release.answers[0].value == pytest.approx((everything >= 0.5).sum(), abs=0.05)
    assert release.answers[1].value == pytest.approx(everything.mean(), abs=1e-3)
    assert [each.query.name for each in expect(study).queries] == ["high", "mean", "upper"]


@pytest.mark.parametrize("weighting", ["balanced", "own"])
def test_weights_infinite_budgets_and_parties_without_records(weighting: str) -> None:
    parties: list[dict[str, Any]] = [
        {"name": "a", "epsilon": 0.5, "records": 40},
        {"name": "b", "epsilon": math.inf, "records": 30},
        {"name": "c", "records": 0},
        {"name": "d", "epsilon": 5.0, "records": 60},
    ]
    if weighting == "own":
        parties[0]["weight"] = 0.5
    study = study_by_rounds(parties=parties, weighting=weighting)
    tables = tables_for(study)
    release = tpmdp.run(study, tables)
    assert sorted(release.parties) == ["a", "b", "c", "d"]
    assert release.parties["a"].epsilon <= 0.5
    assert release.parties["d"].epsilon <= 5.0
    assert release.parties["c"].epsilon == 0.0
    assert len(release.answers) == 1


def test_the_cost_of_every_round_is_known_before_points_are(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    ledgers = ledgers_for(study, tmp_path)
    tpmdp.run(study, tables_for(study), ledgers)
    for ledger in ledgers.values():
        entries = list(ledger.entries())
        held = {entry.session: entry.charge.mu for entry in entries if entry.kind == "hold"}
        charged = {entry.session: entry.charge.mu for entry in entries if entry.kind == "charge"}
        assert held == charged
        assert len(held) == 3
        kinds = [entry.kind for entry in entries if entry.session]
        assert kinds[:3] == ["hold"] * 3  # all of them before the first charge
        ledger.close()


class FailingEngine(MemoryEngine):
    """Fails from one round on."""

    def __init__(self, last: int) -> None:
        super().__init__()
        self.left = last

    def run(self, *arguments: Any, **more: Any) -> Any:
        if not self.left:
            raise DeadlineError("a party is gone")
        self.left -= 1
        return super().run(*arguments, **more)


def test_stopped_early_it_gives_the_last_point_without_interval_and_frees_the_rest(tmp_path: Path) -> None:
    queries = [
        {"name": "mean", "kind": "zoom", "column": "x", "rounds": 3},
        {"name": "high", "kind": "count", "column": "x", "at_least": 0.5},
    ]
    study = study_by_rounds("abc", queries=queries)
    tables, ledgers = tables_for(study), ledgers_for(study, tmp_path)
    release = tpmdp.run(study, tables, ledgers, FailingEngine(2))
    assert [answer.query for answer in release.answers] == ["mean"]
    assert release.answers[0].standard_error == math.inf
    for name, each in release.parties.items():
        assert each.is_stopped
        assert each.rounds_done == 2
        assert each.note.startswith("stopped after round 2 of 3: a party is gone")
        assert ledgers[name].spent().held == 0
        assert each.epsilon == ledgers[name].spent().epsilon  # the third round was charged before it failed
        assert ledgers[name].spent().sessions == 3
        ledgers[name].verify()
        ledgers[name].close()


def test_a_failure_in_the_first_round_is_an_error_and_holds_nothing(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    ledgers = ledgers_for(study, tmp_path)
    with pytest.raises(DeadlineError):
        tpmdp.run(study, tables_for(study), ledgers, FailingEngine(0))
    assert [ledger.spent().held for ledger in ledgers.values()] == [0, 0, 0]
    for ledger in ledgers.values():
        ledger.close()


def test_room_for_all_rounds_or_for_none(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    with Ledger.create(tmp_path / "small.ledger", "a", 0.7, 1e-6) as small:
        ledgers = {**ledgers_for(study, tmp_path), "a": small}  # enough for the first round, but not for all
        with pytest.raises(tpmdp.OverspendError, match=r"study rounds / session 1 would cost a epsilon 1"):
            tpmdp.run(study, tables_for(study), ledgers)
        assert all(ledger.spent().sessions == ledger.spent().held == 0 for ledger in ledgers.values())
        for ledger in ledgers.values():
            ledger.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"receivers": ["a"]}, r"receivers = a leaves out b, but by rounds all parties learn"),
        ({"receivers": ["a"], "queries": [{"name": "m", "kind": "zoom", "column": "x", "rounds": 1}]}, ""),
    ],
)
def test_refused_studies(changes: dict[str, Any], message: str) -> None:
    if not message:
        assert study_by_rounds(**changes).rounds == 1
        return
    with pytest.raises(InputError, match=message):
        study_by_rounds(**changes)


def test_no_drop_outs_by_rounds() -> None:
    with pytest.raises(InputError, match="tolerate = 1 must be 0 by rounds"):
        study_by_rounds("abcd", tolerate=1)


def test_the_terms_of_the_first_round_bind_the_whole_study() -> None:
    study = study_by_rounds("abc")
    keys = {name: name.encode() * 32 for name in "abc"}
    hashes = {study.with_keys(keys).terms().plan_hash}
    last_only = [
        {"name": "mean", "kind": "zoom", "column": "x", "rounds": 3},
        {"name": "high", "kind": "count", "column": "x", "at_least": 0.5},
    ]
    others = [
        study_by_rounds("abc", rounds=4),
        study_by_rounds("abc", queries=last_only),
        study_by_rounds("abc", queries=[last_only[0], {**last_only[1], "at_least": 0.6}]),
        study_by_rounds("abc", delta=1.5e-6),
    ]
    for other in others:
        hashes.add(other.with_keys(keys).terms().plan_hash)
    assert len(hashes) == 5
    ids = {study.with_keys(keys).round(2, {"mean": (point,)}).session_id for point in (0.25, 0.75)}
    assert len(ids) == 1  # parties whose points differ meet
    plans = {study.with_keys(keys).round(2, {"mean": (point,)}).terms().plan_hash for point in (0.25, 0.75)}
    assert len(plans) == 2  # and do not agree


def test_reading_and_writing_the_study_changes_nothing(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    study.write(tmp_path / "study.toml")
    assert Study.read(tmp_path / "study.toml", ZOOM_KINDS) == study


def test_logistic_regression_by_four_rounds_comes_near_maximum_likelihood() -> None:
    """The first step is far off on such data; the last one, with an exact sum, is where the scores add up to 0."""
    random = np.random.default_rng(3)
    columns = {name: random.uniform(-1, 1, (3, 2000)) for name in ("age", "dose")}
    odds = -2.0 + 1.5 * columns["age"] - 2.5 * columns["dose"]
    ill = (random.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(np.float64)
    tables = {
        name: {"ill": ill[place], **{column: values[place] for column, values in columns.items()}}
        for place, name in enumerate("abc")
    }
    parties = [{"name": name, "epsilon": math.inf, "records": 2000} for name in "abc"]
    query = {"name": "risk", "kind": "logistic_regression", "target": "ill"}
    study = study_by_rounds(
        parties=parties, threshold=0, queries=[{**query, "bounds": {"age": [-1, 1], "dose": [-1, 1]}}]
    )
    assert study.rounds == 4
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoNoiseWarning)
        release = tpmdp.run(study, tables)
    fitted = np.array([answer.value for answer in release.answers])
    inputs = np.stack([np.ones(6000), columns["age"].ravel(), columns["dose"].ravel()])
    best = np.zeros(3)
    for _ in range(30):  # Newton's method, to the end
        chance = 1 / (1 + np.exp(-(best @ inputs)))
        best += np.linalg.solve((inputs * chance * (1 - chance)) @ inputs.T, inputs @ (ill.ravel() - chance))
    assert np.abs(fitted - best).max() < 0.005
