"""Figures are valid, repeatable and readable, also for few data and none."""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import tpmdp.experiments.consortium_experiment as consortium
import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.regression_experiment as regression
import tpmdp.experiments.weights_experiment as weights
from tpmdp.errors import FileError, InputError, MissingDependencyError
from tpmdp.experiments.figures.axes import LEGEND_ORDER, LOOKS, Stretched
from tpmdp.experiments.figures.paper_figures import (
    draw_consortium,
    draw_count,
    draw_efficiency,
    draw_regression,
    draw_telling,
)
from tpmdp.experiments.figures.weights_figures import draw_adversary, draw_weights
from tpmdp.experiments.jobs import Row
from tpmdp.mechanisms.registry import MECHANISMS

pytestmark = pytest.mark.slow  # figures take seconds to draw

Draw = Callable[[Path], None]


def errors(panels: dict[str, tuple[float, ...]], names: tuple[str, ...], base: float) -> list[Row]:
    """Points as `count_points` and `regression_points` give them."""
    points: list[Row] = []
    for panel, across in panels.items():
        for place, x in enumerate(across):
            for rank, name in enumerate(names):
                rmse = base * (1 + rank) * (1 + place / 3)
                row: Row = {"panel": panel, "x": x, "mechanism": name, "rmse": rmse}
                points.append({**row, "low": rmse * 0.9 if place else 0.0, "high": rmse * 1.1})
    return points


COUNT = errors(count.PANELS, count.NAMES, 10.0)
REGRESSION = errors(regression.PANELS, (*MECHANISMS, "mean"), 0.46)
QUICK_REGRESSION = errors(regression.QUICK, (*MECHANISMS, "mean"), 0.46)
PRICE: list[Row] = [
    {
        "panel": "price",
        "parties": size,
        "receivers": receivers,
        "threshold": threshold,
        "mechanism": name,
        "median": (size / (size - threshold)) ** power,
        "low": 1.0,
        "high": (size / (size - threshold)) ** 0.5,
    }
    for size in consortium.SIZES
    for receivers in consortium.RECEIVERS
    for threshold in range(1, size)
    for name, power in (("G", 0.3), ("TMDP", 0.5), ("non-thre", 0.4))
]
RELAX: list[Row] = [
    {"panel": "relax", "who": who, "factor": factor, "mechanism": name, "median": factor ** (-0.02 * rank)}
    for who in ("strictest", "middle")
    for factor in consortium.FACTORS
    for rank, name in enumerate(consortium.COMPARED)
]
ENJOYED: list[Row] = [
    {"panel": "enjoyed", "x": float(size), "draw": draw, "asked": asked, "mechanism": name, "enjoyed": given}
    for size in (20, 1000)
    for draw in (0, 1)
    for asked in [0.01 + 0.99 * party / (size - 1) for party in range(size)]
    for name, given in (
        ("G", min(asked, 0.012)),
        ("TMDP", 0.01),
        ("MIN", 0.01),
        ("Sample", min(asked, 0.4)),
        ("W", min(asked, 0.8)),
    )
]


def cost(method: str, rule: str, n: int, seconds: float | None, peak: int | None, outcome: str = "ok") -> Row:
    return {"rule": rule, "method": method, "n": n, "seconds": seconds, "peak_bytes": peak, "outcome": outcome}


COSTS: list[Row] = [
    *(cost("ours", rule, 10**k, 1e-8 * 10**k, 8 * 10**k - 80) for rule in ("t = 2", "t = n/2") for k in range(1, 8)),
    *(cost("highs", "t = 2", n, 1e-7 * n**3, 100 * n**3) for n in (10, 100, 400)),
    cost("highs", "t = 2", 500, None, None, "memory"),
    cost("highs", "t = n/2", 25, None, None, "time"),
    cost("gurobi", "t = 2", 63, 0.1, 1 << 24),
    cost("gurobi", "t = 2", 64, None, None, "licence"),
    cost("gurobi", "t = n/2", 8, None, None, "missing"),
]
THRESHOLDS: list[Row] = [
    {
        "panel": "threshold",
        "x": float(size),
        "threshold": threshold,
        "mechanism": name,
        "rmse": rmse,
        "low": rmse * 0.9,
        "high": rmse * 1.1,
    }
    for size in weights.SIZES
    for threshold in weights.thresholds(size, False)
    for rank, name in enumerate(weights.COMPARED)
    for rmse in [(1 + rank) * (size / (size - threshold)) ** 0.5]
]
ADVERSARY: list[Row] = [
    {
        "panel": "adversary",
        "x": x,
        "mechanism": name,
        "rmse": rmse,
        "low": rmse * 0.9,
        "high": rmse * 1.1,
        "at_most": 330.0,
        "covered": 0.95 * (1 - abs(x)),
        "covered_wide": 0.99,
    }
    for x in weights.CORRELATIONS
    for name, rmse in (("G", 230.0), ("W", 15 + 300 * abs(x)), ("Sample", 150.0 + 100 * x))
]
DRAWINGS: dict[str, Draw] = {
    "count": lambda path: draw_count(COUNT, path),
    "regression": lambda path: draw_regression(REGRESSION, path),
    "quick regression": lambda path: draw_regression(QUICK_REGRESSION, path),
    "efficiency": lambda path: draw_efficiency(COSTS, path),
    "consortium": lambda path: draw_consortium([*PRICE, *RELAX], ENJOYED, path),
    "telling": lambda path: draw_telling(COUNT, ENJOYED, path),
    "weights": lambda path: draw_weights(THRESHOLDS, path),
    "adversary": lambda path: draw_adversary(ADVERSARY, path),
}


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Texts that lie on one another, or out of the figure."""
    renderer = FigureCanvasAgg(figure).get_renderer()  # type: ignore[no-untyped-call]
    figure.draw(renderer)
    texts = [*(text for legend in figure.legends for text in legend.get_texts())]
    for axes in figure.axes:
        labels = [
            tick.label1
            for axis in (axes.xaxis, axes.yaxis)
            for tick in axis.get_major_ticks()
            if tick.label1.get_visible()
            and min(axis.get_view_interval()) <= tick.get_loc() <= max(axis.get_view_interval())
        ]
        texts += [*labels, axes.xaxis.label, axes.yaxis.label, axes.title, axes._left_title, *axes.texts]  # type: ignore[attr-defined]
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in texts if text.get_text().strip()]
    wide, high = figure.canvas.get_width_height()
    out = [(name, "") for name, box in boxes if box.x0 < 0 or box.y0 < 0 or box.x1 > wide or box.y1 > high]
    legends = [("legend", legend.get_window_extent(renderer)) for legend in figure.legends]
    inside = [("panel", axes.get_window_extent(renderer)) for axes in figure.axes]
    pairs = [*combinations(boxes, 2), *((one, other) for one in legends for other in inside)]
    return out + [(one, other) for (one, first), (other, second) in pairs if first.overlaps(second)]


@pytest.mark.parametrize("name", DRAWINGS)
@pytest.mark.slow
@pytest.mark.long
def test_a_figure_is_valid_small_repeatable_and_has_no_texts_on_one_another(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[str, str]] = []
    save = Figure.savefig

    def saved(figure: Figure, *args: Any, **options: Any) -> None:
        save(figure, *args, **options)
        found.extend(overlaps(figure))

    one, other = tmp_path / "one.svg", tmp_path / "other.SVG"
    DRAWINGS[name](one)
    monkeypatch.setattr(Figure, "savefig", saved)
    with matplotlib.rc_context({"font.size": 20, "axes.grid": False}):  # a user's own settings
        DRAWINGS[name](other)
    assert found == []
    assert one.read_bytes() == other.read_bytes()
    assert len(one.read_bytes()) < 300_000
    assert ElementTree.parse(one).getroot().tag == "{http://www.w3.org/2000/svg}svg"  # noqa: S314
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.svg", "other.SVG"]


@pytest.mark.parametrize(("suffix", "start"), [(".pdf", b"%PDF"), (".png", b"\x89PNG")])
@pytest.mark.slow
def test_other_formats(suffix: str, start: bytes, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path in paths:
        draw_adversary(ADVERSARY, path)
    assert paths[0].read_bytes().startswith(start)
    assert paths[0].read_bytes() == paths[1].read_bytes()


@pytest.mark.slow
def test_panels_without_data_are_left_out_and_single_points_are_drawn(tmp_path: Path) -> None:
    drawn: list[Draw] = [
        lambda path: draw_count([], path),
        lambda path: draw_regression([], path),
        lambda path: draw_efficiency([cost("gurobi", "t = 2", 9, None, None, "missing")], path),
        lambda path: draw_consortium([], [], path),
        lambda path: draw_telling([], [], path),
        lambda path: draw_weights(ADVERSARY, path),
        lambda path: draw_adversary(THRESHOLDS, path),
        lambda path: draw_count(errors({"parties": (1250,), "threshold": (7,)}, ("G",), 0.0), path),
        lambda path: draw_regression(errors({"conservative": (0.0,)}, ("G", "non-pri"), 0.46), path),
        lambda path: draw_efficiency([cost("highs", "t = 2", 9, None, None, "memory")], path),
        lambda path: draw_efficiency([cost("ours", "t = 2", 9, 0.0, 0)], path),
        lambda path: draw_consortium(RELAX[:1], [], path),
        lambda path: draw_consortium(PRICE[:2], ENJOYED[:1], path),
        lambda path: draw_telling(errors({"threshold": (999,)}, ("G",), 9.0), [], path),
        lambda path: draw_telling([], ENJOYED[3:4], path),
        lambda path: draw_weights(THRESHOLDS[:1], path),
        lambda path: draw_adversary(ADVERSARY[1:2], path),
    ]
    sizes = []
    for place, draw in enumerate(drawn):
        draw(tmp_path / f"{place}.svg")
        sizes.append((tmp_path / f"{place}.svg").stat().st_size)
    assert max(sizes[:7]) < min(sizes[7:])  # the first have no panel
    pyplot = sys.modules.get("matplotlib.pyplot")
    assert pyplot is None or pyplot.get_fignums() == []


@pytest.mark.slow
def test_a_failing_point_is_marked_by_its_reason(tmp_path: Path) -> None:
    pictures = []
    for outcome in ("missing", "memory", "time", "licence"):
        rows = [cost("highs", "t = 2", 9, 0.1, 1 << 20), cost("highs", "t = 2", 99, None, None, outcome)]
        draw_efficiency(rows, tmp_path / "a.svg")
        pictures.append((tmp_path / "a.svg").read_bytes())
    assert len(set(pictures)) == 4


@pytest.mark.parametrize("name", DRAWINGS)
def test_an_unknown_format_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"path = a\.gif must end in \.svg, \.pdf or \.png: choose one of these"):
        DRAWINGS[name](tmp_path / "a.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_and_a_missing_library_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match="folder that does not exist"):
        draw_count(COUNT, tmp_path / "none" / "a.svg")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match="matplotlib is not installed"):
        draw_count(COUNT, tmp_path / "a.svg")


def test_every_mechanism_has_a_look_of_its_own() -> None:
    assert set(LOOKS) == set(LEGEND_ORDER) == {*MECHANISMS, "mean"}
    for part in ("colour", "marker", "dashes"):
        assert len({getattr(LOOKS[name], part) for name in MECHANISMS}) == len(MECHANISMS)
    assert len({look.dashes for look in LOOKS.values()}) == len(LOOKS)  # two lines have no markers
    ours = LOOKS["G"], LOOKS["W"]
    assert min(look.width for look in ours) > max(look.width for look in LOOKS.values() if look not in ours)


@pytest.mark.parametrize("parties", [2, 5, 10, 11, 100, 1000, 50_000])
def test_the_stretched_axis_keeps_the_order_of_thresholds(parties: int) -> None:
    places = [Stretched(parties).place(threshold) for threshold in range(parties)]
    assert all(one < other for one, other in pairwise(places))
    assert places[0] == 0.0
    assert places[-1] <= 1.0
