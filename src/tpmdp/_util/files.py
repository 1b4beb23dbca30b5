"""Reading and writing files safely: regular files only, up to a size limit, and written completely or not at all."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tpmdp.errors import FileError, InputError

StrPath = str | os.PathLike[str]


def as_path(value: StrPath) -> Path:
    """A path that a caller gave, as text or as a path.

    >>> as_path("study.toml") == as_path(Path("study.toml"))
    True
    >>> as_path(7)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: path = 7 is not a path: give text such as "study.toml", or a pathlib.Path
    """
    text = os.fspath(value) if isinstance(value, str | os.PathLike) else None
    if not isinstance(text, str) or not text or "\0" in text:
        raise InputError("path", value, "is not a path", 'give text such as "study.toml", or a pathlib.Path')
    return Path(text)


def check_exists(path: Path) -> None:
    """Refuse a relative path that does not exist, and say where it was looked for.

    A server app of Flower, say, runs in another process than its author thinks.

    >>> check_exists(Path("/no/such/file"))  # whatever reads it refuses it
    """
    if not path.is_absolute() and not os.path.lexists(path):
        raise FileError(path, f"does not exist in {Path.cwd()}", "check the path, or give an absolute one")


@contextmanager
def readable(path: Path, size_max: int) -> Iterator[int]:
    """Yields the size of a regular file within the limit; an OSError in the block becomes a FileError.

    >>> with readable(Path(__file__), 1 << 20) as size:
    ...     size > 0
    True
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or a pipe"
            raise FileError(path, f"is {kind}", "name a plain file")
        if status.st_size > size_max:
            raise FileError(path, f"has {status.st_size} bytes", f"the limit is {size_max}")
        yield status.st_size
    except FileNotFoundError:
        raise FileError(path, "does not exist", "check the path") from None
    except OSError as error:
        raise FileError(path, f"cannot be read ({error.strerror or error})", "check the file and its rights") from None


def check_output(path: Path) -> None:
    """Refuse an output path that cannot be written, or would replace something that is not a plain file.

    >>> check_output(Path("no/such/folder/plan.json"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.FileError: no/such/folder/plan.json lies in a folder that does not exist: make no/such/folder first
    """
    try:
        if path.exists() and not path.is_file():
            raise FileError(path, "is a folder" if path.is_dir() else "is a device or a pipe", "name a plain file")
        if not path.parent.is_dir():
            raise FileError(path, "lies in a folder that does not exist", f"make {path.parent} first")
    except OSError as error:
        raise FileError(path, f"cannot be written ({error.strerror or error})", "choose another name") from None


@contextmanager
def replacing(path: Path, private: bool = False) -> Iterator[Path]:
    """A temporary file beside `path` that replaces it if the block succeeds, and is removed if it fails.

    Links are followed. The new file keeps the permissions of the old one; a `private` file is its owner's only.

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with replacing(Path(folder) / "a.txt") as file:
    ...         _ = file.write_text("done")
    ...     os.listdir(folder)
    ['a.txt']
    """
    check_output(path)
    target = Path(os.path.realpath(path))
    remedy = "check the disk and the rights of the folder"
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=".tpmdp-", suffix=target.suffix[:20])
        os.close(handle)
    except OSError as error:
        raise FileError(path, f"cannot be written ({error.strerror or error})", remedy) from None
    temporary = Path(name)
    try:
        yield temporary
        temporary.chmod(0o600 if private else _mode(target))
        temporary.replace(target)
    except OSError as error:
        raise FileError(path, f"cannot be written ({error.strerror or error})", remedy) from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def _mode(target: Path) -> int:
    """The permissions of the file to be replaced, or those of a new file."""
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
