"""Numbers and names as text for tables and pictures."""

from __future__ import annotations

import math
from typing import Final

from tpmdp.spec import Spec

NAME_SHOWN: Final = 24
_DIGITS_MAX: Final = 9  # after the point
_PLAIN_MAX: Final = 1e15  # from here on numbers have an exponent


def number(value: float) -> str:
    """A number for a table: four significant digits.

    >>> number(17.84791), number(float("inf")), number(0.0)
    ('17.85', 'inf', '0')
    """
    return f"{value:.4g}"


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


def three_digits(value: float) -> str:
    """A size, to three significant digits.

    >>> three_digits(10370.2), three_digits(0.58553), three_digits(0.0)
    ('10,400', '0.586', '0')
    """
    return rounded(value, value / 10)


def plural(count: int, noun: str, many: str | None = None) -> str:
    """The count with its noun.

    >>> plural(1, "party", "parties"), plural(2, "receiver")
    ('1 party', '2 receivers')
    """
    return f"{count} {noun if count == 1 else many or noun + 's'}"


def short_name(spec: Spec, party: int, most: int = NAME_SHOWN) -> str:
    """The party's name, shortened for tables and pictures.

    >>> short_name(Spec(epsilon=1, delta=0.1, threshold=0, names=["hospital of the north 7"]), 0, 12)
    'hospi...th 7'
    """
    name = spec.name(party)
    if len(name) <= most:
        return name
    tail = (most - 3) // 2  # numbered names differ at their end
    return name[: most - 3 - tail] + "..." + name[-tail:]


def plain_number(value: float) -> float | str:
    """A number for JSON, which has no infinity."""
    return "inf" if math.isinf(value) else float(value)
