"""Numbers for people: counts are whole, intervals are never shown narrower than they are, costs never smaller."""

from __future__ import annotations

import math
import random

from tpmdp.ledger import left_text, rounded_up
from tpmdp.queries.answer import Answer
from tpmdp.report.numbers import interval, rounded


def ends(text: str) -> tuple[float, float]:
    low, high = text.replace(",", "").split(" to ")
    return float(low), float(high)


def test_intervals_are_rounded_outwards() -> None:
    chance = random.Random(7)
    for _ in range(2000):
        error = 10 ** chance.uniform(-12, 8)
        value = chance.gauss(0, 1) * 10 ** chance.uniform(-6, 9)
        low, high = Answer("q", value, error).interval
        for whole in (False, True):
            shown_low, shown_high = ends(interval(low, high, error, whole))
            assert shown_low <= low <= high <= shown_high
            # never much wider, either: half the digits that matter, or a record
            assert shown_high - shown_low <= (high - low) * 1.06 + (2 if whole else 0)


def test_counts_are_whole_numbers() -> None:
    chance = random.Random(8)
    for _ in range(500):
        error, value = 10 ** chance.uniform(-3, 6), chance.gauss(0, 1e5)
        texts = [rounded(value, error, whole=True), *interval(value - error, value + error, error, True).split(" to ")]
        for text in texts:
            assert text.lstrip("-").replace(",", "").isdigit(), text
            assert text != "-0"


def test_values_without_noise_are_exact() -> None:
    assert rounded(12345.25, 0.0) == "12,345.25"
    assert interval(12345.25, 12345.25, 0.0) == "12,345.25 to 12,345.25"
    assert rounded(1234567.0, 0.0, whole=True) == "1,234,567"
    assert interval(-math.inf, math.inf, math.inf) == "none"


def test_what_was_offered_and_what_is_charged_look_the_same_if_they_are() -> None:
    chance = random.Random(9)
    for _ in range(500):
        offered = round(chance.uniform(0.01, 9), 4)
        assert rounded_up(offered) == f"{offered:g}"
        assert rounded_up(math.nextafter(offered, 0)) == rounded_up(offered)
        assert float(rounded_up(math.nextafter(offered, 9))) > offered


def test_a_thousandth_of_a_budget_is_none() -> None:
    assert left_text(0.0004, 0.5) == "none"
    assert left_text(0.0006, 0.5) == "0.0006"
    assert left_text(0.0, math.inf) == "0"
