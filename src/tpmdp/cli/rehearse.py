"""`tpmdp rehearse` and `tpmdp audit`: a study tried out before it is run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.query import queries_option

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors


@click.command()
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--runs", default=200, show_default=True, help="How often the study is run.")
@click.option("--seed", default=0, show_default=True, help="Of the made-up tables; noise is never seeded.")
@click.option("--data", "data_folder", type=_FILE, help="Folder with synthetic NAME.csv, .parquet or .toml instead.")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@as_flags({"runs": "--runs", "seed": "--seed"})
def rehearse(
    study_file: Path, runs: int, seed: int, data_folder: Path | None, queries_file: Path | None, as_json: bool
) -> None:
    """Run a STUDY many times on made-up tables, to see how precise its answers will be.

    The tables lie within the study's public bounds, and follow its table `typical` if it has one. The protocol and the
    noise are real. For each answer: the error that it had, the error that is announced, and how often its 95 % interval
    held the truth. Nobody is charged, and no real data are needed.

    Example: tpmdp rehearse study.toml --runs 200
    """
    from tpmdp._util.progress import stage
    from tpmdp.cli.output import print_with
    from tpmdp.cli.study import read_study
    from tpmdp.report.rehearsal import print_rehearsal, rehearsal_json
    from tpmdp.study.rehearsal import rehearse as rehearse_study

    study = read_study(study_file, None, None, queries_file=queries_file).without_keys()
    tables = None if data_folder is None else study.read_tables(data_folder)
    with stage(f"rehearsing {study.name}") as progress:
        result = rehearse_study(study, runs, seed, tables=tables, progress=progress)
    if as_json:
        click.echo(json.dumps(rehearsal_json(result), allow_nan=False))
        return
    print_with(lambda console: print_rehearsal(result, console))


@click.command("audit")
@click.argument("study_file", metavar="STUDY", type=_FILE)
@click.option("--releases", default=1, show_default=True, help="How many sessions to audit together.")
@click.option(
    "--excess",
    type=float,
    help="The excess of epsilon to find, as a share. Default: 0.05, or less: what noise of one party is worth.",
)
@click.option("--seed", default=0, show_default=True, help="Of the made-up tables; noise is never seeded.")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@as_flags({"releases": "--releases", "excess": "--excess", "seed": "--seed"})
def audit_command(
    study_file: Path, releases: int, excess: float | None, seed: int, queries_file: Path | None, as_json: bool
) -> None:
    """Try to break the promise of a STUDY: measure what its worst coalitions can learn, beside what is charged.

    For every party, neighbouring tables that move the answer most are encoded, and noise is added, by the code of a
    session. What the worst coalition sees gives two lower bounds on epsilon. No data are needed, and nobody is charged.

    Exit code 0: no bound exceeds what is charged; 1: one does, and the study would break its promise.

    Example: tpmdp audit study.toml --releases 2
    """
    from tpmdp._util.progress import stage
    from tpmdp.cli.output import print_with
    from tpmdp.cli.study import read_study
    from tpmdp.report.audit import audit_json, print_audit
    from tpmdp.study.audit import audit_study

    study = read_study(study_file, None, None, queries_file=queries_file).without_keys()
    with stage(f"auditing {study.name}") as progress:
        result = audit_study(study, releases, excess, seed=seed, progress=progress)
    if as_json:
        click.echo(json.dumps(audit_json(result), allow_nan=False))
    else:
        print_with(lambda console: print_audit(result, console))
    if result.exceeds:
        raise SystemExit(1)
