"""The made-up trial of examples/trial: its data are always the same; it has an answer and a picture."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tpmdp
from tpmdp.queries.kaplan_meier import WITH_SAMPLING
from tpmdp.report.panels import panels
from tpmdp.study.answers import without_noise

EXAMPLE = Path(__file__).parents[1] / "examples" / "trial"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("trial")
    subprocess.run([sys.executable, EXAMPLE / "make_data.py", place], check=True)
    return place


@pytest.mark.process
def test_the_trial_has_an_answer_and_a_picture(folder: Path, tmp_path: Path) -> None:
    study = tpmdp.Study.read(EXAMPLE / "study.toml")
    tables = study.read_tables(folder)
    assert sum(len(table["months"]) for table in tables.values()) == 2000
    exact = {answer.part: answer for answer in without_noise(study, tables)}
    assert exact["arm new, at risk at 0"].value == exact["arm standard, at risk at 0"].value == 1000
    assert exact["p value"].value < 0.001
    assert 0.6 < exact["hazard ratio, arm new to arm standard"].value < 0.8
    release = tpmdp.run(study, tables)
    answers = {answer.part: answer for answer in release.answers}
    assert answers["p value"].value < 0.2
    noise = answers["arm new, survival to 24"]
    wider = noise.further_interval(WITH_SAMPLING)
    assert wider is not None
    assert wider[0] < noise.interval[0] < noise.value < noise.interval[1] < wider[1]
    (panel,) = panels(study, release.answers)
    assert [curve.label for curve in panel.curves] == ["arm standard", "arm new"]
    assert [time for time, _ in panel.curves[0].at_risk] == list(range(0, 36, 6))
    assert panel.curves[0].at_risk[0] == (0.0, "1,000")
    assert len(panel.curves[0].rows) == 37
    assert any(note.startswith("p value: ") for note in panel.notes)
    for suffix in ("png", "svg"):
        picture = tmp_path / f"trial.{suffix}"
        tpmdp.plot(release).save(picture)
        assert picture.stat().st_size > 10_000
