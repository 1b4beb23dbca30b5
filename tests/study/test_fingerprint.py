"""The phrase of a fingerprint: words that neither look nor sound alike, and a second hash that is slow."""

from __future__ import annotations

import hashlib
import re
from itertools import combinations

import pytest

from tpmdp.study.fingerprint import WORD_COUNT, WORDS, phrase_of

SPELLINGS = (
    *(("tch", "C"), ("ch", "C"), ("sh", "S"), ("ph", "f"), ("th", "0"), ("wh", "w"), ("ck", "k"), ("qu", "kw")),
    *(("kn", "n"), ("dge", "j"), ("ge", "je"), ("gi", "ji"), ("gy", "ji"), ("ce", "se"), ("ci", "si"), ("cy", "si")),
    *(("x", "ks"), ("gh", ""), ("c", "k"), ("z", "s")),
)


def sound_of(word: str) -> str:
    """Roughly how a word sounds on a bad line: vowels, voiced and voiceless consonants, m and n are the same."""
    for spelling, sound in SPELLINGS:
        word = word.replace(spelling, sound)
    word = re.sub("[aeiouy]+", "a", re.sub(r"(.)\1", r"\1", word))
    return word.translate(str.maketrans("bdgvm", "ptkfn"))


def edits(left: str, right: str) -> int:
    """How many letters must be added, removed or changed."""
    row = list(range(len(right) + 1))
    for number, mine in enumerate(left, 1):
        above, row = row, [number]
        for place, theirs in enumerate(right):
            row.append(min(row[-1] + 1, above[place + 1] + 1, above[place] + (mine != theirs)))
    return row[-1]


def test_there_are_256_short_words_and_at_least_64_bits() -> None:
    assert len(set(WORDS)) == len(WORDS) == 256
    assert WORD_COUNT * 8 >= 64
    assert list(WORDS) == sorted(WORDS)
    assert all(re.fullmatch("[a-z]{4,9}", word) for word in WORDS)


@pytest.mark.slow
def test_no_two_words_look_or_sound_alike() -> None:
    sounds = {word: sound_of(word) for word in WORDS}
    for left, right in combinations(WORDS, 2):
        assert edits(left, right) >= 3, (left, right)
        assert edits(sounds[left], sounds[right]) >= 2, (left, right)
        assert left[:4] != right[:4], (left, right)


def test_the_list_never_changes() -> None:
    digest = hashlib.sha256(" ".join(WORDS).encode()).hexdigest()
    assert digest == "7721e71315c9b521fdf5d9d4afe351555e135d5560c1f582480521d32c765de6"
    phrase = "husband parachute atlas jasmine pineapple cupboard rabbit cupboard holiday fountain"
    assert phrase_of(bytes(32)) == phrase.split()


@pytest.mark.slow
def test_each_bit_of_the_hash_changes_the_phrase() -> None:
    first = phrase_of(bytes(32))
    assert phrase_of(bytes(31) + b"\1") != first
    assert phrase_of(b"\x80" + bytes(31)) != first
