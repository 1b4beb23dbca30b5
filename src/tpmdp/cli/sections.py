"""Help for a group with many commands: in sections, with whole summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click


class Sections(click.Group):
    """A group whose commands are listed in sections. A command that is in no section is an error of ours."""

    def add_sections(self, sections: Mapping[str, Sequence[click.Command]]) -> None:
        """Add the commands, in this order."""
        self._sections = dict(sections)
        for commands in sections.values():
            for command in commands:
                self.add_command(command)

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return [str(command.name) for commands in self._sections.values() for command in commands]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Whole summaries: Click would cut them to a line."""
        del ctx
        for title, commands in self._sections.items():
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
