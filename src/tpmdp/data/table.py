"""A party's records as columns: numbers as doubles, text as codes into its distinct values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tpmdp._util.arrays import FloatArray, IntArray

Codes = NDArray[np.int32]
ColumnKind = Literal["number", "text"]


@dataclass(frozen=True, eq=False, repr=False)
class Text:
    """A column of text: record i has `values[codes[i]]`. Ten million records take 40 MB."""

    codes: Codes
    values: tuple[str, ...]

    @classmethod
    def of(cls, entries: Sequence[str]) -> Text:
        """A column from one string per record.

        >>> column = Text.of(["north", "south", "north"])
        >>> column.values, column.codes.tolist()
        (('north', 'south'), [0, 1, 0])
        """
        values = sorted(set(entries))
        place = {value: code for code, value in enumerate(values)}
        return cls(np.array([place[entry] for entry in entries], dtype=np.int32), tuple(values))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | NDArray[np.bool_] | IntArray) -> Text:
        return Text(self.codes[rows], self.values)

    def places(self, categories: Sequence[str]) -> IntArray:
        """For every record the position of its value among the categories, or -1.

        >>> Text.of(["north", "west", "south"]).places(["south", "north"])
        array([ 1, -1,  0])
        """
        where = {category: place for place, category in enumerate(categories)}
        lookup = np.array([where.get(value, -1) for value in self.values] or [-1], dtype=np.int64)
        return lookup[self.codes]


Column = FloatArray | Text
Table = Mapping[str, Column]  # columns of equal length
