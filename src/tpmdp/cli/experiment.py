"""`tpmdp experiment`: the paper's evaluation from one command."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from tpmdp._util.progress import Progress
    from tpmdp.experiments.runner import BackendName

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader raises the errors
_WHAT: Final = ("count", "regression", "efficiency", "consortium", "weights", "coverage", "rounds", "survival", "all")
_WITH_DATA: Final = ("regression", "weights", "rounds", "all")
_SEED_MAX: Final = (1 << 63) - 1


@click.command()
@click.argument("what", metavar="EXPERIMENT", type=click.Choice(_WHAT))
@click.option("--quick", is_flag=True, help="Few points and repetitions: under two minutes.")
@click.option("--out", type=_FILE, default="experiments", show_default=True, help="Folder for results; resumed from.")
@click.option("--report", type=_FILE, help="Write the report here, pictures beside it. Default: in the folder.")
@click.option("--data", type=_FILE, help="Records for the regression (.parquet, .csv, ...). Default: synthetic.")
@click.option("--bounds", type=_FILE, help="Public bounds of its columns (TOML: age = [18, 96]; the target last).")
@click.option("--seed", type=int, help="Seed of all randomness except that of the real protocol.")
@click.option("--backend", type=click.Choice(("local", "dask")), default="local", show_default=True)
@click.option("--scheduler", metavar="ADDRESS", help="Of the cluster, for --backend dask.")
@click.option("--workers", type=int, help="Jobs at a time. Default: all cores.")
@click.option("--json", "as_json", is_flag=True, help="Print claims and measures as JSON instead of tables.")
def experiment(
    what: str,
    quick: bool,
    out: Path,
    report: Path | None,
    data: Path | None,
    bounds: Path | None,
    seed: int | None,
    backend: BackendName,
    scheduler: str | None,
    workers: int | None,
    as_json: bool,
) -> None:
    """Run the paper's experiments against every baseline, and check its claims.

    EXPERIMENT is count, regression, efficiency, consortium, weights (which measures balanced ones), coverage (how often
    95 % intervals of every kind of query hold the truth), rounds (logistic regression by rounds on census data),
    survival (error, coverage and tests of survival curves) or all, which leaves out the last three.

    Results, figures and the table of claims go to a folder. An interrupted run resumes where it stopped.

    Example: tpmdp experiment all --quick --out results
    """
    _check_installed()
    from tpmdp._util.files import check_output
    from tpmdp.experiments.experiment_run import SEED, ExperimentRun, run_experiments
    from tpmdp.experiments.population import People
    from tpmdp.experiments.runner import Backend, make_folder

    if seed is not None and not 0 <= seed <= _SEED_MAX:
        raise InputError("--seed", seed, f"must be from 0 to {_SEED_MAX}", "choose another")
    if report is not None:
        if report.suffix != ".md":
            raise InputError("--report", str(report), "must be a name that ends in .md", "rename it")
        check_output(report)
        check_pictures(report)
    flags = {name: f"--{name}" for name in ("backend", "scheduler", "workers", "data", "bounds")}
    if what not in _WITH_DATA and data is not None:
        raise InputError("--data", str(data), f"is not used by {what}", "leave it out")
    with as_flags(flags):
        where = Backend(backend, scheduler, workers)
        people = People.of(data, bounds)
        run = ExperimentRun(what, quick, SEED if seed is None else seed, people=people, backend=where)
    if run.left_out:
        sizes = ", ".join(f"{size:,}" for size in run.left_out)
        click.echo(
            f"tpmdp: {data} has {people.count:,} records: left out are the points with {sizes} parties", err=True
        )
    make_folder(out)
    page = out / f"{'reproduction' if what == 'all' else what}.md" if report is None else report
    check_output(page)
    from tpmdp._util.progress import stage
    from tpmdp.cli.output import print_with
    from tpmdp.experiments.coverage_report import coverage_json, print_coverage, write_coverage
    from tpmdp.experiments.reproduction import judge, print_claims, print_measures, print_rounds, write_report
    from tpmdp.experiments.rounds_experiment import rounds_table
    from tpmdp.experiments.survival_experiment import survival_points
    from tpmdp.experiments.survival_report import print_survival, write_survival
    from tpmdp.experiments.weights_checks import measures

    check_pictures(page)
    try:
        with as_flags(flags):
            results, written = run_experiments(run, out, _stage)
        with stage("drawing"):
            if what == "coverage":
                command = f"tpmdp experiment coverage{' --quick' if quick else ''}"
                written.append(write_coverage(results.coverage_rows, page, command))
            elif what == "survival":
                command = f"tpmdp experiment survival{' --quick' if quick else ''}"
                written.append(write_survival(results.survival_rows, page, command))
            else:
                written += write_report(run, results, page)
    except KeyboardInterrupt:
        click.echo(f"\ntpmdp: finished jobs are stored in {out}: run the same command again to resume", err=True)
        raise
    judged, measured = judge(results, quick=quick), measures(results)
    if as_json and what == "coverage":
        click.echo(json.dumps(coverage_json(results.coverage_rows)))
        return
    if as_json and what == "survival":
        click.echo(json.dumps(survival_points(list(results.survival_rows))))
        return
    if as_json:
        rows = [
            {"where": claim.where, "claim": claim.text, "measured": result.measured, "verdict": result.status.value}
            for claim, result in judged
        ]
        rows += [
            {"where": "weights", "claim": f"{row.what}: {row.wanted}", "measured": row.measured, "verdict": row.status}
            for row in measured
        ]
        click.echo(json.dumps([*rows, *rounds_table(results.rounds_rows)]))
        return
    if what == "coverage":
        print_with(lambda console: print_coverage(results.coverage_rows, console))
    if what == "survival":
        print_with(lambda console: print_survival(results.survival_rows, console))
    if judged:
        print_with(lambda console: print_claims(judged, console, quick=quick))
    if measured:
        print_with(lambda console: print_measures(measured, console))
    if results.rounds_rows:
        print_with(lambda console: print_rounds(results.rounds_rows, console))
    for path in written:
        click.echo(f"wrote {path}")


def check_pictures(report: Path) -> None:
    """The pictures of a report go to a folder of its name.

    >>> check_pictures(Path("nowhere/report.md"))
    """
    folder = report.with_suffix("")
    if folder.exists() and not folder.is_dir():
        raise InputError("--report", str(report), f"needs {folder} as a folder for its pictures", "choose another name")


def _check_installed() -> None:
    """Fail now, not after an hour of work."""
    for module in ("joblib", "matplotlib"):
        if find_spec(module) is None:
            raise MissingDependencyError(module, "experiments", "to run experiments")


@contextmanager
def _stage(name: str) -> Iterator[Progress]:
    """A bar with the time left on a terminal, else a line at each tenth, to show that work goes on."""
    from tpmdp._util.clock import now_s
    from tpmdp._util.progress import stage

    began, shown = now_s(), 0
    with stage(f"experiment {name}") as bar:

        def progress(done: int, total: int) -> None:
            nonlocal shown
            bar(done, total)
            tenths = 10 * done // max(total, 1)
            if tenths > shown and not sys.stderr.isatty():
                shown = tenths
                passed = now_s() - began
                left = f", about {passed * (total - done) / done:.0f} s left" if done < total else ""
                click.echo(f"tpmdp: {name} {10 * tenths} % after {passed:.0f} s{left}", err=True)

        yield progress
    if sys.stderr.isatty():
        click.echo(f"tpmdp: {name} took {now_s() - began:.0f} s", err=True)
