"""A progress bar on standard error for work that takes more than a second; nothing if standard error is a pipe."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

DELAY_S: Final = 1.0

_interrupted = threading.Event()

Progress = Callable[[int, int], None]  # called with (done, total)


def _ignore(done: int, total: int) -> None:
    del done, total


def note_interrupt(number: int, frame: object) -> NoReturn:
    """The handler of Ctrl-C: raise as usual, and remember it, because some libraries swallow exceptions."""
    del number, frame
    _interrupted.set()
    raise KeyboardInterrupt


def was_interrupted() -> bool:
    """Whether Ctrl-C was pressed, even if the exception was swallowed.

    >>> was_interrupted()
    False
    """
    return _interrupted.is_set()


@contextmanager
def stage(name: str, delay_s: float = DELAY_S) -> Iterator[Progress]:
    """Show `name` with a bar once the block has run for a second; call the yielded function with (done, total).

    >>> with stage("adding") as progress:
    ...     progress(1, 2)
    """
    if was_interrupted():
        raise KeyboardInterrupt
    if not sys.stderr.isatty():
        yield _ignore
        return
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    percentage, remaining = TextColumn("{task.percentage:>3.0f}%"), (TextColumn("left"), TimeRemainingColumn())
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        percentage,
        TimeElapsedColumn(),
        *remaining,
    )
    bar = Bar(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(name, total=None)
    timer = threading.Timer(delay_s, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield lambda done, total: bar.update(task, completed=done, total=total)
    finally:
        timer.cancel()
        timer.join()
        bar.stop()
