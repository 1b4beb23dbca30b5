"""What all parties of a session sign: the parties, the query, every budget and the whole plan.

Before a party signs, it checks the plan against its own budget, wherever it comes from: in exact arithmetic, without
planner or calibration. Theory, "What a party checks before it signs".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from tpmdp._util.arrays import BoolArray, FloatArray, IntArray
from tpmdp._util.canonical import canonical_json, from_hex, to_hex
from tpmdp._util.exact import to_fraction
from tpmdp.errors import InputError
from tpmdp.noise.grid import (
    ROUNDING_VARIANCE,
    SIGMA_MAX,
    SIGMA_MIN,
    WORDS,
    Grid,
    closeness,
    error_in_steps,
    fits,
    largest_sigma,
    reach,
    sigma_in_steps,
)
from tpmdp.planning.closed_form import optimal_variance
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.enclosure import is_enough
from tpmdp.planning.grid_plan import GridPlan
from tpmdp.planning.losses import check_tolerate, openings_of, promised
from tpmdp.planning.person import attacks
from tpmdp.protocol.graph import is_circulant, neighbours
from tpmdp.protocol.hybrid import SUITE
from tpmdp.protocol.keepers import keeper_count
from tpmdp.protocol.messages import HASH_BYTES, MESSAGE_MAX, PARTIES_MAX
from tpmdp.spec import Spec

Guarantee = Literal["computational", "statistical"]
GUARANTEES: Final = ("computational", "statistical")
PUBLIC_KEY_BYTES: Final = 32
LABEL_MAX: Final = 300
ZERO_BITS: Final = 128
NEED_MAX: Final = 2.0**62  # squared steps
SUITE_BEFORE: Final = "x25519"  # of versions before 0.12.0, whose terms can be read


@dataclass(frozen=True, eq=False)
class Terms:
    """Everything a session depends on. Equal terms have the same plan hash; label and roster identify the session."""

    label: str  # name of the study, and number of the session
    spec: Spec  # what the parties asked for
    query: str  # canonical text of what is computed
    bounds: FloatArray  # largest absolute value of any entry a party contributes
    grid: Grid
    sigma: IntArray  # noise of each party, in grid steps
    guarantee: Guarantee
    roster: tuple[bytes, ...]  # Ed25519 public keys, in the order of the parties
    tolerate: int = 0  # parties that may drop out
    needs: FloatArray | None = None  # with drop-outs: the least honest noise in any group, in squared steps
    public: bool = False  # whether the answer reaches everybody, through what the receivers make of it
    suite: str = SUITE  # how parties agree on keys; no other is used

    def __post_init__(self) -> None:
        count, grid = self.spec.count, self.grid
        _require(2 <= count <= PARTIES_MAX, "parties", count, rule=f"must be from 2 to {PARTIES_MAX}")
        good = 0 < len(self.label) <= LABEL_MAX
        _require(good, "label", self.label, rule="must be short text", remedy="name the study")
        rule = f"must be one of {', '.join(GUARANTEES)}"
        _require(self.guarantee in GUARANTEES, "guarantee", self.guarantee, rule=rule, remedy="choose one")
        rule, remedy = "leaves nobody to learn the answer", "choose who learns the answer"
        _require(self.spec.receiver_count > 0, "receivers", "none", rule=rule, remedy=remedy)
        keys, remedy = set(self.roster), "run tpmdp keygen"
        _require(len(keys) == count, "public keys", len(keys), rule=f"must be {count} different ones", remedy=remedy)
        sizes = {len(key) for key in keys}
        good = sizes == {PUBLIC_KEY_BYTES}
        _require(good, "public key", sorted(sizes), rule="must have 32 bytes", remedy=remedy)
        rule, remedy = f"must be one of {SUITE}, {SUITE_BEFORE}", "ask for the file again"
        _require(self.suite in (SUITE, SUITE_BEFORE), "key agreement", self.suite, rule=rule, remedy=remedy)
        shapes, remedy = self.sigma.shape == self.bounds.shape == (count,), "plan the study again"
        good = bool((np.isfinite(self.bounds) & (self.bounds >= 0)).all()) if shapes else True
        _require(good, "bounds", self.bounds.tolist(), rule="must be finite and not negative", remedy=remedy)
        _require(grid.dimension >= 1, "dimension", grid.dimension, rule="must be at least 1", remedy="ask something")
        _require(shapes, "plan", f"{self.sigma.shape}", rule=f"must have {count} entries", remedy=remedy)
        check_tolerate(self.spec, self.tolerate, self.guarantee)
        good, remedy = (self.needs is not None) == (self.tolerate > 0), "plan the study again"
        _require(good, "needs of groups", "(missing or too many)", rule="belong to drop-outs", remedy=remedy)
        if self.needs is not None:
            good = self.needs.shape == (count,) and bool(((self.needs >= 0) & (self.needs < NEED_MAX)).all())
            _require(good, "needs of groups", self.needs.tolist(), rule=f"must be {count} numbers", remedy=remedy)
        good, rule = self.masked_bytes + 4096 <= MESSAGE_MAX, f"makes messages longer than {MESSAGE_MAX} bytes"
        _require(good, "dimension", grid.dimension, rule=rule, remedy="split the query")

    @classmethod
    def of(
        cls,
        label: str,
        plan: GridPlan,
        bounds: Any,
        roster: tuple[bytes, ...],
        query: str = "sum",
        guarantee: Guarantee = "computational",
        tolerate: int = 0,
        public: bool = False,
    ) -> Terms:
        """The terms of a plan; with drop-outs, of one with `groups`.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", plan, 1.0, (bytes(32), bytes(31) + b"1"))
        >>> len(terms.session), terms.lead
        (32, 0)
        """
        every = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (plan.asked.count,))
        return cls(
            label,
            plan.asked,
            query,
            bounds=every,
            grid=plan.grid,
            sigma=plan.sigma,
            guarantee=guarantee,
            roster=roster,
            tolerate=tolerate,
            needs=_promised(plan, tolerate) if tolerate else None,
            public=public,
        )

    def among(self, members: Iterable[int]) -> Terms:
        """The terms of a group that is left: its own plan, for the same needs and the same threshold.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> plan = plan_on_grid(Spec(epsilon=[1.0] * 5, delta=1e-6, threshold=1), bound=1.0, groups=True)
        >>> terms = Terms.of("demo", plan, 1.0, tuple(bytes([each]) * 32 for each in range(5)), tolerate=1)
        >>> group, step = terms.among([0, 1, 2, 4]), terms.grid.step
        >>> print(f"{group.sigma[0] * step:.2f} for each of {group.count}, {terms.sigma[0] * step:.2f} for each of all")
        2.44 for each of 4, 2.11 for each of all
        """
        group = frozenset(members)
        if len(group) == self.count:
            return self
        if group not in self._groups:
            self._groups[group] = self._among(sorted(group))
        return self._groups[group]

    @cached_property
    def _groups(self) -> dict[frozenset[int], Terms]:
        return {}

    def _among(self, members: list[int]) -> Terms:
        spec = self.spec
        _require(self.needs is not None, "tolerate", 0, rule="says that nobody drops out")
        assert self.needs is not None
        assert isinstance(spec.threshold, int)
        part = Spec(
            epsilon=spec.epsilon[members],
            delta=spec.delta[members],
            sensitivity=spec.sensitivity[members],
            threshold=spec.threshold,
            receivers=spec.receivers[members],
            names=[spec.name(party) for party in members],
        )
        variance, _ = optimal_variance(self.needs[members], spec.threshold, self._audience[members])
        group = replace(
            self,
            spec=part,
            bounds=self.bounds[members],
            sigma=sigma_in_steps(variance, 1.0),
            roster=tuple(self.roster[party] for party in members),
            tolerate=0,
            needs=None,
        )
        group._check_grid()
        return group

    def check_group(self, party: int, members: Collection[int]) -> None:
        """Refuse a plan for a group that gives this party less noise than it was promised, or could overflow."""
        group = self.among(members)
        if group is self or self.needs is None:
            return
        honest = group._honest_planned[sorted(members).index(party)]
        if honest is not None:
            self._check_need(party, honest)

    def _check_need(self, party: int, honest: int | Fraction) -> None:
        """Refuse less honest noise than the party is promised in every group, and charged for."""
        if honest < self._fractional_needs[party]:
            value, rule = f"{float(honest):.6g}", f"is less than {self.spec.name(party)} needs in every group"
            raise InputError("honest noise in the group", value, rule, "do not take part; report this")

    @property
    def _audience(self) -> BoolArray:
        """Who learns the answer, by the protocol or through what its receivers make of it."""
        return np.ones(self.count, dtype=np.bool_) if self.public else self.spec.receivers

    @property
    def openings(self) -> int:
        """How many parties open an attempt together, where parties may drop out; no two attempts have so many.

        In statistical mode all of the group do.
        """
        return openings_of(self.count, int(np.max(self.spec.threshold)))

    @property
    def has_keepers(self) -> bool:
        """Whether keepers keep attempts closed: where parties may drop out, but for the statistical guarantee."""
        return self.tolerate > 0 and self.guarantee != "statistical"

    @cached_property
    def keepers_max(self) -> int:
        """The most keepers that a group has: the smallest one."""
        return keeper_count(self.count - self.tolerate, self.colluders) if self.has_keepers else 0

    @property
    def count(self) -> int:
        """The number of parties."""
        return self.spec.count

    @cached_property
    def lead(self) -> int:
        """The receiver that adds up the submissions: the first one."""
        return int(np.flatnonzero(self.spec.receivers)[0])

    @property
    def words_bytes(self) -> int:
        """Size of a vector on the wire."""
        return self.grid.dimension * self.grid.word // 8

    @property
    def masked_words(self) -> int:
        """Entries of a masked vector: behind the party's own there are zeros, which show whether all masks cancel."""
        return self.grid.dimension + ZERO_BITS // self.grid.word

    @property
    def masked_bytes(self) -> int:
        """Size of a masked vector on the wire."""
        return self.masked_words * self.grid.word // 8

    @property
    def standard_deviation(self) -> float:
        """Error of each coordinate: the noise, and the most that rounding can add."""
        return error_in_steps(self.sigma) * self.grid.step

    def standard_deviation_of(self, parties: Iterable[int]) -> float:
        """The same of an answer in which only these parties are counted."""
        return self.among(parties).standard_deviation

    @property
    def colluders(self) -> int:
        """How many parties may collude."""
        return int(np.max(self.spec.threshold))

    def neighbours(self, party: int) -> list[int]:
        """The parties that this one shares masks with if all are there and the graph is not drawn."""
        return neighbours(party, self.count, self.colluders)

    @property
    def _surrounding(self) -> int:
        """How many parties can hold all masks of another one, in a graph of all."""
        if self.guarantee != "statistical" and not is_circulant(self.count, self.colluders):
            return self.colluders + 1  # drawn: nothing is promised beyond the threshold
        return len(self.neighbours(0))

    @cached_property
    def session(self) -> bytes:
        """The id of the session, from label and roster. The relay knows it, but neither study nor plan."""
        return session_id(self.label_hash, self.roster)

    @cached_property
    def label_hash(self) -> bytes:
        """The hash that stands for the label at the relay."""
        return hash_label(self.label)

    @cached_property
    def plan_hash(self) -> bytes:
        """Hash of study and plan, which every party signs and every message carries."""
        return hashlib.sha256(b"tpmdp plan 1" + self.canonical().encode()).digest()

    @property
    def before(self) -> Terms:
        """The same terms as versions before 0.12.0 signed them: what they settled can be read, and not gone on with."""
        return replace(self, suite=SUITE_BEFORE)

    @cached_property
    def keyless_hash(self) -> bytes:
        """Hash of all that the plan hash covers but the keys: the same before the parties have keys and afterwards."""
        document = {field: value for field, value in json.loads(self.canonical()).items() if field != "roster"}
        return hashlib.sha256(b"tpmdp study 1" + canonical_json(document).encode()).digest()

    def canonical(self) -> str:
        """One text for equal terms: sorted keys, floats in hexadecimal."""
        return self._canonical

    @cached_property
    def _canonical(self) -> str:
        spec = self.spec
        document = {
            "label": self.label,
            "names": None if spec.names is None else list(spec.names),
            "epsilon": to_hex(spec.epsilon.tolist()),
            "delta": to_hex(spec.delta.tolist()),
            "sensitivity": to_hex(spec.sensitivity.tolist()),
            "threshold": np.asarray(spec.threshold).tolist(),
            "receivers": np.flatnonzero(spec.receivers).tolist(),
            "query": self.query,
            "bounds": to_hex(self.bounds.tolist()),
            "step": self.grid.step.hex(),
            "dimension": self.grid.dimension,
            "word": self.grid.word,
            "sigma": self.sigma.tolist(),
            "guarantee": self.guarantee,
            "roster": [key.hex() for key in self.roster],
            **({"tolerate": self.tolerate} if self.tolerate else {}),
            **({"needs": to_hex(self.needs.tolist())} if self.needs is not None else {}),
            **({"public": True} if self.public else {}),
            **({"suite": self.suite} if self.suite != SUITE_BEFORE else {}),
        }
        return canonical_json(document)

    @classmethod
    def parse(cls, text: str) -> Terms:
        """The terms of a canonical text from anywhere; only the exact text of `canonical` is accepted.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", plan, 1.0, (bytes(32), bytes(31) + b"1"))
        >>> Terms.parse(terms.canonical()).plan_hash == terms.plan_hash
        True
        """
        try:
            read = json.loads(text)
            threshold, names = read["threshold"], read["names"]
            spec = Spec(
                **{field: from_hex(read[field]) for field in ("epsilon", "delta", "sensitivity")},
                threshold=np.array(threshold) if isinstance(threshold, list) else threshold,
                receivers=read["receivers"],
                names=names,
            )
            grid = Grid(float.fromhex(read["step"]), int(read["dimension"]), int(read["word"]))
            terms = cls(
                read["label"],
                spec,
                read["query"],
                bounds=np.array(from_hex(read["bounds"])),
                grid=grid,
                sigma=np.array(read["sigma"], dtype=np.int64),
                guarantee=read["guarantee"],
                roster=tuple(bytes.fromhex(key) for key in read["roster"]),
                tolerate=read.get("tolerate", 0),
                needs=np.array(from_hex(read["needs"])) if "needs" in read else None,
                public=read.get("public", False),
                suite=read.get("suite", SUITE_BEFORE),
            )
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("terms", text, "are not terms of a session", "ask for the file again") from None
        if terms.canonical() != text:
            raise InputError("terms", text, "are not in canonical form", "ask for the file again")
        return terms

    def check(self, party: int) -> None:
        """Refuse a plan that breaks this party's budget, could overflow, or whose noise is not exact."""
        rule, remedy = f"must be {SUITE}", "update tpmdp at all parties, and use another session number"
        _require(self.suite == SUITE, "key agreement", self.suite, rule=rule, remedy=remedy)
        self._check_grid()
        spec, name = self.spec, self.spec.name(party)
        epsilon, delta = float(spec.epsilon[party]), float(spec.delta[party])
        honest = self._honest_planned[party]
        if honest is None:  # no dangerous coalition: nobody can attack
            return
        if self.needs is not None:  # that of all, and of every group, see `check_group`
            self._check_need(party, honest)
            honest = self._fractional_needs[party]
        if math.isinf(epsilon) or spec.sensitivity[party] == 0:
            return
        budget = Fraction(math.nextafter(epsilon, 0.0)), Fraction(math.nextafter(delta, 0.0))
        variance = (honest - ROUNDING_VARIANCE) * Fraction(self.grid.step) ** 2
        if not is_enough(variance, *budget, sensitivity=self._sensitivity(party)):
            value = f"{math.sqrt(variance) if variance > 0 else 0.0:.6g}"
            rule = f"breaks the budget of {name} (epsilon {epsilon:g}, delta {delta:g})"
            raise InputError("honest noise in the plan", value, rule, "do not take part; ask for a correct plan")

    def charge(self, party: int, colluders: int | None = None) -> tuple[float, float]:
        """(mu, closeness) of this release for the party, rounded up: what its ledger is charged.

        It counts coalitions of at least one receiver, even at threshold 0, where no noise hides the answer from it.
        Where parties may drop out, it is that of the group with the least noise: exactly the need of the party. With
        `colluders`, what it would be at most against so many parties in a masked sum, within the threshold or not.
        """
        if self.spec.sensitivity[party] == 0:
            return 0.0, 0.0
        honest = self._honest_against(colluders)[party] if colluders else self._honest_charged[party]
        if honest is not None and self.needs is not None:
            honest = self._least_in_groups(party, colluders or self.colluders)
        return (0.0, 0.0) if honest is None else self._cost(self._sensitivity(party), honest)

    def charge_among(self, party: int, members: Collection[int]) -> tuple[float, float]:
        """The same of an attempt among these parties: at most that, since its noise may be more than the needs ask for.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> plan = plan_on_grid(Spec(epsilon=[0.5, 1, 2, 3, 4], delta=1e-6, threshold=1), bound=1.0, groups=True)
        >>> terms = Terms.of("demo", plan, 1.0, tuple(bytes([each]) * 32 for each in range(5)), tolerate=1)
        >>> each = terms.charge_among(4, range(5)), terms.charge_among(4, [0, 2, 3, 4]), terms.charge(4)
        >>> [round(mu, 2) for mu, _ in each]
        [0.24, 0.45, 0.45]
        """
        mu, near = self.charge(party)
        if self.needs is None:
            return mu, near
        if len(members) < self.count:
            return min(mu, self.among(members).charge(sorted(members).index(party))[0]), near
        honest = self._honest_charged[party]
        return (mu if honest is None else min(mu, self._cost(self._sensitivity(party), honest)[0])), near

    def person_charge(self, parties: Sequence[int]) -> tuple[float, float, tuple[int, ...]]:
        """(mu, closeness) for a person with a record at each of these parties, rounded up, and the worst coalition.

        Members of the coalition know the records that they hold; the cost is that of the others. The coalition is empty
        if nobody can attack. Theory, "One person at several parties".

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> plan = plan_on_grid(Spec(epsilon=[1.0] * 3, delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", plan, 1.0, (bytes(32), bytes(31) + b"1", bytes(31) + b"2"))
        >>> mu, _, coalition = terms.person_charge([0, 1])
        >>> round(mu / terms.charge(0)[0], 2), coalition
        (2.0, (2,))
        """
        places = tuple(sorted(party for party in parties if self.spec.sensitivity[party]))
        worst: tuple[float, float, tuple[int, ...]] = (0.0, 0.0, ())
        for attack in attacks(self._charged_spec, self._squares, self.spec.sensitivity, places=places):
            change = sum((self._sensitivity(party) for party in attack.exposed), Fraction(0))
            cost = self._cost(change, to_fraction(attack.honest))
            if cost[0] > worst[0]:
                worst = (*cost, attack.members)
        return worst if self.needs is None else (*self._person_cost_in_groups(places), worst[2])

    def _least_in_groups(self, party: int, colluders: int) -> Fraction:
        """At most the honest noise against a party in any group; beyond the threshold, a part of its need.

        Theory, "The noise of a group is enough".
        """
        need, more = self._fractional_needs[party], colluders - self.colluders
        if more <= 0:
            return need
        if self._surrounding <= colluders:
            return Fraction(0)
        honest = self.count - self.tolerate - self.colluders
        silent = int(np.count_nonzero(self._audience)) - 1  # receivers add nothing in some plans, but for themselves
        least = honest - silent if honest > silent else 1
        return need * max(least - more, 0) / least

    def _person_cost_in_groups(self, places: Sequence[int]) -> tuple[float, float]:
        """At most: in every group the honest noise is at least the largest need of the parties that are exposed.

        So for each largest need, all parties with smaller ones count as exposed, too.
        """
        needs = self._fractional_needs
        attacked = [party for party in places if self._honest_charged[party] is not None]
        change, worst = Fraction(0), (0.0, 0.0)
        for party in sorted(attacked, key=needs.__getitem__):
            change += self._sensitivity(party)
            worst = max(worst, self._cost(change, needs[party]))
        return worst

    @cached_property
    def _fractional_needs(self) -> list[Fraction]:
        assert self.needs is not None
        return [Fraction(need) for need in self.needs.tolist()]

    def _cost(self, change: Fraction, honest: int | Fraction) -> tuple[float, float]:
        """(mu, closeness) of a change of the data under so much honest noise, in squared steps."""
        if honest <= ROUNDING_VARIANCE:
            return math.inf, 0.0
        square = change**2 / ((honest - ROUNDING_VARIANCE) * Fraction(self.grid.step) ** 2)
        return _root_up(square), closeness(self.count, self.grid.dimension) * (1 + 2.0**-40)

    @cached_property
    def _charged_spec(self) -> Spec:
        """The spec with a threshold of at least 1: a receiver sees the answer even at threshold 0."""
        spec = self.spec.replace(receivers="all") if self.public else self.spec
        return spec if np.min(spec.threshold) else spec.replace(threshold=np.maximum(spec.threshold, 1))

    @cached_property
    def _squares(self) -> FloatArray:
        """The variance of each party's noise in squared steps; exact, as it is below 2**53."""
        return (self.sigma * self.sigma).astype(np.float64)

    def _honest_against(self, colluders: int) -> list[int | Fraction | None]:
        """The least honest noise against each party; its own only, where so many could hold all masks of a party."""
        if colluders not in self._honest_by_colluders:
            honest, shared = self._honest(colluders), self._surrounding
            if shared <= colluders and shared < self.count - 1:
                own = [sigma**2 for sigma in self.sigma.tolist()]
                honest = [None if each is None else mine for each, mine in zip(honest, own, strict=True)]
            self._honest_by_colluders[colluders] = honest
        return self._honest_by_colluders[colluders]

    @cached_property
    def _honest_by_colluders(self) -> dict[int, list[int | Fraction | None]]:
        return {}

    @cached_property
    def _honest_planned(self) -> list[int | Fraction | None]:
        return self._honest(self.spec.threshold)

    @cached_property
    def _honest_charged(self) -> list[int | Fraction | None]:
        return self._honest(self._charged_spec.threshold)

    def _honest(self, threshold: int | IntArray) -> list[int | Fraction | None]:
        """The least honest noise against each party, in squared steps, exactly."""
        every = worst_coalitions(self._squares, threshold, self._audience).exact_honest()
        return [None if exact is None else to_fraction(exact) for exact in every]

    def _sensitivity(self, party: int) -> Fraction:
        """The sensitivity on the grid: at most step * sqrt(dimension) more, rounded up."""
        return Fraction(float(self.spec.sensitivity[party])) + self._rounding

    @cached_property
    def _rounding(self) -> Fraction:
        bits = 40 if self.needs is None else 80  # needs of groups have no room for more rounding
        return Fraction(self.grid.step) * Fraction(math.isqrt(self.grid.dimension << 2 * bits) + 1, 1 << bits)

    def _check_grid(self) -> None:
        remedy = "do not take part; ask for a correct plan"
        step, word, sigma, dimension = self.grid.step, self.grid.word, self.sigma, self.grid.dimension
        good = math.isfinite(step) and step > 0 and math.frexp(step)[0] == 0.5 and word in WORDS
        rule = "must be a power of two and a 32- or 64-bit word"
        _require(good, "grid", f"{step!r}, {word}", rule=rule, remedy=remedy)
        good = bool(((sigma == 0) | ((sigma >= SIGMA_MIN) & (sigma <= SIGMA_MAX))).all())
        rule = f"must be 0 or from {SIGMA_MIN} to {SIGMA_MAX} steps"
        _require(good, "sigma", sigma.tolist(), rule=rule, remedy=remedy)
        finite = self.spec.epsilon[np.isfinite(self.spec.epsilon)]
        good = closeness(self.count, dimension) <= 2.0**-54 * min(1.0, float(finite.min(initial=1.0)))
        _require(good, "dimension", dimension, rule="is too large for the proof of exact noise", remedy=remedy)
        most = sigma if self.needs is None else np.full_like(sigma, largest_sigma(self.needs))
        good = int(most.max(initial=0)) <= SIGMA_MAX
        _require(good, "needs of groups", int(most.max(initial=0)), rule="are too large for the grid", remedy=remedy)
        largest = reach(self.bounds, most, step, dimension=dimension)
        value, rule = f"sums up to {largest} steps", f"could wrap {word} bits"
        _require(fits(word, largest), "plan", value, rule=rule, remedy=remedy)


def _promised(plan: GridPlan, tolerate: int) -> FloatArray:
    """The least honest noise in any group, in squared steps."""
    spec = plan.asked
    check_tolerate(spec, tolerate, "statistical")  # of all kinds, the one that bears most
    assert isinstance(spec.threshold, int)
    needs, has_data = plan.needs_in_steps, spec.sensitivity > 0
    return promised(needs, spec.threshold, spec.receivers, tolerate=tolerate, has_data=has_data)


def hash_label(label: str) -> bytes:
    """The hash that stands for a label at the relay.

    >>> len(hash_label("length of stay / session 1"))
    32
    """
    return hashlib.sha256(b"tpmdp label 1" + label.encode()).digest()


def session_id(label_hash: bytes, roster: tuple[bytes, ...]) -> bytes:
    """The id of a session. The relay recomputes it, so nobody can claim the session of others.

    >>> len(session_id(bytes(32), (bytes(32), bytes(32))))
    32
    """
    if len(label_hash) != HASH_BYTES:
        raise InputError("label", f"{len(label_hash)} bytes", "must have 32 bytes", "hash it")
    return hashlib.sha256(b"tpmdp session 1" + label_hash + b"".join(roster)).digest()


def _root_up(square: Fraction) -> float:
    """A double at least the square root of a fraction."""
    scaled = square * (1 << 200)
    root = math.isqrt(math.ceil(scaled)) + 1
    value = float(Fraction(root, 1 << 100))
    return math.nextafter(value, math.inf) if Fraction(value) < Fraction(root, 1 << 100) else value


def _require(holds: bool, field: str, value: Any, *, rule: str, remedy: str = "change the study") -> None:
    if not holds:
        raise InputError(field, value, rule, remedy)
