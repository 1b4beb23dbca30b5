"""Rows as a data frame, where pandas is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpmdp.errors import MissingDependencyError


def data_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame with a row for each mapping.

    >>> data_frame([{"party": "north", "epsilon": 1.0}]).shape
    (1, 2)
    """
    try:
        import pandas  # type: ignore[import-untyped]
    except ImportError:
        raise MissingDependencyError("pandas", "pandas", "to make a data frame") from None
    return pandas.DataFrame(list(rows))
