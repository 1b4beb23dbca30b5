"""What both sides of the Flower benchmark share: a simulation on two cores, and one line of JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from tpmdp.flower.simulation import run_private_simulation

CPUS = 2


class Fail(TypedDict):
    """Which clients fail: the first ones, at one stage."""

    stage: str
    count: int


@dataclass
class Result:
    """What came out, as it is printed."""

    seconds: float | None = None
    bytes_up: float | None = None
    bytes_down: float | None = None
    error: float | None = None
    rms_error: float | None = None
    completed: bool = False
    counted: int = 0
    problem: str | None = None


def simulate(server: ServerApp, client: ClientApp, clients: int, result: Result) -> None:
    """One simulation, from Ray's start to its end; what goes wrong is noted."""
    try:
        run_private_simulation(server, client, clients, cpus=CPUS)
    except Exception as problem:
        result.problem = repr(problem)


def tell(run: Callable[[dict[str, Any]], Result]) -> None:
    """Run with the options of the command line. Standard output is for the result: others write to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(asdict(run(json.loads(sys.argv[1])))), file=out, flush=True)
