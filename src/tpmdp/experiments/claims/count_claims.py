"""The paper's claims about the count."""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from tpmdp.experiments.claims.claim import (
    BETTER,
    CONSTANT,
    MUCH,
    SIMILAR,
    Claim,
    ClaimResult,
    at_each,
    claim_in,
    except_at,
    result_in_most,
    result_of,
    span,
    two_or_more,
)
from tpmdp.experiments.results import NotMeasuredError, Results, linearity, slope
from tpmdp.experiments.scenario import DEFAULT
from tpmdp.mechanisms.additive import Optimal, SameBudget
from tpmdp.mechanisms.mechanism import Setting
from tpmdp.mechanisms.problem import CountProblem
from tpmdp.mechanisms.registry import MECHANISMS
from tpmdp.spec import Spec

CLAIMS: Final[list[Claim]] = []
claim = partial(claim_in, CLAIMS)
HALF: Final = ("density", "conservative", "parties")  # panels in which the threshold is half of the parties
OTHERS: Final = ("G", "TMDP", "MIN", "Sample", "PLDP")
_SQRT: Final = (
    "At t = n/2 the factor is sqrt(n/(n - t)) = 1.41 for equal needs and a little less for others. With a stricter "
    "meaning of the word the claim would fail."
)
_COINCIDE: Final = "Without any conservative party the needs are so alike that G and TMDP coincide"


def _points(results: Results, *panels: str) -> list[tuple[str, float]]:
    return [(panel, x) for panel in panels for x in results.count.xs(panel)]


def _spread(results: Results, panel: str, name: str) -> float:
    """The largest error over the smallest."""
    values = [results.count.at(panel, x, name) for x in two_or_more(results.count.xs(panel))]
    return max(values) / min(values)


def _growth_at_fixed_delta(name: str) -> float:
    """The exponent of a mechanism's error if delta were not 1/(10 n): over ten draws of budgets."""
    random = np.random.default_rng(0)
    squares = {}
    for count in (1000, 10_000):
        specs = [DEFAULT.setting(random, 1.0, count).spec for _ in range(10)]  # the delta of 1000 parties for all
        settings = [Setting.of(spec.replace(threshold=count // 2)) for spec in specs]
        problem = CountProblem(np.zeros(count))
        squares[count] = np.mean([MECHANISMS[name].error(setting, problem).variance[0] for setting in settings])
    return slope(squares, squares.values()) / 2


@claim("count, overall", "At t = n/2 non-thre is significantly worse than all others")
def _non_thre_worst(results: Results) -> ClaimResult:
    points = _points(results, *HALF)
    worse = [all(results.clearly(*point, "non-thre", other) for other in OTHERS) for point in points]
    ratios = [min(results.count.ratio(*point, "non-thre", other) for other in OTHERS) for point in points]
    return result_of(worse, f"at {sum(worse)} of {len(points)} points; error {span(ratios)} times that of the next")


@claim("count, overall", "G, TMDP and MIN have similar utility in most cases", remark=_SQRT)
def _three_similar(results: Results) -> ClaimResult:
    ratio, points = results.count.ratio, _points(results, *HALF, "threshold")
    pairs = [(above, below) for above in ("G", "TMDP") for below in ("G", "TMDP", "MIN")]
    similar = [max(ratio(*point, *pair) for pair in pairs) <= SIMILAR for point in points]
    default = ratio("parties", 1000.0, "G", below="MIN")
    text = f"within 1.5 at {sum(similar)} of {len(points)} points; G is {default:.2f} times MIN at the default"
    return result_in_most(similar, text)


@claim("count, overall", "G beats TMDP when f_C is small or t is close to n", why=f"{_COINCIDE}.")
def _better_at_the_ends(results: Results) -> ClaimResult:
    few = [
        results.count.ratio("conservative", x, "TMDP", below="G") for x in results.count.xs("conservative") if x <= 0.04
    ]
    high = [results.count.ratio("threshold", x, "TMDP", below="G") for x in results.count.xs("threshold") if x > 900]
    text = f"TMDP/G: {span(few, 3)} for f_C <= 0.04, {span(high)} for t > 900"
    return result_of([ratio >= BETTER for ratio in few + high], text)


@claim(
    "Fig. count a",
    "G, TMDP, MIN, non-thre and PLDP do not depend on the density",
    remark="This holds by construction: their noise does not depend on the data. Only the budgets drawn vary.",
)
def _flat_in_density(results: Results) -> ClaimResult:
    spreads = {name: _spread(results, "density", name) for name in ("G", "TMDP", "MIN", "non-thre", "PLDP")}
    text = "largest over smallest error: " + ", ".join(f"{name} {value:.3f}" for name, value in spreads.items())
    return result_of([value <= CONSTANT for value in spreads.values()], text)


@claim("Fig. count a", "G and TMDP are similar to MIN and much better than non-thre and PLDP", remark=_SQRT)
def _density_ranking(results: Results) -> ClaimResult:
    ratio, points, ours = results.count.ratio, _points(results, "density"), ("G", "TMDP")
    close = [ratio(*point, name, "MIN") for point in points for name in ours]
    far = [ratio(*point, worse, name) for point in points for worse in ("non-thre", "PLDP") for name in ours]
    text = f"G, TMDP over MIN: {span(close)}; non-thre, PLDP over them: {span(far)}"
    return result_of([*(value <= SIMILAR for value in close), *(value >= MUCH for value in far)], text)


@claim("Fig. count a", "The loss of Sample grows linearly with the density")
def _sample_linear(results: Results) -> ClaimResult:
    xs = two_or_more(results.count.xs("density"))
    ys = [results.count.at("density", x, "Sample") for x in xs]
    straight = linearity(xs, ys)
    text = f"from {ys[0]:.1f} at {xs[0]:g} to {ys[-1]:.1f} at {xs[-1]:g}; a line explains {100 * straight:.2f} %"
    return result_of([straight > 0.99], text)


@claim(
    "Fig. count b",
    "G outperforms TMDP when f_C <= 0.04",
    why=f"{_COINCIDE}. The gain is largest when a handful of parties are much stricter than the rest, and fades "
    "slowly: nothing changes abruptly at 0.04.",
)
def _small_fraction(results: Results) -> ClaimResult:
    ratios = {
        x: results.count.ratio("conservative", x, "TMDP", below="G")
        for x in results.count.xs("conservative")
        if x <= 0.04
    }
    return result_of([ratio >= BETTER for ratio in ratios.values()], f"TMDP/G: {at_each(ratios, 3)}")


@claim(
    "Fig. count b",
    "PLDP deteriorates sharply from f_C >= 0.1",
    why="Its variance is a sum over parties and grows linearly with f_C from 0 on, so its error grows like a square "
    "root: fastest at the start, and not abruptly at 0.1.",
)
def _local_deteriorates(results: Results) -> ClaimResult:
    xs = two_or_more(results.count.xs("conservative"))
    first, tenth, last = (results.count.at("conservative", x, "PLDP") for x in (xs[0], 0.1, 0.54))
    before, after = (tenth - first) / 0.1, (last - tenth) / 0.44
    text = f"{first:.0f} without conservative parties, {tenth:.0f} at 0.1, {last:.0f} at 0.54: "
    text += f"{before / 100:.0f} for each hundredth up to 0.1, {after / 100:.0f} afterwards"
    return result_of([after > before], text)


@claim("Fig. count b", "MIN is similar to G and TMDP", remark=_SQRT)
def _curator_similar(results: Results) -> ClaimResult:
    points = _points(results, "conservative")
    ratios = [results.count.ratio(*point, name, "MIN") for point in points for name in ("G", "TMDP")]
    return result_of([ratio <= SIMILAR for ratio in ratios], f"G, TMDP over MIN: {span(ratios)}")


@claim(
    "Fig. count b",
    "Sample is best",
    why="Without conservative parties there is little to gain from dropping any, and its bias (the inputs it drops) is "
    "larger than the noise of G or MIN. Its bias also grows with the density and with n.",
)
def _sample_best(results: Results) -> ClaimResult:
    others = ("G", "TMDP", "MIN", "non-thre", "PLDP")
    lead = {
        x: min(results.count.ratio("conservative", x, name, below="Sample") for name in others)
        for x in results.count.xs("conservative")
    }
    lost = except_at("beaten at f_C =", (f"{x:g}" for x, ratio in lead.items() if ratio <= 1))
    return result_of([ratio > 1 for ratio in lead.values()], f"the next best over Sample: {span(lead.values())}{lost}")


@claim(
    "Fig. count c",
    "MIN, G and TMDP have the least loss for n >= 5000",
    remark="At 5000 only by 2 %: there the growing bias of Sample overtakes the noise of G.",
)
def _large_n(results: Results) -> ClaimResult:
    ratio, xs = results.count.ratio, results.count.xs("parties")
    ratios = [
        min(ratio("parties", x, other, below=name) for other in ("Sample", "PLDP", "non-thre"))
        for x in xs
        if x >= 5000
        for name in ("MIN", "G", "TMDP")
    ]
    ahead = [x for x in xs if ratio("parties", x, "Sample", below="G") > 1]
    text = f"the next best over them: {span(ratios)}"
    text += f"; G is ahead of Sample from n = {min(ahead):g}" if ahead else ""
    return result_of([value > 1 for value in ratios], text)


@claim(
    "Fig. count c",
    "Other losses grow with n: Sample's dropped data linearly, the variances of non-thre and PLDP linearly",
    why="non-thre grows faster than the square root of n: delta = 1/(10 n) falls with n, which raises every need.",
)
def _growth(results: Results) -> ClaimResult:
    xs = [x for x in results.count.xs("parties") if x >= 1000]
    expected = {"Sample": 1.0, "non-thre": 0.5, "PLDP": 0.5}
    powers = {name: slope(xs, [results.count.at("parties", x, name) for x in xs]) for name in expected}
    text = "error grows as n to the " + ", ".join(f"{value:.2f} ({name})" for name, value in powers.items())
    text += f"; expected 1, 0.5, 0.5. With delta the same for all n, non-thre: {_growth_at_fixed_delta('non-thre'):.2f}"
    return result_of([abs(powers[name] - expected[name]) <= 0.05 for name in expected], text)


@claim("Fig. count d", "Only G and TMDP are sensitive to t")
def _others_flat_in_threshold(results: Results) -> ClaimResult:
    spreads = {name: _spread(results, "threshold", name) for name in ("MIN", "non-thre", "Sample", "PLDP", "G", "TMDP")}
    text = "largest over smallest error: " + ", ".join(f"{name} {value:.3g}" for name, value in spreads.items())
    return result_of([(value > CONSTANT) == (name in ("G", "TMDP")) for name, value in spreads.items()], text)


@claim(
    "Fig. count d",
    "G is similar to MIN for t < 700",
    why="The factor is about 1/sqrt(1 - t/n): 1.41 at 500, 1.58 at 600, 1.83 at 700.",
)
def _until_700(results: Results) -> ClaimResult:
    ratios = {
        x: results.count.ratio("threshold", x, "G", below="MIN") for x in results.count.xs("threshold") if x < 700
    }
    text = f"G/MIN: {at_each(dict(list(ratios.items())[-4:]))}"
    return result_of([ratio <= SIMILAR for ratio in ratios.values()], text)


@claim("Fig. count d", "G is better than PLDP for t < 900")
def _until_900(results: Results) -> ClaimResult:
    every = {x: results.count.ratio("threshold", x, "PLDP", below="G") for x in results.count.xs("threshold")}
    ratios = [ratio for x, ratio in every.items() if x < 900]
    ahead = max((x for x, ratio in every.items() if ratio > 1), default=0)
    text = f"PLDP/G: {span(ratios)} for t < 900; G is ahead up to t = {ahead:g} of the points measured"
    return result_of([ratio > 1 for ratio in ratios], text)


@claim("Fig. count d", "G and TMDP are similar for t <= 900")
def _same_until_900(results: Results) -> ClaimResult:
    ratios = [results.count.ratio("threshold", x, "TMDP", below="G") for x in results.count.xs("threshold") if x <= 900]
    return result_of([ratio <= SIMILAR for ratio in ratios], f"TMDP/G: {span(ratios)}")


@claim("Fig. count d", "G is significantly better than TMDP for t > 900")
def _after_900(results: Results) -> ClaimResult:
    ratios = {
        x: results.count.ratio("threshold", x, "TMDP", below="G") for x in results.count.xs("threshold") if x > 900
    }
    return result_of(
        [results.clearly("threshold", x, "TMDP", better="G") for x in ratios], f"TMDP/G: {at_each(ratios)}"
    )


def _beats(results: Results, other: str, panels: tuple[str, ...], words: tuple[str, str]) -> ClaimResult:
    """G is better than another mechanism at all points of the panels."""
    ratios = {
        f"{panel} {x:g}": results.count.ratio(panel, x, other, below="G") for panel, x in _points(results, *panels)
    }
    better = {point: ratio >= BETTER for point, ratio in ratios.items()}
    lost = except_at(words[1], (point for point, is_better in better.items() if not is_better))
    return result_of(better.values(), f"{other}/G: {span(ratios.values())}{words[0]}{lost}")


@claim(
    "section, first paragraph",
    "G surpasses PLDP in utility",
    why="A single very strict party sets the noise of G, while under PLDP it only makes its own answer useless. With "
    "few strict parties PLDP is ahead.",
)
def _beats_local(results: Results) -> ClaimResult:
    return _beats(results, "PLDP", HALF, words=(" at t = n/2", "G is not ahead at"))


@claim("section, first paragraph", "G surpasses non-thre in utility", why="At t = n - 1 they are the same plan.")
def _beats_any_coalition(results: Results) -> ClaimResult:
    return _beats(results, "non-thre", (*HALF, "threshold"), words=("", "equal at"))


@claim(
    "section, first paragraph",
    "G is comparable to a centralized approach",
    why="It is comparable to one that treats all parties alike (MIN), but not to Sample, which gives up the data of "
    "strict parties.",
)
def _near_curators(results: Results) -> ClaimResult:
    points = _points(results, *HALF)
    ratios = {name: [results.count.ratio(*point, "G", name) for point in points] for name in ("MIN", "Sample")}
    text = "; ".join(f"G/{name}: {span(values)}" for name, values in ratios.items())
    similar = [ratio <= SIMILAR for values in ratios.values() for ratio in values]
    return result_of(similar, text + " at t = n/2")


def _below_half(results: Results, *others: str) -> tuple[dict[str, list[float]], str]:
    """G's error over that of each other mechanism at every threshold below half of the parties, and that as text."""
    xs = [x for x in results.count.xs("threshold") if 2 * x < DEFAULT.parties]
    ratios = {name: [results.count.ratio("threshold", x, "G", below=name) for x in xs] for name in others}
    parts = [f"G/{name}: {span(values)}" for name, values in ratios.items()]
    return ratios, f"{'; '.join(parts)} for t = {min(xs):g} to {max(xs):g} of {DEFAULT.parties:,}"


@claim(
    "introduction",
    "Utility is comparable to centralized mechanisms when t < 0.5 n: to one noise for all (MIN)",
    remark="Comparable means similar. For all budgets and receivers the factor is at most sqrt(n/(n - t)), below 1.42 "
    "for t < n/2 (Theory, W1).",
)
def _comparable_to_one_noise(results: Results) -> ClaimResult:
    ratios, text = _below_half(results, "MIN")
    return result_of([max(ratios["MIN"]) <= SIMILAR], text)


@claim(
    "introduction",
    "Utility is comparable to centralized mechanisms when t < 0.5 n: to a personalized one (Sample)",
    why="Sample, which gives up the data of strict parties, has far less noise at every threshold. G is comparable to "
    "it only where needs are alike: without conservative parties, or where the bias of Sample is as large as G's "
    "noise (high densities, many parties).",
)
def _comparable_to_personalized(results: Results) -> ClaimResult:
    ratios, text = _below_half(results, "Sample", "Sample, scaled back")
    return result_of([max(ratios["Sample"]) <= SIMILAR], text)


@claim("comparison with TMDP", "v(G)/v(TMDP) is O(1) max{1/n, need 2/need 1} when n - t is constant")
def _one_strict_party(results: Results) -> ClaimResult:
    if not results.count.points:
        raise NotMeasuredError("the count was not run")
    parts, bounded = [], []
    for count in (10, 100, 1000, 10_000, 100_000):
        spec = Spec(epsilon=np.where(np.arange(count) == 0, 0.01, 1.0), delta=1e-6, threshold=count - 1)
        setting = Setting.of(spec)
        ratio = Optimal().noise(setting) / SameBudget().noise(setting)
        bound = max(1 / count, float(setting.need[1] / setting.need[0]))
        bounded.append(ratio <= 2 * bound)
        parts.append(f"{ratio:.2g} against {bound:.2g} (n = {count:,})")
    text = "at t = n - 1, one party at epsilon 0.01 and the rest at 1, the ratio against max{1/n, need 2/need 1}: "
    return result_of(bounded, text + ", ".join(parts))


@claim(
    "comparison with PLDP",
    "For t <= p n and bounded needs the variance of PLDP grows as n, that of G not",
    why="The largest need still grows a little: among more parties the strictest is stricter.",
    remark="With delta = 1/(10 n), as in the figure, needs are not bounded, and G grows as they do.",
)
def _bounded(results: Results) -> ClaimResult:
    if not results.count.points:
        raise NotMeasuredError("the count was not run")
    ours, local = (2 * _growth_at_fixed_delta(name) for name in ("G", "PLDP"))
    text = f"at the same delta for all n the variance grows as n to the {ours:.2f} (G) and {local:.2f} (PLDP)"
    return result_of([ours < 0.15, abs(local - 1) < 0.15], text)
