"""The worked example as its users run it: one command, a real Flower simulation, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
HANG_S = 1800


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "examples" / "digits" / "compare.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANG_S, check=False)


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


def test_bad_arguments_of_the_example_get_one_line(tmp_path: Path) -> None:
    for wrong in (("--methods", "magic"), ("--clients", "1"), ("--rounds", "0")):
        done = run("--out", str(tmp_path / "digits"), *wrong)
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
        assert wrong[0].strip("-") in done.stderr.splitlines()[-1]
    assert not (tmp_path / "digits").exists()
