"""Help for a group with many commands: in sections, with whole summaries."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

_CLICK_LEAST: Final = 50  # help is never narrower, says Click
_COLUMNS_LEAST: Final = 30
_NAMES_MAX: Final = 12


class FittingContext(click.Context):
    """Help that fits a terminal narrower than the 50 columns that Click has as its least."""

    def make_formatter(self) -> click.HelpFormatter:
        columns = shutil.get_terminal_size().columns
        if self.terminal_width is None and columns - 2 < _CLICK_LEAST:
            return _NarrowFormatter(width=max(columns, _COLUMNS_LEAST) - 2)
        return super().make_formatter()


class _NarrowFormatter(click.HelpFormatter):
    """Long names of options have a line of their own, so that their help has room."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 12, col_spacing: int = 2) -> None:
        super().write_dl(rows, min(col_max, _NAMES_MAX), col_spacing)


class WholeSummaries(click.Group):
    """A group whose commands are listed with the whole first sentence of their help: Click would cut it to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        commands = [self.commands[name] for name in self.list_commands(ctx) if not self.commands[name].hidden]
        write_commands(formatter, "Commands", commands)


class Sections(click.Group):
    """A group whose commands are listed in sections. A command that is in no section is an error of ours."""

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add the commands, in this order."""
        self._sections = dict(sections)
        for commands in sections.values():
            for command in commands:
                self.add_command(command)
        _fit(self)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [str(command.name) for commands in self._sections.values() for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole summaries: Click would cut them to a line."""
        del ctx
        for title, commands in self._sections.items():
            write_commands(formatter, title, commands)


def _fit(command: click.Command) -> None:
    """Have the help of a command, and of those under it, fit a narrow terminal."""
    command.context_class = FittingContext
    for each in command.commands.values() if isinstance(command, click.Group) else ():
        _fit(each)


def write_commands(formatter: click.HelpFormatter, title: str, commands: Sequence[click.Command]) -> None:
    """A section of the help: commands with their summaries."""
    if commands:
        with formatter.section(title):
            formatter.write_dl([(str(command.name), summary(command)) for command in commands])


def summary(command: click.Command) -> str:
    """The first sentence of a command's help.

    >>> @click.command()
    ... def sweep():
    ...     \"\"\"Clean up. Twice.\"\"\"
    >>> summary(sweep)
    'Clean up.'
    """
    paragraph = " ".join((command.help or "").split("\n\n")[0].split())
    sentence, stop, _ = paragraph.partition(". ")
    return sentence + "." if stop else paragraph
