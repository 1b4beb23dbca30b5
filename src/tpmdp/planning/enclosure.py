"""Is this variance enough for this budget? Decided in integer arithmetic with proven error bounds.

Shares no code with `calibration`: numbers are whole multiples of 2**-P, the Mills ratio comes from a positive series
or a continued fraction whose neighbouring convergents enclose it, and every bound is stated in Theory,
"Exact check of a need". `Certificate.check` uses it, so that nobody has to trust the calibration.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import Final, NamedTuple

P: Final = 256  # fractional bits
ONE: Final = 1 << P
_SLACK: Final = 1 << 66  # bound on accumulated roundings, in units of 2**-P; Theory, Lemma E3
_SERIES_UP_TO: Final = 8 << P
_A_LOW: Final = -9  # below, delta exceeds 1 - 1e-18; above 39, delta is below 1e-330
_A_HIGH: Final = 39


class Interval(NamedTuple):
    """Lower and upper bound, in units of 2**-P."""

    low: int
    high: int


@lru_cache(maxsize=1)
def _constants() -> tuple[int, int]:
    """sqrt(2 pi) and ln 2, each rounded down, in units of 2**-P; Machin's formula and the series of ln 2."""
    guard = 64
    unit = 1 << (P + guard)

    def arctan_inverse(x: int) -> int:
        power, total, k = unit // x, 0, 1
        while power:
            total += power // k if k % 4 == 1 else -(power // k)
            power //= x * x
            k += 2
        return total

    pi = 16 * arctan_inverse(5) - 4 * arctan_inverse(239)
    log2 = sum(unit // (k << k) for k in range(1, P + guard))
    return isqrt((2 * pi) << (P + guard)) >> guard, log2 >> guard


def exp_scaled(y: int) -> tuple[int, int]:
    """(mantissa, k) with e**y = mantissa * 2**k, off by at most 2**16 units, for 0 <= y < 2**12; units are 2**-P.

    >>> mantissa, k = exp_scaled(ONE)
    >>> round(mantissa * 2.0**(k - P), 12)
    2.718281828459
    """
    _, log2 = _constants()
    k = y // log2
    rest = (y - k * log2) >> 8
    total = term = ONE
    j = 1
    while term:
        term = ((term * rest) >> P) // j
        total += term
        j += 1
    for _ in range(8):
        total = (total * total) >> P
    return total, k


def _series(x: int) -> int:
    """Sum of x^(2k+1)/(2k+1)!! for 0 <= x <= 8: (Phi(x) - 1/2) / phi(x); all terms positive, each rounded down."""
    square = (x * x) >> P
    total = term = x
    j = 3
    while term:
        term = ((term * square) >> P) // j
        total += term
        j += 2
    return total


def _continued_fraction(x: int, terms: int) -> int:
    """1/(x + 1/(x + 2/(x + ... terms/x))), rounded."""
    tail = x
    for k in range(terms, 0, -1):
        tail = x + (k << (2 * P)) // tail
    return (1 << (2 * P)) // tail


def mills(x: int) -> Interval:
    """The Mills ratio at x >= 0, enclosed (Lemmas E1 and E2).

    >>> low, high = mills(2 * ONE)
    >>> round(low / ONE, 12), high - low < ONE >> 150
    (0.421369229288, True)
    """
    if x <= _SERIES_UP_TO:
        root, _ = _constants()
        mantissa, k = exp_scaled((x * x) >> (P + 1))
        value = (root * mantissa >> (P + 1)) << k
        value -= _series(x)
        return Interval(value - _SLACK, value + _SLACK)
    terms = 16 + int(1500 / (x / ONE) ** 2)
    while True:
        first, second = _continued_fraction(x, terms), _continued_fraction(x, terms + 1)
        if abs(first - second) < _SLACK:
            return Interval(min(first, second) - _SLACK, max(first, second) + _SLACK)
        terms *= 2


def _mu_bound(variance: Fraction, sensitivity: Fraction, up: bool) -> int:
    """sensitivity / sqrt(variance) in units of 2**-P, rounded up or down."""
    square = sensitivity * sensitivity / variance
    root = isqrt((square.numerator << (2 * P)) // square.denominator)
    return root + 1 if up else root


def _sides(mu: int, epsilon: Fraction, delta: Fraction) -> tuple[Interval, Interval] | bool:
    """R(a) - R(b) and delta sqrt(2 pi) e^(a^2/2), both enclosed; or at once whether delta(mu) <= delta, far out."""
    m = (epsilon.numerator << (2 * P)) // (epsilon.denominator * mu)
    a, b = m - mu // 2, m + mu // 2
    if a < _A_LOW * ONE:
        return False
    if a > _A_HIGH * ONE:
        return True
    root, _ = _constants()
    mantissa, k = exp_scaled((a * a) >> (P + 1))
    gauss = (root * mantissa >> P) << k  # sqrt(2 pi) e^(a^2/2)
    blur = _SLACK << k
    size = mills(abs(a))
    if a < 0:  # R(a) = sqrt(2 pi) e^(a^2/2) - R(-a)
        size = Interval(gauss - size.high - blur, gauss - size.low + blur)
    other = mills(b)
    left = Interval(size.low - other.high - _SLACK, size.high - other.low + _SLACK)
    right = gauss * delta.numerator // delta.denominator
    blur = blur * delta.numerator // delta.denominator + _SLACK
    return left, Interval(right - blur, right + blur)


def is_enough(variance: Fraction, epsilon: Fraction, delta: Fraction, sensitivity: Fraction) -> bool:
    """Whether Gaussian noise of this variance provably is (epsilon, delta)-DP at this sensitivity.

    >>> budget = Fraction(1), Fraction(1, 10**6), Fraction(1)
    >>> is_enough(Fraction(4225, 1000) ** 2, *budget), is_enough(Fraction(4224, 1000) ** 2, *budget)
    (True, False)
    """
    if variance <= 0:
        return False
    sides = _sides(_mu_bound(variance, sensitivity, up=True), epsilon, delta)
    return sides if isinstance(sides, bool) else sides[0].high <= sides[1].low


def is_too_little(variance: Fraction, epsilon: Fraction, delta: Fraction, sensitivity: Fraction) -> bool:
    """Whether Gaussian noise of this variance provably is not (epsilon, delta)-DP at this sensitivity.

    >>> is_too_little(Fraction(4224, 1000) ** 2, Fraction(1), Fraction(1, 10**6), Fraction(1))
    True
    """
    if variance <= 0:
        return True
    mu = _mu_bound(variance, sensitivity, up=False)
    if mu == 0:
        return False
    sides = _sides(mu, epsilon, delta)
    return not sides if isinstance(sides, bool) else sides[0].low > sides[1].high
