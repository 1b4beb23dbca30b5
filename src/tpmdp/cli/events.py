"""Signs of life: `--events`, and what join and run show on standard error while a session goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Final

import click

from tpmdp.cli.options import is_supervised

if TYPE_CHECKING:
    from rich.live import Live

    from tpmdp.report.progress import PartyProgress, RunProgress
    from tpmdp.study.events import SessionEvent

_REFRESH: Final = 2  # per second

events_option: Final = click.option(
    "--events",
    type=click.Choice(["text", "json", "none"]),
    help="What standard error shows meanwhile: text, lines of json, or none but problems. "
    "Default: json with --json, else text.",
)


@contextmanager
def showing(
    events: str | None, as_json: bool, progress: PartyProgress | RunProgress
) -> Iterator[Callable[[SessionEvent], None]]:
    """Show events as the option says: on a terminal as a picture that is kept up to date, otherwise line by line.

    A child process reports them to its parent instead.
    """
    chosen = events or ("json" if as_json or is_supervised() else "text")
    live = _live(progress) if chosen == "text" and sys.stderr.isatty() else None

    def show(event: SessionEvent) -> None:
        if chosen == "json":
            click.echo(json.dumps(event.plain()), err=not is_supervised())
            return
        line = progress.take(event)
        if line and (event.is_problem or (chosen == "text" and live is None)):
            click.echo(f"tpmdp: {line}", err=True)  # above the picture, if there is one
        if live is not None:
            live.refresh()

    def show_safely(event: SessionEvent) -> None:
        with suppress(OSError):  # a log that is full or that nobody reads any more must not end a session
            show(event)

    with live or nullcontext():
        yield show_safely


def _live(progress: PartyProgress | RunProgress) -> Live | None:
    """None on a terminal that can only add lines."""
    from rich.console import Console
    from rich.live import Live

    console = Console(stderr=True, highlight=False, emoji=False)
    if console.is_dumb_terminal:
        return None
    return Live(get_renderable=progress.picture, console=console, transient=True, refresh_per_second=_REFRESH)
