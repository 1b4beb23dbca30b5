"""The generated pages are what the code says now."""

from __future__ import annotations

import click
import pytest
from tools.reference import REFERENCE, WIDTH, api_page, command_page, commands, imported_names

import tpmdp
from tpmdp.cli.main import cli


def check_page(name: str, text: str) -> None:
    assert (REFERENCE / name).read_text() == text, "run python -m tools.reference"
    assert " at 0x" not in text
    fenced = False
    for line in text.splitlines():
        fenced ^= line.startswith("```")
        assert fenced or len(line) <= WIDTH or " " not in line.strip("- "), line


def test_the_page_on_the_command_line_is_current() -> None:
    check_page("command-line.md", command_page())


@pytest.mark.flower
def test_the_page_on_the_api_is_current() -> None:
    check_page("api.md", api_page())


def test_every_command_and_option_is_there() -> None:
    page = " ".join(command_page().split())
    for path, command in commands(cli, "tpmdp"):
        assert path == "tpmdp" or f"## {path} " in page
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert all(f"`{name}`" in page for name in option.opts)


def test_every_public_name_is_there() -> None:
    page = (REFERENCE / "api.md").read_text()
    for name in [*tpmdp.__all__, *(name for _, name in imported_names())]:
        assert f"\n### {name}\n" in page
