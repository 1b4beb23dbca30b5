"""The command line: parse, call, print. Heavy imports wait until a command runs, so that --help is quick.

Exit codes: 0 done; 1 a plan that does not prove what it claims; 2 bad input; 130 interrupted.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import click

from tpmdp.errors import CertificateError, FileError, InputError, TpmdpError

_PLOT_FORMATS: Final = {".png": "png", ".svg": "svg"}


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="tpmdp", message="tpmdp %(version)s")
def cli() -> None:
    """Threshold Personalized Multi-party Differential Privacy.

    Turn every party's privacy budget, a collusion threshold and a set of receivers into the noise plan of least total
    noise, with a proof that it is private and optimal.
    """


@cli.command()
@click.argument("parties", type=click.Path(path_type=Path))
@click.option("--threshold", "-t", help="How many parties may collude. Default: what the file says.")
@click.option("--receivers", "-r", help="Who learns the answer: names a,b or all or none. Default: what the file says.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the plan and its certificate here (plan.json).")
@click.option("--plot", type=click.Path(path_type=Path), help="Draw noise and error here (.png or .svg).")
def plan(
    parties: Path, threshold: str | None, receivers: str | None, as_json: bool, out: Path | None, plot: Path | None
) -> None:
    """Plan the noise for the PARTIES in a .csv, .parquet or .toml file.

    Columns: name, epsilon, delta, sensitivity (default 1), threshold (optional, one a party).

    Example: tpmdp plan parties.csv --threshold 2 --receivers bank,city --out plan.json --plot plan.png
    """
    _check_outputs(out, plot)
    from tpmdp.parties_file import read_parties
    from tpmdp.progress import stage

    with stage("reading parties") as report_progress:
        found = read_parties(parties, report_progress)
    spec = found.spec(_threshold(threshold, found.threshold), _receivers(receivers, found.receivers, found.names))
    from tpmdp.planning.plan import plan as make_plan
    from tpmdp.report import PlanReport, draw_plan, plan_json, print_plan

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the report says it louder
        with stage("planning") as report_progress:
            result = make_plan(spec, report_progress)
    with stage("computing protection and baselines"):
        report = PlanReport.of(result)
    _write(result, report, out, plot, draw_plan)
    if as_json:
        click.echo(json.dumps(plan_json(report), allow_nan=False))
        return
    console = _console()
    print_plan(report, console)
    for path in (out, plot):
        if path is not None:
            console.print(f"wrote {path}", highlight=False, markup=False)


@cli.command()
@click.argument("plan_file", metavar="PLAN.JSON", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def verify(plan_file: Path, as_json: bool) -> None:
    """Check somebody else's plan: prove in exact arithmetic that it is private and optimal.

    Uses neither planner, calibration nor solver. Exit code 0: proved; 1: it does not hold, and which inequality fails.
    """
    from tpmdp.plan_file import read_plan
    from tpmdp.progress import stage
    from tpmdp.report import print_verdict

    spec, certificate = read_plan(plan_file)
    with stage("checking the certificate") as report_progress:
        verdict = certificate.check(spec, report_progress)
    if as_json:
        click.echo(json.dumps({"valid": True, **vars(verdict)}, allow_nan=False))
        return
    print_verdict(spec, certificate.need, certificate.variance, verdict, _console())


def _check_outputs(out: Path | None, plot: Path | None) -> None:
    """Refuse bad output paths before any work is done."""
    if plot is not None and plot.suffix.lower() not in _PLOT_FORMATS:
        raise InputError("--plot", str(plot), "must end in .png or .svg", "rename the picture")
    for path in (out, plot):
        if path is not None and path.is_dir():
            raise FileError(path, "is a folder", "name a file")
        if path is not None and not path.parent.is_dir():
            raise FileError(path, "lies in a folder that does not exist", f"make {path.parent} first")
    if out is not None and plot is not None and out.resolve() == plot.resolve():
        raise InputError("--plot", str(plot), "is the same file as --out", "give each its own")


def _write(result: Any, report: Any, out: Path | None, plot: Path | None, draw: Any) -> None:
    """Write both files or neither."""
    from tpmdp.plan_file import replacing, write_plan

    with ExitStack() as stack:
        if plot is not None:
            temporary = stack.enter_context(replacing(plot))
            draw(report, temporary, _PLOT_FORMATS[plot.suffix.lower()])
        if out is not None:
            write_plan(result, out)


def _threshold(option: str | None, in_file: Any) -> Any:
    if option is None:
        if in_file is None:
            raise InputError("--threshold", "(none)", "is missing", "say how many parties may collude, such as 2")
        return in_file
    try:
        return float(option)
    except ValueError:
        raise InputError(
            "threshold", option, "is not a number", "give how many parties may collude, such as 2"
        ) from None


def _receivers(option: str | None, in_file: Any, names: tuple[str, ...]) -> Any:
    if option is None:
        if in_file is None:
            raise InputError("--receivers", "(none)", "is missing", "list names a,b or use all or none")
        return in_file
    if option in ("all", "none") and option not in names:
        return "all" if option == "all" else []
    listed = [name.strip() for name in option.split(",")]
    if not all(listed):
        raise InputError("receivers", option, "has a blank name", "list names a,b or use all or none")
    return listed


def _console() -> Any:
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 140, highlight=False, emoji=False)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every error a user can cause is one line on standard error, never a traceback."""
    try:
        code = cli.main(args=arguments, prog_name="tpmdp", standalone_mode=False)
        sys.stdout.flush()
    except CertificateError as error:
        _fail(f"not valid: {error}", 1)
    except TpmdpError as error:
        _fail(str(error), 2)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.ClickException as error:
        _fail(f"{error.format_message()} See tpmdp --help.", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output went away; there is nobody to tell
        sys.exit(141)
    else:
        sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int) -> None:
    line = " ".join(message.split())
    click.echo(f"tpmdp: {line}", err=True)
    sys.exit(code)
