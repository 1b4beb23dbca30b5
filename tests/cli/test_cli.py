"""The command line as a user runs it: real processes, real files, exit codes, and not one traceback."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp
from tests import processes
from tests.patience import HANG_S
from tests.processes import Process

pytestmark = pytest.mark.process

COMMAND = [sys.executable, "-m", "tpmdp"]
EXAMPLE = Path(__file__).parents[2] / "examples" / "consortium.csv"
ENVIRONMENT = {**os.environ, "COLUMNS": "140", "NO_COLOR": "1"}


def run(*arguments: object, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    return processes.run(*arguments, folder=folder, environment=ENVIRONMENT)


def plan_example(folder: Path, *more: object) -> subprocess.CompletedProcess[str]:
    receivers = "statistics_office,hospital_north"
    return run("plan", EXAMPLE, "--threshold", 2, "--receivers", receivers, *more, folder=folder)


def test_the_example_is_planned_written_drawn_and_verified(tmp_path: Path) -> None:
    done = plan_example(tmp_path, "--out", "plan.json", "--plot", "plan.png")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for text in ("5 parties, threshold 2, 2 receivers", "Alg. 3, case 4", "hospital_north", "TMDP", "trusted curator"):
        assert text in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["plan.json", "plan.png"]
    assert (tmp_path / "plan.png").read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    checked = run("verify", "plan.json", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    assert "VALID for 5 parties, threshold 2, 2 receivers; proved in exact arithmetic" in checked.stdout
    assert "hospital_south" in checked.stdout


def test_the_table_shows_the_numbers_of_the_plan(tmp_path: Path) -> None:
    done = plan_example(tmp_path, "--json")
    shown = json.loads(done.stdout)
    spec = tpmdp.Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4])
    plan = tpmdp.plan(spec)
    assert [row["variance"] for row in shown["parties"]] == plan.variance.tolist()
    assert [row["need"] for row in shown["parties"]] == plan.need.tolist()
    assert [row["real_epsilon"] for row in shown["parties"]] == plan.protection().epsilon.tolist()
    assert shown["total_variance"] == plan.total_variance
    assert shown["expected_error"] ** 2 == pytest.approx(plan.total_variance)
    assert [row["name"] for row in shown["baselines"]] == ["TMDP", "non-threshold", "trusted curator"]
    assert shown["parties"][0]["worst_coalition"] == ["hospital_south", "statistics_office"]


def test_svg_pictures_are_the_same_every_time(tmp_path: Path) -> None:
    for name in ("one.svg", "two.svg"):
        assert plan_example(tmp_path, "--plot", name).returncode == 0
    assert (tmp_path / "one.svg").read_text().startswith("<?xml")
    assert (tmp_path / "one.svg").read_bytes() == (tmp_path / "two.svg").read_bytes()


def test_toml_needs_no_options(tmp_path: Path) -> None:
    text = 'threshold = 1\nreceivers = "all"\ndelta = 1e-6\n[[parties]]\nepsilon = 1\n[[parties]]\nepsilon = 2\n'
    (tmp_path / "study.toml").write_text(text)
    done = run("plan", "study.toml", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "2 parties, threshold 1, 2 receivers" in done.stdout


def test_personal_thresholds_from_a_column(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("epsilon,delta,threshold\n0.5,1e-6,2\n1,1e-6,1\n2,1e-6,1\n")
    done = run("plan", "p.csv", "--receivers", "all", "--out", "plan.json", "--plot", "plan.png", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "personal thresholds" in done.stdout
    checked = run("verify", "plan.json", "--party", "party_1", folder=tmp_path)
    assert checked.returncode == 0
    assert "thres-" in checked.stdout  # a party must see the threshold it was planned for
    assert "party_2" not in checked.stdout
    budgets = json.loads(run("verify", "plan.json", "--json", folder=tmp_path).stdout)["budgets"]
    assert [row["threshold"] for row in budgets] == [2, 1, 1]
    replaced = run("plan", "p.csv", "-t", 1, "-r", "all", folder=tmp_path)
    assert "--threshold 1 replaces what the file says" in replaced.stderr


@pytest.mark.parametrize(("threshold", "receivers"), [(0, "all"), (2, "none")])
def test_no_noise_is_said_loudly_and_not_refused(tmp_path: Path, threshold: int, receivers: str) -> None:
    done = run("plan", EXAMPLE, "-t", threshold, "-r", receivers, "--plot", "plan.png", folder=tmp_path)
    assert done.returncode == 0
    assert "NO NOISE IS ADDED" in done.stdout
    spoken = run("plan", EXAMPLE, "-t", threshold, "-r", receivers, "--json", "--out", "plan.json", folder=tmp_path)
    assert spoken.stderr.startswith("tpmdp: no noise is added")
    assert json.loads(spoken.stdout)["no_noise_reason"]
    assert "NO NOISE IS ADDED" in run("verify", "plan.json", folder=tmp_path).stdout
    assert json.loads(run("verify", "plan.json", "--json", folder=tmp_path).stdout)["no_noise_reason"]


def test_many_parties_are_summarised(tmp_path: Path) -> None:
    rows = "\n".join(f"{0.01 * (i + 1)},1e-6" for i in range(500))
    (tmp_path / "p.csv").write_text(f"epsilon,delta\n{rows}\n")
    done = run("plan", "p.csv", "-t", 250, "-r", "party_1,party_2,party_3", "--plot", "plan.png", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "... 480 more" in done.stdout
    assert len(done.stdout.splitlines()) < 80


def bad(*arguments: object, folder: Path, code: int = 2) -> str:
    """Run, expect this exit code, one line on standard error, no traceback and no new file."""
    before = sorted(os.listdir(folder))
    done = run(*arguments, folder=folder)
    assert done.returncode == code, (done.returncode, done.stderr)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("tpmdp: ")
    assert "Traceback" not in done.stderr
    assert sorted(os.listdir(folder)) == before
    return done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["-t", "5", "-r", "all"],
            "threshold = 5 must be less than the number of parties (5): add parties or lower it",
        ),
        (["-t", "-1", "-r", "all"], "threshold = -1 must be 0 or more"),
        (["-t", "1.5", "-r", "all"], "threshold = 1.5 must be a whole number"),
        (["-t", "two", "-r", "all"], "threshold = two is not a number"),
        (["-t", "nan", "-r", "all"], "threshold = nan must be 0 or more"),
        (["-r", "all"], "--threshold = (none) is missing"),
        (["-t", "2"], "--receivers = (none) is missing"),
        (["-t", "2", "-r", "bank"], "receivers = bank is not one of the parties"),
        (["-t", "2", "-r", "insurer,insurer"], "receivers = insurer is listed twice"),
        (["-t", "2", "-r", "insurer,,"], "receivers = insurer,, has a blank name"),
        (["-t", "2", "-r", "all", "--plot", "plan.pdf"], "--plot = plan.pdf must end in .png or .svg"),
        (["-t", "2", "-r", "all", "--out", "none/plan.json"], "lies in a folder that does not exist"),
        (["-t", "2", "-r", "all", "--out", "."], "is a folder"),
        (["-t", "2", "-r", "all", "--out", "a.png", "--plot", "a.png"], "--plot = a.png is the same file as --out"),
        (["-t", "2", "-r", "all", "--out", EXAMPLE], "is the same file as the file of parties: choose another name"),
        (["-t", "2", "-r", "all", "--out", "x" * 5000], "cannot be written (File name too long)"),
        (["-t", "1_0", "-r", "all"], "threshold = 1_0 is not a number"),
        (["-t", "2", "-r", ""], "receivers = (blank) has a blank name"),
        (["-t", "2", "-r", "all", "--color", "red"], "No such option"),
    ],
)
def test_bad_options_get_one_line(tmp_path: Path, options: list[str], message: str) -> None:
    assert message in bad("plan", EXAMPLE, *options, "--json", folder=tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("epsilon,delta\n1,1e-6\n-1,1e-6\n", "epsilon of line 3 = -1.0, which must be greater than 0"),
        ("epsilon,delta\n1,1e-6\n1,0\n", "cannot be met by Gaussian noise"),
        ("name,epsilon,delta\na,1,1e-6\na,1,1e-6\n", "name of line 3 = a, which is used twice"),
        ("epsilon\n1\n", "has no column delta"),
        ("", "is empty"),
    ],
)
def test_bad_files_leave_no_output_behind(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(content)
    options = ["-t", "1", "-r", "all", "--out", "plan.json", "--plot", "plan.png"]
    assert message in bad("plan", "p.csv", *options, folder=tmp_path)


def test_missing_files(tmp_path: Path) -> None:
    assert "none.csv does not exist" in bad("plan", "none.csv", "-t", 1, "-r", "all", folder=tmp_path)
    assert "none.json does not exist" in bad("verify", "none.json", folder=tmp_path)
    assert "Missing argument" in bad("verify", folder=tmp_path)
    assert "No such command" in bad("dance", folder=tmp_path)


def test_a_tampered_plan_exits_1_with_the_violated_inequality(tmp_path: Path) -> None:
    assert plan_example(tmp_path, "--out", "plan.json").returncode == 0
    root: dict[str, Any] = json.loads((tmp_path / "plan.json").read_text())
    root["variance"][1] *= 0.99
    (tmp_path / "plan.json").write_text(json.dumps(root))
    message = bad("verify", "plan.json", folder=tmp_path, code=1)
    assert "not valid: privacy violated: honest noise" in message
    assert "against the coalition insurer, statistics_office" in message


def test_a_hostile_plan_exits_2(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text('{"format": "tpmdp.plan", "version": NaN}')
    assert "holds NaN, which JSON does not allow" in bad("verify", "plan.json", folder=tmp_path)


def test_verify_speaks_json(tmp_path: Path) -> None:
    assert plan_example(tmp_path, "--out", "plan.json").returncode == 0
    verdict = json.loads(run("verify", "plan.json", "--json", folder=tmp_path).stdout)
    assert verdict["valid"] is True
    assert verdict["parties"] == 5
    assert verdict["gap"] <= 1e-12
    assert verdict["optimal"] is True


def test_a_plan_is_not_called_optimal_because_its_author_says_so(tmp_path: Path) -> None:
    """1.9 times the least variance keeps every budget, but a stated gap of 0.95 makes it no better."""
    assert plan_example(tmp_path, "--out", "plan.json").returncode == 0
    root = json.loads((tmp_path / "plan.json").read_text())
    root["variance"] = [1.9 * value for value in root["variance"]]
    root["gap"] = 0.95
    (tmp_path / "plan.json").write_text(json.dumps(root))
    checked = run("verify", "plan.json", folder=tmp_path)
    assert checked.returncode == 0, checked.stderr
    words = " ".join(checked.stdout.split())
    assert "VALID, but not shown to be optimal, for 5 parties, threshold 2, 2 receivers" in words
    assert "total variance 149, which is 1.9 times 78.44, the lower bound that is proven for these needs" in words
    assert "optimal:" not in words
    verdict = json.loads(run("verify", "plan.json", "--json", folder=tmp_path).stdout)
    assert (verdict["valid"], verdict["optimal"]) == (True, False)
    assert verdict["factor"] == pytest.approx(1.9, rel=1e-9)


def test_names_cannot_smuggle_terminal_markup(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("name,epsilon,delta\n[bold red]x[/],1,1e-6\ny,1,1e-6\n")
    done = run("plan", "p.csv", "-t", 1, "-r", "all", folder=tmp_path)
    assert "[bold red]x[/]" in done.stdout


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_names_the_terminal_cannot_show_are_no_error(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "p.csv").write_text("name,epsilon,delta\n\u533b\u9662,1,1e-6\n$a_{$,1,1e-6\n", encoding="utf-8")
    words = [*COMMAND, "plan", "p.csv", "-t", "1", "-r", "all", "--plot", "plan.png", "--out", "plan.json"]
    environment = {**ENVIRONMENT, "PYTHONIOENCODING": encoding}
    for arguments in (words, [*COMMAND, "verify", "plan.json"]):
        done = subprocess.run(
            arguments, capture_output=True, cwd=tmp_path, env=environment, timeout=HANG_S, check=False
        )
        assert done.returncode == 0, done.stderr
        assert done.stderr == b""


def test_a_party_that_is_not_in_the_plan(tmp_path: Path) -> None:
    assert plan_example(tmp_path, "--out", "plan.json").returncode == 0
    assert "--party = bank is not in the plan" in bad("verify", "plan.json", "--party", "bank", folder=tmp_path)


def test_a_name_with_a_comma_can_receive(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text('name,epsilon,delta\n"Smith, Sons",1,1e-6\nb,1,1e-6\n')
    assert "1 receiver;" in run("plan", "p.csv", "-t", 1, "-r", "Smith, Sons", folder=tmp_path).stdout


@pytest.mark.parametrize("width", [60, 80, 120])
def test_numbers_are_never_cut_in_a_narrow_terminal(tmp_path: Path, width: int) -> None:
    rows = "\n".join(f"a party with a long name {i},{10.0**-i},1e-6" for i in range(6))
    (tmp_path / "p.csv").write_text(f"name,epsilon,delta\n{rows}\n")
    shown = on_terminal(["plan", "p.csv", "-t", "2", "-r", "all"], tmp_path, width)
    assert "\u2026" not in shown
    needs = json.loads(run("plan", "p.csv", "-t", 2, "-r", "all", "--json", folder=tmp_path).stdout)["parties"]
    for row in needs:
        assert f"{row['need']:.4g}" in shown


def test_help_and_version_and_no_arguments() -> None:
    assert "plan" in run("--help").stdout
    assert "tpmdp plan parties.csv" in run("plan", "--help").stdout
    assert run("--version").stdout.strip() == f"tpmdp {tpmdp.__version__}"
    assert run().returncode == 2
    assert "Traceback" not in run().stderr


@pytest.mark.parametrize("more", ["", "--json"])
def test_a_closed_pipe_is_told_from_an_invalid_plan(more: str) -> None:
    words = " ".join([*COMMAND, "plan", str(EXAMPLE), "-t", "2", "-r", "all", more])
    script = ["bash", "-c", f"{words} | true; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(script, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode in (0, 141)  # 0 if the whole output fitted into the pipe before its reader left
    assert done.stderr == ""


def test_long_work_shows_progress_on_a_terminal(tmp_path: Path) -> None:
    """A real pseudo-terminal on standard error: a bar appears for a check that takes more than a second."""
    count = 30_000
    epsilon = np.geomspace(0.01, 1.0, count)
    lines = "\n".join(f"{value!r},1e-6" for value in epsilon.tolist())
    (tmp_path / "p.csv").write_text(f"epsilon,delta\n{lines}\n")
    assert run("plan", "p.csv", "-t", 5, "-r", "all", "--out", "plan.json", folder=tmp_path).returncode == 0
    assert "checking the certificate" in on_terminal(["verify", "plan.json"], tmp_path, 100)


def test_interrupted_work_exits_130_and_leaves_nothing_behind(tmp_path: Path) -> None:
    lines = "\n".join(f"{0.01 + i * 1e-7!r},1e-6" for i in range(1_500_000))
    (tmp_path / "p.csv").write_text(f"epsilon,delta\n{lines}\n")
    ours, theirs = pty.openpty()
    words = ["plan", "p.csv", "-t", "5", "-r", "all", "--out", "plan.json", "--plot", "plan.png"]
    process = Process(
        "tpmdp", *words, folder=tmp_path, stdout=subprocess.DEVNULL, stderr=theirs, environment=ENVIRONMENT
    )
    os.close(theirs)
    shown = b""
    while b"reading parties" not in shown:  # the bar is up, so the work is under way
        shown += os.read(ours, 4096)
    process.send_signal(signal.SIGINT)
    shown += read_all(ours)
    assert process.wait(timeout=HANG_S) == 130
    assert b"tpmdp: interrupted" in shown
    assert b"Traceback" not in shown
    assert os.listdir(tmp_path) == ["p.csv"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("more", [[], ["--json"]])
def test_a_full_disk_behind_standard_output_exits_2(tmp_path: Path, more: list[str]) -> None:
    words = [*COMMAND, "plan", str(EXAMPLE), "-t", "2", "-r", "all", *more]
    with open("/dev/full", "w") as full:
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, timeout=HANG_S, check=False)
    assert done.returncode == 2
    assert done.stderr == "tpmdp: standard output cannot be written (No space left on device): check the disk\n"


def test_closed_streams_are_no_error(tmp_path: Path) -> None:
    words = " ".join([*COMMAND, "plan", str(EXAMPLE), "-t", "2", "-r", "all"])
    for closing in (">&-", "2>&-"):
        done = subprocess.run(f"{words} {closing}", shell=True, capture_output=True, timeout=HANG_S, check=False)  # noqa: S602
        assert done.returncode == 0
        assert done.stderr == b""


def on_terminal(arguments: list[str], folder: Path, width: int) -> str:
    """What a command prints, standard output and error together, on a real pseudo-terminal of this width."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    environment = {key: value for key, value in ENVIRONMENT.items() if key != "COLUMNS"}
    process = Process("tpmdp", *arguments, folder=folder, stdout=theirs, stderr=theirs, environment=environment)
    os.close(theirs)
    shown = read_all(ours)
    assert process.wait(timeout=HANG_S) == 0
    return shown.decode()


def read_all(terminal: int) -> bytes:
    """Everything written to a pseudo-terminal until its last writer is gone."""
    shown = b""
    while True:
        try:
            chunk = os.read(terminal, 4096)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
    os.close(terminal)
    return shown
