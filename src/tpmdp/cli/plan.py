"""`tpmdp plan` and `tpmdp verify`: plan the noise, and check a plan that somebody else made."""

from __future__ import annotations

import json
import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import as_flags
from tpmdp.cli.output import print_with
from tpmdp.cli.query import queries_option
from tpmdp.cli.report import print_export, print_record
from tpmdp.errors import FileError, InputError

if TYPE_CHECKING:
    from tpmdp._util.progress import Progress
    from tpmdp.planning.parties_file import PartiesTable
    from tpmdp.report.plan import PlanReport
    from tpmdp.spec import Spec
    from tpmdp.study.model import Study

_FILE: Final = click.Path(path_type=Path, readable=False)  # our own reader raises the errors
_TOML_MAX: Final = 4 << 30  # as of a file of parties
_BY_ROUNDS: Final = (
    "A study by rounds: this is the plan of {}, which gives the answers. Budgets are the shares of that round; all "
    "rounds together cost what the parties offer at most. Shares of the rounds, in mu squared: {}."
)
_OF_A_STUDY: Final = (
    "Errors here are those of an entry of the study's joint vector, before the rounding to a grid. For the error of "
    "each query: tpmdp query explain --study {}"
)


@click.command()
@click.argument("parties", type=_FILE)
@click.option("--threshold", "-t", help="How many parties may collude. Default: what the file says.")
@click.option("--receivers", "-r", help="Who learns the answer: names a,b or all or none. Default: what the file says.")
@click.option("--tolerate", type=int, help="How many parties may drop out of the session; it costs no noise.")
@click.option(
    "--weighting",
    type=click.Choice(("equal", "balanced", "own")),
    help="How much each party counts. Default: equal, or own if the file has weights.",
)
@click.option(
    "--spread", type=float, help="Standard deviation of parties' averages, for weights. Default: half the range."
)
@click.option(
    "--person",
    "people",
    multiple=True,
    help="Show what a person with a record at each of the parties a,b is promised; may be given more than once.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--out", type=_FILE, help="Write the plan and its certificate here (plan.json).")
@click.option("--plot", type=_FILE, help="Draw noise and error here (.png or .svg).")
@queries_option
def plan(
    parties: Path,
    threshold: str | None,
    receivers: str | None,
    tolerate: int | None,
    weighting: str | None,
    spread: float | None,
    people: tuple[str, ...],
    as_json: bool,
    out: Path | None,
    plot: Path | None,
    queries_file: Path | None,
) -> None:
    """Plan the noise for the PARTIES in a .csv, .parquet or .toml file, or for a study.

    A study.toml gives everything; flags replace what it says. Other files have columns name, epsilon, delta, and
    optional ones: sensitivity (default 1), threshold (one per party), weight (your own, 0 to 1) and records (default 1;
    a party's weight holds for each).

    Example: tpmdp plan parties.csv --threshold 2 --receivers bank,city --out plan.json --plot plan.png
    """
    from tpmdp._util.progress import stage
    from tpmdp.planning.losses import check_tolerate

    _check_outputs(parties, out, plot)
    with stage("reading parties") as report_progress:
        source = _read_source(parties, queries_file, report_progress)
    listed = source.parties
    spec = listed.spec(_threshold(threshold, listed), _receivers(receivers, listed))
    tolerate = source.tolerate if tolerate is None else tolerate
    with as_flags({"tolerate": "--tolerate"}):
        check_tolerate(spec, tolerate, source.guarantee)
    if people and source.note:
        rule = "cannot be told from the plan of one round, and this study has several"
        raise InputError("--person", people[0], rule, "tpmdp report counts all rounds")
    places = [_places(person, spec) for person in people]
    from tpmdp.planning.person import person_protection
    from tpmdp.planning.plan import plan as make_plan
    from tpmdp.report.person import person_json, person_text
    from tpmdp.report.plan import PlanReport, plan_json, print_plan

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it more clearly
        with stage("planning") as report_progress:
            result = make_plan(
                spec,
                report_progress,
                weighting=_weighting(weighting or source.weighting, listed),
                spread=source.spread if spread is None else spread,
                records=listed.records,
                width=source.width,
            )
    with stage("computing protection and baselines"):
        report = PlanReport.of(result)
        with as_flags({"person": "--person"}):
            persons = [person_protection(result, place) for place in places]
    with stage("writing"):
        _write(report, out, plot)
    if as_json:
        if result.no_noise_reason:
            click.echo(f"tpmdp: no noise is added: {result.no_noise_reason}", err=True)
        more: dict[str, Any] = {"tolerate": tolerate} if tolerate else {}
        more |= {"study": source.label} if source.label else {}
        more |= {"people": [person_json(spec, person) for person in persons]} if persons else {}
        click.echo(json.dumps({**plan_json(report), **more}, allow_nan=False))
        return
    if source.label:
        click.echo(source.label)
    if source.note:
        click.echo(source.note)
    print_with(lambda console: print_plan(report, console, tolerate))
    if source.label:
        click.echo(_OF_A_STUDY.format(parties))
    for person in persons:
        click.echo(person_text(spec, person))
    for path in (out, plot):
        if path is not None:
            click.echo(f"wrote {path}")


@click.command()
@click.argument("plan_file", metavar="FILE", type=_FILE)
@click.option("--party", "names", multiple=True, help="Show this party's budget; may be given more than once.")
@click.option(
    "--ledger",
    "ledger_files",
    multiple=True,
    type=_FILE,
    help="Compare a report with this ledger of a party; may be given more than once.",
)
@click.option("--approved", metavar="HASH", help="Compare a report with the hash of the draft that was approved.")
@queries_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def verify(
    plan_file: Path,
    names: tuple[str, ...],
    ledger_files: tuple[Path, ...],
    approved: str | None,
    queries_file: Path | None,
    as_json: bool,
) -> None:
    """Check a plan.json, a report of tpmdp report or join --out, or an exported ledger, from any author.

    A plan: prove in exact arithmetic that it is private, and that it is optimal or how far above the least noise it is
    at most, with neither planner, calibration nor solver. A report: prove that its plan keeps every budget, recompute
    hashes and charges, and compare the page with the record inside it. An exported ledger: recompute hashes, totals and
    limits. Exit code 0: proved; 1: it does not hold, and what fails; 2: it cannot be read.
    """
    from tpmdp.report.verify import kind_of

    kind = kind_of(plan_file)
    if kind == "ledger":
        raise FileError(plan_file, "is neither a plan nor a report but a ledger", "check it with tpmdp ledger verify")
    if kind in ("record", "page"):
        if names:
            raise InputError("--party", ", ".join(names), "is for plans", "leave it out: a report shows every party")
        print_record(plan_file, ledger_files, queries_file, approved=approved, as_json=as_json)
        return
    if approved is not None:
        raise InputError("--approved", approved, "is for reports", "leave it out to check a plan")
    if ledger_files:
        raise InputError("--ledger", str(ledger_files[0]), "is for reports", "leave it out to check a plan")
    if kind == "export":
        if names:
            raise InputError("--party", ", ".join(names), "is for plans", "leave it out to check an exported ledger")
        print_export(plan_file, as_json=as_json)
        return
    from tpmdp._util.progress import stage
    from tpmdp.planning.plan_file import read_plan
    from tpmdp.report.plan import print_verdict, verdict_json

    with stage("reading the plan"):
        spec, certificate = read_plan(plan_file)
    with stage("checking the certificate") as report_progress:
        verdict = certificate.check(spec, report_progress)
    with as_flags({"party": "--party"}):
        if as_json:
            click.echo(json.dumps(verdict_json(spec, certificate, verdict, names=names), allow_nan=False))
        else:
            print_with(lambda console: print_verdict(spec, certificate, verdict, names=names, console=console))


@dataclass(frozen=True)
class _Source:
    """What a file says about a plan: one of parties, or a study."""

    parties: PartiesTable
    label: str = ""  # of a study
    tolerate: int = 0
    guarantee: str = "computational"
    weighting: str | None = None
    spread: float | None = None
    width: float | None = None
    note: str = ""  # of a study by rounds


def _read_source(path: Path, queries_file: Path | None, progress: Progress | None) -> _Source:
    from tpmdp._util.fields import read_toml
    from tpmdp.planning.parties_file import read_parties

    if path.suffix.lower() == ".toml" and "queries" in read_toml(path, _TOML_MAX):
        return _read_study_source(path, queries_file)
    if queries_file is not None:
        raise InputError("--queries", str(queries_file), "needs a study, and this is a file of parties", "leave it out")
    return _Source(read_parties(path, progress))


def _read_study_source(path: Path, queries_file: Path | None) -> _Source:
    from tpmdp.cli.study import read_study
    from tpmdp.planning.parties_file import PartiesTable

    whole = read_study(path, None, None, queries_file=queries_file)
    study = whole.preview_rounds[-1]
    note = "" if study.part is None else _BY_ROUNDS.format(study.part.text, _shares(whole))
    spec, weights = study.plain_spec(), study.weights
    own = study.weighting == "own"
    columns = {"epsilon": spec.epsilon, "delta": spec.delta, "sensitivity": spec.sensitivity}
    table = PartiesTable(
        columns,
        tuple(spec.name(party) for party in range(spec.count)),
        study.threshold,
        receivers=list(study.receivers),
        weights=weights.each if own else None,
        records=weights.records,
    )
    kind = None if own else study.weighting
    return _Source(
        table,
        study.label,
        study.tolerate,
        guarantee=study.guarantee,
        weighting=kind,
        spread=weights.spread,
        width=weights.width,
        note=note,
    )


def _shares(study: Study) -> str:
    """What share of every budget each round has, for people."""
    shares = [study.schedule.share(number) for number in range(1, study.rounds + 1)]
    return ", ".join(f"{100 * share:.3g} %" for share in shares)


def _check_outputs(parties: Path, out: Path | None, plot: Path | None) -> None:
    """Refuse bad output paths before any work is done."""
    from tpmdp._util.files import check_output

    if plot is not None and plot.suffix.lower() not in (".png", ".svg"):
        raise InputError("--plot", str(plot), "must end in .png or .svg", "rename the picture")
    taken = {os.path.realpath(parties): "the file of parties"}
    for option, path in (("--out", out), ("--plot", plot)):
        if path is not None:
            check_output(path)
            real = os.path.realpath(path)
            if real in taken:
                raise InputError(option, str(path), f"is the same file as {taken[real]}", "choose another name")
            taken[real] = option


def _write(report: PlanReport, out: Path | None, plot: Path | None) -> None:
    """Write both files or neither."""
    from tpmdp._util.files import replacing
    from tpmdp.planning.plan_file import write_plan
    from tpmdp.report.plot_plan import draw_plan

    with ExitStack() as stack:
        if plot is not None:
            draw_plan(report, stack.enter_context(replacing(plot)))
        if out is not None:
            write_plan(report.plan, out)


def _threshold(option: str | None, parties: PartiesTable) -> Any:
    if option is None:
        if parties.threshold is None:
            raise InputError("--threshold", "(none)", "is missing", "say how many parties may collude, such as 2")
        return parties.threshold
    if parties.threshold is not None:
        click.echo(f"tpmdp: --threshold {option} replaces what the file says", err=True)
    try:
        if "_" in option:
            raise ValueError
        return float(option)
    except ValueError:
        remedy = "give how many parties may collude, such as 2"
        raise InputError("threshold", option, "is not a number", remedy) from None


def _weighting(option: str | None, parties: PartiesTable) -> Any:
    if option == "own" and parties.weights is None:
        raise InputError("--weighting", "own", "needs weights, and the file has none", "add a column weight, 0 to 1")
    if option in (None, "own") and parties.weights is not None:
        return parties.weights
    if parties.weights is not None:
        click.echo(f"tpmdp: --weighting {option} replaces the weights in the file", err=True)
    return option or "equal"


def _places(option: str, spec: Spec) -> list[int]:
    """The parties at which a person has a record."""
    index = {spec.name(party): party for party in range(spec.count)}
    names = [option] if option in index else [name.strip() for name in option.split(",")]
    for name in names:
        if name not in index:
            raise InputError("--person", name, "is not in the file of parties", "name the person's parties: a,b")
    return [index[name] for name in names]


def _receivers(option: str | None, parties: PartiesTable) -> Any:
    if option is None:
        if parties.receivers is None:
            raise InputError("--receivers", "(none)", "is missing", "list names a,b or use all or none")
        return parties.receivers
    if option in ("all", "none"):
        return "all" if option == "all" else []
    if option in parties.names:  # also a name with a comma in it
        return [option]
    listed = [name.strip() for name in option.split(",")]
    if not all(listed):
        raise InputError("receivers", option, "has a blank name", "list names a,b or use all or none")
    return listed
