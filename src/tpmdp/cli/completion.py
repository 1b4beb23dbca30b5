"""`tpmdp completion`: the script that lets a shell complete commands, options and files."""

from __future__ import annotations

import os
from typing import Final

import click

SHELLS: Final = ("bash", "zsh", "fish")
VARIABLE: Final = "_TPMDP_COMPLETE"  # the script sets it and calls tpmdp
PROGRAM: Final = "tpmdp"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print the script with which a SHELL completes commands, options and files.

    \b
    bash, in ~/.bashrc:
      eval "$(tpmdp completion bash)"
    zsh, in ~/.zshrc, after compinit:
      eval "$(tpmdp completion zsh)"
    fish, in ~/.config/fish/config.fish:
      tpmdp completion fish | source
    """
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    assert script is not None
    root = click.get_current_context().find_root().command
    click.echo(script(root, {}, PROGRAM, VARIABLE).source())


def answer_shell(command: click.Command) -> int | None:
    """Answer a shell that completes a line, if one asks; gives the exit code."""
    from click.shell_completion import shell_complete

    instruction = os.environ.get(VARIABLE)
    return None if not instruction else shell_complete(command, {}, PROGRAM, VARIABLE, instruction)
