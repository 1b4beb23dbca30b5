"""The command line: parse, call, print. Heavy imports wait until a command runs, so that --help is quick.

Exit codes: 0 done; 1 a plan or query does not keep what it claims; 2 bad input or output, or refused; 3 the deadline
passed or a party was lost; 130 interrupted; 141 closed pipe; 143 stopped by a signal.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

import click

from tpmdp._util.progress import note_interrupt, was_interrupted
from tpmdp._version import __version__
from tpmdp.cli.check import check
from tpmdp.cli.completion import answer_shell, completion
from tpmdp.cli.experiment import experiment
from tpmdp.cli.flower import flower
from tpmdp.cli.ledger import ledger
from tpmdp.cli.page import page
from tpmdp.cli.plan import plan, verify
from tpmdp.cli.query import check_query, query
from tpmdp.cli.rehearse import audit_command, rehearse
from tpmdp.cli.relay import relay
from tpmdp.cli.report import report
from tpmdp.cli.sections import Sections
from tpmdp.cli.start import accept, init, invite, key, keygen
from tpmdp.cli.status import status
from tpmdp.cli.study import fingerprint, join, run, terms
from tpmdp.errors import CertificateError, DeadlineError, TpmdpError, shown


@click.group(cls=Sections, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="tpmdp %(version)s")
def cli() -> None:
    """Threshold Personalized Multi-party Differential Privacy.

    Turn every party's privacy budget, a collusion threshold and a set of receivers into the noise plan of least total
    noise, with a proof that it is private and optimal; then run it among the parties and keep account of what each
    has spent.
    """


cli.add_sections(
    {
        "Start a study": (page, init, invite, accept, keygen, key),
        "Look before you pay": (check, query, plan, verify, fingerprint, terms, check_query, rehearse, audit_command),
        "Take part": (run, join, status, report, relay, ledger),
        "Learn and compare": (flower, experiment),
        "In your shell": (completion,),
    }
)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; every error a user can cause is one line on standard error, never a traceback."""
    _prepare_streams()
    given = sys.argv[1:] if arguments is None else arguments
    with suppress(ValueError):  # not the main thread
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise ignored, as in the background
            signal.signal(signal.SIGINT, note_interrupt)
            sys.unraisablehook = _report_unless_interrupted
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:  # otherwise ignored, as by nohup
                signal.signal(number, _stop)
    try:
        answered = answer_shell(cli)
        if answered is not None:
            raise click.exceptions.Exit(answered)
        # Not cli.main(): it turns a closed pipe into exit code 1, which here means "not valid".
        with cli.make_context("tpmdp", given) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        _quit(leave.exit_code)
    except CertificateError as error:
        _fail(f"not valid: {error}", 1)
    except DeadlineError as error:
        _fail(str(error), 3)
    except TpmdpError as error:
        lost = getattr(error, "culprit", None) is not None  # a party we were connected to
        _fail(str(error), 3 if lost else 2)
    except click.exceptions.NoArgsIsHelpError as error:
        _fail(error.format_message(), 2, one_line=False)
    except click.ClickException as error:
        where = "tpmdp" if getattr(error, "ctx", None) is None else error.ctx.command_path  # type: ignore[attr-defined]
        _fail(f"{error.format_message().rstrip('.')}. See {where} --help.", 2)
    except (click.Abort, KeyboardInterrupt):
        _fail("interrupted", 130)
    except _StoppedError as stopped:
        _quit(128 + stopped.args[0])
    except BrokenPipeError:
        _quit(141)  # the reader of our output went away; nobody is left to read a message
    except OSError as error:
        reason = error.strerror or error
        if error.filename is None:
            _fail(f"standard output cannot be written ({reason}): check the disk", 2)
        _fail(f"{shown(str(error.filename), 300)} cannot be used ({reason}): check the disk and the rights", 2)
    if was_interrupted():
        _fail("interrupted", 130)
    _quit(0)


class _StoppedError(BaseException):
    """Stopped by a signal: clean up and exit."""


def _stop(number: int, frame: object) -> NoReturn:
    del frame
    raise _StoppedError(number)


def _prepare_streams() -> None:
    """Closed streams become silent ones, and names the terminal cannot show become question marks, not errors."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _report_unless_interrupted(trouble: sys.UnraisableHookArgs) -> None:
    """Ctrl-C in a callback that cannot raise is remembered (`was_interrupted`) and prints no traceback."""
    if not isinstance(trouble.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(trouble)


def _fail(message: str, code: int, one_line: bool = True) -> NoReturn:
    with suppress(OSError):
        click.echo("tpmdp: " + " ".join(message.split()) if one_line else message, err=True)
    _quit(code)


def _quit(code: int) -> NoReturn:
    """Exit with this code, even if buffered output cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)
