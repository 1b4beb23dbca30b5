"""What code says about the documentation leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
THEORY = " ".join(page.read_text() for page in (ROOT / "docs" / "explanation" / "theory").glob("*.md")).lower()
FILES = [
    ROOT / "Makefile",
    *(path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")),
    *(ROOT / "examples").rglob("*.md"),
]


def test_every_path_of_a_page_exists() -> None:
    for file in FILES:
        for path in re.findall(r"(?<![\w/])docs/[\w./-]+\w", file.read_text()):
            assert (ROOT / path).exists(), f"{file.relative_to(ROOT)} names {path}"


def test_every_citation_of_the_theory_is_there() -> None:
    cited = set()
    for file in FILES:
        text = " ".join(file.read_text().split())
        cited |= set(re.findall(r'\bTheory, "([^"]+)"', text)) | set(re.findall(r"\bTheory, (Lemma \w+)", text))
    assert len(cited) > 10
    for title in cited:
        assert title.lower() in THEORY, title
