"""The targets of the Makefile that need no environment."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import HANG_S

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text()

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(shutil.which("make") is None, reason="needs make"),
]


def make(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)


def test_help_lists_every_target() -> None:
    declared = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)
    assert declared is not None
    listed = [line.split()[1] for line in make("help").stdout.splitlines()]
    assert sorted(listed) == sorted(declared[1].split())


def test_every_suite_has_its_targets() -> None:
    listed = re.search(r"^SUITES := (.*)$", MAKEFILE, re.MULTILINE)
    assert listed is not None
    for suite in listed[1].split():
        assert {f"install-{suite}:", f"suite-{suite}:"} <= set(re.findall(r"^[\w-]+:", MAKEFILE, re.MULTILINE))


def test_a_suite_that_cannot_be_installed_is_named_and_a_failing_one_fails(tmp_path: Path) -> None:
    suites = tmp_path / "suites.mk"
    rules = {
        "install-missing": "false",
        "install-good install-bad": "true",
        "suite-good": "echo good ran",
        "suite-bad": "false",
    }
    suites.write_text("".join(f"{targets}:\n\t@{recipe}\n" for targets, recipe in rules.items()))
    files = ("MAKEFILES=" + str(suites),)
    done = make("test-all", "SUITES=missing good", *files)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["test-all: missing did not run, because install-missing failed", "good ran"]
    done = make("test-all", "SUITES=bad good", *files)
    assert done.returncode != 0
    assert done.stdout.splitlines() == ["good ran", "test-all: failed: bad"]


def test_without_census_data_targets_use_a_synthetic_population() -> None:
    shown = make("--dry-run", "income", "CENSUS=no-such-file").stdout
    assert "people: synthetic, as there is no census file no-such-file" in shown
    assert "make_data.py out/income \n" in shown or "make_data.py out/income\n" in shown
