"""Clients for a simulation: files as real clients have them, in one folder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from flwr.app import Context

from tpmdp._util.files import StrPath, as_path
from tpmdp.errors import FileError, InputError
from tpmdp.flower.client_settings import ClientSettings, read_settings, write_settings
from tpmdp.flower.round_terms import SERVER
from tpmdp.spec import Party
from tpmdp.study.identity import public_text
from tpmdp.study.peers import read_peers


def simulated_clients(
    folder: StrPath, parties: Sequence[Party], rounds: int, server: Ed25519PrivateKey
) -> Callable[[Context], ClientSettings]:
    """Write key, ledger and settings of every client to a folder; gives what `private_mod` takes.

    Each party has its budget for all rounds and its threshold. A folder that has the files already is used as it is,
    ledgers included; it must have been written for the same server, parties and rounds.

    >>> import os, tempfile
    >>> parties = [Party(f"client-{index}", 1.0, 1e-5, threshold=1) for index in range(2)]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     settings = simulated_clients(folder, parties, rounds=3, server=Ed25519PrivateKey.generate())
    ...     sorted(os.listdir(folder))[:4]
    ['client-0.key', 'client-0.ledger', 'client-0.toml', 'client-1.key']
    """
    place = as_path(folder)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (place / "peers.toml").exists():
        peers = [f'server = "{public_text(server)}"', *(write_settings(place, party, rounds) for party in parties)]
        (place / "peers.toml").write_text("\n".join(peers) + "\n")
    else:
        _check_same(place, parties, rounds, server=server)
    names = [party.name for party in parties]

    def settings_of(context: Context) -> ClientSettings:
        index = int(context.node_config["partition-id"])
        if not 0 <= index < len(names):
            raise InputError("partition-id", index, f"must be less than {len(names)}", "give as many parties as nodes")
        return read_settings(place / f"{names[index]}.toml")

    return settings_of


def _check_same(folder: Path, parties: Sequence[Party], rounds: int, server: Ed25519PrivateKey) -> None:
    """Refuse a folder that was written for others: its clients would refuse the server, or have other budgets."""
    remedy = "use the same as before, or another folder"
    if read_peers(folder / "peers.toml").get(SERVER) != server.public_key().public_bytes_raw():
        raise FileError(folder, "holds settings for another server key", remedy)
    for party in parties:
        path = folder / f"{party.name}.toml"
        if not path.exists():
            raise FileError(folder, f"holds settings of other clients, and none of {party.name}", remedy)
        stored = read_settings(path)
        has = (stored.party.epsilon, stored.party.delta, stored.party.threshold, stored.rounds)
        if has != (party.epsilon, party.delta, party.threshold, rounds):
            budget = "epsilon {:g}, delta {:g}, threshold {} and {} rounds".format(*has)
            raise FileError(path, f"has {budget}, and others are asked for", remedy)
