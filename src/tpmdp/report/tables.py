"""The style of every table on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table


def new_table(title: str, *headings: str) -> Table:
    """A table with these columns of text, which give way in a narrow terminal.

    >>> [column.header for column in new_table("Parties", "party").columns]
    ['party']
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(title=title, box=SIMPLE_HEAD, title_justify="left", caption_justify="left", padding=(0, 1))
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
