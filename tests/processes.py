"""Real processes of the tool, forked from a warm parent: a test need not pay for the imports of each.

What only a new interpreter shows (encodings, closed streams, the installed script) is tested with `subprocess`.
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from tests.patience import HANG_S
from tpmdp._util.warm_process import WarmProcess

IMPORTS: Final = (
    "tpmdp.cli.main",
    "tpmdp.data.duck",
    "tpmdp.engines.relay.server",
    "tpmdp.planning.certificate",
    "tpmdp.report.plan",
    "tpmdp.report.release",
    "tpmdp.study.join",
    "tpmdp.study.local_run",
    "matplotlib.pyplot",
)


class Process(WarmProcess):
    """A process whose output is text."""

    def __init__(self, module: str, *arguments: object, **options: Any) -> None:
        options = {"stderr": subprocess.PIPE, **options}
        super().__init__(module, *map(str, arguments), imports=IMPORTS, **options)
        self._texts: dict[int, str] = {}
        self._readers: list[threading.Thread] = []

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self.wait()
        self.close()

    def line(self) -> str:
        """The next line of standard output."""
        return str(self.stdout.readline(), "utf-8")

    def communicate(self, timeout: float = HANG_S) -> tuple[str, str]:
        """All that is left of standard output and error, once the process has ended."""
        if not self._readers:
            for number, stream in enumerate((self.stdout, self.stderr)):
                if stream is not None:
                    self._readers.append(threading.Thread(target=self._read, args=(number, stream), daemon=True))
                    self._readers[-1].start()
        self.wait(timeout)
        for reader in self._readers:
            reader.join(timeout)
            if reader.is_alive():
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.close()
        return self._texts.get(0, ""), self._texts.get(1, "")

    def end(self) -> int:
        """The exit code, once it has ended; its output is discarded."""
        self.communicate()
        return self.wait()

    def _read(self, number: int, stream: IO[bytes]) -> None:
        self._texts[number] = stream.read().decode()


def run(
    *arguments: object, folder: Path | None = None, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command-line tool to its end."""
    with Process("tpmdp", *arguments, folder=folder, environment=environment) as process:
        out, errors = process.communicate()
        return subprocess.CompletedProcess(list(map(str, arguments)), process.wait(), out, errors)


def parents() -> dict[int, int]:
    """The parent of every process of this machine."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended
            found[int(entry.name)] = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
    return found


def children_of(pid: int) -> list[int]:
    return [child for child, parent in parents().items() if parent == pid]


def working_in(folder: Path) -> dict[int, str]:
    """The processes whose current folder this is, by number; those that have ended do not count."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (entry / "cwd").readlink() == folder:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return found
