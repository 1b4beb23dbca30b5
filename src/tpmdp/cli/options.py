"""Options that several commands share, and errors that name the flag of a field."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from tpmdp._util import child_side as child
from tpmdp.errors import InputError, TpmdpError

_SUPERVISED: Final = "tpmdp.supervised"


def supervised(command: Callable[..., None]) -> Callable[..., None]:
    """Add the hidden flag --end-with-stdin, with which `tpmdp._util.process` starts a command as a child process.

    The command then ends with its standard input, and reports an error also as a line of JSON on standard output.
    """

    @click.option("--end-with-stdin", is_flag=True, hidden=True, help="End when standard input ends.")
    @functools.wraps(command)
    def run(*arguments: Any, end_with_stdin: bool, **options: Any) -> None:
        if not end_with_stdin:
            command(*arguments, **options)
            return
        child.end_with_stdin()
        click.get_current_context().meta[_SUPERVISED] = True
        try:
            command(*arguments, **options)
        except TpmdpError as error:
            click.echo(json.dumps(child.error_report(error)))
            raise

    return run


def is_supervised() -> bool:
    """Whether the present command runs as a child process; see `supervised`."""
    return _SUPERVISED in click.get_current_context().meta


@contextmanager
def as_flags(flags: Mapping[str, str]) -> Iterator[None]:
    """An error about a field of the library names the flag that sets it.

    >>> with as_flags({"workers": "--workers"}):
    ...     raise InputError("workers", 0, "must be at least 1", "leave it out")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: --workers = 0 must be at least 1: leave it out
    """
    try:
        yield
    except InputError as error:
        if error.field not in flags:
            raise
        raise InputError(flags[error.field], error.value, error.rule, error.remedy) from None


def number(context: click.Context, option: click.Parameter, text: str | None) -> float | None:
    """The number of an option; Click's own error would lack rule and remedy."""
    del context
    if text is None:
        return None
    from tpmdp._util.fields import parse_float

    try:
        if "_" in text:
            raise ValueError
        return parse_float(text)
    except ValueError:
        example = "1e-6" if option.name == "delta" else "2 or inf"
        rule, remedy = "is not a number in range", f"give a number such as {example}"
        raise InputError(f"--{option.name}", text, rule, remedy) from None
