"""Queries of your own, from a Python file that you name yourself: a study never makes anybody run code."""

from __future__ import annotations

import hashlib
import sys
import traceback
from dataclasses import is_dataclass
from inspect import isabstract
from pathlib import Path
from types import ModuleType
from typing import Final

from tpmdp.errors import FileError, TpmdpError, shown
from tpmdp.files import readable
from tpmdp.queries.base import Query
from tpmdp.queries.catalogue import JOINT_KINDS, KINDS, Kinds, keys_of

_SIZE_MAX: Final = 1 << 20


def load_queries(path: Path | None) -> Kinds:
    """The kinds tpmdp has and those of a file: its classes that are queries. All parties need the very same file.

    >>> sorted(load_queries(None)) == sorted(KINDS)
    True
    """
    if path is None:
        return KINDS
    with readable(path, _SIZE_MAX):
        source = path.read_bytes()
    digest = hashlib.sha256(source).hexdigest()
    module = _run(path, source, f"tpmdp_queries_{digest[:16]}")
    found = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, Query)]
    mine = [one for one in dict.fromkeys(found) if one.__module__ == module.__name__ and not isabstract(one)]
    own = {one.kind_name(): one for one in mine}
    if len(own) < len(mine):
        raise FileError(path, "has two queries of one kind", "give each its own name")
    if not own:
        raise FileError(path, "has no query", "define a frozen dataclass that derives from tpmdp.queries.base.Query")
    for kind, one in own.items():
        if kind in KINDS or kind in JOINT_KINDS:
            raise FileError(path, f"has a query of kind {shown(kind)}, which tpmdp has", "choose another name")
        if "__dataclass_fields__" not in vars(one) or not is_dataclass(one):
            raise FileError(
                path, f"has the query {shown(kind)}, which is no dataclass", "write @dataclass(frozen=True)"
            )
        keys_of(one)
        one.code = digest  # part of what all parties sign
    return {**KINDS, **own}


def _run(path: Path, source: bytes, name: str) -> ModuleType:
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses look their module up
    try:
        exec(compile(source, str(path), "exec"), vars(module))  # noqa: S102  # the user named this file
    except TpmdpError:
        raise
    except (Exception, SystemExit) as error:
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        line = getattr(error, "lineno", None) or (places[-1] if places else "?")
        problem = f"line {line} fails ({type(error).__name__}: {shown(str(error))})"
        raise FileError(path, problem, "correct it") from None
    return module
