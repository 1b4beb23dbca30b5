"""The lengths of a computation of inner products between columns of different parties."""

from __future__ import annotations

from itertools import combinations

from tpmdp.engines.direct.job import Parameters
from tpmdp.errors import InputError


class GramShape:
    """The lengths that follow from parameters of `gram`, which are checked here.

    >>> shape = GramShape({"records": 10, "columns": [1, 2, 0], "local": [3, 0, 0], "scale": 1})
    >>> shape.sizes, shape.dimension
    ([13, 20, 0], 5)
    """

    def __init__(self, parameters: Parameters) -> None:
        try:
            self.columns, self.local = ([int(c) for c in parameters[key]] for key in ("columns", "local"))
            self.records, self.scale = int(parameters["records"]), int(parameters["scale"])
            numbers = [*self.columns, *self.local, self.records]
            good = len(self.columns) == len(self.local) and min(numbers) >= 0 and self.records > 0
        except (KeyError, TypeError, ValueError):
            good = False
        if not good:
            rule = "must have records, columns, local and scale; columns and local need one number per party"
            raise InputError("parameters", dict(parameters), rule, "see tpmdp.engines.mpyc.functions.gram")
        self.pairs = sum(a * b for a, b in combinations(self.columns, 2))
        if not self.pairs:
            rule = "leave no two parties with columns"
            raise InputError("columns", self.columns, rule, "use a sum, which needs no products")

    @property
    def sizes(self) -> list[int]:
        """How many numbers each party contributes."""
        return [local + columns * self.records for local, columns in zip(self.local, self.columns, strict=True)]

    @property
    def dimension(self) -> int:
        """How many numbers the result has."""
        return sum(self.local) + self.pairs
