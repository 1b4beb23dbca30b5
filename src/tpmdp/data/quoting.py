"""Names and strings quoted for SQL, alike in DuckDB and SQLite."""

from __future__ import annotations


def literal(text: str) -> str:
    """A string literal.

    >>> print(literal("it's"))
    'it''s'
    """
    return "'" + text.replace("'", "''") + "'"


def identifier(name: str) -> str:
    """A quoted identifier.

    >>> identifier('a "b" c')
    '"a ""b"" c"'
    """
    return '"' + name.replace('"', '""') + '"'
