"""Run experiments, keep their results as tidy files, and say what they rest on."""

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

from tpmdp._util.files import replacing
from tpmdp._util.progress import Progress
from tpmdp._version import __version__
from tpmdp.errors import InputError
from tpmdp.experiments import agreement, consortium, count, efficiency, regression, weights
from tpmdp.experiments.jobs import RECIPE, Job, Row
from tpmdp.experiments.population import People
from tpmdp.experiments.results import Results
from tpmdp.experiments.runner import Backend, Run, run_jobs
from tpmdp.experiments.summary import write_rows

SEED: Final = 2024
EXPERIMENTS: Final = ("count", "regression", "consortium", "weights", "agreement", "efficiency", "weights_time")
TIMED: Final = ("efficiency", "weights_time")
"""In the order in which they run: what is timed comes last, alone."""
GROUPS: Final = {
    "count": ("count", "agreement"),
    "regression": ("regression",),
    "efficiency": ("efficiency",),
    "consortium": ("consortium",),
    "weights": ("weights", "weights_time"),
    "all": EXPERIMENTS,
}
RUNS: Final[dict[str, Run]] = {
    "count": count.run,
    "regression": regression.run,
    "consortium": consortium.run,
    "agreement": agreement.run,
    "efficiency": efficiency.run,
    "weights": weights.run,
    "weights_time": weights.time_run,
}
Stage = Callable[[str], Any]


@dataclass(frozen=True)
class Evaluation:
    """What to run, on what, and where."""

    what: str
    quick: bool = False
    seed: int = SEED
    people: People = field(default_factory=People)
    backend: Backend = field(default_factory=Backend)

    def jobs(self, name: str) -> list[Job]:
        """The jobs of an experiment.

        >>> len(Evaluation("count", quick=True).jobs("count")) > 10
        True
        """
        if name == "regression":
            return regression.jobs(self.quick, self.seed, self.people)
        if name == "weights":
            return weights.jobs(self.quick, self.seed, self.people)
        if name == "weights_time":
            return weights.time_jobs(self.quick, self.seed)
        modules = {"count": count, "consortium": consortium, "agreement": agreement, "efficiency": efficiency}
        return modules[name].jobs(self.quick, self.seed)  # type: ignore[no-any-return]

    def __post_init__(self) -> None:
        least = regression.people_needed(regression.QUICK_PARTIES if self.quick else regression.PARTIES)
        if self.people.count is not None and self.people.count < least:
            rule = f"has {self.people.count:,} records, but {least:,} are needed for {least * 4 // 5:,} parties"
            remedy = "give more, or leave it out" if self.quick else "give more, add --quick, or leave it out"
            raise InputError("--data", Path(str(self.people.data)).name, rule, remedy)

    @property
    def left_out(self) -> list[int]:
        """Numbers of parties for which the file has too few people."""
        points = (regression.QUICK if self.quick else regression.PANELS)["parties"]
        if "regression" not in GROUPS[self.what]:
            points = (regression.PARTIES,)
        have = self.people.count
        return [int(x) for x in points if have is not None and regression.people_needed(int(x)) > have]

    def manifest(self) -> dict[str, Any]:
        """All that the results depend on, without a path of this machine.

        >>> Evaluation("count").manifest()["seed"]
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
            "bounds": {one.column: [one.low, one.high] for one in people.ranges},
            "backend": self.backend.name,
            "machine": {"cores": os.cpu_count(), "memory_gb": _memory_gb(), "system": platform.system()},
            "versions": {
                "tpmdp": __version__,
                "python": platform.python_version(),
                "numpy": np.__version__,
                "scipy": scipy.__version__,
                **_version("gurobipy"),
            },
        }


def _memory_gb() -> int | None:
    """Memory of this machine, where the system tells."""
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


def evaluate(evaluation: Evaluation, out: Path, stage: Stage = _quiet) -> tuple[Results, list[Path]]:
    """Run all that is missing; the results, and the files written: rows, points and `NAME.json` of each experiment.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = Evaluation("consortium", quick=True, backend=Backend(workers=1))
    ...     found, written = evaluate(made, Path(folder))
    ...     len(found.consortium) > 100, [path.name for path in written]
    (True, ['consortium.csv', 'consortium_points.csv', 'consortium.json'])
    """
    rows: dict[str, list[Row]] = {}
    for name in GROUPS[evaluation.what]:
        here = Backend(workers=1) if name in TIMED else evaluation.backend  # one after another
        if name == "agreement":
            here = Backend(workers=evaluation.backend.workers)  # starts processes of its own
        with stage(name) as progress:
            rows[name] = run_jobs(evaluation.jobs(name), RUNS[name], out / "parts", here, progress)
    results = Results(**{f"{name}_rows": found for name, found in rows.items()})
    points = {
        "count": results.count.points,
        "regression": results.regression.points,
        "consortium": results.consortium,
        "agreement": results.agreement,
        "efficiency": [],
        "weights": results.weights,
        "weights_time": [],
    }
    written = []
    for name, found in rows.items():
        tables = {f"{name}.csv": found, f"{name}_points.csv": points[name]}
        for file, table in tables.items():
            if table:
                write_rows(out / file, table)
                written.append(out / file)
        written.append(out / f"{name}.json")
        with replacing(written[-1]) as path:
            path.write_text(json.dumps(evaluation.manifest(), indent=1) + "\n", encoding="utf-8")
    return results, written
