"""`tpmdp flower`: the files of clients and server of a private training on Flower."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from tpmdp.cli.options import number
from tpmdp.cli.sections import WholeSummaries

_FOLDER: Final = click.Path(path_type=Path, file_okay=False)
_FILE: Final = click.Path(path_type=Path, readable=False)  # the reader of settings reports errors


@click.group(cls=WholeSummaries)
def flower() -> None:
    """Take part in a private training on Flower.

    See docs/how-to/flower.md.
    """


@flower.command()
@click.argument("name")
@click.option("--epsilon", required=True, callback=number, help="Budget for all rounds together; inf for no limit.")
@click.option("--delta", required=True, callback=number, help="The delta of the budget, such as 1e-5.")
@click.option("--rounds", required=True, type=int, help="Number of rounds over which the budget is spread evenly.")
@click.option("--threshold", required=True, type=int, help="How many may collude against you, the server among them.")
@click.option("--peers", default="peers.toml", show_default=True, help="File with all public keys, or any.")
@click.option("--folder", default=".", show_default=True, type=_FOLDER, help="Where to write NAME.toml and the rest.")
def client(name: str, epsilon: float, delta: float, rounds: int, threshold: int, peers: str, folder: Path) -> None:
    """Write key, ledger and settings of the client NAME, and print its line for the peers file.

    Example: tpmdp flower client hospital --epsilon 4 --delta 1e-5 --rounds 20 --threshold 2
    """
    from tpmdp.flower.client_settings import NODE_KEY, write_settings
    from tpmdp.spec import Party

    line = write_settings(folder, Party(name, epsilon, delta, threshold=threshold), rounds, peers=peers)
    path = (folder / f"{name}.toml").resolve()
    click.echo(f"wrote {path}, a key and a ledger; keep them to yourself. Start your SuperNode with", err=True)
    click.echo(f"  --node-config '{NODE_KEY}=\"{path}\"'", err=True)
    click.echo("and give everybody this line for their peers file:", err=True)
    click.echo(line)


@flower.command()
@click.argument("settings", type=_FILE)
def check(settings: Path) -> None:
    """Check a client's settings, and print what a round costs and what is left.

    Example: tpmdp flower check hospital.toml
    """
    from tpmdp.flower.client_settings import read_settings
    from tpmdp.flower.round_terms import SERVER
    from tpmdp.ledger import left_text, rounded_up

    client = read_settings(settings)
    with client.open_ledger() as ledger:
        spent = ledger.spent()
        ready = client.is_ready(ledger)
    party, peers = client.party, client.peers
    if peers is not None and SERVER not in peers:
        text = "the peers file has no line for the server: ask its operator for what tpmdp flower server printed"
        click.echo(f"tpmdp: {text}", err=True)
    who = "anybody the server names" if peers is None else f"known peers only ({len(peers)})"
    click.echo(
        f"{party.name}: epsilon {party.epsilon:g} at delta {party.delta:g} over {client.rounds} rounds, with {who}"
    )
    click.echo(
        f"a round costs at most epsilon {rounded_up(client.round_party.epsilon)} on its own; "
        f"{party.threshold} may collude, the server among them"
    )
    room = "there is room for more rounds" if ready else "there is no room for a further round"
    click.echo(
        f"spent so far: epsilon {rounded_up(spent.epsilon)}; left: {left_text(spent.left, spent.limit_epsilon)}; {room}"
    )


@flower.command()
@click.option("--out", default="server.key", show_default=True, type=_FILE, help="Where to write the key file.")
def server(out: Path) -> None:
    """Write the server's key, and print its line for the peers file.

    Example: tpmdp flower server >> peers.toml
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from tpmdp.flower.round_terms import SERVER
    from tpmdp.study.identity import public_text, write_key

    identity = Ed25519PrivateKey.generate()
    write_key(out, identity)
    click.echo(f"wrote {out}; keep it secret, and give it to PrivateStrategy(key=tpmdp.read_key(...)).", err=True)
    click.echo(f'{SERVER} = "{public_text(identity)}"')
