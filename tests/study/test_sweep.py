"""Sweeps over thresholds and budgets: the numbers of single studies, marked where no noise is left."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp
from tests.study.test_display import TAGS, Seen, release
from tpmdp import FileError, InputError, PartyRelease, Study, expect, plot

ROOT = Path(__file__).parents[2]


def study(**settings: Any) -> Study:
    builder = Study.new("flu", **{"threshold": 1, "receivers": "all", "delta": 1e-6, **settings})
    for place, name in enumerate(["north", "south", "east", "west"]):
        builder = builder.party(name, epsilon=0.5 * (place + 1), records=100)
    builder = builder.party("office", records=0)
    return builder.count("age", at_least=65).mean("days", low=0, high=30, name="stay").build()


def errors(made: Study) -> list[float]:
    return [answer.standard_error for query in expect(made).queries for answer in query.answers]


def test_each_point_is_what_the_study_would_give() -> None:
    sweep = study().sweep(threshold=range(1, 4))
    assert [point.values for point in sweep] == [{"threshold": 1}, {"threshold": 2}, {"threshold": 3}]
    for point in sweep:
        other = study(threshold=point.values["threshold"])
        assert [answer.standard_error for answer in point.answers] == errors(other)
        assert point.charges == expect(other).charges
    assert [point.is_study for point in sweep] == [True, False, False]
    assert len(sweep) == 3
    assert repr(sweep) == "Sweep(flu / session 1: 3 points over threshold)"


def test_budgets_are_multiplied_or_replaced() -> None:
    double = replace(study(), parties=tuple(replace(each, epsilon=2 * each.epsilon) for each in study().parties))
    (point,) = study().sweep(budget=[2])
    assert [answer.standard_error for answer in point.answers] == errors(double)
    assert study().varied(epsilon=1.0).party("office").epsilon == math.inf
    assert {each.epsilon for each in study().varied(epsilon=1.0).parties if each.records} == {1.0}
    only = study().varied(epsilon=3.0, party="north")
    assert [each.epsilon for each in only.parties] == [3.0, 1.0, 1.5, 2.0, math.inf]
    assert study().varied(budget=2.0, party="south").party("south").epsilon == 2.0
    assert study().sweep(budget=[1]).points[0].is_study


def test_axes_are_combined() -> None:
    sweep = study().sweep(threshold=[1, 2], budget=np.array([0.5, 1.0, 2.0]))
    assert sweep.axes == ("budget", "threshold")  # that with more values first: it is the x axis of the picture
    frame = sweep.to_frame()
    assert len(frame) == 2 * 3 * 2
    assert list(frame.columns) == ["budget", "threshold", "query", "part", "standard_error", "exact"]
    counts = frame[frame["query"] == "count of age"]
    wide = counts.pivot(index="threshold", columns="budget", values="standard_error")
    assert (np.diff(wide.to_numpy(), axis=0) > 0).all()  # more colluders, more noise
    assert (np.diff(wide.to_numpy(), axis=1) < 0).all()  # more budget, less noise
    assert sum(point.is_study for point in sweep) == 1


def test_no_noise_is_said() -> None:
    sweep = study().sweep(threshold=np.arange(3))
    assert [point.is_exact for point in sweep] == [True, False, False]
    seen = Seen(sweep._repr_html_())
    assert seen.tags <= TAGS
    assert "exact" in seen.text
    assert "no noise: receivers learn the exact answer" in seen.text
    assert "this study" in seen.text


def test_many_answers_are_counted_not_dropped() -> None:
    builder = Study.new("flu", threshold=1, receivers="all", delta=1e-6).histogram("age", edges=range(0, 120, 10))
    many = builder.party("north", epsilon=1, records=9).party("south", epsilon=1, records=9).build()
    sweep = many.sweep(budget=[1, 2])
    assert "3 more answers in to_frame()" in Seen(sweep._repr_html_()).text
    assert len(sweep.rows()) == 2 * 11


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (lambda made: made.sweep(), "sweep = (nothing) needs values to try"),
        (lambda made: made.sweep(threshold=2), "threshold = 2 is not a list of values"),
        (lambda made: made.sweep(threshold="12"), "threshold = 12 is not a list of values"),
        (lambda made: made.sweep(threshold=[]), "threshold = [] is empty"),
        (lambda made: made.sweep(threshold=range(9)), "threshold = 5 must be a whole number from 0 to 4"),
        (lambda made: made.sweep(threshold=[1.5]), "threshold = 1.5 must be a whole number"),
        (lambda made: made.sweep(budget=[0]), "budget = 0 must be greater than 0"),
        (lambda made: made.sweep(budget=["1"]), 'budget = "1" is not a number'),
        (lambda made: made.sweep(epsilon=[-1]), "epsilon of north = -1.0 must be greater than 0"),
        (lambda made: made.sweep(epsilon=[1], budget=[1]), "cannot be combined with budget"),
        (lambda made: made.sweep(epsilon=[1], party="nobody"), "party = nobody is not a party of the study"),
        (lambda made: made.sweep(budget=range(1, 1002)), "sweep = 1001 points must be at most 1000"),
    ],
)
def test_bad_sweeps_are_refused(call: Callable[[Study], Any], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        call(study())
    assert complaint in str(caught.value)


def test_parties_that_may_drop_out_bound_the_threshold() -> None:
    made = study(tolerate=1)
    sweep = made.sweep(threshold=[1, 2])
    assert [point.answers for point in sweep] == [point.answers for point in study().sweep(threshold=[1, 2])]
    with pytest.raises(InputError, match="must be a whole number from 1 to 4"):
        made.sweep(threshold=[0])
    for threshold in (3, 4):
        with pytest.raises(InputError, match=f"must be at most 0 with 5 parties and threshold {threshold}"):
            made.sweep(threshold=[threshold])


# Pictures


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{"threshold": range(4)}, {"threshold": [1, 2], "budget": [0.1, 1, 10]}, {"budget": [0.01, 1, 100]}],
    ids=str,
)
def test_a_sweep_is_drawn(tmp_path: Path, settings: dict[str, Any]) -> None:
    plot(study().sweep(**settings)).save(str(tmp_path / "sweep.png"))
    assert (tmp_path / "sweep.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_plans_and_releases_are_drawn(tmp_path: Path) -> None:
    got = release()
    north = got.parties["north"]
    assert isinstance(north, PartyRelease)
    for place, picture in enumerate(
        [
            plot(study().plan()),
            plot(got),
            plot(north, got.study),
            plot(replace(got, study=None), got.study),
        ]
    ):
        picture.save(tmp_path / f"{place}.svg")
        assert "svg" in (tmp_path / f"{place}.svg").read_text()
    assert plot(got)._repr_svg_().lstrip().startswith("<?xml")
    assert repr(plot(got)) == 'Picture(release of flu / session 1: .save("picture.svg") writes it)'


def test_what_cannot_be_drawn_is_refused(tmp_path: Path) -> None:
    got = release()
    with pytest.raises(InputError, match="study = \\(none\\) is missing for the picture of a release"):
        plot(got.parties["north"])
    with pytest.raises(InputError, match="which is not a receiver"):
        plot(got.parties["south"], got.study)
    with pytest.raises(InputError, match="value = int cannot be drawn"):
        plot(7)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"must end in \.svg, \.pdf or \.png"):
        plot(got).save(str(tmp_path / "a.gif"))
    with pytest.raises(FileError, match="does not exist"):
        plot(got).save(str(tmp_path / "no" / "a.svg"))


def test_the_example_can_be_swept() -> None:
    made = Study.read(str(ROOT / "examples" / "stay" / "study.toml"))
    assert len(made.sweep(threshold=range(len(made.parties)))) == len(made.parties)
    assert tpmdp.Sweep.__doc__
