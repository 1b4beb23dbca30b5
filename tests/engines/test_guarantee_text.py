"""What a result promises, in words, where parties have thresholds of their own."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tpmdp.engines.contract import guarantee_text
from tpmdp.planning.grid_plan import plan_on_grid
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Spec


def terms_of(threshold: int | list[int]) -> Terms:
    names = ["alpha", "beta", "gamma", "delta"]
    spec = Spec(epsilon=[1.0, 2.0, 3.0, 4.0], delta=1e-6, threshold=threshold, names=names)
    roster = tuple(bytes(31) + bytes([number]) for number in range(4))
    return Terms.of("demo", plan_on_grid(spec, bound=1.0), 1.0, roster=roster)


@pytest.mark.parametrize("guarantee", ["computational", "statistical"])
def test_each_party_finds_its_own_threshold(guarantee: Any) -> None:
    """Nobody may read that a larger coalition than the one it was planned for is covered."""
    text = guarantee_text(dataclasses.replace(terms_of([1, 3, 2, 1]), guarantee=guarantee))
    wanted = (
        "coalitions of at most 1 party for alpha, delta and of at most 2 parties for gamma and of at most 3 parties"
    )
    assert f"{wanted} for beta " in text
    assert text.startswith(f"{guarantee}: holds against")


def test_a_common_threshold_is_said_once() -> None:
    assert guarantee_text(terms_of([2, 2, 2, 2])) == guarantee_text(terms_of(2))
    assert "coalitions of at most 2 parties that cannot break" in guarantee_text(terms_of(2))
