"""The recipes in CONTRIBUTING.md work: their files go where they say, and their commands succeed."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.test_architecture import violations

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
RECIPES = dict(re.findall(r"^## Recipe: a new (\w+)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))


def test_there_is_a_recipe_for_each_thing_people_add() -> None:
    assert set(RECIPES) == {"query", "engine", "mechanism"}


@pytest.mark.process
@pytest.mark.parametrize("kind", RECIPES)
def test_a_recipe_can_be_followed(kind: str, tmp_path: Path) -> None:
    recipe = RECIPES[kind]
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    files = re.findall(r'^```\w+ title="([^"]+)"\n(.*?)^```', recipe, re.MULTILINE | re.DOTALL)
    for name, text in files:
        assert not (tmp_path / name).exists(), f"{name} exists already"
        assert (tmp_path / name).parent.is_dir(), f"{name} would need a new folder"
        (tmp_path / name).write_text(text)
    assert list(violations(tmp_path / "src" / "tpmdp")) == []
    lines = "".join(re.findall(r"^```console\n(.*?)^```", recipe, re.MULTILINE | re.DOTALL)).splitlines()
    assert lines
    for line in lines:
        program, *words = shlex.split(line.removeprefix("$ "))
        command = {"tpmdp": [sys.executable, "-m", "tpmdp"], "python": [sys.executable]}[program]
        environment = {**os.environ, "PYTHONPATH": str(tmp_path / "src")}
        done = subprocess.run(
            [*command, *words], cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False, env=environment
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        assert done.stdout


def test_every_path_in_the_page_exists() -> None:
    made = set(re.findall(r'title="([^"]+)"', PAGE))
    for path in re.findall(r"`((?:src|tests|docs)/[\w/.-]+)`", PAGE):
        assert path in made or (ROOT / path).exists(), path


def test_every_target_in_the_page_exists() -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"`make ([\w-]+)`", PAGE)) <= targets
