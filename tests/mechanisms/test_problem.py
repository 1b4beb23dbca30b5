"""Counts and regressions: their sums against plain loops, their sensitivity against search, and what they refuse."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from tpmdp import InputError
from tpmdp._util.arrays import FloatArray
from tpmdp.mechanisms.problem import Accuracy, CountProblem, RegressionProblem


def outer(record: Any) -> FloatArray:
    """z z^T of z = (record, 1)."""
    z = np.append(np.asarray(record, dtype=np.float64), 1.0)
    return np.outer(z, z)


@pytest.mark.parametrize(("count", "columns"), [(1, 2), (2, 3), (7, 2), (30, 5)])
def test_regression_sums_are_outer_products(count: int, columns: int) -> None:
    rng = np.random.default_rng(columns)
    records, weights = rng.uniform(-1, 1, (count, columns)), rng.uniform(0, 3, count)
    problem = RegressionProblem(records)
    plain = sum(weight * outer(record) for weight, record in zip(weights, records, strict=True))
    found = problem.weighted(weights)
    assert found.shape == ((columns + 1) * (columns + 2) // 2,)
    assert problem.matrix(found) == pytest.approx(plain, rel=1e-12, abs=1e-12)
    assert np.linalg.norm(found) == pytest.approx(float(np.linalg.norm(plain)), rel=1e-12)  # as long as the matrix
    assert problem.matrix(problem.total) == pytest.approx(sum(map(outer, records)), rel=1e-12, abs=1e-12)
    squares = sum(w * RegressionProblem([r]).total ** 2 for w, r in zip(weights, records, strict=True))
    assert problem.weighted_squares(weights) == pytest.approx(squares, rel=1e-12, abs=1e-12)
    assert (problem.matrix(found) == problem.matrix(found).T).all()


def test_counts_are_counted() -> None:
    problem = CountProblem([1, 0, 1, 1])
    weights = np.array([0.5, 9.0, 2.0, 0.25])
    assert problem.total.tolist() == [3.0]
    assert problem.weighted(weights).tolist() == [2.75]
    assert problem.weighted_squares(weights).tolist() == [2.75]
    assert (problem.count, problem.sensitivity) == (4, 1.0)
    assert CountProblem([0, 0]).total.tolist() == [0.0]


def test_rmse_is_bias_and_spread_together() -> None:
    assert Accuracy(np.array([3.0, 0.0]), np.array([16.0, 4.0])).rmse.tolist() == [5.0, 2.0]


@pytest.mark.parametrize("columns", [2, 3, 4, 5])
def test_no_replacement_and_no_removal_changes_more_than_the_sensitivity(columns: int) -> None:
    rng = np.random.default_rng(columns)
    limit = RegressionProblem(np.zeros((1, columns))).sensitivity
    corners = [np.array(corner) for corner in product((-1.0, 1.0), repeat=columns)]
    inside = [rng.uniform(-1, 1, columns) for _ in range(60)]
    edges = [np.clip(rng.normal(0, 2, columns), -1, 1) for _ in range(60)]
    matrices = [outer(record) for record in corners + inside + edges]
    for index, first in enumerate(matrices):
        assert np.linalg.norm(first) <= limit
        for second in matrices[:index]:
            assert np.linalg.norm(first - second) <= limit


def widest(columns: int) -> float:
    """The largest change by a replacement, from the vertices of the cube.

    No others need be tried: along one entry z_k, |z z^T - w w^T|^2 has the second derivative
    4 |z|^2 + 8 z_k^2 - 4 w_k^2, which is not negative, for z ends with a 1 and |w_k| <= 1. By symmetry one of the two
    vertices may be fixed. So the square is 2 (s^2 - 1) where z has an odd number s of entries, else 2 s^2.
    """
    first = outer(np.ones(columns))
    return max(float(np.linalg.norm(first - outer(other))) for other in product((-1.0, 1.0), repeat=columns))


@pytest.mark.parametrize("columns", [2, 3, 4, 5, 6, 7])
def test_the_sensitivity_is_attained(columns: int) -> None:
    assert RegressionProblem(np.zeros((1, columns))).sensitivity == pytest.approx(widest(columns), rel=1e-12)


@pytest.mark.parametrize("columns", range(2, 40))
def test_the_sensitivity_is_not_rounded_down(columns: int) -> None:
    size = columns + 1
    numerator, denominator = RegressionProblem(np.zeros((1, columns))).sensitivity.as_integer_ratio()
    assert numerator**2 >= 2 * (size**2 - size % 2) * denominator**2


BAD_BITS: list[Any] = [[0, 2], [0.5], [math.nan], [-1], [[0, 1]], 1, ["1", "0"], None, [math.inf]]


@pytest.mark.parametrize("bits", BAD_BITS, ids=str)
def test_bits_are_zeros_and_ones(bits: Any) -> None:
    with pytest.raises(InputError) as caught:
        CountProblem(bits)
    assert caught.value.field == "bits"
    assert_one_line(caught.value)


BAD_RECORDS: dict[str, Any] = {
    "too large": [[0.0, 1.0000001]],
    "too small": [[0.0, -2.0]],
    "NaN": [[0.0, math.nan]],
    "infinite": [[math.inf, 0.0]],
    "one column": [[0.5], [0.5]],
    "flat": [0.5, 0.5],
    "a number": 0.5,
    "nothing": None,
    "missing": [[None, 0.5]],
    "text": [["a", "b"]],
    "ragged": [[0.5, 0.5], [0.5]],
    "complex": [[1j, 0.0]],
    "complex array": np.array([[0.5 + 0.1j, 0.0]]),
    "huge": [[10**400, 0]],
    "masked": np.ma.masked_array([[0.5, 0.5]], mask=[[True, False]]),
}


@pytest.mark.parametrize("name", BAD_RECORDS)
def test_records_are_tables_from_minus_one_to_one(name: str) -> None:
    with pytest.raises(InputError) as caught:
        RegressionProblem(BAD_RECORDS[name])
    assert caught.value.field == "records"
    assert_one_line(caught.value)


def assert_one_line(error: InputError) -> None:
    """Field, value, rule and remedy, in one line."""
    text = str(error)
    assert "\n" not in text
    assert text.startswith(f"{error.field} = ")
    assert error.rule
    assert error.rule in text
    assert error.remedy
    assert text.endswith(f": {error.remedy}")


def test_the_ends_of_the_range_are_allowed() -> None:
    assert RegressionProblem([[1.0, -1.0]]).count == 1
    assert RegressionProblem([[1, 0], [-1, 1]]).total.tolist()[-1] == 2.0
