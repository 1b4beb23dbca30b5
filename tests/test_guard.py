"""The guard in conftest: without the marker `process` a test can start neither a process nor a server."""

from __future__ import annotations

import multiprocessing
import os
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from tpmdp._util.warm_process import WarmProcess


def fork_with_multiprocessing() -> None:
    multiprocessing.get_context("fork").Process(target=os.getpid).start()


def spawn_with_multiprocessing() -> None:
    multiprocessing.get_context("spawn").Process(target=os.getpid).start()


def run_python() -> None:
    subprocess.run([sys.executable, "-c", ""], check=True)


def fork_from_a_warm_parent() -> None:
    WarmProcess("tpmdp", "--version").wait()


def bind() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))


STARTS = [run_python, os.fork, fork_with_multiprocessing, spawn_with_multiprocessing, fork_from_a_warm_parent, bind]


@pytest.mark.parametrize("start", STARTS)
def test_an_unmarked_test_cannot_start_a_process_or_a_server(start: Callable[[], object]) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"@pytest\.mark\.process"):
        start()


@pytest.mark.process
def test_a_marked_test_can() -> None:
    run_python()
    bind()
