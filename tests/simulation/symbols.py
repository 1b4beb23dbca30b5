"""Symbols instead of numbers: every statistic, draw of noise and mask is a unit vector of its own.

What a party submits then shows which of them went into it. All is linear, and masks between honest parties are uniform
and unknown. So a coalition can compute those combinations of what it has in which no unknown mask is left, and no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pytest

from tests.protocol.mask_symbols import MaskSymbols
from tpmdp._util.arrays import IntArray
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.protocol import attempt as attempt_module
from tpmdp.protocol.masks import Mask, to_words
from tpmdp.protocol.terms import Terms
from tpmdp.study import session as session_module

PLACES: Final = 600


class Symbols(MaskSymbols):
    """The places of a run: statistics and draws of noise beside the masks."""

    def __init__(self, word: int, statistical: bool) -> None:
        super().__init__(PLACES, word, statistical)
        self.statistics: dict[int, int] = {}  # by party
        self.noise: dict[int, list[int]] = {}  # by party, a place for each draw
        self.drawn_for: dict[int, frozenset[int]] = {}  # the group that a draw is for

    def statistic(self, party: int) -> IntArray:
        """The same in every session, plan and process: the party's data are what they are."""
        if party not in self.statistics:
            self.statistics[party] = self.new_place()
        vector = np.zeros(PLACES, dtype=np.int64)
        vector[self.statistics[party]] = 1
        return vector

    def noisy_vector(
        self, terms: Terms, index: int, encoded: IntArray, source: Any, members: Iterable[int] | None = None
    ) -> Mask:
        """In place of `vectors.noisy_vector`: fresh noise, which is a new symbol."""
        del source
        place = self.new_place()
        self.noise.setdefault(index, []).append(place)
        self.drawn_for[place] = frozenset(range(terms.count) if members is None else members)
        return to_words(encoded, self.word) + self.unit(place)[:PLACES]

    def signed(self, words: Mask) -> list[int]:
        half = 1 << (self.word - 1)
        return [(int(value) + half) % (2 * half) - half for value in words]

    def in_use(self) -> Any:
        """Let the parties work with these symbols."""
        return _patched(self)


@contextmanager
def _patched(symbols: Symbols) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attempt_module, "mask_key", symbols.mask_key)
        patch.setattr(attempt_module, "expand", symbols.expand)
        patch.setattr(attempt_module, "mask_seed", symbols.mask_seed)
        patch.setattr(session_module, "noisy_vector", symbols.noisy_vector)
        yield


class SymbolSecrets(LedgerSecrets):
    """Secrets in the real ledger; pads and self-masks are symbols, and keys can be found again by the simulation."""

    def __init__(self, *arguments: Any, symbols: Symbols, index: int) -> None:
        super().__init__(*arguments)
        self._symbols, self._index = symbols, index

    def key(self, attempt: int) -> bytes:
        """The same whenever a schedule is played: who keeps an attempt closed follows from all keys."""
        with pytest.MonkeyPatch.context() as patch:
            place = bytes([self._index, attempt])
            patch.setattr("os.urandom", lambda size: hashlib.shake_256(b"key" + place).digest(size))
            return super().key(attempt)

    def pad(self, attempt: int, other: int, size: int) -> bytes:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("os.urandom", lambda _: self._symbols.draw(self._index, other))
            stored = super().pad(attempt, other, size)
        assert len(stored) == size
        return stored
