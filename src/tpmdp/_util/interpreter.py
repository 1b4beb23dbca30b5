"""How another Python interpreter is started: it finds the modules that this process finds, and no others."""

from __future__ import annotations

import os
import sys


def python_command(*arguments: str) -> list[str]:
    """The command of a Python process that does not look for modules in the current folder.

    >>> python_command("-m", "tpmdp")[1:]
    ['-P', '-m', 'tpmdp']
    """
    return [sys.executable, "-P", *arguments]


def module_path() -> list[str]:
    """The folders in which this process looks for modules, whatever the current folder of another process is.

    >>> "" in module_path()
    False
    """
    return [path or os.getcwd() for path in sys.path]


def python_environment() -> dict[str, str]:
    """The environment for such a process.

    >>> "PYTHONPATH" in python_environment()
    True
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(module_path())}
