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
from tpmdp.study.pair_shares import PairShares
from tpmdp.study.session import SessionAccount

MOMENTS: dict[str, tuple[type, str, str]] = {
    "connecting": (WorkerProcess, "connected", "before"),
    "linked": (WorkerProcess, "connected", "after"),  # the others are charged, or about to be
    "computing": (WorkerProcess, "put_in", "after"),  # all are charged, and the worker has the numbers
    "ready": (WorkerProcess, "opening", "after"),  # so are all, and nothing is noted
    "opened": (WorkerProcess, "say", "before"),  # noted, and no share of the result has left
    "settling": (WorkerProcess, "outcome", "after"),
    # Where shares are kept for a sum through a relay, of a holder; `settling` comes before its share is stored:
    "stored": (PairShares, "compute", "after"),
    "submitting": (PairShares, "share", "after"),
    "ending": (SessionAccount, "settle", "before"),
}


def main() -> None:
    moment, victim, *command = sys.argv[1:]
    owner, name, side = MOMENTS[moment]
    plain = getattr(owner, name)
    parties = Parties.load(Path(command[1]).parent)
    names = [party.name for party in parties.study.parties if party.records or not parties.study.uses_relay]

    def strike(struck: Any) -> None:
        setattr(owner, name, plain)
        if victim == "command":
            os.kill(os.getpid(), signal.SIGKILL)
        worker = struck.child.pid
        os.kill(worker if victim == "worker" else spu_of(worker), signal.SIGKILL)

    def struck(self: Any, *arguments: Any, **options: Any) -> Any:
        if side == "before":
            strike(self)
        if moment == "computing":
            wait_until(lambda: all(parties.charges(each) for each in names))
        result = plain(self, *arguments, **options)
        if side == "after":
            strike(self)
        return result

    setattr(owner, name, struck)
    run_command(command)


def spu_of(worker: int) -> int:
    """SPU's process of a worker."""
    return next(pid for pid in children_of(worker) if b"pair_worker.py" in Path(f"/proc/{pid}/cmdline").read_bytes())


if __name__ == "__main__":
    main()
