"""Printing tables: laid out first, then written at once."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH: Final = 140


def print_with(show: Callable[[Console], None]) -> None:
    """Lay out on a console as wide as the terminal, then write at once: one place handles a failed write."""
    from rich.console import Console

    terminal = sys.stdout.isatty()
    buffer = io.TextIOWrapper(io.BytesIO(), encoding=sys.stdout.encoding or "utf-8", errors="replace", newline="\n")
    width = Console().width if terminal else _PIPE_WIDTH
    show(Console(file=buffer, width=width, force_terminal=terminal, highlight=False, emoji=False))
    buffer.seek(0)
    click.echo("\n".join(line.rstrip() for line in buffer.read().splitlines()), color=terminal)
