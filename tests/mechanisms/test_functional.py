"""The Functional Mechanism's least squares, against scikit-learn and by its own definition."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, Ridge  # type: ignore[import-untyped]

from tpmdp.mechanisms.functional_mechanism import REGULAR, fit, predict
from tpmdp.mechanisms.problem import RegressionProblem


def _people(count: int = 300, columns: int = 4, seed: int = 0) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    random = np.random.default_rng(seed)
    features = random.uniform(-1, 1, (count, columns))
    target = np.clip(features @ np.linspace(-0.4, 0.5, columns) + 0.1 + 0.2 * random.normal(size=count), -1, 1)
    return np.column_stack([features, target])


def test_without_noise_it_is_ordinary_least_squares() -> None:
    people = _people()
    problem = RegressionProblem(people)
    found = fit(problem.matrix(problem.total), 0.0)
    oracle = LinearRegression().fit(people[:, :-1], people[:, -1])
    np.testing.assert_allclose(found, [*oracle.coef_, oracle.intercept_], rtol=1e-9)
    np.testing.assert_allclose(predict(found, people[:, :-1]), oracle.predict(people[:, :-1]), rtol=1e-9)


def test_with_noise_four_deviations_are_added_to_the_diagonal() -> None:
    """Ridge regression that penalises the constant too."""
    people = _people()
    problem = RegressionProblem(people)
    with_constant = np.column_stack([people[:, :-1], np.ones(len(people))])
    oracle = Ridge(alpha=REGULAR * 7.0, fit_intercept=False).fit(with_constant, people[:, -1])
    np.testing.assert_allclose(fit(problem.matrix(problem.total), 7.0), oracle.coef_, rtol=1e-9)


def test_directions_that_are_not_positive_are_cut_off() -> None:
    matrix = np.diag([5.0, 1.0, -9.0])
    matrix[0, 1] = matrix[1, 0] = 2.0
    matrix[2, 1] = matrix[1, 2] = 3.0
    assert fit(matrix, 1.0).tolist() == pytest.approx([2.0 / (5.0 + REGULAR), 0.0])
    assert fit(-np.eye(3), 0.0).tolist() == [0.0, 0.0]
    assert fit(np.zeros((3, 3)), 0.0).tolist() == [0.0, 0.0]


def test_a_singular_form_without_noise_still_predicts() -> None:
    people = np.column_stack([np.full(50, 0.5), np.linspace(-1, 1, 50)])  # a feature like the constant
    problem = RegressionProblem(people)
    found = predict(fit(problem.matrix(problem.total), 0.0), people[:, :-1])
    assert found.tolist() == pytest.approx([0.0] * 50, abs=1e-9)
