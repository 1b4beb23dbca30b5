"""How often 95 % intervals hold the true answer: every kind of query, five data sets, five noise levels.

A job is one query on one data set at one level of noise. Sums get normal noise of a known standard error, as a release
has; the truth is the answer from the sums without noise, of a model by rounds where rounds without end lead to.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from scipy import stats

from tpmdp._util.arrays import FloatArray
from tpmdp.experiments.coverage_cases import CASES, CoverageCase, is_untold
from tpmdp.experiments.coverage_data import DATA, RECORDS
from tpmdp.experiments.coverage_releases import Releases
from tpmdp.experiments.jobs import Job, Row
from tpmdp.experiments.summary import column, grouped
from tpmdp.queries.answer import Answer

LEVELS: Final = (1000.0, 100.0, 20.0, 4.7, 1.0)
"""Records for each standard error of noise."""
RUNS, QUICK_RUNS = 2000, 100
LEAST, MOST = 0.94, 0.985
DOUBT: Final = 1e-4
"""The chance that the verdict is wrong on any cell of the table if all coverages are as they should be."""
_SLACK: Final = 1e-9
_SLOW: Final = ("variance", "covariance", "correlation", "linear_regression")


def jobs(quick: bool, seed: int) -> list[Job]:
    """Each kind on all records, on some and by group, on each data set, at each level.

    >>> {job.settings[0][1] for job in jobs(True, 1)} == set(CASES)
    True
    """
    return [
        Job(
            "coverage",
            f"{kind} {part} {data}",
            level,
            first=0,
            count=QUICK_RUNS if quick else RUNS,
            seed=seed,
            settings=(("kind", kind), ("part", part), ("data", data)),
            weight=20.0 if kind in _SLOW or case.slow else 1.0,
        )
        for kind, case in CASES.items()
        for part in case.parts
        for data in DATA
        for level in LEVELS
    ]


def run(job: Job) -> list[Row]:
    """A row for each answer, and for each band that holds for all of them.

    >>> [row["inside"] for row in run(jobs(True, 1)[0])][0] > 80
    True
    """
    kind, part, data = (str(value) for _, value in job.settings)
    case = CASES[kind]
    query = case.query(kind, part)
    releases = Releases(query, case.data(data))
    runs = list(releases.runs(job.count, RECORDS / job.x, job.random(0)))
    truths = np.array([case.truth(releases)] * job.count)
    if case.truth_of is not None:
        truths = np.array([case.truth_of(releases, answers) for answers in runs])
    start: Row = {"kind": kind, "part": part, "data": data, "records_per_error": job.x, "seed": job.seed}
    rows: list[Row] = []
    for place in range(truths.shape[1]):
        answers, true = [answers[place] for answers in runs], truths[:, place]
        if all(answer.interval == (each, each) for answer, each in zip(answers, true.tolist(), strict=True)):
            continue  # public
        rows.append(start | _row(case, answers, true, resolution=query.resolution_of(answers[0].part)))
    rows += [start | _band_row(case, runs, truths, covers=covers) for covers in case.bands]
    return rows


def _band_row(case: CoverageCase, runs: Sequence[Sequence[Answer]], truths: FloatArray, *, covers: str) -> Row:
    """How often bands held for all answers at once, with their mean width."""
    low, high = case.possible(covers)
    bands = np.array([[_band(answer, covers) for answer in answers] for answers in runs])
    untold = np.array([[is_untold(answer) for answer in answers] for answers in runs])
    is_inside = (bands[..., 0] <= truths) & (truths <= bands[..., 1]) | np.isnan(truths)
    share = np.where(untold, 1.0, np.minimum((bands[..., 1] - bands[..., 0]) / (high - low), 1.0))
    inside = int(is_inside.all(axis=1).sum())
    return {
        "answer": covers,
        "runs": len(runs),
        "inside": inside,
        "narrow": inside,
        "share": float(share.mean()),
        "untold": int(untold.all(axis=1).sum()),
    }


def _band(answer: Answer, covers: str) -> tuple[float, float]:
    """An answer that cannot be told has no band: its interval is all that is possible."""
    band = answer.further_interval(covers)
    assert band is not None or is_untold(answer)
    return answer.interval if band is None else band


def _row(case: CoverageCase, answers: Sequence[Answer], true: FloatArray, *, resolution: float) -> Row:
    """How often the interval held the truth, also without its outer bins; its mean width as a share of the possible.

    Where nothing can be told, the share is 1. It is 0 where the possible range is endless and something can be told.
    Where only some releases have a truth, the others must say that it cannot be told.
    """
    part = answers[0].part
    low, high = case.possible(part)
    limits = np.array([answer.interval for answer in answers])
    untold = np.array([is_untold(answer) for answer in answers])
    slack = np.where(np.isfinite(true), _SLACK * np.maximum(1.0, np.abs(true)), 0.0)
    with np.errstate(invalid="ignore"):
        share = np.where(untold, 1.0, np.minimum((limits[:, 1] - limits[:, 0]) / (high - low), 1.0))

    def held(step: float) -> int | None:
        if np.isnan(true).all():
            return None
        lower = np.where(limits[:, 0] > low, limits[:, 0] + step, limits[:, 0])
        upper = np.where(limits[:, 1] < high, limits[:, 1] - step, limits[:, 1])
        is_inside = (lower - slack <= true) & (true <= upper + slack)
        return int(np.sum(is_inside | (np.isnan(true) & untold)))

    return {
        "answer": part,
        "runs": len(answers),
        "inside": held(0.0),
        "narrow": held(resolution),
        "share": float(share.mean()),
        "untold": int(untold.sum()),
    }


def judged(rows: Sequence[Row]) -> list[Row]:
    """Cells that have a truth, each with its verdict: "", "too low" or "too high", by exact binomial tests.

    Too high counts only where the interval is shorter than half the possible range, and bin width apart.

    >>> cell = {"runs": 2000, "inside": 1800, "narrow": 1800, "share": 0.1}
    >>> [row["verdict"] for row in judged([cell, {**cell, "inside": 1900, "narrow": 1900}])]
    ['too low', '']
    """
    cells = [row for row in rows if row["inside"] is not None]
    doubt = DOUBT / max(2 * len(cells), 1)
    judgements: list[Row] = []
    for row in cells:
        runs, inside, narrow = (int(row[name] or 0) for name in ("runs", "inside", "narrow"))
        short = row["share"] is None or float(row["share"]) < 0.5
        verdict = ""
        if stats.binom.cdf(inside, runs, LEAST) < doubt:
            verdict = "too low"
        elif short and stats.binom.sf(narrow - 1, runs, MOST) < doubt:
            verdict = "too high"
        judgements.append({**row, "verdict": verdict})
    return judgements


def coverage_points(rows: Sequence[Row]) -> list[Row]:
    """For each kind of answer and level: the least and the largest coverage of its cells, widths, and verdicts.

    `most` is of cells whose interval is shorter than half the possible range, without its outer bins.
    """
    named = [{**row, "name": answer_name(row)} for row in rows]
    points: list[Row] = []
    for (name, level), some in grouped(named, "name", "records_per_error").items():
        cells = judged([row for row in some if row["inside"] is not None])
        least = min((float(row["inside"] or 0) / float(row["runs"] or 1) for row in cells), default=math.nan)
        short = [row for row in cells if row["share"] is None or float(row["share"]) < 0.5]
        most = max((float(row["narrow"] or 0) / float(row["runs"] or 1) for row in short), default=math.nan)
        shares = [row for row in some if row["share"] is not None]
        ranged = [row for row in shares if math.isfinite(CASES[str(row["kind"])].possible(str(row["answer"]))[1])]
        untold = column(some, "untold").sum() / column(some, "runs").sum() if shares else math.nan
        points.append(
            {
                "name": name,
                "records_per_error": level,
                "cells": len(cells),
                "least": least,
                "most": most,
                "share": float(column(ranged, "share").mean()) if ranged else math.nan,
                "untold": float(untold),
            }
        )
    return points


def answer_name(row: Row) -> str:
    """What the table calls the answer of a cell: its kind, and the family of its part."""
    case, part = CASES[str(row["kind"])], str(row["answer"])
    family = part if part in case.bands else case.family(part)
    return f"{row['kind']}: {family}" if family else str(row["kind"])
