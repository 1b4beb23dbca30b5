"""Run a command beside four busy processes, which always end with it: `python tests/under_load.py COMMAND...`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import Final

BUSY_PROCESSES: Final = 4
# A busy process also ends by itself when its parent is gone, so that even SIGKILL leaves none behind.
BUSY: Final = "import os\nparent = os.getppid()\nwhile os.getppid() == parent:\n    sum(range(100_000))\n"


def main(command: list[str]) -> int:
    """The exit code of the command."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(BUSY_PROCESSES)]
    try:
        print(f"{BUSY_PROCESSES} busy processes on {len(os.sched_getaffinity(0))} cores", file=sys.stderr, flush=True)
        return subprocess.run(command, check=False).returncode
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
