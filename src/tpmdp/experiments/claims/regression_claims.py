"""The paper's claims about linear regression."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import numpy as np

from tpmdp.experiments.claims.claim import (
    BETTER,
    OURS,
    SIMILAR,
    Claim,
    ClaimResult,
    ClaimStatus,
    judged,
    measured,
    rounded,
    span,
)
from tpmdp.experiments.regression_experiment import MEAN, PARTIES
from tpmdp.experiments.results import NotMeasuredError, Results
from tpmdp.experiments.scenario import Scenario
from tpmdp.mechanisms.problem import RegressionProblem
from tpmdp.mechanisms.registry import MECHANISMS

PANELS: Final = ("conservative", "parties", "threshold")
PRIVATE: Final = ("G", "TMDP", "non-thre", "MIN", "Sample", "PLDP")
NOISY: Final = ("G", "TMDP", "MIN")
RUNS_MIN: Final = 6
"""With fewer Wilcoxon's test can say nothing."""


def _points(results: Results, *panels: str) -> list[tuple[str, float]]:
    return [(panel, x) for panel in panels for x in results.regression.xs(panel)]


def _excess(results: Results, panel: str, x: float, name: str) -> float:
    """Error beyond that of the regression without noise."""
    return results.regression.at(panel, x, name) - results.regression.at(panel, x, "non-pri")


def _beyond(results: Results, panel: str, x: float, above: str, below: str) -> float:
    """How many times larger that is for one mechanism than for another."""
    return _excess(results, panel, x, above) / _excess(results, panel, x, below)


def _low_and_high(results: Results) -> tuple[list[float], list[float]]:
    """The lowest twentieth of thresholds, and those within 2 % of all parties."""
    xs = measured(results.regression.xs("threshold"))
    parties = xs[-1] + 1
    return [x for x in xs if x <= 0.05 * parties], [x for x in xs if x >= 0.98 * parties]


def _two_worst(results: Results) -> ClaimResult:
    points = _points(results, *PANELS)
    wrong = []
    for panel, x in points:
        at = {name: results.regression.at(panel, x, name) for name in PRIVATE}
        others = [value for name, value in at.items() if name not in ("non-thre", "PLDP")]
        if min(at["non-thre"], at["PLDP"]) < max(others):
            wrong.append(f"{panel} {x:g}")
    text = f"at {len(points) - len(wrong)} of {len(points)} points" + (f"; not at {', '.join(wrong)}" if wrong else "")
    return judged(len(points) - len(wrong), len(points), text)


def _sample_closest(results: Results) -> ClaimResult:
    points = _points(results, *PANELS)
    excess = [_excess(results, *point, "Sample") for point in points]
    best = [min(PRIVATE, key=lambda name: results.regression.at(*point, name)) for point in points]
    text = f"at {best.count('Sample')} of {len(points)} points; its error exceeds non-pri by {span(excess, 4)}"
    return judged(best.count("Sample"), len(points), text)


def _close_to_curator(results: Results) -> ClaimResult:
    points = _points(results, *PANELS)
    ratios = {point: max(_beyond(results, *point, name, "MIN") for name in ("G", "TMDP")) for point in points}
    good = sum(ratio <= SIMILAR for ratio in ratios.values())
    verdict = ClaimStatus.HOLDS if good > len(points) / 2 else ClaimStatus.FAILS
    far = [f"{panel} {x:g}" for (panel, x), ratio in ratios.items() if ratio > SIMILAR]
    text = f"at {good} of {len(points)} points; the worse of G, TMDP over MIN: {span(list(ratios.values()))}"
    return ClaimResult(verdict, text + (f"; more than 1.5 at {', '.join(far)}" if far else ""))


def _better_than_the_mean(results: Results) -> ClaimResult:
    points = _points(results, *PANELS)
    wrong = {
        name: [f"{panel} {x:g}" for panel, x in points if results.regression.ratio(panel, x, name, MEAN) >= 1]
        for name in ("G", "MIN")
    }
    parts = [f"{name} at {len(points) - len(where)} of {len(points)} points" for name, where in wrong.items()]
    text = "better than predicting the mean: " + ", ".join(parts)
    text += f"; G not at {', '.join(wrong['G'])}" if wrong["G"] else ""
    return judged(len(points) - len(wrong["G"]), len(points), text)


def _compared(results: Results, panel: str, xs: list[float]) -> ClaimResult:
    """G against TMDP on the same folds with the same noise, scaled."""
    if len({row["run"] for row in results.regression_rows}) < RUNS_MIN:
        raise NotMeasuredError("too few runs for the test")
    parts, better = [], 0
    for x in xs:
        gap, share, chance = results.difference(panel, x, "TMDP", "G")
        better += share >= BETTER - 1 and chance < 0.05
        parts.append(f"{gap:.4f} or {100 * share:.1f} % (p = {chance:.1g}) at {x:g}")
    return judged(better, len(xs), "TMDP - G: " + ", ".join(parts))


def _small_fraction(results: Results) -> ClaimResult:
    return _compared(results, "conservative", [x for x in results.regression.xs("conservative") if x <= 0.01])


def _threshold_near_all(results: Results) -> ClaimResult:
    return _compared(results, "threshold", _low_and_high(results)[1])


def _grows_with_fraction(results: Results) -> ClaimResult:
    xs = measured(results.regression.xs("conservative"))
    parts, good = [], 0
    for name in ("G", "non-thre", "TMDP", "MIN"):
        values = [results.regression.at("conservative", x, name) for x in (xs[0], 0.01, xs[-1])]
        good += results.regression.rises("conservative", xs[0], xs[-1], name)
        good += results.regression.rises("conservative", 0.01, xs[-1], name)
        parts.append(f"{name} {', '.join(f'{value:.3f}' for value in values)}")
    return judged(good, 8, f"at f_C = {xs[0]:g}, 0.01, {xs[-1]:g}: " + "; ".join(parts))


def _falls_with_parties(results: Results) -> ClaimResult:
    xs = measured(results.regression.xs("parties"))
    parts, good = [], 0
    for name in NOISY:
        values = [results.regression.at("parties", x, name) for x in xs]
        ups = sum(later > earlier for earlier, later in pairwise(values))
        good += values[-1] < values[0] and ups <= len(xs) // 3
        parts.append(f"{name} {values[0]:.3f} to {values[-1]:.3f} (up at {ups} of {len(xs) - 1} steps)")
    return judged(good, len(NOISY), "; ".join(parts))


def _bump(results: Results) -> ClaimResult:
    xs = results.regression.xs("parties")
    if not {100_000.0, 160_000.0, 300_000.0} <= set(xs):
        raise NotMeasuredError("the points about 160,000")
    place = xs.index(160_000.0)
    parts, good = [], 0
    for name in NOISY:
        before, here, after = (results.regression.at("parties", xs[place + step], name) for step in (-1, 0, 1))
        good += results.regression.rises("parties", xs[place - 1], 160_000.0, name)
        parts.append(f"{name} {before:.4f}, {here:.4f}, {after:.4f}")
    text = f"at n = {xs[place - 1]:g}, 160000, {xs[place + 1]:g}: " + "; ".join(parts)
    return judged(good, len(NOISY), text)


def _converges(results: Results) -> ClaimResult:
    xs = [x for x in results.regression.xs("parties") if x >= 900_000]
    ratios = [results.regression.ratio("parties", x, name, "non-pri") for x in xs for name in NOISY]
    small = [results.regression.ratio("parties", 50_000.0, name, "non-pri") for name in NOISY]
    text = f"G, TMDP, MIN over non-pri: {span(ratios, 4)} for n >= 900,000; {span(small, 3)} at 50,000"
    return judged(sum(ratio <= BETTER for ratio in ratios), len(ratios), text)


def _low_threshold(results: Results) -> ClaimResult:
    low = _low_and_high(results)[0]
    ratios = [_beyond(results, "threshold", x, name, "MIN") for x in low for name in ("G", "TMDP")]
    return judged(sum(ratio <= SIMILAR for ratio in ratios), len(ratios), f"G, TMDP over MIN: {span(ratios, 3)}")


def _improves_with_threshold(results: Results) -> ClaimResult:
    xs = measured(results.regression.xs("threshold"))
    falls = sum(
        results.regression.at("threshold", xs[-1], name) < results.regression.at("threshold", xs[0], name)
        for name in ("G", "TMDP")
    )
    return judged(falls, 2, _ends(results, xs))


def _loss_rises_with_threshold(results: Results) -> ClaimResult:
    xs = measured(results.regression.xs("threshold"))
    good = 0
    for name in ("G", "TMDP"):
        values = [results.regression.at("threshold", x, name) for x in xs]
        good += values[-1] == max(values) and results.regression.rises("threshold", xs[0], xs[-1], name)
    return judged(good, 2, _ends(results, xs))


def _ends(results: Results, xs: list[float]) -> str:
    """The loss at the least and the largest threshold."""
    parts = [
        f"{name} {results.regression.at('threshold', xs[0], name):.3f} at t = {xs[0]:g}, "
        f"{results.regression.at('threshold', xs[-1], name):.3f} at {xs[-1]:g}"
        for name in ("G", "TMDP")
    ]
    return "loss of " + "; ".join(parts)


def _sample_has_least_noise(results: Results) -> ClaimResult:
    if not results.regression_rows:
        raise NotMeasuredError("not run")
    setting = Scenario(PARTIES).setting(np.random.default_rng(0), RegressionProblem(np.zeros((1, 5))).sensitivity)
    noise = {name: MECHANISMS[name].noise(setting) ** 0.5 for name in ("Sample", "MIN", "G", "TMDP", "non-thre")}
    text = "standard deviation of the noise at the default: "
    text += ", ".join(f"{name} {rounded(value)}" for name, value in noise.items())
    return judged(sum(noise["Sample"] < noise[name] for name in noise if name != "Sample"), 4, text)


CLAIMS: Final = (
    Claim(
        "regression, overall",
        "non-thre and PLDP have the largest loss",
        _two_worst,
        "With t within a few of n TMDP needs more noise than non-thre: it protects everybody as the strictest.",
    ),
    Claim(
        "regression, overall",
        "Sample is closest to non-pri",
        _sample_closest,
    ),
    Claim("regression, overall", "The noise of Sample is less than that of the others", _sample_has_least_noise),
    Claim(
        "regression, overall",
        "G and TMDP are close to MIN in most cases",
        _close_to_curator,
        remark="Of the error beyond non-pri. Of the whole error nearly everything is close to everything: predicting "
        "the mean is only 10 % worse than the fit without noise.",
    ),
    Claim(
        OURS,
        "With G the regression is of use: better than predicting the mean",
        _better_than_the_mean,
        "The Functional Mechanism adds four standard deviations of the noise to the diagonal, for the constant too. "
        "Where the noise is large against n, predictions shrink towards 0, which is not the mean.",
    ),
    Claim(
        "Fig. regression a",
        "The loss of G, non-thre, TMDP and MIN grows with f_C",
        _grows_with_fraction,
        "The noise of G, TMDP and MIN is set by the few strictest. A hundredth of 50,000 parties contains them, and "
        "more of their kind change little; non-thre adds everybody's.",
    ),
    Claim(
        "Fig. regression a",
        "G outperforms TMDP slightly for f_C <= 0.01",
        _small_fraction,
        "Without conservative parties the largest needs are equal, and so are G and TMDP.",
    ),
    Claim("Fig. regression b", "The loss of G, TMDP and MIN roughly falls as n grows", _falls_with_parties),
    Claim(
        "Fig. regression b",
        "The loss of G, TMDP and MIN fluctuates (rises) around n = 160,000",
        _bump,
        "Most of the loss is shrinkage by the regularisation, which falls smoothly with n: from one point to the next "
        "by several times its standard error. We have no explanation for the paper's bump.",
    ),
    Claim("Fig. regression b", "G, TMDP and MIN converge to non-pri and Sample for n >= 900,000", _converges),
    Claim("Fig. regression c", "G and TMDP are similar to MIN for t <= n/20 (2500)", _low_threshold),
    Claim(
        "Fig. regression c",
        "As t increases, the utility of G and TMDP improves and reaches its maximum near n - 1",
        _improves_with_threshold,
        "Read literally this cannot be: more colluders need more noise. The sentence says utility where it means loss.",
    ),
    Claim(
        OURS,
        "The sentence before, read as loss: it grows to its maximum near n - 1",
        _loss_rises_with_threshold,
    ),
    Claim(
        "Fig. regression c",
        "G surpasses TMDP when t is close to n",
        _threshold_near_all,
        "Close means very close: the needs of the strictest hundreds are nearly equal, and only when fewer honest "
        "parties are left does it pay to tell them apart.",
    ),
)
