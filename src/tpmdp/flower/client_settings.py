"""The settings of a client: its name, budget and ledger, and the parties that it trains with.

They come from a file of the client, never from the server:

    name = "hospital"
    key = "hospital.key"          # these three are made by: tpmdp flower client hospital ...
    ledger = "hospital.ledger"    # for this training, by party
    epsilon = 4.0                 # for all rounds together
    delta = 1e-5
    rounds = 20                   # over which the budget is spread evenly
    threshold = 2                 # how many may collude, the server among them
    peers = "peers.toml"          # names and public keys of the server and all clients; or "any"
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util import fields as read
from tpmdp._util.budget_rules import EPSILON_MIN
from tpmdp._util.files import check_output, replacing
from tpmdp.errors import FileError, InputError, shown
from tpmdp.flower.round_terms import SERVER, Ask, published
from tpmdp.flower.update import bound, diameter
from tpmdp.gaussian.calibration import calibrate, mu_at
from tpmdp.gaussian.composition import epsilon_of
from tpmdp.ledger import Charge, Ledger, OverspendError, SessionKey
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party
from tpmdp.study.identity import check_name, read_key, write_key
from tpmdp.study.peers import first_stranger, peer_line, read_peers

ANY: Final = "any"
NODE_KEY: Final = "tpmdp-party"  # in the node configuration of Flower: the path of the client's file
ROUNDS_MAX: Final = 1_000_000
_SIZE_MAX: Final = 1 << 20
_DELTA_LEAST: Final = 1e-200
_LESS: Final = 1 - 1e-9  # so that all rounds fit the whole budget, whatever is rounded up on the way
_REQUIRED: Final = ("name", "key", "ledger", "epsilon", "delta", "rounds", "threshold", "peers")


@dataclass(frozen=True, eq=False, repr=False)
class ClientSettings:
    """The settings of a client. `party` has the budget for all rounds and the client's threshold.

    `peers` are public keys by name; None accepts all parties that the server names.
    """

    party: Party
    identity: Ed25519PrivateKey
    ledger: Path
    rounds: int
    peers: Mapping[str, bytes] | None

    def __post_init__(self) -> None:
        party = self.party
        check_name("name", party.name)
        if party.name == SERVER:
            raise InputError("name", party.name, "is the server's", "choose another name")
        read.whole("rounds", self.rounds, 1, high=ROUNDS_MAX)
        read.whole("threshold", party.threshold, 1, high=ROUNDS_MAX)
        epsilon, delta = read.number("epsilon", party.epsilon), read.number("delta", party.delta)
        key = self.identity.public_key().public_bytes_raw()
        object.__setattr__(self, "party", replace(party, epsilon=epsilon, delta=delta, public_key=key))
        if self.round_party.epsilon < 2 * EPSILON_MIN:
            rule = f"leaves a round less than any plan can have at epsilon {epsilon:g}"
            raise InputError("rounds", self.rounds, rule, "take fewer rounds or a larger epsilon")

    def __repr__(self) -> str:
        return f"ClientSettings({self.name})"

    @property
    def name(self) -> str:
        """The client's name."""
        return self.party.name

    @property
    def public_key(self) -> bytes:
        """The key by which others know this client."""
        return self.identity.public_key().public_bytes_raw()

    @property
    def threshold(self) -> int:
        """How many may collude against this client, the server among them."""
        assert self.party.threshold is not None
        return self.party.threshold

    @property
    def round_mu(self) -> float:
        """What one round may cost: all rounds together cost the whole budget, exactly composed."""
        return _share(self.party.epsilon, self.party.delta, self.rounds)[0]

    @property
    def round_party(self) -> Party:
        """What the server may know: the client with its budget for one round.

        The budget is at the client's delta, or at a smaller one where that leaves no epsilon.
        """
        _, epsilon, delta = _share(self.party.epsilon, self.party.delta, self.rounds)
        return replace(self.party, epsilon=epsilon, delta=delta)

    def open_ledger(self) -> Ledger:
        """Open this client's ledger, which belongs to the client's key from its first use on."""
        ledger = Ledger.open(self.ledger)
        try:
            self._check_ledger(ledger)
            ledger.bind(self.public_key)
        except BaseException:
            ledger.close()
            raise
        return ledger

    def _check_ledger(self, ledger: Ledger) -> None:
        if ledger.party != self.name:
            raise FileError(self.ledger, f"is the ledger of {ledger.party}", f"use that of {self.name}")
        if ledger.unit != "party":
            raise FileError(self.ledger, "counts by record", "make one with tpmdp ledger create --unit party")
        epsilon, delta = ledger.limit("party")
        if epsilon > self.party.epsilon or delta > self.party.delta:
            budget = f"({self.party.epsilon:g}, {self.party.delta:g})"
            problem = f"has a limit above the budget of {self.name}'s settings {budget}"
            remedy = "lower it with tpmdp ledger limit, or use a ledger for this training only"
            raise FileError(self.ledger, problem, remedy)

    def is_ready(self, ledger: Ledger) -> bool:
        """Whether the ledger has room for one more round."""
        if math.isinf(self.round_mu):
            return math.isinf(ledger.limit("party")[0])
        try:
            key = SessionKey(os.urandom(32), os.urandom(32))
            charge = Charge(self.round_mu * _LESS, 0.0, 0.0, delta=0.0)
            ledger.check_room(key, "one more round", charge, unit="party")
        except OverspendError:
            return False
        return True

    def check(self, terms: Terms) -> tuple[int, Ask]:
        """The client's place in the terms, and what they ask. Refuses terms that these settings do not allow."""
        if self.public_key not in terms.roster:
            raise InputError("terms", "(roster)", f"do not list the key of {self.name}", "enrol again")
        index = terms.roster.index(self.public_key)
        spec, name, remedy = terms.spec, terms.spec.name(index), "do not take part; ask for a correct plan"
        if name != self.name:
            raise InputError("terms", name, f"name {self.name} otherwise", remedy)
        epsilon, delta = float(spec.epsilon[index]), float(spec.delta[index])
        allowed = self.round_party
        if epsilon > allowed.epsilon or delta > allowed.delta:
            rule = f"is more than {self.name} allows in a round ({allowed.epsilon:g}, {allowed.delta:g})"
            raise InputError("budget", f"({epsilon:g}, {delta:g})", rule, remedy)
        colluders = int(np.broadcast_to(spec.threshold, (terms.count,))[index])
        if colluders < self.threshold:
            rule = f"is less than {self.name} asks for ({self.threshold})"
            raise InputError("threshold", colluders, rule, "raise the threshold of the training")
        ask = Ask.parse(terms.query)
        if len(ask.weights) != terms.count:
            raise InputError("weights", len(ask.weights), f"must be {terms.count}, one per party", remedy)
        weight = ask.weights[index]
        if float(spec.sensitivity[index]) < diameter(ask.clip, weight):
            raise InputError("sensitivity", float(spec.sensitivity[index]), "is less than clipped updates have", remedy)
        if float(terms.bounds[index]) < bound(ask.clip, weight, ask.counted):
            raise InputError("bound", float(terms.bounds[index]), "is less than clipped updates reach", remedy)
        if not terms.public:
            rule = "must say that everybody gets the model, and with it the sum"
            raise InputError("terms", "(receivers)", rule, "use a server with the same tpmdp")
        self._check_peers(terms)
        published(terms).check(index)
        return index, ask

    def _check_peers(self, terms: Terms) -> None:
        if self.peers is None:
            return
        stranger = first_stranger(terms, self.public_key, self.peers)
        if stranger is not None:
            rule = f"is not a peer of {self.name} with this public key"
            raise InputError("roster", terms.spec.name(stranger), rule, "list it in all peers files, or keep it out")


@lru_cache(maxsize=64)
def _share(epsilon: float, delta: float, rounds: int) -> tuple[float, float, float]:
    """A round's share of a budget: its mu, and that as epsilon and delta. Cached: it takes milliseconds."""
    sigma = calibrate(epsilon, delta)
    if math.isinf(epsilon):
        return math.inf, math.inf, delta
    mu = float(mu_at(sigma)) / math.sqrt(rounds)
    while (share := float(epsilon_of(mu, delta)) * _LESS) < mu and delta > _DELTA_LEAST:
        delta /= 10
    return mu, share, delta


def read_settings(path: Path) -> ClientSettings:
    """Read a client's settings from its file; paths in it are relative to its folder.

    >>> read_settings(Path("no.toml"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no.toml does not exist: check the path
    """
    table, folder = read.read_toml(path, _SIZE_MAX), path.parent
    read.check_keys(str(path), table, _REQUIRED, optional=())
    for field in ("key", "ledger", "peers"):
        read.title(field, table[field])
    peers = None if table["peers"] == ANY else _known_peers(folder / table["peers"], folder / table["key"])
    party = Party(table["name"], table["epsilon"], table["delta"], threshold=table["threshold"])
    identity = read_key(folder / table["key"])
    return ClientSettings(party, identity, folder / table["ledger"], rounds=table["rounds"], peers=peers)


def _known_peers(path: Path, key: Path) -> dict[str, bytes]:
    if not os.path.lexists(path):
        remedy = (
            "make it of the lines that tpmdp flower server and tpmdp flower client printed, one for the server and "
            f"one for each client (tpmdp key show {shown(str(key), 300)} prints yours again), and give it to all; or "
            f'write peers = "{ANY}", which trusts the server not to invent clients'
        )
        raise FileError(path, "does not exist", remedy)
    return read_peers(path)


def write_settings(folder: Path, party: Party, rounds: int, peers: str = "peers.toml") -> str:
    """Write a client's key, ledger and settings to a folder; gives its line for the peers file. Replaces nothing.

    `party` has the budget for all rounds and a threshold.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     party = Party("hospital", 4.0, 1e-5, threshold=2)
    ...     line = write_settings(Path(folder), party, rounds=20, peers="any")
    ...     settings = read_settings(Path(folder) / "hospital.toml")
    >>> line[:19], settings, round(settings.round_party.epsilon, 4)
    ('hospital = "ed25519', ClientSettings(hospital), 0.7526)
    """
    identity, name = Ed25519PrivateKey.generate(), check_name("name", party.name)
    key, ledger, path = (folder / f"{name}.{suffix}" for suffix in ("key", "ledger", "toml"))
    party = ClientSettings(party, identity, ledger, rounds=rounds, peers=None).party  # checked
    read.title("peers", peers)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for output in (key, ledger, path):
        check_output(output)
        if output.exists():
            raise FileError(output, "exists already", "choose another name or folder")
    write_key(key, identity)
    with Ledger.create(ledger, name, party.epsilon, delta=party.delta, unit="party") as created:
        created.bind(identity.public_key().public_bytes_raw())
    lines = [
        f'name = "{name}"',
        f'key = "{key.name}"',
        f'ledger = "{ledger.name}"',
        f"epsilon = {party.epsilon!r}",
        f"delta = {party.delta!r}",
        f"rounds = {rounds}",
        f"threshold = {party.threshold}",
        f"peers = {json.dumps(peers)}",
    ]
    with replacing(path) as temporary:
        temporary.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return peer_line(name, identity.public_key().public_bytes_raw())
