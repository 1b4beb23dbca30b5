"""The style of every table on a terminal."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Column, Table

_TEXT_MIN: Final = 8  # columns of text may be folded to this width
_PADDING: Final = 3  # of a column, with what divides it from the next


@cache
def _table_class() -> type[Table]:
    """Rich is imported when a table is made, so that --help is quick."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    class FittingTable(Table):
        """A table that cuts nothing: where a terminal is too narrow for its numbers, each row is a block of lines."""

        def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
            if sum(map(_least_width, self.columns)) + 2 <= options.max_width:
                yield from super().__rich_console__(console, options)
                return
            yield Text.from_markup(str(self.title or ""), style="table.title")
            headings = [_heading(column) for column in self.columns]
            for cells in zip(*(list(column.cells) for column in self.columns), strict=True):
                first, *others = (_text(cell) for cell in cells)
                pairs = [f"{heading} {text}" for heading, text in zip(headings[1:], others, strict=True) if text]
                yield Text(f"{headings[0]} {first}", overflow="fold")
                if pairs:
                    yield Padding(Text("; ".join(pairs), overflow="fold"), (0, 0, 0, 2))
            if self.caption:
                yield Text.from_markup(str(self.caption), style="table.caption")
            yield ""

    return FittingTable


def _text(cell: Any) -> str:
    from rich.text import Text

    return Text.from_markup(str(cell)).plain


def _heading(column: Column) -> str:
    return _text(column.header).replace("-\n", "").replace("\n", " ")


def _least_width(column: Column) -> int:
    """How narrow a column may be: numbers are never cut, text is folded."""
    from rich.cells import cell_len

    lines = [line for cell in (column.header, *column.cells) for line in _text(cell).split("\n")]
    if column.justify == "right" or column.no_wrap:
        return _PADDING + max(map(cell_len, lines))
    widest = max((cell_len(word) for line in lines for word in line.split()), default=0)
    return _PADDING + min(widest, max(_TEXT_MIN, column.min_width or 0))


def new_table(title: str, *headings: str) -> Table:
    """A table with these columns of text, which give way in a narrow terminal.

    Where even that is too wide, every row becomes a block of lines: nothing is cut.

    >>> [column.header for column in new_table("Parties", "party").columns]
    ['party']
    """
    from rich.box import SIMPLE_HEAD

    table = _table_class()(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left", padding=(0, 1))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def add_numbers(table: Table, *headings: str) -> None:
    """Add columns of numbers.

    >>> table = new_table("Parties")
    >>> add_numbers(table, "epsilon", "delta")
    >>> [column.justify for column in table.columns]
    ['right', 'right']
    """
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)


def keep_numbers(table: Table) -> Table:
    """Never cut numbers: in a narrow terminal the columns of text give way."""
    for column in table.columns:
        if column.justify == "right":
            texts = [str(column.header), *map(str, column.cells)]
            column.min_width = max(len(line) for text in texts for line in text.split("\n"))
    return table
