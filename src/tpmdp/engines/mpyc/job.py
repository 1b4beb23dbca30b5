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
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp.engines.contract import NO_GUARANTEE, coalitions_of, lacks_noise
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.mpyc.functions import Function, load_function
from tpmdp.engines.mpyc.runtime import require_mpyc
from tpmdp.engines.mpyc.sharing import MpycSharing, ShareShape
from tpmdp.errors import InputError
from tpmdp.protocol.terms import Terms

LEAK_BITS: Final = 40  # all comparisons of a session together leak with probability at most 2**-LEAK_BITS
COMPARISONS_BITS: Final = 24  # for this many of them
_PROTOCOL: Final = "tpmdp mpyc 2"


@dataclass(frozen=True)
class MpycJob(DirectJob):
    """A function on Shamir shares.

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

    engine: ClassVar[str] = "mpyc"

    @classmethod
    def check_installed(cls) -> None:
        require_mpyc()

    @classmethod
    def check_terms(cls, terms: Terms) -> None:
        degree_of(terms)

    def check_function(self) -> None:
        self.load()

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
        """What a comparison of everything needs, a few times over."""
        dimension = self.terms.grid.dimension
        numbers = sum(self.sizes) + (self.terms.count + 1) * dimension
        element = (self.bits + self.sec_param + 9) // 8
        return (1 << 24) + 4 * element * numbers + 8 * element * (self.bits + 2) * dimension

    def digest(self) -> bytes:
        parts = [_PROTOCOL, require_mpyc(), self.function, self.plain_parameters(), self.sizes, self.noise_apart]
        parts += [self.degree, self.bits, self.sec_param]
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    def guarantee(self) -> str:
        terms = self.terms
        if lacks_noise(terms):
            return NO_GUARANTEE
        many = coalitions_of(terms)
        return (
            f"{terms.guarantee}: Shamir shares of degree {self.degree} hold against {many} that follow the "
            "protocol; links are X25519 with ML-KEM-768, and AES-256; comparisons leak with probability at most "
            f"2^-{LEAK_BITS}"
        )

    def sharing(self, party: int) -> MpycSharing:
        del party  # all do the same
        shape = ShareShape(
            self.sizes, self.terms.grid.dimension, degree=self.degree, bits=self.bits, leak=self.sec_param
        )
        return MpycSharing(self.load(), self.parameters, shape)


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
