"""Pages are wrapped, in plain English, and agree with the code on the layers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.test_architecture import FORBIDDEN, LAYERS
from tests.test_docs import DOCS, PAGES, REFERENCE, ROOT, name_of
from tests.test_style import FOREIGN_PHRASES

WIDTH = 100
_MEASURES = ("benchmarks", "large_sessions", "flower_measures", "pairs_measures")
MEASURED = {REFERENCE / f"{name}.md" for name in ("reproduction", "coverage", "survival", *_MEASURES)}
GENERATED = {REFERENCE / "command-line.md", REFERENCE / "api.md"}  # as the docstrings are
WRITTEN = [page for page in PAGES if page not in MEASURED]
DRAWN = [layer for layer in LAYERS if layer not in ("_version", "__main__")]
ARCHITECTURE = DOCS / "explanation" / "architecture.md"


def prose(page: Path) -> list[str]:
    """The lines outside of code, tables, headings, pictures and comments."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    skipped = ("| ", "#", "![", "<!--", "    ")
    return [line for line in text.splitlines() if not line.startswith(skipped)]


@pytest.mark.parametrize("page", WRITTEN, ids=name_of)
def test_prose_is_wrapped(page: Path) -> None:
    for line in prose(page):
        assert len(line) <= WIDTH or " " not in line.strip("- "), line


@pytest.mark.parametrize("page", [page for page in WRITTEN if page not in GENERATED], ids=name_of)
def test_language_is_plain(page: Path) -> None:
    assert not FOREIGN_PHRASES.search(" ".join(prose(page)))


def test_the_page_on_architecture_names_every_layer_in_order() -> None:
    assert re.findall(r"^\| `(\w+)` \|", ARCHITECTURE.read_text(), re.MULTILINE) == DRAWN


def test_the_picture_shows_every_layer_in_order() -> None:
    picture = (DOCS / "images" / "layers.svg").read_text()
    assert re.findall(r'monospace">(\w+)<', picture) == DRAWN[::-1]


def test_the_page_and_the_picture_name_every_forbidden_pair() -> None:
    page, picture = ARCHITECTURE.read_text(), (DOCS / "images" / "layers.svg").read_text()
    items = re.findall(r"^- `(\w+)` never sees? (.*)$", page, re.MULTILINE)
    assert {name for name, _ in items} == {importer for importer, _, _ in FORBIDDEN.values()}
    for importer, imported, _ in FORBIDDEN.values():
        assert any(name == importer and imported in text.lower() for name, text in items), (importer, imported)
    assert picture.count("never sees") == len(items)


def test_every_module_named_in_the_page_on_architecture_exists() -> None:
    for path in re.findall(r"`((?:src/tpmdp/|tests/)?[\w/]+(?:\.py|/\w+))`", ARCHITECTURE.read_text()):
        places = (ROOT / path, ROOT / "src" / "tpmdp" / path)
        assert any(place.exists() for place in places), path


def test_every_page_is_in_the_navigation() -> None:
    listed = re.findall(r": ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md"))


def test_the_site_fetches_nothing() -> None:
    settings = (ROOT / "mkdocs.yml").read_text()
    assert "font: false" in settings
    assert "http" not in settings


def test_hooks_use_the_environment_and_download_nothing() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    assert re.findall(r"repo: (.*)", hooks) == ["local"]
    for entry in re.findall(r"entry: ([^'\n]+)", hooks):
        assert entry.startswith(".venv/bin/")
