"""The optimal plan in O(n): one function per theorem of the paper, by selection instead of sorting.

Paper symbol -> name: sigma_Gamma^2 -> need, sigma_i^2 -> variance, t -> threshold, U+ -> receivers, xi -> rank,
sigma_Gamma(xi)^2 -> quota, n - |U+| - t + 1 -> divisor. All roundings go up, so the privacy inequalities hold exactly
for the returned doubles; Theory, "Rounding".
"""

from __future__ import annotations

import math
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray


class Case(StrEnum):
    """Where in the paper a plan comes from."""

    NO_ADVERSARY = "no adversary"
    ALL_RECEIVE = "Alg. 2"
    MANY_RECEIVERS = "Alg. 3, case 1"
    ONE_RECEIVER = "Alg. 3, case 2"
    SOME_RECEIVERS = "Alg. 3, case 3"
    FEW_RECEIVERS = "Alg. 3, case 4"
    PERSONAL_THRESHOLDS = "linear program"


class Ranking(NamedTuple):
    """The rank xi of Alg. 2 and the weight (2n - t)/(n - t) - xi of its last need, as numerator over n - t."""

    rank: int
    weight_numerator: int


def case_of(count: int, threshold: int, receiver_count: int) -> Case:
    """Which case of the paper applies (Section "Utility-Maximizing Algorithm").

    >>> case_of(5, 2, 5).value, case_of(5, 2, 1).value, case_of(9, 2, 3).value
    ('Alg. 2', 'Alg. 3, case 2', 'Alg. 3, case 4')
    """
    if threshold == 0 or receiver_count == 0:
        return Case.NO_ADVERSARY
    if receiver_count == count:
        return Case.ALL_RECEIVE
    if receiver_count >= count - threshold + 1:
        return Case.MANY_RECEIVERS
    if receiver_count == 1:
        return Case.ONE_RECEIVER
    if count <= threshold * receiver_count:
        return Case.SOME_RECEIVERS
    return Case.FEW_RECEIVERS


def ranking(count: int, threshold: int) -> Ranking:
    """xi and its weight for Alg. 2 on `count` parties; threshold 0 is Lemma 2's second case (one receiver, t = 1).

    >>> ranking(5, 2)
    Ranking(rank=2, weight_numerator=2)
    """
    honest = count - threshold
    rank = min((2 * count - threshold) // honest, threshold + 1)
    return Ranking(rank, 2 * count - threshold - rank * honest)


def quotient_up(value: float, divisor: int) -> float:
    """The least double whose exact product with the divisor is at least value.

    >>> quotient_up(6.0, 3), quotient_up(1.0, 3) > 1 / 3
    (2.0, True)
    """
    quotient = value / divisor
    if Fraction(quotient) * divisor < Fraction(value):
        return math.nextafter(quotient, math.inf)
    return quotient


def top_up(need: FloatArray, share: float, others: int) -> FloatArray:
    """What each strict party must add to `others` shares: need - others * share, rounded up, at least a share.

    >>> top_up(np.array([10.0]), 1.0, 2)
    array([8.])
    """
    help_down = np.nextafter(others * share, 0.0) if others and share else 0.0
    difference = need - help_down
    exact = (share == 0.0) or others == 0
    return np.maximum(difference if exact else np.nextafter(difference, np.inf), share)


def all_receive(need: FloatArray, threshold: int) -> FloatArray:
    """Alg. 2 (Theorem 2): every party adds an equal share of the quota, stricter parties also what they lack.

    >>> all_receive(np.array([4.0, 1.0, 1.0, 1.0]), 1).round(6)
    array([3.333333, 0.333333, 0.333333, 0.333333])
    """
    count = len(need)
    honest = count - threshold
    rank = ranking(count, threshold).rank
    variance = np.partition(need, count - rank)  # a copy, which holds the answer once the quota is read
    quota = float(variance[count - rank])
    share = quotient_up(quota, honest)
    variance.fill(share)
    strict = np.flatnonzero(need > quota)
    variance[strict] = top_up(need[strict], share, honest - 1)
    return variance


def one_receiver(need: FloatArray, threshold: int, receivers: BoolArray) -> FloatArray:
    """Alg. 3, case 2: the receiver adds nothing; the others are planned as if they were all and one fewer colluded.

    >>> one_receiver(np.array([9.0, 2.0, 2.0]), 1, np.array([True, False, False]))
    array([0., 1., 1.])
    """
    at = int(np.argmax(receivers))
    others = all_receive(np.concatenate((need[:at], need[at + 1 :])), threshold - 1)
    return np.concatenate((others[:at], [0.0], others[at:]))


def two_largest(values: FloatArray) -> tuple[int, float, float]:
    """The index and value of the largest entry, and the second largest value (0 if there is none).

    >>> two_largest(np.array([3.0, 7.0, 5.0])), two_largest(np.array([3.0]))
    ((1, 7.0, 5.0), (0, 3.0, 0.0))
    """
    best = int(np.argmax(values))
    rest = max(float(values[:best].max(initial=0.0)), float(values[best + 1 :].max(initial=0.0)))
    return best, float(values[best]), rest


def few_receivers(need: FloatArray, threshold: int, receivers: BoolArray) -> FloatArray:
    """Alg. 3, case 4: the noise comes from the parties that do not receive.

    >>> few_receivers(np.array([1.0, 1.0, 6.0, 4.0, 4.0]), 1, np.array([True, True, False, False, False]))
    array([0., 0., 2., 2., 2.])
    """
    divisor = len(need) - int(np.count_nonzero(receivers)) - threshold + 1
    top_inside, inside, second_inside = two_largest(np.where(receivers, need, 0.0))
    top_outside, outside, second_outside = two_largest(np.where(receivers, 0.0, need))
    alpha, beta = max(outside, second_inside), max(inside, second_outside)
    if threshold == 1 or alpha <= beta:
        variance = np.where(receivers, 0.0, quotient_up(alpha, divisor))
        if inside > alpha:  # at most one receiver: alpha is at least the second largest
            variance[top_inside] = math.nextafter(inside - alpha, math.inf)
    else:
        share = quotient_up(beta, divisor)
        variance = np.where(receivers, 0.0, share)
        variance[top_outside] = top_up(need[top_outside : top_outside + 1], share, divisor - 1)[0]
    return variance


def optimal_variance(need: FloatArray, threshold: int, receivers: BoolArray) -> tuple[FloatArray, Case]:
    """Alg. 3: the variances of least total for these needs, rounded up, and the case they came from.

    >>> optimal_variance(np.array([4.0, 1.0]), 1, np.array([True, True]))
    (array([4., 1.]), <Case.ALL_RECEIVE: 'Alg. 2'>)
    """
    case = case_of(len(need), threshold, int(np.count_nonzero(receivers)))
    if case is Case.NO_ADVERSARY:
        return np.zeros(len(need)), case
    if case is Case.ONE_RECEIVER:
        return one_receiver(need, threshold, receivers), case
    if case is Case.FEW_RECEIVERS:
        return few_receivers(need, threshold, receivers), case
    return all_receive(need, threshold), case
