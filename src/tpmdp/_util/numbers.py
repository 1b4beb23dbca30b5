"""Numbers and counts as text, for tables on a terminal and in a notebook."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
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


def rounded(value: float, error: float, whole: bool = False) -> str:
    """A number rounded to two significant digits of its standard error; a count to a whole number.

    >>> rounded(-51128.3, 3904.0), rounded(6.5213, 0.2505), rounded(12.0, 0.0), rounded(1e30, 1e25)
    ('-51,100', '6.52', '12', '1e+30')
    >>> rounded(561.27, 0.9), rounded(561.27, 0.9, whole=True), rounded(12345.0, 0.0, whole=True)
    ('561.27', '561', '12,345')
    """
    digits = _digits(value, error, whole)
    if digits is None:
        return f"{value:,.10g}" if error == 0 and abs(value) < _PLAIN_MAX else number(value)
    return f"{round(value, digits) + 0.0:,.{max(digits, 0)}f}"


def interval(low: float, high: float, error: float, whole: bool = False) -> str:
    """An interval rounded like its value, always outwards: what is shown is never narrower than what holds.

    >>> interval(536.6, 585.2, 12.4), interval(559.1, 562.9, 0.97, whole=True), interval(-math.inf, 1.0, 1.0)
    ('536 to 586', '559 to 563', 'none')
    >>> interval(34.02, math.inf, 1.0)
    '34.0 or more'
    """
    if high == math.inf and math.isfinite(low):
        return f"{_outwards(low, _digits(low, error, whole), ROUND_FLOOR)} or more"
    if not math.isfinite(high - low):
        return "none"
    ends = ((low, ROUND_FLOOR), (high, ROUND_CEILING))
    return " to ".join(_outwards(end, _digits(end, error, whole), rounding) for end, rounding in ends)


def _digits(value: float, error: float, whole: bool) -> int | None:
    """How many digits after the point are shown (negative: as many before it are 0); None for a number as it is."""
    if not math.isfinite(value) or abs(value) >= _PLAIN_MAX or math.isnan(error) or math.isinf(error):
        return None
    if error <= 0:
        return 0 if whole else None
    digits = 1 - math.floor(math.log10(error))
    if whole:
        digits = min(digits, 0)
    return None if digits > _DIGITS_MAX or error >= _PLAIN_MAX else digits


def _outwards(value: float, digits: int | None, rounding: str) -> str:
    exact = Decimal(repr(float(value)))
    if digits is None:
        return f"{exact:,}" if exact.adjusted() < math.log10(_PLAIN_MAX) else f"{exact:e}"
    step = Decimal(1).scaleb(-digits)
    shown = (exact / step).to_integral_value(rounding) * step + 0
    return f"{shown:,.{max(digits, 0)}f}"


def plural(count: int, noun: str, many: str | None = None) -> str:
    """The count with its noun.

    >>> plural(1, "party", "parties"), plural(2, "receiver")
    ('1 party', '2 receivers')
    """
    return f"{count} {noun if count == 1 else many or noun + 's'}"
