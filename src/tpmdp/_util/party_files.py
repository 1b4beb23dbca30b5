"""Where a party's files are in a folder for all parties: NAME.key, or NAME/NAME.key if there is a folder NAME."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TRIAL: Final = "trial"  # beside a study: keys, ledgers and data for `tpmdp run`


def party_file(folder: Path, name: str, suffix: str) -> Path:
    """A file of one party.

    >>> party_file(Path("state"), "north", ".key").as_posix()
    'state/north.key'
    """
    inner = folder / name
    return (inner if inner.is_dir() else folder) / f"{name}{suffix}"
