"""plan.json: what is written is read back exactly; whatever else is in the file is refused in one line."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp
from tpmdp import FileError, InputError, Spec
from tpmdp.planning.plan_file import plan_document, read_plan, write_plan

SPEC = Spec(
    epsilon=[0.3, 0.5, 1.0, float("inf")], delta=1e-6, threshold=2, receivers=["c", "d"], names=["a", "b", "c", "d"]
)


def document() -> dict[str, Any]:
    return plan_document(tpmdp.plan(SPEC))


@pytest.mark.parametrize(
    "spec",
    [
        SPEC,
        Spec(epsilon=1.0, delta=1e-6, threshold=1, receivers=[True, True, False]),
        Spec(epsilon=np.geomspace(0.1, 1, 7), delta=1e-6, threshold=6),
        Spec(epsilon=[0.1, 0.2, 0.3], delta=1e-6, threshold=[0, 1, 2], receivers=[0]),
        Spec(epsilon=[2.0, 2.0], delta=1e-6, threshold=1, receivers=[1]),
    ],
)
def test_round_trip_keeps_every_bit(tmp_path: Path, spec: Spec) -> None:
    plan = tpmdp.plan(spec)
    path = tmp_path / "plan.json"
    write_plan(plan, path)
    read_spec, certificate = read_plan(path)
    assert read_spec == spec
    assert np.array_equal(certificate.variance, plan.variance)
    assert np.array_equal(certificate.need, plan.need)
    assert certificate.check(read_spec).total_variance == plan.total_variance
    assert os.listdir(tmp_path) == ["plan.json"]


def set_in(path: str, value: Any) -> Any:
    def change(root: dict[str, Any]) -> None:
        *where, last = path.split(".")
        for key in where:
            root = root[int(key)] if isinstance(root, list) else root[key]
        root[last] = value

    return change


def drop(key: str) -> Any:
    return lambda root: root.pop(key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (drop("variance"), "has variance in plan = (none), which is missing: ask for the plan again"),
        (drop("witness"), "has witness in plan = (none), which is missing"),
        (set_in("parties", []), "has parties = [], which is not a table"),
        (set_in("extra", 1), "has key in plan = extra, which is unknown"),
        (set_in("version", 2), 'has format = "tpmdp.plan" version 2, which is not tpmdp.plan version 1'),
        (set_in("version", True), "version true, which is not"),
        (set_in("format", "pickle"), 'has format = "pickle" version 1, which is not'),
        (set_in("variance", [1.0]), "has variance = 1 values, which must be one for each of 4 parties"),
        (set_in("variance", ["x"] * 4), 'has variance = "x", which is not a number'),
        (set_in("variance", [True] * 4), "has variance = true, which is not a number"),
        (set_in("variance", None), "has variance = (none), which is not a number"),
        (set_in("need", [10**400] * 4), "which is out of range"),
        (set_in("need", "inf"), 'has need = "inf", which is not a number'),
        (set_in("parties.count", 10**9), "has count = 1000000000, which is not the number of parties listed"),
        (set_in("parties.count", 0), "has count = 0"),
        (set_in("parties.count", -1), "has count = -1, which must be a whole number from 0"),
        (set_in("parties.names", ["a"]), "has names = 1 names, which must be one for each of 4 parties"),
        (set_in("receivers", [7]), "has receivers = 7, which must be a whole number from 0 to 3"),
        (set_in("receivers", "all"), 'has receivers = "all", which is not a list'),
        (set_in("threshold", "2"), 'has threshold = "2", which is not a number'),
        (set_in("gap", "small"), 'has gap = "small", which is not a number'),
        (set_in("witness.classes", [0]), "which is not the number of parties listed"),
        (set_in("witness.classes", [0, 0, 0, 10**9]), "has classes = 1000000000"),
        (set_in("witness.bundles", {}), "has bundles = {}, which is not a list"),
        (set_in("witness.bundles", [3]), "has bundle = 3, which is not a table"),
        (set_in("witness.bundles.0.weight", 1.0), "has weight = 1.0, which is not a fraction"),
        (set_in("witness.bundles.0.weight", "1/0"), 'has weight = "1/0", which is not a fraction'),
        (set_in("witness.bundles.0.weight", "-1"), 'has weight = "-1", which is not a fraction'),
        (set_in("witness.bundles.0.weight", "9" * 5000), "which is not a fraction"),
        (set_in("witness.bundles.0.members", [4]), "has members = 4"),
    ],
)
def test_a_changed_document_is_refused_in_one_line(tmp_path: Path, change: Any, message: str) -> None:
    root = document()
    change(root)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(root))
    with pytest.raises(FileError) as caught:
        read_plan(path)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"\xff\xfe", "is not UTF-8 text"),
        (b"{", "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"a": NaN}', "holds NaN, which JSON does not allow"),
        (b'{"a": -Infinity}', "holds -Infinity"),
        (b'{"a": 1, "a": 2}', "has a key twice"),
        (b"1" * 10_000, "is not valid JSON"),
        (b"3", "has plan = 3, which is not a table"),
    ],
)
def test_text_that_is_no_plan_is_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(FileError) as caught:
        read_plan(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_budgets_out_of_range_are_refused_like_any_budget(tmp_path: Path) -> None:
    root = document()
    root["parties"]["epsilon"] = [-1.0, 1.0, 1.0, 1.0]
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(root))
    with pytest.raises(InputError, match=r"epsilon of a = -1\.0"):
        read_plan(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        read_plan(tmp_path / "none.json")
    with pytest.raises(FileError, match="is a folder"):
        read_plan(tmp_path)
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    with pytest.raises(FileError, match="is a device or a pipe"):
        read_plan(tmp_path / "zero.json")


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plan.json"
    path.write_text("old")
    monkeypatch.setattr(
        "tpmdp.planning.plan_file.plan_document", lambda plan: {"bad": float("nan"), "plan": repr(plan)}
    )
    with pytest.raises(ValueError, match="JSON compliant"):
        write_plan(tpmdp.plan(SPEC), path)
    assert os.listdir(tmp_path) == ["plan.json"]
    assert path.read_text() == "old"
    monkeypatch.undo()
    with pytest.raises(FileError, match="lies in a folder that does not exist"):
        write_plan(tpmdp.plan(SPEC), tmp_path / "none" / "plan.json")


def test_writing_follows_links_keeps_rights_and_spares_devices(tmp_path: Path) -> None:
    plan = tpmdp.plan(SPEC)
    target, link, pipe = tmp_path / "real.json", tmp_path / "link.json", tmp_path / "pipe.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    write_plan(plan, link)
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert read_plan(target)[0] == SPEC
    os.mkfifo(pipe)
    with pytest.raises(FileError, match="is a device or a pipe: name a plain file"):
        write_plan(plan, pipe)
    with pytest.raises(FileError, match="cannot be written"):
        write_plan(plan, tmp_path / ("x" * 5000))
