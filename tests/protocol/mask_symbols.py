"""Symbols instead of masks: every mask of a run is a unit vector of its own, so a sum shows which masks are in it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from tpmdp.protocol.masks import Mask, mask_key, word_type


class MaskSymbols:
    """The places of a run in vectors of this size; `word` is that of the grid."""

    def __init__(self, size: int, word: int, statistical: bool) -> None:
        self.size, self.word, self.statistical = size, word, statistical
        self.used = 0
        self.places: dict[bytes, int] = {}  # of the masks that follow from a secret
        self.known_to: dict[int, set[int]] = {}  # the parties that know the mask of a place
        self._pairs: dict[bytes, tuple[int, int]] = {}

    def unit(self, place: int) -> Mask:
        vector = np.zeros(self.size, dtype=word_type(self.word))
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
        """A fresh pad or a self-mask in statistical mode, otherwise the seed of a self-mask."""
        place = self._new_mask({owner, other})
        if self.statistical:
            return self.unit(place).tobytes()
        seed = hashlib.sha256(b"self-mask" + place.to_bytes(4, "big")).digest()
        self.places[seed] = place
        return seed

    def mask_key(self, *keys: Any, **pair: Any) -> bytes:
        """In place of `masks.mask_key`, and the same key."""
        key = mask_key(*keys, **pair)
        self._pairs[key] = (pair["low"], pair["high"])
        return key

    def expand(self, key: bytes, length: int, word: int) -> Mask:
        """In place of `masks.expand`."""
        assert (length, word) == (self.size, self.word)
        if key not in self.places:
            self.places[key] = self._new_mask(self._pairs[key])
        return self.unit(self.places[key])
