"""Several queries as one vector: every query gets its share of one privacy budget.

Noise is the same in every entry. A query's statistic is multiplied by sqrt(share) / spread, so that replacing one
record moves the whole vector by at most 1, and a query's own noise is that of a release with its share of mu^2.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tpmdp.queries.base import Query, Unit


def scales_of(queries: Sequence[Query]) -> list[float]:
    """What each statistic is multiplied by; a single query stays as it is.

    >>> from tpmdp.queries.count import Count
    >>> scales_of([Count("a", "age", at_least=1.0), Count("b", "age", at_least=2.0)])
    [0.7071067811865476, 0.7071067811865476]
    """
    if len(queries) == 1:
        return [1.0]
    whole = math.fsum(query.weight for query in queries)
    return [math.sqrt(query.weight / whole) / query.spread for query in queries]


def scaled_sensitivity(query: Query, scale: float, unit: Unit, records: int) -> float:
    """The sensitivity of the scaled statistic; each entry of it is rounded once to a double, before and after a change.

    >>> from tpmdp.queries.count import Count
    >>> scaled_sensitivity(Count("a", "age", at_least=1.0), 1.0, "record", 9)
    1.0
    """
    whole = query.sensitivity(unit, records)
    if scale == 1.0 or whole == 0:
        return whole
    rounding = 2.0**-51 * query.bound(records) * math.sqrt(query.dimension)
    return scale * (whole + rounding) * (1 + 2.0**-50)
