"""One party's part of sessions of two, in SPU's interpreter: a script that imports nothing of tpmdp.

It reads tasks from standard input and writes replies; see `pair_process`, the other side of these pipes:

    out: {"ready", "versions"}, once its folder, the first argument, is made and SPU is loaded
    in: tasks to come             out: {"prepared"}, once they are compiled
    in: task, own numbers         out: {"share"}, and our share of the result, modulo 2^64
    in: evaluation, its numbers   out: {"result"}, and the function in the clear, of made-up inputs

It listens on a socket in its private folder, to which only our own tunnel connects. It ends when its input does, and
removes the folder: its parent may have been killed. What SPU prints goes nowhere and its log into that folder, errors
are reported by their type only, no memory is dumped, and pickle is refused from the moment SPU is loaded.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import pickle
import queue
import resource
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any

RECEIVE_MS = 24 * 3600 * 1000  # the session's deadline ends this process
CONNECT_MS = 100
LOG_MAX = 1 << 20  # bytes
ARITHMETIC = b"cheetah.AShr<FM64>"
UNPACKED_MOST = 512  # results that are cheaper to send one by one than the 10 MB of keys that packing them needs
PROGRAMS_MAX = 64  # that are stored
PACKAGES = ("spu", "jax", "jaxlib", "numpy")


def main() -> None:
    """Work in a folder of our own, and remove it in the end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent, with which we end
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    out = os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    folder = sys.argv[1]
    os.mkdir(folder, 0o700)  # nobody else has made it before
    try:
        _work(folder, out)
    finally:  # also when the parent is gone and nothing can be written
        _leave(folder)


def _leave(folder: str) -> None:
    """End, without the folder; it is renamed first, because SPU may be making a socket in it."""
    renamed = f"{folder}-"
    with suppress(OSError):
        os.rename(folder, renamed)
    shutil.rmtree(renamed, ignore_errors=True)
    os._exit(0)


def _work(folder: str, out: IO[bytes]) -> None:
    """Load SPU, say so, and do one task after another."""
    lines: queue.SimpleQueue[tuple[Any, bytes]] = queue.SimpleQueue()
    try:
        threading.Thread(target=_read, args=(os.fdopen(os.dup(0), "rb"), lines, folder), daemon=True).start()
        _load(f"{folder}/log")
    except Exception as error:
        _write(out, {"error": type(error).__name__})
        return
    _write(out, {"ready": True, "versions": {name: importlib.metadata.version(name) for name in PACKAGES}})
    while True:
        task, data = lines.get()
        try:
            if task["do"] == "prepare":
                for each in task["tasks"]:
                    _compiled(each)
                _write(out, {"prepared": True})
            elif task["do"] == "evaluate":
                _write(out, *_evaluated(task, data))
            elif task["do"] == "compute":
                share = _Pair(task).share(task, data)
                _write(out, {"share": len(share)}, share)
        except Exception as error:
            _write(out, {"error": type(error).__name__})


def _read(source: IO[bytes], lines: queue.SimpleQueue[tuple[Any, bytes]], folder: str) -> None:
    """Tasks, each with its numbers; this process ends with its input, whatever it is doing."""
    while line := source.readline():
        task = json.loads(line)
        lines.put((task, source.read(task.get("bytes", 0))))
    _leave(folder)


def _write(out: IO[bytes], report: dict[str, Any], data: bytes = b"") -> None:
    out.write(json.dumps(report).encode() + b"\n" + data)
    out.flush()


def _load(log: str) -> None:
    """Import everything, then refuse pickle."""
    import jax
    from spu import libspu

    jax.config.update("jax_enable_x64", True)
    options = libspu.logging.LogOptions()
    options.enable_console_logger = False
    options.system_log_path, options.max_log_file_size, options.max_log_file_count = log, LOG_MAX, 1
    options.log_level = libspu.logging.LogLevel.ERROR
    libspu.logging.setup_logging(options)

    def forbidden(*_: Any, **__: Any) -> Any:
        raise RuntimeError("pickle")

    pickle.load = pickle.loads = forbidden
    pickle.Unpickler = forbidden  # type: ignore[misc,assignment]


def _function(task: dict[str, Any]) -> Callable[[Any, Any], Any]:
    """The function of the task, from its file, which is named by the program that started us."""
    spec = importlib.util.spec_from_file_location("tpmdp_pair_function", task["file"])
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function: Callable[[Any, Any], Any] = getattr(module, task["function"])
    return function


def _arrays(shapes: list[list[int]], data: bytes) -> list[Any]:
    import numpy as np

    arrays, start = [], 0
    for shape in shapes:
        size = 8 * int(np.prod(shape))
        arrays.append(np.frombuffer(data[start : start + size], dtype="<i8").astype(np.int64).reshape(shape))
        start += size
    return arrays


def _evaluated(task: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
    """The function of many pairs of inputs, in the clear: for a search among made-up inputs."""
    import jax
    import numpy as np

    left, right = _arrays(task["shapes"], data)
    result = np.asarray(jax.jit(jax.vmap(_function(task)))(left, right))
    whole = result.dtype == np.int64 and result.ndim == 2
    return {"result": list(result.shape), "whole": whole}, result.astype("<i8").tobytes() if whole else b""


class _Pair:
    """A session with one other party."""

    def __init__(self, task: dict[str, Any]) -> None:
        from spu import libspu
        from spu.libspu import link

        description = link.Desc()
        for rank, socket in enumerate(task["sockets"]):
            description.add_party(str(rank), f"unix:{socket}")
        description.recv_timeout_ms = RECEIVE_MS
        description.http_timeout_ms = RECEIVE_MS
        description.connect_retry_interval_ms = CONNECT_MS
        description.connect_retry_times = RECEIVE_MS // CONNECT_MS
        self._link = link.create_brpc(description, task["rank"])
        self._config = libspu.RuntimeConfig()
        self._config.protocol = libspu.ProtocolKind.CHEETAH
        self._config.field = libspu.FieldType.FM64
        self._config.experimental_enable_colocated_optimization = True  # inputs stay with their owner
        self._config.cheetah_2pc_config.enable_mul_lsb_error = False  # every bit counts
        few = task["size"] <= UNPACKED_MOST
        self._config.cheetah_2pc_config.disable_matmul_pack = few

    def share(self, task: dict[str, Any], data: bytes) -> bytes:
        """Our additive share of the function plus both parties' noise."""
        import numpy as np
        from spu import api, libspu

        rank, shapes = task["rank"], task["shapes"]  # inputs belong to both in turn: left and right, then their noise
        executable = _compiled(task)
        runtime, io = api.Runtime(self._link, self._config), api.Io(2, self._config)
        mine = iter(_arrays(shapes[rank::2], data))
        for place, shape in enumerate(shapes):
            values = next(mine) if place % 2 == rank else np.zeros(shape, dtype=np.int64)
            shares = io.make_shares(values, libspu.Visibility.VIS_SECRET, place % 2)
            runtime.set_var(f"in{place}", shares[rank])
        runtime.run(executable)
        self._link.stop_link()  # returns when both sides have all they need
        result = runtime.get_var("out0")
        if ARITHMETIC not in result.meta:
            raise TypeError("no arithmetic share")
        parts = []
        for each in result.share_chunks:
            chunk = libspu.ValueChunk()
            chunk.ParseFromString(each)
            parts.append(chunk.content)
        return b"".join(parts)


_programs: dict[str, Any] = {}


def _compiled(task: dict[str, Any]) -> Any:
    """The function in grid steps, plus the noise of both parties if there are inputs for it."""
    import numpy as np
    from spu import libspu
    from spu.utils import frontend

    key = json.dumps([task[name] for name in ("file", "function", "shapes", "scale")])
    if key in _programs:
        return _programs[key]
    function, scale, shapes = _function(task), task["scale"], task["shapes"]

    def noisy(left: Any, right: Any, *noises: Any) -> Any:
        return sum(noises, function(left, right) * scale)

    executable, _ = frontend.compile(
        frontend.Kind.JAX,
        noisy,
        tuple(np.zeros(shape, dtype=np.int64) for shape in shapes),
        {},
        [f"in{place}" for place in range(len(shapes))],
        [libspu.Visibility.VIS_SECRET] * len(shapes),
        lambda outputs: [f"out{place}" for place in range(len(outputs))],
        static_argnums=(),
        static_argnames=None,
        copts=libspu.CompilerOptions(),
    )
    if len(_programs) >= PROGRAMS_MAX:
        _programs.clear()
    _programs[key] = executable
    return executable


if __name__ == "__main__":
    main()
