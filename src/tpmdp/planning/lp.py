"""The planning problem as a linear program. The only file that knows a solver.

`solve_enumerated` writes down every dangerous coalition: the reference for small n. `solve_compact` is its dual in
polynomial size (Theory, "Certificate"); it also allows a threshold per party, and `solve_personal` turns its
answer into a plan whose privacy is exact and whose optimality gap is proven.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import linprog

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp._util.exact import exact_sum, to_float, to_fraction, to_integer
from tpmdp._util.progress import Progress
from tpmdp.errors import MissingDependencyError, SolverError
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.witness import Bundle, Witness

PERSONAL_PARTIES_MAX: Final = 300
ENUMERATED_CONSTRAINTS_MAX: Final = 2_000_000
_MARGINAL_BITS: Final = 40
_WEIGHT_BITS: Final = 50
_TOLERANCE: Final = 1e-10

Solver = Literal["highs", "gurobi"]


@dataclass(frozen=True, eq=False)
class LpSolution:
    """A solver's answer: variances (not rounded up), their total, and the number of constraints."""

    variance: FloatArray
    total: float
    constraints: int


@dataclass(frozen=True, eq=False)
class DualSolution:
    """The compact dual: weight of the group fixed at each party, weighted marginals, and variances as its duals."""

    weight: FloatArray
    weighted_marginals: FloatArray  # [group, party]
    variance: FloatArray
    total: float


def enumerate_constraints(
    need: FloatArray, threshold: int | IntArray, receivers: BoolArray
) -> tuple[BoolArray, FloatArray]:
    """Who is honest (rows: coalitions) and the largest need among them that this coalition must leave unbroken.

    >>> enumerate_constraints(np.array([4.0, 1.0]), 1, np.array([True, True]))
    (array([[False,  True],
           [ True, False]]), array([1., 4.]))
    """
    count = len(need)
    thresholds = np.broadcast_to(np.asarray(threshold), (count,))
    sizes = [size for size in np.unique(thresholds).tolist() if size > 0]
    total = sum(comb(count, size) for size in sizes)
    if total > ENUMERATED_CONSTRAINTS_MAX:
        raise SolverError(
            f"{total} coalitions are more than the enumerated program takes ({ENUMERATED_CONSTRAINTS_MAX}): "
            "use plan(), which needs no enumeration"
        )
    honest_rows, bounds = [np.empty((0, count), dtype=np.bool_)], [np.empty(0)]
    for size in sizes:
        members = np.array(list(combinations(range(count), size)), dtype=np.int64)
        members = members[receivers[members].any(axis=1)]
        honest = np.ones((len(members), count), dtype=np.bool_)
        np.put_along_axis(honest, members, False, axis=1)
        concerned = np.where(thresholds == size, need, -1.0)
        bound = np.where(honest, concerned, -1.0).max(axis=1, initial=-1.0)
        honest_rows.append(honest[bound >= 0])
        bounds.append(bound[bound >= 0])
    return np.concatenate(honest_rows), np.concatenate(bounds)


def solve_enumerated(
    need: FloatArray, threshold: int | IntArray, receivers: BoolArray, solver: Solver = "highs"
) -> LpSolution:
    """The paper's Eq. (4) with every coalition written out, by HiGHS or Gurobi.

    >>> solve_enumerated(np.array([4.0, 1.0]), 1, np.array([True, True])).total
    5.0
    """
    honest, bound = enumerate_constraints(need, threshold, receivers)
    if not len(bound) or not bound.any():
        return LpSolution(np.zeros(len(need)), 0.0, len(bound))
    scale = float(bound.max())
    matrix = sparse.csr_matrix(honest.astype(np.float64))
    solve = solve_with_gurobi if solver == "gurobi" else solve_with_highs
    variance = solve(matrix, bound / scale) * scale
    return LpSolution(variance, float(variance.sum()), len(bound))


def solve_with_highs(matrix: Any, bound: FloatArray) -> FloatArray:
    """Least sum of x >= 0 with matrix @ x >= bound, by HiGHS.

    >>> solve_with_highs(sparse.csr_matrix([[1.0, 1.0], [0.0, 1.0]]), np.array([3.0, 1.0])).sum()
    np.float64(3.0)
    """
    result = _highs(np.ones(matrix.shape[1]), A_ub=-matrix, b_ub=-bound, bounds=(0, None))
    solution: FloatArray = result.x
    return solution


def _highs(objective: FloatArray, **program: Any) -> Any:
    """SciPy's HiGHS at its tightest tolerances, or a SolverError."""
    options: Any = {"primal_feasibility_tolerance": _TOLERANCE, "dual_feasibility_tolerance": _TOLERANCE}
    result = linprog(objective, method="highs", options=options, **program)
    if result.status != 0:
        raise SolverError(f"HiGHS stopped without an optimum: {result.message}")
    return result


def solve_with_gurobi(matrix: Any, bound: FloatArray) -> FloatArray:
    """The same by Gurobi; its package comes with a licence for small problems."""
    try:
        import gurobipy
    except ImportError:
        raise MissingDependencyError("gurobipy", "gurobi", "for the Gurobi reference") from None
    try:
        with gurobipy.Env(params={"OutputFlag": 0, "Threads": 1}) as env, gurobipy.Model(env=env) as model:
            x = model.addMVar(matrix.shape[1], lb=0.0)
            model.addConstr(matrix @ x >= bound)
            model.setObjective(x.sum())
            model.optimize()
            if model.Status != gurobipy.GRB.OPTIMAL:
                raise SolverError(f"Gurobi stopped without an optimum (status {model.Status})")
            return np.asarray(x.X, dtype=np.float64)
    except gurobipy.GurobiError as error:
        raise SolverError(
            f"Gurobi refused {matrix.shape[0]} constraints ({error}): its free licence is limited in size, use HiGHS"
        ) from None


def solve_compact(need: FloatArray, threshold: int | IntArray, receivers: BoolArray) -> DualSolution:
    """The compact dual: n^2 variables instead of exponentially many constraints.

    >>> solve_compact(np.array([4.0, 1.0]), np.array([1, 1]), np.array([True, True])).total
    5.0
    """
    count = len(need)
    thresholds = np.broadcast_to(np.asarray(threshold, dtype=np.int64), (count,))
    everyone = np.arange(count)
    others = int(np.count_nonzero(receivers)) - receivers.astype(np.int64)  # receivers beside the fixed party
    safe = (others == 0) | (thresholds == 0)  # nobody can attack these, so their needs do not matter
    scale = float(np.where(safe, 0.0, need).max()) or 1.0
    pair = count + np.arange(count * count).reshape(count, count)  # column of the marginal [group, party]
    columns = count + count * count

    def rows(weight: NDArray[np.floating[Any]], entries: IntArray, owner: IntArray) -> Any:
        """One row per party: weight * its own y, plus the given marginals."""
        values = np.concatenate((weight, np.ones(entries.size)))
        where = (np.concatenate((everyone, owner)), np.concatenate((everyone, entries.ravel())))
        return sparse.csr_matrix((values, where), shape=(count, columns))

    load = rows(np.ones(count), pair.T, np.repeat(everyone, count))
    danger = rows(1.0 - others, pair[:, receivers], np.repeat(everyone, int(np.count_nonzero(receivers))))
    size = rows((thresholds + 1.0) - count, pair, np.repeat(everyone, count))
    box = sparse.hstack(
        (
            sparse.csr_matrix((-np.ones(count * count), (np.arange(count * count), np.repeat(everyone, count)))),
            sparse.identity(count * count),
        )
    )
    upper = np.full(columns, np.inf)
    upper[pair[everyone, everyone]] = 0.0
    upper[:count][safe] = 0.0
    result = _highs(
        np.concatenate((np.where(safe, 0.0, -need / scale), np.zeros(count * count))),
        A_ub=sparse.vstack((load, danger, box)).tocsr(),
        b_ub=np.concatenate((np.ones(count), np.zeros(count + count * count))),
        A_eq=size,
        b_eq=np.zeros(count),
        bounds=np.column_stack((np.zeros(columns), upper)),
    )
    variance = np.maximum(-result.ineqlin.marginals[:count] * scale, 0.0)
    marginals = result.x[count:].reshape(count, count)
    return DualSolution(result.x[:count], marginals, variance, total=float(-result.fun * scale))


def solve_personal(
    need: FloatArray, threshold: IntArray, receivers: BoolArray, progress: Progress | None = None
) -> tuple[FloatArray, Witness, float]:
    """A plan for personal thresholds: variances that are private exactly, a valid witness, and the gap between them.

    >>> variance, witness, gap = solve_personal(np.array([4.0, 1.0, 1.0]), np.array([2, 1, 1]), np.full(3, True))
    >>> round(float(variance.sum()), 6), gap < 1e-6
    (5.0, True)
    """
    if len(need) > PERSONAL_PARTIES_MAX:
        raise SolverError(
            f"{len(need)} parties are too many for personal thresholds, which need a linear program (at most "
            f"{PERSONAL_PARTIES_MAX}): give one common threshold, the largest, which protects all parties"
        )
    if progress is not None:
        progress(0, 1)
    dual = solve_compact(need, threshold, receivers)
    variance = _make_private(dual.variance, need, threshold, receivers=receivers)
    witness = _make_valid(dual, threshold, receivers)
    bound = sum((b.weight * to_fraction(exact_sum(need[b.members])) for b in witness.bundles), Fraction(0))
    total = to_fraction(exact_sum(variance))
    if total and not bound:
        raise SolverError("HiGHS returned no proof of optimality: rescale the sensitivities and try again")
    gap = float((total - bound) / bound) * (1 + 1e-9) if bound else 0.0
    if progress is not None:
        progress(1, 1)
    return variance, witness, gap


def _make_private(variance: FloatArray, need: FloatArray, threshold: IntArray, receivers: BoolArray) -> FloatArray:
    """Let every party add the noise it is short of: its own noise is honest whenever it is attacked."""
    worst = worst_coalitions(variance, threshold, receivers)
    repaired = variance.copy()
    for party, honest in enumerate(worst.exact_honest()):
        missing = 0 if honest is None else to_integer(float(need[party])) - honest
        if missing > 0:
            raised = np.nextafter(variance[party] + np.nextafter(to_float(missing), np.inf), np.inf)
            repaired[party] = raised
    return repaired


def _make_valid(dual: DualSolution, threshold: IntArray, receivers: BoolArray) -> Witness:
    """Round the solver's dual to fractions that satisfy every condition of a witness exactly."""
    count = len(dual.weight)
    unit = 1 << _MARGINAL_BITS
    groups: list[tuple[int, float, list[int]]] = []
    for party in np.flatnonzero(dual.weight > _TOLERANCE).tolist():
        shares = np.clip(dual.weighted_marginals[party] / dual.weight[party], 0.0, 1.0)
        shares[party] = 0.0
        beside = receivers.copy()
        beside[party] = False
        limit = (int(np.count_nonzero(beside)) - 1) * unit
        whole = np.floor(shares * unit).astype(np.int64)
        excess = int(whole[beside].sum()) - limit
        for index in np.flatnonzero(beside).tolist():
            cut = min(max(excess, 0), int(whole[index]))
            whole[index] -= cut
            excess -= cut
        missing = (count - int(threshold[party]) - 1) * unit - int(whole.sum())
        spare = limit - int(whole[beside].sum())
        order = [*np.flatnonzero(~beside).tolist(), *np.flatnonzero(beside).tolist()]
        for index in order:
            room = 0 if index == party else unit - int(whole[index])
            if beside[index]:
                room = min(room, spare)
            added = min(max(missing, 0), room)
            whole[index] += added
            missing -= added
            spare -= added if beside[index] else 0
        if missing <= 0:
            groups.append((party, float(dual.weight[party]), whole.tolist()))
    loads = np.zeros(count)
    for party, weight, shares_list in groups:
        loads += weight * np.array(shares_list) / unit
        loads[party] += weight
    shrink = max(1.0, float(loads.max(initial=0.0))) * (1.0 + 2.0**-40)
    bundles = []
    for party, weight, shares_list in groups:
        scaled = Fraction(int(weight / shrink * (1 << _WEIGHT_BITS)), 1 << _WEIGHT_BITS)
        marginals = tuple(Fraction(share, unit) for share in shares_list)
        bundles.append(Bundle(np.array([party], dtype=np.int64), scaled, marginals))
    return Witness(np.arange(count, dtype=np.int64), tuple(bundles))
