"""How to start another Python process that sees the modules this one sees, and no others.

`python -m` puts the current folder first on the module path: whoever unpacks a study into it could bring a json.py.
"""

from __future__ import annotations

import os
import sys


def python_command(*arguments: str) -> list[str]:
    """The command of a Python process that does not look for modules in the current folder.

    >>> python_command("-m", "tpmdp")[1:]
    ['-P', '-m', 'tpmdp']
    """
    return [sys.executable, "-P", *arguments]


def python_environment() -> dict[str, str]:
    """The environment for it: modules are found where this process finds them.

    >>> "PYTHONPATH" in python_environment()
    True
    """
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
