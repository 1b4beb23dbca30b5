"""The shape of the package: one public API, one direction of imports, light start-up."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import tpmdp

SOURCE = Path(tpmdp.__file__).parent
# A module may import from modules of its own rank or an earlier one (docs/design: the one-way flow).
RANKS = [
    {"errors", "progress", "clock", "child", "lifeline"},
    {"validate", "exact", "files", "parquet"},
    {"table"},
    {"noise.source", "noise.grid"},
    {"noise.kernel"},
    {"noise.discrete_gaussian"},
    {"spec"},
    {"gaussian_delta"},
    {"calibration"},
    {"composition"},
    {"planning.closed_form", "planning.coalition", "planning.enclosure"},
    {"planning.witness", "planning.balance"},
    {"planning.weights"},
    {"planning.certificate", "planning.lp"},
    {"planning.plan"},
    {"planning.grid_plan"},
    {"protocol.graph", "protocol.masks", "protocol.messages", "protocol.secrets"},
    {"protocol.channel", "protocol.terms", "protocol.group"},
    {"protocol.party"},
    {"engines.contract", "engines.process"},
    {"engines.ideal", "engines.memory"},
    {"engines.mpyc.record", "engines.mpyc.functions"},
    {"engines.mpyc.link"},
    {"engines.mpyc.network", "engines.mpyc.runtime"},
    {"engines.mpyc.job"},
    {"engines.mpyc.session", "engines.mpyc.process"},
    {"engines.mpyc.worker", "engines.mpyc.engine"},
    {"engines.relay.wire"},
    {"engines.relay.limits", "engines.relay.store", "engines.relay.client"},
    {"engines.relay.hub", "engines.relay.requests", "engines.relay.connection"},
    {"engines.relay.app", "engines.relay.worker"},
    {"engines.relay.server"},
    {"engines.relay.engine"},
    {"engines.flower.desk", "engines.flower.wire"},
    {"engines.flower.switch"},
    {"engines.flower.hub"},
    {"engines.flower.simulation"},
    {"engines.flower.engine"},
    {"identity", "plain", "data.columns", "data.csv_shape", "data.quoting"},
    {"data.csv_text", "data.duck", "data.postgresql", "data.sqlite_table"},
    {"data.csv_file"},
    {"data.source"},
    {"queries.exact_total"},
    {"queries.base"},
    {"queries.shares", "queries.error_bars", "queries.categories", "queries.functional"},
    {"queries.condition", "queries.moments"},
    {"queries.bounded", "queries.count", "queries.histogram", "queries.part"},
    {"queries.mean", "queries.sum", "queries.variance"},
    {"queries.covariance", "queries.linear_regression", "queries.quantile", "queries.joint"},
    {"queries.logistic_regression", "queries.maximum", "queries.vertical_regression"},
    {"queries.catalogue"},
    {"queries.search", "queries.together", "queries.weighted"},
    {"queries.own"},
    {"study_file"},
    {"study"},
    {"ledger.entry", "ledger.file", "ledger.spending"},
    {"ledger.check"},
    {"ledger.book"},
    {"release", "ledger_secrets", "expectation"},
    {"participation", "flower.contribution"},
    {"flower.rounds"},
    {"flower.own"},
    {"flower.mod", "flower.simulated"},
    {"flower.enrolment"},
    {"flower.strategy"},
    {"embedded"},
    {"baselines", "parties_file", "plan_file"},
    {"report_numbers"},
    {"report_weights"},
    {"report"},
    {"report_release", "report_queries", "picture", "picture_release"},
    {"mechanisms.problem", "mechanisms.functional"},
    {"mechanisms.base"},
    {"mechanisms.additive", "mechanisms.sample", "mechanisms.local"},
    {"mechanisms.weighted", "mechanisms.local_sample"},
    {"mechanisms.catalogue"},
    # Nothing in the core imports experiments.
    {"experiments.job", "experiments.population"},
    {"experiments.scenario", "experiments.summary", "experiments.runner", "experiments.efficiency_worker"},
    {"experiments.count", "experiments.regression", "experiments.efficiency", "experiments.agreement"},
    {"experiments.consortium", "experiments.figures_style"},
    {"experiments.weights", "experiments.figures_panels"},
    {"experiments.figures", "experiments.figures_weights"},
    {"experiments.results"},
    {"experiments.claims", "experiments.beyond"},
    {"experiments.weights_measures"},
    {"experiments.claims_count", "experiments.claims_regression", "experiments.claims_efficiency"},
    {"experiments.all_claims", "experiments.evaluation"},
    {"experiments.reproduction"},
    {"cli_output"},
    {"commands.experiment", "commands.numbers"},
    {"commands.flower", "commands.ledger", "commands.relay", "commands.query"},
    {"commands.study"},
    {"cli"},
    {"__main__"},
]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE).with_suffix("").parts)


def imports(path: Path) -> set[str]:
    """tpmdp modules this file imports anywhere, type-checking blocks included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tpmdp."):
            module = node.module.removeprefix("tpmdp.")
            folder = SOURCE / module.replace(".", "/")
            if not folder.is_dir():
                found.add(module)
                continue
            for alias in node.names:  # a module of a package, or what its __init__ gets from its own modules
                is_module = (folder / f"{alias.name}.py").is_file()
                found |= {f"{module}.{alias.name}"} if is_module else imports(folder / "__init__.py")
    return found


def test_every_module_has_a_rank_and_imports_only_downwards() -> None:
    rank = {name: position for position, names in enumerate(RANKS) for name in names}
    files = [path for path in SOURCE.rglob("*.py") if path.name != "__init__.py"]
    assert {module_name(path) for path in files} == set(rank)
    for path in files:
        for target in imports(path):
            assert rank[target] <= rank[module_name(path)], f"{module_name(path)} imports {target}"


def test_only_one_file_knows_a_solver() -> None:
    users = {
        module_name(path)
        for path in SOURCE.rglob("*.py")
        if any(word in path.read_text() for word in ("scipy.optimize", "import gurobipy"))
    }
    assert users == {"planning.lp"}


def test_the_certificate_check_calls_no_planner_calibration_or_solver() -> None:
    allowed = {"errors", "exact", "progress", "spec", "validate", "planning.coalition", "planning.enclosure"}
    names = {"planning.witness": {"Bundle"}}  # only the shape of the data, none of what builds it
    tree = ast.parse((SOURCE / "planning" / "certificate.py").read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("tpmdp."):
            module = node.module.removeprefix("tpmdp.")
            assert module in allowed or {alias.name for alias in node.names} <= names[module]
    assert imports(SOURCE / "planning" / "enclosure.py") == set()


def test_the_public_api_is_complete_and_sorted() -> None:
    assert sorted(tpmdp.__all__) == tpmdp.__all__
    for name in tpmdp.__all__:
        assert getattr(tpmdp, name).__doc__, f"{name} has no docstring"
    assert set(tpmdp.__all__) <= set(dir(tpmdp))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tpmdp.nonsense


@pytest.mark.parametrize(
    "statement", ["import tpmdp", "import tpmdp.cli; tpmdp.cli.cli.main(['--help'], standalone_mode=False)"]
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
    ]
    program = f"import sys; {statement}; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"
