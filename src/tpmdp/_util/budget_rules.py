"""Rules for budgets and sensitivities, stated once. `Spec` and the public calibration functions both call these."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from numbers import Real
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError

# Outside these ranges a variance could overflow or underflow a double.
EPSILON_MIN: Final = 1e-20
EPSILON_MAX: Final = 1e9
DELTA_MIN: Final = 1e-300
SENSITIVITY_MIN: Final = 1e-60
SENSITIVITY_MAX: Final = 1e60

Label = Callable[[int], str]


def party_number(index: int) -> str:
    """The label of an entry if parties have no names.

    >>> party_number(0)
    'party 1'
    """
    return f"party {index + 1}"


def _is_number(value: object) -> bool:
    """Whole numbers, fractions and decimals are numbers; truth values, texts and None are not."""
    return isinstance(value, Real | Decimal) and not isinstance(value, bool | np.bool_)


def as_floats(field: str, values: ArrayLike) -> FloatArray:
    """The values as a scalar or one-dimensional float array, or an `InputError`.

    >>> as_floats("epsilon", [1, 2])
    array([1., 2.])
    """
    if np.ma.is_masked(values):
        raise InputError(field, "masked array", "has missing values", "fill them in")
    try:
        raw = np.asarray(values)
        numbers = raw.dtype.kind in "fiu" or (
            raw.dtype.kind == "O" and raw.size > 0 and all(map(_is_number, raw.ravel().tolist()))
        )
        if not numbers:
            raise TypeError
        array = np.asarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(field, values, "is not a number or a list of numbers", "give plain numbers") from None
    if array.ndim > 1:
        raise InputError(
            field, f"array of shape {array.shape}", "has more than one dimension", "give one number per party"
        )
    return array


def _refuse(field: str, values: FloatArray, bad: NDArray[np.bool_], *, rule: str, remedy: str, label: Label) -> None:
    """Raise for the first entry where `bad` holds, naming its party."""
    if bad.any():
        flat = int(np.argmax(bad))
        value: Any = float(values.flat[flat])
        raise InputError(f"{field} of {label(flat)}" if values.ndim else field, value, rule, remedy)


def check_epsilon(epsilon: FloatArray, label: Label = party_number) -> None:
    """Epsilon is positive, or infinite for a party that asks for no protection.

    >>> check_epsilon(np.array([1.0, np.inf]))
    """
    with np.errstate(invalid="ignore"):
        bad = ~(epsilon > 0)
        remedy = "use a positive number, or inf for no protection"
        _refuse("epsilon", epsilon, bad, rule="must be greater than 0", remedy=remedy, label=label)
        bad = np.isfinite(epsilon) & ~((epsilon >= EPSILON_MIN) & (epsilon <= EPSILON_MAX))
        rule = f"must lie in [{EPSILON_MIN:g}, {EPSILON_MAX:g}] or be inf"
        remedy = "no smaller or larger finite budget is supported"
        _refuse("epsilon", epsilon, bad, rule=rule, remedy=remedy, label=label)


def check_delta(delta: FloatArray, epsilon: FloatArray, label: Label = party_number) -> None:
    """Delta lies strictly between 0 and 1; 0 is allowed only beside an infinite epsilon.

    >>> check_delta(np.array(1e-6), np.array([1.0, 2.0]))
    """
    delta, epsilon = np.broadcast_arrays(delta, epsilon)
    with np.errstate(invalid="ignore"):
        bad = ~((delta >= 0) & (delta < 1))
        remedy = "use a small probability such as 1e-6"
        _refuse("delta", delta, bad, rule="must lie in (0, 1)", remedy=remedy, label=label)
        bad = (delta == 0) & np.isfinite(epsilon)
        rule = "cannot be met by Gaussian noise, whose tails break pure epsilon-DP at every finite epsilon"
        _refuse("delta", delta, bad, rule=rule, remedy="use a small positive delta such as 1e-9", label=label)
        bad = (delta > 0) & (delta < DELTA_MIN)
        rule = f"must be at least {DELTA_MIN:g}"
        _refuse("delta", delta, bad, rule=rule, remedy="use a larger delta", label=label)


def check_sensitivity(sensitivity: FloatArray, label: Label = party_number) -> None:
    """Sensitivity is finite and not negative; 0 means the party's data cannot change the answer.

    >>> check_sensitivity(np.array([0.0, 2.5]))
    """
    with np.errstate(invalid="ignore"):
        bad = ~((sensitivity >= 0) & np.isfinite(sensitivity))
        remedy = "give the largest L2 change of the answer when this party's data changes"
        rule = "must be finite and not negative"
        _refuse("sensitivity", sensitivity, bad, rule=rule, remedy=remedy, label=label)
        bad = (sensitivity != 0) & ~((sensitivity >= SENSITIVITY_MIN) & (sensitivity <= SENSITIVITY_MAX))
        rule = f"must be 0 or lie in [{SENSITIVITY_MIN:g}, {SENSITIVITY_MAX:g}]"
        _refuse("sensitivity", sensitivity, bad, rule=rule, remedy="rescale the answer", label=label)
