"""Processes forked from a warm parent: as new as a new interpreter, and none is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.patience import HANG_S, wait_until
from tpmdp._util.interpreter import python_environment
from tpmdp._util.process import ChildProcess
from tpmdp._util.warm_process import WarmProcess, is_available

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not is_available(), reason="processes are forked on Linux only"),
]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that children can run; a test writes its code."""
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "warm_child.py"


@contextmanager
def running(*arguments: str, imports: tuple[str, ...] = (), **options: int | Path) -> Iterator[WarmProcess]:
    process = WarmProcess("warm_child", *arguments, imports=imports, **options)  # type: ignore[arg-type]
    try:
        yield process
    finally:
        process.kill()
        process.wait(HANG_S)
        process.close()


def test_a_child_has_arguments_environment_folder_and_streams_of_its_own(
    module: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.write_text(
        "import os, sys\n"
        "assert __name__ == '__main__'\n"
        "print(sys.argv[1:], os.environ['PLACE'], os.getcwd(), sys.stdin.read())\n"
        "print('problem', file=sys.stderr)\n"
    )
    (tmp_path / "folder").mkdir()
    for number in range(2):
        monkeypatch.setenv("PLACE", f"place {number}")
        folder = tmp_path / ("folder" if number else "")
        with running("a b", stdin=subprocess.PIPE, stderr=subprocess.PIPE, folder=folder) as process:
            process.stdin.write(b"input")
            process.stdin.close()
            assert process.stdout.read().decode() == f"['a b'] place {number} {folder} input\n"
            assert process.stderr.read() == b"problem\n"
            assert process.wait(HANG_S) == 0


def test_imports_are_paid_once_and_what_a_child_changes_is_its_own(module: Path, tmp_path: Path) -> None:
    (tmp_path / "warm_import.py").write_text(f"open({str(tmp_path / 'imported')!r}, 'a').write('once ')\nvalue = 0\n")
    module.write_text("import warm_import; warm_import.value += 1; print(warm_import.value)")
    for _ in range(3):
        with running(imports=("warm_import",)) as process:
            assert process.stdout.read() == b"1\n"
    assert (tmp_path / "imported").read_text() == "once "


def test_children_share_no_randomness(module: Path) -> None:
    module.write_text(
        "import random, secrets, numpy as np\n"
        "from tpmdp.noise.source import system_source\n"
        "print(random.random(), secrets.token_hex(8), np.random.random(), np.random.default_rng().random())\n"
        "print(*system_source().words(2))\n"
    )
    drawn = []
    for _ in range(2):
        with running(imports=("numpy", "tpmdp.noise.source")) as process:
            drawn.append(process.stdout.read().split())
    assert len(drawn[0]) == len(drawn[1]) == 6
    assert not set(drawn[0]) & set(drawn[1])


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("1 / 0", 1),
        ("import os; os._exit(9)", 9),
        ("import os; os.kill(os.getpid(), 9)", -9),
        ("import os; os.kill(os.getpid(), 15)", -15),
    ],
)
def test_exit_codes_are_those_of_a_new_interpreter(module: Path, code: str, expected: int) -> None:
    module.write_text(code)
    with running() as process:
        assert process.wait(HANG_S) == process.poll() == process.returncode == expected
    cold = subprocess.run([sys.executable, str(module)], stderr=subprocess.DEVNULL, check=False, timeout=HANG_S)
    assert cold.returncode == expected


def test_an_import_that_fails_fails_in_the_child_only(module: Path, tmp_path: Path) -> None:
    (tmp_path / "broken_import.py").write_text("raise ValueError('broken')")
    (tmp_path / "leaving_import.py").write_text("raise SystemExit(3)")
    module.write_text("import broken_import")
    with running(imports=("broken_import", "leaving_import", "no_such_module"), stderr=subprocess.PIPE) as process:
        assert b"ValueError: broken" in process.stderr.read()
        assert process.wait(HANG_S) == 1


def test_ctrl_c_reaches_a_child(module: Path) -> None:
    module.write_text(
        "import time\nprint('ready', flush=True)\n"
        "try:\n    time.sleep(999)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    with running() as process:
        assert process.stdout.readline() == b"ready\n"
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGINT)
        assert process.stdout.read() == b"interrupted\n"
        assert process.wait(HANG_S) == 0
        process.kill()  # it has ended: nothing happens


def test_a_child_holds_no_stream_of_another(module: Path) -> None:
    """Otherwise the end of one child's input or output would not be seen while another is running."""
    module.write_text("import sys; print('ready', flush=True); sys.stdin.read(); print('end')")
    with running(stdin=subprocess.PIPE) as first, running(stdin=subprocess.PIPE) as second:
        for process in (first, second):
            assert process.stdout.readline() == b"ready\n"
        first.stdin.close()
        assert first.stdout.read() == b"end\n"
        assert first.wait(HANG_S) == 0
        assert second.poll() is None


def test_a_warm_parent_that_was_killed_is_replaced(module: Path) -> None:
    module.write_text("import os, time; print(os.getppid(), flush=True); time.sleep(999)")
    with running() as process:
        parent = int(process.stdout.readline())
        os.kill(parent, signal.SIGKILL)
        assert process.wait(HANG_S) == 255  # unknown: its parent cannot tell any more
        with running() as again:
            assert int(again.stdout.readline()) != parent
        os.kill(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_the_process_that_started_it(tmp_path: Path, number: int) -> None:
    program = (
        "import sys, time\n"
        "from tpmdp._util.process import ChildProcess\n"
        "child = ChildProcess('-m', 'tpmdp', 'relay', '--port', '0', '--store', sys.argv[1], '--end-with-stdin',\n"
        "                     warm=('tpmdp.cli.main',))\n"
        "child.line(300)\n"
        "print(child.pid, open(f'/proc/{child.pid}/stat').read().rpartition(')')[2].split()[1], flush=True)\n"
        "time.sleep(999)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "relay.sqlite")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=python_environment()) as starter:
        assert starter.stdout is not None
        child, parent = map(int, starter.stdout.readline().split())
        starter.send_signal(number)
    wait_until(lambda: not any(is_running(pid) for pid in (child, parent)))


def test_a_child_of_the_supervisor_is_forked_or_new(module: Path) -> None:
    module.write_text("import os; print(os.getppid()); input()")
    parents = []
    for warm in ((), ("json",)):
        with ChildProcess("-m", "warm_child", warm=warm) as child:
            parents.append(int(child.line(HANG_S)))
            child.write(b"\n")
            assert child.wait(HANG_S) == 0
    assert parents[0] == os.getpid() != parents[1]


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
