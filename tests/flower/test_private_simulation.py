"""Nobody but its own processes reaches a simulation: it holds the keys and vectors of all parties."""

from __future__ import annotations

import os
import re
import socket
import stat
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.patience import HANG_S
from tests.protocol.sessions import World
from tpmdp.flower.engine import FlowerEngine

ROOT = Path(__file__).parents[2]
INTRUDER = """
import sys, ray
ray.init(address=sys.argv[1], log_to_driver=False, logging_level="ERROR")
print("STOLEN", ray.cluster_resources())
"""


def descendants(root: int) -> list[int]:
    """A process and all below it."""
    children: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:  # it has ended
            continue
        children.setdefault(parent, []).append(int(path.parent.name))
    family, todo = [], [root]
    while todo:
        family.append(todo.pop())
        todo += children.get(family[-1], [])
    return family


def bound_sockets(processes: list[int]) -> Iterator[tuple[str, str, int]]:
    """Name of the process, address and port of each socket that listens (TCP) or is bound (UDP)."""
    known: dict[str, tuple[str, int]] = {}
    for table, states in (("tcp", {"0A"}), ("tcp6", {"0A"}), ("udp", {"07"}), ("udp6", {"07"})):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] in states:
                digits, port = fields[1].split(":")
                raw = b"".join(struct.pack("=I", int(digits[i : i + 8], 16)) for i in range(0, len(digits), 8))
                family = socket.AF_INET if len(raw) == 4 else socket.AF_INET6
                known[fields[9]] = socket.inet_ntop(family, raw), int(port, 16)
    for process in processes:
        try:
            name = Path(f"/proc/{process}/comm").read_text().strip()
            links = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
        except OSError:
            continue
        for link in links:
            if link.startswith("socket:[") and link[8:-1] in known:
                yield name, *known[link[8:-1]]


def socket_files(processes: list[int]) -> Iterator[Path]:
    """The files of sockets that are bound by these processes."""
    lines = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    files = {fields[6]: Path(fields[7]) for fields in lines if len(fields) == 8 and fields[7].startswith("/")}
    for process in processes:
        with suppress(OSError):
            links = [os.readlink(path) for path in Path(f"/proc/{process}/fd").iterdir()]
            yield from (files[link[8:-1]] for link in links if link.startswith("socket:[") and link[8:-1] in files)


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[int, Path]]:
    """The process of a simulation that has run a session, and its folder."""
    with FlowerEngine() as engine:
        world = World(3, 1, [0])
        outcome = engine.run(world.terms, world.identities, world.vectors, deadline_s=HANG_S)
        assert outcome.sums[0].tolist() == world.total
        simulation = engine._simulation
        assert simulation is not None
        yield simulation.process.pid, simulation.folder


def test_it_listens_on_loopback_only(running: tuple[int, Path]) -> None:
    found = list(bound_sockets(descendants(running[0])))
    assert {"gcs_server", "raylet"} <= {name for name, _, _ in found}
    assert {address for _, address, _ in found} <= {"127.0.0.1", "::ffff:127.0.0.1", "::1"}, found


@pytest.mark.parametrize("token", [pytest.param(None, marks=pytest.mark.long), "0" * 64])
def test_a_process_without_its_token_is_refused(running: tuple[int, Path], token: str | None, tmp_path: Path) -> None:
    ports = [port for name, _, port in bound_sockets(descendants(running[0])) if name == "gcs_server"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"HOME": str(tmp_path), "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    if token is not None:
        environment |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
    command = [sys.executable, "-c", INTRUDER, f"127.0.0.1:{ports[0]}"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert done.returncode != 0
    assert "STOLEN" not in done.stdout
    assert re.search("token|authenticat", done.stderr), done.stderr[-2000:]


def test_its_files_and_sockets_lie_in_a_folder_of_its_user(running: tuple[int, Path]) -> None:
    """Ray lets everybody write to its folder, where its sockets are."""
    assert stat.S_IMODE(running[1].stat().st_mode) == 0o700
    sockets = list(socket_files(descendants(running[0])))
    assert {path.name for path in sockets} >= {"raylet", "plasma_store"}
    for path in sockets:  # where the user's folder for temporary files has a long path, it is not below it
        private = [folder for folder in path.parents if stat.S_IMODE(folder.stat().st_mode) == 0o700]
        assert any(folder.stat().st_uid == os.getuid() for folder in private), path


def test_the_token_is_in_no_file_and_no_command_line(running: tuple[int, Path]) -> None:
    process, folder = running
    family = descendants(process)
    settings = [Path(f"/proc/{one}/environ").read_bytes() for one in family if Path(f"/proc/{one}").exists()]
    tokens = {match for text in settings for match in re.findall(rb"RAY_AUTH_TOKEN=([0-9a-f]{64})", text)}
    assert len(tokens) == 1
    (token,) = tokens
    assert not any(token in Path(f"/proc/{one}/cmdline").read_bytes() for one in family)
    assert not any(token in path.read_bytes() for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def test_ray_that_was_imported_with_other_settings_is_refused() -> None:
    program = "import ray; from tpmdp.flower.simulation import secure_ray; secure_ray()"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert "SimulationError: ray was imported before its settings were made safe" in done.stderr


def test_all_simulations_start_in_one_place() -> None:
    places = [path for folder in ("src", "examples", "benchmarks") for path in (ROOT / folder).rglob("*.py")]
    starts = re.compile(r"\brun_simulation\(|\bray\.init\(|start_simulation\(|\binit_args\b")
    assert [path.name for path in places if starts.search(path.read_text())] == ["simulation.py"]
