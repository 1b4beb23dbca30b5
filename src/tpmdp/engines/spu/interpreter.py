"""Where SPU's interpreter is: SPU needs an older NumPy than tpmdp, so it has an environment of its own.

`python -m tpmdp.engines.spu.interpreter` prints what that environment must contain, for pip.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Final

from tpmdp.errors import InputError

SETTING: Final = "TPMDP_SPU_PYTHON"
REQUIREMENTS: Final = {"spu": "0.9.5", "jax": "0.4.34", "jaxlib": "0.4.34", "numpy": "1.26.4"}
"""Both parties of a pair must have the same, because each compiles the function by itself."""
_PROBE: Final = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
_PROBE_S: Final = 60.0


def spu_python() -> str:
    """The interpreter; refuses a missing one, or one without the right packages.

    It is what the environment variable says, or that of the environment beside our own, with `-spu` after its name.
    """
    path = os.environ.get(SETTING) or f"{_default_folder()}/bin/python"
    installed = _versions(path, _changed(path))
    if installed != REQUIREMENTS:
        raise InputError(SETTING, path, _rule(installed), _remedy())
    return path


def requirements() -> list[str]:
    """What pip installs there.

    >>> requirements()[0]
    'spu==0.9.5'
    """
    return [f"{name}=={version}" for name, version in REQUIREMENTS.items()]


def _default_folder() -> str:
    return sys.prefix + "-spu"


def _rule(installed: dict[str, str] | None) -> str:
    if installed is None:
        return "must be the Python of an environment with SPU, which this study needs"
    wrong = [f"{name} {installed[name]}" for name, version in REQUIREMENTS.items() if installed[name] != version]
    return f"must have {', '.join(requirements())}, but has {', '.join(wrong)}"


def _remedy() -> str:
    folder = _default_folder()
    return (
        f"with Python 3.11 on Linux: python3.11 -m venv {folder} && {folder}/bin/pip install "
        f"{' '.join(requirements())}; or make one elsewhere, and set {SETTING} to its bin/python"
    )


def _changed(path: str) -> int:
    """When the packages there last changed, so that a mended environment is looked at again."""
    folder = Path(path).parent.parent / "lib"
    places = [*folder.glob("python3*/site-packages")]
    return max((place.stat().st_mtime_ns for place in places), default=0)


@lru_cache(maxsize=4)
def _versions(path: str, changed: int) -> dict[str, str] | None:
    """The packages there, without importing them; nothing if one is missing."""
    del changed
    command = [path, "-I", "-c", _PROBE, *REQUIREMENTS]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_PROBE_S, check=True, stdin=subprocess.DEVNULL)  # noqa: S603
        installed: dict[str, str] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return installed


if __name__ == "__main__":
    sys.stdout.write("\n".join(requirements()) + "\n")
