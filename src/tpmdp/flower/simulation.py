"""Flower simulations that only their own processes can reach. Every simulation of this package starts here.

The nodes of a simulation hold the keys and vectors of all parties, and a program that connects to its Ray can run code
in them. By default Ray listens on all interfaces, lets everybody in, joins a cluster that the environment or a file in
/tmp names, and shares a folder with all users. Here it listens on loopback, asks for a token that is drawn anew for
every process, starts a cluster of its own and works in a private folder.
"""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from logging import WARNING, FileHandler, getLogger
from pathlib import Path
from threading import Event, Thread, get_ident
from typing import Any, Final, cast

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.common import log
from flwr.serverapp import ServerApp

from tpmdp.errors import MissingDependencyError, TpmdpError
from tpmdp.flower.mod import APP_FAILED

_LOOPBACK: Final = "127.0.0.1"
_FOLLOW_S: Final = 0.2  # between two looks at what the clients warn of
FOLLOWER: Final = "tpmdp warnings"  # the thread that shows them
QUIET: Final = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
_SAFE: Final = {
    "RAY_AUTH_MODE": "token",
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # no clusters of several machines: Ray then binds to loopback
}
_TOKENS: Final = ("RAY_AUTH_TOKEN_PATH", "RAY_ADDRESS")  # would take precedence over what is set here
_SOCKET_PATH_MAX: Final = 103  # bytes of a socket's path, on every system
_SESSION_PATH: Final = len("/ray/session_2000-01-01_00-00-00_000000_4194304/sockets/plasma_store")


class SimulationError(TpmdpError):
    """Ray would not be safe, or does not start."""


def run_private_simulation(
    server: ServerApp, client: ClientApp, nodes: int, *, cpus: int = 2, folder: Path | None = None
) -> None:
    """Run a Flower simulation on loopback, with a token, in a private folder; `folder` is an existing private one.

    What tpmdp warns of in the clients' own logs is shown here, too: all clients are on this machine. Ray reads its
    settings when it is imported, so do not import it before.
    """
    secure_ray()
    from flwr.simulation import run_simulation

    with _private_folder(folder) as place, _shown_warnings(place.parent) as file:
        app = cast(ClientApp, _WarningApp(client, file))
        run_simulation(server, app, nodes, backend_config=cast(Any, backend(place, cpus)))


class _WarningApp:
    """A client app in a process of Ray, which nobody sees: what tpmdp warns of there also goes to a file."""

    def __init__(self, app: ClientApp, file: Path) -> None:
        self._app, self._file = app, file

    def __call__(self, message: Message, context: Context) -> Message:
        handler, logger = FileHandler(self._file, encoding="utf-8", delay=True), getLogger("flwr")
        handler.setLevel(WARNING)
        own = get_ident()
        handler.addFilter(lambda record: record.thread == own and record.getMessage().startswith("tpmdp:"))
        logger.addHandler(handler)
        try:
            return self._app(message, context)
        finally:
            logger.removeHandler(handler)
            handler.close()


@contextmanager
def _shown_warnings(folder: Path) -> Iterator[Path]:
    """A new file in a folder; each line that is added to it is logged while the block runs. Counts apps that failed."""
    over, failures = Event(), 0
    with tempfile.NamedTemporaryFile("r", dir=folder, suffix=".log", encoding="utf-8", errors="replace") as file:

        def follow() -> None:
            nonlocal failures
            is_last = False
            while not is_last:
                is_last = over.wait(_FOLLOW_S)
                for line in iter(file.readline, ""):
                    log(WARNING, "%s", line.rstrip())
                    failures += f": {APP_FAILED}: " in line

        thread = Thread(target=follow, name=FOLLOWER, daemon=True)
        thread.start()
        try:
            yield Path(file.name)
        finally:
            over.set()
            thread.join()
            if failures:  # after the server has ended: it must not know
                log(WARNING, "tpmdp: client apps that failed: %s (seen in simulation only)", failures)


def backend(folder: Path, cpus: int) -> dict[str, Any]:
    """What Flower is to start Ray with.

    >>> backend(Path("/tmp/private"), 2)["init_args"]["_node_ip_address"]
    '127.0.0.1'
    """
    init = {
        "address": "local",
        "_node_ip_address": _LOOPBACK,
        "_temp_dir": str(folder),
        "include_dashboard": False,
        "log_to_driver": False,
        "num_cpus": cpus,
    }
    return {"init_args": init, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}}


def secure_ray() -> None:
    """Set Ray's environment of this process and its children, and check that Ray obeys; may be called again.

    SimulationError: Ray was imported before with other settings. MissingDependencyError: this Ray has no tokens.
    """
    if "ray" not in sys.modules:
        for name in _TOKENS:
            os.environ.pop(name, None)
        os.environ.update({**QUIET, **_SAFE, "RAY_AUTH_TOKEN": secrets.token_hex(32)})
    try:
        from ray._private import ray_constants
        from ray._private.authentication.authentication_utils import is_token_auth_enabled
    except ImportError:
        raise MissingDependencyError("ray (with token authentication)", "flower-simulation", "to simulate") from None
    if not is_token_auth_enabled() or ray_constants.ENABLE_RAY_CLUSTER:
        raise SimulationError(
            "ray was imported before its settings were made safe: call tpmdp.flower.simulation.secure_ray() first"
        )


@contextmanager
def _private_folder(given: Path | None) -> Iterator[Path]:
    """A folder for Ray in one of this user alone, whose path is short enough for sockets. Ray opens its own to all."""
    if given is not None and _fits(given):
        yield given / "ray"
        return
    parent = None if _fits(Path(tempfile.gettempdir(), "tpmdp-ray-12345678")) else "/tmp"  # noqa: S108
    with tempfile.TemporaryDirectory(prefix="tpmdp-ray-", dir=parent, ignore_cleanup_errors=True) as name:
        yield Path(name, "ray")


def _fits(folder: Path) -> bool:
    return len(os.fsencode(folder)) + _SESSION_PATH <= _SOCKET_PATH_MAX
