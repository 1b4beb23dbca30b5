"""An ordinary client: moves the model by its own step, and would tell the server more than it should."""

from __future__ import annotations

import time
from typing import Final

import numpy as np
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from tpmdp.flower import private_mod

HOLD_S: Final = 3600.0
app = ClientApp(mods=[private_mod()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """A node that is configured to `hold-in-round` says so there, and waits to be stopped."""
    own = context.node_config
    if message.content.config_records["config"]["server-round"] == own.get("hold-in-round"):
        print("HOLDING", flush=True)
        time.sleep(HOLD_S)
    step = np.array([float(part) for part in str(own["step"]).split()])
    model = message.content.array_records["arrays"]
    moved = ArrayRecord({name: Array(array.numpy() + step) for name, array in model.items()})
    metrics = MetricRecord({"num-examples": int(own["secret"]), "loss": float(own["secret"])})
    return Message(RecordDict({"arrays": moved, "metrics": metrics}), reply_to=message)
