"""The paper's claims about time and memory."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Final

from tpmdp.experiments.claims.claim import CONSTANT, MUCH, Claim, ClaimResult, judged, rounded, span
from tpmdp.experiments.efficiency_experiment import METHODS, RULES
from tpmdp.experiments.results import NotMeasuredError, Results, slope

SOLVERS: Final = ("highs", "gurobi")


def _series(results: Results, method: str, rule: str, column: str) -> dict[int, float]:
    """A column against n, where the method came through."""
    return {
        int(row["n"] or 0): float(row[column] or 0.0)
        for row in results.efficiency_rows
        if row["method"] == method and row["panel"] == rule and row["outcome"] == "ok" and row[column] is not None
    }


def _rules(results: Results) -> list[str]:
    return list(dict.fromkeys(str(row["panel"]) for row in results.efficiency_rows))


def _named(method: str, rule: str, n: int) -> str:
    return f"{METHODS[method]}, {RULES[rule]}, n = {n}"


def _bytes(value: float) -> str:
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.1f} MB"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value >= 1 else f"{1e3 * value:.1f} ms"


def _flat_memory(results: Results) -> ClaimResult:
    series = {rule: _series(results, "ours", rule, "peak_bytes") for rule in _rules(results)}
    memory = series.get("half", {})
    if not memory:
        raise NotMeasuredError("not run")
    shared = set.intersection(*(set(one) for one in series.values()))
    by_threshold = [max(one[n] for one in series.values()) / min(one[n] for one in series.values()) for n in shared]
    most, least = max(memory), min(memory)
    text = f"{_bytes(memory[least])} at n = {least}, {_bytes(memory[most])} at n = {most:,}"
    text += f"; largest over smallest among thresholds {span(by_threshold)}"
    good = int(memory[most] / memory[least] <= CONSTANT) + int(max(by_threshold) <= CONSTANT)
    return judged(good, 2, text)


def _smaller_memory(results: Results) -> ClaimResult:
    parts, good, of = [], 0, 0
    for method in SOLVERS:
        for rule in _rules(results):
            theirs, ours = (_series(results, name, rule, "peak_bytes") for name in (method, "ours"))
            both = [n for n in theirs if n >= 15 and n in ours]
            if not both:
                continue
            of += len(both)
            good += sum(theirs[n] >= MUCH * ours[n] for n in both)
            most = max(both)
            parts.append(f"{_named(method, rule, most)}: {_bytes(theirs[most])} against {_bytes(ours[most])}")
    return judged(good, of, f"twice ours or more at {good} of {of} points; " + "; ".join(parts))


def _memory_grows_with_threshold(results: Results) -> ClaimResult:
    return _grows_with_threshold(results, "peak_bytes", _bytes)


def _time_grows_with_threshold(results: Results) -> ClaimResult:
    return _grows_with_threshold(results, "seconds", _seconds)


def _grows_with_threshold(results: Results, column: str, shown: Callable[[float], str]) -> ClaimResult:
    """The same n, t = 2, 3 and half."""
    parts, good, of = [], 0, 0
    for method in SOLVERS:
        series = {rule: _series(results, method, rule, column) for rule in ("t2", "t3", "half")}
        for lower, higher in (("t2", "t3"), ("t3", "half")):
            both = sorted(set(series[lower]) & set(series[higher]))
            of += len(both)
            good += sum(series[higher][n] >= series[lower][n] for n in both)
            if both:
                n = both[-1]
                low, high = shown(series[lower][n]), shown(series[higher][n])
                parts.append(f"{METHODS[method]}, n = {n}: {low} ({RULES[lower]}), {high} ({RULES[higher]})")
    return judged(good, of, f"at {good} of {of} pairs; " + "; ".join(parts))


def _exponential(results: Results, column: str) -> ClaimResult:
    """Growth for each added party, t = n/2, over the larger points."""
    memory = {n: value for n, value in _series(results, "highs", "half", column).items() if n >= 14}
    if len(memory) < 4:
        raise NotMeasuredError("too few points")
    growth = [(memory[b] / memory[a]) ** (1 / (b - a)) for a, b in pairwise(memory)]
    text = f"HiGHS: a factor of {span(growth[-4:])} for each added party up to n = {max(memory)}"
    stopped = [row for row in results.efficiency_rows if row["method"] == "highs" and row["panel"] == "half"]
    ends = [f"n = {row['n']}: {row['outcome']}" for row in stopped if row["outcome"] != "ok"]
    return judged(int(min(growth[-3:]) > 1.5), 1, text + (f"; limit reached at {', '.join(ends)}" if ends else ""))


def _exponential_memory(results: Results) -> ClaimResult:
    return _exponential(results, "peak_bytes")


def _exponential_time(results: Results) -> ClaimResult:
    return _exponential(results, "seconds")


def _same_time_for_every_threshold(results: Results) -> ClaimResult:
    times = {rule: _series(results, "ours", rule, "seconds") for rule in _rules(results)}
    if not times:
        raise NotMeasuredError("not run")
    both = sorted(set.intersection(*(set(series) for series in times.values())))
    ratios = [max(series[n] for series in times.values()) / min(series[n] for series in times.values()) for n in both]
    large = [ratio for n, ratio in zip(both, ratios, strict=True) if n >= 100_000]
    text = f"largest over smallest time among thresholds: {span(ratios)} over all n"
    text += f", {span(large)} for n >= 100,000" if large else ""
    return judged(sum(ratio <= CONSTANT for ratio in ratios), len(ratios), text)


def _below_a_millisecond(results: Results) -> ClaimResult:
    parts, good, of = [], 0, 0
    for method in ("ours", "gurobi", "highs"):
        times = []
        for rule in _rules(results):
            times += [value for n, value in _series(results, method, rule, "seconds").items() if n <= 12]
        if times:
            of += len(times)
            good += sum(value < 1e-3 for value in times)
            parts.append(f"{METHODS[method]} {span([1e3 * value for value in times])} ms")
    return judged(good, of, ", ".join(parts))


def _ours_grows_slowly(results: Results) -> ClaimResult:
    times = {n: value for n, value in _series(results, "ours", "half", "seconds").items() if n >= 100_000}
    power = slope(times, times.values())
    most = max(times)  # the slope has seen two
    text = f"as n^{power:.2f} from n = {min(times):,}; {1e3 * times[most]:.0f} ms at n = {most:,}"
    return judged(int(power <= 1.2), 1, text)


def _sharply(results: Results) -> ClaimResult:
    parts, good, of = [], 0, 0
    for rule, paper in (("t2", 4.5), ("t3", 5.5)):
        times = {n: value for n, value in _series(results, "highs", rule, "seconds").items() if n >= 40}
        power = slope(times, times.values())
        of += 1
        good += power > 2
        parts.append(f"HiGHS, {RULES[rule]}: n^{power:.1f} from n = {min(times)} (paper: at most n^{paper})")
    return judged(good, of, "; ".join(parts))


def _better(results: Results) -> ClaimResult:
    parts, good, of = [], 0, 0
    for method in SOLVERS:
        for rule in _rules(results):
            for column, word in (("seconds", "the time"), ("peak_bytes", "the memory")):
                theirs, ours = (_series(results, name, rule, column) for name in (method, "ours"))
                both = [n for n in theirs if n in ours and n >= 15]
                if both:
                    of += len(both)
                    good += sum(theirs[n] > ours[n] for n in both)
                    most = max(both)
                    times = rounded(theirs[most] / ours[most])
                    parts.append(f"{_named(method, rule, most)}: {times} times {word}")
    return judged(good, of, "; ".join(parts))


CLAIMS: Final = (
    Claim(
        "Fig. efficiency a",
        "The space of Alg. 3 does not depend on n and t",
        _flat_memory,
        "On t not; on n yes, as soon as arrays are larger than a page: it is O(n), as the paper's own table says.",
    ),
    Claim("Fig. efficiency a", "It is much smaller than the solver's for n >= 15", _smaller_memory),
    Claim("Fig. efficiency a", "The solver's space grows with t", _memory_grows_with_threshold),
    Claim("Fig. efficiency a", "For t = n/2 it grows exponentially", _exponential_memory),
    Claim("Fig. efficiency b", "The solver's time grows with t", _time_grows_with_threshold),
    Claim(
        "Fig. efficiency b",
        "The time of Alg. 3 is the same for every t",
        _same_time_for_every_threshold,
        "The same order, not the same time: selecting a rank and treating those above it costs more for some t.",
    ),
    Claim(
        "Fig. efficiency b",
        "For n <= 12 both take less than a millisecond",
        _below_a_millisecond,
        "Our function does; building a model and calling a solver from Python takes about a millisecond at the least.",
    ),
    Claim("Fig. efficiency b", "For t = n/2 the solver's time grows exponentially", _exponential_time),
    Claim("Fig. efficiency b", "The time of Alg. 3 grows slowly with n", _ours_grows_slowly),
    Claim(
        "Fig. efficiency b",
        "The solver's time grows sharply with n for constant t too",
        _sharply,
        remark="The program here is the paper's. With one more variable for the total, rows would have t + 1 entries "
        "instead of n - t: smaller at constant t, and not measured here.",
    ),
    Claim(
        "Scalability, summary",
        "Alg. 3 outperforms the solver in space and time for large n (15 or more)",
        _better,
        remark="Given the program with a row for each coalition. `tpmdp.planning.lp.solve_compact` is one of "
        "polynomial size for the same problem, used for personal thresholds.",
    ),
)
