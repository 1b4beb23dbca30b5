"""Federated learning on Flower with personal budgets and a collusion threshold: `pip install 'tpmdp[flower]'`.

Client: `ClientApp(mods=[private_mod()])`. Server: `PrivateStrategy(...).start(grid, arrays, num_rounds)`.
docs/how-to/flower.md shows how a plain Flower app becomes a private one.
"""

from __future__ import annotations

from importlib.util import find_spec

from tpmdp.errors import MissingDependencyError

if find_spec("flwr") is None:
    raise MissingDependencyError("flwr", "flower", "to train on Flower")

from tpmdp.flower.client_settings import ClientSettings, read_settings
from tpmdp.flower.mod import private_mod
from tpmdp.flower.round_terms import Training
from tpmdp.flower.simulated_settings import simulated_clients
from tpmdp.flower.simulation import run_private_simulation
from tpmdp.flower.strategy import PrivateStrategy, RoundReport
from tpmdp.study.peers import read_peers

__all__ = [
    "ClientSettings",
    "PrivateStrategy",
    "RoundReport",
    "Training",
    "private_mod",
    "read_peers",
    "read_settings",
    "run_private_simulation",
    "simulated_clients",
]
