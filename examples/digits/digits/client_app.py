"""The client: an ordinary Flower app; `private_mod` in front of it is all that makes it private."""

from __future__ import annotations

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable, Mod

from digits.task import Ints, deal, digits, train
from tpmdp.flower import private_mod


def failing_clients(clients: int, count: int, number: int) -> Ints:
    """Which clients fail in a round: so many in every fourth one, from the second on."""
    return np.random.default_rng([number, 13]).choice(clients, count if number % 4 == 2 else 0, replace=False)


def failing_mod(failing: int) -> Mod:
    """Nodes that vanish before they train, so many in every fourth round: to try out what happens."""

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if "arrays" in message.content:
            client, clients = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
            number = int(message.content.config_records["config"]["server-round"])  # type: ignore[arg-type]
            if client in failing_clients(clients, failing, number):
                raise RuntimeError(f"node {client} fails in round {number}, as told")
        return call_next(message, context)

    return mod


def client_app(*mods: Mod) -> ClientApp:
    """A client behind mods."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train_here(message: Message, context: Context) -> Message:
        client, clients = (int(context.node_config[key]) for key in ("partition-id", "num-partitions"))
        model = message.content.array_records["arrays"]["model"].numpy()
        own = deal(clients)[client]
        made = train(model, digits().x[own], digits().y[own])
        content = RecordDict(
            {"arrays": ArrayRecord({"model": Array(made)}), "metrics": MetricRecord({"num-examples": len(own)})}
        )
        return Message(content, reply_to=message)

    return app


app = client_app(private_mod())  # its settings: the file that the node configuration names as tpmdp-party
