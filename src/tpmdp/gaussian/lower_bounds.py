"""Lower confidence bounds on a privacy loss that is observed, and how many draws they need. Theory, "Audit".

An audit draws a statistic under two neighbouring data sets. It is scaled so that they move its mean by 1. The noise of
a mechanism with loss mu then has standard deviation 1/mu.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from scipy.special import chdtr, gammaincinv, ndtri

from tpmdp._util.arrays import FloatArray
from tpmdp._util.binomial import upper_bound
from tpmdp.gaussian.calibration import calibrate

POWER: Final = 0.95  # the chance that an excess of the stated size is shown
DRAWS_MIN: Final = 1000
DRAWS_MAX: Final = 1 << 20
_WORLDS: Final = 2


def mu_bound(noise: FloatArray, doubt: float) -> float:
    """A number that a Gaussian mechanism's mu is below with chance at most `doubt`, from its noise under both data.

    `noise` has a row for each of the two, without their means: these are known but for the noise.

    >>> import numpy as np
    >>> noise = np.random.default_rng(1).normal(size=(2, 5000)) / 0.3
    >>> 0.27 < mu_bound(noise, 1e-4) < 0.3
    True
    """
    squares = _squares(noise)
    return math.sqrt(_low_quantile(_degrees(noise), doubt) / squares) if squares else math.inf


def mu_estimate(noise: FloatArray) -> float:
    """The most likely mu.

    >>> import numpy as np
    >>> mu_estimate(np.array([[1.0, -1.0, 1.0], [2.0, -2.0, 2.0]])) < 1
    True
    """
    squares = _squares(noise)
    return math.sqrt(_degrees(noise) / squares) if squares else math.inf


def variance_bound(squares: FloatArray, draws: int, doubt: float) -> FloatArray:
    """Numbers that the variances of Gaussian noise are above with chance at most `doubt` each.

    `squares` are sums of squares about the means of two data, of so many draws altogether.

    >>> noise = np.random.default_rng(1).normal(size=(2, 5000))
    >>> 1.0 < float(variance_bound(np.array(_squares(noise)), 10_000, 1e-4)) < 1.08
    True
    """
    return np.asarray(squares / _low_quantile(draws - _WORLDS, doubt), dtype=np.float64)


def _squares(noise: FloatArray) -> float:
    centred = noise - noise.mean(axis=1, keepdims=True)
    return float((centred * centred).sum())


def _degrees(noise: FloatArray) -> int:
    return noise.size - len(noise)


def _low_quantile(degrees: int, doubt: float) -> float:
    """What chi squared is below with this chance."""
    return 2.0 * float(gammaincinv(degrees / 2, doubt))


def ratio_shown(draws: int, doubt: float) -> float:
    """By what factor mu must exceed a limit so that `mu_bound` exceeds it with chance POWER.

    >>> 1.02 < ratio_shown(20_000, 1e-4) < 1.04
    True
    """
    degrees = draws - _WORLDS
    return math.sqrt(2.0 * float(gammaincinv(degrees / 2, POWER)) / _low_quantile(degrees, doubt))


def draws_for(ratio: float, doubt: float) -> int:
    """The least even number of draws that show such a factor; at least DRAWS_MIN, at most DRAWS_MAX.

    >>> draws_for(1.05, 1e-4) < 8000, draws_for(1.0, 1e-4) == DRAWS_MAX
    (True, True)
    """
    low, high = DRAWS_MIN // 2, DRAWS_MAX // 2
    while low < high:
        middle = (low + high) // 2
        if ratio_shown(2 * middle, doubt) <= ratio:
            high = middle
        else:
            low = middle + 1
    return 2 * low


def excess_ratio(epsilon: float, delta: float, mu: float, *, excess: float) -> float:
    """By what factor mu must grow so that epsilon at this delta is larger by this share.

    >>> round(excess_ratio(1.0, 1e-6, 0.23670, excess=0.05), 3)
    1.046
    """
    wanted = epsilon * (1.0 + excess)
    if not (0 < wanted < math.inf and 0 < mu < math.inf):
        return 1.0 + excess
    return max(1.0, 1.0 / (calibrate(wanted, delta) * mu))


def counted_bound(above: int, below: int, draws: int, *, doubt: float) -> float:
    """A number that mu is below with chance at most `doubt`, whatever the noise is.

    `draws` were made under either of two data; `above` of the first and `below` of the second fell on the wrong side of
    a cut that was fixed beforehand. Clopper and Pearson bound the two rates, and no test does better than mu allows.

    >>> round(counted_bound(160, 160, 1000, doubt=1e-3), 2)
    1.67
    """
    rates = [upper_bound(wrong, draws, doubt / 2) for wrong in (above, below)]
    return max(0.0, -math.fsum(float(ndtri(rate)) for rate in rates))


def chance_of_alarm(ratio: float, draws: int, doubt: float) -> float:
    """The chance that `mu_bound` exceeds the limit if mu is `ratio` times the limit.

    >>> round(chance_of_alarm(1.0, 5000, 1e-4), 6)
    0.0001
    """
    degrees = draws - _WORLDS
    return float(chdtr(degrees, ratio * ratio * _low_quantile(degrees, doubt)))
