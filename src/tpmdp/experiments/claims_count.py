"""The paper's claims about the count."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tpmdp.experiments.claims import CONSTANT, MUCH, SIMILAR, Claim, Finding, Verdict, judged, measured, span
from tpmdp.experiments.results import NotMeasured, Results, linearity, slope
from tpmdp.experiments.scenario import DEFAULT
from tpmdp.mechanisms.additive import AnyCoalition, Optimal, SameBudget
from tpmdp.mechanisms.base import Setting
from tpmdp.spec import Spec

HALF: Final = ("density", "conservative", "parties")  # panels in which the threshold is half of the parties
OTHERS: Final = ("G", "TMDP", "MIN", "Sample", "PLDP")


def _points(results: Results, *panels: str) -> list[tuple[str, float]]:
    return [(panel, x) for panel in panels for x in results.count.xs(panel)]


def _non_thre_worst(results: Results) -> Finding:
    points = _points(results, *HALF)
    worse = [all(results.count.apart(*point, "non-thre", other) for other in OTHERS) for point in points]
    ratios = [min(results.count.ratio(*point, "non-thre", other) for other in OTHERS) for point in points]
    text = f"at {sum(worse)} of {len(points)} points; error {span(ratios)} times that of the next"
    return judged(sum(worse), len(points), text)


def _three_similar(results: Results) -> Finding:
    points = _points(results, *HALF, "threshold")
    ratios = [
        max(results.count.ratio(*point, one, other) for one in ("G", "TMDP") for other in ("G", "TMDP", "MIN"))
        for point in points
    ]
    good = sum(ratio <= SIMILAR for ratio in ratios)
    verdict = Verdict.HOLDS if good > len(points) / 2 else Verdict.FAILS
    default = results.count.ratio("parties", 1000.0, "G", "MIN")
    return Finding(
        verdict, f"within 1.5 at {good} of {len(points)} points; G is {default:.2f} times MIN at the default"
    )


def _better_at_the_ends(results: Results) -> Finding:
    few = [x for x in results.count.xs("conservative") if 0 < x <= 0.04]
    high = [x for x in results.count.xs("threshold") if x > 900]
    ratios = [results.count.ratio("conservative", x, "TMDP", "G") for x in few]
    tall = [results.count.ratio("threshold", x, "TMDP", "G") for x in high]
    text = f"TMDP/G: {span(ratios)} for 0 < f_C <= 0.04, {span(tall)} for t > 900"
    return judged(sum(ratio > 1 for ratio in ratios + tall), len(ratios + tall), text)


def _flat_in_density(results: Results) -> Finding:
    spreads = {name: _spread(results, "density", name) for name in ("G", "TMDP", "MIN", "non-thre", "PLDP")}
    text = "largest over smallest error: " + ", ".join(f"{name} {value:.3f}" for name, value in spreads.items())
    return judged(sum(value <= CONSTANT for value in spreads.values()), len(spreads), text)


def _spread(results: Results, panel: str, name: str) -> float:
    values = [results.count.at(panel, x, name) for x in measured(results.count.xs(panel))]
    return max(values) / min(values)


def _density_ranking(results: Results) -> Finding:
    points = _points(results, "density")
    close = [results.count.ratio(*point, name, "MIN") for point in points for name in ("G", "TMDP")]
    far = [
        results.count.ratio(*point, worse, name)
        for point in points
        for worse in ("non-thre", "PLDP")
        for name in ("G", "TMDP")
    ]
    good = sum(ratio <= SIMILAR for ratio in close) + sum(ratio >= MUCH for ratio in far)
    return judged(
        good, len(close) + len(far), f"G, TMDP over MIN: {span(close)}; non-thre, PLDP over them: {span(far)}"
    )


def _sample_linear(results: Results) -> Finding:
    xs = measured(results.count.xs("density"))
    ys = [results.count.at("density", x, "Sample") for x in xs]
    straight = linearity(xs, ys)
    text = f"from {ys[0]:.1f} at {xs[0]:g} to {ys[-1]:.1f} at {xs[-1]:g}; a line explains {100 * straight:.2f} %"
    return judged(int(straight > 0.99), 1, text)


def _small_fraction(results: Results) -> Finding:
    xs = [x for x in results.count.xs("conservative") if x <= 0.04]
    ratios = {x: results.count.ratio("conservative", x, "TMDP", "G") for x in xs}
    text = "TMDP/G: " + ", ".join(f"{ratio:.3f} at {x:g}" for x, ratio in ratios.items())
    return judged(sum(ratio > 1.02 for ratio in ratios.values()), len(xs), text)


def _local_deteriorates(results: Results) -> Finding:
    xs = measured(results.count.xs("conservative"))
    values = {x: results.count.at("conservative", x, "PLDP") for x in xs}
    first, tenth, last = (results.count.at("conservative", x, "PLDP") for x in (xs[0], 0.1, 0.54))
    text = f"{first:.0f} without conservative parties, {tenth:.0f} at 0.1, {last:.0f} at 0.54"
    steepest = max(range(len(xs) - 1), key=lambda i: (values[xs[i + 1]] - values[xs[i]]) / (xs[i + 1] - xs[i]))
    text += f"; steepest from {xs[steepest]:g} to {xs[steepest + 1]:g}"
    return Finding(Verdict.HOLDS if xs[steepest] >= 0.1 else Verdict.DEPENDS, text)


def _curator_similar(results: Results) -> Finding:
    points = _points(results, "conservative")
    ratios = [results.count.ratio(*point, name, "MIN") for point in points for name in ("G", "TMDP")]
    return judged(sum(ratio <= SIMILAR for ratio in ratios), len(ratios), f"G, TMDP over MIN: {span(ratios)}")


def _sample_best(results: Results) -> Finding:
    points = _points(results, "conservative")
    others = ("G", "TMDP", "MIN", "non-thre", "PLDP")
    lead = {x: min(results.count.ratio(panel, x, name, "Sample") for name in others) for panel, x in points}
    lost = [f"{x:g}" for x, ratio in lead.items() if ratio <= 1]
    text = f"the next best over Sample: {span(list(lead.values()))}"
    text += f"; beaten at f_C = {', '.join(lost)}" if lost else ""
    return judged(len(lead) - len(lost), len(lead), text)


def _large_n(results: Results) -> Finding:
    xs = [x for x in results.count.xs("parties") if x >= 5000]
    ratios = [
        min(results.count.ratio("parties", x, other, name) for other in ("Sample", "PLDP", "non-thre"))
        for x in xs
        for name in ("MIN", "G", "TMDP")
    ]
    small = [x for x in results.count.xs("parties") if results.count.ratio("parties", x, "Sample", "G") > 1]
    text = f"the next best over them: {span(ratios)}"
    text += f"; G is ahead of Sample from n = {min(small):g}" if small else ""
    return judged(sum(ratio > 1 for ratio in ratios), len(ratios), text)


def _growth(results: Results) -> Finding:
    xs = [x for x in results.count.xs("parties") if x >= 1000]
    wanted = {"Sample": 1.0, "non-thre": 0.5, "PLDP": 0.5}
    found = {name: slope(xs, [results.count.at("parties", x, name) for x in xs]) for name in wanted}
    text = "error grows as n to the " + ", ".join(f"{value:.2f} ({name})" for name, value in found.items())
    text += f"; expected 1, 0.5, 0.5. With delta the same for all n, non-thre: {_growth_at_fixed_delta():.2f}"
    return judged(sum(abs(found[name] - wanted[name]) <= 0.05 for name in wanted), len(wanted), text)


def _growth_at_fixed_delta() -> float:
    """The exponent of the error of non-thre, were delta not 1/(10 n)."""
    random = np.random.default_rng(0)
    errors = {}
    for count in (1000, 10_000):
        spec = DEFAULT.setting(random, 1.0, count).spec  # the delta of 1000 parties for all
        errors[count] = math.sqrt(AnyCoalition().noise(Setting.of(spec)))
    return slope(errors, errors.values())


def _others_flat_in_threshold(results: Results) -> Finding:
    spreads = {name: _spread(results, "threshold", name) for name in ("MIN", "non-thre", "Sample", "PLDP")}
    text = "largest over smallest error: " + ", ".join(f"{name} {value:.3f}" for name, value in spreads.items())
    return judged(sum(value <= CONSTANT for value in spreads.values()), len(spreads), text)


def _until_700(results: Results) -> Finding:
    xs = [x for x in results.count.xs("threshold") if x < 700]
    ratios = {x: results.count.ratio("threshold", x, "G", "MIN") for x in xs}
    text = "G/MIN: " + ", ".join(f"{ratio:.2f} at {x:g}" for x, ratio in list(ratios.items())[-4:])
    return judged(sum(ratio <= SIMILAR for ratio in ratios.values()), len(xs), text)


def _until_900(results: Results) -> Finding:
    xs = [x for x in results.count.xs("threshold") if x < 900]
    ratios = [results.count.ratio("threshold", x, "PLDP", "G") for x in xs]
    ahead = [x for x in results.count.xs("threshold") if results.count.ratio("threshold", x, "PLDP", "G") > 1]
    text = f"PLDP/G: {span(ratios)} for t < 900; G is ahead up to t = {max(ahead, default=0):g} of the points measured"
    return judged(sum(ratio > 1 for ratio in ratios), len(ratios), text)


def _same_until_900(results: Results) -> Finding:
    xs = [x for x in results.count.xs("threshold") if x <= 900]
    ratios = [results.count.ratio("threshold", x, "TMDP", "G") for x in xs]
    return judged(sum(ratio <= SIMILAR for ratio in ratios), len(xs), f"TMDP/G: {span(ratios)}")


def _after_900(results: Results) -> Finding:
    xs = [x for x in results.count.xs("threshold") if x > 900]
    ratios = [results.count.ratio("threshold", x, "TMDP", "G") for x in xs]
    apart = sum(results.count.apart("threshold", x, "TMDP", "G") for x in xs)
    return judged(apart, len(xs), f"intervals apart at {apart} of {len(xs)} points; TMDP/G: {span(ratios)}")


def _beats_local(results: Results) -> Finding:
    points = _points(results, *HALF)
    worse = [(panel, x) for panel, x in points if results.count.ratio(panel, x, "PLDP", "G") <= 1]
    ratios = [results.count.ratio(*point, "PLDP", "G") for point in points]
    text = f"PLDP/G: {span(ratios)} at t = n/2"
    if worse:
        text += "; PLDP is ahead at f_C = " + ", ".join(f"{x:g}" for panel, x in worse if panel == "conservative")
    return judged(len(points) - len(worse), len(points), text)


def _vanishing_ratio(results: Results) -> Finding:
    if not results.count.points:
        raise NotMeasured("the count was not run")
    ratios = {}
    for count in (10, 100, 1000, 10_000):
        spec = Spec(epsilon=np.where(np.arange(count) == 0, 0.01, 1.0), delta=1e-6, threshold=count - 1)
        setting = Setting.of(spec)
        ratios[count] = Optimal().noise(setting) / SameBudget().noise(setting)
    text = "G/TMDP in variance at t = n - 1, one party strict: "
    text += ", ".join(f"{ratio:.5f} (n = {count:,})" for count, ratio in ratios.items())
    values = list(ratios.values())
    return judged(int(values == sorted(values, reverse=True) and values[-1] < 0.01), 1, text)


def _bounded(results: Results) -> Finding:
    xs = [x for x in results.count.xs("parties") if x >= 1000]
    ours, local = (2 * slope(xs, [results.count.at("parties", x, name) for x in xs]) for name in ("G", "PLDP"))
    need = 2 * slope(xs, [results.count.at("parties", x, "MIN") for x in xs])
    text = f"variance grows as n to the {ours:.2f} (G), {need:.2f} (the largest need itself), {local:.2f} (PLDP)"
    return judged(int(abs(ours - need) < 0.05) + int(abs(local - 1) < 0.05), 2, text)


CLAIMS: Final = (
    Claim("count, overall", "At t = n/2 non-thre is significantly worse than all others", _non_thre_worst),
    Claim(
        "count, overall",
        "G, TMDP and MIN have similar utility in most cases",
        _three_similar,
        "Similar, not equal: the noise of t colluders is lost, so G needs about 1/(1 - t/n) times MIN's variance.",
    ),
    Claim("count, overall", "G beats TMDP when f_C is small or t is close to n", _better_at_the_ends),
    Claim("Fig. count a", "G, TMDP, MIN, non-thre and PLDP do not depend on the density", _flat_in_density),
    Claim("Fig. count a", "G and TMDP are similar to MIN and much better than non-thre and PLDP", _density_ranking),
    Claim("Fig. count a", "The loss of Sample grows linearly with the density", _sample_linear),
    Claim(
        "Fig. count b",
        "G outperforms TMDP when f_C <= 0.04",
        _small_fraction,
        "Without any conservative party the needs are so alike that G and TMDP coincide; the gain is largest when a "
        "handful of parties are much stricter than the rest, and fades slowly: there is no edge at 0.04.",
    ),
    Claim(
        "Fig. count b",
        "PLDP deteriorates sharply from f_C >= 0.1",
        _local_deteriorates,
        "Its variance is a sum over parties and grows linearly with f_C from 0 on, so its error grows like a square "
        "root: fastest at the start, with no edge at 0.1.",
    ),
    Claim("Fig. count b", "MIN is similar to G and TMDP", _curator_similar),
    Claim(
        "Fig. count b",
        "Sample is best",
        _sample_best,
        "Without conservative parties there is little to gain from dropping anybody, and its bias (dropped ones) is "
        "larger than the noise of G or MIN. Its bias also grows with n and density, see below.",
    ),
    Claim("Fig. count c", "MIN, G and TMDP have the least loss for n >= 5000", _large_n),
    Claim(
        "Fig. count c",
        "Other losses grow with n: Sample's dropped data linearly, the variances of non-thre and PLDP linearly",
        _growth,
        "non-thre grows faster than the square root of n: delta = 1/(10 n) falls with n, which raises every need.",
    ),
    Claim("Fig. count d", "Only G and TMDP are sensitive to t", _others_flat_in_threshold),
    Claim(
        "Fig. count d",
        "G is similar to MIN for t < 700",
        _until_700,
        "The factor is about 1/sqrt(1 - t/n): 1.41 at 500, 1.58 at 600, 1.83 at 700.",
    ),
    Claim("Fig. count d", "G is better than PLDP for t < 900", _until_900),
    Claim("Fig. count d", "G and TMDP are similar for t <= 900", _same_until_900),
    Claim(
        "Fig. count d",
        "G is significantly better than TMDP for t > 900",
        _after_900,
        "Just above 900 the errors differ by less than the repetitions can tell apart.",
    ),
    Claim(
        "section, first paragraph",
        "G surpasses PLDP in utility",
        _beats_local,
        "A single very strict party sets the noise of G, while under PLDP it only makes its own answer useless. With "
        "few strict parties PLDP is ahead.",
    ),
    Claim(
        "comparison with TMDP",
        "v(G)/v(TMDP) vanishes when one party is much stricter, n - t is constant and n grows",
        _vanishing_ratio,
    ),
    Claim(
        "comparison with PLDP",
        "For t <= p n the variance of PLDP grows as n, that of G not (needs bounded)",
        _bounded,
        "The needs of this experiment grow a little: delta = 1/(10 n) falls. G grows just as they do.",
    ),
)
