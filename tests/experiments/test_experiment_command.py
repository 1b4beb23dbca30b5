"""`tpmdp experiment` as a user calls it."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

import tpmdp.experiments.count_experiment as count
import tpmdp.experiments.efficiency_experiment as efficiency
import tpmdp.experiments.regression_experiment as regression
from tests.cli.test_commands import tpmdp
from tests.patience import HANG_S
from tpmdp._util.interpreter import python_command, python_environment
from tpmdp.experiments.claims.claim import ClaimStatus
from tpmdp.experiments.weights_checks import WANTED
from tpmdp.mechanisms.registry import MECHANISMS

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """Everything, quickly: the folder and what was said."""
    folder = tmp_path_factory.mktemp("experiments")
    command = python_command("-m", "tpmdp", "experiment", "all", "--quick", "--out", "results")
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, env=python_environment(), timeout=HANG_S, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "results", done.stdout, done.stderr


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.long
def test_all_results_are_tidy_files(quick: tuple[Path, str, str]) -> None:
    out = quick[0]
    names = ("count", "regression", "consortium", "agreement", "efficiency", "weights", "weights_time")
    assert {path.name for path in out.glob("*.csv")} == {f"{name}.csv" for name in names} | {
        f"{name}_points.csv" for name in names if name not in ("efficiency", "weights_time")
    }
    for panel, points in count.QUICK.items():
        found = {float(row["x"]) for row in rows(out / "count_points.csv") if row["panel"] == panel}
        assert found == set(points)
    errors = rows(out / "count.csv")
    assert len(errors) == len(count.NAMES) * count.QUICK_REPETITIONS * sum(map(len, count.QUICK.values()))
    assert {row["seed"] for row in errors} == {"2024"}
    folds = rows(out / "regression.csv")
    assert len(folds) == (len(MECHANISMS) + 1) * 5 * regression.QUICK_RUNS * sum(map(len, regression.QUICK.values()))
    timed = rows(out / "efficiency.csv")
    assert {row["method"] for row in timed} == set(efficiency.METHODS)
    assert {row["outcome"] for row in timed if row["method"] == "gurobi"} == {"ok", "licence"}


@pytest.mark.long
def test_points_have_intervals_around_them(quick: tuple[Path, str, str]) -> None:
    for name in ("count_points", "regression_points"):
        for row in rows(quick[0] / f"{name}.csv"):
            assert 0 <= float(row["low"]) <= float(row["rmse"]) <= float(row["high"])


@pytest.mark.long
def test_the_real_protocol_agrees_with_the_simulation(quick: tuple[Path, str, str]) -> None:
    points = rows(quick[0] / "agreement_points.csv")
    assert {row["engine"] for row in points} == {"memory", "relay", "all"}
    for row in points:  # noise of the system: five standard errors and the grid's few per cent
        slack = 5 / (2 * float(row["numbers"])) ** 0.5 + 0.05
        assert abs(float(row["ratio"]) - 1) < slack, row


@pytest.mark.long
def test_the_run_says_what_it_rests_on(quick: tuple[Path, str, str]) -> None:
    made = json.loads((quick[0] / "count.json").read_text())
    assert made["seed"] == 2024
    assert made["quick"] is True
    assert made["data"] is None
    assert {"tpmdp", "python", "numpy", "scipy"} <= set(made["versions"])
    assert made["machine"]["cores"] >= 1
    assert list(made["bounds"])[-1] == "income"


@pytest.mark.long
def test_the_report_has_its_claims_and_pictures(quick: tuple[Path, str, str]) -> None:
    out, said, _ = quick
    page = (out / "reproduction.md").read_text()
    linked = re.findall(r"\]\((\S+\.svg)\)", page)
    names = {"count", "regression", "efficiency", "consortium", "weights", "weights_adversary"}
    assert {Path(link).stem for link in linked} == names
    for link in (*linked, "reproduction/telling.svg"):
        assert ElementTree.parse(out / link).getroot().tag.endswith("svg")  # noqa: S314
    assert "A quick run" in page
    verdicts = re.findall(r"\*\*(holds|does not hold|depends|not measured)\*\*", page)
    assert len(verdicts) > 35
    assert verdicts.count("holds") > 10
    for line in page.splitlines():
        if "(note " in line:
            number = re.findall(r"\(note (\d+)\)", line)[0]
            assert f"**Note {number}.**" in page
    assert "Claims of the paper" in said
    assert "Measures of weights" in said
    assert len(re.findall(r"\| (yes|no) \|$", page, re.MULTILINE)) == len(WANTED)  # all are measured
    assert str(Path.cwd()) not in page


@pytest.mark.long
def test_long_work_shows_that_it_goes_on(quick: tuple[Path, str, str]) -> None:
    for name in ("count", "regression", "consortium", "agreement", "efficiency", "weights", "weights_time"):
        assert f"tpmdp: {name} 100 % after" in quick[2]
    assert "Traceback" not in quick[2]


@pytest.mark.long
def test_again_from_what_is_kept_gives_the_same_files(quick: tuple[Path, str, str]) -> None:
    out = quick[0]
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    done = tpmdp("experiment", "all", "--quick", "--out", out, "--json", folder=out.parent)
    after = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    assert after == before
    told = json.loads(done.stdout)
    assert {row["verdict"] for row in told} <= {verdict.value for verdict in ClaimStatus}
    assert {tuple(row) for row in told} == {("where", "claim", "measured", "verdict")}
    assert [row["where"] for row in told].count("weights") == len(WANTED)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing"], "is not one of"),
        (["count", "--seed", "-1"], "--seed = -1 must be from 0 to"),
        (["count", "--seed", "x"], "'x' is not a valid integer"),
        (["count", "--workers", "0"], "--workers = 0 must be from 1 to 1024: leave it out to use all cores"),
        (["count", "--backend", "dask"], "--scheduler = (none) is missing: give its address"),
        (
            ["count", "--scheduler", "tcp://h:1"],
            "but the work is done here: add --backend dask",
        ),
        (["count", "--report", "a.html"], "--report = a.html must be a name that ends in .md: rename it"),
        (["count", "--workers", "9" * 20], "must be from 1 to 1024"),
        (["count", "--report", "file.md"], "--report = file.md needs file as a folder for its pictures"),
        (["count", "--report", "no/a.md"], "no/a.md lies in a folder that does not exist: make no first"),
        (["count", "--data", "a.csv"], "--data = a.csv is not used by count: leave it out"),
        (["regression", "--data", "a.csv"], "a.csv does not exist: check the path"),
        (["regression", "--bounds", "b.toml"], "give --data FILE too"),
        (["count", "--out", "file"], "file cannot be made (File exists): choose another folder"),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(tmp_path: Path, words: list[str], says: str) -> None:
    (tmp_path / "file").write_text("mine")
    done = tpmdp("experiment", *words, "--quick", folder=tmp_path, code=2)
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("age,income\n", "people.csv has 0 records, but 6,250 are needed for 5,000 parties: give more"),
        ("age,income\n" + "20,3\n" * 6249, "people.csv has 6,249 records, but 6,250 are needed"),
        ("age,income\n" + "20,3\n" * 9 + "20,nan\n", "correct the record, or remove it"),
        ("age\n20\n", "income"),
    ],
)
def test_data_that_cannot_serve_is_refused_at_once(tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "people.csv").write_text(text)
    (tmp_path / "bounds.toml").write_text("age = [18, 96]\nincome = [0, 100000]\n")
    words = ("experiment", "regression", "--quick", "--data", "people.csv", "--bounds", "bounds.toml")
    done = tpmdp(*words, folder=tmp_path, code=2)
    assert says in done.stderr
    assert "study" not in done.stderr
    assert done.stderr.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bounds.toml", "people.csv"]


def test_a_file_with_few_records_leaves_out_what_it_cannot_do(tmp_path: Path) -> None:
    people = ["income,age"] + [f"{1000 * (i % 90)},{18 + i % 60}" for i in range(7000)]
    (tmp_path / "people.csv").write_text("\n".join(people) + "\n")
    (tmp_path / "bounds.toml").write_text("age = [18, 96]\nincome = [0, 100000]\n")
    words = ("experiment", "regression", "--quick", "--data", "people.csv", "--bounds", "bounds.toml", "--out", "out")
    done = tpmdp(*words, folder=tmp_path)
    assert "people.csv has 7,000 records: left out are the points with 50,000, 200,000 parties" in done.stderr
    found = rows(tmp_path / "out" / "regression_points.csv")
    assert {row["x"] for row in found if row["panel"] == "parties"} == {"5000.0"}
    page = (tmp_path / "out" / "regression.md").read_text()
    sha256 = hashlib.sha256((tmp_path / "people.csv").read_bytes()).hexdigest()
    assert f"`people.csv` (7,000 records, SHA-256 {sha256[:12]})" in page
    assert "age [18, 96], income [0, 100000]" in page
    assert str(tmp_path) not in page + (tmp_path / "out" / "regression.json").read_text()
