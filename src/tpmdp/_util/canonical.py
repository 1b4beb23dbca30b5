"""The one canonical JSON, for texts that are hashed or signed: equal values have equal texts.

Keys are sorted, there are no blanks, all characters are ASCII, and NaN and infinity are refused. Floats that must
survive exactly are written as hexadecimal text, because decimal digits may differ between writers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical_json(value: Any) -> str:
    """The canonical text of plain JSON values.

    >>> canonical_json({"b": [1, None], "a": "é"})
    '{"a":"\\\\u00e9","b":[1,null]}'
    """
    return _ENCODER.encode(value)


def to_hex(values: Iterable[float]) -> list[str]:
    """Floats as exact hexadecimal text.

    >>> to_hex([0.5, float("inf")])
    ['0x1.0000000000000p-1', 'inf']
    """
    return [value.hex() for value in values]


def from_hex(texts: Iterable[str]) -> list[float]:
    """The floats that `to_hex` wrote.

    >>> from_hex(["0x1.0000000000000p-1"])
    [0.5]
    """
    return [float.fromhex(text) for text in texts]
