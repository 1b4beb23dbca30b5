"""Where a function `module:function` is written, without importing it: another interpreter loads the file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from tpmdp.errors import InputError


def function_file(name: str) -> Path:
    """The file of the function.

    >>> function_file("tpmdp.engines.spu.functions:maximum").name
    'functions.py'
    """
    module, _, attribute = name.partition(":")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, AttributeError, ValueError):
        spec = None
    if spec is None or not spec.has_location or spec.origin is None or not attribute.isidentifier():
        remedy = "name it as module:function, in a file that Python finds at every party (PYTHONPATH, or installed)"
        raise InputError("function", name, "cannot be found", remedy)
    return Path(spec.origin)
