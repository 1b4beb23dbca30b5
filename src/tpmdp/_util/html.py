"""Values as HTML, for notebooks. Every text is escaped, and isolated: letters of any direction stay in their cell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape
from typing import Final

ROWS_MAX: Final = 40
_NUMBER: Final = re.compile(r"[-+]?[0-9][0-9.,]*(e[-+]?[0-9]+)?( %)?|inf|-")


def html_text(text: str, tag: str = "span") -> str:
    """Text in a tag.

    >>> html_text("<b>north</b>")
    '<span><bdi>&lt;b&gt;north&lt;/b&gt;</bdi></span>'
    """
    return f"<{tag}><bdi>{escape(text)}</bdi></{tag}>"


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], total: int | None = None) -> str:
    """A table of texts; columns of numbers are aligned to the right, and rows beyond 40 are counted.

    `total` is how many rows there are, if the caller gives only the first.

    >>> html_table(["party", "epsilon"], [["north", "1"]]).count("text-align:right")
    2
    """
    numeric = [any(_NUMBER.fullmatch(row[place]) for row in rows) for place in range(len(headings))]
    lines = [_row("th", headings, numeric), *(_row("td", row, numeric) for row in rows[:ROWS_MAX])]
    hidden = (len(rows) if total is None else total) - min(len(rows), ROWS_MAX)
    more = f'<tr><td colspan="{len(headings)}">... {hidden} more</td></tr>' if hidden > 0 else ""
    return f"<table><thead>{lines[0]}</thead><tbody>{''.join(lines[1:])}{more}</tbody></table>"


def _row(tag: str, cells: Sequence[str], numeric: Sequence[bool]) -> str:
    sides = ["right" if right else "left" for right in numeric]
    pairs = zip(cells, sides, strict=True)
    return "<tr>" + "".join(_cell(tag, cell, side) for cell, side in pairs) + "</tr>"


def _cell(tag: str, cell: str, side: str) -> str:
    return f'<{tag} style="text-align:{side};padding:0.1em 0.6em"><bdi>{escape(cell)}</bdi></{tag}>'
