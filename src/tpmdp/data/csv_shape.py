"""Is a CSV file so regular that a fast reader cannot misread it? One pass over its bytes, before DuckDB parses it.

DuckDB forgives what the Python reader refuses: an empty value too many, blanks around quotes, bytes that are not UTF-8
in columns nobody asked for. This pass finds all of that, so that the fast reader gets only files both read alike.
"""

from __future__ import annotations

import codecs
import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from tpmdp._util.arrays import BoolArray

_BLOCK: Final = 1 << 20  # fits into a cache
_COMMA, _LINE_FEED, _QUOTE, _RETURN = b',\n"\r'
_AFTER_QUOTE: Final = np.isin(np.arange(256), list(b',\n\r"'))
_BEFORE_QUOTE: Final = np.isin(np.arange(256), list(b',\n"'))


@dataclass
class Shape:
    """What is in a regular file: lines that are not empty, commas between values, and how lines end."""

    lines: int = 0
    commas: int = 0
    line_end: Literal["\n", "\r\n"] = "\n"
    quoted_line_ends: bool = False
    odd_numbers: bool = False  # there may be what DuckDB takes for a number and float() does not: 1_0 and +-1
    _open: bool = False  # a quoted value goes on in the next block
    _line_start: int = 0
    _position: int = 0

    def add(self, block: bytes, line_max: int) -> bool:
        """Take in the next block, which ends with a line feed or the file; False where it is not regular."""
        if b"\0" in block or not _is_utf8(block):
            return False
        if not self._position:
            self.line_end = "\r\n" if b"\r\n" in block else "\n"
        returns = block.count(b"\r")
        if returns and (self.line_end == "\n" or not returns == block.count(b"\r\n") == block.count(b"\n")):
            return False
        if self.line_end == "\r\n" and returns != block.count(b"\n"):
            return False
        self.odd_numbers |= b"_" in block or b"+-" in block
        content = np.frombuffer(block, dtype=np.uint8)
        separators, ends = content == _COMMA, content == _LINE_FEED
        if self._open or b'"' in block:
            outside = self._outside_quotes(content)
            if outside is None:
                return False
            self.quoted_line_ends |= bool((ends & ~outside).any())
            separators, ends = separators & outside, ends & outside
        self.commas += int(np.count_nonzero(separators))
        return self._count_lines(np.flatnonzero(ends), len(block), line_max)

    def _outside_quotes(self, content: NDArray[np.uint8]) -> BoolArray | None:
        """Which bytes are outside quotes; None where a quote is not at the edge of a value."""
        quotes = content == _QUOTE
        inside: BoolArray = ((np.cumsum(quotes, dtype=np.uint8) + np.uint8(self._open)) & 1).astype(np.bool_)
        opening, closing = np.flatnonzero(quotes & inside), np.flatnonzero(quotes & ~inside)
        before = content[opening[opening > 0] - 1]
        after = content[closing[closing < len(content) - 1] + 1]
        if not (_BEFORE_QUOTE[before].all() and _AFTER_QUOTE[after].all()):
            return None
        # A quote in front of an opening quote must be a closing one (`""` in a value): parity says it is.
        self._open = bool(inside[-1])
        return ~inside

    def _count_lines(self, ends: NDArray[np.intp], size: int, line_max: int) -> bool:
        starts = np.concatenate(([self._line_start], ends + self._position + 1))
        lengths = np.diff(starts)
        self._position += size
        self._line_start = int(starts[-1])
        self.lines += int(np.count_nonzero(lengths > len(self.line_end)))
        return max(int(lengths.max(initial=0)), self._position - self._line_start) <= line_max

    def finish(self) -> bool:
        """After the last block: count a last line without an end; False where a quote is still open."""
        self.lines += self._line_start < self._position
        return not self._open


def _is_utf8(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def measure(path: Path) -> Shape | None:
    """The shape of a regular file, or None.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bank.csv"
    ...     _ = file.write_text("age,stay" + chr(10) + "70,3" + chr(10) + "41,1.5" + chr(10))
    ...     shape = measure(file)
    ...     shape.lines, shape.commas
    (3, 3)
    """
    shape = Shape()
    line_max = csv.field_size_limit()  # a shorter line has no value that is too long for the Python reader
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            block += file.readline(line_max)
            if not block.endswith(b"\n") and file.read(1):
                return None  # a line beyond the limit
            block = block.removeprefix(codecs.BOM_UTF8) if file.tell() == len(block) else block
            if not shape.add(block, line_max):
                return None
    return shape if shape.finish() else None
