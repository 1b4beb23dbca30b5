"""What all parties of a session sign: who they are, what is asked, every budget and the whole plan.

A party checks the plan against its own budget before it signs, whoever computed it: in exact arithmetic, with neither
planner nor calibration. docs/theory.md, "What a party checks before it signs".
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
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
    reach,
)
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.planning.enclosure import is_enough
from tpmdp.planning.grid_plan import GridPlan
from tpmdp.protocol.graph import neighbours
from tpmdp.protocol.messages import HASH_BYTES, MESSAGE_MAX, PARTIES_MAX
from tpmdp.spec import Spec

Guarantee = Literal["computational", "statistical"]
GUARANTEES: Final = ("computational", "statistical")
PUBLIC_KEY_BYTES: Final = 32
LABEL_MAX: Final = 300


@dataclass(frozen=True, eq=False)
class Terms:
    """Everything a session depends on. Equal terms have the same plan hash; a session is one label for one roster."""

    label: str  # study and number of the session
    spec: Spec  # what the parties asked for
    query: str  # canonical text of what is computed
    bounds: FloatArray  # largest absolute value of any entry a party contributes
    grid: Grid
    sigma: IntArray  # noise of each party, in grid steps
    guarantee: Guarantee
    roster: tuple[bytes, ...]  # Ed25519 public keys, in the order of the parties
    tolerate: int = 0  # parties that may drop out; the spec's threshold counts them, too

    def __post_init__(self) -> None:
        count = self.spec.count
        _require("parties", count, 2 <= count <= PARTIES_MAX, f"must be from 2 to {PARTIES_MAX}", "change the study")
        _require("label", self.label, 0 < len(self.label) <= LABEL_MAX, "must be short text", "name the study")
        rule, remedy = f"must be one of {', '.join(GUARANTEES)}", "choose one"
        _require("guarantee", self.guarantee, self.guarantee in GUARANTEES, rule, remedy)
        remedy = "choose who learns the answer"
        _require("receivers", "none", self.spec.receiver_count > 0, "leaves nobody to learn the answer", remedy)
        keys = set(self.roster)
        _require("public keys", len(keys), len(keys) == count, f"must be {count} different ones", "run tpmdp keygen")
        sizes = {len(key) for key in keys}
        _require("public key", sorted(sizes), sizes == {PUBLIC_KEY_BYTES}, "must have 32 bytes", "run tpmdp keygen")
        shapes = self.sigma.shape == self.bounds.shape == (count,)
        good = bool((np.isfinite(self.bounds) & (self.bounds >= 0)).all()) if shapes else True
        _require("bounds", self.bounds.tolist(), good, "must be finite and not negative", "plan the study again")
        _require("dimension", self.grid.dimension, self.grid.dimension >= 1, "must be at least 1", "ask something")
        _require("plan", f"{self.sigma.shape}", shapes, f"must have {count} entries", "plan the study again")
        most = int(np.min(self.spec.threshold)) - 1
        rule = "must be less than the planned threshold, which counts drop-outs too"
        whole = isinstance(self.tolerate, int) and not isinstance(self.tolerate, bool)
        good = whole and (self.tolerate == 0 or 0 < self.tolerate <= most)
        _require("tolerate", self.tolerate, good, rule, "plan for both")
        rule = f"makes messages longer than {MESSAGE_MAX} bytes"
        _require("dimension", self.grid.dimension, self.words_bytes + 4096 <= MESSAGE_MAX, rule, "split the query")

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
    ) -> Terms:
        """The terms of a plan made here.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> made = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", made, 1.0, (bytes(32), bytes(31) + b"1"))
        >>> len(terms.session), terms.lead
        (32, 0)
        """
        every = np.broadcast_to(np.asarray(bounds, dtype=np.float64), (plan.asked.count,))
        return cls(label, plan.asked, query, every, plan.grid, plan.sigma, guarantee, roster, tolerate)

    @property
    def count(self) -> int:
        """How many parties."""
        return self.spec.count

    @cached_property
    def lead(self) -> int:
        """The receiver that adds up: the first one."""
        return int(np.flatnonzero(self.spec.receivers)[0])

    @property
    def words_bytes(self) -> int:
        """Size of a vector on the wire."""
        return self.grid.dimension * self.grid.word // 8

    @property
    def standard_deviation(self) -> float:
        """Error of each coordinate: of the noise, and the most that rounding can add, were it the same everywhere."""
        return self.standard_deviation_of(range(self.count))

    def standard_deviation_of(self, parties: Iterable[int]) -> float:
        """The same where only these parties are counted: the others' noise is missing."""
        return error_in_steps(self.sigma[sorted(parties)]) * self.grid.step

    @property
    def colluders(self) -> int:
        """How many parties may collude, beside those that drop out."""
        return int(np.max(self.spec.threshold)) - self.tolerate

    def neighbours(self, party: int) -> list[int]:
        """With whom the party shares masks; personal thresholds use the largest."""
        return neighbours(party, self.count, int(np.max(self.spec.threshold)))

    @cached_property
    def session(self) -> bytes:
        """The session: this label for this roster. Known to the relay, which learns neither study nor plan."""
        return session_id(self.label_hash, self.roster)

    @cached_property
    def label_hash(self) -> bytes:
        """What stands for the label at the relay."""
        return hash_label(self.label)

    @cached_property
    def plan_hash(self) -> bytes:
        """Hash of study and plan, which every party signs and every message carries."""
        return hashlib.sha256(b"tpmdp plan 1" + self.canonical().encode()).digest()

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
        }
        return canonical_json(document)

    @classmethod
    def parse(cls, text: str) -> Terms:
        """The terms of a canonical text, from whoever wrote it; only the very text `canonical` gives is accepted.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> made = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", made, 1.0, (bytes(32), bytes(31) + b"1"))
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
            roster = tuple(bytes.fromhex(key) for key in read["roster"])
            sigma, bounds = np.array(read["sigma"], dtype=np.int64), np.array(from_hex(read["bounds"]))
            tolerate = read.get("tolerate", 0)
            terms = cls(read["label"], spec, read["query"], bounds, grid, sigma, read["guarantee"], roster, tolerate)
        except (KeyError, TypeError, AttributeError, OverflowError, RecursionError, ValueError) as error:
            if isinstance(error, InputError):
                raise
            raise InputError("terms", text, "are not terms of a session", "ask for the file again") from None
        if terms.canonical() != text:
            raise InputError("terms", text, "are not in canonical form", "ask for the file again")
        return terms

    def check(self, party: int) -> None:
        """Refuse a plan that breaks this party's budget, could wrap, or is not drawn exactly as the theory needs."""
        self._check_grid()
        spec, name = self.spec, self.spec.name(party)
        epsilon, delta = float(spec.epsilon[party]), float(spec.delta[party])
        if math.isinf(epsilon) or spec.sensitivity[party] == 0:
            return
        honest = self._honest(party)
        if honest is None:  # no dangerous coalition: nobody to be protected from
            return
        budget = Fraction(math.nextafter(epsilon, 0.0)), Fraction(math.nextafter(delta, 0.0))
        variance = (honest - ROUNDING_VARIANCE) * Fraction(self.grid.step) ** 2
        if not is_enough(variance, *budget, self._sensitivity(party)):
            value = f"{math.sqrt(variance) if variance > 0 else 0.0:.6g}"
            rule = f"breaks the budget of {name} (epsilon {epsilon:g}, delta {delta:g})"
            raise InputError("honest noise in the plan", value, rule, "do not take part; ask for a correct plan")

    def charge(self, party: int) -> tuple[float, float]:
        """(mu, closeness) of this release for the party, rounded up: what its ledger is charged.

        Against coalitions of at least one receiver, even at threshold 0, where no noise hides the answer from it.
        """
        if self.spec.sensitivity[party] == 0:
            return 0.0, 0.0
        threshold = np.maximum(self.spec.threshold, 1)
        honest = self._honest(party, threshold if threshold.ndim else int(threshold))
        if honest is None:
            return 0.0, 0.0
        if honest <= ROUNDING_VARIANCE:
            return math.inf, 0.0
        square = self._sensitivity(party) ** 2 / ((honest - ROUNDING_VARIANCE) * Fraction(self.grid.step) ** 2)
        return _root_up(square), closeness(self.count, self.grid.dimension) * (1 + 2.0**-40)

    def _honest(self, party: int, threshold: int | IntArray | None = None) -> int | Fraction | None:
        """The least honest noise against this party, in squared steps, exactly."""
        squares = (self.sigma * self.sigma).astype(np.float64)  # exact: below 2**53
        used = self.spec.threshold if threshold is None else threshold
        exact = worst_coalitions(squares, used, self.spec.receivers).exact_honest()[party]
        return None if exact is None else to_fraction(exact)

    def _sensitivity(self, party: int) -> Fraction:
        """The sensitivity on the grid: at most step * sqrt(dimension) more, rounded up."""
        root = Fraction(math.isqrt(self.grid.dimension << 80) + 1, 1 << 40)
        return Fraction(float(self.spec.sensitivity[party])) + Fraction(self.grid.step) * root

    def _check_grid(self) -> None:
        remedy = "do not take part; ask for a correct plan"
        step, word, sigma = self.grid.step, self.grid.word, self.sigma
        good = math.isfinite(step) and step > 0 and math.frexp(step)[0] == 0.5 and word in WORDS
        _require("grid", f"{step!r}, {word}", good, "must be a power of two and a 32- or 64-bit word", remedy)
        exact = bool(((sigma == 0) | ((sigma >= SIGMA_MIN) & (sigma <= SIGMA_MAX))).all())
        _require("sigma", sigma.tolist(), exact, f"must be 0 or from {SIGMA_MIN} to {SIGMA_MAX} steps", remedy)
        finite = self.spec.epsilon[np.isfinite(self.spec.epsilon)]
        close = closeness(self.count, self.grid.dimension) <= 2.0**-54 * min(1.0, float(finite.min(initial=1.0)))
        _require("dimension", self.grid.dimension, close, "is too large for the proof of exact noise", remedy)
        largest = reach(self.bounds, sigma, step, self.grid.dimension)
        _require("plan", f"sums up to {largest} steps", fits(word, largest), f"could wrap {word} bits", remedy)


def hash_label(label: str) -> bytes:
    """The hash that stands for a label at the relay.

    >>> len(hash_label("length of stay / session 1"))
    32
    """
    return hashlib.sha256(b"tpmdp label 1" + label.encode()).digest()


def session_id(label_hash: bytes, roster: tuple[bytes, ...]) -> bytes:
    """The session of a label and a roster; the relay recomputes it, so nobody can claim another one's session.

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


def _require(field: str, value: Any, holds: bool, rule: str, remedy: str) -> None:
    if not holds:
        raise InputError(field, value, rule, remedy)
