"""Documentation is executed: Python blocks run, and what the README and the tutorial show is what the tool prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import processes
from tests.patience import HANG_S

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "SECURITY", "CHANGELOG")),
    *sorted(DOCS.rglob("*.md")),
]
HOW_TO, THEORY, REFERENCE = DOCS / "how-to", DOCS / "explanation" / "theory", DOCS / "reference"


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def text_of(page: Path) -> str:
    """The page with every break of a line as one blank: a sentence may be wrapped anywhere."""
    return " ".join(page.read_text().split())


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.process
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_python_blocks_run_in_order(page: Path) -> None:
    code = "\n".join(blocks(page, "python"))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "assert " in code


@pytest.mark.process
def test_console_blocks_show_what_the_tool_prints() -> None:
    (block,) = blocks(DOCS / "explanation" / "results.md", "console")
    command, _, expected = block.partition("\n")
    words = command.removeprefix("$ tpmdp ").split()
    environment = {**os.environ, "NO_COLOR": "1"}
    done = processes.run(*words, folder=ROOT, environment=environment)
    assert done.returncode == 0, done.stderr
    assert [line.rstrip() for line in done.stdout.splitlines()] == expected.splitlines()


def masked(text: str) -> list[str]:
    """The words with every number as #, without lines: noise is new in every run, and so is the width of a table."""
    return re.sub(r"-?[0-9][0-9.,e-]*", "#", text.replace("─", " ")).split()


@pytest.mark.process
def test_the_readme_shows_what_a_run_prints(tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "README.md", "text")
    done = processes.run("run", "examples/stay/study.toml", "--state", tmp_path / "state", folder=ROOT)
    assert done.returncode == 0, done.stderr
    assert masked(done.stdout) == masked(block)


@pytest.mark.process
def test_the_tutorial_can_be_followed(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    commands = [
        line.removeprefix("$ tpmdp ").split()
        for block in blocks(DOCS / "tutorial" / "first-study.md", "console")
        for line in block.splitlines()
    ]
    codes = []
    for words in commands:
        done = processes.run(*words, folder=tmp_path)
        codes.append(done.returncode)
        if done.returncode:
            assert "hospital_north" in done.stderr
    assert codes == [2 if "--session" in words else 0 for words in commands]
    assert codes.count(2) == 1  # the page says so: the budget is spent
    assert "In this example it is refused, because session 1 has spent the budgets" in text_of(HOW_TO / "running.md")


def test_the_study_in_the_docs_is_valid() -> None:
    import tomllib

    from tpmdp.study.model import Study

    (block,) = blocks(HOW_TO / "running.md", "toml")
    study = Study.parse(tomllib.loads(block))
    terms = study.terms()
    for party in range(3):
        terms.check(party)


def test_the_studies_in_the_page_on_queries_are_valid() -> None:
    import tomllib

    from tpmdp.study.expectation import expect
    from tpmdp.study.model import Study

    studies = [Study.parse(tomllib.loads(block)) for block in blocks(HOW_TO / "queries.md", "toml")]
    assert [study.computation.is_sum for study in studies] == [*[True] * (len(studies) - 2), False, False]
    for study in studies:
        assert len(expect(study).charges) == len(study.parties)


def test_the_query_in_the_docs_is_the_example() -> None:
    own = (ROOT / "examples" / "own_query" / "geometric_mean.py").read_text()
    assert own.rstrip() in [block.rstrip() for block in blocks(HOW_TO / "queries.md", "python")]


def test_the_page_on_queries_tells_the_factor_of_the_example() -> None:
    """Asked apart, the queries of examples/income would have so much more noise."""
    from tpmdp.study.expectation import expect
    from tpmdp.study.model import Study

    found = expect(Study.read(ROOT / "examples" / "income" / "study.toml"))
    factors = {f"{one.apart:.2f}" for one in found.queries}
    assert factors == {"1.98"}
    assert "(1.98 for the four queries of `examples/income`)" in text_of(HOW_TO / "queries.md")


@pytest.mark.process
def test_toml_blocks_are_valid_studies(tmp_path: Path) -> None:
    (block,) = blocks(HOW_TO / "planning.md", "toml")
    (tmp_path / "study.toml").write_text(block)
    done = processes.run("plan", "study.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_every_test_named_in_the_theory_exists() -> None:
    text = "\n".join(page.read_text() for page in THEORY.glob("*.md"))
    sources = "\n".join(path.read_text() for path in (ROOT / "tests").rglob("test_*.py"))
    for name in re.findall(r"`(?:test_\w+\.py::)?(test_\w+)`", text):
        assert f"def {name}(" in sources or name.endswith("_"), name
    for name in re.findall(r"`(test_\w+\.py)", text):
        assert list((ROOT / "tests").rglob(name)), name


@pytest.mark.slow
def test_every_function_named_in_the_table_of_statements_exists() -> None:
    """Every part of a dotted name is a package, module, class, function or constant of the package."""
    files = list((ROOT / "src" / "tpmdp").rglob("*.py"))
    sources = "\n".join(path.read_text() for path in files)
    modules = {path.stem for path in files} | {path.parent.name for path in files}
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| [^|]+ \|$", (THEORY / "statements.md").read_text(), re.MULTILINE)
    for name in re.findall(r"`([\w.*]+)`", " ".join(rows)):
        for part in name.replace("*", "").strip(".").split("."):
            known = re.search(rf"\b(def|class) {part}|^ *{part}\b[^=\n(]*=", sources, re.MULTILINE)
            assert part in modules or known, name


def test_the_results_count_the_claims_of_the_reproduction() -> None:
    page = (REFERENCE / "reproduction.md").read_text()
    assert "A quick run" not in page
    verdicts = re.findall(r"\| \*\*(holds|does not hold|depends|not measured)\*\*( \(note \d+\))? \|", page)
    counts = {word: sum(verdict == word for verdict, _ in verdicts) for word, _ in verdicts}
    assert set(counts) == {"holds", "does not hold", "depends"}
    ours = page.count("| a question of ours |")
    told = re.findall(r"Of (\d+) sentences of the paper (\d+) hold, (\d+) do not hold, (\d+) depend", page)[0]
    assert sum(map(int, told[1:])) == int(told[0]) == len(verdicts) - ours
    assert f"of {told[0]} sentences, {told[1]} hold, {told[2]} do not, {told[3]} depend" in text_of(
        DOCS / "explanation" / "results.md"
    )


def test_whatever_does_not_hold_has_its_reason() -> None:
    page = (REFERENCE / "reproduction.md").read_text()
    for verdict, note in re.findall(r"\| \*\*(does not hold|depends)\*\*(.*?) \|", page):
        assert re.fullmatch(r" \(note \d+\)", note), verdict
        assert f"**N{note.strip(' ()')[1:]}.** " in page


def test_the_reproduction_has_no_path_of_a_machine() -> None:
    pages = [REFERENCE / "reproduction.md", *(REFERENCE / "reproduction").glob("*.svg")]
    for page in pages:
        assert not re.search(r"/(work|home|root|tmp|Users)/", page.read_text()), page.name
