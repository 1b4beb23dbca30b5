"""Names and texts as SQL, the same for DuckDB and SQLite."""

from __future__ import annotations


def literal(text: str) -> str:
    """Text as SQL.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A name as SQL.

    >>> identifier('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'
