"""The sampler against the exact probability mass function, an independent sampler, OpenDP, and crafted ties."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tpmdp import InputError
from tpmdp.noise import discrete_gaussian as module
from tpmdp.noise import kernel
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.grid import SIGMA_MAX
from tpmdp.noise.source import NoiseSource, seeded_source, system_source

Floats = NDArray[np.float64]


def exact_bins(sigma: int, edges: list[int]) -> Floats:
    """Exact probabilities of x < e_0, e_0 <= x < e_1, ..., x >= e_last, from the weights e^(-x^2 / 2 sigma^2)."""
    reach = 13 * sigma
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-(x * x) / (2.0 * sigma * sigma))
    cuts = [0, *(edge + reach for edge in edges), len(x)]
    sums = np.array([math.fsum(weights[a:b].tolist()) for a, b in pairwise(cuts)])
    probabilities: Floats = sums / math.fsum(weights.tolist())
    return probabilities


def p_value(draws: NDArray[np.int64], sigma: int, edges: list[int]) -> float:
    expected = exact_bins(sigma, edges) * len(draws)
    observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(edges) + 1)
    return float(stats.chisquare(observed, expected).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("sigma", [1, 2, 3, 5, 17, 100, 1000])
def test_draws_follow_the_exact_mass_function(sigma: int) -> None:
    """Chi-square over many seeds: the p-values themselves must look uniform."""
    if sigma <= 5:
        edges = list(range(-3 * sigma, 3 * sigma + 1))  # every integer on its own
    else:
        edges = sorted({round(sigma * z) for z in np.linspace(-3.2, 3.2, 60)})
    values = [p_value(discrete_gaussian(sigma, 40_000, seeded_source(seed)), sigma, edges) for seed in range(40)]
    assert stats.kstest(values, "uniform").pvalue > 1e-3
    assert min(values) > 1e-5


@pytest.mark.slow
def test_a_large_sigma_follows_the_normal_law() -> None:
    """At sigma = 1,000,000 discrete and continuous agree to far below what a million draws can tell."""
    for sigma in (1_000_000, SIGMA_MAX):
        draws = discrete_gaussian(sigma, 1_000_000, seeded_source(sigma))
        assert stats.kstest(draws / sigma, "norm").pvalue > 1e-3
        assert len(np.unique(draws % 10)) == 10


@pytest.mark.slow
def test_tails_are_as_heavy_as_they_should_be() -> None:
    draws = discrete_gaussian(2, 6_000_000, seeded_source(77))
    for cut in (7, 8, 9, 10):
        probability = 2 * exact_bins(2, [cut])[1]
        expected = probability * len(draws)
        assert abs(np.count_nonzero(np.abs(draws) >= cut) - expected) < 5 * math.sqrt(expected) + 1


def test_signs_and_low_bits_are_balanced() -> None:
    draws = discrete_gaussian(1000, 400_000, seeded_source(3))
    assert abs(np.count_nonzero(draws > 0) - np.count_nonzero(draws < 0)) < 5 * math.sqrt(400_000)
    assert abs(np.count_nonzero(draws % 2) - 200_000) < 5 * math.sqrt(100_000)
    lag = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(lag) < 5 / math.sqrt(400_000)


def textbook_sampler(sigma: int, words: list[int]) -> int:
    """Canonne, Kamath and Steinke (2020), Algorithms 1 to 3, in fractions: another algorithm, no shared code."""

    def below(limit: int) -> int:
        while True:
            bits = limit.bit_length()
            value = words.pop() & ((1 << bits) - 1)
            if value < limit:
                return value

    def bernoulli_exp(gamma: Fraction) -> bool:
        while gamma > 1:
            if not bernoulli_exp(Fraction(1)):
                return False
            gamma -= 1
        k = 1
        while below(gamma.denominator * k) < gamma.numerator:
            k += 1
        return k % 2 == 1

    t = sigma + 1
    while True:
        u = below(t)
        if not bernoulli_exp(Fraction(u, t)):
            continue
        v = 0
        while bernoulli_exp(Fraction(1)):
            v += 1
        y = u + t * v
        sign = below(2)
        if sign and y == 0:
            continue
        if bernoulli_exp(Fraction((y * t - sigma * sigma) ** 2, 2 * sigma * sigma * t * t)):
            return -y if sign else y


def two_sample(one: NDArray[np.int64], two: NDArray[np.int64]) -> float:
    both = np.concatenate((one, two))
    edges = np.unique(np.quantile(both, np.linspace(0, 1, 25)[1:-1]).astype(int))
    table = [np.bincount(np.searchsorted(edges, sample), minlength=len(edges) + 1) for sample in (one, two)]
    kept = np.array(table)[:, np.sum(table, axis=0) > 0]
    return float(stats.chi2_contingency(kept).pvalue)


@pytest.mark.slow
def test_an_independent_sampler_agrees() -> None:
    words = np.random.default_rng(1).integers(0, 2**63, 3_000_000).tolist()
    theirs = np.array([textbook_sampler(6, words) for _ in range(20_000)])
    assert two_sample(discrete_gaussian(6, 20_000, seeded_source(8)), theirs) > 1e-4


@pytest.mark.parametrize("sigma", [3, 1000])
def test_opendp_agrees(sigma: int) -> None:
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib", "honest-but-curious")
    space = dp.vector_domain(dp.atom_domain(T=int)), dp.l2_distance(T=float)
    theirs = np.array(dp.m.make_gaussian(*space, scale=float(sigma))([0] * 20_000))
    assert two_sample(discrete_gaussian(sigma, 20_000, system_source()), theirs) > 1e-6  # OpenDP cannot be seeded


def test_constants_are_right_to_the_last_bit() -> None:
    mpmath.mp.prec = 1200
    try:
        weights = [mpmath.exp(-mpmath.mpf(k * k) / 2) for k in range(200)]
        total = mpmath.fsum(weights)
        truth = [mpmath.fsum(weights[: k + 1]) / total for k in range(kernel.ROWS)] + [mpmath.exp(-1)]
        for row, value in zip(kernel.exp_constants().tolist(), truth, strict=True):
            assert sum(digit << (64 * (7 - i)) for i, digit in enumerate(row)) == int(mpmath.floor(value * 2**512))
    finally:
        mpmath.mp.dps = 80


@pytest.mark.parametrize("sigma", [1, 4, 1000, SIGMA_MAX])
def test_compiled_and_plain_python_draw_the_same(sigma: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert hasattr(kernel.compiled_fill(), "py_func")  # Numba is there
    monkeypatch.setattr(module, "_WORTH_COMPILING", -1)
    compiled = discrete_gaussian(sigma, 2000, seeded_source(sigma))
    monkeypatch.setattr(module, "_WORTH_COMPILING", 10**12)  # as where Numba is not installed
    monkeypatch.setattr(kernel, "compiled_fill", None)
    assert np.array_equal(discrete_gaussian(sigma, 2000, seeded_source(sigma)), compiled)


def test_no_random_word_is_lost_between_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropping the words of an unfinished value would favour values that need few: cuts must change nothing."""
    whole = discrete_gaussian(50, 5000, seeded_source(4))
    monkeypatch.setattr(module, "_BATCH_MAX", 2 * kernel.RESERVE + 1)
    assert np.array_equal(discrete_gaussian(50, 5000, seeded_source(4)), whole)


class Scripted(NoiseSource):
    """A source that plays given words first."""

    def __init__(self, first: list[int]) -> None:
        super().__init__(bytes(32), secure=False)
        self.first = first

    def words(self, count: int) -> Any:
        played, self.first = self.first[:count], self.first[count:]
        return np.concatenate((np.array(played, dtype=np.uint64), super().words(count - len(played))))


@pytest.mark.parametrize(("offset", "k"), [(-1, 0), (1, 1)])
def test_a_tie_is_settled_by_more_bits(offset: int, k: int) -> None:
    """The first 7 words equal those of P(K <= 0); the 8th decides between k = 0 and k = 1."""
    digits = kernel.exp_constants()[0].tolist()
    words = [*digits[:7], digits[7] + offset, 1 << 33]  # then j = 0 and a positive sign
    draws = discrete_gaussian(7, 1, Scripted(words))
    assert draws.tolist() == [7 * k]


def test_a_tie_of_512_bits_stops_the_sampler() -> None:
    with pytest.raises(ArithmeticError, match="no noise was drawn"):
        discrete_gaussian(7, 1, Scripted(kernel.exp_constants()[0].tolist()))


def test_zero_has_one_sign_only() -> None:
    """k = 0, j = 0 with a negative sign is rejected, or 0 would be twice as likely."""
    refused, kept = [0, (1 << 33) | 1], [0, 1 << 63, 2**64 - 1]  # -0, then k = 0, j = 3, and no reason to refuse it
    assert discrete_gaussian(7, 1, Scripted(refused + kept)).tolist() == [3]
    assert discrete_gaussian(7, 1, Scripted([0, 1 << 33])).tolist() == [0]


def test_empty_and_large_vectors() -> None:
    assert discrete_gaussian(5, 0, system_source()).tolist() == []
    assert discrete_gaussian(np.int64(0), 3, system_source()).tolist() == [0, 0, 0]
    assert len(discrete_gaussian(np.int64(9), 3, system_source())) == 3
    draws = discrete_gaussian(100, 1_000_000, system_source())
    assert draws.dtype == np.int64
    assert abs(draws.std() - 100) < 1


@pytest.mark.parametrize("sigma", [-1, 2.5, True, SIGMA_MAX + 1, float("nan"), "5"])
def test_bad_sigma_is_refused(sigma: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number of grid steps"):
        discrete_gaussian(sigma, 3, system_source())


def test_bad_count_is_refused() -> None:
    with pytest.raises(InputError, match="count = -1 must not be negative"):
        discrete_gaussian(3, -1, system_source())
