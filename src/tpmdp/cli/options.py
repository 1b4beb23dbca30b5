"""Options that several commands share, and numbers on the command line with errors in our words."""

from __future__ import annotations

import click

from tpmdp.errors import InputError

lifeline_option = click.option("--end-with-stdin", is_flag=True, hidden=True, help="End when standard input ends.")


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
