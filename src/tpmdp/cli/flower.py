"""`tpmdp flower`: the files of clients and server of a private training on Flower."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from tpmdp._util.numbers import plural
from tpmdp.cli.options import number
from tpmdp.cli.sections import WholeSummaries

if TYPE_CHECKING:
    from tpmdp.flower.client_settings import ClientSettings

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
    """Check a client's settings, and print what a round costs, what noise to expect and what is left.

    Example: tpmdp flower check hospital.toml
    """
    from tpmdp.flower.client_settings import read_settings
    from tpmdp.flower.round_terms import SERVER
    from tpmdp.ledger import left_text, rounded_up

    client = read_settings(settings)
    with client.open_ledger() as ledger:
        spent, limit = ledger.spent(), ledger.limit("party")
        ready = client.is_ready(ledger)
    party, peers = client.party, client.peers
    for text in _doubts(client, limit):
        click.echo(f"tpmdp: {text}", err=True)
    others = None if peers is None else len(peers.keys() - {SERVER, party.name})
    who = "anybody the server names" if others is None else f"the server and {plural(others, 'other client')} only"
    over = plural(client.rounds, "round")
    click.echo(f"{party.name}: epsilon {party.epsilon:g} at delta {party.delta:g} over {over}, with {who}")
    click.echo(
        f"a round costs at most epsilon {rounded_up(client.round_party.epsilon)} on its own; "
        f"{party.threshold} may collude, the server among them"
    )
    click.echo(_expected_noise(client, others))
    room = "there is room for more rounds" if ready else "there is no room for a further round"
    click.echo(
        f"spent so far: epsilon {rounded_up(spent.epsilon)}; left: {left_text(spent.left, spent.limit_epsilon)}; {room}"
    )
    if spent.epsilon > 0:
        click.echo("(rounds add up to less than their sum, so spent and left are together more than the budget)")


def _doubts(client: ClientSettings, limit: tuple[float, float]) -> Iterator[str]:
    """What will keep the client from taking part, or end it early, as far as its own files show it."""
    from tpmdp.flower.round_terms import SERVER

    party, peers = client.party, client.peers
    if limit[0] < party.epsilon or limit[1] < party.delta:
        yield (
            f"the ledger's limit (epsilon {limit[0]:g}, delta {limit[1]:g}) is below the budget in the settings, so it "
            f"ends before {plural(client.rounds, 'round')}: lower epsilon and delta in the settings to it"
        )
    if peers is None:
        return
    if SERVER not in peers:
        yield "the peers file has no line for the server: ask its operator for what tpmdp flower server printed"
    if party.name not in peers:
        yield f"the peers file has no line for {party.name} itself, which all others need: tpmdp key show prints it"
    elif peers[party.name] != client.public_key:
        yield f"the peers file has another key for {party.name}, so others will refuse it: tpmdp key show prints yours"
    clients = len(peers.keys() - {SERVER} | {party.name})
    if client.threshold > clients:
        yield (
            f"the threshold of {client.threshold} is more than the {plural(clients, 'client')} in the peers file: no "
            "plan can have it; add peers, or lower it"
        )


def _expected_noise(client: ClientSettings, others: int | None) -> str:
    """What the client can know of the noise: it depends on the budgets of the others, too."""
    from dataclasses import replace

    from tpmdp.flower.round_terms import Training
    from tpmdp.ledger import rounded_up

    if others is None or client.threshold > others + 1:
        return "the noise in the average depends on the budgets of the others, whom these files do not name"
    alike = [replace(client.round_party, name=f"client-{index}") for index in range(others + 1)]
    noise = rounded_up(Training("check", clip=1.0, entries=1).outlook(alike).noise, 3)
    clients = f"all {others + 1} clients" if others else "the one client"
    return (
        f"if {clients} had this budget and threshold, the noise in each entry of the average would be about {noise} "
        "times the clip; it depends on the budgets of the others, too"
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
