"""The factor of prefix sums, against plain matrices in exact arithmetic."""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations
from math import comb

import numpy as np
import pytest

from tpmdp._util.arrays import IntArray
from tpmdp.errors import InputError
from tpmdp.queries.bins import BINS_MAX
from tpmdp.queries.prefix_factor import STEP, PrefixFactor, prefix_factor

sizes = pytest.mark.parametrize("bins", [1, 2, 3, 7, 64])


def matrix_of(factor: PrefixFactor) -> list[list[Fraction]]:
    """C, from what single records add."""
    columns = [factor.applied(row) for row in np.eye(factor.bins, dtype=np.int64)]
    return [[Fraction(column[entry]) for column in columns] for entry in range(factor.bins)]


@sizes
def test_entries_are_close_to_those_of_the_square_root_and_whole_multiples_of_the_step(bins: int) -> None:
    matrix = matrix_of(prefix_factor(bins))
    for row in range(bins):
        for column in range(bins):
            lag = row - column
            exact = Fraction(comb(2 * lag, lag), 4**lag) if lag >= 0 else Fraction(0)
            assert abs(matrix[row][column] - exact) <= Fraction(STEP) * Fraction(1001, 1000)
            assert (matrix[row][column] / Fraction(STEP)).denominator == 1
    assert all(matrix[place][place] == 1 for place in range(bins))


@pytest.mark.parametrize("bins", [1, 3, 64, 500])
@pytest.mark.parametrize("count", [1, 1000, (1 << 14) - 1, 1 << 28, (1 << 40) - 500])
def test_whole_counts_are_multiplied_without_any_error(bins: int, count: int) -> None:
    random = np.random.default_rng(bins)
    factor = prefix_factor(bins)
    for shares in (random.dirichlet(np.full(bins, 0.3)), np.eye(bins)[0], np.eye(bins)[-1]):
        counts = (shares * count).astype(np.int64)
        steps = [int(step) for step in factor.steps]
        wanted = [
            sum(steps[row - column] * int(counts[column]) for column in range(row + 1)) / 2**13 for row in range(bins)
        ]
        assert factor.applied(counts).tolist() == wanted


@pytest.mark.slow
def test_a_million_bins_are_multiplied_without_error_too() -> None:
    """Single entries against sums of whole numbers; the counts are as hard on Fourier transforms as can be."""
    factor = prefix_factor(BINS_MAX)
    random = np.random.default_rng(1)
    counts = np.full(BINS_MAX, (1 << 20) - 1, dtype=np.int64)
    counts[random.integers(BINS_MAX, size=1000)] -= random.integers(1 << 19, size=1000)
    vector = factor.applied(counts)
    for entry in (0, 1, 2, 1000, BINS_MAX - 2, BINS_MAX - 1, *random.integers(BINS_MAX, size=20).tolist()):
        assert vector[entry] == int((factor.steps[entry::-1] * counts[: entry + 1]).sum()) * STEP
    assert np.abs(factor.counts_of(vector) - counts).max() < 0.01  # of 10^12


@sizes
def test_distances_are_the_largest_over_all_pairs_of_columns_rounded_up(bins: int) -> None:
    factor = prefix_factor(bins)
    columns = [factor.applied(row) for row in np.eye(bins, dtype=np.int64)]

    def square(vector: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Fraction:
        return sum((Fraction(entry) ** 2 for entry in vector.tolist()), Fraction(0))

    apart = max((square(one - two) for one, two in combinations(columns, 2)), default=Fraction(0))
    norms = sorted(map(square, columns))
    pair = max(apart, 2 * norms[-1])  # the columns of longest length, in the two histograms
    for declared, exact in ((factor.distance, apart), (factor.norm, norms[-1]), (factor.pair_distance, pair)):
        assert exact <= Fraction(declared) ** 2 <= exact * (1 + Fraction(1, 10**12))


@pytest.mark.parametrize(("bins", "distance"), [(64, 1.912), (256, 2.131), (1024, 2.329)])
def test_distances_are_those_of_the_literature(bins: int, distance: float) -> None:
    assert prefix_factor(bins).distance == pytest.approx(distance, abs=5e-4)


@pytest.mark.parametrize(("bins", "distance"), [(50, 2.149), (200, 2.346)])
def test_distances_for_two_histograms(bins: int, distance: float) -> None:
    assert prefix_factor(bins).pair_distance == pytest.approx(distance, abs=5e-4)


@sizes
def test_prefix_sums_and_counts_are_read_back(bins: int) -> None:
    factor = prefix_factor(bins)
    counts = np.random.default_rng(bins).integers(0, 10**6, size=bins)
    vector = factor.applied(counts)
    np.testing.assert_allclose(factor.prefix_sums(vector), np.cumsum(counts), rtol=1e-12)
    np.testing.assert_allclose(factor.counts_of(vector), counts, atol=1e-5)


@sizes
def test_noise_enters_the_prefix_sums_as_a_plain_solver_says(bins: int) -> None:
    factor = prefix_factor(bins)
    matrix = np.array(matrix_of(factor), dtype=np.float64)
    reading = np.linalg.solve(matrix.T, np.tril(np.ones((bins, bins))).T).T
    np.testing.assert_allclose(factor.reading_matrix(), reading, atol=1e-12)
    covariance = reading @ reading.T
    np.testing.assert_allclose(factor.covariance(), covariance, atol=1e-12)
    np.testing.assert_allclose(factor.variances, np.diag(covariance), atol=1e-12)
    np.testing.assert_allclose(factor.covariances_with_total, covariance[-1], atol=1e-12)


def test_features_are_what_single_records_add() -> None:
    factor = prefix_factor(7)
    places: IntArray = np.array([6, 0, -1, 3])
    features = np.array(factor.features(places))
    assert (features[:, 2] == 0).all()
    for record, place in enumerate(places.tolist()):
        if place >= 0:
            assert (features[:, record] == factor.applied(np.eye(7, dtype=np.int64)[place])).all()


@pytest.mark.parametrize("bins", [0, -1, BINS_MAX + 1])
def test_other_numbers_of_bins_are_refused(bins: int) -> None:
    with pytest.raises(InputError, match="must be from 1 to"):
        prefix_factor(bins)
