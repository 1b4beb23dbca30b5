"""Budgets to noise and back: the analytic Gaussian mechanism (Balle and Wang 2018, Theorem 8), vectorised.

Symbols as in `delta`. An iteration proposes a value, and a check that includes the rounding error accepts it, so every
public function errs on the private side. Theory, "Calibration", has the proof.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import as_floats, check_delta, check_epsilon, check_sensitivity
from tpmdp._util.progress import Progress
from tpmdp.errors import InputError
from tpmdp.gaussian.delta import Evaluate, LogDelta, U, evaluate_direct, evaluate_series

_SERIES_BELOW: Final = 0.25  # mu below which R(a) - R(b) is summed as a series about m
_COMPLEMENT_BELOW: Final = -1.0  # a below which 1 - delta is computed instead of delta
_UNDERFLOW_ABOVE: Final = 39.0  # a above which delta < Phi(-a) is below the least positive double
_MU_FAR: Final = 1e7
_CHUNK: Final = 1 << 15  # entries per step: they fit the cache, and suffice to occupy a thread
_THREADS_FROM: Final = 1 << 17
_ROUNDS: Final = 80

Kernel = Callable[..., FloatArray]


def _tail_quantile(tail: FloatArray) -> FloatArray:
    """The x with Phi(-x) = tail <= 1/2, to 5e-4 (Abramowitz and Stegun 26.2.23); for starting values only."""
    root = np.sqrt(-2.0 * np.log(tail))
    above = 2.515517 + root * (0.802853 + root * 0.010328)
    below = 1.0 + root * (1.432788 + root * (0.189269 + root * 0.001308))
    approximation: FloatArray = root - above / below
    return approximation


def _guess_mu(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
    """A starting mu for delta <= 1/2, mostly within three per cent."""
    quantile = _tail_quantile(delta)
    large = 2.0 * epsilon / (np.sqrt(quantile * quantile + 2.0 * epsilon) + quantile)  # delta <= Phi(-a)
    # As mu -> 0, delta / epsilon depends on m alone: a rational fit of that function's inverse.
    ratio = np.sqrt(2.0 * np.log1p(np.exp(0.5 * np.minimum(epsilon, 4.0)) * epsilon / (2.5066 * delta)))
    m = 0.5 * ratio * ratio * (1.0 + 3.67 * ratio) / (1.0 + ratio * (3.44 + ratio * 1.70))
    return np.where(epsilon > 4.0, large, np.maximum(large, epsilon / m))


def _guess_mu_upper(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
    """A starting mu for delta > 1/2: the larger of two lower bounds, from a and from epsilon = 0."""
    quantile = _tail_quantile(1.0 - delta)
    large = np.sqrt(quantile * quantile + 2.0 * epsilon) + quantile
    return np.maximum(large, 2.0 * _tail_quantile(0.5 * (1.0 - delta)))


def _solve_region(epsilon: FloatArray, delta: FloatArray, mu: FloatArray, side: int, evaluate: Evaluate) -> FloatArray:
    """The largest certified mu: Householder steps of order three in log mu until Lemma C2 accepts."""
    target = np.log(delta) if side > 0 else np.log1p(-delta)
    slack = (8 * U) * (np.abs(target) + 1.0)  # rounding of the target itself
    result = np.empty_like(mu)
    where: NDArray[np.intp] = np.arange(len(mu))
    for _ in range(_ROUNDS):
        m = epsilon / mu
        at = evaluate(mu, m, side)
        f = side * (at.log_value - target)
        tau = at.tau + slack
        accepted = (f <= -tau) & (f >= -6.0 * tau)
        if accepted.any():
            result[where[accepted]] = mu[accepted]
            if accepted.all():
                return result
            keep = ~accepted
            where = where[keep]
            mu, epsilon, target, slack, f, tau, m = (v[keep] for v in (mu, epsilon, target, slack, f, tau, m))
            at = LogDelta(*(v[keep] for v in at))
        a, b = m - 0.5 * mu, m + 0.5 * mu
        slope = side / at.kappa  # of log_value in log mu
        newton = f * at.kappa
        second = 1.0 + a * b - slope
        third = second * second - (a * a + b * b) - slope * second
        step = newton * (6.0 - 3.0 * newton * second) / (6.0 - newton * (6.0 * second - newton * third))
        step = np.where(np.abs(step) <= 2.0 * np.abs(newton), step, newton)
        mu = mu * np.exp(np.clip(-step - 3.0 * tau * at.kappa, -2.0, 2.0))
    raise ArithmeticError("calibration did not converge; please report the budgets that cause this")


def _solve_mu(epsilon: FloatArray, delta: FloatArray) -> FloatArray:
    """The largest certified mu at which delta(mu, epsilon) <= delta, entry by entry, for finite epsilon."""
    result = np.empty_like(epsilon)
    upper = delta > 0.5
    if upper.any():
        eps, dlt = epsilon[upper], delta[upper]
        result[upper] = _solve_region(eps, dlt, _guess_mu_upper(eps, dlt), side=-1, evaluate=evaluate_direct)
    guess = _guess_mu(epsilon, delta)
    series = ~upper & (guess < _SERIES_BELOW)
    for mask, evaluate in ((series, evaluate_series), (~(upper | series), evaluate_direct)):
        if mask.any():
            result[mask] = _solve_region(epsilon[mask], delta[mask], guess[mask], side=1, evaluate=evaluate)
    return result


def _sigma_kernel(epsilon: FloatArray, delta: FloatArray, sensitivity: FloatArray) -> FloatArray:
    """Sigma for validated budgets; 0 where no noise is needed."""
    sigma = np.zeros(len(epsilon))
    noisy = np.isfinite(epsilon) & (sensitivity > 0)
    if noisy.all():
        return np.nextafter(sensitivity / _solve_mu(epsilon, delta), np.inf)
    if noisy.any():
        mu = _solve_mu(epsilon[noisy], delta[noisy])
        sigma[noisy] = np.nextafter(sensitivity[noisy] / mu, np.inf)
    return sigma


def _delta_bound(mu: FloatArray, m: FloatArray) -> FloatArray:
    """An upper bound on delta at (mu, m), tight to its tau; Lemma C3."""
    delta = np.empty_like(mu)
    complement = m - 0.5 * mu < _COMPLEMENT_BELOW
    series = ~complement & (mu < _SERIES_BELOW)
    for mask, side, evaluate in (
        (complement, -1, evaluate_direct),
        (series, 1, evaluate_series),
        (~(complement | series), 1, evaluate_direct),
    ):
        if mask.any():
            at = evaluate(mu[mask], m[mask], side)
            bound = np.exp(at.log_value + side * (at.tau + 8 * U))
            delta[mask] = bound if side > 0 else 1.0 - bound
    delta[m - 0.5 * mu > _UNDERFLOW_ABOVE] = 0.0
    return np.minimum(np.nextafter(delta, 1.0), 1.0)


def _delta_kernel(sigma: FloatArray, epsilon: FloatArray, sensitivity: FloatArray) -> FloatArray:
    """An upper bound on delta; 1 where sigma is 0 and the data matter, 0 where nothing can be learned."""
    delta = np.zeros(len(sigma))
    mu = _mu_kernel(sigma, sensitivity)
    delta[(mu == np.inf) & np.isfinite(epsilon)] = 1.0
    live = (mu > 0) & np.isfinite(mu) & np.isfinite(epsilon)
    if live.any():
        delta[live] = _delta_bound(mu[live], epsilon[live] / mu[live])
    return delta


def _mu_kernel(sigma: FloatArray, sensitivity: FloatArray) -> FloatArray:
    """An upper bound on sensitivity / sigma; 0 where the sensitivity is 0 or sigma infinite."""
    with np.errstate(divide="ignore", invalid="ignore"):
        mu = np.nextafter(sensitivity / sigma, np.inf)
    return np.where((sensitivity == 0) | np.isinf(sigma), 0.0, mu)


def _solve_m(mu: FloatArray, delta: FloatArray) -> FloatArray:
    """The least certified m >= 0 with delta(mu, m) <= delta; Newton in m, Lemma C4 (log delta is concave in m)."""
    tail = np.minimum(delta, 1.0 - delta)
    root = np.sqrt(-2.0 * np.log(tail))
    sign = np.where(delta > 0.5, -1.0, 1.0)
    start = np.maximum(sign * root + 0.5 * mu, 0.0)
    result = np.zeros_like(mu)
    upper = delta > 0.5
    series = ~upper & (mu < _SERIES_BELOW)
    for mask, side, evaluate in (
        (upper, -1, evaluate_direct),
        (series, 1, evaluate_series),
        (~(upper | series), 1, evaluate_direct),
    ):
        where = np.flatnonzero(mask)
        m, x = start[where], mu[where]
        target = np.log(delta[where]) if side > 0 else np.log1p(-delta[where])
        for _ in range(_ROUNDS):
            if not len(where):
                break
            at = evaluate(x, m, side)
            f = side * (at.log_value - target)
            tau = at.tau + (8 * U) * (np.abs(target) + 1.0)
            accepted = (f <= -tau) & ((f >= -6.0 * tau) | (m == 0.0))
            result[where[accepted]] = m[accepted]
            keep = ~accepted
            inverse = at.kappa / at.mills_b  # d m / d log delta, without its sign
            m = np.maximum(m + np.clip(inverse * (f + 3.0 * tau), -4.0 - x, 4.0 + x), 0.0)[keep]
            where, x, target = where[keep], x[keep], target[keep]
        if len(where):
            raise ArithmeticError("epsilon_at did not converge; please report the values that cause this")
    return result


def _epsilon_kernel(sigma: FloatArray, delta: FloatArray, sensitivity: FloatArray) -> FloatArray:
    """An upper bound on epsilon; infinite where sigma is 0 and the data matter."""
    epsilon = np.zeros(len(sigma))
    mu = _mu_kernel(sigma, sensitivity)
    epsilon[(mu == np.inf) | ((mu > 0) & (delta == 0))] = np.inf
    # For such a large mu, delta <= Phi(-a) <= e^(-a^2/2) gives a bound without iteration.
    far = (mu > _MU_FAR) & np.isfinite(mu) & (delta > 0)
    epsilon[far] = mu[far] * (0.5 * mu[far] + np.sqrt(-2.0 * np.log(delta[far]))) * (1.0 + 16 * U)
    # Below, delta(mu) <= mu / sqrt(2 pi) at epsilon = 0 already, so epsilon is 0.
    live = (mu > delta) & (mu <= _MU_FAR) & (delta > 0)
    if live.any():
        x = mu[live]
        m = _solve_m(x, delta[live])
        epsilon[live] = np.where(m > 0, np.nextafter(x * m, np.inf), 0.0)
    return epsilon


def _map(kernel: Kernel, *columns: FloatArray, progress: Progress | None = None) -> FloatArray:
    """Apply a kernel in chunks that fit the cache, on all cores if there are enough entries."""
    arrays = np.broadcast_arrays(*columns)
    shape = arrays[0].shape
    flat = [np.atleast_1d(array) for array in arrays]
    count = len(flat[0])
    result = np.empty(count)

    def work(start: int) -> int:
        part = slice(start, min(start + _CHUNK, count))
        result[part] = kernel(*(column[part] for column in flat))
        return part.stop - part.start

    done = 0
    with np.errstate(all="ignore"):
        workers = _cores()
        if count < _THREADS_FROM or workers == 1:
            for start in range(0, count, _CHUNK):
                done += work(start)
                if progress is not None:
                    progress(done, count)
        else:
            with ThreadPoolExecutor(max_workers=workers) as pool:
                for size in pool.map(_silent(work), range(0, count, _CHUNK)):
                    done += size
                    if progress is not None:
                        progress(done, count)
    return result.reshape(shape)


def _cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _silent(work: Callable[[int], int]) -> Callable[[int], int]:
    """NumPy keeps its error state per thread: switch warnings off in the workers, too."""

    def quiet(start: int) -> int:
        with np.errstate(all="ignore"):
            return work(start)

    return quiet


def calibrate_checked(
    epsilon: FloatArray, delta: FloatArray, sensitivity: FloatArray, progress: Progress | None = None
) -> FloatArray:
    """`calibrate` for arrays that `Spec` has already validated.

    >>> calibrate_checked(np.array([1.0]), np.array([1e-6]), np.array([1.0]))
    array([4.22467889])
    """
    return _map(_sigma_kernel, epsilon, delta, sensitivity, progress=progress)


def _check_sigma(sigma: FloatArray) -> None:
    if not np.all(sigma >= 0):
        value = float(sigma.flat[int(np.argmax(~(sigma >= 0)))])
        raise InputError("sigma", value, "must not be negative or NaN", "give a standard deviation")


def _same_shape(field: str, *arrays: FloatArray) -> None:
    lengths = {array.shape for array in arrays if array.ndim}
    if len(lengths) > 1:
        sizes = " and ".join(str(shape[0]) for shape in sorted(lengths))
        raise InputError(field, f"arrays of length {sizes}", "do not match", "give one value, or one per party")


def _unwrap(result: FloatArray) -> float | FloatArray:
    return result if result.ndim else float(result)


@overload
def calibrate(epsilon: float, delta: float, sensitivity: float = 1.0) -> float: ...
@overload
def calibrate(epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0) -> FloatArray: ...
def calibrate(epsilon: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0) -> float | FloatArray:
    """The least standard deviation at which Gaussian noise is (epsilon, delta)-DP; never too small.

    >>> print(f"{calibrate(1.0, 1e-6):.9f}")
    4.224678889
    >>> calibrate([0.1, 1.0, float("inf")], 1e-6).round(3)
    array([36.305,  4.225,  0.   ])
    """
    eps, dlt, sens = as_floats("epsilon", epsilon), as_floats("delta", delta), as_floats("sensitivity", sensitivity)
    _same_shape("epsilon, delta, sensitivity", eps, dlt, sens)
    check_epsilon(eps)
    check_delta(dlt, eps)
    check_sensitivity(sens)
    return _unwrap(calibrate_checked(eps, dlt, sens))


@overload
def delta_at(sigma: float, epsilon: float, sensitivity: float = 1.0) -> float: ...
@overload
def delta_at(sigma: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike = 1.0) -> FloatArray: ...
def delta_at(sigma: ArrayLike, epsilon: ArrayLike, sensitivity: ArrayLike = 1.0) -> float | FloatArray:
    """The delta of Gaussian noise with this standard deviation at this epsilon; never too small. Epsilon may be 0.

    >>> print(f"{delta_at(4.224678889, 1.0):.6e}")
    1.000000e-06
    """
    dev, eps, sens = as_floats("sigma", sigma), as_floats("epsilon", epsilon), as_floats("sensitivity", sensitivity)
    _same_shape("sigma, epsilon, sensitivity", dev, eps, sens)
    _check_sigma(dev)
    check_epsilon(np.where(eps == 0, 1.0, eps))
    check_sensitivity(sens)
    return _unwrap(_map(_delta_kernel, dev, eps, sens))


@overload
def epsilon_at(sigma: float, delta: float, sensitivity: float = 1.0) -> float: ...
@overload
def epsilon_at(sigma: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0) -> FloatArray: ...
def epsilon_at(sigma: ArrayLike, delta: ArrayLike, sensitivity: ArrayLike = 1.0) -> float | FloatArray:
    """The epsilon of Gaussian noise with this standard deviation at this delta; never too small.

    Zero noise gives infinity; enough noise for delta alone to cover the loss gives 0.

    >>> print(f"{epsilon_at(4.224678889, 1e-6):.9f}")
    1.000000000
    """
    dev, dlt, sens = as_floats("sigma", sigma), as_floats("delta", delta), as_floats("sensitivity", sensitivity)
    _same_shape("sigma, delta, sensitivity", dev, dlt, sens)
    _check_sigma(dev)
    check_delta(dlt, np.array(np.inf))
    check_sensitivity(sens)
    return _unwrap(_map(_epsilon_kernel, dev, dlt, sens))


@overload
def mu_at(sigma: float, sensitivity: float = 1.0) -> float: ...
@overload
def mu_at(sigma: ArrayLike, sensitivity: ArrayLike = 1.0) -> FloatArray: ...
def mu_at(sigma: ArrayLike, sensitivity: ArrayLike = 1.0) -> float | FloatArray:
    """The Gaussian-DP parameter mu = sensitivity / sigma (Dong, Roth and Su 2022), rounded up.

    >>> round(mu_at(4.0), 12)
    0.25
    """
    dev, sens = as_floats("sigma", sigma), as_floats("sensitivity", sensitivity)
    _same_shape("sigma, sensitivity", dev, sens)
    _check_sigma(dev)
    check_sensitivity(sens)
    return _unwrap(_map(_mu_kernel, dev, sens))
