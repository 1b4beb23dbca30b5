"""The scripts and files on the page about Flower, as a reader saves them; in one process, without Ray."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

import flwr.simulation
import pytest
from flwr.cli import config_utils
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

from tests.flower.local_grid import LocalGrid, _context
from tests.test_docs import HOW_TO, blocks
from tpmdp.errors import InputError
from tpmdp.flower import simulation

PAGE = HOW_TO / "flower.md"


def run_in_process(server: ServerApp, client: ClientApp, nodes: int, backend_config: Any) -> None:
    grid: Any = LocalGrid(client, nodes)
    server(grid, _context(0, 0, nodes))


def test_the_trial_runs_as_printed_and_a_second_time_says_that_budgets_are_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (script,) = blocks(PAGE, 'python title="trial.py"')
    (tmp_path / "trial.py").write_text(script)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flwr.simulation, "run_simulation", run_in_process)
    monkeypatch.setattr(simulation, "secure_ray", lambda: None)
    runpy.run_path("trial.py", run_name="__main__")
    assert "the model: [" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"all budgets are spent.*in a simulation use a new folder"):
        runpy.run_path("trial.py", run_name="__main__")


def test_flower_takes_the_app_of_the_page(tmp_path: Path) -> None:
    (tmp_path / "my_app.py").write_text(blocks(PAGE, "python")[0])
    (project,) = (block for block in blocks(PAGE, "toml") if "[project]" in block)
    config = tomllib.loads(project)
    check: Any = vars(config_utils)["validate_config"]  # not a public name
    valid, errors, warnings = check(config, check_module=True, project_dir=tmp_path)
    assert (valid, errors, warnings) == (True, [], [])
    (commands,) = blocks(PAGE, "sh")
    given = re.findall(r"(\w+)=", commands.partition("--run-config")[2].splitlines()[0])
    assert set(given) == set(config["tool"]["flwr"]["app"]["config"])
