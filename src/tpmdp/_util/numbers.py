"""Numbers and counts as text, for tables on a terminal and in a notebook."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, Context
from typing import Final

_DIGITS_MAX: Final = 9  # after the point
_PLAIN_MAX: Final = 1e15  # from here on numbers have an exponent


def number(value: float) -> str:
    """A number for a table: four significant digits.

    >>> number(17.84791), number(float("inf")), number(0.0)
    ('17.85', 'inf', '0')
    """
    return f"{value:.4g}"


def number_up(value: float) -> str:
    """Four significant digits, never smaller than the value.

    >>> number_up(0.8), number_up(0.80001), number_up(float("inf")), number_up(1234567.0)
    ('0.8', '0.8001', 'inf', '1.235e+06')
    """
    if not math.isfinite(value):
        return number(value)
    return number(float(Context(prec=4, rounding=ROUND_CEILING).create_decimal(repr(value))))


def rounded(value: float, error: float) -> str:
    """A number rounded to two significant digits of its standard error.

    >>> rounded(-51128.3, 3904.0), rounded(6.5213, 0.2505), rounded(12.0, 0.0), rounded(1e30, 1e25)
    ('-51,100', '6.52', '12', '1e+30')
    """
    if not (error > 0 and math.isfinite(error) and math.isfinite(value)):
        return number(value)
    digits = 1 - math.floor(math.log10(error))
    if digits > _DIGITS_MAX or max(abs(value), error) >= _PLAIN_MAX:
        return number(value)
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """The count with its noun.

    >>> plural(1, "party", "parties"), plural(2, "receiver")
    ('1 party', '2 receivers')
    """
    return f"{count} {noun if count == 1 else many or noun + 's'}"
