"""What a session of connected parties computes, and the checks before anything leaves a party."""

from __future__ import annotations

import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Self

import numpy as np

from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.sharing import Sharing
from tpmdp.errors import InputError
from tpmdp.protocol.terms import Terms

NUMBERS_MAX: Final = 1 << 26  # in one party's input
Parameters = Mapping[str, Any]

_JOBS: Final = {"mpyc": "tpmdp.engines.mpyc.job:MpycJob", "spu": "tpmdp.engines.spu.job:SpuJob"}


@dataclass(frozen=True)
class DirectJob(ABC):
    """A function, its parameters, and how many numbers each party contributes; equal at all parties of a session."""

    terms: Terms
    function: str
    parameters: Parameters
    sizes: tuple[int, ...]
    noise_apart: bool  # every party contributes noise of the result's dimension besides its input
    attempt: int = 0  # of a session through a relay: each party keeps its share for that; 0: the result is opened

    engine: ClassVar[str]
    keeps_shares: ClassVar[bool] = False  # whether `attempt` may be other than 0

    @classmethod
    def of(
        cls,
        terms: Terms,
        function: str,
        parameters: Parameters | None,
        sizes: Sequence[int],
        noise_apart: bool = True,
        attempt: int = 0,
    ) -> Self:
        """A job that these terms allow."""
        cls.check_terms(terms)
        if attempt and not cls.keeps_shares:
            raise InputError("attempt", attempt, f"cannot be kept by the {cls.engine} engine", "open the result")
        if len(sizes) != terms.count or min(sizes) < 0 or max(sizes) > NUMBERS_MAX:
            rule = f"must be one per party, from 0 to {NUMBERS_MAX}"
            raise InputError("lengths of inputs", list(sizes), rule, "check the query")
        if not any(sizes):
            raise InputError("lengths of inputs", list(sizes), "leave nothing to compute", "let a party give some")
        counts = tuple(int(size) for size in sizes)
        job = cls(terms, function, dict(parameters or {}), sizes=counts, noise_apart=noise_apart, attempt=attempt)
        job.check_function()
        job.limits()
        return job

    @classmethod
    @abstractmethod
    def check_installed(cls) -> None:
        """Refuse to compute without the libraries that it needs; nothing is imported."""

    @classmethod
    @abstractmethod
    def check_terms(cls, terms: Terms) -> None:
        """Refuse terms that this way of computing cannot keep."""

    @property
    def members(self) -> list[int]:
        """The parties that connect: all, or those with numbers where the shares are kept."""
        return [party for party, size in enumerate(self.sizes) if size or not self.attempt]

    @abstractmethod
    def check_function(self) -> None:
        """Refuse a function that cannot be computed with these parameters and lengths."""

    @abstractmethod
    def digest(self) -> bytes:
        """A hash of what both ends of a link must agree on besides the plan; refuses what is not installed."""

    @property
    @abstractmethod
    def stored_max(self) -> int:
        """Bytes of early messages that a link stores for one party."""

    @abstractmethod
    def guarantee(self) -> str:
        """What a result of this job promises."""

    @abstractmethod
    def sharing(self, party: int) -> Sharing:
        """How this party computes it."""

    def plain_parameters(self) -> str:
        """The parameters as text, for the digest."""
        try:
            return json.dumps(self.parameters, sort_keys=True, allow_nan=False)
        except (TypeError, ValueError):
            remedy = "use numbers, text, lists and tables"
            raise InputError("parameters", dict(self.parameters), "must be plain data", remedy) from None

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


def job_class(engine: str) -> type[DirectJob]:
    """The jobs of an engine; imported here, so that a worker imports only what it needs.

    >>> job_class("mpyc").__name__
    'MpycJob'
    """
    module, _, name = _JOBS[engine].partition(":")
    kind: type[DirectJob] = getattr(importlib.import_module(module), name)
    return kind
