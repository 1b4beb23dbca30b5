"""Weighted plans: privacy against every coalition, least noise, certificates, files, and what the weights rest on.

The truth here is made from the definitions: coalitions are enumerated, delta is computed in 80 digits, the least noise
is a linear program with a row for each coalition, and the best weights are those of a generic optimiser.
"""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction
from itertools import permutations, product
from pathlib import Path
from typing import Any, Final

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq, linprog, minimize
from scipy.special import log_ndtr, ndtr

from tests.oracles import DIGITS, dangerous_coalitions, exact_delta, least_honest
from tpmdp import CertificateError, InputError, Plan, Spec, plan
from tpmdp.errors import FileError
from tpmdp.planning.balance import balance
from tpmdp.planning.plan_file import plan_document, read_plan, write_plan
from tpmdp.planning.weights import Weights, make_weights, shortened

pytestmark = pytest.mark.filterwarnings("ignore::tpmdp.errors.NoNoiseWarning")

EPSILONS: Final = [0.1, 0.1, 1.0, 1.0, 3.0, math.inf, 1e-5, 1e3, 0.02]
WEIGHTS: Final = [0.0, 1.0, 1.0, 1 / 3, 0.1, 0.7, 1e-12, 1e-3]


def mu_for(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has this delta at this epsilon, by bisection."""

    def surplus(logarithm: float) -> float:
        mu = math.exp(logarithm)
        above = math.exp(min(epsilon + float(log_ndtr(-mu / 2 - epsilon / mu)), 700.0))
        return float(ndtr(mu / 2 - epsilon / mu)) - above - delta

    return math.exp(float(brentq(surplus, math.log(1e-9), math.log(1e4), xtol=1e-14)))


def needs_of(spec: Spec, weights: Any) -> Any:
    """The variance every party needs at its weight, from the definition."""
    return np.array(
        [
            0.0 if math.isinf(epsilon) else (weight * size / mu_for(epsilon, delta)) ** 2
            for epsilon, delta, size, weight in zip(
                *(column.tolist() for column in (spec.epsilon, spec.delta, spec.sensitivity)), weights, strict=True
            )
        ]
    )


def least_total(need: Any, threshold: Any, receivers: Any) -> float:
    """The least total noise by the program with a row for each coalition and honest party."""
    count = len(need)
    thresholds = np.broadcast_to(np.asarray(threshold), (count,)).tolist()
    rows, bounds = [], []
    for party in range(count):
        for group in dangerous_coalitions(count, thresholds[party], receivers, party):
            rows.append([0.0 if other in group else -1.0 for other in range(count)])
            bounds.append(-float(need[party]))
    scale = -min(bounds, default=0.0)
    if not scale:
        return 0.0
    found: Any = linprog(np.ones(count), A_ub=rows, b_ub=np.array(bounds) / scale, method="highs")
    return float(found.fun) * scale


def assert_private(made: Plan, weights: list[float]) -> None:
    """Every budget holds at sensitivity w_j Delta_j against every dangerous coalition, in 80 digits."""
    spec = made.spec
    honest = least_honest(made.variance, spec.threshold, spec.receivers)
    for party, least in enumerate(honest):
        moved = Fraction(weights[party]) * Fraction(float(spec.sensitivity[party]))
        if least is None or moved == 0 or math.isinf(spec.epsilon[party]):
            continue
        assert least > 0
        ratio = moved**2 / least
        mu = mpmath.sqrt(DIGITS(ratio.numerator) / DIGITS(ratio.denominator))
        assert exact_delta(mu, float(spec.epsilon[party])) <= DIGITS(float(spec.delta[party]))


def assert_least(made: Plan, weights: list[float]) -> None:
    spec = made.spec
    total = least_total(needs_of(spec, weights), spec.threshold, spec.receivers)
    assert made.total_variance == pytest.approx(total, rel=1e-6, abs=1e-300)
    verdict = made.certificate().check(spec)
    assert verdict.total_variance == made.total_variance


def some_spec(count: int, threshold: Any, receivers: Any, random: np.random.Generator) -> Spec:
    return Spec(
        epsilon=random.choice(EPSILONS, count),
        delta=random.choice([1e-6, 0.01, 1e-9], count),
        sensitivity=random.choice([1.0, 3.0, 0.1], count),
        threshold=threshold,
        receivers=np.array(receivers),
    )


def own_weights(count: int, random: np.random.Generator) -> list[float]:
    weights = [float(weight) for weight in random.choice(WEIGHTS, count)]
    weights[int(random.integers(count))] = 1.0
    return weights


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_weighted_plans_are_private_and_of_least_noise_for_all_receivers_and_thresholds(count: int) -> None:
    random = np.random.default_rng(count)
    for threshold, receivers in product(range(count), product((True, False), repeat=count)):
        spec = some_spec(count, threshold, receivers, random)
        own = own_weights(count, random)
        for weighting in ("balanced", own):
            made = plan(spec, weighting=weighting)
            weights = made.weights.each.tolist()
            assert weighting == "balanced" or weights == own
            assert_private(made, weights)
            assert_least(made, weights)


def test_weighted_plans_with_personal_thresholds_are_private_and_of_least_noise() -> None:
    random = np.random.default_rng(9)
    for thresholds in ([0, 1], [1, 2, 0], [2, 2, 1], [3, 1, 2, 0], [1, 3, 3, 1]):
        count = len(thresholds)
        for receivers in ([True] * count, [True] + [False] * (count - 1), [False] * (count - 1) + [True]):
            spec = some_spec(count, thresholds, receivers, random)
            for weighting in ("balanced", own_weights(count, random)):
                made = plan(spec, weighting=weighting)
                assert_private(made, made.weights.each.tolist())
                assert_least(made, made.weights.each.tolist())


def test_protection_is_told_for_the_weighted_contribution() -> None:
    """A party that gives a tenth of its data has the epsilon of a tenth of its sensitivity."""
    spec = Spec(epsilon=[0.5, 1.0, 4.0], delta=1e-6, sensitivity=[1.0, 2.0, 1.0], threshold=1, receivers=[0, 2])
    made = plan(spec, weighting=[0.1, 1.0, 0.5])
    shown = made.protection().epsilon.tolist()
    honest = least_honest(made.variance, 1, spec.receivers)
    for party, (weight, size) in enumerate([(0.1, 1.0), (1.0, 2.0), (0.5, 1.0)]):
        least = honest[party]
        assert least is not None
        mu = weight * size / math.sqrt(least)
        assert shown[party] <= spec.epsilon[party]
        assert float(exact_delta(mu, shown[party])) == pytest.approx(1e-6, rel=1e-5)


@pytest.mark.parametrize("weighting", ["balanced", [0.2, 1.0, 0.0, 0.6]])
def test_drivers_add_up_to_the_noise(weighting: Any) -> None:
    spec = Spec(epsilon=[0.1, 0.5, 1.0, 2.0], delta=1e-6, threshold=2)
    made = plan(spec, weighting=weighting)
    assert made.drivers().sum() == pytest.approx(1, rel=1e-9)
    assert (made.drivers() >= 0).all()
    # Whoever needs a little less than it does leaves that much less noise: the derivative of the program.
    need = needs_of(spec, made.weights.each.tolist())
    if isinstance(weighting, str):  # needs are made equal, so that it has no derivative: any of its slopes will do
        pressure = made.drivers() * made.total_variance / need
        assert ((pressure >= -1e-9) & (pressure <= 1 + 1e-9)).all()
        assert pressure.sum() == pytest.approx(4 / 2, rel=1e-9)  # n/(n - t)
    else:
        whole = least_total(need, 2, spec.receivers)
        for party in range(4):
            less = need.copy()
            less[party] *= 1 - 1e-4
            change = (whole - least_total(less, 2, spec.receivers)) / (1e-4 * whole)
            assert made.drivers()[party] == pytest.approx(change, abs=1e-3)


# Certificates and files -----------------------------------------------------------------------------------------------


SPEC: Final = Spec(epsilon=[0.1, 0.5, 1.0, 2.0], delta=1e-6, sensitivity=[1, 2, 1, 1], threshold=2, receivers=[0, 3])
OWN: Final = [0.25, 0.7, 1.0, 0.0]


def changed(column: Any, place: int, value: float) -> Any:
    found = np.array(column, dtype=np.float64)
    found[place] = value
    return found


@pytest.mark.parametrize("weighting", ["balanced", OWN])
@pytest.mark.parametrize("party", range(4))
def test_a_certificate_with_a_raised_weight_or_less_noise_is_refused(weighting: Any, party: int) -> None:
    certificate = plan(SPEC, weighting=weighting).certificate()
    assert certificate.weights is not None
    weight = float(certificate.weights[party])
    changes: list[dict[str, Any]] = []
    if weight < 1:
        changes.append({"weights": changed(certificate.weights, party, min(1.0, weight * (1 + 1e-6) + 1e-9))})
    if certificate.need[party]:
        changes.append({"need": changed(certificate.need, party, certificate.need[party] * (1 - 1e-6))})
    if certificate.variance[party]:
        changes.append({"variance": changed(certificate.variance, party, certificate.variance[party] * (1 - 1e-9))})
    assert changes
    for change in changes:
        with pytest.raises(CertificateError, match="violated"):
            dataclasses.replace(certificate, **change).check(SPEC)


@pytest.mark.parametrize(
    "weights",
    [
        None,
        np.ones(4),
        np.ones(3),
        np.ones(5),
        np.ones((4, 1)),
        np.ones(4, dtype=np.int64),
        np.ones(4, dtype=object),
        [0.25, 0.7, 1.0, 0.0],
        np.array([0.25, 0.7, -1.0, 0.0]),
        np.array([0.25, 0.7, 1.5, 0.0]),
        np.array([0.25, 0.7, math.nan, 0.0]),
        np.array([0.25, 0.7, math.inf, 0.0]),
        np.array([0.0, 0.0, 0.0, 0.0]),
        "balanced",
    ],
    ids=str,
)
def test_a_certificate_with_missing_or_bad_weights_is_refused(weights: Any) -> None:
    certificate = plan(SPEC, weighting=OWN).certificate()
    certificate.check(SPEC)
    with pytest.raises(CertificateError, match="violated"):
        dataclasses.replace(certificate, weights=weights).check(SPEC)


def test_a_certificate_for_weights_above_1_is_refused_even_if_it_is_right() -> None:
    more = plan(SPEC.replace(sensitivity=SPEC.sensitivity * 1.5)).certificate()
    with pytest.raises(CertificateError, match="form violated: the weight of a party is negative or above 1"):
        dataclasses.replace(more, weights=np.full(4, 1.5)).check(SPEC)


def test_weighted_sensitivities_are_never_below_the_exact_product() -> None:
    random = np.random.default_rng(4)
    weights, sizes = random.random(200), np.exp(random.normal(0, 5, 200))
    spec = Spec(epsilon=np.ones(200), delta=1e-6, sensitivity=sizes, threshold=1)
    for found, weight, size in zip(spec.weighted(weights).sensitivity.tolist(), weights, sizes, strict=True):
        product_ = Fraction(float(weight)) * Fraction(float(size))
        assert product_ <= Fraction(found) <= product_ * (1 + Fraction(1, 2**50))


@pytest.mark.parametrize("weight", [1e-70, 5e-324])
def test_a_certificate_with_a_tiny_weight_is_refused_as_such(weight: float) -> None:
    certificate = plan(SPEC, weighting=OWN).certificate()
    with pytest.raises(CertificateError, match="violated"):
        dataclasses.replace(certificate, weights=np.array([weight, 0.7, 1.0, 0.0])).check(SPEC)


@pytest.mark.parametrize("weighting", ["balanced", [0.1, 0.7, 1.0, 0.0]])
def test_a_spec_with_the_least_sensitivity_can_have_weights(weighting: Any) -> None:
    spec = SPEC.replace(sensitivity=1e-60)
    made = plan(spec, weighting=weighting)
    assert made.variance.any()
    assert made.certificate().check(spec).gap <= 1e-12


def test_a_huge_spread_is_planned_or_refused_by_its_name() -> None:
    field = "spread"
    try:
        plan(SPEC, weighting="balanced", spread=1e200)
    except InputError as error:
        field = error.field
    assert field == "spread"


def test_files_keep_weights_to_the_last_bit(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    for weighting in ("balanced", [0.1, 1 / 3, 1e-12, 1.0], [0.3] * 4, OWN):
        made = plan(SPEC.replace(epsilon=random.uniform(0.1, 3, 4)), weighting=weighting)
        write_plan(made, tmp_path / "plan.json")
        spec, certificate = read_plan(tmp_path / "plan.json")
        assert spec == made.spec
        assert certificate.weights is not None
        assert certificate.weights.tolist() == made.weights.each.tolist()
        assert certificate.check(spec).total_variance == made.total_variance
    assert "weights" not in plan_document(plan(SPEC))
    assert "weights" not in plan_document(plan(SPEC, weighting=[1.0] * 4))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('"balanced"', 'has weights = "balanced", which is not a number'),
        ('["0.25", 0.7, 1.0, 0.0]', 'has weights = "0.25", which is not a number'),
        ("[true, 0.7, 1.0, 0.0]", "has weights = true, which is not a number"),
        ("null", "has weights = (none), which is not a number"),
        ("true", "has weights = true, which is not a number"),
        ("[NaN, 0.7, 1.0, 0.0]", "holds NaN, which JSON does not allow"),
        ("[Infinity, 0.7, 1.0, 0.0]", "holds Infinity, which JSON does not allow"),
        ("[1e999, 0.7, 1.0, 0.0]", "has weights = inf, which is out of range"),
        ('["inf", 0.7, 1.0, 0.0]', 'has weights = "inf", which is not a number'),
        ("[0.7, 1.0, 0.0]", "has weights = 3 values, which must be one for each of 4 parties"),
        ("[]", "has weights = 0 values, which must be one for each of 4 parties"),
        ("[[0.25], 0.7, 1.0, 0.0]", "is not a number"),
        ("{}", "is not a number"),
        ('1.0, "weighting": "own"', "has key in weights = weighting, which is unknown"),
        ('0.5, "each": 0.5', "has a key twice"),
    ],
)
def test_hostile_weights_in_a_file_get_one_line(tmp_path: Path, text: str, words: str) -> None:
    document = plan_document(plan(SPEC, weighting=OWN))
    document["weights"]["each"] = "@"
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(document).replace('"@"', text))
    with pytest.raises(FileError) as caught:
        read_plan(path)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("key", ["scale", "bias_bound"])
def test_a_scale_or_bound_that_is_not_that_of_the_weights_is_refused(tmp_path: Path, key: str) -> None:
    document = plan_document(plan(SPEC, weighting=OWN))
    document["weights"][key] *= 0.9
    (tmp_path / "plan.json").write_text(json.dumps(document))
    with pytest.raises(FileError, match=rf"has {key} = .*, which does not follow from the weights"):
        read_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("weights", [[0.25, 0.7, -1.0, 0.0], [0.25, 0.7, 1.5, 0.0], 1.0, 0.0, [0.26, 0.7, 1.0, 0.0]])
def test_other_weights_in_a_file_are_not_valid(tmp_path: Path, weights: Any) -> None:
    document = plan_document(plan(SPEC, weighting=OWN))
    records = np.ones(SPEC.count)
    each = np.broadcast_to(np.asarray(weights, dtype=np.float64), records.shape)
    document["weights"]["each"] = weights
    if each.any():  # as whoever forges a file would write them
        forged = Weights(each, records, document["weights"]["width"], 0.0)
        document["weights"] |= {"scale": forged.scale, "bias_bound": forged.bias_bound}
    (tmp_path / "plan.json").write_text(json.dumps(document))
    spec, certificate = read_plan(tmp_path / "plan.json")
    with pytest.raises(CertificateError, match="violated"):
        certificate.check(spec)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weighting": "own"}, "weighting = own must be equal or balanced, or one weight per party"),
        ({"weighting": [1.0, 0.5, 1.0]}, "weights = 3 values must be one per party (4)"),
        ({"weighting": 0.5}, "weights = 1 values must be one per party (4)"),
        ({"weighting": [1.0, 2.0, 1.0, 1.0]}, "weight of party 2 = 2.0 must be 0 or lie in [1e-12, 1]"),
        ({"weighting": [1.0, -0.5, 1.0, 1.0]}, "weight of party 2 = -0.5 must be 0 or lie in"),
        ({"weighting": [1.0, math.nan, 1.0, 1.0]}, "weight of party 2 = nan must be 0 or lie in"),
        ({"weighting": [1.0, 1e-13, 1.0, 1.0]}, "weight of party 2 = 1e-13 must be 0 or lie in"),
        ({"weighting": [0.0] * 4}, "are 0 for all parties with records"),
        ({"weighting": [1.0, 0.0, 0.0, 0.0], "records": [0, 1, 1, 1]}, "are 0 for all parties with records"),
        ({"weighting": None}, "is not a number or a list of numbers"),
        ({"weighting": ["1"] * 4}, "is not a number or a list of numbers"),
        ({"spread": 0.0}, "spread = 0.0 must be a positive number"),
        ({"spread": math.nan}, "spread = nan must be a positive number"),
        ({"width": -1.0}, "width = -1.0 must be a positive number"),
        ({"width": math.inf}, "width = inf must be a positive number"),
        ({"records": [1, 2]}, "records = 2 values must be one number or 4"),
        ({"records": [1, 2, 0.5, 1]}, "records of party 3 = 0.5 must be a whole number, 0 or more"),
        ({"records": [1, 2, -1, 1]}, "records of party 3 = -1.0 must be a whole number, 0 or more"),
        ({"records": 0}, "records = 0 must not be 0 for all parties"),
    ],
)
def test_bad_weights_are_refused_in_one_line(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        plan(SPEC, **{"weighting": "balanced", **arguments})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


# Best weights for parties of different size ---------------------------------------------------------------------------


def error_of(weights: Any, need: Any, threshold: int, receivers: Any, spread: float, records: Any) -> float:
    """(N/W)^2 v(w^2 need) + s^2 sum (m_j (N w_j/W - 1))^2, from its definition."""
    scale = records.sum() / (records * weights).sum()
    noise = scale**2 * least_total(weights**2 * need, threshold, receivers)
    return float(noise + spread**2 * np.sum((records * (scale * weights - 1)) ** 2))


def best_error(need: Any, threshold: int, receivers: Any, spread: float, records: Any) -> float:
    """By a generic optimiser over contributions z_j = m_j N w_j/W and variances, a constraint for each coalition."""
    count, whole = len(need), float(records.sum())
    there = records > 0
    unit = need / np.where(there, records, 1.0) ** 2
    groups = [
        (party, np.array([other not in group for other in range(count)]))
        for party in range(count)
        for group in dangerous_coalitions(count, threshold, receivers, party)
        if there[party]
    ]

    def cost(point: Any) -> float:
        shares, variance = point[:count] * whole, point[count:]
        return float(variance.sum() + spread**2 * np.sum((shares - records) ** 2)) / scale

    def room(point: Any) -> Any:
        shares, variance = point[:count] * whole, point[count:]
        return np.array([(variance[honest].sum() - unit[p] * shares[p] ** 2) / scale for p, honest in groups] or [0.0])

    start = np.where(there, records / whole, 0.0)
    most = max(float((unit * (start * whole) ** 2).max()), 1e-12)
    scale = most
    rules: Any = [{"type": "eq", "fun": lambda point: point[:count].sum() - 1}, {"type": "ineq", "fun": room}]
    limits = [(0.0, 1.0 if there[j] else 0.0) for j in range(count)] + [(0.0, None)] * count
    found: Any = minimize(
        cost,
        np.concatenate((start, np.full(count, most))),
        method="SLSQP",
        constraints=rules,
        bounds=limits,
        options={"maxiter": 500, "ftol": 1e-12},
    )
    return float(found.fun) * scale


CASES: Final = [
    (3, 1, [True, True, True], [1, 5, 2]),
    (3, 2, [True, False, False], [4, 0, 1]),
    (3, 2, [True, True, True], [1, 1, 3]),
    (4, 1, [True, True, True, True], [10, 1, 0, 7]),
    (4, 2, [True, False, True, False], [2, 3, 4, 5]),
    (4, 3, [False, True, False, False], [1, 20, 3, 3]),
    (4, 2, [True, False, False, False], [0, 9, 2, 2]),
    (2, 1, [True, True], [3, 50]),
]


@pytest.mark.parametrize(("count", "threshold", "receivers", "records"), CASES)
def test_balanced_weights_for_unequal_records_are_the_best(
    count: int, threshold: int, receivers: list[bool], records: list[int]
) -> None:
    random = np.random.default_rng(sum(records))
    mask, sizes = np.array(receivers), np.array(records, dtype=np.float64)
    for spread in (0.3, 2.0):
        need = np.exp(random.uniform(0, 4, count)) * (random.random(count) > 0.1)
        found = balance(need, threshold, mask, spread, sizes)
        error = error_of(found.weights, need, threshold, mask, spread, sizes)
        assert error == pytest.approx(found.bound, rel=1e-7, abs=1e-9)
        generic = best_error(need, threshold, mask, spread, sizes)
        assert found.bound == pytest.approx(generic, rel=1e-4, abs=1e-8)
        assert found.weights.max() == 1
        assert ((found.weights > 0) | ((sizes == 0) & (need > 0))).all()
        for _ in range(30):
            other = np.maximum(found.weights * np.exp(random.normal(0, random.choice([0.03, 1.0]), count)), 1e-9)
            assert error_of(other, need, threshold, mask, spread, sizes) >= found.bound * (1 - 1e-9)


@pytest.mark.parametrize(("count", "threshold", "receivers", "records"), CASES)
def test_a_balanced_plan_states_its_error_and_the_least(
    count: int, threshold: int, receivers: list[bool], records: list[int]
) -> None:
    """The plan's own numbers: noise scaled back, spread, and that no other weights do better."""
    random = np.random.default_rng(count + threshold)
    spec = Spec(epsilon=random.uniform(0.1, 3, count), delta=1e-6, threshold=threshold, receivers=np.array(receivers))
    made = plan(spec, weighting="balanced", spread=0.4, records=records, width=1.5)
    weights, sizes = made.weights.each, np.array(records, dtype=np.float64)
    scale = sizes.sum() / (sizes * weights).sum()
    need = needs_of(spec, np.ones(count))
    error = error_of(weights, need, threshold, spec.receivers, 0.4, sizes)
    assert made.weights.scale == pytest.approx(scale, rel=1e-12)
    assert made.standard_deviation == pytest.approx(scale * math.sqrt(made.total_variance), rel=1e-12)
    assert made.expected_error**2 == pytest.approx(error, rel=1e-6)
    assert made.weights.least == pytest.approx(error, rel=1e-6)
    assert made.bias_bound == pytest.approx(1.5 * np.abs(sizes * (scale * weights - 1)).sum() / 2, rel=1e-9)
    for kind in ("equal", np.maximum(random.random(count), 0.01) / 1.01):
        other = plan(spec, weighting=kind, spread=0.4, records=records)
        assert other.expected_error >= made.expected_error * (1 - 1e-9)


# What weights do to a sum ---------------------------------------------------------------------------------------------


def weights_of(each: Any, records: Any, width: float = 1.0, spread: float = 0.5) -> Weights:
    return Weights(np.array(each), np.array(records, dtype=np.float64), width, spread)


SUMS: Final = [
    ([1.0, 0.5], [1, 1]),
    ([1.0, 0.5, 0.25], [3, 1, 4]),
    ([0.0, 1.0, 0.3, 0.3], [2, 2, 2, 9]),
    ([0.4, 1.0, 0.9, 0.0, 1e-3], [1, 0, 5, 2, 2]),
    ([0.5, 0.5, 0.5], [1, 2, 3]),
    ([0.5, 0.5, 1.0], [1, 2, 0]),
]


@pytest.mark.parametrize(("each", "records"), SUMS)
def test_the_bias_bound_is_the_worst_over_all_data_and_is_attained(each: list[float], records: list[int]) -> None:
    made = weights_of(each, records)
    scale = Fraction(sum(records)) / sum(Fraction(w) * m for w, m in zip(each, records, strict=True))
    assert made.scale == pytest.approx(float(scale), rel=1e-14)
    worst = max(
        abs(sum(((scale * Fraction(w) - 1) * m * x for w, m, x in zip(each, records, data, strict=True)), Fraction(0)))
        for data in product((0, 1), repeat=len(each))
    )
    assert Fraction(made.bias_bound) >= worst
    assert made.bias_bound == pytest.approx(float(worst), rel=1e-11, abs=1e-300)
    assert weights_of(each, records, width=7.0).bias_bound == pytest.approx(7 * float(worst), rel=1e-11, abs=1e-300)
    assert made.excess.sum() == pytest.approx(0, abs=1e-12 * sum(records))
    assert made.are_equal == (worst == 0)


@pytest.mark.parametrize(("each", "records"), SUMS)
def test_the_spread_error_is_that_of_independent_data(each: list[float], records: list[int]) -> None:
    """Averages of parties that are 0 or 1 by a fair coin: their standard deviation is 1/2, and all cases are tried."""
    made = weights_of(each, records)
    scale = sum(records) / sum(w * m for w, m in zip(each, records, strict=True))
    errors = [
        sum((scale * w - 1) * m * x for w, m, x in zip(each, records, data, strict=True))
        for data in product((0, 1), repeat=len(each))
    ]
    assert np.mean(errors) == pytest.approx(0, abs=1e-12 * sum(records))
    assert made.spread_error**2 == pytest.approx(np.mean(np.square(errors)), rel=1e-9, abs=1e-12)
    assert weights_of(each, records, spread=0.1).spread_error == pytest.approx(made.spread_error / 5, rel=1e-12)


def test_the_spread_error_of_a_random_order_is_that_of_the_sample_deviation() -> None:
    """Fixed data dealt out at random: the deviation that counts has n - 1 below, not n."""
    each, data = [1.0, 0.5, 0.25, 0.25, 0.1], np.array([0.0, 0.2, 1.0, 1.0, 0.4])
    made = weights_of(each, [1] * 5, spread=float(np.std(data, ddof=1)))
    scale = 5 / sum(each)
    errors = [float(np.sum((scale * np.array(each) - 1) * data[list(order)])) for order in permutations(range(5))]
    assert made.spread_error**2 == pytest.approx(np.mean(np.square(errors)), rel=1e-9)


def test_equal_weights_of_any_size_assume_nothing() -> None:
    for size in (1.0, 0.25):
        spec = Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1)
        made, plain = plan(spec, weighting=[size] * 3), plan(spec)
        assert made.weights.are_equal
        assert (made.bias_bound, made.weights.spread_error) == (0.0, 0.0)
        assert made.standard_deviation == pytest.approx(plain.standard_deviation, rel=1e-12)
        assert "weights" not in repr(made)


def test_balanced_weights_are_equal_where_nobody_can_gain() -> None:
    for spec in (
        Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=0),
        Spec(epsilon=[0.1, 1.0, 1.0], delta=1e-6, threshold=1, receivers=[]),
        Spec(epsilon=[1.0, 1.0, 1.0], delta=1e-6, threshold=2),
        Spec(epsilon=[math.inf, math.inf], delta=1e-6, threshold=1),
        Spec(epsilon=[0.1, 1.0], delta=1e-6, sensitivity=0.0, threshold=1),
    ):
        assert plan(spec, weighting="balanced").weights.each.tolist() == [1.0] * spec.count


def test_shortened_weights_keep_24_bits_and_their_range() -> None:
    random = np.random.default_rng(1)
    each = np.concatenate((random.random(500), 10 ** random.uniform(-12, 0, 500), [0.0, 1.0, np.nextafter(1.0, 0)]))
    short = shortened(each)
    assert (np.abs(short - each) <= each * 2.0**-24).all()
    assert ((short >= 0) & (short <= 1)).all()
    assert all(value == 0 or (math.frexp(value)[0] * 2**24).is_integer() for value in short.tolist())
    assert (shortened(short) == short).all()


def test_weights_given_are_not_changed_later_by_their_owner() -> None:
    mine = np.array([1.0, 0.5])
    made = make_weights(Spec(epsilon=[1.0, 1.0], delta=1e-6, threshold=1), lambda: np.ones(2), mine)
    mine[1] = 1.0
    assert made.each.tolist() == [1.0, 0.5]
