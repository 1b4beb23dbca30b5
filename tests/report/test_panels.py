"""What pictures of answers show: curves of distributions."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from tests.queries.cases import study_of
from tpmdp.queries.answer import Answer
from tpmdp.report.panels import panels
from tpmdp.report.plot_release import draw_answers
from tpmdp.report.svg import bars, curves

EDGES = [1, 2, 5]
ENTRY = {"name": "up to", "kind": "distribution", "column": "x", "edges": EDGES}
BY = {**ENTRY, "by": {"g": ["a, b", "c"]}}


def share(part: str, value: float) -> Answer:
    return Answer("up to", value, 0.05, part=part, limits=(max(value - 0.1, 0.0), min(value + 0.1, 1.0)))


ALONE = [share(f"at most {edge}", value) for edge, value in zip(EDGES, (0.2, 0.5, 0.9), strict=True)]
GROUPS = [
    share(f"g {group}, at most {edge}", value)
    for group in ("a, b", "c")
    for edge, value in zip(EDGES, (0.1, 0.4, 1.0), strict=True)
]


def test_a_distribution_is_a_curve_that_keeps_each_share_up_to_the_next_edge() -> None:
    (panel,) = panels(study_of(ENTRY), ALONE)
    (curve,) = panel.curves
    assert [(place, row.value) for place, row in curve.corners()] == [(1, 0.2), (2, 0.2), (2, 0.5), (5, 0.5), (5, 0.9)]
    assert (curve.label, panel.axis, panel.across) == ("", "share of records", "x")


def test_each_group_is_a_curve_of_its_own_whatever_its_name() -> None:
    (panel,) = panels(study_of(BY), GROUPS)
    assert [curve.label for curve in panel.curves] == ["g a, b", "g c"]
    assert [len(curve.rows) for curve in panel.curves] == [3, 3]


def test_other_kinds_have_no_curves() -> None:
    histogram = {"name": "up to", "kind": "histogram", "column": "x", "edges": EDGES}
    (panel,) = panels(study_of(histogram), [share("1 to below 2", 3.0), share("2 to below 5", 4.0)])
    assert panel.upright
    assert not panel.curves


@pytest.mark.parametrize("answers", [ALONE, GROUPS], ids=["alone", "groups"])
def test_curves_have_bands_in_both_kinds_of_pictures(answers: list[Answer], tmp_path: Path) -> None:
    study = study_of(ENTRY if answers is ALONE else BY)
    (panel,) = panels(study, answers)
    picture = str(curves(panel))
    assert picture.count("<polygon") == picture.count("<polyline") == len(panel.curves)
    draw_answers(study, answers, tmp_path / "a.svg")
    assert "Error bars and bands are 95 % intervals, point by point" in (tmp_path / "a.svg").read_text()


def test_a_share_that_the_noise_drowned_leaves_its_band(tmp_path: Path) -> None:
    drowned = Answer.drowned("up to", "at most 2", (0.0, 1.0), note="too few records for the noise")
    answers = [ALONE[0], drowned, ALONE[2]]
    (panel,) = panels(study_of(ENTRY), answers)
    assert math.isnan(panel.curves[0].rows[1].value)
    numbers = re.findall(r'points="([^"]*)"', str(curves(panel)))
    assert all(math.isfinite(float(each)) for text in numbers for each in re.split("[ ,]", text))
    draw_answers(study_of(ENTRY), answers, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 1000


def test_bins_are_named_as_the_parts_that_they_are() -> None:
    histogram = {"name": "up to", "kind": "histogram", "column": "x", "edges": EDGES}
    (panel,) = panels(study_of(histogram), [share("1 to below 2", 3.0), share("2 to below 5", 4.0)])
    picture = str(bars(panel))
    for text in ("1 to", "below 2", "2 to", "below 5"):
        assert f">{text}</text>" in picture
