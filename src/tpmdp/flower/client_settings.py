"""A client's own side: who it is, its budget, its ledger, and whom it is willing to train with.

All of this comes from a file of the client's own, never from the server:

    name = "hospital"
    key = "hospital.key"          # these three are made by: tpmdp flower client hospital ...
    ledger = "hospital.ledger"    # for this training, by party
    epsilon = 4.0                 # for all rounds together
    delta = 1e-5
    rounds = 20                   # the budget is spread evenly over so many
    threshold = 2                 # so many may collude, the server among them
    peers = "peers.toml"          # names and public keys of the server and all clients; or "any"
"""

from __future__ import annotations

import json
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util import fields as read
from tpmdp._util.budget_rules import EPSILON_MIN
from tpmdp._util.files import check_output, readable, replacing
from tpmdp.errors import FileError, InputError
from tpmdp.flower.rounds import SERVER, Ask, Client, published
from tpmdp.flower.update import bound, diameter
from tpmdp.gaussian.calibration import calibrate, mu_at
from tpmdp.gaussian.composition import epsilon_of
from tpmdp.ledger import Charge, Ledger, OverspendError
from tpmdp.protocol.terms import Terms
from tpmdp.study.identity import check_name, parse_public, public_text, read_key, write_key

ANY: Final = "any"
NODE_KEY: Final = "tpmdp-party"  # in the node configuration of Flower: the path of the client's file
ROUNDS_MAX: Final = 1_000_000
_SIZE_MAX: Final = 1 << 20
_DELTA_LEAST: Final = 1e-200
_LESS: Final = 1 - 1e-9  # so that all rounds fit the whole budget, whatever is rounded up on the way
_REQUIRED: Final = ("name", "key", "ledger", "epsilon", "delta", "rounds", "threshold", "peers")


@dataclass(frozen=True, eq=False, repr=False)
class Own:
    """One client's own settings. `peers` are public keys by name; None takes whomever the server names."""

    name: str
    identity: Ed25519PrivateKey
    ledger: Path
    epsilon: float
    delta: float
    rounds: int
    threshold: int
    peers: Mapping[str, bytes] | None

    def __post_init__(self) -> None:
        check_name("name", self.name)
        if self.name == SERVER:
            raise InputError("name", self.name, "is the server's", "choose another name")
        read.whole("rounds", self.rounds, 1, ROUNDS_MAX)
        read.whole("threshold", self.threshold, 1, ROUNDS_MAX)
        for field in ("epsilon", "delta"):
            object.__setattr__(self, field, read.number(field, getattr(self, field)))
        if self.round_budget[0] < 2 * EPSILON_MIN:
            rule = f"leaves a round less than any plan can have at epsilon {self.epsilon:g}"
            raise InputError("rounds", self.rounds, rule, "take fewer rounds or a larger epsilon")

    def __repr__(self) -> str:
        return f"Own({self.name})"

    @property
    def public_key(self) -> bytes:
        """What others know this client by."""
        return self.identity.public_key().public_bytes_raw()

    @property
    def round_mu(self) -> float:
        """What one round may cost: all of them together cost the whole budget, exactly composed."""
        return _share(self.epsilon, self.delta, self.rounds)[0]

    @property
    def round_budget(self) -> tuple[float, float]:
        """The same as epsilon and delta: at the client's delta, or at a smaller one where that leaves no epsilon."""
        return _share(self.epsilon, self.delta, self.rounds)[1:]

    @property
    def round_epsilon(self) -> float:
        """The epsilon of a round."""
        return self.round_budget[0]

    def client(self) -> Client:
        """What the server may know."""
        return Client(self.name, self.public_key, *self.round_budget, self.threshold)

    def open_ledger(self) -> Ledger:
        """This client's ledger; its owner must be the client."""
        ledger = Ledger.open(self.ledger)
        if ledger.party != self.name:
            ledger.close()
            raise FileError(self.ledger, f"is the ledger of {ledger.party}", f"use that of {self.name}")
        if ledger.unit != "party":
            ledger.close()
            raise FileError(self.ledger, "counts by record", "make one with tpmdp ledger create --unit party")
        limit = ledger.newest(1)[0]
        if limit.limit_epsilon > self.epsilon or limit.limit_delta > self.delta:
            ledger.close()
            problem = f"has a limit above the budget of {self.name}'s settings ({self.epsilon:g}, {self.delta:g})"
            raise FileError(
                self.ledger, problem, "lower it with tpmdp ledger limit, or use a ledger for this training only"
            )
        return ledger

    def is_ready(self, ledger: Ledger) -> bool:
        """Whether the ledger has room for one more round."""
        if math.isinf(self.round_mu):
            return math.isinf(ledger.newest(1)[0].limit_epsilon)
        try:
            ledger.check_room(os.urandom(32), "one more round", Charge(self.round_mu * _LESS, 0.0, 0.0, 0.0))
        except OverspendError:
            return False
        return True

    def check(self, terms: Terms) -> tuple[int, Ask]:
        """This client's place, and what is asked, if it may sign; refuses what its own settings do not allow."""
        if self.public_key not in terms.roster:
            raise InputError("terms", "(roster)", f"do not list the key of {self.name}", "enrol again")
        index = terms.roster.index(self.public_key)
        spec, name, remedy = terms.spec, terms.spec.name(index), "do not take part; ask for a correct plan"
        if name != self.name:
            raise InputError("terms", name, f"name {self.name} otherwise", remedy)
        epsilon, delta = float(spec.epsilon[index]), float(spec.delta[index])
        most = self.round_budget
        if epsilon > most[0] or delta > most[1]:
            rule = f"is more than {self.name} allows in a round ({most[0]:g}, {most[1]:g})"
            raise InputError("budget", f"({epsilon:g}, {delta:g})", rule, remedy)
        colluders = int(np.broadcast_to(spec.threshold, (terms.count,))[index]) - terms.tolerate
        if colluders < self.threshold:
            rule = f"is less than {self.name} asks for ({self.threshold})"
            raise InputError("threshold", colluders, rule, "raise the threshold of the training")
        ask = Ask.parse(terms.query)
        if len(ask.weights) != terms.count:
            raise InputError("weights", len(ask.weights), f"must be {terms.count}, one a party", remedy)
        weight = ask.weights[index]
        if float(spec.sensitivity[index]) < diameter(ask.clip, weight):
            raise InputError("sensitivity", float(spec.sensitivity[index]), "is less than clipped updates have", remedy)
        if float(terms.bounds[index]) < bound(ask.clip, weight, ask.counted):
            raise InputError("bound", float(terms.bounds[index]), "is less than clipped updates reach", remedy)
        self._check_peers(terms)
        published(terms).check(index)
        return index, ask

    def _check_peers(self, terms: Terms) -> None:
        if self.peers is None:
            return
        for index, key in enumerate(terms.roster):
            name = terms.spec.name(index)
            if key != self.public_key and self.peers.get(name) != key:
                rule = f"is not a peer of {self.name} with this public key"
                raise InputError("roster", name, rule, "list it in all peers files, or keep it out")


@lru_cache(maxsize=64)
def _share(epsilon: float, delta: float, rounds: int) -> tuple[float, float, float]:
    """A round's part of a budget: its mu, and that as epsilon and delta. Computed once: it takes milliseconds."""
    sigma = calibrate(epsilon, delta)
    if math.isinf(epsilon):
        return math.inf, math.inf, delta
    mu = float(mu_at(sigma)) / math.sqrt(rounds)
    while (share := float(epsilon_of(mu, delta)) * _LESS) < mu and delta > _DELTA_LEAST:
        delta /= 10
    return mu, share, delta


def read_own(path: Path) -> Own:
    """A client's settings from its file; paths in it are relative to its folder.

    >>> read_own(Path("no.toml"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no.toml does not exist: check the path
    """
    table, folder = _read(path), path.parent
    read.check_keys(str(path), table, _REQUIRED, ())
    for field in ("key", "ledger", "peers"):
        read.title(field, table[field])
    peers = None if table["peers"] == ANY else read_peers(folder / table["peers"])
    identity = read_key(folder / table["key"])
    fields = {field: table[field] for field in ("name", "epsilon", "delta", "rounds", "threshold")}
    return Own(identity=identity, ledger=folder / table["ledger"], peers=peers, **fields)


def write_own(
    folder: Path, name: str, epsilon: float, delta: float, rounds: int, threshold: int, peers: str = "peers.toml"
) -> str:
    """Make a client's key, ledger and settings in a folder; gives its line for the peers file. Replaces nothing.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     line = write_own(Path(folder), "hospital", 4.0, 1e-5, rounds=20, threshold=2, peers="any")
    ...     own = read_own(Path(folder) / "hospital.toml")
    >>> line[:19], own, round(own.round_epsilon, 4)
    ('hospital = "ed25519', Own(hospital), 0.7526)
    """
    identity = Ed25519PrivateKey.generate()
    key, ledger, settings = (folder / f"{check_name('name', name)}.{kind}" for kind in ("key", "ledger", "toml"))
    own = Own(name, identity, ledger, epsilon, delta, rounds, threshold, None)
    read.title("peers", peers)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in (key, ledger, settings):
        check_output(path)
        if path.exists():
            raise FileError(path, "exists already", "choose another name or folder")
    write_key(key, identity)
    Ledger.create(ledger, name, own.epsilon, own.delta, "party").close()
    lines = [
        f'name = "{name}"',
        f'key = "{key.name}"',
        f'ledger = "{ledger.name}"',
        f"epsilon = {own.epsilon!r}",
        f"delta = {own.delta!r}",
        f"rounds = {rounds}",
        f"threshold = {threshold}",
        f"peers = {json.dumps(peers)}",
    ]
    with replacing(settings) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f'{name} = "{public_text(identity)}"'


def read_peers(path: Path) -> dict[str, bytes]:
    """Public keys by name, as `tpmdp flower client` and `server` print them, one a line.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "peers.toml").write_text(f'server = "ed25519:{"A" * 43}="')
    ...     read_peers(Path(folder) / "peers.toml") == {"server": bytes(32)}
    True
    """
    return dict(_peers_in(path, path.stat().st_mtime_ns if path.exists() else 0))


@lru_cache(maxsize=8)
def _peers_in(path: Path, changed: int) -> dict[str, bytes]:
    """Read once as long as the file does not change: a client does so with every message."""
    del changed
    table = _read(path)
    return {check_name("peer", name): parse_public(f"{name} in {path}", text) for name, text in table.items()}


def _read(path: Path) -> dict[str, Any]:
    with readable(path, _SIZE_MAX):
        try:
            return tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FileError(path, f"is not TOML ({error})", "correct it") from None
