"""Options that several commands share, and numbers on the command line with errors in our words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import click

from tpmdp.errors import InputError

lifeline_option = click.option("--end-with-stdin", is_flag=True, hidden=True, help="End when standard input ends.")


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
    """An option's number, or an error in our words."""
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
