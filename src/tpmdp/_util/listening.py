"""A server's socket, its TLS and its log: what the relay and the page share."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from tpmdp._util.files import readable
from tpmdp.errors import FileError, InputError, shown

_CERTIFICATE_MAX: Final = 1 << 20


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 lets the system choose."""
    try:
        resolved = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = resolved[0]
        # Not socket.create_server: it leaves the protocol open, and asyncio then leaves Nagle's algorithm on, which
        # holds every answer back for 40 ms.
        listener = socket.socket(family, kind, protocol)
        try:
            if os.name == "posix":
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(2048)
        except BaseException:
            listener.close()
            raise
        return listener
    except (socket.gaierror, UnicodeError):
        raise InputError("host", host, "cannot be resolved", "name an address of this machine") from None
    except OverflowError:
        raise InputError("port", port, "must be from 0 to 65535", "choose another port") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise InputError("port", port, "is in use", "stop the other program or choose another port") from None
        if error.errno in (errno.EACCES, errno.EPERM):
            raise InputError("port", port, "needs the rights of an administrator", "use one from 1024") from None
        reason = f"cannot be listened on ({error.strerror or error})"
        raise InputError("host", host, reason, "name an address of this machine") from None


def tls_context(certificate: Path | None, private_key: Path | None) -> ssl.SSLContext | None:
    """TLS of a server with these PEM files, or None without them."""
    if certificate is None and private_key is None:
        return None
    if certificate is None or private_key is None:
        given = "private key" if certificate is None else "certificate"
        raise InputError("TLS", f"{given} only", "needs certificate and private key", "give both")
    for path in (certificate, private_key):
        with readable(path, _CERTIFICATE_MAX), path.open("rb"):
            pass
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(certificate, private_key, password="")  # else it asks at the terminal
    except (ssl.SSLError, ValueError) as error:
        if "mismatch" in str(error).lower():
            raise FileError(
                private_key, f"does not belong to {certificate}", "give the key of this certificate"
            ) from None
        problem = f"and {private_key} are not a certificate and its unencrypted private key in PEM"
        raise FileError(certificate, problem, "check both files") from None
    except OSError as error:
        problem = f"cannot be read ({error.strerror or error})"
        raise FileError(certificate, problem, "check the file and its rights") from None
    return context


class _OneLine(logging.Handler):
    """Errors of the libraries as one line each on standard error, without a traceback."""

    def __init__(self, server: str) -> None:
        super().__init__(logging.ERROR)
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, asyncio.CancelledError) or record.getMessage().startswith("Cancel "):
            return  # requests that were cut off because the server stops
        reason = "" if error is None else f" ({type(error).__name__}: {error})"
        with suppress(OSError, ValueError):
            sys.stderr.write(
                f"tpmdp: {self._server}: " + shown(" ".join((record.getMessage() + reason).split()), 500) + "\n"
            )
            sys.stderr.flush()


@contextmanager
def one_line_log(server: str) -> Iterator[None]:
    """While it lasts, errors of the libraries are one line each on standard error, without a traceback."""
    handler = _OneLine(server)
    loggers = [logging.getLogger(name) for name in ("uvicorn.error", "asyncio", "tpmdp.page")]
    before = [logger.propagate for logger in loggers]
    for logger in loggers:
        logger.addHandler(handler)
        logger.propagate = False
    try:
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.removeHandler(handler)
            logger.propagate = propagate
