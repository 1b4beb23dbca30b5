"""Weights on the command line: columns, options, tables, JSON, and one line for each mistake."""

from __future__ import annotations

import json
import math
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from rich.console import Console

from tests.cli.test_cli import on_terminal
from tpmdp import Spec, Weights, plan
from tpmdp.cli.main import main
from tpmdp.planning.plan import needs
from tpmdp.planning.weights import BASELINES, baseline_weights

Run = Callable[..., "Done"]
HEADER: Final = "name,epsilon,delta,weight,records"
ROWS: Final = ("north,0.1,1e-6,0.25,40", "south,0.5,1e-6,1,10", "lab,1,1e-6,0.5,25", "city,2,1e-6,0,5")
WEIGHTED: Final = "\n".join([HEADER, *ROWS, ""])
UNWEIGHTED: Final = "name,epsilon,delta\nnorth,0.1,1e-6\nsouth,0.5,1e-6\nlab,1,1e-6\ncity,2,1e-6\n"
SPEC: Final = Spec(epsilon=[0.1, 0.5, 1, 2], delta=1e-6, threshold=2)
ALL: Final = ("-t", 2, "-r", "all")
ASSUMED: Final = "have nothing to do with the data"


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command here, in an empty folder, without touching the signals of this process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(signal, "getsignal", lambda _: None)

    def run(*words: object) -> Done:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        said = capsys.readouterr()
        assert isinstance(left.value.code, int)
        assert "Traceback" not in said.err
        return Done(left.value.code, said.out, said.err)

    return run


def refused(done: Done, words: str, code: int = 2) -> None:
    assert (done.code, done.out) == (code, "")
    assert len(done.err.splitlines()) == 1, done.err
    assert done.err.startswith("tpmdp: ")
    assert words in done.err


def test_a_column_of_weights_is_planned_shown_and_verified(command: Run) -> None:
    Path("p.csv").write_text(WEIGHTED)
    done = command("plan", "p.csv", *ALL, "--out", "plan.json")
    assert (done.code, done.err) == (0, "")
    for words in ("weight", "own (this plan)", "balanced", "equal", "worst-case", ASSUMED, "at this weight"):
        assert words in done.out
    assert json.loads(Path("plan.json").read_text())["weights"]["each"] == [0.25, 1.0, 0.5, 0.0]
    checked = command("verify", "plan.json")
    assert checked.code == 0
    assert "no plan for these needs and weights has less" in checked.out
    assert "weight" in checked.out
    budgets = command("verify", "plan.json", "--json").json["budgets"]
    assert [row["weight"] for row in budgets] == [0.25, 1.0, 0.5, 0.0]
    (one,) = command("verify", "plan.json", "--party", "lab", "--json").json["budgets"]
    assert one["weight"] == 0.5


def test_json_tells_what_each_weighting_would_do(command: Run) -> None:
    Path("p.csv").write_text(WEIGHTED)
    shown = command("plan", "p.csv", *ALL, "--json").json
    records = [40, 10, 25, 5]
    own: Any = [0.25, 1.0, 0.5, 0.0]
    plans = {kind: plan(SPEC, weighting=given, records=records) for kind, given in
             (("equal", "equal"), ("balanced", "balanced"), ("own", own))}  # fmt: skip
    for kind in BASELINES:
        plans[kind] = plan(
            SPEC, weighting=baseline_weights(SPEC, needs(SPEC), kind, records=records).each, records=records
        )
    assert shown["weights"]["kind"] == "own"
    assert shown["weights"]["assumes"] == f"the weights chosen {ASSUMED}"
    assert (shown["weights"]["width"], shown["weights"]["spread"]) == (1.0, 0.5)
    assert [row["weight"] for row in shown["parties"]] == own
    assert [one["weights"] for one in shown["weights"]["choices"]] == list(plans)
    assert [one["this_plan"] for one in shown["weights"]["choices"]] == [False, False, True, False, False]
    assert [one["baseline"] for one in shown["weights"]["choices"]] == [False, False, False, True, True]
    errors = {one["weights"]: one["expected_error"] for one in shown["weights"]["choices"]}
    assert errors["balanced"] < errors["two levels"] <= errors["one budget"] <= errors["equal"]
    for one in shown["weights"]["choices"]:
        made = plans[one["weights"]]
        assert one["expected_error"] == made.expected_error
        assert one["noise"] == made.standard_deviation
        assert one["bias_bound"] == made.bias_bound
        assert math.hypot(one["noise"], one["spread_error"]) == pytest.approx(one["expected_error"], rel=1e-12)
        assert sum(one["drivers"].values()) == pytest.approx(1, abs=0.02)
    assert shown["expected_error"] == plans["own"].expected_error
    # The noise by hand: the weighted sum scaled back by 80 over 32.5 records.
    noise = math.sqrt(sum(row["variance"] for row in shown["parties"])) * 80 / 32.5
    assert shown["weights"]["choices"][2]["noise"] == pytest.approx(noise, rel=1e-9)


def test_balanced_weights_replace_those_of_the_file(command: Run) -> None:
    Path("p.csv").write_text(WEIGHTED)
    done = command("plan", "p.csv", *ALL, "--weighting", "balanced", "--json", "--out", "plan.json")
    assert done.err == "tpmdp: --weighting balanced replaces the weights in the file\n"
    made = plan(SPEC, weighting="balanced", records=[40, 10, 25, 5])
    assert [row["weight"] for row in done.json["parties"]] == made.weights.each.tolist()
    assert done.json["weights"]["kind"] == "balanced"
    assert [one["weights"] for one in done.json["weights"]["choices"]] == ["equal", "balanced", *BASELINES]
    assert command("verify", "plan.json").code == 0
    equal = command("plan", "p.csv", *ALL, "--weighting", "equal", "--json")
    assert {row["weight"] for row in equal.json["parties"]} == {1.0}
    assert equal.json["weights"]["assumes"] is None


def test_without_a_column_weights_are_equal_unless_asked_for(command: Run) -> None:
    Path("p.csv").write_text(UNWEIGHTED)
    plain = command("plan", "p.csv", *ALL, "--json", "--out", "plan.json")
    assert plain.json["weights"]["kind"] == "equal"
    assert "weights" not in json.loads(Path("plan.json").read_text())
    assert "weight " not in command("verify", "plan.json").out
    balanced = command("plan", "p.csv", *ALL, "--weighting", "balanced", "--spread", 0.1, "--json")
    assert balanced.err == ""
    made = plan(SPEC, weighting="balanced", spread=0.1)
    assert [row["weight"] for row in balanced.json["parties"]] == made.weights.each.tolist()
    assert balanced.json["weights"]["spread"] == 0.1
    assert balanced.json["expected_error"] < plain.json["expected_error"]
    refused(
        command("plan", "p.csv", *ALL, "--weighting", "own"),
        "--weighting = own needs weights, and the file has none: add a column weight, 0 to 1",
    )


def test_a_baseline_that_counts_the_only_receiver_alone_adds_no_noise_and_warns_nobody(command: Run) -> None:
    Path("p.csv").write_text(UNWEIGHTED)
    done = command("plan", "p.csv", "-t", 2, "-r", "city")
    assert done.code == 0
    assert "one budget" in done.out
    assert "NoNoise" not in done.err


def test_records_decide_how_much_a_weight_moves(command: Run) -> None:
    Path("p.csv").write_text("epsilon,delta,records\n0.1,1e-6,1\n1,1e-6,100\n1,1e-6,0\n")
    shown = command("plan", "p.csv", "-t", 1, "-r", "all", "--weighting", "balanced", "--json").json
    made = plan(Spec(epsilon=[0.1, 1, 1], delta=1e-6, threshold=1), weighting="balanced", records=np.array([1, 100, 0]))
    assert [row["weight"] for row in shown["parties"]] == made.weights.each.tolist()
    assert shown["parties"][2]["weight"] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--spread", "0"], "spread = 0.0 must be a positive number: give half the range of a record, or less"),
        (["--spread", "nan"], "spread = nan must be a positive number"),
        (["--spread", "inf"], "spread = inf must be a positive number"),
        (["--spread", "-1"], "spread = -1.0 must be a positive number"),
        (["--spread", "-1", "--weighting", "own"], "spread = -1.0 must be a positive number"),
        (["--spread", "much"], "Invalid value for '--spread'"),
        (["--weighting", "heavy"], "Invalid value for '--weighting'"),
    ],
)
def test_bad_options_get_one_line(command: Run, options: list[str], words: str) -> None:
    Path("p.csv").write_text(WEIGHTED)
    refused(command("plan", "p.csv", *ALL, *options, "--out", "plan.json"), words)
    assert not Path("plan.json").exists()


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ("x,1,1e-6,2,1", "has weight of line 6 = 2.0, which must be 0 or lie in [1e-12, 1]: divide all weights"),
        ("x,1,1e-6,-0.5,1", "has weight of line 6 = -0.5, which must be 0 or lie in [1e-12, 1]"),
        ("x,1,1e-6,nan,1", "has weight of line 6 = nan, which must be 0 or lie in [1e-12, 1]"),
        ("x,1,1e-6,inf,1", "has weight of line 6 = inf, which must be 0 or lie in [1e-12, 1]"),
        ("x,1,1e-6,heavy,1", "has weight of line 6 = heavy, which is not a number in range"),
        ("x,1,1e-6,,1", "has weight of line 6 = (blank), which is not a number in range"),
        ("x,1,1e-6,1,1.5", "has records of line 6 = 1.5, which must be a whole number, 0 or more"),
        ("x,1,1e-6,1,-1", "has records of line 6 = -1.0, which must be a whole number, 0 or more"),
        ("x,1,1e-6,1,inf", "has records of line 6 = inf, which must be a whole number, 0 or more"),
        ("x,1,1e-6,1,many", "has records of line 6 = many, which is not a number in range: write a whole number"),
    ],
)
def test_bad_columns_get_one_line(command: Run, row: str, words: str) -> None:
    Path("p.csv").write_text(f"{WEIGHTED}{row}\n")
    refused(command("plan", "p.csv", *ALL), words)


def test_columns_that_leave_nothing_get_one_line(command: Run) -> None:
    Path("p.csv").write_text("epsilon,delta,weight\n1,1e-6,0\n1,1e-6,0\n")
    refused(command("plan", "p.csv", "-t", 1, "-r", "all"), "are 0 for all parties with records")
    Path("p.csv").write_text("epsilon,delta,records\n1,1e-6,0\n1,1e-6,0\n")
    refused(command("plan", "p.csv", "-t", 1, "-r", "all"), "records = 0, which must not be 0 for all parties")
    Path("p.csv").write_text("epsilon,delta,weight,weight\n1,1e-6,1,1\n1,1e-6,1,1\n")
    refused(command("plan", "p.csv", "-t", 1, "-r", "all"), "has the column weight twice: keep one of them")


TOML: Final = 'threshold = 1\nreceivers = "all"\ndelta = 1e-6\n[[parties]]\nepsilon = 1\nweight = 0.5\n[[parties]]\n'


def test_weights_in_toml(command: Run) -> None:
    Path("p.toml").write_text(f"{TOML}epsilon = 2\nweight = 1\n")
    assert [row["weight"] for row in command("plan", "p.toml", "--json").json["parties"]] == [0.5, 1.0]
    Path("p.toml").write_text(f"{TOML}epsilon = 2\nweight = true\n")
    refused(command("plan", "p.toml"), "has weight of party 2 = true, which is not a number")
    Path("p.toml").write_text(f"{TOML}epsilon = 2\n")
    assert [row["weight"] for row in command("plan", "p.toml", "--json").json["parties"]] == [0.5, 1.0]


def with_each(document: dict[str, Any], each: list[Any]) -> dict[str, Any]:
    """As whoever forges a file would write it: with the scale and the bound that belong to it."""
    told = {**document["weights"], "each": each}
    if all(isinstance(one, float) for one in each):
        made = Weights(np.array(each), np.array(told["records"], dtype=np.float64), told["width"], 0.0)
        told |= {"scale": made.scale, "bias_bound": made.bias_bound}
    return {**document, "weights": told}


def test_a_tampered_weight_exits_1(command: Run) -> None:
    Path("p.csv").write_text(WEIGHTED)
    command("plan", "p.csv", *ALL, "--out", "plan.json")
    document = json.loads(Path("plan.json").read_text())
    Path("plan.json").write_text(json.dumps(with_each(document, [0.26, 1.0, 0.5, 0.0])))
    refused(command("verify", "plan.json"), "not valid: need violated", code=1)
    Path("plan.json").write_text(json.dumps({key: document[key] for key in document if key != "weights"}))
    refused(command("verify", "plan.json"), "not valid: need violated", code=1)
    Path("plan.json").write_text(json.dumps(with_each(document, ["1"] * 4)))
    refused(command("verify", "plan.json"), 'has weights = "1", which is not a number', code=2)


@pytest.mark.process
@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_number_is_cut_in_a_narrow_terminal(tmp_path: Path, width: int) -> None:
    rows = "\n".join(f"a party with a long name {i},{3.0**-i},1e-6,{0.123456 / 7**i},{10**i}" for i in range(5))
    (tmp_path / "p.csv").write_text(f"{HEADER}\n{rows}\n")
    words = ["plan", "p.csv", "-t", "2", "-r", "all"]
    shown = on_terminal([*words, "--out", "plan.json"], tmp_path, width) + on_terminal(
        ["verify", "plan.json"], tmp_path, width
    )
    assert "\u2026" not in shown
    spec = Spec(epsilon=[3.0**-i for i in range(5)], delta=1e-6, threshold=2)
    weights, records = [0.123456 / 7**i for i in range(5)], [10**i for i in range(5)]
    own, balanced = (plan(spec, weighting=given, records=records) for given in (weights, "balanced"))
    for made in (own, balanced):
        for number in (made.expected_error, made.standard_deviation, made.weights.spread_error, made.bias_bound):
            assert f"{number:.4g}" in shown
    for number in (*weights, *own.need.tolist()):
        assert f"{number:.4g}" in shown
    assert f"{weights[4]:.12g}" in shown  # in full, to compare


# Studies --------------------------------------------------------------------------------------------------------------


STUDY: Final = """
name = "stay"
threshold = 1
receivers = ["north", "lab"]
delta = 1e-6
{top}
[[parties]]
name = "north"
epsilon = 0.05
records = 40
{north}
[[parties]]
name = "south"
epsilon = 1.0
records = 30
[[parties]]
name = "lab"
epsilon = 1.0
records = 30
[[queries]]
name = "old"
{query}
"""
COUNT: Final = 'kind = "count"\ncolumn = "age"\nat_least = 65'
MAXIMUM: Final = 'kind = "maximum"\nof = { kind = "count", column = "age", at_least = 65 }'


def write_study(top: str = "", north: str = "", query: str = COUNT) -> None:
    Path("study.toml").write_text(STUDY.format(top=top, north=north, query=query))


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"top": 'weighting = "heavy"'}, 'weighting = "heavy", which must be one of equal, balanced, own: choose one'),
        ({"top": 'weighting = "own"'}, "weighting = own, which needs weights of the parties: give parties weight"),
        ({"north": "weight = 2"}, "weight of north = 2.0, which must be 0 or lie in [1e-12, 1]: divide all"),
        ({"north": "weight = -1"}, "weight of north = -1.0, which must be 0 or lie in [1e-12, 1]: give each"),
        ({"north": "weight = nan"}, "weight of north = nan, which is not a number: write"),
        ({"north": "weight = inf"}, "weight of north = inf, which must be 0 or lie in [1e-12, 1]: give each"),
        ({"north": "weight = true"}, "weight of north = true, which is not a number: write"),
        ({"north": 'weight = "1"'}, 'weight of north = "1", which is not a number: remove the quotes'),
        (
            {"north": "weight = 1", "top": 'weighting = "balanced"'},
            "cannot be used with weighting = balanced: remove it",
        ),
        ({"top": "spread = 0"}, "spread = 0.0, which must lie in [1e-06, 1]"),
        ({"top": "spread = 2"}, "spread = 2.0, which must lie in [1e-06, 1]"),
        (
            {"top": 'weighting = "balanced"', "query": MAXIMUM},
            "weighting = balanced, which cannot be used with a non-additive query",
        ),
        (
            {"north": "weight = 0.5", "query": MAXIMUM},
            "weighting = own, which cannot be used with a non-additive query",
        ),
    ],
)
def test_bad_studies_get_one_line(command: Run, parts: dict[str, str], words: str) -> None:
    write_study(**parts)
    refused(command("query", "explain", "count", "--study", "study.toml"), words)


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_weighted_study_says_what_it_would_give_and_assumes(command: Run, width: int) -> None:
    write_study(top='weighting = "balanced"')
    told = command("query", "explain", "count", "--study", "study.toml", "--json").json
    assert told["weights"]["kind"] == "balanced"
    assert f"budgets and numbers of records, {ASSUMED}" in told["weights"]["assumes"]
    weights = told["weights"]["parties"]
    assert weights["north"] < 0.5
    (answer,) = told["queries"][0]["expected"]
    assert answer["always_low"] <= answer["low"] < answer["high"] <= answer["always_high"]
    from tpmdp.report.queries import print_expectation
    from tpmdp.study.expectation import expect
    from tpmdp.study.model import Study

    study = Study.read(Path("study.toml"))
    console = Console(width=width, record=True, highlight=False)
    with console.capture() as shown:
        print_expectation(study, expect(study), None, console)
    text = shown.get()
    assert "\u2026" not in text
    for number in (answer["high"] - answer["value"], answer["always_high"] - answer["value"], weights["north"]):
        assert f"{number:.4g}" in text
    assert ASSUMED in " ".join(text.split()).split("Assumed: ")[1]


@pytest.mark.parametrize("width", [60, 80, 140])
def test_a_weighted_release_is_shown_with_both_intervals(command: Run, width: int) -> None:
    from tpmdp import run
    from tpmdp.report.release import print_releases
    from tpmdp.study.model import Study

    write_study(north="weight = 0.25")
    study = Study.read(Path("study.toml"))
    tables = {member.name: {"age": np.full(member.records, 70.0)} for member in study.parties}
    told = run(study, tables).parties
    console = Console(width=width, highlight=False)
    with console.capture() as shown:
        print_releases(study, list(told.values()), console)
    text = shown.get()
    assert "\u2026" not in text
    assert ASSUMED in " ".join(text.split()).split("Assumed: ")[1]
    (answer,) = told["north"].answers or ()
    assert answer.always is not None
    if width == 140:
        assert "whatever the data" in text
    shown_numbers = {word.strip(";").replace(",", "") for word in text.split()}
    lows, highs = zip(answer.interval, answer.always, strict=True)
    assert 1 < answer.standard_error < 100  # so that a count has two digits of it, and no more
    for value in (round(answer.value), *map(math.floor, lows), *map(math.ceil, highs)):  # outwards
        assert str(value) in shown_numbers
