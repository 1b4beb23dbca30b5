"""Help at every width, and shell completion, as a shell runs it."""

from __future__ import annotations

import os
import pty
import re
import select
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import click
import pytest

from tests.cli.test_commands import ENVIRONMENT, refused, tpmdp
from tests.patience import HANG_S
from tpmdp.cli.completion import SHELLS
from tpmdp.cli.main import cli
from tpmdp.cli.sections import summary


def commands(group: click.Group, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


def help_of(path: tuple[str, ...]) -> str:
    """What `tpmdp PATH --help` prints."""
    context, command = cli.context_class(cli, info_name="tpmdp", max_content_width=100), cast("click.Command", cli)
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
        context = command.context_class(command, context, info_name=name)
    return command.get_help(context)


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_no_summary_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    groups = [((), cli), *((path, each) for path, each in commands(cli) if isinstance(each, click.Group))]
    assert len(groups) >= 5
    for path, group in groups:
        text = help_of(path)
        joined = re.sub(r"\s+", " ", text)
        assert "..." not in joined.replace("[ARGS]...", "")
        for command in group.commands.values():
            whole = re.sub(r"\s+", " ", summary(command))
            assert whole
            assert whole in joined, (path, command.name)


@pytest.mark.parametrize("columns", [40, 80])
def test_help_fits(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for path, _ in commands(cli):
        for line in help_of(path).splitlines():
            assert len(line) <= columns, (path, line)


def test_every_command_is_in_a_section() -> None:
    with click.Context(cli) as context:
        assert sorted(cli.list_commands(context)) == sorted(cli.commands)


@pytest.mark.process
def test_help_of_the_tool_fits_forty_columns(tmp_path: Path) -> None:
    from tests import processes

    done = processes.run("--help", folder=tmp_path, environment={**ENVIRONMENT, "COLUMNS": "40"})
    assert done.returncode == 0
    assert max(map(len, done.stdout.splitlines())) <= 40


# Completion -----------------------------------------------------------------------------------------------------------


@pytest.mark.process
def test_a_script_for_each_shell(tmp_path: Path) -> None:
    for shell in SHELLS:
        script = tpmdp("completion", shell, folder=tmp_path).stdout
        assert f"_TPMDP_COMPLETE={shell}_complete" in script
        assert "tpmdp" in script
    assert "'bash', 'zsh', 'fish'" in refused("completion", "powershell", folder=tmp_path)


@pytest.mark.process
def test_bash_completes_commands_options_and_files(tmp_path: Path) -> None:
    """With the TAB key, in an interactive bash."""
    tool = tmp_path / "bin" / "tpmdp"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tpmdp "$@"\n')
    tool.chmod(0o755)
    (tmp_path / "flu.toml").touch()
    setup = tmp_path / "bashrc"
    setup.write_text('PS1="READY> "\nbind "set bell-style none"\neval "$(tpmdp completion bash)"\n')
    environment = {**ENVIRONMENT, "PATH": f"{tool.parent}:{os.environ['PATH']}", "TERM": "dumb"}
    main, side = pty.openpty()
    with subprocess.Popen(
        ["bash", "--noprofile", "--rcfile", str(setup), "-i"],
        stdin=side,
        stdout=side,
        stderr=side,
        cwd=tmp_path,
        env=environment,
        start_new_session=True,
    ) as shell:
        os.close(side)
        try:
            until(main, "READY> ")
            os.write(main, b"tpmdp led\t")
            until(main, "tpmdp ledger ")
            os.write(main, b"sh\t")
            until(main, "show ")
            os.write(main, b"\x15tpmdp plan --thr\t")
            until(main, "tpmdp plan --threshold ")
            os.write(main, b"2 fl\t")
            until(main, "2 flu.toml ")
            os.write(main, b"\x15tpmdp completion f\t")
            until(main, "tpmdp completion fish ")
        finally:
            shell.kill()
            os.close(main)


def until(stream: int, text: str) -> None:
    """Read what the terminal shows until the text has come."""
    shown = ""
    while text not in shown:
        ready, _, _ = select.select([stream], [], [], HANG_S)
        assert ready, shown
        shown += os.read(stream, 4096).decode()


@pytest.mark.process
def test_completion_prints_nothing_else(tmp_path: Path) -> None:
    """A shell that asks about nonsense gets no answer and no traceback."""
    from tests import processes

    environment = {
        **ENVIRONMENT,
        "_TPMDP_COMPLETE": "bash_complete",
        "COMP_WORDS": "tpmdp nonsense x",
        "COMP_CWORD": "2",
    }
    done = processes.run(folder=tmp_path, environment=environment)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")
