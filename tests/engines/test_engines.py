"""One battery for every engine: the same sum as the ideal one, to receivers only, whatever the shape of the study."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.patience import HANG_S
from tests.protocol.sessions import World
from tests.queries.cases import statistic
from tests.study.rounds import study_by_rounds, tables_for
from tpmdp import InputError, Study
from tpmdp import run as release
from tpmdp.data.table import Table, Text
from tpmdp.engines.contract import Engine, Outcome
from tpmdp.engines.ideal import IdealEngine
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.mpyc.engine import MpycEngine
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.errors import DeadlineError, NoNoiseWarning, TpmdpError
from tpmdp.flower.engine import FlowerEngine
from tpmdp.protocol.masks import to_words
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.terms import Guarantee
from tpmdp.queries.catalogue import EXAMPLES, SUM_KINDS
from tpmdp.queries.rounds import RoundsQuery

FLOWER = FlowerEngine()  # starts its simulation once, for all tests of a process
ENGINES = [
    IdealEngine(),
    MemoryEngine(),
    pytest.param(RelayEngine(), marks=pytest.mark.process),
    pytest.param(MpycEngine(), marks=pytest.mark.process),
    pytest.param(FLOWER, marks=[pytest.mark.process, pytest.mark.flower]),
]
SHAPES: list[tuple[int, int, Any, Guarantee, int]] = [
    (2, 1, "all", "computational", 1),
    (2, 0, [1], "computational", 3),
    (3, 2, [2], "statistical", 7),
    (4, 1, [1, 3], "statistical", 7),
    (5, 2, [0, 4], "computational", 20_000),
    (5, 4, [1, 2, 3], "statistical", 300),
]


@pytest.fixture(scope="module", autouse=True)
def _end_the_simulation() -> Iterator[None]:
    yield
    FLOWER.close()


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    return found


def run(engine: Engine, world: World) -> Outcome:
    return engine.run(world.terms, world.identities, world.vectors, HANG_S)


@pytest.mark.parametrize("shape", SHAPES)
def test_receivers_get_the_sum_and_everybody_else_a_receipt(engine: Engine, shape: Any) -> None:
    world = World(*shape)
    if engine.name == "mpyc" and 2 * max(1, shape[1]) >= shape[0]:  # Shamir sharing needs an honest majority
        with pytest.raises(InputError, match="for the mpyc engine"):
            run(engine, world)
        return
    outcome = run(engine, world)
    receivers = set(np.flatnonzero(world.terms.spec.receivers).tolist())
    assert set(outcome.sums) == receivers
    assert outcome.receipts == set(range(world.terms.count)) - receivers
    for total in outcome.sums.values():
        assert total.tolist() == world.total


def test_the_extremes_of_the_word_add_up(engine: Engine) -> None:
    world = World(3, 1, [0], dimension=2)
    world.inputs = np.array([[2**30, -(2**30)], [2**29, -(2**29)], [-1, 1]])
    world.vectors = [to_words(row, world.terms.grid.word) for row in world.inputs]
    assert run(engine, world).sums[0].tolist() == world.total


def test_an_outcome_says_which_guarantee_it_carries(engine: Engine) -> None:
    for guarantee in ("computational", "statistical"):
        world = World(3, 1, [0], guarantee)
        text = run(engine, world).guarantee
        assert text.startswith("none: a trusted adder" if engine.name == "ideal" else guarantee)


def test_a_plan_that_breaks_a_budget_is_not_run(engine: Engine) -> None:
    world = World(3, 1, [0])
    world.terms = dataclasses.replace(world.terms, sigma=world.terms.sigma // 2)
    with pytest.raises(InputError if engine.name != "relay" else TpmdpError):
        run(engine, world)


def test_two_sessions_share_nothing(engine: Engine) -> None:
    one, two = World(3, 1, [0], label="one"), World(3, 1, [0], label="two", seed=5)
    assert run(engine, one).sums[0].tolist() == one.total
    assert run(engine, two).sums[0].tolist() == two.total


def test_what_a_party_sends_follows_the_threshold_not_the_number_of_parties() -> None:
    sent = [run(MemoryEngine(), World(count, 2, [0], dimension=100)).bytes_sent[1] for count in (5, 10, 20)]
    assert sent[0] == sent[1] == sent[2]


def test_a_deadline_that_cannot_be_met_is_an_error_and_not_a_wait() -> None:
    with pytest.raises(DeadlineError, match="deadline"):
        MemoryEngine().run(World(5, 2).terms, World(5, 2).identities, World(5, 2).vectors, deadline_s=-1.0)


@pytest.fixture
def flower() -> Iterator[FlowerEngine]:
    yield FLOWER
    FLOWER.server, FLOWER.lost = None, {}


@pytest.mark.flower
@pytest.mark.process
@pytest.mark.parametrize("server", [0, 2])
def test_the_server_of_flower_is_a_party_like_any_other(flower: FlowerEngine, server: int) -> None:
    """A receiver and the lead, or neither: others get the same."""
    world = World(5, 2, [0, 4], label=f"server {server}")
    flower.server = server
    outcome = run(flower, world)
    assert set(outcome.sums) == {0, 4}
    assert outcome.receipts == {1, 2, 3}
    assert all(total.tolist() == world.total for total in outcome.sums.values())


@pytest.mark.flower
@pytest.mark.process
@pytest.mark.parametrize("server", [None, 0])
@pytest.mark.parametrize("kind", [Kind.KEYS, Kind.SUBMIT])
def test_nodes_of_flower_may_fail_before_they_have_submitted(
    flower: FlowerEngine, server: int | None, kind: Kind
) -> None:
    world = World(6, 1, [0, 4], label=f"fail {server} {kind}", tolerate=2, has_noise=False)
    flower.server, flower.lost = server, {1: kind, 4: kind}
    outcome = flower.run(world.terms, world.identities, world.vectors, HANG_S, plain=list(world.inputs))
    assert outcome.missing == {1, 4}
    assert set(outcome.sums) == {0}
    assert outcome.sums[0].tolist() == world.inputs[[0, 2, 3, 5]].sum(axis=0).tolist()


@pytest.mark.flower
@pytest.mark.process
@pytest.mark.parametrize("server", [None, 0])
def test_nodes_of_flower_that_fail_after_they_have_submitted_are_counted(
    flower: FlowerEngine, server: int | None
) -> None:
    world = World(6, 1, [0], label=f"late {server}", tolerate=2)
    flower.server, flower.lost = server, {1: Kind.REVEAL, 4: Kind.REVEAL}
    outcome = run(flower, world)
    assert outcome.sums[0].tolist() == world.total
    assert outcome.receipts == {2, 3, 5}


@pytest.mark.flower
@pytest.mark.process
def test_who_is_lost_on_flower_in_the_last_step_or_leads_ends_the_session(flower: FlowerEngine) -> None:
    for lost, kind in ((3, Kind.REVEAL), (0, Kind.KEYS)):
        world = World(5, 1, [0, 4], "statistical", label=f"end {lost}", tolerate=2)
        flower.lost = {lost: kind}
        with pytest.raises(DeadlineError, match=world.terms.spec.name(lost)):
            run(flower, world)


ROUNDS_KINDS = {kind for kind, maker in SUM_KINDS.items() if issubclass(maker, RoundsQuery)}


def every_query() -> tuple[Study, dict[str, Table]]:
    """A study that asks every kind of query that is a sum, plainly, of a part and by groups."""
    kinds = [{**tomllib.loads(EXAMPLES[kind]), "name": kind} for kind in SUM_KINDS]
    for query in kinds:
        query.pop("by", None)
        query.pop("where", None)
        if query["kind"] in ROUNDS_KINDS:
            query["rounds"] = 1  # tests/study/test_rounds_study.py has those by rounds
    by = [{**query, "name": f"{query['name']} by ward", "by": {"ward": ["north", "south"]}} for query in kinds]
    some = [{**query, "name": f"{query['name']} where", "where": "ward = 'north' or severity < 5"} for query in kinds]
    names = ["a", "b", "c", "d", "e"]
    document = {
        "name": "everything",
        "threshold": 2,
        "receivers": ["b", "d"],
        "epsilon": 30.0,
        "delta": 1e-6,
        "parties": [{"name": name, "records": 400 if name != "c" else 0} for name in names],
        "queries": [*kinds, *by, *some],
    }
    random = np.random.default_rng(0)
    tables: dict[str, Table] = {
        name: {
            "age": random.uniform(0, 120, 400),
            "days": random.uniform(0, 31, 400),
            "severity": random.uniform(-1, 11, 400),
            "visits": random.integers(0, 25, 400).astype(float),
            "months": random.uniform(0, 26, 400),
            "relapsed": (random.random(400) < 0.9).astype(float),
            "arm": Text.of(random.choice(["standard", "new"], 400).tolist()),
            "ward": Text.of(random.choice(["north", "south", "west"], 400).tolist()),
        }
        for name in names
        if name != "c"
    }
    return Study.parse(document), tables


def test_every_query_runs_on_every_engine(engine: Engine) -> None:
    """The answers are those of the data without noise, within their error bars."""
    study, tables = every_query()
    found = release(study, tables, engine=engine)
    total = np.sum([statistic(study, name, table) for name, table in tables.items()], axis=0)
    truth, start = [], 0
    for query, scale in zip(study.computation.sums, study.computation.scales, strict=True):
        part = total[start : start + query.dimension] / scale
        truth += query.answers(part, study.records, 0.0)
        start += query.dimension
    assert [answer.label for answer in found.answers] == [answer.label for answer in truth]
    with_interval, queries = 0, {query.name: query for query in study.queries}
    for answer, exact in zip(found.answers, truth, strict=True):
        low, high = answer.interval
        width = (high - low) / 2
        slack = 2 * width + queries[answer.query].resolution_of(answer.part)
        assert low - slack <= exact.value <= high + slack, answer.label
        with_interval += bool(np.isfinite(width))
    in_one_round = [answer for answer in truth if answer.query.split()[0] in ROUNDS_KINDS]  # have no interval
    assert with_interval > 0.9 * (len(truth) - len(in_one_round))
    assert {name for name, one in found.parties.items() if one.answers is not None} == {"b", "d"}


def test_a_study_by_rounds_gives_the_same_as_a_direct_computation(engine: Engine) -> None:
    """Without noise: every round is exact up to the grid, so the last one is."""
    if engine.name == "mpyc":
        return  # for functions on shares, which have no rounds
    study = study_by_rounds("abc", threshold=0)
    tables = tables_for(study)
    with pytest.warns(NoNoiseWarning):
        answers = release(study, tables, engine=engine).answers
    exact = np.concatenate([table["x"] for table in tables.values()]).mean()
    assert [answer.value for answer in answers] == pytest.approx([exact], abs=1e-4)
