"""A process that has imported what children need, and forks them: a child then starts in milliseconds.

It reads no key, no ledger and no data: all that its children share is imported code. `warm_process` starts it and
speaks with it through one socket. It ends when that socket closes, so it does not outlive the process that started it.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import selectors
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Any, Final

REQUEST_HEAD: Final = struct.Struct("<I")  # the length of a request, which is JSON; its descriptors come with the head
PID: Final = struct.Struct("<i")  # the answer; the child's process descriptor comes with it
STATUS: Final = struct.Struct("<i")  # an exit code, or a signal's number below zero
DESCRIPTORS: Final = 4  # standard input, output and error of the child, and the pipe for its status
_NAME_MAX: Final = 15  # of a process in the system's list


class _WarmParent:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._selector = selectors.DefaultSelector()
        self._selector.register(control, selectors.EVENT_READ)

    def serve(self) -> dict[str, Any] | None:
        """Fork children until the socket closes. Returns None then, and its request in every child."""
        while True:
            for key, _ in self._selector.select():
                if key.data is not None:
                    self._reap(key.fd, *key.data)
                    continue
                head, descriptors, _, _ = socket.recv_fds(self._control, REQUEST_HEAD.size, DESCRIPTORS)
                data = self._read(REQUEST_HEAD.unpack(head)[0]) if head else b""
                if not data:
                    return None
                request = json.loads(data)
                if self._fork(request, descriptors):
                    return dict(request)

    def _read(self, size: int) -> bytes:
        """So many bytes, or nothing if the socket closes first."""
        parts = []
        while size and (part := self._control.recv(size)):
            parts.append(part)
            size -= len(part)
        return b"" if size else b"".join(parts)

    def _fork(self, request: dict[str, Any], descriptors: list[int]) -> bool:
        """Whether this is the child."""
        sys.path[:] = request["path"]
        for name in request["imports"]:
            with suppress(BaseException):  # even if it exits: the child imports it again, and reports the error
                importlib.import_module(name)
        *streams, status = descriptors
        gc.freeze()  # a collection in a child would copy every page
        pid = os.fork()
        if not pid:
            os.close(status)
            self._become_child(streams, request)
            return True
        for stream in streams:
            os.close(stream)
        process = os.pidfd_open(pid)
        self._selector.register(process, selectors.EVENT_READ, (pid, status))
        socket.send_fds(self._control, [PID.pack(pid)], [process])
        return False

    def _become_child(self, streams: list[int], request: dict[str, Any]) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data is not None:
                os.close(key.fd)
                os.close(key.data[1])
        self._selector.close()
        self._control.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        for number, name in enumerate(("stdin", "stdout", "stderr")):
            old = getattr(sys, name)  # it found /dev/null when it was opened, which can do more than a pipe
            raw = open(number, "wb" if number else "rb", closefd=False)  # noqa: SIM115
            setattr(sys, name, io.TextIOWrapper(raw, old.encoding, old.errors, line_buffering=number == 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if "numpy.random" in sys.modules:
            sys.modules["numpy.random"].seed()  # anew from the system, as Python does with its own generator
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["folder"])
        with suppress(OSError), open("/proc/self/comm", "w") as comm:  # its name in that list
            comm.write(" ".join([request["module"].removeprefix("tpmdp.engines."), *request["arguments"]])[:_NAME_MAX])

    def _reap(self, process: int, pid: int, status: int) -> None:
        self._selector.unregister(process)
        _, code = os.waitpid(pid, 0)
        os.close(process)
        with suppress(OSError):  # nobody waits for it any more
            os.write(status, STATUS.pack(os.waitstatus_to_exitcode(code)))
        os.close(status)


def main() -> None:
    """Serve the socket whose descriptor is the only argument; in a child, run the module it was asked for."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started us, and for the children
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as control:
        control.setblocking(True)
        request = _WarmParent(control).serve()
    if request is not None:
        _run(request["module"], request["arguments"])


def _run(module: str, arguments: list[str]) -> None:
    """Run a module as `python -m` does."""
    sys.argv[1:] = arguments
    if "." in module:
        sys.modules.pop(module, None)  # it is run once more, under its other name
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
