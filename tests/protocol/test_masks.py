"""Masks: they cancel in the sum, hide every vector, and differ by pair and by session."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from tpmdp import InputError
from tpmdp.protocol.graph import neighbours
from tpmdp.protocol.masks import apply, expand, from_words, mask_key, pad, to_words

SESSION = bytes(range(32))


def agreed(low: int, high: int) -> bytes:
    """What a pair has agreed on; see test_hybrid.py."""
    return bytes([low, high]) * 32


@pytest.mark.parametrize("word", [32, 64])
@pytest.mark.parametrize(("count", "threshold"), [(2, 1), (3, 1), (5, 2), (9, 8)])
def test_masked_vectors_add_up_to_the_sum(count: int, threshold: int, word: int) -> None:
    length = 50
    inputs = np.random.default_rng(count).integers(-(2**20), 2**20, (count, length))
    total = np.zeros(length, dtype=to_words(inputs[0], word).dtype)
    for party in range(count):
        vector = to_words(inputs[party], word)
        for other in neighbours(party, count, threshold):
            low, high = sorted((party, other))
            key = mask_key(agreed(low, high), SESSION, low, high=high)
            apply(vector, expand(key, length, word), party, other)
        assert not np.array_equal(from_words(vector, word), inputs[party])
        total += vector
    assert np.array_equal(from_words(total, word), inputs.sum(axis=0))


def test_a_masked_vector_looks_uniform() -> None:
    vector = to_words(np.zeros(100_000, dtype=np.int64), 32)
    apply(vector, expand(mask_key(agreed(0, 1), SESSION, 0, high=1), 100_000, 32), 0, 1)
    assert stats.chisquare(np.bincount(vector >> np.uint32(24), minlength=256)).pvalue > 1e-6
    assert stats.chisquare(np.bincount(vector & np.uint32(255), minlength=256)).pvalue > 1e-6


def test_keys_differ_by_secret_session_pair_and_context() -> None:
    made = {
        mask_key(secret, session, low, high=high, context=context)
        for secret in (agreed(0, 1), agreed(1, 0))
        for session in (SESSION, bytes(32))
        for low, high in ((0, 1), (0, 2), (1, 2))
        for context in (b"", b"keys")
    }
    assert len(made) == 24


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=30))
@pytest.mark.slow
def test_signed_numbers_survive_both_words(values: list[int]) -> None:
    steps = np.array(values)
    for word in (32, 64):
        assert np.array_equal(from_words(to_words(steps, word), word), steps)


def test_pads_are_fresh() -> None:
    assert not np.array_equal(pad(8, 64), pad(8, 64))
    assert pad(3, 32).dtype.itemsize == 4


def test_bad_words_sessions_and_pairs_are_refused() -> None:
    with pytest.raises(InputError, match="word = 16 must be 32 or 64"):
        expand(bytes(32), 3, 16)
    with pytest.raises(InputError, match="session = 3 bytes must have 32 bytes"):
        mask_key(agreed(0, 1), b"abc", 0, high=1)
    for low, high in ((1, 1), (2, 1), (-1, 1)):
        with pytest.raises(InputError, match="two parties in index order"):
            mask_key(agreed(0, 1), SESSION, low, high=high)
    with pytest.raises(InputError, match="key = of 16 bytes must have 32 bytes"):
        expand(bytes(16), 3, 32)


def test_a_mask_that_would_hide_less_is_refused() -> None:
    """Broadcasting one word over a vector, or 32 bits over 64, would still cancel in the sum."""
    vector = np.zeros(4, dtype=np.uint64)
    for mask in (pad(1, 64), pad(4, 32), pad(5, 64)):
        with pytest.raises(InputError, match="does not fit"):
            apply(vector, mask, 0, 1)
    with pytest.raises(InputError, match="from 1 to 1"):
        apply(vector, pad(4, 64), 1, 1)
    assert not vector.any()


def test_a_sum_that_numpy_widened_is_read_right() -> None:
    parts = [to_words(np.array(values), 32) for values in ([-5, 3], [2, -9])]
    assert from_words(np.sum(parts, axis=0), 32).tolist() == [-3, -6]
