"""A table comes back from its bytes as it was."""

from __future__ import annotations

import numpy as np

from tpmdp.data.encoding import decode_table, encode_table
from tpmdp.data.table import Column, Text


def test_tables_come_back_exactly() -> None:
    table: dict[str, Column] = {
        "größe": np.array([0.1, -0.0, 1e308, 5e-324, np.nextafter(1.0, 2.0)]),
        "ward": Text.of(["b", "ä\n", "", "b", "\x00"]),
        "flag": np.array([True, False, True, True, False]).astype(np.float64),
    }
    back = decode_table(encode_table(table))
    assert list(back) == list(table)
    for name, column in table.items():
        other = back[name]
        if isinstance(column, Text):
            assert isinstance(other, Text)
            assert (other.values, other.codes.tolist()) == (column.values, column.codes.tolist())
            assert other.places(["b", "x"]).tolist() == column.places(["b", "x"]).tolist()
        else:
            assert isinstance(other, np.ndarray)
            assert other.tobytes() == column.tobytes()


def test_empty_tables() -> None:
    assert decode_table(encode_table({})) == {}
    back = decode_table(encode_table({"x": np.zeros(0), "t": Text.of([])}))
    assert [len(column) for column in back.values()] == [0, 0]
