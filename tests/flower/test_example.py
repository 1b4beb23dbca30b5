"""The worked example as its users run it: one command, a real Flower simulation, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import HANG_S

ROOT = Path(__file__).parents[2]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "digits" / "compare.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


@pytest.mark.long
def test_the_digits_example_trains_and_draws(tmp_path: Path) -> None:
    out = tmp_path / "digits"
    small = ("--clients", "20", "--rounds", "3", "--seeds", "2", "--methods", "balanced")
    done = run("--out", str(out), *small)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads((out / "results.json").read_text())["flower"]["balanced"]
    assert (out / "digits.png").read_bytes().startswith(b"\x89PNG")
    assert found["clients"] == [20, 19, 20]  # one fails in the second round, and is back in the next
    assert len(found["accuracy"]) == 4
    for budget, spent in found["spent"].items():
        assert 0 < spent <= float(budget)


WRONG = (("--methods", "magic"), ("--clients", "1"), ("--rounds", "0"))
PROGRAM = """
import sys
import compare
for words in {wrong}:
    sys.argv[1:] = ["--out", {out!r}, *words]
    try:
        compare.main()
    except SystemExit as error:
        print(error.code)
"""


def test_bad_arguments_of_the_example_get_one_line(tmp_path: Path) -> None:
    """All in one process: its imports take seconds."""
    program = PROGRAM.format(wrong=WRONG, out=str(tmp_path / "digits"))
    folder = ROOT / "examples" / "digits"
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2"] * len(WRONG)
    errors = [line for line in done.stderr.splitlines() if "error: " in line]
    assert len(errors) == len(WRONG)
    for (option, _), line in zip(WRONG, errors, strict=True):
        assert option.strip("-") in line
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "digits").exists()
