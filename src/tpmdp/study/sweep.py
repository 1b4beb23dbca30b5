"""What other thresholds and budgets would give: the expected error of every answer, at each of several settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

from tpmdp._util.frames import data_frame
from tpmdp._util.html import html_table, html_text
from tpmdp._util.numbers import number, plural
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer

POINTS_MAX: Final = 1000
AXES: Final = {
    "threshold": "threshold: how many may collude",
    "budget": "budgets, as a multiple of those in the study",
    "epsilon": "epsilon",
}
_COLUMNS_MAX: Final = 8  # answers in a table
_NO_NOISE: Final = "no noise: receivers learn the exact answer"


@dataclass(frozen=True)
class SweepPoint:
    """A study at one setting: the values of the axes, the answers to expect, and what each party would be charged."""

    values: Mapping[str, float]
    answers: tuple[Answer, ...]
    charges: Mapping[str, float]
    is_study: bool  # the setting that the study has
    is_exact: bool  # no noise is added: receivers learn the exact answer


@dataclass(frozen=True, repr=False)
class Sweep:
    """A study at several thresholds or budgets, from `Study.sweep`. `tpmdp.plot` draws it."""

    title: str
    axes: tuple[str, ...]
    points: tuple[SweepPoint, ...]

    def __repr__(self) -> str:
        return f"Sweep({self.title}: {plural(len(self.points), 'point')} over {' and '.join(self.axes)})"

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[SweepPoint]:
        return iter(self.points)

    def rows(self) -> list[dict[str, Any]]:
        """One mapping per point and answer: the setting, query, part and the standard error to expect.

        `exact` is true where no noise is added; the standard error is then that of rounding.
        """
        return [
            {
                **point.values,
                "query": answer.query,
                "part": answer.part,
                "standard_error": answer.standard_error,
                "exact": point.is_exact,
            }
            for point in self.points
            for answer in point.answers
        ]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame."""
        return data_frame(self.rows())

    def _repr_html_(self) -> str:
        labels = [answer.label for answer in self.points[0].answers]
        rows = [
            [
                *(number(point.values[axis]) for axis in self.axes),
                *("exact" if point.is_exact else _error(answer) for answer in point.answers[:_COLUMNS_MAX]),
                ", ".join(["this study"] * point.is_study + [_NO_NOISE] * point.is_exact),
            ]
            for point in self.points
        ]
        hidden = len(labels) - _COLUMNS_MAX
        more = f" {plural(hidden, 'more answer')} in to_frame()." if hidden > 0 else ""
        return (
            html_text(self.title, "h4")
            + html_text(f"Standard error to expect of each answer.{more}", "p")
            + html_table([*self.axes, *labels[:_COLUMNS_MAX], ""], rows)
        )


def _error(answer: Answer) -> str:
    return number(answer.standard_error) if has_error(answer) else "-"


def has_error(answer: Answer) -> bool:
    """Whether an answer with a known error can be expected, and not one that noise hides."""
    return math.isfinite(answer.standard_error) and not math.isnan(answer.value)


def settings_of(axes: Mapping[str, Iterable[float] | None]) -> list[dict[str, float]]:
    """Every combination of the values of these axes, that with most values first; those that are None are left out.

    >>> settings_of({"threshold": range(1, 3), "budget": None})
    [{'threshold': 1}, {'threshold': 2}]
    """
    listed = {axis: _values(axis, values) for axis, values in axes.items() if values is not None}
    given = dict(sorted(listed.items(), key=lambda item: -len(item[1])))
    if not given:
        raise InputError("sweep", "(nothing)", "needs values to try", "write such as sweep(threshold=range(1, 4))")
    count = math.prod(map(len, given.values()))
    if count > POINTS_MAX:
        raise InputError("sweep", f"{count} points", f"must be at most {POINTS_MAX}", "try fewer values")
    return [dict(zip(given, values, strict=True)) for values in product(*given.values())]


def _values(axis: str, values: Iterable[float]) -> Sequence[float]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(axis, values, "is not a list of values", "write such as range(1, 4) or [0.5, 1, 2]")
    listed = values.tolist() if hasattr(values, "tolist") else list(values)
    if not listed:
        raise InputError(axis, "[]", "is empty", "give at least one value")
    return [value.item() if hasattr(value, "item") else value for value in listed]
