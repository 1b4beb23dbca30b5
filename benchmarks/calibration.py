"""Calibration against dp-accounting, diffprivlib and autodp: speed, and how many sigmas are too small."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

import tpmdp
from benchmarks.timing import Row, best_seconds, single_core, times


@dataclass(frozen=True)
class Size:
    points: int = 200
    """Budgets that every peer calibrates."""
    parties: int = 1_000_000
    """Budgets that tpmdp calibrates in one call."""


FULL, TOY = Size(), Size(points=5, parties=1000)


def peers() -> dict[str, Callable[[float, float], float]]:
    """Each peer's sigma for sensitivity 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from autodp import calibrator_zoo, mechanism_zoo, rdp_acct
        from diffprivlib.mechanisms import GaussianAnalytic
        from dp_accounting import gaussian_mechanism
    del rdp_acct  # imported first because autodp's modules import each other
    calibrator = calibrator_zoo.ana_gaussian_calibrator()
    return {
        "dp-accounting": lambda e, d: float(gaussian_mechanism.get_sigma_gaussian(e, d)),
        "diffprivlib": lambda e, d: float(GaussianAnalytic(epsilon=e, delta=d, sensitivity=1.0)._scale),
        "autodp": lambda e, d: float(calibrator(mechanism_zoo.ExactGaussianMechanism, e, d).params["sigma"]),
    }


def true_delta(sigma: Any, epsilon: float) -> Any:
    mu, eps = 1 / mpmath.mpf(sigma), mpmath.mpf(epsilon)
    return mpmath.ncdf(mu / 2 - eps / mu) - mpmath.exp(eps) * mpmath.ncdf(-mu / 2 - eps / mu)


def too_small(sigmas: list[float], epsilon: list[float], delta: list[float]) -> tuple[int, int, float]:
    """The number of sigmas that break the promise, of those that are not a number, and the worst ratio of deltas."""
    violated, failed, worst = 0, 0, 0.0
    for sig, eps, dlt in zip(sigmas, epsilon, delta, strict=True):
        if not np.isfinite(sig) or sig <= 0:
            failed += 1
            continue
        ratio = true_delta(sig, eps) / mpmath.mpf(dlt)
        violated += ratio > 1
        worst = max(worst, float(ratio))
    return violated, failed, worst


def relative_error(sigma: float, epsilon: float, delta: float) -> float:
    """How far sigma lies above the least possible one, by Newton's method in 80 digits."""
    mu = 1 / mpmath.mpf(sigma)
    for _ in range(9):
        a = mpmath.mpf(epsilon) / mu - mu / 2
        mu -= (true_delta(1 / mu, epsilon) - mpmath.mpf(delta)) / mpmath.npdf(a)
    return float(mpmath.mpf(sigma) * mu - 1)


def rows(size: Size = FULL) -> list[Row]:
    """The rows on calibration."""
    points, parties = size.points, size.parties
    mpmath.mp.dps = 80
    rng = np.random.default_rng(80)
    epsilon, delta = 10 ** rng.uniform(-6, np.log10(200), points), 10 ** rng.uniform(-15, np.log10(0.9), points)
    many_epsilon, many_delta = rng.permutation(np.resize(epsilon, parties)), rng.permutation(np.resize(delta, parties))
    with single_core():
        seconds_one_core = best_seconds(lambda: tpmdp.calibrate(many_epsilon, many_delta), repeats=3) / parties
    seconds_all_cores = best_seconds(lambda: tpmdp.calibrate(many_epsilon, many_delta), repeats=3) / parties
    result = []
    for name, peer in peers().items():
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            sigmas, elapsed = [], 0.0
            for eps, dlt in zip(epsilon.tolist(), delta.tolist(), strict=True):
                start = time.perf_counter()
                try:
                    sigma = peer(eps, dlt)
                except (ValueError, RuntimeError, OverflowError, ZeroDivisionError, FloatingPointError):
                    sigma = float("nan")
                elapsed += time.perf_counter() - start
                sigmas.append(sigma)
        violated, failed, worst = too_small(sigmas, epsilon.tolist(), delta.tolist())
        note = f"{name}: {violated} of {points} sigmas too small, worst true delta {worst:.10g}x the target"
        note += f", {failed} failures" if failed else ""
        wanted = "at least 1,000x" if name == "dp-accounting" else ""
        result.append(
            Row(f"calibrate, one core, against {name}", times(elapsed / points / seconds_one_core), wanted, note)
        )
    ours = tpmdp.calibrate(epsilon, delta).tolist()
    violated, failed, worst = too_small(ours, epsilon.tolist(), delta.tolist())
    note = f"tpmdp: {violated} of {points} sigmas too small, worst true delta {worst:.15f}x the target"
    result.append(
        Row(
            f"calibrate {parties:,}, all cores against one",
            times(seconds_one_core / seconds_all_cores),
            "more than 1x",
            note,
        )
    )
    worst_error = max(relative_error(*point) for point in zip(ours, epsilon.tolist(), delta.tolist(), strict=True))
    result.append(
        Row("relative error of sigma, worst of the points", f"{worst_error:.1e}", "at most 1e-12", "never below 0")
    )
    return result
