"""Parties of which two, the holders, compute together before the sum; what they compute is made up here."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tests.protocol.sessions import World
from tpmdp.protocol.masks import Mask, to_words
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.vectors import Vector

HOLDERS = frozenset({1, 2})


class CutError(Exception):
    """The process of a holder ends in the middle of what it computes."""


class HolderShares:
    """What the holders compute: fresh shares for every attempt, which add up to the holders' vectors."""

    def __init__(self, world: World, seed: int = 0) -> None:
        self.world, self._random = world, np.random.default_rng(seed)
        self._made: dict[int, dict[int, Mask]] = {}

    def of(self, attempt: int) -> dict[int, Mask]:
        if attempt not in self._made:
            word, last = self.world.terms.grid.word, max(HOLDERS)
            total = sum(self.world.inputs[holder] for holder in HOLDERS)
            drawn = {holder: self._random.integers(-(1 << 31), 1 << 31, len(total)) for holder in HOLDERS - {last}}
            rest = total - sum(drawn.values())
            self._made[attempt] = {holder: to_words(each, word) for holder, each in {**drawn, last: rest}.items()}
        return self._made[attempt]


class Step:
    """One party's part; `disk` outlives its process."""

    holders = HOLDERS

    def __init__(self, shares: HolderShares, index: int, disk: dict[str, int], dies: bool = False) -> None:
        self._shares, self._index, self.disk, self._dies = shares, index, disk, dies
        self.computed: list[int] = []

    def compute(self, attempt: int, is_news: Callable[[], bool]) -> bool:
        if is_news():
            return False
        if f"share {attempt}" in self.disk:
            return True
        assert f"begun {attempt}" not in self.disk
        self.disk[f"begun {attempt}"] = 1
        if self._dies:
            raise CutError
        self.computed.append(attempt)
        self.disk[f"share {attempt}"] = 1
        return True

    def share(self, attempt: int) -> Mask:
        assert self.disk.setdefault("submitted", attempt) == attempt
        return self._shares.of(attempt)[self._index]


class Stage:
    """Parties of a world with 4 parties, of which two are holders."""

    def __init__(self, receivers: object = "all") -> None:
        self.world = World(4, 1, receivers)
        self.shares = HolderShares(self.world)
        self.disks: list[dict[str, int]] = [{} for _ in range(4)]
        self.steps: dict[int, Step] = {}

    def party(self, index: int, attempt: int = 1, dies: bool = False) -> PartySession:
        step = self.steps[index] = Step(self.shares, index, self.disks[index], dies)
        vector: Vector = self._refused if index in HOLDERS else lambda *_: self.world.vectors[index]
        identity, secrets = self.world.identities[index], self.world.secrets[index]
        return PartySession(self.world.terms, index, identity, vector, secrets, attempt, pairs=step)

    def parties(self) -> list[PartySession]:
        return [self.party(index) for index in range(4)]

    @staticmethod
    def _refused(_attempt: int, _members: frozenset[int]) -> Mask:
        raise AssertionError("a holder's vector is in its share")
