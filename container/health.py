"""Health of a container: whether the relay that TPMDP_RELAY names answers. Exit code 0: it does; 1: it does not.

A relay asks itself. A party without TPMDP_RELAY needs none, and is healthy as long as it runs. Nothing is sent but the
question, and nothing is read but the status.
"""

from __future__ import annotations

import http.client
import os
import ssl
import sys
from typing import Final
from urllib.parse import urlsplit

TIMEOUT_S: Final = 4.0
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def main() -> int:
    """Ask the relay once."""
    address = os.environ.get("TPMDP_RELAY", "")
    if not address:
        return 0
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port
        connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_S)
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=TIMEOUT_S, context=trust(host))
        connection.request("GET", "/health")
        status = connection.getresponse().status
    except (OSError, ValueError, http.client.HTTPException) as error:
        sys.stdout.write(f"{address} cannot be used: {error}\n")
        return 1
    sys.stdout.write(f"{address} answers {status}\n")
    return 0 if status == 200 else 1


def trust(host: str) -> ssl.SSLContext:
    """Public authorities, or the certificate in TPMDP_CA. A relay that asks itself has no name to check."""
    context = ssl.create_default_context(cafile=os.environ.get("TPMDP_CA"))
    if host in LOOPBACK:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


if __name__ == "__main__":
    sys.exit(main())
