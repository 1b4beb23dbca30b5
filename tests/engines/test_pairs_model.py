"""What colluders hold and see in a session of pairs does not depend on the others' columns: all cases, modulo 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations, product

import pytest

MODULUS = 3
View = tuple[int, ...]


def views(columns: Sequence[int], noise: Sequence[int], coalition: set[int], *, receives: bool) -> Iterator[View]:
    """The coalition's view for every choice of everybody's randomness; one column of one record per party."""
    pairs = list(combinations(range(len(columns)), 2))
    for drawn in product(range(MODULUS), repeat=2 * len(pairs)):
        shares, masks = drawn[: len(pairs)], drawn[len(pairs) :]
        sums = list(noise)
        view: list[int] = []
        for (i, j), share, mask in zip(pairs, shares, masks, strict=True):
            other = columns[i] * columns[j] - share  # what the pair's protocol leaves j with
            sums[i] += share + mask
            sums[j] += other - mask
            view += [share] if i in coalition else []
            view += [other % MODULUS] if j in coalition else []
            view += [mask] if {i, j} & coalition else []
        yield (*view, *(each % MODULUS for each in sums if receives))


def result(columns: Sequence[int], noise: Sequence[int]) -> int:
    return (sum(a * b for a, b in combinations(columns, 2)) + sum(noise)) % MODULUS


@pytest.mark.parametrize("receives", [True, False])
@pytest.mark.parametrize(
    ("count", "coalition"),
    [(2, {0}), (2, {1}), *((3, set(each)) for size in (1, 2) for each in combinations(range(3), size))],
)
def test_output_shares_of_colluders_do_not_depend_on_the_others(
    count: int, coalition: set[int], receives: bool
) -> None:
    """The same view for all columns and noise of the others that give the same result; without a receiver, for all."""
    honest = [party for party in range(count) if party not in coalition]
    for own in product(range(MODULUS), repeat=len(coalition)):
        seen: dict[int, Counter[View]] = {}
        for others in product(range(MODULUS), repeat=len(honest) + 1):
            columns, noise = [0] * count, [0] * count
            for party, value in zip([*sorted(coalition), *honest], [*own, *others[:-1]], strict=True):
                columns[party] = value
            noise[honest[0]] = others[-1]
            view = Counter(views(columns, noise, coalition, receives=receives))
            key = result(columns, noise) if receives else 0
            assert seen.setdefault(key, view) == view
        assert len(seen) == (MODULUS if receives else 1)


def test_without_masks_or_without_fresh_shares_the_view_would_depend_on_the_others() -> None:
    """So that the test above can fail: the unmasked sums of two honest parties tell them apart."""
    distributions = set()
    for columns in ([1, 0, 2], [1, 2, 0]):  # the same result
        bare: Counter[View] = Counter()
        for shares in product(range(MODULUS), repeat=2):  # of party 0 with 1 and with 2; 1 and 2 do not share
            first, second = shares
            sums = (columns[0] * columns[1] - first, columns[0] * columns[2] - second)
            bare[(first, second, *(each % MODULUS for each in sums))] += 1
        distributions.add(frozenset(bare.items()))
    assert len(distributions) == 2
