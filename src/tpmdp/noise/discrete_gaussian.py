"""Exact discrete Gaussian noise on the integers (Canonne, Kamath and Steinke 2020), a vector at a time.

The weight of the integer x is e^(-x^2 / (2 sigma^2)), exactly: no floating-point number takes part in any decision.
"""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tpmdp.errors import InputError
from tpmdp.noise import kernel
from tpmdp.noise.grid import SIGMA_MAX
from tpmdp.noise.source import NoiseSource, Words

_BATCH_MAX: Final = 1 << 18  # words drawn at a time: 2 MiB
_WORDS_PER_DRAW: Final = 8  # somewhat more than a draw takes on average
_WORTH_COMPILING: Final = 200_000  # draws in this process: fewer take less time than loading Numba
_drawn = 0


@lru_cache(maxsize=1)
def _constants() -> Words:
    return kernel.exp_constants()


def discrete_gaussian(sigma: int | np.integer[Any], count: int, source: NoiseSource) -> NDArray[np.int64]:
    """`count` independent discrete Gaussians of parameter sigma, in grid steps; zeros for sigma 0.

    >>> from tpmdp.noise.source import seeded_source
    >>> noise = discrete_gaussian(100, 20_000, seeded_source(1))
    >>> 98 < noise.std() < 102
    np.True_
    """
    global _drawn
    if isinstance(sigma, bool) or not isinstance(sigma, Integral) or not 0 <= int(sigma) <= SIGMA_MAX:
        rule = f"must be a whole number of grid steps from 0 to {SIGMA_MAX}"
        raise InputError("sigma", sigma, rule, "choose a coarser or finer grid")
    if count < 0:
        raise InputError("count", count, "must not be negative", "give the length of the vector")
    if not sigma:
        return np.zeros(count, dtype=np.int64)
    _drawn += count
    many = _drawn > _WORTH_COMPILING or 2 * count >= _WORTH_COMPILING
    fill = kernel.compiled_fill() if many else kernel.fill
    out = np.empty(count, dtype=np.int64)
    done = 0
    left = np.empty(0, dtype=np.uint64)
    while done < count:
        wanted = min(_BATCH_MAX, _WORDS_PER_DRAW * (count - done) + 2 * kernel.RESERVE)
        words = np.concatenate((left, source.words(wanted)))
        done, used, state = fill(out, done, int(sigma), words, _constants())
        if state == kernel.UNDECIDED:
            raise ArithmeticError("512 random bits did not settle a comparison: no noise was drawn")
        left = words[used:]
    return out
