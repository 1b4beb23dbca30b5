"""What a study is expected to give and cost, as values; `tpmdp.study.expectation` computes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tpmdp._util.numbers import number, number_up
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery
from tpmdp.queries.preview import PreviewedError

_SHOWN: Final = 4


@dataclass(frozen=True)
class ExpectedQuery:
    """One query of a study: its part of the vector and its expected error bars, for plausible data.

    `apart` is how many times larger the noise would be if every query were asked in a separate study and the budgets
    were shared equally among them; None where the study has one query only.
    """

    query: BaseQuery
    entries: int
    sensitivity: tuple[float, float]  # least and largest of the parties with records
    noise: float  # standard error of an entry, in the query's own scale
    answers: tuple[Answer, ...]  # for likely data; what counts are their standard errors
    apart: float | None
    errors: tuple[PreviewedError, ...] = ()  # one for each answer, also for other data


@dataclass(frozen=True, repr=False)
class Expectation:
    """A whole study: its queries, and what each party would be charged."""

    queries: tuple[ExpectedQuery, ...]
    charges: dict[str, float]  # epsilon at the party's own delta

    def __repr__(self) -> str:
        charges = ", ".join(f"{name} {number_up(epsilon)}" for name, epsilon in list(self.charges.items())[:_SHOWN])
        more = ", ..." if len(self.charges) > _SHOWN else ""
        noise = ", ".join(f"{each.query.name} {number(each.noise)}" for each in self.queries[:_SHOWN])
        others = ", ..." if len(self.queries) > _SHOWN else ""
        return f"Expectation(noise: {noise}{others}; charges: {charges}{more})"
