"""A child process that must not outlive its parent: it ends when its standard input does."""

from __future__ import annotations

import os
import signal
import sys
import threading

import click

lifeline_option = click.option("--end-with-stdin", is_flag=True, hidden=True, help="End when standard input ends.")


def end_with_stdin() -> None:
    """Ask this process to stop (SIGTERM) when whoever holds the other end of its standard input is gone."""

    def wait() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="lifeline", daemon=True).start()
