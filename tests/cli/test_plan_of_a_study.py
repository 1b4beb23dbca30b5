"""`tpmdp plan study.toml`: the plan of a study, without its data."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.cli.test_commands import EXAMPLE, refused, tpmdp
from tpmdp.study.expectation import expect
from tpmdp.study.model import Study

pytestmark = pytest.mark.process

BALANCED = EXAMPLE.read_text().replace("threshold = 2", 'threshold = 2\nweighting = "balanced"\ntolerate = 1', 1)


def test_it_plans_the_noise_that_the_study_has(tmp_path: Path) -> None:
    plan = json.loads(tpmdp("plan", EXAMPLE, "--json", folder=tmp_path).stdout)
    study = Study.read(EXAMPLE)
    assert plan["study"] == study.label
    assert [party["name"] for party in plan["parties"]] == [party.name for party in study.parties]
    assert [party["epsilon"] for party in plan["parties"]] == [party.epsilon for party in study.parties]
    count = expect(study).queries[0]
    assert plan["noise"] == pytest.approx(count.noise * study.computation.scales[0], rel=1e-3)
    table = tpmdp("plan", EXAMPLE, folder=tmp_path).stdout
    assert table.startswith("length of stay / session 1\n5 parties, threshold 2, 2 receivers")
    assert f"tpmdp query explain --study {EXAMPLE}" in table


def test_weights_and_drop_outs_of_the_study_count(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(BALANCED)
    plan = json.loads(tpmdp("plan", file, "--json", folder=tmp_path).stdout)
    study = Study.read(file)
    assert (plan["tolerate"], plan["weights"]["kind"]) == (1, "balanced")
    weights = [party["weight"] for party in plan["parties"]]
    assert weights == pytest.approx(study.weights.each.tolist(), rel=1e-3)
    assert math.isclose(plan["noise"], expect(study).queries[0].noise * study.computation.scales[0], rel_tol=1e-3)
    file.write_text(BALANCED.replace("tolerate = 1", ""))
    assert json.loads(tpmdp("plan", file, "--json", folder=tmp_path).stdout)["noise"] == plan["noise"]


def test_more_drop_outs_than_the_protocol_bears_are_refused(tmp_path: Path) -> None:
    text = tpmdp("plan", EXAMPLE, "--tolerate", 1, folder=tmp_path).stdout
    assert "1 party may drop out of the session, at no cost in noise." in text
    most = "must be at most 1 with 5 parties and threshold 2"
    assert f"--tolerate = 2 {most}" in refused("plan", EXAMPLE, "--tolerate", 2, folder=tmp_path)
    file = tmp_path / "study.toml"
    file.write_text(BALANCED.replace("tolerate = 1", "tolerate = 2").replace('"computational"', '"statistical"'))
    assert json.loads(tpmdp("plan", file, "--json", folder=tmp_path).stdout)["tolerate"] == 2
    refusal = "--tolerate = 3 must be at most 2 with 5 parties and threshold 2: more parties must be left than may"
    assert refusal in refused("plan", file, "--tolerate", 3, folder=tmp_path)


def test_flags_replace_what_the_study_says(tmp_path: Path) -> None:
    done = tpmdp("plan", EXAMPLE, "--threshold", 1, "--receivers", "all", "--json", folder=tmp_path)
    plan = json.loads(done.stdout)
    assert "--threshold 1 replaces what the file says" in done.stderr
    assert all(party["receives"] and party["threshold"] == 1 for party in plan["parties"])
    assert "tolerate" not in plan


def test_its_plan_can_be_verified(tmp_path: Path) -> None:
    tpmdp("plan", EXAMPLE, "--out", "plan.json", folder=tmp_path)
    assert "VALID" in tpmdp("verify", "plan.json", folder=tmp_path).stdout


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    assert "study.toml does not exist" in refused("plan", file, folder=tmp_path)
    file.write_text(EXAMPLE.read_text().replace("threshold = 2", "threshold = 9", 1))
    assert "threshold = 9, which must be less than the number of parties (5)" in refused("plan", file, folder=tmp_path)
    file.write_text("queries = [")
    assert "study.toml" in refused("plan", file, folder=tmp_path)
    (tmp_path / "parties.csv").write_text("name,epsilon,delta\na,1,1e-6\nb,1,1e-6\n")
    (tmp_path / "own.py").write_text("")
    line = refused("plan", "parties.csv", "-t", 1, "-r", "all", "--queries", "own.py", folder=tmp_path)
    assert "--queries = own.py needs a study" in line
    assert "the same file as the file of parties" in refused("plan", EXAMPLE, "--out", EXAMPLE, folder=tmp_path)


BY_ROUNDS = """
name = "income"
threshold = 1
receivers = "all"
epsilon = 1.0
delta = 1e-6
parties = [{ name = "north", records = 2000 }, { name = "south", records = 2000 }]

[[queries]]
name = "odds"
kind = "logistic_regression"
target = "rich"
bounds = { age = [18, 90] }
"""


def test_a_study_by_rounds_shows_the_plan_of_the_last_round_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    file.write_text(BY_ROUNDS)
    last = Study.read(file).preview_rounds[-1]
    text = tpmdp("plan", file, folder=tmp_path).stdout
    assert text.startswith("income / session 1, round 4\nA study by rounds: this is the plan of round 4 of 4")
    plan = json.loads(tpmdp("plan", file, "--json", folder=tmp_path).stdout)
    assert [party["epsilon"] for party in plan["parties"]] == [party.epsilon for party in last.parties]
    assert plan["noise"] == pytest.approx(last.plan().standard_deviation, rel=1e-3)
    line = refused("plan", file, "--person", "north,south", folder=tmp_path)
    assert "cannot be told from the plan of one round" in line
