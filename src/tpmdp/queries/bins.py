"""Public edges of bins."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from tpmdp.errors import InputError

BINS_MAX: Final = 1_000_000
Spans = tuple[tuple[float, float], ...]  # ranges of a column, each from its first value to below its last


def check_edges(field: str, edges: Sequence[float]) -> None:
    """Refuse edges that do not rise, too few and too many.

    >>> check_edges("ages", (0.0, 0.0))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: edges of ages = 0, 0 must rise: sort them, each once
    """
    text = ", ".join(f"{edge:g}" for edge in edges[:20])
    if not 2 <= len(edges) <= BINS_MAX + 1:
        raise InputError(f"edges of {field}", text, f"must be 2 to {BINS_MAX + 1} numbers", "list the edges")
    if not all(low < high for low, high in pairwise(edges)):
        raise InputError(f"edges of {field}", text, "must rise", "sort them, each once")


def places_of_spans(name: str, spans: Spans, edges: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """The first bin of each range, and the bin after its last; refuses ranges that are not unions of adjacent bins.

    >>> places_of_spans("ages", ((0.0, 65.0),), (0.0, 18.0, 65.0, 120.0))
    ((0, 2),)
    """
    at = {edge: place for place, edge in enumerate(edges)}
    places = []
    for low, high in spans:
        text = f"{low:g} to {high:g}"
        if not low < high:
            raise InputError(f"ranges of {name}", text, "must begin below its end", "write such as [18, 65]")
        if low not in at or high not in at:
            raise InputError(f"ranges of {name}", text, "must begin and end at edges", "add its ends to the edges")
        places.append((at[low], at[high]))
    if len(set(places)) < len(places):
        raise InputError(f"ranges of {name}", f"{len(places)} of them", "must differ", "ask each once")
    return tuple(places)
