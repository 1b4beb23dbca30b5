"""`tpmdp query`, `check-query`, and what `run` shows of answers: as a person or a program sees them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import processes
from tests.patience import HANG_S
from tpmdp.queries.catalogue import EXAMPLES, KINDS

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
OWN = ROOT / "examples" / "own_query" / "geometric_mean.py"
STUDY = """
name = "wages"
threshold = 1
receivers = ["north"]
delta = 1e-6
epsilon = 5.0
deadline = "30m"
where = "age >= 18"

[[parties]]
name = "north"
records = 300

[[parties]]
name = "south"
records = 200

[[parties]]
name = "office"
records = 0

[[queries]]
name = "wage"
kind = "mean"
column = "wage"
low = 0
high = 100
by = { region = ["coast", "hills", "nowhere"] }

[[queries]]
name = "old"
kind = "count"
where = "age >= 65 and region != 'hills'"

[[queries]]
name = "regions"
kind = "histogram"
column = "region"
categories = ["coast", "hills"]

[[queries]]
name = "trend"
kind = "linear_regression"
target = "wage"
bounds = { wage = [0, 100], age = [0, 100] }
"""


def tpmdp(*words: str | Path, code: int = 0, cwd: Path = ROOT) -> str:
    """Run the tool; on success what it printed, otherwise its one line of complaint."""
    done = processes.run(*words, folder=cwd, environment={**os.environ, "NO_COLOR": "1", "COLUMNS": "140"})
    assert done.returncode == code, done.stderr + done.stdout
    if code == 2:
        assert done.stdout == ""
        (line,) = done.stderr.strip().splitlines()
        assert line.startswith("tpmdp: ")
        return line
    return done.stdout


@pytest.fixture
def wages(tmp_path: Path) -> Path:
    """A study with text columns, as CSV at one party and Parquet at the other."""
    import duckdb

    (tmp_path / "study.toml").write_text(STUDY)
    random = np.random.default_rng(0)
    for name, records in (("north", 300), ("south", 200)):
        ages, wages = random.integers(10, 90, records), random.uniform(0, 100, records)
        regions = random.choice(["coast", "hills", "sea"], records)
        lines = [f"{age},{wage},{region}" for age, wage, region in zip(ages, wages, regions, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,wage,region", *lines]) + "\n")
    duckdb.read_csv(str(tmp_path / "south.csv")).write_parquet(str(tmp_path / "south.parquet"))
    (tmp_path / "south.csv").unlink()
    return tmp_path


def test_the_list_names_every_kind() -> None:
    text = tpmdp("query", "list")
    listed = json.loads(tpmdp("query", "list", "--json"))
    assert [row["kind"] for row in listed] == [*KINDS]
    for row in listed:
        assert row["kind"] in text
        assert row["about"].endswith(".")
    own = tpmdp("query", "list", "--queries", OWN)
    assert "geometric_mean" in own


@pytest.mark.parametrize("kind", EXAMPLES)
def test_every_kind_is_explained_with_an_example(kind: str) -> None:
    text = tpmdp("query", "explain", kind)
    assert "Leaves the party" in text
    assert f'kind = "{kind}"' in text


def test_a_study_is_explained_before_anything_is_run(wages: Path) -> None:
    text = tpmdp("query", "explain", "--study", wages / "study.toml")
    told = json.loads(tpmdp("query", "explain", "--study", wages / "study.toml", "--json"))
    assert "Nothing was run or charged" in text
    assert [one["query"] for one in told["queries"]] == ["wage", "old", "regions", "trend"]
    assert all(one["noise_if_asked_apart"] > 1.5 for one in told["queries"])
    assert told["charges"]["office"] == 0
    assert 0 < told["charges"]["south"] <= 5
    assert sorted(path.name for path in wages.iterdir()) == ["north.csv", "south.parquet", "study.toml"]
    only = tpmdp("query", "explain", "count", "--study", wages / "study.toml")
    assert "old" in only
    assert "trend" not in only


def test_bad_calls_get_one_line(wages: Path) -> None:
    assert "must be one of count" in tpmdp("query", "explain", "cuont", code=2)
    assert "KIND = (none) is missing" in tpmdp("query", "explain", code=2)
    assert "is not in this study" in tpmdp("query", "explain", "sum", "--study", wages / "study.toml", code=2)
    assert "--tries" in tpmdp("check-query", wages / "study.toml", "--tries", "0", code=2)
    assert "does not exist" in tpmdp("check-query", wages / "nowhere.toml", code=2)
    assert "does not exist" in tpmdp("query", "list", "--queries", wages / "nowhere.py", code=2)
    assert "--plot" in tpmdp("run", wages / "study.toml", "--plot", "answers.gif", code=2)


def test_a_run_tells_answers_as_table_json_and_picture(wages: Path) -> None:
    words: list[str | Path] = ["run", wages / "study.toml", "--state", wages / "state"]
    text = tpmdp(*words, "--plot", wages / "answers.png")
    told = json.loads(tpmdp(*words, "--json"))  # the same session again
    north, south, office = told["parties"]
    assert south["answers"] is None is office["answers"]
    labels = [(one["query"], one["part"]) for one in north["answers"]]
    assert labels[:4] == [("wage", "region coast"), ("wage", "region hills"), ("wage", "region nowhere"), ("old", "")]
    assert "wage: region coast" in text
    for one in north["answers"]:
        if one["value"] is None:  # drowned
            assert one["note"]
        else:
            assert one["low"] is None or one["low"] <= one["value"] <= one["high"]
    assert (wages / "answers.png").read_bytes().startswith(b"\x89PNG")


def test_wrong_data_are_refused_before_anything_is_charged(wages: Path) -> None:
    words: list[str | Path] = ["run", wages / "study.toml", "--state", wages / "state"]
    path = wages / "north.csv"
    good = path.read_text()
    for change, message in (
        ("age,wage,place\n", "has no column region"),
        ("age,wage,region\n1,nan,coast\n", "line 2 has no finite number in column wage"),
        ("age,wage,region\n1,2,\n", "line 2 has no"),
        ("age,wage,region\n1,2,coast\n", "records of north = 1 must be the number the study states"),
    ):
        path.write_text(change)
        assert message in tpmdp(*words, code=2)
        assert not list((wages / "state").glob("*.ledger"))
    path.write_text(good)
    (wages / "south.csv").write_text("age\n1\n")
    assert "south.parquet" in tpmdp(*words, code=2)


def test_a_folder_with_a_study_brings_no_code(wages: Path) -> None:
    """Files beside a study that are named like modules are not imported by the processes of the parties."""
    for name in ("json", "tpmdp", "numpy", "hashlib"):
        (wages / f"{name}.py").write_text(f"open({str(wages / 'stolen')!r}, 'w').close()")
    script = Path(sys.executable).with_name("tpmdp")
    for study in ("study.toml", str(ROOT / "examples" / "own_query" / "study.toml")):
        words = [str(script), "run", study, "--state", f"state-{len(study)}", "--json"]
        if study != "study.toml":
            words += ["--queries", str(OWN), "--data", str(ROOT / "examples" / "stay")]
        subprocess.run(words, cwd=wages, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert not (wages / "stolen").exists()


def test_a_misspelt_category_is_told_to_its_party_before_it_pays(wages: Path) -> None:
    path = wages / "north.csv"
    path.write_text(path.read_text().replace("coast", "Coast").replace("hills", "Hills"))
    done = processes.run("run", wages / "study.toml", "--state", wages / "state")
    assert done.returncode == 0, done.stderr
    told = done.stderr.splitlines()
    assert [line for line in told if "of north counts for wage:" in line]
    assert [line for line in told if "of north counts for regions:" in line]
    assert not [line for line in told if "of south" in line]


def test_check_query_says_tight_or_exceeded(wages: Path) -> None:
    assert "EXCEEDED" not in tpmdp("check-query", wages / "study.toml", "--tries", "400")
    own: list[str | Path] = ["check-query", ROOT / "examples" / "own_query" / "study.toml", "--queries"]
    assert tpmdp(*own, OWN).count("tight") == 2
    broken = wages / "broken.py"
    broken.write_text(OWN.read_text().replace("spread = 1.0", "spread = 0.95"))
    assert tpmdp(*own, broken, code=1).count("EXCEEDED") == 2
    findings: list[dict[str, Any]] = json.loads(tpmdp(*own, OWN, "--json"))
    assert [one["verdict"] for one in findings] == ["tight", "tight"]


def test_a_query_of_ones_own_runs_among_processes_and_not_without_its_file(wages: Path) -> None:
    words: list[str | Path] = [
        "run",
        ROOT / "examples" / "own_query" / "study.toml",
        "--data",
        ROOT / "examples" / "stay",
    ]
    told = json.loads(tpmdp(*words, "--queries", OWN, "--state", wages / "own", "--json"))
    assert 3 < told["parties"][0]["answers"][0]["value"] < 7
    assert "--queries" in tpmdp(*words, "--state", wages / "own", code=2)
    other = wages / "other.py"
    other.write_text(OWN.read_text() + "\n# not the same code\n")
    assert "was charged with another plan or query" in tpmdp(
        *words, "--queries", other, "--state", wages / "own", code=2
    )


@pytest.mark.parametrize("census", [False, True])
def test_the_income_example_makes_its_own_data(tmp_path: Path, census: bool) -> None:
    """Synthetic people, or those of a file with the five columns."""
    made = ROOT / "examples" / "income" / "make_data.py"
    words = [sys.executable, str(made), str(tmp_path / "data")]
    if census:
        import duckdb

        from tpmdp.experiments.population import synthetic_adults

        with duckdb.connect() as connection:
            connection.register("people", synthetic_adults(100_000, seed=5))
            connection.sql("SELECT * FROM people").write_parquet(str(tmp_path / "census.parquet"))
        words.append(str(tmp_path / "census.parquet"))
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANG_S, check=True)
    assert ("drawn at random" in done.stdout) != census
    assert len(list((tmp_path / "data").glob("*.parquet"))) == 5
