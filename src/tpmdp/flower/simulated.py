"""Clients for a simulation: files as real clients have them, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context

from tpmdp.errors import InputError
from tpmdp.flower.client_settings import Own, read_own, write_own
from tpmdp.study.identity import public_text


@dataclass(frozen=True)
class Budget:
    """What a client of a simulation allows for all rounds together."""

    epsilon: float
    delta: float


def simulated_clients(
    folder: Path, budgets: Sequence[Budget], rounds: int, threshold: int, server: Ed25519PrivateKey
) -> Callable[[Context], Own]:
    """Make key, ledger and settings of every client in a folder; gives what `private_mod` takes as `party`.

    A folder that has them already is used as it is, ledgers included.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clients = simulated_clients(Path(folder), [Budget(1.0, 1e-5)] * 2, 3, 1, Ed25519PrivateKey.generate())
    ...     sorted(path.name for path in Path(folder).iterdir())[:4]
    ['client-0.key', 'client-0.ledger', 'client-0.toml', 'client-1.key']
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    names = [f"client-{index}" for index in range(len(budgets))]
    if not (folder / "peers.toml").exists():
        peers = [f'server = "{public_text(server)}"']
        for name, budget in zip(names, budgets, strict=True):
            peers.append(write_own(folder, name, budget.epsilon, budget.delta, rounds, threshold))
        (folder / "peers.toml").write_text("\n".join(peers) + "\n")

    def party(context: Context) -> Own:
        index = int(context.node_config["partition-id"])
        if not 0 <= index < len(names):
            raise InputError("partition-id", index, f"must be less than {len(names)}", "give as many budgets as nodes")
        return read_own(folder / f"{names[index]}.toml")

    return party
