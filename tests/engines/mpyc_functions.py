"""Functions and workers for the tests of the mpyc engine; run in worker processes, never in that of pytest."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tpmdp.engines.direct import worker
from tpmdp.engines.direct.job import Parameters
from tpmdp.engines.mpyc import runtime
from tpmdp.engines.mpyc.functions import maximum, total


def plus_degree(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """The sum and, on top, the degree of the shares."""
    return total(mpc, inputs, parameters) + mpc.threshold


def stalls(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """The party of parameter `who` says that it is here, and then nothing more."""
    if mpc.pid == parameters["who"]:
        (Path(parameters["folder"]) / "here").touch()
        time.sleep(600)
    return maximum(mpc, inputs, parameters)


def fails(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """One party has an error of its own, whose text holds private data."""
    if mpc.pid == 1:
        raise ValueError("private 1234")
    return maximum(mpc, inputs, parameters)


def noisy(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """Prints and logs whatever it can."""
    print("a print")
    sys.stdout.flush()
    logging.warning("a warning")
    sys.modules["mpyc.runtime"].logging.warning("another")
    return total(mpc, inputs, parameters)


def short(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """A result of the wrong length."""
    return total(mpc, inputs, parameters)[:1]


def transfers(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """Uses MPyC's pickled messages."""
    mpc.transfer("hello")
    return total(mpc, inputs, parameters)


class Spy:
    """What party 1 sees when a comparison ends: the shares of e r, its own share of e, and c (MPyC's names)."""

    def __init__(self, mpc: Any, path: Path) -> None:
        self._path = path
        thresha: Any = sys.modules["mpyc.thresha"]
        self._e: Any = None
        self._c: Any = None
        self._product: list[int] = []
        self._plain: Any = mpc.np_is_zero_public, mpc.output, thresha.recombine
        mpc.np_is_zero_public, mpc.output, thresha.recombine = self._is_zero, self._output, self._recombine

    def _is_zero(self, e: Any) -> Any:
        self._e = e
        return self._plain[0](e)

    def _output(self, x: Any, receivers: Any = None, threshold: Any = None, raw: bool = False) -> Any:
        opened = self._plain[1](x, receivers, threshold, raw)
        if threshold is None and receivers is None:
            self._c = self._c or opened
        elif threshold is not None:
            self._product = [int(value) for value in x.value]
        return opened

    def _recombine(self, field: Any, points: Any, x_rs: Any = 0) -> Any:
        shares = {x: [int(value) for value in values] for x, values in points}
        known = self._e is not None and self._e.share.done()  # before that MPyC opens another product
        if known and len(shares) == 3 and shares[1] == self._product:
            e = [int(value) for value in self._e.share.result().value]
            c = [int(value) for value in self._c.result().value]
            seen = {"p": int(field.modulus), "product": [shares[x] for x in (1, 2, 3)], "e": e, "c": c}
            self._path.write_text(json.dumps(seen))
        return self._plain[2](field, points, x_rs)


def spied_maximum(mpc: Any, inputs: Sequence[Any], parameters: Parameters) -> Any:
    """The maximum, while party 1 keeps what it is sent."""
    if mpc.pid == 0:
        Spy(mpc, Path(parameters["folder"]) / "seen.json")
    return maximum(mpc, inputs, parameters)


def work_as_mpyc_comes() -> None:
    """A worker that opens products of shares as MPyC does."""
    runtime._open_safely = lambda *_: None
    worker.main()


def work_without_pickle() -> None:
    """A worker in which pickling or unpickling anything ends the process."""
    import pickle

    def explode(*_: Any, **__: Any) -> Any:
        raise SystemExit("pickle was used")

    for name in ("dump", "dumps", "load", "loads", "Pickler", "Unpickler", "_dumps", "_loads"):
        setattr(pickle, name, explode)
    worker.main()
