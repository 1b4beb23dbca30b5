"""The server: asks for one round of plain FedAvg, then trains in private; prints in JSON what it has learned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
from flwr.app import Array, ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from tpmdp.flower import PrivateStrategy
from tpmdp.study.identity import read_key

CLIP: Final = 1.0
PATIENCE_S: Final = 600.0
app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train from zeros."""
    config = context.run_config
    model, clients = ArrayRecord({"model": Array(np.zeros(3))}), int(config["clients"])
    _say("PLAIN", _plain(grid, model, clients))
    _say("PRIVATE", _private(grid, model, clients, int(config["rounds"]), Path(str(config["key"]))))


def _plain(grid: Grid, model: ArrayRecord, clients: int) -> dict[str, Any]:
    strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=clients, min_available_nodes=clients)
    result = strategy.start(grid, model, 1, PATIENCE_S)
    return {"arrays": list(result.arrays), "metrics": list(result.train_metrics_clientapp)}


def _private(grid: Grid, model: ArrayRecord, clients: int, rounds: int, key: Path) -> dict[str, Any]:
    models: list[list[float]] = []

    def evaluate(_: int, arrays: ArrayRecord) -> None:
        models.append(arrays["model"].numpy().tolist())

    strategy = PrivateStrategy(
        name="steps",
        clip=CLIP,
        threshold=2,
        tolerate=1,
        clients_least=clients,
        patience_s=PATIENCE_S,
        key=read_key(key),
    )
    result = strategy.start(grid, model, rounds, PATIENCE_S, evaluate_fn=evaluate)
    metrics = {number: dict(record) for number, record in result.train_metrics_clientapp.items()}
    names = ("number", "counted", "missing", "noise", "session")
    reports = [{name: getattr(report, name) for name in names} for report in strategy.reports]
    return {"models": models, "reports": reports, "metrics": metrics}


def _say(what: str, told: dict[str, Any]) -> None:
    print(what, json.dumps(told), flush=True)
