"""Prefix sums and quantiles: error against a histogram of the same bins, and against diffprivlib's quantiles.

Five parties, of which two may collude; diffprivlib has a trusted curator and pure epsilon. The histogram is read as
well as it can be: what is missing from the known total is spread over its bins. Without a census file incomes are
synthetic.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing import Row, times
from tpmdp import Study
from tpmdp._util.arrays import FloatArray
from tpmdp.engines.ideal import IdealEngine
from tpmdp.experiments.population import read_adults
from tpmdp.queries.cumulated import Cumulated, rising_of
from tpmdp.queries.prefix_factor import prefix_factor
from tpmdp.study.expectation import expect
from tpmdp.study.run import run

PARTIES, DELTA, LOW, HIGH = 5, 1e-6, 0.0, 200_000.0
SHARES = (0.25, 0.5, 0.75)
WANTED = {64: 1.7, 256: 2.7, 1024: 4.5}


@dataclass(frozen=True)
class Size:
    bins: tuple[int, ...] = tuple(WANTED)
    draws: int = 4000
    records: tuple[int, ...] = (5_000, 50_000)
    runs: int = 300
    census: Path | None = None


FULL, TOY = Size(), Size(bins=(8,), draws=50, records=(500,), runs=2)


def study_of(records: int, query: dict[str, Any]) -> Study:
    parties = [{"name": f"party{i}", "records": records // PARTIES} for i in range(PARTIES)]
    return Study.parse(
        {
            "name": "cumulative",
            "threshold": 2,
            "receivers": "all",
            "epsilon": 1.0,
            "delta": DELTA,
            "parties": parties,
            "queries": [{"name": "q", "column": "income", **query}],
        }
    )


def histogram_of(bins: int) -> dict[str, Any]:
    return {"kind": "histogram", "edges": np.linspace(LOW, HIGH, bins + 1).tolist()}


def noise_of(records: int, query: dict[str, Any]) -> float:
    """The standard error of an entry of what the study releases."""
    return expect(study_of(records, query)).queries[0].noise


def histogram_sums(counts: FloatArray, records: int) -> FloatArray:
    """Prefix sums of noisy counts (in rows) whose total is known."""
    sums = np.cumsum(counts, axis=-1)
    bins = counts.shape[-1]
    return np.asarray(sums + (records - sums[..., -1:]) * np.arange(1, bins + 1) / bins, dtype=np.float64)


def prefix_row(bins: int, draws: int) -> Row:
    """How many times less the prefix sums err: simulated, and by formulas."""
    records, random = 10_000, np.random.default_rng(bins)
    counts = random.multinomial(records, random.dirichlet(np.ones(bins)))
    truth = np.cumsum(counts)[:-1]
    quantiles = {"kind": "quantiles", "low": LOW, "high": HIGH, "bins": bins}
    plain, ours = noise_of(records, histogram_of(bins)), noise_of(records, quantiles)
    noisy = histogram_sums(counts + plain * random.normal(size=(draws, bins)), records)
    vector = prefix_factor(bins).applied(counts)
    factored = np.array(
        [Cumulated.read(vector + ours * noise, records).below[1:] for noise in random.normal(size=(draws, bins))]
    )
    errors = [math.sqrt(np.mean((sums[:, :-1] - truth) ** 2)) for sums in (noisy, factored)]
    place = np.arange(1, bins)
    formulas = (
        plain * math.sqrt(np.mean(place * (bins - place) / bins)),
        ours * math.sqrt(np.mean(Cumulated.read(vector, records).variances[1:-1])),
    )
    wanted = f"at least {WANTED[bins]}x" if bins in WANTED else ""
    note = f"{errors[0]:.1f} against {errors[1]:.1f} records; by formulas {times(formulas[0] / formulas[1])}"
    return Row(f"error of prefix sums, {bins} bins: histogram over factor", times(errors[0] / errors[1]), wanted, note)


def crossing(sums: FloatArray, records: int) -> list[float]:
    """Quantiles of noisy prefix sums, read as those of tpmdp are."""
    edges = np.linspace(LOW, HIGH, len(sums) + 1)
    rising = rising_of(np.append(0.0, sums)) + 1e-9 * np.arange(len(sums) + 1)
    return [float(np.interp(share * records, rising, edges)) for share in SHARES]


def quantile_rows(incomes: FloatArray, runs: int) -> list[Row]:
    """Errors of quartiles, of one budget for all three."""
    from diffprivlib import tools

    records, bins = len(incomes), 256
    truth, parts = np.quantile(incomes, SHARES), np.split(incomes, PARTIES)
    tables = {f"party{i}": {"income": part} for i, part in enumerate(parts)}
    query = {"kind": "quantiles", "low": LOW, "high": HIGH, "bins": bins, "probabilities": list(SHARES)}
    random = np.random.default_rng(1)
    counts = np.histogram(incomes, bins, (LOW, HIGH))[0]
    noise = noise_of(records, histogram_of(bins))
    found: dict[str, list[list[float]]] = {"tpmdp": [], "histogram": [], "diffprivlib": []}
    for turn in range(runs):
        study = study_of(records, query)
        found["tpmdp"].append([answer.value for answer in run(study, tables, engine=IdealEngine()).answers])
        sums = histogram_sums((counts + noise * random.normal(size=bins))[None], records)[0]
        found["histogram"].append(crossing(sums, records))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            values = tools.quantile(incomes, list(SHARES), epsilon=1.0, bounds=(LOW, HIGH), random_state=turn)
        found["diffprivlib"].append([float(value) for value in values])
    errors = {name: math.sqrt(np.mean((np.array(values) - truth) ** 2)) for name, values in found.items()}
    head = f"error of quartiles of income, {records:,} people:"
    note = f"{errors['tpmdp']:,.0f} with {bins} bins; " + "{}: {:,.0f}"
    return [
        Row(
            f"{head} {peer} over tpmdp",
            times(errors[peer] / errors["tpmdp"]),
            wanted,
            note.format(peer, errors[peer]) + ("; trusted curator" if peer == "diffprivlib" else ""),
        )
        for peer, wanted in (("histogram", "more than 1x"), ("diffprivlib", ""))
    ]


def rows(size: Size = FULL) -> list[Row]:
    """The rows on prefix sums and on quantiles."""
    result = [prefix_row(bins, size.draws) for bins in size.bins]
    for records in size.records:
        people = read_adults(size.census, records, seed=2)
        result += quantile_rows(np.clip(np.asarray(people["income"]), LOW, HIGH), size.runs)
    return result
