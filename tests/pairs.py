"""Random small studies on SPU against exact arithmetic: `python -m tests.pairs --studies 1000 --seed 0`.

SPU's processes stay alive from study to study, and the parties of a study share one event loop. What they compute, the
tunnel and the masks are the real ones; only the links between parties are queues in memory. Half of the studies keep
their shares for a sum through a relay; that sum is plain arithmetic here.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp import Study
from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.sharing import ConnectedPeers
from tpmdp.engines.spu.job import MEASURED, SpuJob
from tpmdp.engines.spu.pair_process import PairProcess
from tpmdp.engines.spu.sharing import PairSharing
from tpmdp.errors import TpmdpError
from tpmdp.study.contribution import contribute
from tpmdp.study.shared_job import shared_job

COLUMNS = ("a", "b", "c", "d", "e", "f")


class MemoryLink:
    """One end of a link between two parties of one process."""

    def __init__(self, peer: int) -> None:
        self.peer, self.name = peer, f"party {peer}"
        self.other: MemoryLink | None = None
        self.bytes_sent = 0
        self._stored: dict[int, bytes] = {}
        self._awaited: dict[int, asyncio.Future[bytes]] = {}

    def send(self, label: int, payload: bytes) -> None:
        assert self.other is not None
        self.bytes_sent += len(payload)
        self.other.take(label, payload)

    def take(self, label: int, payload: bytes) -> None:
        assert label not in self._stored, "sent twice"
        if label in self._awaited:
            self._awaited.pop(label).set_result(payload)
        else:
            self._stored[label] = payload

    def receive(self, label: int) -> bytes | asyncio.Future[bytes]:
        if label in self._stored:
            return self._stored.pop(label)
        return self._awaited.setdefault(label, asyncio.get_running_loop().create_future())

    async def drain(self) -> None:
        await asyncio.sleep(0)


def links_of(count: int) -> list[dict[int, MemoryLink]]:
    """The links of every party."""
    links: list[dict[int, MemoryLink]] = [{} for _ in range(count)]
    for i, j in combinations(range(count), 2):
        links[i][j], links[j][i] = MemoryLink(j), MemoryLink(i)
        links[i][j].other, links[j][i].other = links[j][i], links[i][j]
    return links


@dataclass
class Session:
    """What a session of a study computes, and what it was given."""

    job: SpuJob
    values: list[IntArray]
    noises: list[IntArray]

    async def run(self, processes: Sequence[PairProcess]) -> dict[int, list[int]]:
        """Every receiver's result."""
        receivers = np.flatnonzero(self.job.terms.spec.receivers).tolist()
        links = links_of(len(self.values))
        sharings: list[PairSharing] = []

        def fail(error: TpmdpError) -> None:
            raise error

        async def party(index: int) -> list[int] | None:
            sharing = self.job.sharing(index)
            sharing._process = processes[index]
            sharings.append(sharing)
            peers: Any = ConnectedPeers(index, links[index], receivers, fail=fail)  # type: ignore[arg-type]
            self.job.check(index, self.values[index], self.noises[index])
            await sharing.compute(peers, self.values[index], self.noises[index])
            opened = await sharing.output()
            return None if opened is None else list(opened)

        members = self.job.members
        results = await asyncio.gather(*(party(index) for index in members))
        if self.job.function in MEASURED:  # the limit on what a party may send is four times what it sends
            most = max(link.bytes_sent for each in links for link in each.values())
            assert 4 * most <= self.job.stored_max, (most, self.job.stored_max)
        if self.job.attempt:  # each keeps its share, and a masked sum of all vectors follows
            shares = dict(zip(members, results, strict=True))
            vectors = [shares.get(index) or self.noises[index].tolist() for index in range(len(self.values))]
            return dict.fromkeys(receivers, _summed(vectors, self.job.terms.grid.word))
        return {index: result for index, result in enumerate(results) if result is not None}

    def exact(self) -> list[int]:
        """The result in Python's whole numbers, straight from the definition."""
        parameters, dimension = self.job.parameters, self.job.terms.grid.dimension
        total = [sum(int(noise[place]) for noise in self.noises) for place in range(dimension)]
        if self.job.function.endswith(":gram"):
            records, scale = parameters["records"], parameters["scale"]
            given = list(zip(self.values, parameters["local"], strict=True))
            alone = [int(value) for own, count in given for value in own[:count]]
            columns = [
                [[int(value) for value in own[start : start + records]] for start in range(count, len(own), records)]
                for own, count in given
            ]
            products = [
                scale * sum(x * y for x, y in zip(left, right, strict=True))
                for i, j in combinations(range(len(columns)), 2)
                for left in columns[i]
                for right in columns[j]
            ]
            return [a + b for a, b in zip(total, [*alone, *products], strict=True)]
        left, right = ([int(value) for value in own] for own in self.values if len(own))
        if self.job.function.endswith(":maximum"):
            return [noise + max(left[place], right[place]) for place, noise in enumerate(total)]
        records = parameters["shapes"][0][1]
        larger = sum(a > b for a, b in zip(left[:records], right[:records], strict=True))
        return [total[0] + parameters["scale"] * larger]


def _summed(vectors: Sequence[Sequence[int]], word: int) -> list[int]:
    """The sum modulo 2^word, as signed numbers."""
    half = 1 << (word - 1)
    return [(sum(entries) + half) % (1 << word) - half for entries in zip(*vectors, strict=True)]


def session_of(study: Study, tables: Mapping[str, Any], random: np.random.Generator) -> Session:
    """The session of a study, with rounded normal noise as large as its plan's."""
    keys = {party.name: Ed25519PrivateKey.generate().public_key().public_bytes_raw() for party in study.parties}
    study = study.with_keys(keys)
    terms = study.terms()
    job = shared_job(study, terms, int(study.uses_relay))
    assert isinstance(job, SpuJob)
    grid = terms.grid
    values = [contribute(study, terms, party.name, tables.get(party.name, {})).encoded for party in study.parties]
    spreads = terms.sigma / grid.step
    noises = [np.rint(random.normal(0.0, spread, grid.dimension)).astype(np.int64) for spread in spreads]
    return Session(job, values, noises)


KINDS = ("vertical_regression", "vertical_covariance", "joint_table", "maximum", "pair_function")


def random_study(random: np.random.Generator) -> tuple[Study, dict[str, Any]]:
    """Any number of parties from 2 to 6, any threshold, any columns at any of them, and data within bounds."""
    count, records = int(random.integers(2, 7)), int(random.integers(1, 40))
    names = [f"p{place}" for place in range(count)]
    kind = str(random.choice(KINDS, p=(0.5, 0.1, 0.15, 0.1, 0.15)))
    most = count if kind.startswith("vertical") else 2
    holders = sorted(random.choice(count, size=int(random.integers(2, most + 1)), replace=False).tolist())
    columns = COLUMNS[: max(len(holders), int(random.integers(2, len(COLUMNS) + 1)))]
    owners = [*holders, *random.choice(holders, size=len(columns) - len(holders)).tolist()]
    held = {names[owner]: [c for c, other in zip(columns, owners, strict=True) if other == owner] for owner in holders}
    low = [float(random.integers(-5, 5)) for _ in columns]
    bounds = {column: [least, least + float(random.integers(1, 9))] for column, least in zip(columns, low, strict=True)}
    study = Study.parse(
        {
            "name": "random",
            "engine": "spu",
            **({"sum_through": "relay"} if random.random() < 0.5 else {}),
            "threshold": int(random.integers(1, count)),
            "receivers": random.choice(names, size=int(random.integers(1, count + 1)), replace=False).tolist(),
            "delta": 1e-6,
            "parties": [
                {"name": name, "records": records if name in held else 0, "epsilon": float(random.uniform(0.2, 4.0))}
                for name in names
            ],
            "queries": [{"name": "q", "kind": kind, **_keys_of(kind, random, bounds, held=held)}],
        }
    )
    tables = {
        name: {column: random.uniform(bounds[column][0], bounds[column][1], size=records) for column in mine}
        for name, mine in held.items()
    }
    if kind == "maximum":
        tables = {name: {"a": random.uniform(-1, 6, size=records)} for name in held}
    return study, tables


def _keys_of(
    kind: str, random: np.random.Generator, bounds: Mapping[str, list[float]], *, held: Mapping[str, list[str]]
) -> dict[str, Any]:
    """What the study file says of a query of this kind."""
    if kind == "joint_table":
        sides = []
        for party, columns in held.items():
            low, high = bounds[columns[0]]
            edges = np.linspace(low, high, int(random.integers(2, 6))).tolist()
            sides.append({"party": party, "column": columns[0], "edges": edges})
        if random.random() < 0.5:
            sides.reverse()
        return {"rows": sides[0], "columns": sides[1]}
    if kind == "maximum":
        which = [{"kind": "mean", "low": 0, "high": 5}, {"kind": "sum", "low": -1, "high": 3}]
        return {"of": {"column": "a", **which[int(random.integers(2))]}}
    keys: dict[str, Any] = {"bounds": dict(bounds), "held_by": dict(held)}
    if kind == "pair_function":
        keys |= {"function": "tpmdp.engines.spu.functions:count_larger", "sensitivity": 1, "largest": 50}
    return {**keys, "target": "a"} if kind == "vertical_regression" else keys


def check_studies(count: int, seed: int, processes: Sequence[PairProcess]) -> int:
    """Run so many random studies; the number of entries compared. Any difference is an error."""
    random, compared = np.random.default_rng(seed), 0
    for number in range(count):
        study, tables = random_study(random)
        session = session_of(study, tables, random)
        expected = session.exact()
        for receiver, result in asyncio.run(session.run(processes)).items():
            assert result == expected, f"study {number} of seed {seed} at receiver {receiver}"
            compared += len(expected)
    return compared


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    processes = [PairProcess() for _ in range(6)]
    began = time.monotonic()
    try:
        for process in processes:
            process.ready()
        compared = check_studies(chosen.studies, chosen.seed, processes)
    finally:
        for process in processes:
            process.stop()
    seconds = time.monotonic() - began
    print(f"{chosen.studies} studies from seed {chosen.seed}, {compared} entries, no difference; {seconds:.0f} s")


if __name__ == "__main__":
    main()
