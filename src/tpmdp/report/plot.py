"""Pictures of plans, sweeps and releases, for files and for notebooks: `tpmdp.plot`."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tpmdp._util.files import StrPath, as_path
from tpmdp.errors import InputError
from tpmdp.planning.grid_plan import GridPlan
from tpmdp.planning.plan import Plan
from tpmdp.report.plan import PlanReport
from tpmdp.report.plot_plan import draw_plan
from tpmdp.report.plot_release import draw_answers
from tpmdp.report.plot_sweep import draw_sweep
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease, Release
from tpmdp.study.sweep import Sweep


@dataclass(frozen=True, eq=False, repr=False)
class Picture:
    """A picture that a notebook shows, and that `save` writes to a file."""

    draw: Callable[[Path], None]
    title: str

    def __repr__(self) -> str:
        return f'Picture({self.title}: .save("picture.svg") writes it)'

    def _repr_svg_(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "picture.svg"
            self.draw(path)
            return path.read_text(encoding="utf-8")

    def save(self, path: StrPath) -> None:
        """Write the picture to a .svg, .pdf or .png file."""
        self.draw(as_path(path))


def plot(value: Plan | GridPlan | Sweep | Release | PartyRelease, study: Study | None = None) -> Picture:
    """The picture of a plan, a sweep or a release. Needs matplotlib.

    `study` is needed for what `tpmdp.join` gives; a release of `tpmdp.run` knows its study.

    >>> from tpmdp import Spec, plan
    >>> plot(plan(Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
    Picture(plan of 2 parties: .save("picture.svg") writes it)
    """
    if isinstance(value, Plan | GridPlan):
        chosen = value.plan if isinstance(value, GridPlan) else value
        return Picture(partial(draw_plan, PlanReport.of(chosen)), f"plan of {chosen.spec.count} parties")
    if isinstance(value, Sweep):
        return Picture(partial(draw_sweep, value), f"sweep of {value.title}")
    if isinstance(value, Release | PartyRelease):
        known = study if study is not None or isinstance(value, PartyRelease) else value.study
        if known is None:
            raise InputError("study", "(none)", "is missing for the picture of a release", "write plot(release, study)")
        answers = value.answers
        if answers is None:
            raise InputError("answers", "(none)", "are not for this party, which is not a receiver", "ask a receiver")
        return Picture(partial(draw_answers, known, answers), f"release of {known.label}")
    rule = "cannot be drawn"
    raise InputError("value", type(value).__name__, rule, "give a plan, a sweep or a release")
