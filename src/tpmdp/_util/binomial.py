"""Exact bounds on a probability from a count (Clopper and Pearson 1934)."""

from __future__ import annotations

from scipy.special import betaincinv

from tpmdp.errors import InputError


def lower_bound(count: int, trials: int, doubt: float) -> float:
    """A bound that a probability is below with chance at most `doubt`, whatever the probability is.

    >>> round(lower_bound(10, 10, 0.05), 4), lower_bound(0, 10, 0.05)
    (0.7411, 0.0)
    """
    _check(count, trials, doubt)
    return float(betaincinv(count, trials - count + 1, doubt)) if count else 0.0


def upper_bound(count: int, trials: int, doubt: float) -> float:
    """A bound that a probability is above with chance at most `doubt`.

    >>> round(upper_bound(0, 10, 0.05), 4), upper_bound(10, 10, 0.05)
    (0.2589, 1.0)
    """
    _check(count, trials, doubt)
    return 1.0 - lower_bound(trials - count, trials, doubt)


def binomial_bounds(count: int, trials: int, confidence: float) -> tuple[float, float]:
    """An interval that holds the probability with at least this confidence.

    >>> tuple(round(end, 4) for end in binomial_bounds(190, 200, 0.95))
    (0.91, 0.9758)
    """
    doubt = (1.0 - confidence) / 2
    return lower_bound(count, trials, doubt), upper_bound(count, trials, doubt)


def _check(count: int, trials: int, doubt: float) -> None:
    if not 0 <= count <= trials or not trials:
        raise InputError("count", count, f"must be from 0 to the number of trials ({trials})", "count again")
    if not 0 < doubt < 1:
        raise InputError("doubt", doubt, "must lie between 0 and 1", "0.05 is usual")
