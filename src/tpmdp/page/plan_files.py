"""Files that Plan saves, and the Python lines that do the same."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from tpmdp.page.answers import file_answer
from tpmdp.page.forms import PageForm
from tpmdp.page.plan_form import PlanForm, study_document
from tpmdp.planning.plan_file import plan_document
from tpmdp.study.model import Study


def python_lines(form: PlanForm) -> str:
    """The same plan in Python."""
    rows = form.parties
    receivers = [rows.rows[place].name for place in rows.receivers()]
    each = [form.sensitivity if count else 0.0 for count in rows.records()]
    weights = "" if form.weighting == "equal" else f', weighting="{form.weighting}", width={form.sensitivity!r}'
    lines = [
        "import tpmdp",
        "",
        "spec = tpmdp.Spec(",
        f"    names={rows.names!r},",
        f"    epsilon={_python(rows.epsilons())},",
        f"    delta={_python(rows.deltas())},",
        f"    sensitivity={_python(each)},",
        f"    threshold={form.threshold},",
        f"    receivers={receivers!r},",
        ")",
        f"plan = tpmdp.plan(spec, records={_python(rows.records())}{weights})",
        "print(plan.expected_error)",
    ]
    return "\n".join(lines)


def _python(values: list[Any]) -> str:
    text = repr(values[0]) if len(set(values)) == 1 else repr(values)
    return text.replace("inf", 'float("inf")')


def _plan_json(form: PageForm) -> Response:
    document = plan_document(PlanForm.of(form).plan)
    return file_answer(json.dumps(document, allow_nan=False) + "\n", "plan.json", "application/json")


def _study_toml(form: PageForm) -> Response:
    example = {"name": "example: change it", "kind": "count", "column": "age", "at_least": 65}
    study = Study.parse({**study_document(PlanForm.of(form)), "queries": [example]})
    head = "# Made by tpmdp page. The query is an example: change it, or compose queries on the page.\n\n"
    return file_answer(head + study.toml(), "study.toml", "application/toml")


def _picture(form: PageForm) -> Response:
    from tpmdp.report.plot_plan import draw_plan

    report = PlanForm.of(form).report
    with tempfile.TemporaryDirectory(prefix="tpmdp-") as folder:
        path = Path(folder) / "plan.svg"
        draw_plan(report, path)
        data = path.read_bytes()
    return file_answer(data, "plan.svg", "image/svg+xml")


DOWNLOADS: Final[Mapping[str, Callable[[PageForm], Response]]] = {
    "plan.json": _plan_json,
    "study.toml": _study_toml,
    "plan.svg": _picture,
}
