"""The paper's claims about time and memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Final

from tpmdp.experiments.claims.claim import (
    CONSTANT,
    MUCH,
    Claim,
    ClaimResult,
    claim_in,
    except_at,
    result_of,
    rounded,
    span,
)
from tpmdp.experiments.efficiency_experiment import METHODS, OVERHEAD_BYTES, RULES
from tpmdp.experiments.results import NotMeasuredError, Results, slope

CLAIMS: Final[list[Claim]] = []
claim = partial(claim_in, CLAIMS)
SOLVERS: Final = ("highs", "gurobi")
Series = dict[int, float]
"""A column against n."""


def _series(results: Results, method: str, rule: str, *, column: str, least: int = 0) -> Series:
    """A column against n, for n from `least` on, where the method finished."""
    return {
        int(row["n"] or 0): float(row[column] or 0.0)
        for row in results.efficiency_rows
        if (row["method"], row["panel"], row["outcome"]) == (method, rule, "ok")
        and row[column] is not None
        and int(row["n"] or 0) >= least
    }


def _rules(results: Results) -> list[str]:
    return list(dict.fromkeys(str(row["panel"]) for row in results.efficiency_rows))


def _ours_by_rule(results: Results, column: str) -> tuple[dict[str, Series], dict[int, float]]:
    """A column of our method for each rule of the threshold, and the largest over the smallest at each common n."""
    series = {rule: _series(results, "ours", rule, column=column) for rule in _rules(results)}
    if not series.get("half"):
        raise NotMeasuredError("not run")
    common = sorted(set.intersection(*(set(values) for values in series.values())))
    at = {n: [values[n] for values in series.values()] for n in common}
    return series, {n: max(values) / min(values) for n, values in at.items()}


def _bytes(value: float) -> str:
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{1e3 * value:.1f} ms"


Compare = Callable[[float, float], tuple[bool, str]]
"""A solver's cost against ours: whether ours is enough smaller, and both in words."""


def _against_solvers(results: Results, column: str, compare: Compare) -> tuple[list[bool], list[str]]:
    """The comparisons at each n from 15 on, and the words for the largest n of each solver and rule."""
    checks, parts = [], []
    for method in SOLVERS:
        for rule in _rules(results):
            ours = _series(results, "ours", rule, column=column, least=15)
            theirs = _series(results, method, rule, column=column, least=15)
            common = [n for n in theirs if n in ours]
            checks += [compare(theirs[n], ours[n])[0] for n in common]
            if common:
                n = max(common)
                parts.append(f"{METHODS[method]}, {RULES[rule]}, n = {n}: {compare(theirs[n], ours[n])[1]}")
    return checks, parts


@claim(
    "Fig. efficiency a",
    "The space of Alg. 3 does not depend on t",
    remark="This is about n for which it takes 1 MiB or more. With less, the pages that come with any work, and how "
    "Linux counts them, hide it.",
)
def _same_memory_for_every_threshold(results: Results) -> ClaimResult:
    series, ratios = _ours_by_rule(results, "peak_bytes")
    memory = series["half"]
    above = {n: ratio for n, ratio in ratios.items() if memory[n] >= OVERHEAD_BYTES}
    text = f"largest over smallest among thresholds: {span(above.values(), 3)} for n >= {min(above, default=0):,}"
    return result_of([max(above.values()) <= CONSTANT], text)


@claim(
    "Fig. efficiency a",
    "The space of Alg. 3 does not depend on n",
    why="It is O(n), as the paper's own table says: it grows with n as soon as arrays are larger than a few pages.",
)
def _same_memory_for_every_size(results: Results) -> ClaimResult:
    memory = _ours_by_rule(results, "peak_bytes")[0]["half"]
    most, least = max(memory), min(memory)
    text = f"{_bytes(memory[least])} at n = {least}, {_bytes(memory[most])} at n = {most:,}"
    return result_of([memory[most] / memory[least] <= CONSTANT], text)


@claim("Fig. efficiency a", "It is much smaller than the solver's for n >= 15")
def _smaller_memory(results: Results) -> ClaimResult:
    def compare(theirs: float, ours: float) -> tuple[bool, str]:
        return theirs >= MUCH * ours, f"{_bytes(theirs)} against {_bytes(ours)}"

    checks, parts = _against_solvers(results, "peak_bytes", compare)
    return result_of(checks, f"twice ours or more at {sum(checks)} of {len(checks)} points; " + "; ".join(parts))


def _grows_with_threshold(results: Results, column: str, text: Callable[[float], str]) -> ClaimResult:
    """The same n with t = 2, 3 and half."""
    parts, grows = [], []
    for method in SOLVERS:
        series = {rule: _series(results, method, rule, column=column) for rule in ("t2", "t3", "half")}
        for lower, higher in (("t2", "t3"), ("t3", "half")):
            common = sorted(set(series[lower]) & set(series[higher]))
            grows += [series[higher][n] >= series[lower][n] for n in common]
            if common:
                n = common[-1]
                low, high = text(series[lower][n]), text(series[higher][n])
                parts.append(f"{METHODS[method]}, n = {n}: {low} ({RULES[lower]}), {high} ({RULES[higher]})")
    return result_of(grows, f"at {sum(grows)} of {len(grows)} pairs; " + "; ".join(parts))


@claim("Fig. efficiency a", "The solver's space grows with t")
def _memory_grows_with_threshold(results: Results) -> ClaimResult:
    return _grows_with_threshold(results, "peak_bytes", _bytes)


def _exponential(results: Results, column: str) -> ClaimResult:
    """Growth per added party, t = n/2, over the larger points."""
    series = _series(results, "highs", "half", column=column, least=14)
    if len(series) < 4:
        raise NotMeasuredError("too few points")
    growth = [(series[b] / series[a]) ** (1 / (b - a)) for a, b in pairwise(series)]
    text = f"HiGHS: a factor of {span(growth[-4:])} for each added party up to n = {max(series)}"
    rows = [row for row in results.efficiency_rows if row["method"] == "highs" and row["panel"] == "half"]
    ends = (f"n = {row['n']}: {row['outcome']}" for row in rows if row["outcome"] != "ok")
    return result_of([min(growth[-3:]) > 1.5], text + except_at("limit reached at", ends))


@claim("Fig. efficiency a", "For t = n/2 it grows exponentially")
def _exponential_memory(results: Results) -> ClaimResult:
    return _exponential(results, "peak_bytes")


@claim(
    "Fig. efficiency b",
    "The solver's time grows with t",
    too_quick="The quick run measures each time too few times for a busy machine.",
)
def _time_grows_with_threshold(results: Results) -> ClaimResult:
    return _grows_with_threshold(results, "seconds", _seconds)


@claim(
    "Fig. efficiency b",
    "The time of Alg. 3 is the same for every t",
    why="The order is the same, not the time: selecting a rank and treating those above it costs more for some t.",
    too_quick="The quick run repeats each time too few times to tell a difference of 10 %.",
)
def _same_time_for_every_threshold(results: Results) -> ClaimResult:
    _, ratios = _ours_by_rule(results, "seconds")
    large = [ratio for n, ratio in ratios.items() if n >= 100_000]
    text = f"largest over smallest time among thresholds: {span(ratios.values())} over all n"
    text += f", {span(large)} for n >= 100,000" if large else ""
    return result_of([ratio <= CONSTANT for ratio in ratios.values()], text)


@claim(
    "Fig. efficiency b",
    "For n <= 12 both take less than a millisecond",
    why="Our function does; building a model and calling a solver from Python takes at least about a millisecond.",
)
def _below_a_millisecond(results: Results) -> ClaimResult:
    parts, below = [], []
    for method in ("ours", "gurobi", "highs"):
        series = [_series(results, method, rule, column="seconds") for rule in _rules(results)]
        times = [1e3 * value for values in series for n, value in values.items() if n <= 12]
        below += [value < 1 for value in times]
        if times:
            parts.append(f"{METHODS[method]} {span(times)} ms")
    return result_of(below, ", ".join(parts))


@claim("Fig. efficiency b", "For t = n/2 the solver's time grows exponentially")
def _exponential_time(results: Results) -> ClaimResult:
    return _exponential(results, "seconds")


@claim("Fig. efficiency b", "The time of Alg. 3 grows slowly with n")
def _ours_grows_slowly(results: Results) -> ClaimResult:
    times = _series(results, "ours", "half", column="seconds", least=100_000)
    power = slope(times, times.values())
    most = max(times)  # there are two at least: `slope` has checked
    text = f"as n^{power:.2f} from n = {min(times):,}; {1e3 * times[most]:.0f} ms at n = {most:,}"
    return result_of([power <= 1.2], text)


@claim(
    "Fig. efficiency b",
    "The solver's time grows sharply with n for constant t too",
    remark="The program is the paper's. With one more variable for the total, rows would have t + 1 entries instead of "
    "n - t: smaller at constant t, and not measured here.",
)
def _sharply(results: Results) -> ClaimResult:
    parts, sharp = [], []
    for rule, paper in (("t2", 4.5), ("t3", 5.5)):
        times = _series(results, "highs", rule, column="seconds", least=40)
        power = slope(times, times.values())
        sharp.append(power > 2)
        parts.append(f"HiGHS, {RULES[rule]}: n^{power:.1f} from n = {min(times)} (paper: at most n^{paper})")
    return result_of(sharp, "; ".join(parts))


@claim(
    "Scalability, summary",
    "Alg. 3 outperforms the solver in space and time for large n (15 or more)",
    remark="The solver is given the program with a row for each coalition. `tpmdp.planning.lp.solve_compact` solves "
    "one of polynomial size for the same problem; it is used for personal thresholds.",
)
def _better(results: Results) -> ClaimResult:
    checks, parts = [], []
    for column, word in (("seconds", "the time"), ("peak_bytes", "the memory")):

        def compare(theirs: float, ours: float, word: str = word) -> tuple[bool, str]:
            return theirs > ours, f"{rounded(theirs / ours)} times {word}"

        more, texts = _against_solvers(results, column, compare)
        checks += more
        parts += texts
    return result_of(checks, "; ".join(parts))
