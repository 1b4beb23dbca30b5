"""Digits learnt by 100 clients with three kinds of privacy budgets: TPMDP beside TMDP, local DP and no privacy.

Each training runs once in Flower's simulation, with the real protocol and real ledgers, and many times in numpy for
error bands. Writes a table, digits.png, results.json and Flower's logs.

    python examples/digits/compare.py --out out/digits
    python examples/digits/compare.py --out out/small --clients 20 --rounds 3 --seeds 2 --methods balanced,none
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import cast

os.environ.update(FLWR_TELEMETRY_ENABLED="0", FLWR_DISABLE_UPDATE_CHECK="1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # the matrices are small

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from digits.client_app import client_app, failing_mod
from digits.server_app import evaluate, first_arrays
from flwr.app import ArrayRecord, Context, Message, MetricRecord
from flwr.clientapp.mod import LocalDpMod
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from in_process import NOISE, Settings, Variant, accuracies, alone, variants
from picture import Line, draw
from rich.console import Console
from rich.table import Table

from tpmdp.flower import PrivateStrategy, private_mod, run_private_simulation, simulated_clients
from tpmdp.ledger import Ledger
from tpmdp.spec import Party

CPUS = 2
HANG_S = 600.0  # a simulated node always answers, but Ray's workers may take minutes to start on a busy machine
NAMES = {
    "balanced": "TPMDP, balanced weights",
    "equal": "TPMDP, equal weights",
    "tmdp": "TMDP",
    "local": "Flower's local DP",
    "none": "no privacy",
}
DEFAULT = "balanced,tmdp,local,none"
Say = Callable[[str], None]


@dataclass
class Training:
    """One training in Flower: accuracy after every round (the first is of the model it starts with)."""

    accuracy: list[float] = field(default_factory=list)
    seconds: float = 0.0
    clients: list[int] = field(default_factory=list)  # counted in a round, of private ones
    noise: list[float] = field(default_factory=list)  # in each entry of a round's average
    spent: dict[str, float] = field(default_factory=dict)  # the most epsilon in a ledger, by budget


def train_in_flower(method: str, settings: Settings, folder: Path, say: Say) -> Training:
    """One training, from Ray's start to its end."""
    done, start = Training(), time.monotonic()
    is_private = method in ("balanced", "equal", "tmdp")
    budgets = settings.budgets if method != "tmdp" else np.full(settings.clients, settings.budgets.min())
    strategy: PrivateStrategy | FedAvg
    if is_private:
        key = Ed25519PrivateKey.generate()
        parties = [
            Party(f"client-{client}", float(epsilon), settings.delta, threshold=settings.threshold)
            for client, epsilon in enumerate(budgets)
        ]
        mod = private_mod(simulated_clients(folder, parties, settings.rounds, server=key))
        strategy = PrivateStrategy(
            name="digits",
            clip=settings.clip,
            threshold=settings.threshold,
            tolerate=settings.tolerate,
            weighting="balanced" if method == "balanced" else "equal",
            clients_least=settings.clients - 2 * settings.tolerate,
            patience_s=HANG_S,
            key=key,
        )
    else:
        mod = local_dp(settings, is_private=method == "local")
        strategy = FedAvg(fraction_evaluate=0.0, min_train_nodes=settings.clients, min_available_nodes=settings.clients)

    def follow(number: int, arrays: ArrayRecord) -> MetricRecord:
        found = evaluate(number, arrays)
        done.accuracy.append(float(cast(float, found["accuracy"])))
        say(f"{NAMES[method]}: round {number}/{settings.rounds}, accuracy {done.accuracy[-1]:.3f}")
        return found

    server = ServerApp()

    @server.main()
    def main(grid: Grid, context: Context) -> None:
        del context
        while len(list(grid.get_node_ids())) < settings.clients:
            time.sleep(0.1)
        strategy.start(grid, first_arrays(), settings.rounds, evaluate_fn=follow)

    app = client_app(failing_mod(settings.failing), mod)  # before ours: these nodes fail whatever the mod does
    run_private_simulation(server, app, settings.clients, cpus=CPUS)  # only its own processes reach it
    if len(done.accuracy) != settings.rounds + 1:
        raise RuntimeError(f"{NAMES[method]} ended after {len(done.accuracy) - 1} of {settings.rounds} rounds")
    if isinstance(strategy, PrivateStrategy):
        done.clients = [report.clients for report in strategy.reports]
        done.noise = [report.noise for report in strategy.reports]
        done.spent = most_spent(folder, budgets.tolist())
    done.seconds = time.monotonic() - start
    return done


def local_dp(settings: Settings, is_private: bool) -> Mod:
    """Flower's own mod, for each client with its own budget for a round; without noise it only clips."""
    epsilons, width = settings.round_budgets, 2 * settings.clip if is_private else 0.0

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        epsilon = float(epsilons[int(context.node_config["partition-id"])])
        return LocalDpMod(settings.clip, width, epsilon, settings.delta)(message, context, call_next)

    return mod


def most_spent(folder: Path, budgets: list[float]) -> dict[str, float]:
    """What the clients' own ledgers say after the training: the most that any client of a kind has spent."""
    most: dict[str, float] = {}
    for client, budget in enumerate(budgets):
        with Ledger.open(folder / f"client-{client}.ledger") as ledger:
            most[f"{budget:g}"] = max(most.get(f"{budget:g}", 0.0), ledger.spent().epsilon)
    return most


# What is shown ------------------------------------------------------------------------------------------------------


def assumption(method: str, settings: Settings) -> str:
    """What each client has to believe."""
    if method == "local":
        return "nobody else is trusted"
    if method == "none":
        return "everybody is trusted"
    return f"any {settings.threshold} may collude, server and clients"


def show(lines: list[Line], settings: Settings, seeds: int, own: float, rests: list[Variant]) -> None:
    """The tables on the terminal."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table(title=f"{settings.clients} clients, {settings.rounds} rounds", title_justify="left", box=None)
    table.add_column("method")
    for heading in ("accuracy\nin Flower", f"mean of\n{seeds} seeds", "90 % of\nseeds", "noise in each\nentry"):
        table.add_column(heading, justify="right")
    table.add_column("where")
    for line in lines:
        low, high = (float(edge[-1]) for edge in line.band)
        row = f"{line.flower[-1]:.3f}", f"{line.mean[-1]:.3f}", f"{low:.3f}-{high:.3f}", f"{line.noise:.3f}"
        table.add_row(line.name, *row, line.assumes)
    console.print(table)
    console.print(f"A client that trains alone on its own images, without noise: {own:.3f} on average.\n")
    table = Table(title=f"What this rests on: mean accuracy of {seeds} seeds, in numpy", title_justify="left", box=None)
    table.add_column("if")
    for heading in (
        "TPMDP\nbalanced",
        "its digits\n0-4",
        "its digits\n5-9",
        "two\nlevels",
        "strict\nleft out",
        "TMDP",
        "no\nprivacy",
    ):
        table.add_column(heading, justify="right")
    for rest in rests:
        weighted = rest.balanced, rest.small_digits, rest.large_digits, rest.two_levels, rest.one_budget
        values = *weighted, rest.tmdp, rest.none
        table.add_row(rest.what, *(f"{value:.3f}" for value in values))
    console.print(table)


@contextmanager
def quiet(log: Path) -> Iterator[Say]:
    """Everything that Flower and Ray write goes to a file; yields what still writes to the terminal."""
    sys.stdout.flush()
    sys.stderr.flush()
    saved = os.dup(1), os.dup(2)
    terminal = os.fdopen(os.dup(2), "w")
    is_terminal = terminal.isatty()

    def say(text: str) -> None:
        terminal.write(f"\r\x1b[K{text}" if is_terminal else f"{text}\n")
        terminal.flush()

    with log.open("wb") as file, terminal:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
        try:
            yield say
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, kept in enumerate(saved, start=1):
                os.dup2(kept, number)
                os.close(kept)
            if is_terminal:
                terminal.write("\r\x1b[K")


# The command --------------------------------------------------------------------------------------------------------


def between(low: int, high: int) -> Callable[[str], int]:
    """A whole number for argparse."""

    def read(text: str) -> int:
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {low} to {high}")
        return int(text)

    return read


def methods(text: str) -> list[str]:
    """Names of methods for argparse."""
    found = [name for name in NAMES if name in text.split(",")]
    if set(found) != set(text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} must be some of {','.join(NAMES)}")
    return found


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare trainings of digits with personal privacy budgets.")
    parser.add_argument("--out", type=Path, required=True, help="folder for digits.png, results.json and Flower's logs")
    parser.add_argument("--clients", type=between(10, 500), default=100, help="default: 100")
    parser.add_argument("--rounds", type=between(1, 100), default=20, help="default: 20")
    parser.add_argument("--seeds", type=between(2, 1000), default=20, help="trainings in numpy, default: 20")
    parser.add_argument("--methods", type=methods, default=DEFAULT, help=f"some of {','.join(NAMES)}; {DEFAULT}")
    arguments = parser.parse_args()
    try:
        arguments.out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        parser.error(f"--out {arguments.out}: {error.strerror}")
    return arguments


def main() -> None:
    arguments = read_arguments()
    settings, seeds, out = Settings(clients=arguments.clients, rounds=arguments.rounds), arguments.seeds, arguments.out
    start = time.monotonic()
    trainings, lines = {}, []
    noises = {method: NOISE[method](settings) for method in NAMES}
    names = dict(NAMES)
    if abs(noises["equal"].of_average / noises["tmdp"].of_average - 1) < 1e-6 and "equal" not in arguments.methods:
        names["tmdp"] = "TMDP, or TPMDP with equal weights"  # the same noise
    for method in arguments.methods:
        log = out / f"flower-{method}.log"
        try:
            with tempfile.TemporaryDirectory(prefix="clients-", dir=out) as folder, quiet(log) as say:
                say(f"{NAMES[method]}: {settings.clients} clients start in Flower")
                done = trainings[method] = train_in_flower(method, settings, Path(folder), say)
        except Exception as error:
            sys.exit(f"{NAMES[method]} failed in Flower: {error} (see {log})")
        found = accuracies(settings, noises[method], seeds)
        band = np.quantile(found, [0.05, 0.95], axis=0)
        noise = float(np.mean(done.noise)) if done.noise else noises[method].of_average
        lines.append(
            Line(names[method], done.accuracy[1:], found.mean(axis=0), band, noise, assumption(method, settings))
        )
        print(f"{NAMES[method]}: trained in Flower in {done.seconds:.0f} s", file=sys.stderr)
    print(f"what the result rests on: {seeds} seeds in numpy", file=sys.stderr)
    own, rests = alone(settings, seeds), variants(settings, seeds)
    title = ", ".join(
        f"{count} with ε = {epsilon:g}" for count, epsilon in zip(settings.kinds, settings.epsilons, strict=True)
    )
    draw(lines, own, seeds, f"Digits learnt by {settings.clients} clients: {title}", out / "digits.png")
    show(lines, settings, seeds, own, rests)
    result = {
        "settings": {**asdict(settings), "threshold": settings.threshold, "tolerate": settings.tolerate},
        "weights": {name: sorted({round(float(w), 4) for w in noise.weights}) for name, noise in noises.items()},
        "flower": {method: asdict(done) for method, done in trainings.items()},
        "in_process": [{"name": line.name, "mean": line.mean.tolist(), "band": line.band.tolist()} for line in lines],
        "noise": {method: noise.of_average for method, noise in noises.items()},
        "alone": own,
        "rests_on": [asdict(rest) for rest in rests],
        "seconds": time.monotonic() - start,
    }
    (out / "results.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print(f"{out / 'digits.png'} and {out / 'results.json'} in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr, flush=True)
        os._exit(130)  # Flower's server thread would still wait for its clients
