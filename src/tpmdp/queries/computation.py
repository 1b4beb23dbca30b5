"""How the queries of a study are computed: as one masked sum, or as one function on shares.

A study asks its computation instead of asking which kind of query it has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.data.table import Table
from tpmdp.errors import InputError
from tpmdp.noise.grid import Grid
from tpmdp.planning.weights import Weights
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery, Query, Unit
from tpmdp.queries.custom import check_custom, check_values
from tpmdp.queries.share_query import Parties, ShareQuery
from tpmdp.queries.weighted_answers import assumption, weighted_answers
from tpmdp.spec import Party

_UP: Final = 1 + 2.0**-50


@dataclass(frozen=True)
class ComputationSetting:
    """What a study asks for besides its queries, as far as it decides how they are computed."""

    parties: Parties
    threshold: int
    tolerate: int = 0
    weighting: str = "equal"
    guarantee: str = "computational"
    engine: str = ""  # the study's choice, if it makes one
    sum_through: str = ""  # relay: pairs keep shares, and these are summed through a relay


class Computation(ABC):
    """What each party puts in, how far it moves the result, and how the result is split into queries."""

    is_sum: ClassVar[bool]  # of what each party computes alone; otherwise parties compute together
    finest_grid: ClassVar[bool]  # whether products need as many bits as there are
    sums: tuple[Query, ...] = ()  # the queries that are sums over records

    @abstractmethod
    def check(self, setting: ComputationSetting) -> None:
        """Refuse queries and settings of a study that do not fit each other."""

    def engine_of(self, setting: ComputationSetting) -> str:
        """What computes it on shares, mpyc or spu; nothing for sums. Refuses what cannot be computed."""
        del setting
        return ""

    def check_custom(self, unit: Unit, records: int, names: Collection[str]) -> None:
        """Try custom queries, those of these names, on plausible data, before anybody is charged."""
        for query in self.sums:
            if query.name in names:
                check_custom(query, unit, records)

    @abstractmethod
    def records_of(self, parties: Parties) -> int:
        """Records of all parties together."""

    @property
    @abstractmethod
    def scales(self) -> list[float]:
        """What the vector of each query is multiplied by, so that each query gets its share of one budget."""

    @property
    def answer_scales(self) -> list[float]:
        """What noise of an entry is divided by to be that of a query's part; more than `scales` if read together."""
        return self.scales

    @property
    @abstractmethod
    def width(self) -> float:
        """How far apart the scaled features of two records can be."""

    @abstractmethod
    def sensitivity(self, unit: Unit, party: Party, weight: float) -> float:
        """How far the whole vector can move when the data of this party change, rounded up."""

    @abstractmethod
    def bound(self, party: Party, weight: float) -> float:
        """The largest absolute value of an entry that this party can cause."""

    @abstractmethod
    def encode(self, party: Party, table: Table, grid: Grid, *, bound: float, weight: float) -> IntArray:
        """What the party puts in, from its checked columns."""

    @abstractmethod
    def under_noise(self, encoded: IntArray, dimension: int) -> IntArray:
        """The part of the party's input that is added to its noise before anything is sent."""

    @abstractmethod
    def split(self, total: FloatArray, parties: Sequence[str]) -> list[FloatArray]:
        """The part of the vector that belongs to each query, scaled back; parts of queries alike are averaged."""

    @abstractmethod
    def answers_of(
        self, query: BaseQuery, total: FloatArray, records: int, *, noise: float, weights: Weights, spread: float
    ) -> list[Answer]:
        """The answers of one query from its part of the vector, scaled back."""

    @abstractmethod
    def assumption(self, weights: Weights, spread: float) -> str:
        """What the answers assume besides, in words."""


@dataclass(frozen=True)
class MaskedSum(Computation):
    """One vector that has a part for every query; the parties' vectors are masked and added up.

    Noise is the same in every entry. The statistic of a query is multiplied by sqrt(share) / spread. Replacing one
    record then moves the whole vector by at most 1, and a query has the noise of a release with its share of mu^2.

    >>> from tpmdp.queries.count import Count
    >>> MaskedSum((Count("a", "age", at_least=1.0), Count("b", "age", at_least=2.0))).scales
    [0.7071067811865476, 0.7071067811865476]
    """

    sums: tuple[Query, ...]

    is_sum: ClassVar[bool] = True
    finest_grid: ClassVar[bool] = False

    def check(self, setting: ComputationSetting) -> None:
        if setting.engine:
            rule = "is for queries that are not sums"
            raise InputError("engine", setting.engine, rule, "remove it: sums go through a relay")
        if setting.sum_through:
            raise InputError("sum_through", setting.sum_through, "is for queries that are not sums", "remove it")
        for query in self.sums:
            query.check_study(sum(setting.parties.values()), setting.tolerate, setting.weighting)
            if query.code:
                check_values(query)

    def records_of(self, parties: Parties) -> int:
        return sum(parties.values())

    @property
    def scales(self) -> list[float]:
        if len(self.sums) == 1:
            return [1.0]
        weights = math.fsum(query.weight for query in self.sums)
        return [math.sqrt(query.weight / weights) / query.spread for query in self.sums]

    @property
    def _alike(self) -> list[list[int]]:
        """For each query, the places of those with the same features, itself among them."""
        vectors = [None if query.code else query.vector for query in self.sums]
        keys = [place if vector is None else vector for place, vector in enumerate(vectors)]
        return [[other for other, key in enumerate(keys) if key == own] for own in keys]

    @property
    def answer_scales(self) -> list[float]:
        groups = [[self.scales[each] for each in group] for group in self._alike]
        return [group[0] if len(group) == 1 else math.hypot(*group) for group in groups]

    @property
    def _scaled(self) -> list[tuple[Query, float]]:
        return list(zip(self.sums, self.scales, strict=True))

    @property
    def width(self) -> float:
        return math.hypot(*(scale * query.spread for query, scale in self._scaled)) * _UP

    def sensitivity(self, unit: Unit, party: Party, weight: float) -> float:
        parts = [
            scaled_sensitivity(query, scale * weight, unit, records=party.records) for query, scale in self._scaled
        ]
        return parts[0] if len(parts) == 1 else math.hypot(*parts) * _UP

    def bound(self, party: Party, weight: float) -> float:
        bound = max(scale * weight * query.bound(party.records) for query, scale in self._scaled)
        return bound if bound == 0 or (self.scales == [1.0] and weight == 1.0) else bound * _UP

    def statistic(self, table: Table, weight: float) -> FloatArray:
        """A party's vector before rounding to the grid; zeros for a party without records."""
        if not table:
            return np.zeros(sum(query.dimension for query in self.sums))
        return np.concatenate([scale * weight * query.statistic(table) for query, scale in self._scaled])

    def encode(self, party: Party, table: Table, grid: Grid, *, bound: float, weight: float) -> IntArray:
        del party
        return grid.encode(self.statistic(table, weight), bound)

    def under_noise(self, encoded: IntArray, dimension: int) -> IntArray:
        del dimension
        return encoded

    def split(self, total: FloatArray, parties: Sequence[str]) -> list[FloatArray]:
        del parties
        ends = np.cumsum([query.dimension for query in self.sums])[:-1]
        parts = list(zip(np.split(total, ends), self.scales, strict=True))
        return [_average([parts[each] for each in group]) for group in self._alike]

    def answers_of(
        self, query: BaseQuery, total: FloatArray, records: int, *, noise: float, weights: Weights, spread: float
    ) -> list[Answer]:
        assert isinstance(query, Query)
        return weighted_answers(query, total, records, noise=noise, weights=weights, share=spread)

    def assumption(self, weights: Weights, spread: float) -> str:
        return "" if weights.are_equal else assumption(self.sums, weights, spread)


def _average(parts: Sequence[tuple[FloatArray, float]]) -> FloatArray:
    """The average by precision of parts with the same features, each with its scale: as if asked once by one query."""
    if len(parts) == 1:
        ((part, scale),) = parts
        return part / scale
    weighted = np.sum([scale * part for part, scale in parts], axis=0)
    return np.asarray(weighted / math.fsum(scale**2 for _, scale in parts), dtype=np.float64)


def scaled_sensitivity(query: Query, scale: float, unit: Unit, records: int) -> float:
    """The sensitivity of the scaled statistic; each entry of it is rounded once to a double, before and after a change.

    >>> from tpmdp.queries.count import Count
    >>> scaled_sensitivity(Count("a", "age", at_least=1.0), 1.0, "record", 9)
    1.0
    """
    whole = query.sensitivity(unit, records)
    if scale == 1.0 or whole == 0:
        return whole
    rounding = 2.0**-51 * query.bound(records) * math.sqrt(query.dimension)
    return scale * (whole + rounding) * _UP


@dataclass(frozen=True)
class SharedFunction(Computation):
    """One function of all inputs, computed on shares; every party's noise is added to the result on shares, too."""

    query: ShareQuery
    others: int = 0  # further queries, which are refused

    is_sum: ClassVar[bool] = False
    finest_grid: ClassVar[bool] = True

    def check(self, setting: ComputationSetting) -> None:
        name = self.query.name
        if self.others:
            rule = f"must be 1 with a non-additive query ({name})"
            raise InputError("queries", 1 + self.others, rule, "move the others to another study")
        self.query.check(setting.parties)
        self.engine_of(setting)
        if setting.tolerate:
            rule = f"must be 0 for a non-additive query ({name})"
            raise InputError("tolerate", setting.tolerate, rule, "remove it: shares of all parties are needed")
        if setting.weighting != "equal":
            rule = f"cannot be used with a non-additive query ({name})"
            raise InputError("weighting", setting.weighting, rule, 'write weighting = "equal"')

    def engine_of(self, setting: ComputationSetting) -> str:
        """What computes it: Shamir shares where fewer than half may collude, which need no assumption; else pairs."""
        few = 2 * max(1, setting.threshold) < len(setting.parties)
        shares = "mpyc" in self.query.functions
        engine = setting.engine or ("mpyc" if shares and (few or setting.guarantee == "statistical") else "spu")
        if engine not in self.query.functions:
            rule = f"cannot compute a {self.query.kind_name()}"
            raise InputError("engine", engine, rule, "remove it")
        if setting.sum_through and engine != "spu":
            rule = "needs what is computed in pairs, and the engine is mpyc"
            raise InputError("sum_through", setting.sum_through, rule, 'remove it, or write engine = "spu"')
        if engine == "spu":
            self._check_pairs(setting)
        elif not few:
            half = f"less than half the number of parties ({len(setting.parties)})"
            why = 'guarantee = "statistical"' if setting.guarantee == "statistical" else 'engine = "mpyc"'
            rule = f"must be {half} for a non-additive query ({self.query.name}) with {why}"
            remedy = "add parties, lower it, or remove that key: shares protect against fewer than half"
            raise InputError("threshold", setting.threshold, rule, remedy)
        return engine

    def _check_pairs(self, setting: ComputationSetting) -> None:
        """Refuse what sessions of two parties cannot give."""
        if setting.guarantee == "statistical":
            rule = 'cannot be used with guarantee = "statistical": it rests on encryption'
            raise InputError("engine", "spu", rule, 'write guarantee = "computational", or engine = "mpyc"')
        holders = sum(records > 0 for records in setting.parties.values())
        if not self.query.in_pairs and holders > 2:
            half = f"less than half the number of parties ({len(setting.parties)})"
            rule = f"must be {half} for a {self.query.kind_name()} over more than two parties"
            remedy = "add parties or lower it: only sums, and products of columns, work for any number"
            raise InputError("threshold", setting.threshold, rule, remedy)

    def records_of(self, parties: Parties) -> int:
        return self.query.records_of(parties)

    @property
    def scales(self) -> list[float]:
        return [1.0]

    @property
    def width(self) -> float:
        return 1.0  # without effect: weights are equal

    def sensitivity(self, unit: Unit, party: Party, weight: float) -> float:
        del weight
        return self.query.sensitivity_of(unit, party.name, party.records)

    def bound(self, party: Party, weight: float) -> float:
        return weight * self.query.bound(party.records)

    def encode(self, party: Party, table: Table, grid: Grid, *, bound: float, weight: float) -> IntArray:
        del bound, weight
        return self.query.encode(party.name, table, grid)

    def under_noise(self, encoded: IntArray, dimension: int) -> IntArray:
        del encoded  # it goes into the computation on its own
        return np.zeros(dimension, dtype=np.int64)

    def split(self, total: FloatArray, parties: Sequence[str]) -> list[FloatArray]:
        return [self.query.ordered(total, parties)]

    def answers_of(
        self, query: BaseQuery, total: FloatArray, records: int, *, noise: float, weights: Weights, spread: float
    ) -> list[Answer]:
        del weights, spread  # weights are equal
        return query.answers(total, records, noise)

    def assumption(self, weights: Weights, spread: float) -> str:
        del weights, spread
        return ""


def computation_of(queries: Sequence[BaseQuery]) -> Computation:
    """How these queries of one study are computed."""
    on_shares = [query for query in queries if isinstance(query, ShareQuery)]
    if on_shares:
        return SharedFunction(on_shares[0], others=len(queries) - 1)
    return MaskedSum(tuple(query for query in queries if isinstance(query, Query)))
