"""What a client adds to the sum: its clipped update times its weight, and the number of its examples.

With counts, a client of share m (its examples over the most that count) contributes (m u, m h) with an update u of norm
at most c and h just below sqrt(3) c. All such vectors lie within 2 c of each other, as all u do: the count costs
nothing. Theory, "Model updates".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError

ENTRIES_MAX: Final = 1 << 26  # up to here rounding takes less of a norm than _MARGIN leaves
_MARGIN: Final = 2.0**-26
_HEIGHT: Final = 1.7320508  # below sqrt(3)
_UP: Final = 1.0 + 2.0**-50


def is_trained(array: NDArray[Any]) -> bool:
    """Whether an array of a model is part of the update: floats are; counters stay as they are.

    >>> is_trained(np.zeros(2)), is_trained(np.zeros(2, dtype=int))
    (True, False)
    """
    return array.dtype.kind == "f"


def flatten(arrays: Sequence[NDArray[Any]]) -> FloatArray:
    """All trained entries of a model, one after the other.

    >>> flatten([np.ones((2, 1)), np.array([7]), np.zeros(1)])
    array([1., 1., 0.])
    """
    parts = [array.astype(np.float64).ravel() for array in arrays if is_trained(array)]
    return np.concatenate(parts) if parts else np.zeros(0)


def moved(arrays: Sequence[NDArray[Any]], update: FloatArray) -> list[NDArray[Any]]:
    """The model after an update.

    >>> moved([np.ones((2, 1), dtype=np.float32), np.array([7])], np.array([1.0, 2.0]))
    [array([[2.],
           [3.]], dtype=float32), array([7])]
    """
    after, start = [], 0
    for array in arrays:
        if is_trained(array):
            part = update[start : start + array.size].reshape(array.shape)
            after.append(np.asarray(array.astype(np.float64) + part, dtype=array.dtype))
            start += array.size
        else:
            after.append(array)
    return after


def update_of(before: Sequence[NDArray[Any]], after: Sequence[NDArray[Any]]) -> FloatArray:
    """How training has moved a model.

    >>> update_of([np.zeros(2)], [np.array([1.0, -1.0])])
    array([ 1., -1.])
    """
    if [array.shape for array in before] != [array.shape for array in after]:
        rule = "must have the shapes of the model it was given"
        raise InputError("trained model", f"{len(after)} arrays", rule, "return all arrays, in the same order")
    trained = [(old, new) for old, new in zip(before, after, strict=True) if is_trained(old)]
    return flatten([new.astype(np.float64) for _, new in trained]) - flatten([old for old, _ in trained])


def clipped(update: FloatArray, clip: float) -> FloatArray:
    """The update, shortened to a norm of at most `clip` in spite of rounding; zero if it is not finite.

    >>> clipped(np.array([3.0, 4.0]), 1.0).round(6), clipped(np.array([0.3, 0.4]), 1.0)
    (array([0.6, 0.8]), array([0.3, 0.4]))
    """
    if update.size > ENTRIES_MAX:
        raise InputError("entries of the model", update.size, f"must be at most {ENTRIES_MAX}", "train fewer of them")
    largest = float(np.max(np.abs(update), initial=0.0))
    if not math.isfinite(largest) or largest == 0:
        return np.zeros_like(update)
    scaled = update / largest  # so that no square overflows or vanishes
    norm, allowed = math.sqrt(float(np.sum(scaled**2))), clip * (1 - _MARGIN)
    return update if norm <= allowed / largest else scaled * (allowed / norm)


def height(clip: float) -> float:
    """The last entry of a contribution with a full share of examples.

    >>> height(1.0)
    1.7320508
    """
    return _HEIGHT * clip


def contribution(update: FloatArray, clip: float, weight: float, share: float | None = None) -> FloatArray:
    """The vector of a client; `share` is None where examples are not counted.

    >>> contribution(np.array([3.0, 4.0]), 1.0, 0.5).round(6), contribution(np.zeros(1), 1.0, 0.5, 1.0)
    (array([0.3, 0.4]), array([0.       , 0.8660254]))
    """
    short = clipped(update, clip)
    if share is None:
        return short * weight
    part = min(max(share, 0.0), 1.0) * weight
    return np.append(short * part, height(clip) * part)


def diameter(clip: float, weight: float) -> float:
    """The largest distance of two contributions of a client, rounded up: its sensitivity.

    >>> 2.0 <= diameter(1.0, 1.0) < 2.000001
    True
    """
    return 2.0 * clip * weight * _UP


def bound(clip: float, weight: float, counted: bool) -> float:
    """The largest entry of a contribution, rounded up.

    >>> bound(1.0, 0.0, True)
    0.0
    """
    return (height(clip) if counted else clip) * weight * _UP


def average(total: FloatArray, clip: float, weights: FloatArray, counted: bool) -> tuple[FloatArray, float]:
    """The average update from the sum of contributions, and the divisor.

    `weights` are those of the clients in the sum. The noisy number of examples counts as at least one full client's.

    >>> average(np.array([4.0]), 1.0, np.array([1.0, 1.0]), False)
    (array([2.]), 2.0)
    """
    if not counted:
        divisor = math.fsum(weights.tolist())
        return total / divisor, divisor
    divisor = max(float(total[-1]) / height(clip), float(weights.max()))
    return total[:-1] / divisor, divisor
