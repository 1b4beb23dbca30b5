"""Answers from weighted sums: the noise, what the weights do if the data are unrelated to them, and the worst they do.

A weighted sum, scaled back, errs by the noise and by a vector b: that of the records by which each party counts too
much or too little. No direction of b has a standard deviation above spread/2 times the imbalance of the weights, if
those have nothing to do with the data; and b is never longer than spread times the weight misplaced. So a query's own
error bars, made for errors of one size in all directions, hold for both: docs/theory.md, "Weights".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tpmdp._util.arrays import FloatArray
from tpmdp.planning.weights import Weights
from tpmdp.queries.base import Z_95, Answer, Query

_ENDLESS: Final = (-math.inf, math.inf)


def assumption(queries: Sequence[Query], weights: Weights, share: float = 1.0) -> str:
    """What answers from weighted sums rest on, in words.

    >>> import numpy as np
    >>> assumption([], Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5))
    'the weights chosen have nothing to do with the data; if not so, only the wider interval holds'
    """
    varies = "" if share == 1 else f" and parties' averages vary by at most {100 * share:.4g} % of what they could"
    wider = f"{weights.assumes}{varies}; if not so, only the wider interval holds"
    models = [f"{query.name}: {query.model}" for query in queries if query.model]
    return ". ".join([wider, *models])


def weighted_answers(
    query: Query, total: FloatArray, records: int, noise: float, weights: Weights, share: float = 1.0
) -> list[Answer]:
    """From the weighted sum scaled back, which has this standard error of noise in each entry.

    `share` is how much parties' averages vary, of the most they could.

    >>> import numpy as np
    >>> from tpmdp.queries.count import Count
    >>> half = Weights(np.array([1.0, 0.5]), np.array([10.0, 10.0]), 1.0, 0.5)
    >>> (answer,) = weighted_answers(Count("old", "age", at_least=65.0), np.array([8.0]), 20, 1.0, half)
    >>> round(answer.standard_error, 2), answer.noise, [round(limit, 1) for limit in answer.always]
    (2.7, 1.0, [2.7, 13.3])
    """
    plain = query.answers(total, records, noise)
    if weights.are_equal:
        return plain
    bias = query.spread * weights.misplaced
    likely = min(math.hypot(noise, share * query.spread / 2 * weights.dealt), noise + bias / Z_95)
    wider, always = query.answers(total, records, likely), query.limits(total, records, noise, bias)
    if not len(plain) == len(wider) == len(always):  # a query of one's own, whose answers depend on the noise
        return [_merged(one, replace(one, standard_error=math.inf, limits=_ENDLESS), _ENDLESS) for one in plain]
    return [_merged(*one) for one in zip(plain, wider, always, strict=True)]


def _merged(plain: Answer, wider: Answer, always: tuple[float, float]) -> Answer:
    """The answer with the error bars that count weights; what holds always is never the narrower."""
    low, high = wider.interval
    return replace(
        plain,
        standard_error=wider.standard_error,
        limits=wider.limits if wider.limits is not None or wider.value == plain.value else wider.interval,
        note=plain.note or wider.note,
        noise=plain.standard_error,
        always=(min(low, always[0]), max(high, always[1])),
    )
