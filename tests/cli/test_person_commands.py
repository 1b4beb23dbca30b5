"""`tpmdp plan --person a,b` as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_cli import bad, plan_example, run

pytestmark = pytest.mark.process


def test_what_a_person_at_several_parties_is_promised(tmp_path: Path) -> None:
    people = ["--person", "hospital_south,insurer", "--person", "hospital_south, insurer, university"]
    done = plan_example(tmp_path, *people)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("A person with a record at each of hospital_south, insurer") == 2
    assert "has epsilon 1.692 at delta 1e-06 if these collude: hospital_north, university." in done.stdout
    assert "has epsilon 2.112 at delta 1e-06 if these collude: hospital_north, statistics_office." in done.stdout
    assert "With a record at one of them only: 0.8, 0.8." in done.stdout
    both = json.loads(plan_example(tmp_path, *people, "--json").stdout)["people"]
    assert [person["parties"] for person in both] == [
        ["hospital_south", "insurer"],
        ["hospital_south", "insurer", "university"],
    ]
    assert both[0]["epsilon"] == pytest.approx(1.692, abs=1e-3)
    assert both[0]["coalition"] == ["hospital_north", "university"]
    assert "people" not in json.loads(plan_example(tmp_path, "--json").stdout)


def test_a_coalition_with_one_of_the_persons_parties_is_explained(tmp_path: Path) -> None:
    done = plan_example(tmp_path, "--person", "hospital_north,statistics_office")
    assert "This is for the record at statistics_office; those at hospital_north they know." in done.stdout


def test_nobody_can_attack(tmp_path: Path) -> None:
    text = 'threshold = 1\nreceivers = ["a"]\ndelta = 1e-6\n'
    text += "".join(f'[[parties]]\nname = "{name}"\nepsilon = 1\n' for name in ("a", "b, c"))
    (tmp_path / "study.toml").write_text(text)
    done = run("plan", "study.toml", "--person", "a", "--person", "b, c", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "A person with a record at a has nothing to fear" in done.stdout
    assert "A person with a record at b, c has epsilon 1 " in done.stdout


@pytest.mark.parametrize(
    ("person", "message"),
    [
        ("nobody", "--person = nobody is not in the file of parties"),
        ("insurer,", "--person = (blank) is not in the file of parties"),
        ("", "--person = (blank) is not in the file of parties"),
        ("insurer,insurer", "--person = insurer is named twice"),
    ],
)
def test_mistakes_get_one_line(tmp_path: Path, person: str, message: str) -> None:
    words = ["plan", Path(__file__).parents[2] / "examples" / "consortium.csv", "-t", 2, "-r", "all"]
    assert message in bad(*words, "--person", person, "--out", "plan.json", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []
