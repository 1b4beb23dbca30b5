"""The page's folder: names from outside never lead out of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tpmdp.errors import FileError, InputError
from tpmdp.page.folder import Folder

BAD = [
    "",
    ".",
    "..",
    "../x",
    "a/b",
    "/etc/passwd",
    "a\\..\\b",
    "a\0b",
    ".hidden",
    "a\nb",
    "~",
    "-x",
    "a" * 300,
    "x.",
    "x ",
]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_is_no_plain_file_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not the name of a file in the folder"):
        Folder.of(folder).file("data file", name)


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_text("x")
    (folder / "data.csv").symlink_to(tmp_path / "secret.csv")
    with pytest.raises(InputError, match="leads out of the folder"):
        Folder.of(folder).file("data file", "data.csv")


def test_plain_files_are_listed_by_their_endings(folder: Path) -> None:
    for name in ("north.csv", "south.CSV", "study.toml", ".secret.csv", "Zürich (1).csv"):
        (folder / name).write_text("x")
    (folder / "folder.csv").mkdir()
    assert Folder.of(folder).names(".csv") == ["Zürich (1).csv", "north.csv", "south.CSV"]
    assert Folder.of(folder).file("data file", "Zürich (1).csv").read_text() == "x"


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    made_new = Folder.of(tmp_path / "a" / "b")
    assert os.stat(made_new.path).st_mode & 0o077 == 0


def test_a_folder_that_cannot_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(FileError, match="cannot be used"):
        Folder.of(tmp_path / "file")
