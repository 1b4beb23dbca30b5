"""What both sides of the Flower benchmark share: a simulation on two cores, and one line of JSON on standard output."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict, cast

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1", RAY_USAGE_STATS_ENABLED="0")

from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

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
    config = {"init_args": {"num_cpus": CPUS}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    try:
        run_simulation(server, client, clients, backend_config=cast(Any, config))
    except Exception as problem:
        result.problem = repr(problem)


def tell(run: Callable[[dict[str, Any]], Result]) -> None:
    """Run with the options of the command line. Standard output is for the result: others write to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    print(json.dumps(asdict(run(json.loads(sys.argv[1])))), file=out, flush=True)
