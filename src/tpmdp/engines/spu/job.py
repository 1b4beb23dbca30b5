"""What a session in pairs computes: inner products of columns of any parties, or a function of the data of two.

Numbers. SPU computes modulo 2^64, and so does the masked sum, so a result is exact as far as it fits into the word,
which the range proof shows. A comparison needs more: the difference of two numbers must not leave 64 bits, so inputs
of a function of two stay below 2^62.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from tpmdp._util.arrays import IntArray
from tpmdp._util.function_file import function_file
from tpmdp.engines.contract import NO_GUARANTEE, coalitions_of, lacks_noise
from tpmdp.engines.direct.gram_shape import GramShape
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.spu.interpreter import REQUIREMENTS, spu_python
from tpmdp.engines.spu.pair_task import PairTask, gram_tasks
from tpmdp.engines.spu.sharing import PairSharing
from tpmdp.errors import InputError
from tpmdp.protocol.terms import Terms

GRAM: Final = "tpmdp.engines.spu.functions:gram"
_PROTOCOL: Final = "tpmdp spu 1"
_LARGEST: Final = 1 << 62
_STORED: Final = 1 << 26  # what a pair exchanges is at most a quarter of this and of these
_STORED_PER_NUMBER, _STORED_PER_ENTRY = 1 << 6, 1 << 14
MEASURED: Final = frozenset({GRAM, "tpmdp.engines.spu.functions:maximum"})
_NO_LIMIT: Final = 1 << 62  # for functions of which nobody knows what they exchange


@dataclass(frozen=True)
class SpuJob(DirectJob):
    """A function of pairs; `GRAM` for any number of parties, any other function for the two that have inputs."""

    engine: ClassVar[str] = "spu"
    keeps_shares: ClassVar[bool] = True

    @classmethod
    def check_installed(cls) -> None:
        spu_python()

    @classmethod
    def check_terms(cls, terms: Terms) -> None:
        if terms.guarantee != "computational":
            rule = "cannot be kept by the spu engine, which rests on encryption"
            raise InputError("guarantee", terms.guarantee, rule, 'write guarantee = "computational"')

    def check_function(self) -> None:
        function_file(self.function)
        if self._is_gram:
            shape = GramShape(self.parameters)
            if tuple(shape.sizes) != self.sizes or shape.dimension != self.terms.grid.dimension:
                rule = f"must be {shape.sizes} with these parameters, for {shape.dimension} results"
                raise InputError("lengths of inputs", list(self.sizes), rule, "check the query")
            return
        if len(self._holders) != 2:
            rule = "must have numbers of exactly two parties for the spu engine"
            raise InputError("inputs", f"of {len(self._holders)} parties", rule, 'write engine = "mpyc" for more')
        shapes = self.parameters.get("shapes")
        given = [self.sizes[party] for party in self._holders]
        if shapes is not None and [math.prod(shape) for shape in shapes] != given:
            raise InputError("shapes", shapes, "must fit the lengths of the inputs", "check the query")

    def digest(self) -> bytes:
        self.check_installed()
        content = hashlib.sha256(function_file(self.function).read_bytes()).hexdigest()
        parts = [_PROTOCOL, REQUIREMENTS, self.function, content, self.plain_parameters(), self.sizes, self.noise_apart]
        parts += [self.attempt] if self.attempt else []
        return hashlib.sha256(json.dumps(parts).encode()).digest()

    @property
    def stored_max(self) -> int:
        numbers, entries = sum(self.sizes), self.terms.grid.dimension
        return _STORED + _STORED_PER_NUMBER * numbers + _STORED_PER_ENTRY * entries

    def guarantee(self) -> str:
        if lacks_noise(self.terms):
            return NO_GUARANTEE
        return (
            f"computational: holds against {coalitions_of(self.terms)} that follow the protocol and cannot break "
            "CHEETAH (lattice encryption and oblivious transfer, in pairs) and AES-256; not against quantum "
            "computers"
        )

    def sharing(self, party: int) -> PairSharing:
        local = GramShape(self.parameters).local if self._is_gram else [0] * self.terms.count
        grid = self.terms.grid
        most = self.stored_max if self.function in MEASURED else _NO_LIMIT
        return PairSharing(
            party,
            self.tasks(),
            local,
            word=grid.word,
            dimension=grid.dimension,
            received_max=most,
            is_kept=bool(self.attempt),
        )

    def tasks(self) -> list[PairTask]:
        """What pairs compute."""
        file, (_, _, name) = function_file(self.function), self.function.partition(":")
        if self._is_gram:
            return gram_tasks(GramShape(self.parameters), file, name)
        left, right = self._holders
        dimension = self.terms.grid.dimension
        inputs = self.parameters.get("shapes", [[self.sizes[left]], [self.sizes[right]]])
        shapes = (*map(tuple, inputs), (dimension,), (dimension,))
        scale = int(self.parameters.get("scale", 1))
        task = PairTask(left, right, file, function=name, shapes=shapes, start=0, size=dimension, scale=scale)
        return [replace(task, noise=True)]

    def check_values(self, party: int, values: IntArray) -> None:
        super().check_values(party, values)
        if not self._is_gram and len(values) and max(int(values.max()), -int(values.min())) >= _LARGEST:
            raise InputError("values", "(not shown)", "must stay below 2^62 for a comparison", "use narrower bounds")

    @property
    def _is_gram(self) -> bool:
        return self.function == GRAM

    @property
    def _holders(self) -> list[int]:
        """The parties with inputs."""
        return [party for party, size in enumerate(self.sizes) if size]
