"""Studies with a non-additive query: from file to answer on MPyC, charged once, resumed with the same noise."""

from __future__ import annotations

import json
import os
import signal
import time
import tomllib
from itertools import combinations, combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.engines.direct_studies import identity_of
from tests.patience import DEADLINE, HANG_S
from tests.processes import Process
from tpmdp import InputError, Study, run
from tpmdp.data.table import Table
from tpmdp.engines.memory import MemoryEngine
from tpmdp.experiments.population import RANGES, synthetic_adults
from tpmdp.ledger import Ledger
from tpmdp.protocol.parts import differences, encode_parts
from tpmdp.study.differences import differences as study_differences
from tpmdp.study.identity import public_text
from tpmdp.study.invitation import invitation

pytestmark = pytest.mark.process

PARTIES = [{"name": name, "records": 4000} for name in ("bank", "school", "registry")]
HELD = {"bank": ["income"], "school": ["education", "age"], "registry": ["children"]}
VERTICAL: dict[str, Any] = {
    "name": "income",
    "threshold": 1,
    "receivers": ["bank", "school"],
    "delta": 1e-6,
    "epsilon": 8.0,
    "deadline": DEADLINE,
    "parties": PARTIES,
    "queries": [
        {
            "name": "income",
            "kind": "vertical_regression",
            "target": "income",
            "bounds": {one.column: [one.low, one.high] for one in RANGES if one.column != "gender"},
            "held_by": HELD,
        }
    ],
}
MAXIMUM: dict[str, Any] = {
    **VERTICAL,
    "name": "busiest",
    "queries": [
        {"name": "most", "kind": "maximum", "of": {"kind": "count", "column": "income", "at_least": 60000}},
    ],
}


def people() -> dict[str, Table]:
    """The same people at all parties, each with its own columns."""
    whole = synthetic_adults(4000, seed=3)
    return {party: {column: whole[column] for column in columns} for party, columns in HELD.items()}


def least_squares() -> list[float]:
    whole = synthetic_adults(4000, seed=3)
    columns = {one.column: np.clip(whole[one.column], one.low, one.high) for one in RANGES}
    inputs = np.column_stack([np.ones(4000), columns["children"], columns["age"], columns["education"]])
    return [float(value) for value in np.linalg.lstsq(inputs, columns["income"], rcond=None)[0]]


def test_a_vertical_regression_agrees_with_least_squares_within_its_error_bars() -> None:
    found = run(Study.parse(VERTICAL), people())
    assert found.parties["registry"].answers is None
    answers = {answer.part: answer for answer in found.answers}
    for part, truth in zip(("intercept", "children", "age", "education"), least_squares(), strict=True):
        answer = answers[part]
        assert abs(answer.value - truth) <= 6 * answer.standard_error, part
    assert 0 < answers["R squared"].value < 1
    assert "Shamir" in found.parties["bank"].guarantee


def truth_of(kind: str) -> list[float]:
    """In NumPy, of the columns as they are clipped or binned."""
    whole = synthetic_adults(4000, seed=3)
    if kind == "joint_table":
        counts, *_ = np.histogram2d(whole["income"], whole["age"], bins=[JOINT_INCOME, JOINT_AGE])
        return [float(count) for count in counts.ravel()]
    columns = [np.clip(whole[one.column], one.low, one.high) for one in RANGES if one.column != "gender"]
    if kind == "vertical_correlation":
        return [float(np.corrcoef(one, two)[0, 1]) for one, two in combinations(columns, 2)]
    return [float(np.cov(one, two, ddof=0)[0, 1]) for one, two in combinations_with_replacement(columns, 2)]


JOINT_INCOME, JOINT_AGE = [0, 20000, 45000, 90000.5], [25, 40, 60, 90.5]  # no value at the last edge
PAIR: dict[str, Any] = {
    "name": "above",
    "kind": "pair_function",
    "function": "tpmdp.engines.spu.functions:count_larger",
    "bounds": {"income": [0, 9], "education": [0, 9]},
    "held_by": {"bank": ["income"], "school": ["education"]},
    "sensitivity": 1,
    "largest": 4000,
}
PAIRED = [*PARTIES[:2], {"name": "registry", "records": 0}]
JOINT: dict[str, Any] = {
    "name": "income by age",
    "kind": "joint_table",
    "rows": {"party": "bank", "column": "income", "edges": JOINT_INCOME},
    "columns": {"party": "school", "column": "age", "edges": JOINT_AGE},
}


@pytest.mark.parametrize("kind", ["vertical_covariance", "vertical_correlation", "joint_table"])
def test_pairs_of_columns_agree_with_numpy_within_a_tiny_noise(kind: str) -> None:
    regression = VERTICAL["queries"][0]
    query = {"name": "pairs", "kind": kind, "bounds": regression["bounds"], "held_by": regression["held_by"]}
    document = {**VERTICAL, "epsilon": 1e5, "queries": [query]}
    tables = people()
    if kind == "joint_table":
        parties = [*PARTIES[:2], {"name": "registry", "records": 0}]
        document, tables = {**document, "parties": parties, "queries": [JOINT]}, {**tables, "registry": {}}
    found = run(Study.parse(document), {name: table for name, table in tables.items() if table})
    expected = truth_of(kind)
    assert len(found.answers) == len(expected) > 5
    for answer, truth in zip(found.answers, expected, strict=True):
        assert abs(answer.value - truth) <= 6 * answer.standard_error + 1e-5 * abs(truth), answer.part
        assert answer.standard_error <= max(0.02, 1e-2 * abs(truth))
        low, high = answer.interval
        assert low < answer.value < high


def test_the_maximum_over_parties_is_told_and_not_whose_it_is() -> None:
    tables = {name: {"income": np.full(4000, 1000.0 * (place + 58))} for place, name in enumerate(HELD)}
    tables["bank"]["income"][:17] = 70_000.0
    found = run(Study.parse(MAXIMUM), tables)
    (answer,) = found.answers
    assert abs(answer.value - 4000) <= 6 * answer.standard_error


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threshold": 2, "engine": "mpyc"}, "must be less than half the number of parties"),
        (
            {"parties": PARTIES[:2], "engine": "mpyc", "queries": MAXIMUM["queries"]},
            "must be less than half the number of parties",
        ),
        ({"threshold": 2, "guarantee": "statistical"}, "must be less than half the number of parties"),
        ({"engine": "spu", "guarantee": "statistical"}, 'cannot be used with guarantee = "statistical"'),
        ({"engine": "mpyc", "queries": [PAIR], "parties": PAIRED}, "cannot compute a pair_function"),
        ({"threshold": 2, "queries": MAXIMUM["queries"]}, "must be less than half the number of parties"),
        ({"sum_through": "relay"}, "needs what is computed in pairs, and the engine is mpyc"),
        ({"sum_through": "shop", "threshold": 2}, 'sum_through = "shop" must be one of relay'),
        ({"where": "age > 3"}, "cannot be used with a vertical_regression"),
        ({"parties": [*PARTIES[:2], {"name": "registry", "records": 3999}]}, "must be the same people"),
        ({"parties": [*PARTIES, {"name": "lab", "records": 5}]}, "holds no column"),
        ({"where": "age > 3", "queries": [JOINT]}, "cannot be used with a joint_table"),
        ({"queries": [JOINT]}, "holds no column of income by age"),
        ({"queries": [JOINT, *MAXIMUM["queries"]]}, "must be 1 with a non-additive query"),
        ({"queries": [*VERTICAL["queries"], *MAXIMUM["queries"]]}, "must be 1 with a non-additive query"),
    ],
)
def test_studies_that_shares_cannot_do_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Study.parse({**VERTICAL, **change})


def test_an_engine_that_adds_up_is_refused() -> None:
    with pytest.raises(InputError, match="this query is not additive"):
        run(Study.parse(VERTICAL), people(), engine=MemoryEngine())


def test_every_party_is_charged_for_what_it_holds(tmp_path: Path) -> None:
    """The school holds two columns, so its records move the answer further than the registry's."""
    ledgers = {name: Ledger.create(tmp_path / f"{name}.ledger", name, 10.0, 1e-6) for name in HELD}
    found = run(Study.parse(VERTICAL), people(), ledgers)
    spent = {name: ledger.spent().epsilon for name, ledger in ledgers.items()}
    assert spent["school"] > spent["registry"] > 0
    assert spent["school"] <= 8.0
    assert found.parties["school"].epsilon == pytest.approx(spent["school"])
    for ledger in ledgers.values():
        ledger.verify()
        ledger.close()


# On the command line --------------------------------------------------------------------------------------------------


def test_an_invitation_says_that_spu_is_needed() -> None:
    assert "Needs:    Linux, and SPU" in invitation(Study.parse({**VERTICAL, "threshold": 2}), "bank")
    assert "Needs:" not in invitation(Study.parse(VERTICAL), "bank")


def test_a_sum_through_a_relay_is_part_of_what_all_agree_on() -> None:
    keyed = [{**party, "public_key": public_text(identity_of(str(party["name"])))} for party in PARTIES]
    document = {**VERTICAL, "threshold": 2, "parties": keyed}
    direct, through = Study.parse(document), Study.parse({**document, "sum_through": "relay"})
    assert (direct.uses_relay, through.uses_relay) == (False, True)
    assert Study.parse(tomllib.loads(through.toml())) == through
    assert direct.terms().session == through.terms().session
    assert direct.terms().plan_hash != through.terms().plan_hash
    assert differences(encode_parts(direct.parts()), encode_parts(through.parts())) == ["also sum_through"]
    assert study_differences(direct, through) == ["sum_through (none) -> relay"]
    assert "Relay:" in invitation(through, "bank")
    assert "Relay:" not in invitation(direct, "bank")


def test_a_study_of_sums_has_no_other_sum() -> None:
    count = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    with pytest.raises(InputError, match="sum_through = relay is for queries that are not sums"):
        Study.parse({**VERTICAL, "queries": [count], "sum_through": "relay"})


def write(folder: Path, document: dict[str, Any]) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "study.toml").write_text(Study.parse(document).toml())
    for name, table in people().items():
        columns = np.column_stack([np.asarray(values) for values in table.values()])
        np.savetxt(folder / f"{name}.csv", columns, delimiter=",", header=",".join(table), comments="", fmt="%.17g")
    return folder / "study.toml"


def command(*words: str | Path) -> Process:
    return Process("tpmdp", *words)


@pytest.mark.long
def test_a_run_of_processes_is_resumed_after_a_party_was_killed(tmp_path: Path) -> None:
    """Killed while it computes: the run says who, and the same command goes on with one charge and the same noise."""
    study = write(tmp_path / "data", VERTICAL)
    words: list[str | Path] = ["run", study, "--state", tmp_path / "state", "--json", "--events", "none"]
    first = command(*words)
    killed = None
    end = time.monotonic() + HANG_S
    while killed is None and first.poll() is None and time.monotonic() < end:
        killed = kill_worker_of(first.pid)
    _, complaint = first.communicate(timeout=HANG_S)
    assert killed is not None
    assert first.returncode in (2, 3), complaint
    notice, problem = complaint.strip().splitlines()
    assert "has no ledger of bank, school, registry: new ones are made" in notice
    assert problem.startswith("tpmdp: ")
    told = json.loads(command(*words).communicate(timeout=HANG_S)[0])
    again = json.loads(command(*words).communicate(timeout=HANG_S)[0])
    bank = told["parties"][0]
    assert bank["answers"] == again["parties"][0]["answers"]
    assert again["parties"][0]["again"]
    for name in HELD:
        with Ledger.open(tmp_path / "state" / f"{name}.ledger") as ledger:
            ledger.verify()
    for party in told["parties"]:
        assert party["spent"] == pytest.approx(party["epsilon"], rel=1e-9)  # charged once


def kill_worker_of(pid: int) -> int | None:
    """SIGKILL the first worker among the descendants of a process."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name = (entry / "comm").read_text().strip()
            if name == "direct.worker" and pid in ancestors(int(entry.name)):
                os.kill(int(entry.name), signal.SIGKILL)
                return int(entry.name)
        except (OSError, ProcessLookupError):
            continue
    return None


def ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        status = Path(f"/proc/{pid}/stat").read_text()
        pid = int(status.rsplit(")", 1)[1].split()[1])
        found.append(pid)
    return found


def check_events(events: list[dict[str, Any]]) -> None:
    """Every party sees the others come, and each step once."""
    names = {event["party"] for event in events}
    assert len(names) == 3
    for name in names:
        seen = [event for event in events if event["party"] == name]
        assert {other for event in seen for other in event["names"]} == names - {name}
        steps = [event["step"] for event in seen if event["event"] == "step"]
        assert steps == ["connect", "compute", "open", "done"]
        assert seen[-1]["sent"] > 0


def test_join_without_an_address_or_with_a_missing_party_says_so(tmp_path: Path) -> None:
    study = write(tmp_path / "data", VERTICAL)
    done = command("run", study, "--state", tmp_path / "state", "--json")
    _, log = done.communicate(timeout=HANG_S)
    check_events([json.loads(line) for line in log.splitlines() if line.startswith("{")])
    keyed = tmp_path / "state" / "study.toml"  # has keys, and addresses nobody listens on now
    join: list[str | Path] = ["join", keyed, "--as", "bank", "--key", tmp_path / "state" / "bank.key", "--session", "2"]
    join += ["--data", tmp_path / "data" / "bank.csv", "--ledger", tmp_path / "new.ledger"]
    for seconds in (3, 30, 300):  # a busy machine may need longer to begin
        late = command(*join, "--deadline", f"{seconds}s")
        _, complaint = late.communicate(timeout=HANG_S)
        assert late.returncode == 3
        if "before our own process had started" not in complaint:
            break
    assert "school" in complaint
    assert "registry" in complaint
    bare = tmp_path / "bare.toml"
    bare.write_text("\n".join(line for line in keyed.read_text().splitlines() if "address" not in line))
    join[1] = bare
    refused = command(*join)
    _, complaint = refused.communicate(timeout=HANG_S)
    assert refused.returncode == 2
    assert "address of bank" in complaint
