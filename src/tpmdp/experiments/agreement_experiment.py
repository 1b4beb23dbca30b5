"""A few points through the real protocol: keys, masks, exact noise on a grid, and for some points the network.

All other experiments simulate the sum and its noise. Here parties encode their inputs, draw discrete noise, mask and
send; the error of what the receivers get is compared with that of the simulated mechanism.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import FloatArray
from tpmdp.engines.contract import Engine
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.relay.engine import RelayEngine
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.scenario import Scenario
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.problem import ROOT_2, CountProblem, Problem, RegressionProblem
from tpmdp.mechanisms.registry import MECHANISMS
from tpmdp.noise.source import system_source
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import noisy_vector

# engine, problem, parties, threshold, sessions, sessions of a quick run
POINTS: Final = (
    ("memory", "count", 20, 10, 200, 10),
    ("memory", "count", 20, 19, 200, 10),
    ("memory", "count", 100, 50, 20, 0),
    ("memory", "regression", 20, 10, 60, 2),
    ("relay", "count", 5, 2, 40, 0),
    ("relay", "regression", 5, 4, 20, 1),
)
_BLOCK: Final = 50


def jobs(quick: bool, seed: int) -> list[Job]:
    """All points. Noise is drawn from the system, as in a release: these rows differ from run to run.

    >>> sorted({str(job.setting["engine"]) for job in jobs(True, 1)})
    ['memory', 'relay']
    """
    result = []
    for engine, problem, parties, threshold, sessions, quick_sessions in POINTS:
        settings = (("engine", engine), ("problem", problem), ("threshold", threshold))
        count = quick_sessions if quick else sessions
        for first in range(0, count, _BLOCK):
            size = min(_BLOCK, count - first)
            weight = size * (5.0 if engine == "relay" else parties**2 / 4000)
            panel = f"{engine}-{problem}-{threshold}"
            result.append(
                Job(
                    "agreement",
                    panel,
                    float(parties),
                    first=first,
                    count=size,
                    seed=seed,
                    settings=settings,
                    weight=weight,
                )
            )
    return result


def run(job: Job) -> list[Row]:
    """One row per session: the squared error over all coordinates, and the error of the simulated mechanism.

    `grid` is the effect of the grid alone: the deviation planned on it over that of the simulation.

    >>> settings = (("engine", "memory"), ("problem", "count"), ("threshold", 2))
    >>> run(Job("agreement", "memory-count", 4, 0, 1, 1, settings))[0]["coordinates"]
    1
    """
    setting = job.setting
    engine: Engine = RelayEngine() if setting["engine"] == "relay" else MemoryEngine()
    scenario = Scenario(int(job.x), threshold=int(setting["threshold"] or 0))
    rows: list[Row] = []
    for session in range(job.first, job.first + job.count):
        random = job.random(session)
        inputs = _inputs(str(setting["problem"]), scenario.parties, job.seed, random=random)
        problem: Problem = CountProblem(inputs[:, 0]) if setting["problem"] == "count" else RegressionProblem(inputs)
        budgets = scenario.setting(random, problem.sensitivity)
        errors, deviation = _errors(engine, budgets, problem, label=f"agreement {job.key} {session}")
        predicted = MECHANISMS["G"].error(budgets, problem).variance
        rows.append(
            {
                "engine": setting["engine"],
                "problem": setting["problem"],
                "parties": scenario.parties,
                "threshold": scenario.colluders,
                "session": session,
                "coordinates": len(errors),
                "squares": float(np.sum(errors**2 / predicted)),
                "error": float(np.sqrt(np.mean(errors**2))),
                "expected": float(np.sqrt(np.mean(predicted))),
                "grid": deviation / float(np.sqrt(np.mean(predicted))),
                "seed": job.seed,
            }
        )
    return rows


def _inputs(problem: str, parties: int, seed: int, random: np.random.Generator) -> FloatArray:
    """A column of bits, or records."""
    if problem == "count":
        return (random.random((parties, 1)) < 0.15).astype(np.float64)
    people = People().records(seed, 10_000)
    return people[random.choice(len(people), parties, replace=False)]


def _errors(engine: Engine, budgets: Setting, problem: Problem, label: str) -> tuple[FloatArray, float]:
    """Run a session as a release does: error of what the first receiver gets, and the deviation planned on the grid."""
    parties = problem.count
    plan = plan_on_grid(budgets.spec, ROOT_2, len(problem.total))
    identities = [Ed25519PrivateKey.generate() for _ in range(parties)]
    roster = tuple(key.public_key().public_bytes_raw() for key in identities)
    terms = Terms.of(label, plan, ROOT_2, roster=roster)
    source = system_source()
    vectors = []
    for party in range(parties):
        own = problem.weighted((np.arange(parties) == party).astype(np.float64))
        vectors.append(noisy_vector(terms, party, plan.grid.encode(own, ROOT_2), source=source))
    outcome = engine.run(terms, identities, vectors, deadline_s=120.0)
    return plan.grid.decode(next(iter(outcome.sums.values()))) - problem.total, plan.standard_deviation
