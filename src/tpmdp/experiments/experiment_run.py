"""Run experiments, and write their results with a manifest of what they depend on."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np
import scipy

import tpmdp.experiments.agreement_experiment as agreement
import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.coverage_experiment as coverage
import tpmdp.experiments.efficiency_experiment as efficiency
import tpmdp.experiments.regression_experiment as regression
import tpmdp.experiments.rounds_experiment as rounds
import tpmdp.experiments.survival_experiment as survival
import tpmdp.experiments.weights_experiment as weights
from tpmdp._util.files import replacing
from tpmdp._util.progress import Progress
from tpmdp._version import __version__
from tpmdp.errors import InputError
from tpmdp.experiments.jobs import RECIPE, Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.results import Results
from tpmdp.experiments.runner import Backend, Run, run_jobs
from tpmdp.experiments.summary import write_rows

SEED: Final = 2024


@dataclass(frozen=True)
class Experiment:
    """How an experiment is divided into jobs, and what a job does."""

    jobs: Callable[..., list[Job]]
    """Takes `quick` and the seed, and whose records to use if it uses records."""
    run: Run
    uses_records: bool = False
    timed: bool = False
    """It measures time, so its jobs run alone, one after another."""


EXPERIMENTS: Final = {  # in the order in which they run: what is timed comes last
    "count": Experiment(count.jobs, count.run),
    "regression": Experiment(regression.jobs, regression.run, uses_records=True),
    "consortium": Experiment(consortium.jobs, consortium.run),
    "weights": Experiment(weights.jobs, weights.run, uses_records=True),
    "rounds": Experiment(rounds.jobs, rounds.run, uses_records=True),
    "agreement": Experiment(agreement.jobs, agreement.run),
    "efficiency": Experiment(efficiency.jobs, efficiency.run, timed=True),
    "weights_time": Experiment(weights.time_jobs, weights.time_run, timed=True),
    "coverage": Experiment(coverage.jobs, coverage.run),
    "survival": Experiment(survival.jobs, survival.run),
}
_APART: Final = ("coverage", "rounds", "survival")  # not of the paper
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "count": ("count", "agreement"),
    "regression": ("regression",),
    "efficiency": ("efficiency",),
    "consortium": ("consortium",),
    "weights": ("weights", "weights_time"),
    "coverage": ("coverage",),
    "rounds": ("rounds",),
    "survival": ("survival",),
    "all": tuple(name for name in EXPERIMENTS if name not in _APART),  # all of the paper's evaluation
}
Stage = Callable[[str], Any]


@dataclass(frozen=True)
class ExperimentRun:
    """What to run, on whose records, and where."""

    what: str
    quick: bool = False
    seed: int = SEED
    people: People = field(default_factory=People)
    backend: Backend = field(default_factory=Backend)

    def jobs(self, name: str) -> list[Job]:
        """The jobs of an experiment.

        >>> len(ExperimentRun("count", quick=True).jobs("count")) > 10
        True
        """
        experiment = EXPERIMENTS[name]
        records = (self.people,) if experiment.uses_records else ()
        return experiment.jobs(self.quick, self.seed, *records)

    def __post_init__(self) -> None:
        least = regression.people_needed(regression.QUICK_PARTIES if self.quick else regression.PARTIES)
        if self.people.count is not None and self.people.count < least:
            rule = f"has {self.people.count:,} records, but {least:,} are needed for {least * 4 // 5:,} parties"
            remedy = "give more, or leave it out" if self.quick else "give more, add --quick, or leave it out"
            raise InputError("data", Path(str(self.people.data)).name, rule, remedy)

    @property
    def left_out(self) -> list[int]:
        """The numbers of parties for which the file has too few people."""
        points = (regression.QUICK if self.quick else regression.PANELS)["parties"]
        if "regression" not in GROUPS[self.what]:
            points = (regression.PARTIES,)
        have = self.people.count
        return [int(x) for x in points if have is not None and regression.people_needed(int(x)) > have]

    def manifest(self) -> dict[str, Any]:
        """All that the results depend on, without paths of this machine.

        >>> ExperimentRun("count").manifest()["seed"]
        2024
        """
        people = self.people
        return {
            "experiments": list(GROUPS[self.what]),
            "quick": self.quick,
            "seed": self.seed,
            "recipe": RECIPE,
            "data": None if people.data is None else Path(people.data).name,
            "data_sha256": people.sha256 or None,
            "records": people.count,
            "bounds": {bounds.column: [bounds.low, bounds.high] for bounds in people.ranges},
            "backend": self.backend.name,
            "machine": {"cores": os.cpu_count(), "memory_gb": _memory_gb(), "system": platform.system()},
            "versions": {
                "tpmdp": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "scipy": scipy.__version__,
                **_version("gurobipy"),
                **(_version("diffprivlib") if self.what == "rounds" else {}),
            },
        }


def _memory_gb() -> int | None:
    """Memory of this machine, if the system reports it."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9)
    except (AttributeError, ValueError, OSError):
        return None


def _version(package: str) -> dict[str, str]:
    try:
        return {package: version(package)}
    except PackageNotFoundError:
        return {}


@contextmanager
def _quiet(name: str) -> Iterator[Progress]:
    del name
    yield _ignore


def _ignore(done: int, total: int) -> None:
    del done, total


def run_experiments(what: ExperimentRun, out: Path, stage: Stage = _quiet) -> tuple[Results, list[Path]]:
    """Run all jobs that are not stored; the results, and the files written: rows, points and `NAME.json` of each.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     quick = ExperimentRun("consortium", quick=True, backend=Backend(workers=1))
    ...     results, written = run_experiments(quick, Path(folder))
    ...     len(results.consortium) > 100, [path.name for path in written]
    (True, ['consortium.csv', 'consortium_points.csv', 'consortium.json'])
    """
    rows: dict[str, list[Row]] = {}
    for name in GROUPS[what.what]:
        backend = Backend(workers=1) if EXPERIMENTS[name].timed else what.backend
        if name == "agreement":
            backend = Backend(workers=what.backend.workers)  # its sessions start processes on this machine
        with stage(name) as progress:
            run = EXPERIMENTS[name].run
            rows[name] = run_jobs(what.jobs(name), run, out / "parts", backend=backend, progress=progress)
    results = Results(**{f"{name}_rows": measured for name, measured in rows.items()})
    written = []
    for name, measured in rows.items():
        tables = {f"{name}.csv": measured, f"{name}_points.csv": results.points(name)}
        for file, table in tables.items():
            if table:
                write_rows(out / file, table)
                written.append(out / file)
        written.append(out / f"{name}.json")
        with replacing(written[-1]) as path:
            path.write_text(json.dumps(what.manifest(), indent=1) + "\n", encoding="utf-8")
    return results, written
