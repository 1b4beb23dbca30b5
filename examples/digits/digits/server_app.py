"""The server: `PrivateStrategy` in place of FedAvg."""

from __future__ import annotations

from logging import INFO
from pathlib import Path

from flwr.app import Array, ArrayRecord, Context, MetricRecord
from flwr.common import log
from flwr.serverapp import Grid, ServerApp

from digits.task import accuracy, initial_model
from tpmdp import read_key
from tpmdp.flower import PrivateStrategy, read_peers

app = ServerApp()


def first_arrays() -> ArrayRecord:
    """The model as Flower sends it."""
    return ArrayRecord({"model": Array(initial_model())})


def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
    """How good a model is; the server has the test images."""
    del number
    return MetricRecord({"accuracy": accuracy(arrays["model"].numpy())})


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train with the settings of `flwr run` (pyproject.toml)."""
    settings = context.run_config
    strategy = PrivateStrategy(
        name="digits",
        clip=float(settings["clip"]),
        threshold=int(settings["threshold"]),
        tolerate=int(settings["tolerate"]),
        weighting=str(settings["weighting"]),
        clients_least=int(settings["clients-least"]),
        key=read_key(Path(str(settings["server-key"]))),
        peers=read_peers(Path(str(settings["peers"]))),
    )
    strategy.start(grid, first_arrays(), int(settings["num-server-rounds"]), evaluate_fn=evaluate)  # logs every round
    log(INFO, "digits: %s", strategy.guarantee)
