"""Answers from weighted sums: the noise, the effect of weights unrelated to the data, and their worst effect.

A weighted sum, scaled back, errs by the noise and by a vector b, the sum over the records by which each party counts
too much or too little. If weights have nothing to do with the data, no direction of b has a standard deviation above
spread/2 times the imbalance of the weights; in any case b is at most as long as spread times the weight misplaced. The
query's own error bars, which assume errors of one size in all directions, cover both: Theory, "Weights".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from tpmdp._util.arrays import FloatArray
from tpmdp.planning.weights import Weights
from tpmdp.queries.answer import ALL_BINS, Z_95, Answer
from tpmdp.queries.base import Query

_ENDLESS: Final = (-math.inf, math.inf)


def assumption(queries: Sequence[Query], weights: Weights, share: float = 1.0) -> str:
    """What answers from weighted sums assume, in words.

    >>> import numpy as np
    >>> assumption([], Weights(np.array([1.0, 0.5]), np.ones(2), 1.0, 0.5))
    'the weights chosen have nothing to do with the data; if not so, only the wider interval holds'
    """
    varies = "" if share == 1 else f" and parties' averages vary by at most {100 * share:.4g} % of what they could"
    wider = f"{weights.assumes}{varies}; if not so, only the wider interval holds"
    models = [f"{query.name}: {query.model}" for query in queries if query.model]
    return ". ".join([wider, *models])


def weighted_answers(
    query: Query, total: FloatArray, records: int, *, noise: float, weights: Weights, share: float = 1.0
) -> list[Answer]:
    """The answers from a weighted sum scaled back, which has this standard error of noise in each entry.

    `share` is how much the averages of parties vary, as a share of the most they could.

    >>> import numpy as np
    >>> from tpmdp.queries.count import Count
    >>> half = Weights(np.array([1.0, 0.5]), np.array([10.0, 10.0]), 1.0, 0.5)
    >>> old = Count("old", "age", at_least=65.0)
    >>> (answer,) = weighted_answers(old, np.array([8.0]), 20, noise=1.0, weights=half)
    >>> round(answer.standard_error, 2), answer.noise, [round(limit, 1) for limit in answer.always]
    (2.7, 1.0, [2.7, 13.3])
    """
    plain = query.answers(total, records, noise)
    if weights.are_equal:
        return plain
    bias = query.spread * weights.misplaced
    likely = likely_error(query, noise, weights, share=share)
    wider, always = query.answers(total, records, likely), query.limits(total, records, noise, bias)
    if not len(plain) == len(wider) == len(always):  # a custom query whose number of answers depends on the noise
        return [
            _merged(answer, replace(answer, standard_error=math.inf, limits=_ENDLESS), _ENDLESS) for answer in plain
        ]
    return [_merged(*answers) for answers in zip(plain, wider, always, strict=True)]


def likely_error(query: Query, noise: float, weights: Weights, share: float) -> float:
    """The standard error of an entry, of noise and of weights that have nothing to do with the data; never too small.

    >>> import numpy as np
    >>> from tpmdp.queries.count import Count
    >>> half = Weights(np.array([1.0, 0.5]), np.array([10.0, 10.0]), 1.0, 0.5)
    >>> round(likely_error(Count("old", "age", at_least=65.0), 1.0, half, share=1.0), 2)
    2.7
    """
    bias = query.spread * weights.misplaced
    return min(math.hypot(noise, share * query.spread / 2 * weights.dealt), noise + bias / Z_95)


def _merged(plain: Answer, wider: Answer, always: tuple[float, float]) -> Answer:
    """The answer with error bars that count weights; the interval that always holds is never the narrower.

    Further intervals are left out, as what sampling does to a weighted sum is not known, except bands: errors that
    depend on each other leave them no more often (Sidak 1967).
    """
    low, high = wider.interval
    return replace(
        plain,
        standard_error=wider.standard_error,
        limits=wider.limits if wider.limits is not None or wider.value == plain.value else wider.interval,
        note=plain.note or wider.note,
        noise=plain.standard_error,
        always=(min(low, always[0]), max(high, always[1])),
        further=tuple(each for each in wider.further if each.covers == ALL_BINS),
    )
