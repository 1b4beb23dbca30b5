"""The container files: rules that a linter would check, and the example's scripts among real processes."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.cli.test_commands import ENVIRONMENT, tpmdp
from tests.patience import HANG_S
from tests.processes import Process
from tpmdp.study.model import Study

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / "container"
SECRET: Final = re.compile(r"password|passwd|secret|token|BEGIN [A-Z ]*PRIVATE KEY|ed25519:", re.IGNORECASE)
USER: Final = "10001:10001"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, with continued lines joined."""
    lines = [line for line in (FOLDER / "Dockerfile").read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ")
    return [(line.split()[0], " ".join(line.split()[1:])) for line in joined.splitlines() if line.strip()]


def stages() -> dict[str, list[tuple[str, str]]]:
    """The instructions of each stage, those of the stage it comes from included."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions():
        if word == "FROM":
            source, _, name = rest.partition(" AS ")
            found[name] = [*found.get(source, []), (word, source)]
        else:
            found[list(found)[-1]].append((word, rest))
    return found


def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    return dict(yaml.safe_load((FOLDER / "compose.yaml").read_text()))


def test_every_instruction_is_known_and_in_capitals() -> None:
    known = {"FROM", "RUN", "COPY", "ENV", "USER", "WORKDIR", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD"}
    assert {word for word, _ in instructions()} <= known | {
        "STOPSIGNAL"
    }  # no ADD, which fetches and unpacks; no VOLUME


@pytest.mark.parametrize("target", ["relay", "party"])
def test_images_run_without_rights_and_are_watched(target: str) -> None:
    stage = stages()[target]
    words = [word for word, _ in stage]
    users = [rest for word, rest in stage if word == "USER"]
    assert users == [USER]
    assert "RUN" not in words[words.index("USER") :]
    assert words.count("HEALTHCHECK") == 1
    for word in ("ENTRYPOINT", "CMD"):  # no shell between the signal and the tool
        assert all(isinstance(json.loads(rest), list) for each, rest in stage if each == word)
    check = next(rest for word, rest in stage if word == "HEALTHCHECK")
    assert json.loads(check.partition(" CMD ")[2]) == ["python", "/opt/tpmdp/health.py"]


def test_images_come_from_a_pinned_release_and_have_no_secrets() -> None:
    bases = {rest.partition(" AS ")[0] for word, rest in instructions() if word == "FROM"}
    outside = bases - stages().keys()
    assert outside == {"python:3.11-slim-bookworm"}
    for path in FOLDER.iterdir():
        assert not SECRET.search(path.read_text()), path
    for word, rest in instructions():
        assert "http" not in rest or word == "ENV"
        if "pip install" in rest:
            assert "--no-cache-dir --constraint constraints.txt" in rest
        if word == "COPY" and "--from" not in rest:
            assert "." not in rest.split()[:-1]  # never the whole folder
            assert all((ROOT / source).exists() for source in rest.split()[:-1])


def test_only_what_images_need_is_sent_to_the_builder() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if not line.startswith("#")) == "*"
    allowed = {line[1:] for line in lines if line.startswith("!")}
    copied = {
        source
        for word, rest in instructions()
        if word == "COPY" and "--from" not in rest
        for source in rest.split()[:-1]
    }
    assert allowed == copied


def test_the_relay_listens_where_it_is_asked_for_its_health() -> None:
    stage = dict(stages()["relay"])
    assert stage["EXPOSE"] == "8400"
    assert "TPMDP_RELAY=http://127.0.0.1:8400" in [rest for word, rest in stages()["relay"] if word == "ENV"]
    words = json.loads(stage["ENTRYPOINT"])
    assert words[:2] == ["tpmdp", "relay"]
    assert "--plain-http" not in words  # whoever starts it decides
    assert "--open" not in words


def test_every_service_of_the_example_is_hardened() -> None:
    study = Study.read(ROOT / "examples" / "stay" / "study.toml")
    services = compose()["services"]
    names = [party.name for party in study.parties]
    assert list(services) == ["author", "relay", *names]
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert service["tmpfs"] == ["/tmp"]  # noqa: S108
        assert "user" not in service  # that of the image
        assert not {"privileged", "network", "pid", "cap_add", "env_file"} & service.keys()
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", []))
        assert service["build"]["target"] in stages()
        for volume in service["volumes"]:
            source, inside = volume.split(":")[:2]
            if source.startswith("."):
                assert volume.endswith(":ro")
                assert (FOLDER / source).exists()
            else:
                assert source in compose()["volumes"]
                assert source in ("exchange", name)  # no party sees the state of another
                assert inside == ("/exchange" if source == "exchange" else "/state")
    assert services["author"]["command"] == names
    assert [volume for name in names for volume in services[name]["volumes"] if "/data/" in volume] == [
        f"../examples/stay/{name}.csv:/data/{name}.csv:ro" for name in names
    ]


def test_scripts_are_sound_shell() -> None:
    for path in sorted(FOLDER.glob("*.sh")):
        assert path.read_text().splitlines()[0] == "#!/bin/sh"
        assert "set -eu" in path.read_text()
    ast.parse((FOLDER / "health.py").read_text())


# Among processes ------------------------------------------------------------------------------------------------------


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder with `tpmdp`, as the image has it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "tpmdp").write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m tpmdp "$@"\n')
    (folder / "tpmdp").chmod(0o755)
    return folder


def health(address: str | None) -> int:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TPMDP_")}
    environment |= {} if address is None else {"TPMDP_RELAY": address}
    words = [sys.executable, str(FOLDER / "health.py")]
    return subprocess.run(words, env=environment, timeout=HANG_S, check=False, capture_output=True).returncode


@pytest.fixture
def scripts(tools: Path, tmp_path: Path) -> Iterator[Any]:
    """Start a script of the example."""
    running: list[subprocess.Popen[str]] = []

    def start(script: str, *words: str, relay: str = "") -> subprocess.Popen[str]:
        folders = {name: str(tmp_path / name.lower()) for name in ("STATE", "EXCHANGE", "DATA")}
        environment = {**ENVIRONMENT, **folders, "PATH": f"{tools}:{os.environ['PATH']}", "TPMDP_RELAY": relay}
        running.append(
            subprocess.Popen(
                ["sh", str(FOLDER / script), *words],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        )
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, 9)
        process.communicate()


@pytest.mark.slow
@pytest.mark.process
def test_author_parties_and_relay_find_each_other(tmp_path: Path, scripts: Any) -> None:
    """What compose.yaml starts, on loopback and with two parties."""
    for name in ("state", "exchange", "data"):
        (tmp_path / name).mkdir()
    words = ("--parties", "north,south", "--records", "30", "--count", "age", "65", "--yes")
    tpmdp("init", "flu", *words, folder=tmp_path)
    for name in ("north", "south"):
        (tmp_path / "flu" / "trial" / name / f"{name}.csv").rename(tmp_path / "data" / f"{name}.csv")
    plain = tmp_path / "flu" / "study.toml"
    store = tmp_path / "relay.sqlite"
    relay = Process("tpmdp", "relay", "--port", 0, "--store", store, environment=ENVIRONMENT, folder=tmp_path)
    with relay:
        address = relay.line().split()[-1]
        assert (health(address), health(None), health("http://127.0.0.1:9"), health("nonsense:x")) == (0, 0, 1, 1)
        parties = [scripts("example-party.sh", name, relay=address) for name in ("north", "south")]
        author = scripts("example-author.sh", str(plain), "north", "south")
        out, errors = author.communicate(timeout=HANG_S)
        assert author.returncode == 0, errors
        assert "phrase: " in out
        for party in parties:
            out, errors = party.communicate(timeout=HANG_S)
            assert party.returncode == 0, errors
            assert "Answer for" in out
    assert sorted(path.name for path in (tmp_path / "exchange").iterdir()) == ["north.line", "south.line", "study.toml"]
    assert sorted(path.name for path in (tmp_path / "state").iterdir() if path.suffix == ".key") == [
        "north.key",
        "south.key",
    ]
