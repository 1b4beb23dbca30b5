"""The shape of the package: layers with one direction of imports, a few forbidden pairs, light start-up.

docs/explanation/architecture.md draws the layers. A module belongs to the package it lies in: a new module needs
no entry here; a new package needs one word in LAYERS.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tpmdp
from tests.patience import HANG_S

SOURCE = Path(tpmdp.__file__).parent
# A layer may import from itself and from the layers before it.
LAYERS = [
    "_version",
    "errors",
    "_util",
    "spec",
    "gaussian",
    "noise",
    "data",
    "planning",
    "protocol",
    "queries",
    "ledger",
    "engines",
    "study",
    "flower",
    "mechanisms",
    "report",
    "experiments",
    "page",
    "cli",
    "__main__",
]
# In words, what must not be, though the order of the layers would allow it.
FORBIDDEN = {
    "planning never sees data of parties, except for files of budgets": ("planning", "data", {"planning.parties_file"}),
    "a protocol never sees data": ("protocol", "data", set[str]()),
    "queries never see a protocol": ("queries", "protocol", set[str]()),
    "a ledger never sees queries": ("ledger", "queries", set[str]()),
    "engines never see queries": ("engines", "queries", set[str]()),
    "engines never see a ledger": ("engines", "ledger", set[str]()),
    "experiments never see Flower": ("experiments", "flower", set[str]()),
}
FLAT_MOST = 6


def module_name(path: Path, source: Path = SOURCE) -> str:
    parts = path.relative_to(source).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def layer_of(module: str) -> str:
    return module.split(".")[0]


def imports(path: Path, source: Path = SOURCE) -> set[str]:
    """tpmdp modules this file imports anywhere: in functions and type-checking blocks, too."""
    seen: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            if node.module == "tpmdp":
                seen |= {alias.name for alias in node.names}
            elif node.module and node.module.startswith("tpmdp."):
                module = node.module.removeprefix("tpmdp.")
                inner = {f"{module}.{alias.name}" for alias in node.names}
                seen |= {name for name in inner if (source / f"{name.replace('.', '/')}.py").is_file()} or {module}
        elif isinstance(node, ast.Import):
            seen |= {alias.name.removeprefix("tpmdp.") for alias in node.names if alias.name.startswith("tpmdp.")}
    return seen


def violations(source: Path = SOURCE) -> Iterator[str]:
    """Every import that goes the wrong way, in words."""
    for path in sorted(source.rglob("*.py")):
        module = module_name(path, source)
        if not module:  # the package itself: the public names of all layers
            continue
        here = layer_of(module)
        if here not in LAYERS:
            yield f"{module} is in no layer"
            continue
        for target in sorted(imports(path, source)):
            there = layer_of(target)
            if there not in LAYERS:
                yield f"{module} imports {target}, which is in no layer"
            elif LAYERS.index(there) > LAYERS.index(here):
                yield f"{module} imports {target}: {here} comes before {there}"
            for words, (importer, imported, excepted) in FORBIDDEN.items():
                if (here, there) == (importer, imported) and module not in excepted:
                    yield f"{module} imports {target}: {words}"


@pytest.mark.slow
def test_imports_go_one_way() -> None:
    assert list(violations()) == []


@pytest.mark.parametrize(
    ("module", "line", "complaint"),
    [
        ("queries/count.py", "from tpmdp.engines.relay.server import serve", "queries comes before engines"),
        ("queries/count.py", "    import tpmdp.cli.main", "queries comes before cli"),
        ("planning/plan.py", "from tpmdp.protocol import party", "planning comes before protocol"),
        ("planning/plan.py", "from tpmdp.data.table import Text", "planning never sees data of parties"),
        ("queries/mean.py", "from tpmdp.protocol.terms import Terms", "queries never see a protocol"),
        ("ledger/book.py", "from tpmdp.study.model import Study", "ledger comes before study"),
        ("gaussian/delta.py", "from tpmdp import plan", "which is in no layer"),
        ("attic/new.py", "import math", "attic.new is in no layer"),
    ],
)
def test_a_planted_import_is_caught(tmp_path: Path, module: str, line: str, complaint: str) -> None:
    path = tmp_path / module
    path.parent.mkdir(parents=True)
    path.write_text(f"def late() -> None:\n{line}\n" if line.startswith(" ") else f"{line}\n")
    for name in ("engines/relay/server.py", "cli/main.py", "protocol/party.py", "data/table.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert complaint in "\n".join(violations(tmp_path))


@pytest.mark.slow
def test_no_module_is_part_of_a_circle() -> None:
    graph = {
        module_name(path): imports(path) - {module_name(path)}
        for path in SOURCE.rglob("*.py")
        if path.name != "__init__.py"
    }
    while leaves := {name for name, targets in graph.items() if not targets & set(graph)}:
        graph = {name: targets - leaves for name, targets in graph.items() if name not in leaves}
    assert graph == {}


def test_few_modules_lie_flat() -> None:
    assert len(list(SOURCE.glob("*.py"))) <= FLAT_MOST


def test_only_one_file_knows_a_solver() -> None:
    users = {
        module_name(path)
        for path in SOURCE.rglob("*.py")
        if any(word in path.read_text() for word in ("scipy.optimize", "import gurobipy"))
    }
    assert users == {"planning.lp"}


def test_the_certificate_check_calls_no_planner_calibration_or_solver() -> None:
    allowed = {"errors", "spec", "planning.coalition", "planning.enclosure"}
    names = {"planning.witness": {"Bundle"}}  # only the shape of the data, none of what builds it
    tree = ast.parse((SOURCE / "planning" / "certificate.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tpmdp."):
            module = node.module.removeprefix("tpmdp.")
            if module not in allowed and layer_of(module) != "_util":
                assert {alias.name for alias in node.names} <= names[module]
    assert imports(SOURCE / "planning" / "enclosure.py") == set()


def test_the_public_api_is_complete_and_sorted() -> None:
    assert sorted(tpmdp.__all__) == tpmdp.__all__
    for name in tpmdp.__all__:
        assert getattr(tpmdp, name).__doc__, f"{name} has no docstring"
    assert set(tpmdp.__all__) <= set(dir(tpmdp))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tpmdp.nonsense


@pytest.mark.process
@pytest.mark.parametrize(
    "statement", ["import tpmdp", "import tpmdp.cli.main; tpmdp.cli.main.cli.main(['--help'], standalone_mode=False)"]
)
def test_start_up_imports_nothing_heavy(statement: str) -> None:
    heavy = [
        "numpy",
        "scipy",
        "matplotlib",
        "rich",
        "duckdb",
        "gurobipy",
        "numba",
        "cryptography",
        "httpx",
        "uvicorn",
        "psycopg",
        "mpyc",
        "flwr",
    ]
    program = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=HANG_S)
    assert done.stdout.splitlines()[-1] == "[]"
