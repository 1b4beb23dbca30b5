"""The page's folder on this machine: the only place where it reads and writes files."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tpmdp.errors import FileError, InputError

_NAME: Final = re.compile(r"[^\W_][\w .()+,@-]{0,120}")
_FILES_MAX: Final = 500


@dataclass(frozen=True)
class Folder:
    """A folder whose plain files can be named, and nothing outside it."""

    path: Path

    @classmethod
    def of(cls, path: Path) -> Folder:
        """The folder, made if it does not exist."""
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise FileError(path, f"cannot be used ({error.strerror or error})", "choose another folder") from None
        return cls(path.resolve())

    def file(self, field: str, name: str) -> Path:
        """The path of a file in the folder; a name that leads elsewhere is refused.

        >>> Folder(Path("/data")).file("data file", "../secret")
        Traceback (most recent call last):
            ...
        tpmdp.errors.InputError: data file = ../secret is not the name of a file in the folder: choose one from the list
        """
        if not _NAME.fullmatch(name) or name.endswith((" ", ".")):
            raise InputError(field, name, "is not the name of a file in the folder", "choose one from the list")
        path = self.path / name
        if path.is_symlink() and path.resolve().parent != self.path:
            raise InputError(field, name, "leads out of the folder", "copy the file into the folder")
        return path

    def free_name(self, name: str) -> str:
        """This file name, or one with a number before its ending if it is taken.

        >>> Folder(Path("/nowhere")).free_name("study.toml")
        'study.toml'
        """
        stem, dot, suffix = name.rpartition(".")
        numbered = (f"{stem}-{count}{dot}{suffix}" for count in itertools.count(2))
        return next(each for each in itertools.chain([name], numbered) if not (self.path / each).exists())

    def names(self, *suffixes: str) -> list[str]:
        """The names of its files with one of these endings, in order."""
        try:
            listed = sorted(each.name for each in self.path.iterdir() if each.is_file())
        except OSError as error:
            raise FileError(self.path, f"cannot be read ({error.strerror or error})", "check its rights") from None
        fitting = [name for name in listed if name.lower().endswith(suffixes) and _NAME.fullmatch(name)]
        return fitting[:_FILES_MAX]
