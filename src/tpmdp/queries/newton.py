"""Newton's method in plain Python: the same bits on every machine, for points that all parties must agree on.

Only + - * / of single doubles, comparisons and square roots, in a fixed order. `sum` is not used: since Python 3.12
it adds floats in another way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

Vector = list[float]
Matrix = list[list[float]]
STEP_MAX: Final = 4.0  # how far a step may move any linear predictor whose inputs lie in [-1, 1]
COEFFICIENT_MAX: Final = 50.0
_TINY: Final = 2.0**-30  # of the largest entry of the diagonal: less is rounding
_RIDGES: Final = 64


def dot(left: Sequence[float], right: Sequence[float]) -> float:
    """The inner product, added up from the left.

    >>> dot([1.0, 2.0], [3.0, 4.0])
    11.0
    """
    result = 0.0
    for a, b in zip(left, right, strict=True):
        result += a * b
    return result


def solve(form: Matrix, right: Vector, noise: float) -> Vector:
    """The solution of form @ x = right, drawn towards 0 where the form has no curvature above its noise.

    A ridge as large as the noise, then twice that, and so on, is added to the diagonal until every pivot of the
    Cholesky factor is above the noise. Zeros if nothing helps.

    >>> solve([[4.0, 0.0], [0.0, 9.0]], [4.0, 18.0], 0.1)
    [1.0, 2.0]
    >>> round(solve([[4.0, 0.0], [0.0, -1.0]], [4.0, 0.0], 1.0)[0], 9)
    0.5
    """
    size = len(right)
    diagonal = [form[place][place] for place in range(size)]
    if not (_finite(right) and all(_finite(row) for row in form) and math.isfinite(noise)):
        return [0.0] * size
    floor = max(noise, _TINY * max(diagonal), 2.0**-1000)
    ridge = 0.0
    for _ in range(_RIDGES):
        factor = _cholesky(form, ridge, floor)
        if factor is not None:
            return _back(factor, right)
        ridge = 2 * ridge if ridge else floor
    return [0.0] * size


def moved(point: Sequence[float], step: Sequence[float]) -> tuple[float, ...]:
    """The point after a step, which is shortened if it is longer than `STEP_MAX`.

    >>> moved((1.0, 2.0), (0.5, -0.5)), moved((0.0,), (99.0,))
    ((1.5, 1.5), (4.0,))
    """
    if not _finite(step):
        return tuple(point)
    length = 0.0
    for each in step:
        length += abs(each)
    scale = STEP_MAX / length if length > STEP_MAX else 1.0
    return bounded([at + scale * each for at, each in zip(point, step, strict=True)])


def bounded(point: Sequence[float]) -> tuple[float, ...]:
    """The point with every coefficient within +-`COEFFICIENT_MAX`; 0 for what is not a number.

    >>> bounded([0.5, -1e9, math.nan])
    (0.5, -50.0, 0.0)
    """
    return tuple(0.0 if math.isnan(each) else min(max(each, -COEFFICIENT_MAX), COEFFICIENT_MAX) for each in point)


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


def _cholesky(form: Matrix, ridge: float, floor: float) -> Matrix | None:
    """The lower factor of form + ridge; None if a pivot is not above the floor."""
    factor: Matrix = []
    for i, row in enumerate(form):
        line: Vector = []
        for j in range(i):
            line.append((row[j] - dot(line, factor[j][:j])) / factor[j][j])
        pivot = row[i] + ridge - dot(line, line)
        if not pivot > floor:
            return None
        factor.append([*line, math.sqrt(pivot)])
    return factor


def _back(factor: Matrix, right: Vector) -> Vector:
    half: Vector = []
    for i, line in enumerate(factor):
        half.append((right[i] - dot(line[:i], half)) / line[i])
    size = len(half)
    result = [0.0] * size
    for i in reversed(range(size)):
        rest = half[i]
        for j in range(i + 1, size):
            rest -= factor[j][i] * result[j]
        result[i] = rest / factor[i][i]
    return result
