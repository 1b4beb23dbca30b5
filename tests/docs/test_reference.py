"""The generated pages are what the code says now."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tools.reference import WIDTH, api_page, command_page, commands, generated_pages, imported_names

import tpmdp
from tpmdp.cli.main import cli

PAGES = generated_pages()


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_current(path: Path) -> None:
    assert path.read_text() == PAGES[path], "run python -m tools.reference"


def test_every_command_and_option_is_there() -> None:
    page = " ".join(command_page().split())
    for path, command in commands(cli, "tpmdp"):
        assert path == "tpmdp" or f"## {path} " in page
        for option in command.params:
            if isinstance(option, click.Option) and not option.hidden:
                assert all(f"`{name}`" in page for name in option.opts)


def test_every_public_name_is_there() -> None:
    page = api_page()
    for name in [*tpmdp.__all__, *(name for _, name in imported_names())]:
        assert f"\n### {name}\n" in page


def test_no_address_in_memory_and_no_long_line_of_prose() -> None:
    for text in PAGES.values():
        assert " at 0x" not in text
        fenced = False
        for line in text.splitlines():
            fenced ^= line.startswith("```")
            assert fenced or len(line) <= WIDTH or " " not in line.strip("- "), line
