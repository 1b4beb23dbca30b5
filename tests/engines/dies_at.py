"""The command of a party of which a process is killed: `python -m tests.engines.dies_at MOMENT VICTIM COMMAND...`."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

from tests.engines.direct_studies import Parties
from tests.patience import wait_until
from tests.processes import children_of
from tpmdp.cli.main import main as run_command
from tpmdp.engines.direct.worker_process import WorkerProcess

MOMENTS = {
    "connecting": ("connected", "before"),
    "computing": ("put_in", "after"),  # all are charged, and the worker has the numbers
    "ready": ("opening", "after"),  # so are all, and nothing is noted
    "opened": ("say", "before"),  # noted, and no share of the result has left
    "settling": ("outcome", "after"),
}


def main() -> None:
    moment, victim, *command = sys.argv[1:]
    name, side = MOMENTS[moment]
    plain = getattr(WorkerProcess, name)
    parties = Parties.load(Path(command[1]).parent)
    names = [party.name for party in parties.study.parties]

    def strike(worker: WorkerProcess) -> None:
        setattr(WorkerProcess, name, plain)
        pids = {"command": [os.getpid()], "worker": [worker.child.pid]}
        os.kill(pids[victim][0] if victim in pids else spu_of(worker.child.pid), signal.SIGKILL)

    def struck(self: WorkerProcess, *arguments: Any, **options: Any) -> Any:
        if side == "before":
            strike(self)
        if moment == "computing":
            wait_until(lambda: all(parties.charges(each) for each in names))
        result = plain(self, *arguments, **options)
        if side == "after":
            strike(self)
        return result

    setattr(WorkerProcess, name, struck)
    run_command(command)


def spu_of(worker: int) -> int:
    """SPU's process of a worker."""
    return next(pid for pid in children_of(worker) if b"pair_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes())


if __name__ == "__main__":
    main()
