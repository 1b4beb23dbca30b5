"""A table of records as bytes, for a party's own state: a short header in JSON, then the columns as plain numbers."""

from __future__ import annotations

import json
from typing import Any, Final

import numpy as np

from tpmdp.data.table import Column, Table, Text

_NUMBERS: Final = "<f8"
_CODES: Final = "<i4"
_SIZE_BYTES: Final = 8


def encode_table(table: Table) -> bytes:
    """The table as bytes; exact.

    >>> table = {"age": np.array([70.0, 20.5]), "ward": Text.of(["b", "a"])}
    >>> back = decode_table(encode_table(table))
    >>> back["age"].tolist(), back["ward"].values, back["ward"].codes.tolist()
    ([70.0, 20.5], ('a', 'b'), [1, 0])
    """
    header: list[dict[str, Any]] = []
    blocks = []
    for name, column in table.items():
        if isinstance(column, Text):
            header.append({"name": name, "rows": len(column), "values": list(column.values)})
            blocks.append(column.codes.astype(_CODES).tobytes())
        else:
            header.append({"name": name, "rows": len(column)})
            blocks.append(np.asarray(column).astype(_NUMBERS).tobytes())
    text = json.dumps(header).encode()
    return b"".join([len(text).to_bytes(_SIZE_BYTES, "big"), text, *blocks])


def decode_table(data: bytes) -> dict[str, Column]:
    """The inverse of `encode_table`; of bytes that this party wrote and sealed."""
    place = _SIZE_BYTES + int.from_bytes(data[:_SIZE_BYTES], "big")
    header = json.loads(data[_SIZE_BYTES:place])
    table: dict[str, Column] = {}
    for entry in header:
        kind = np.dtype(_CODES if "values" in entry else _NUMBERS)
        end = place + entry["rows"] * kind.itemsize
        values = np.frombuffer(data[place:end], dtype=kind)
        place = end
        if "values" in entry:
            table[entry["name"]] = Text(values.astype(np.int32), tuple(entry["values"]))
        else:
            table[entry["name"]] = values.astype(np.float64)
    return table
