"""What a session computes, and the checks before anything leaves a party.

Field. A number has l = word + 1 bits, so that the difference of two words fits. MPyC takes a prime of l + k + 2 bits,
where k is its security parameter. Sums and products are exact modulo the prime, and the result, which the range proof
puts into the word, lies far inside (-p/2, p/2), because k is at least 64. A comparison opens a number that is hidden by
l random bits and by the sum of t + 1 random numbers that together have k bits. A coalition knows t of them, so k minus
the bits of t + 1 counts: one comparison leaks with probability at most 2^-65, and 2^24 of them with 2^-40.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.engines.contract import NO_GUARANTEE, coalitions_of, lacks_noise
from tpmdp.engines.mpyc.functions import Function, Parameters, load_function
from tpmdp.engines.mpyc.runtime import require_mpyc
from tpmdp.errors import InputError
from tpmdp.protocol.terms import Terms

LEAK_BITS: Final = 40  # all comparisons of a session together leak with probability at most 2**-LEAK_BITS
COMPARISONS_BITS: Final = 24  # for this many of them
NUMBERS_MAX: Final = 1 << 26  # in one party's input
_PROTOCOL: Final = "tpmdp mpyc 2"


@dataclass(frozen=True)
class MpycJob:
    """A function, its parameters, and how many numbers each party contributes; equal at all parties of a session."""

    terms: Terms
    function: str
    parameters: Parameters
    sizes: tuple[int, ...]
    noise_apart: bool  # every party contributes noise of the result's dimension besides its input

    @classmethod
    def of(
        cls, terms: Terms, function: str, parameters: Parameters | None, sizes: Sequence[int], noise_apart: bool = True
    ) -> MpycJob:
        """A job these terms allow.

        >>> from tpmdp.planning.grid_plan import plan_on_grid
        >>> from tpmdp.spec import Spec
        >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
        >>> terms = Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1"))
        >>> MpycJob.of(terms, "tpmdp.engines.mpyc.functions:maximum", None, sizes=[1, 1])
        Traceback (most recent call last):
            ...
        tpmdp.errors.InputError: parties = 2 must be at least 3 for the mpyc engine, because the shares of two parties
        would reveal inputs: use the relay engine for sums, or add a party
        """
        degree_of(terms)
        if len(sizes) != terms.count or min(sizes) < 0 or max(sizes) > NUMBERS_MAX:
            rule = f"must be one per party, from 0 to {NUMBERS_MAX}"
            raise InputError("lengths of inputs", list(sizes), rule, "check the query")
        if not any(sizes):
            raise InputError("lengths of inputs", list(sizes), "leave nothing to compute", "let a party give some")
        counts = tuple(int(size) for size in sizes)
        job = cls(terms, function, dict(parameters or {}), sizes=counts, noise_apart=noise_apart)
        job.load()
        job.limits()
        return job

    def limits(self) -> list[list[tuple[int, int]]] | None:
        """For each party, pairs of a count and the largest absolute value of that many numbers, in order.

        They are the public parameter `limits`. Every party checks its own numbers: that finds mistakes, not cheats.
        """
        given = self.parameters.get("limits")
        if given is None:
            return None
        try:
            limits = [[(int(count), int(most)) for count, most in sections] for sections in given]
            sums = tuple(sum(count for count, _ in sections) for sections in limits)
            good = sums == self.sizes and all(min(section) >= 0 for sections in limits for section in sections)
        except (TypeError, ValueError):
            good = False
        if not good:
            rule = "must be pairs (how many, largest) for every party that cover its numbers"
            raise InputError("limits", given, rule, "check the query")
        return limits

    def load(self) -> Function:
        """Import the function."""
        return load_function(self.function)

    @property
    def degree(self) -> int:
        """The degree of the shares: this many of them reveal nothing."""
        return degree_of(self.terms)

    @property
    def bits(self) -> int:
        """Length of the secure integers; see the top of this file."""
        return self.terms.grid.word + 1

    @property
    def sec_param(self) -> int:
        """MPyC's security parameter; see the top of this file."""
        return LEAK_BITS + COMPARISONS_BITS + self.degree.bit_length() + 1

    @property
    def stored_max(self) -> int:
        """Bytes of early messages stored for one party: what a comparison of everything needs, a few times over."""
        dimension = self.terms.grid.dimension
        numbers = sum(self.sizes) + (self.terms.count + 1) * dimension
        element = (self.bits + self.sec_param + 9) // 8
        return (1 << 24) + 4 * element * numbers + 8 * element * (self.bits + 2) * dimension

    def digest(self) -> bytes:
        """A hash of what both ends of a link must agree on besides the plan."""
        try:
            parameters = json.dumps(self.parameters, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError):
            remedy = "use numbers, text, lists and tables"
            raise InputError("parameters", dict(self.parameters), "must be plain data", remedy) from None
        parts = [_PROTOCOL, require_mpyc(), self.function, parameters, self.sizes, self.noise_apart]
        parts += [self.degree, self.bits, self.sec_param]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def check(self, party: int, values: IntArray, noise: IntArray | None) -> None:
        """Refuse to take part if the plan breaks our budget or our numbers do not fit the job."""
        self.check_values(party, values)
        if (noise is not None) != self.noise_apart:
            raise InputError(
                "noise", "missing" if noise is None else "given twice", "is not as agreed", "check the call"
            )
        if noise is not None:
            self._fits("noise", noise, self.terms.grid.dimension)

    def check_values(self, party: int, values: IntArray) -> None:
        """The part of `check` that needs no noise: before anything is charged."""
        self.terms.check(party)
        self._fits("values", values, self.sizes[party])
        self._within_limits(party, values)

    def _within_limits(self, party: int, values: IntArray) -> None:
        limits, start = self.limits(), 0
        for count, most in [] if limits is None else limits[party]:
            section, start = values[start : start + count], start + count
            if count and (int(section.max()) > most or int(section.min()) < -most):
                raise InputError("values", "(not shown)", f"must lie within +-{most} as the query says", "clip them")

    def _fits(self, field: str, numbers: IntArray, size: int) -> None:
        """Numbers are private, so errors do not show them."""
        if numbers.shape != (size,) or numbers.dtype != np.int64:
            given = f"{numbers.dtype} of shape {numbers.shape}"
            raise InputError(field, given, f"must be {size} whole numbers of 64 bits", "check the query")
        limit = 1 << (self.terms.grid.word - 1)
        if size and (int(numbers.max()) >= limit or int(numbers.min()) <= -limit):
            raise InputError(field, "(not shown)", f"must lie within {self.terms.grid.word} bits", "clip them")


def degree_of(terms: Terms) -> int:
    """The degree of the shares, at least 1 because shares of degree 0 are the inputs; refuses what Shamir cannot do."""
    count, most = terms.count, int(np.max(terms.spec.threshold))
    if count < 3:
        rule = "must be at least 3 for the mpyc engine, because the shares of two parties would reveal inputs"
        raise InputError("parties", count, rule, "use the relay engine for sums, or add a party")
    if 2 * max(1, most) >= count:
        rule = (
            f"must be less than half the number of parties ({count}) for the mpyc engine, because shares of more "
            "would reveal inputs"
        )
        raise InputError("threshold", most, rule, "use the relay engine for sums, or lower it")
    return max(1, most)


def guarantee_of(job: MpycJob) -> str:
    """What a result of this job promises."""
    terms = job.terms
    if lacks_noise(terms):
        return NO_GUARANTEE
    many = coalitions_of(terms)
    return (
        f"{terms.guarantee}: Shamir shares of degree {job.degree} hold against {many} that follow the "
        f"protocol; links are X25519 and AES-256; comparisons leak with probability at most 2^-{LEAK_BITS}"
    )
