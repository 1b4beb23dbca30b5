"""The notebook of the tutorial is executed, cell by cell, and what it would show is made. It stores no output."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import tpmdp
from tests.patience import HANG_S
from tests.test_docs import DOCS
from tests.test_style import FOREIGN_PHRASES

NOTEBOOK = DOCS / "tutorial" / "notebook.ipynb"
DOCUMENT: dict[str, Any] = json.loads(NOTEBOOK.read_text())
CELLS: list[dict[str, Any]] = DOCUMENT["cells"]
WIDTH = 100
MIME = ("_repr_svg_", "_repr_html_")


def sources(kind: str) -> list[str]:
    return ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == kind]


def run_cell(source: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does; the value of a last expression is what it shows."""
    *statements, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        statements, value = [*statements, last], None
        exec(compile(ast.Module(statements, []), NOTEBOOK.name, "exec"), names)  # noqa: S102
        return value
    exec(compile(ast.Module(statements, []), NOTEBOOK.name, "exec"), names)  # noqa: S102
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names)  # noqa: S307


def shown(value: Any) -> str:
    method = next((getattr(value, name) for name in MIME if hasattr(value, name)), None)
    return str(repr(value) if method is None else method())


@pytest.mark.slow
def test_the_notebook_runs_and_shows_what_its_text_promises(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    outputs = {}
    for cell in CELLS:
        if cell["cell_type"] == "code":
            outputs[cell["id"]] = shown(run_cell("".join(cell["source"]), names))
    for place, text in {
        "build": "flu / session 1",
        "plan": "Noise plan",
        "sweep": "no noise: receivers learn the exact answer",
        "sweep-picture": "<svg",
        "sweep-party": "over 65",
        "run": "only these parties see the answer: north",
        "frame": "truth",
        "release-picture": "<svg",
        "write": "True",
    }.items():
        assert text in outputs[place], place
    assert '.mean("days"): bounds of mean of days' in capsys.readouterr().out
    for (_, answer), truth in zip(names["answers"].iterrows(), names["truth"], strict=True):
        assert abs(answer["value"] - truth) < 6 * answer["standard_error"]
    assert names["study"] == tpmdp.Study.read(tmp_path / "study.toml")
    plan = names["study"].plan().to_frame()
    assert (plan["real_epsilon"] <= plan["epsilon"]).all()  # as the text says
    assert [file.name for file in tmp_path.iterdir()] == ["study.toml"]


def test_no_output_is_stored() -> None:
    for cell in CELLS:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


def test_the_format_is_one_that_every_jupyter_reads() -> None:
    assert (DOCUMENT["nbformat"], DOCUMENT["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in CELLS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each) for each in ids)
    for cell in CELLS:
        assert cell["metadata"] == {}
        assert all(line.endswith("\n") for line in cell["source"][:-1])
    assert NOTEBOOK.read_text() == json.dumps(DOCUMENT, indent=1, ensure_ascii=False) + "\n"


def test_the_text_is_plain_and_wrapped() -> None:
    for text in sources("markdown"):
        assert not FOREIGN_PHRASES.search(text)
        assert all(len(line) <= WIDTH for line in text.splitlines())
        for target in re.findall(r"\]\(([^)#]+)\)", text):
            assert (NOTEBOOK.parent / target).exists()


@pytest.mark.process
@pytest.mark.slow
def test_the_notebook_runs_in_jupyter(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=HANG_S, kernel_name="python3", resources=resources).execute()
    kinds = {kind for cell in notebook.cells for output in cell.get("outputs", []) for kind in output.get("data", {})}
    assert {"text/html", "image/svg+xml"} <= kinds
