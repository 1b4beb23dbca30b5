"""`tpmdp query list`, `query explain`, `check-query`: what can be asked, its expected error, and a search for bugs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tpmdp.cli.sections import WholeSummaries
from tpmdp.errors import InputError

if TYPE_CHECKING:
    from tpmdp.queries.base import Unit

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader words the errors
_TRIES_MAX: Final = 10_000_000
queries_option = click.option(
    "--queries", "queries_file", type=_FILE, help="Python file with custom queries; all parties need the same file."
)


@click.group(cls=WholeSummaries)
def query() -> None:
    """What can be asked, and how precise an answer would be."""


@query.command("list")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def list_kinds(queries_file: Path | None, as_json: bool) -> None:
    """List all kinds of queries."""
    from tpmdp.cli.output import print_with
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.queries import about, keys_text, print_kinds

    kinds = load_queries(queries_file)
    if as_json:
        rows = [{"kind": name, "about": about(kind), "keys": keys_text(kind)} for name, kind in kinds.items()]
        click.echo(json.dumps(rows))
        return
    print_with(lambda console: print_kinds(kinds, console))


@query.command()
@click.argument("kind", required=False)
@click.option("--study", "study_file", type=_FILE, help="Show sensitivity, expected error and cost in this study.")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables (with --study).")
def explain(kind: str | None, study_file: Path | None, queries_file: Path | None, as_json: bool) -> None:
    """Explain a KIND of query: what leaves the party, and what a study would give and cost before it is run."""
    from tpmdp.cli.output import print_with
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.queries import expectation_json, print_expectation, print_kind

    kinds = load_queries(queries_file)
    if kind is None and study_file is None:
        raise InputError("KIND", "(none)", "is missing", "name a kind (tpmdp query list), or give --study FILE")
    if kind is not None and kind not in kinds:
        raise InputError("KIND", kind, f"must be one of {', '.join(kinds)}", "choose one")
    if study_file is None:
        if as_json:
            raise InputError("--json", "(set)", "needs a study", "give --study FILE")
        assert kind is not None
        print_with(lambda console: print_kind(kind, kinds, console))
        return
    from tpmdp.study.expectation import expect
    from tpmdp.study.model import Study

    study = Study.read(study_file, kinds)
    asked = [each.settings()["kind"] for each in study.queries]
    if kind is not None and kind not in asked:
        raise InputError("KIND", kind, f"is not in this study, which asks for {', '.join(asked)}", "choose one")
    expected = expect(study)
    if as_json:
        click.echo(json.dumps(expectation_json(study, expected), allow_nan=False))
        return
    print_with(lambda console: print_expectation(study, expected, kind, console=console))


@click.command("check-query")
@click.argument("study_file", metavar="STUDY", type=_FILE)
@queries_option
@click.option("--tries", default=2000, show_default=True, help="How many tables to try for each query and unit.")
@click.option("--seed", default=0, show_default=True, help="Where the search starts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
def check_query(study_file: Path, queries_file: Path | None, tries: int, seed: int, as_json: bool) -> None:
    """Search for data that move a query of the STUDY further than the sensitivity it declares.

    Exit code 0: none found; 1: a declared sensitivity is too small, and the study would break its promise.
    """
    from tpmdp.cli.output import print_with
    from tpmdp.queries.custom import load_queries
    from tpmdp.queries.search import search
    from tpmdp.report.queries import print_searches, searches_json
    from tpmdp.study.model import Study

    for option, value, least in (("--tries", tries, 1), ("--seed", seed, 0)):
        if not least <= value <= _TRIES_MAX:
            raise InputError(option, value, f"must be from {least} to {_TRIES_MAX}", "change it")
    study = Study.read(study_file, load_queries(queries_file))
    units: tuple[Unit, ...] = ("record", "party")
    sums = study.computation.sums
    rows = [(each.name, search(each, unit, tries, seed=seed)) for each in sums for unit in units]
    skipped = [each.name for each in study.queries if each not in sums]
    if as_json:
        click.echo(json.dumps(searches_json(rows), allow_nan=False))
    else:
        print_with(lambda console: print_searches(rows, skipped, console))
    if not all(result.is_safe for _, result in rows):
        raise SystemExit(1)
