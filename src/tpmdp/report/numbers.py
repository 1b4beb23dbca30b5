"""Numbers and names as text for tables and pictures."""

from __future__ import annotations

import math
from typing import Final

from tpmdp._util.numbers import interval as interval
from tpmdp._util.numbers import number as number
from tpmdp._util.numbers import plural as plural
from tpmdp._util.numbers import rounded as rounded
from tpmdp.spec import Spec

NAME_SHOWN: Final = 24


def three_digits(value: float) -> str:
    """A size, to three significant digits.

    >>> three_digits(10370.2), three_digits(0.58553), three_digits(0.0)
    ('10,400', '0.586', '0')
    """
    return rounded(value, value / 10)


def plus_minus(text: str) -> str:
    """A number with its sign, which no line break separates.

    >>> plus_minus("16.8") == "±\\u00a016.8"
    True
    """
    return f"±\u00a0{text}"


def with_sign(text: str) -> str:
    """A text of the command line with the sign that pages have.

    >>> with_sign("about +- 1.96") == "about ±\\u00a01.96"
    True
    """
    return text.replace("+- ", plus_minus("")).replace("+-", "±")


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
