"""Symbols instead of masks: every mask of a run is a unit vector of its own, so a sum shows which masks are in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from tpmdp.protocol.masks import Mask, mask_key, word_type
from tpmdp.protocol.shares import KEEPER_BYTES, mask_seed, secret_of
from tpmdp.protocol.terms import ZERO_BITS

PRIME: Final = 2_147_483_647


class MaskSymbols:
    """The places of a run in vectors of this size; `word` is that of the grid. Masks also cover the zeros behind."""

    def __init__(self, size: int, word: int, statistical: bool) -> None:
        self.size, self.word, self.statistical = size, word, statistical
        self.used = 0
        self.places: dict[bytes, int] = {}  # of the masks that follow from a secret
        self.known_to: dict[int, set[int]] = {}  # the parties that know the mask of a place
        self.of_secret: dict[bytes, set[int]] = {}  # the masks that follow from a keeper's secret
        self._pairs: dict[bytes, tuple[int, int]] = {}
        self._owners: dict[bytes, int] = {}  # of keepers' secrets
        self._keepers = 0

    def unit(self, place: int) -> Mask:
        vector = np.zeros(self.size + ZERO_BITS // self.word, dtype=word_type(self.word))
        vector[place] = 1
        return vector

    def new_place(self) -> int:
        place, self.used = self.used, self.used + 1
        assert self.used <= self.size, "more symbols than places: shorten the run"
        return place

    def _new_mask(self, parties: Iterable[int]) -> int:
        place = self.new_place()
        self.known_to[place] = set(parties)
        return place

    def draw(self, owner: int, other: int) -> bytes:
        """A fresh pad or a self-mask in statistical mode, otherwise the random bytes of a keeper."""
        if self.statistical:
            return self.unit(self._new_mask({owner, other})).tobytes()
        self._keepers += 1
        random = hashlib.shake_256(b"keeper" + self._keepers.to_bytes(4, "big")).digest(KEEPER_BYTES)
        self._owners[secret_of(random)] = owner
        return random

    def mask_seed(self, secret: bytes, context: bytes) -> bytes:
        """In place of `shares.mask_seed`, and the same key: the mask of a keeper."""
        key = mask_seed(secret, context)
        if key not in self.places:
            owner = self._owners.get(secret)
            self.places[key] = self._new_mask(() if owner is None else {owner})
            self.of_secret.setdefault(secret, set()).add(self.places[key])
        return key

    def mask_key(self, agreed: bytes, session: bytes, low: int, *, high: int, context: bytes = b"") -> bytes:
        """In place of `masks.mask_key`, and the same key."""
        key = mask_key(agreed, session, low, high=high, context=context)
        self._pairs[key] = (low, high)
        return key

    def expand(self, key: bytes, length: int, word: int) -> Mask:
        """In place of `masks.expand`."""
        assert (length, word) == (self.size + ZERO_BITS // self.word, self.word)
        if key not in self.places:
            self.places[key] = self._new_mask(self._pairs[key])
        return self.unit(self.places[key])


def computable(rows: Sequence[Sequence[int]], unknown: Iterable[int], wanted: Sequence[int]) -> list[list[int]]:
    """A reduced basis of what can be computed of the wanted places when the unknown ones are eliminated."""
    hidden = [place for place in unknown if any(row[place] for row in rows)]
    columns = [*hidden, *wanted]
    table = [[row[place] % PRIME for place in columns] for row in rows]
    start = 0
    for column in range(len(columns)):
        pivot = next((place for place in range(start, len(table)) if table[place][column]), None)
        if pivot is None:
            continue
        table[start], table[pivot] = table[pivot], table[start]
        inverse = pow(table[start][column], -1, PRIME)
        table[start] = [value * inverse % PRIME for value in table[start]]
        for place, row in enumerate(table):
            if place != start and row[column]:
                factor = row[column]
                table[place] = [(left - factor * right) % PRIME for left, right in zip(row, table[start], strict=True)]
        start += 1
    return [row[len(hidden) :] for row in table if not any(row[: len(hidden)]) and any(row)]
