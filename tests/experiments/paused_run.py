"""A tpmdp command that stops working, until it is ended, once an experiment has stored two jobs."""

from __future__ import annotations

import time
from typing import Any

from tpmdp.cli.main import main
from tpmdp.experiments import runner

JOBS = 2
write_part = runner.write_part
stored = 0


def write_and_pause(*arguments: Any) -> None:
    global stored
    write_part(*arguments)
    stored += 1
    while stored == JOBS:
        time.sleep(0.1)


if __name__ == "__main__":
    runner.write_part = write_and_pause  # type: ignore[assignment]
    main()
