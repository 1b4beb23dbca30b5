"""MPyC in this process: one party of one session, on our links, without pickles, and with openings that hide.

MPyC is global, so a process runs one session. Importing it parses the command line and changes the environment and the
logging of the process; all that is undone here. Three parts of it are replaced because they are not safe:

- MPyC pickles. Here its arrays travel as raw bytes (its own mode for mixed platforms), and using pickle is an error.
- MPyC opens products of two sharings as they are (degree 2t, in every comparison). A party that sees such a polynomial
  can factor it and, with its own share, learn the factors and so the secrets. Here every product is reshared before it
  is opened; tests/engines/mpyc_leak.py is the attack.
- A computation that fails stops the event loop, or waits without end. Here the session ends and says why.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import importlib.util
import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import numpy as np

from tpmdp.engines.direct.link import Link
from tpmdp.engines.direct.record import DirectError, described
from tpmdp.errors import InputError, MissingDependencyError, TpmdpError

_ARGUMENTS: Final = ["tpmdp", "--no-log", "--no-prss", "--no-uvloop", "--mix32-64bit"]
_VERSIONS: Final = (
    "0.11",
    "0.11.0",
)  # the versions whose private parts are known: others differ in what is replaced below
_GLOBALS: Final = ("sectypes", "asyncoro", "mpctools", "seclists", "secpols", "secgroups", "random", "statistics")
Fail = Callable[[TpmdpError], None]


class _Forbidden:
    """Stands in for a function or module that must never be used."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __getattr__(self, name: str) -> Any:
        raise DirectError(f"{self._what} must not be used in a session ({name})")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise DirectError(f"{self._what} must not be used in a session")


class _Quiet:
    """Stands in for the logging module: MPyC logs to the root logger, which may be somebody's standard output."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def _guarded() -> Iterator[None]:
    """Arguments, environment and logging as MPyC may see them; restored afterwards."""
    root, arguments, environment = logging.getLogger(), sys.argv, dict(os.environ)
    handlers, level = list(root.handlers), root.level
    sys.argv = list(_ARGUMENTS)
    for name in environment:
        if name.startswith("MPYC_") or name == "READTHEDOCS":
            del os.environ[name]
    try:
        yield
    finally:
        sys.argv = arguments
        os.environ.clear()
        os.environ.update(environment)
        root.handlers[:] = handlers
        root.setLevel(level)


def require_mpyc() -> str:
    """The version of MPyC, without importing it; refuses if it is not installed, or is another version."""
    if importlib.util.find_spec("mpyc") is None:
        raise MissingDependencyError("mpyc", "mpyc", "for functions other than sums")
    try:
        version = importlib.metadata.version("mpyc")
    except importlib.metadata.PackageNotFoundError:
        version = "unknown"
    if version not in _VERSIONS:
        rule = "must be 0.11, because private parts of it are replaced to be safe"
        raise InputError("version of mpyc", version, rule, "pip install 'mpyc==0.11'")
    return version


async def load() -> tuple[Any, Any]:
    """MPyC and its runtime module. Importing takes a while, so a worker does it before it reports that it is ready.

    A coroutine, because importing MPyC asks for an event loop and would create its own.
    """
    require_mpyc()
    with _guarded():
        return importlib.import_module("mpyc"), importlib.import_module("mpyc.runtime")


async def set_up(index: int, count: int, degree: int, *, sec_param: int, links: Mapping[int, Link], fail: Fail) -> Any:
    """MPyC's runtime for this party, on these links. `fail` is called with any error inside."""
    library, module = await load()
    options = library._get_arg_parser().parse_args([])
    options.no_prss = options.no_log = options.mix32_64bit = True
    options.no_async, options.M = False, count
    options.threshold, options.sec_param = degree, sec_param
    parties = [module.Party(party) for party in range(count)]
    for peer, link in links.items():
        parties[peer].protocol = link
    runtime = module.Runtime(index, parties, options)
    runtime._loop = asyncio.get_running_loop()
    for name in _GLOBALS:
        getattr(library, name).runtime = runtime
    module.mpc = runtime  # for functions that import it
    module.pickle, module.logging = _Forbidden("pickle"), _Quiet()
    for name in ("start", "shutdown", "transfer", "peek"):
        setattr(runtime, name, _Forbidden(f"mpc.{name}"))
    _share_in_numpy(library.thresha)
    _open_safely(runtime, library.asyncoro)
    _read_strictly(library.finfields.FiniteFieldElement)
    _end_loudly(runtime, library.asyncoro, fail)
    return runtime


def _share_in_numpy(thresha: Any) -> None:
    """Share whole arrays: MPyC's mode without pickles shares number by number, which takes three times as long."""
    plain_split, plain_recombine = thresha.random_split, thresha.recombine

    def split(field: Any, secrets: Any, degree: int, count: int) -> Any:
        values = secrets.value if isinstance(secrets, field.array) else secrets
        if not isinstance(values, np.ndarray) or not isinstance(field.modulus, int):
            return plain_split(field, secrets, degree, count)
        coefficients = [_uniform(field.modulus, len(values)) for _ in range(degree)]
        shares = []
        for place in range(1, count + 1):
            share = np.zeros(len(values), dtype=object)
            for coefficient in coefficients:
                share = (share + coefficient) * place
            shares.append((share + values) % field.modulus)
        return shares

    def recombine(field: Any, points: Any, place: Any = 0) -> Any:
        places, shares = zip(*points, strict=True)
        lengths = {len(share) for share in shares}
        if len(lengths) > 1:
            raise DirectError("a party sent shares of a wrong length")
        if place != 0 or 0 in lengths or isinstance(shares[0][0], field):
            return plain_recombine(field, points, place)
        factors = thresha._recombination_vector(field, places, 0)
        parts = (np.array(share, dtype=object) * factor for share, factor in zip(shares, factors, strict=True))
        return sum(parts) % field.modulus

    thresha.random_split, thresha.recombine = split, recombine


def _uniform(order: int, count: int) -> Any:
    """Random numbers below the order, each within 2^-128 of uniform, from one read of the system's generator.

    >>> sorted(set(_uniform(3, 1000)))
    [0, 1, 2]
    """
    width = (order.bit_length() + 7) // 8 + 16
    data = os.urandom(width * count)
    numbers = (int.from_bytes(data[start : start + width], "little") % order for start in range(0, len(data), width))
    return np.fromiter(numbers, dtype=object, count=count)


def _open_safely(runtime: Any, asyncoro: Any) -> None:
    """Reshare before opening anything with a higher degree than the threshold."""
    plain = runtime.output

    async def reshared(x: Any, receivers: Any, raw: bool) -> Any:
        await runtime.returnType(asyncio.Future)
        return await plain(await runtime.gather(runtime._reshare(x)), receivers, None, raw)

    reshared.__annotations__.clear()  # MPyC takes them for secure types
    reshare_and_open = asyncoro.mpc_coro(reshared)

    def output(x: Any, receivers: Any = None, threshold: int | None = None, raw: bool = False) -> Any:
        if threshold is None or threshold == runtime.threshold:
            return plain(x, receivers, None, raw)
        return reshare_and_open(x, receivers, raw)

    runtime.output = output


def _read_strictly(element: Any) -> None:
    """Accept only shares from the network that are elements of the field."""
    plain = element.from_bytes.__func__

    def from_bytes(cls: Any, data: bytes) -> list[int]:
        if len(data) % cls.byte_length:
            raise DirectError("a party sent shares of a wrong length")
        values: list[int] = plain(cls, data)
        if values and max(values) >= cls.order:
            raise DirectError("a party sent shares that are not in the field")
        return values

    element.from_bytes = classmethod(from_bytes)


def _end_loudly(runtime: Any, asyncoro: Any, fail: Fail) -> None:
    """An error in a computation ends the session; MPyC would stop the loop or wait without end."""
    plain = asyncoro._reconcile

    def reconcile(declared: Any, task: asyncio.Task[Any]) -> None:
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            plain(declared, task)
        else:
            runtime._pc_level -= 1
            fail(described(error))

    def handle(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), Exception):
            fail(described(context["exception"]))

    asyncoro._reconcile = reconcile
    runtime._loop.set_exception_handler(handle)
