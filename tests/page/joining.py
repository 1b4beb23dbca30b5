"""What tests of Take part share: a keyed study in the folder, the form as a browser would send it, a held session."""

from __future__ import annotations

import re
import threading
from html import unescape
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.page.browsing import TestClient, fields
from tests.patience import HANG_S
from tests.study.sessions import study as small_study
from tpmdp import Study
from tpmdp.errors import DeadlineError
from tpmdp.study.identity import write_key
from tpmdp.study.invitation import invitation

AGES = [70, 20, 66, 41]
RELAY = "http://127.0.0.1:9"
Sent = dict[str, list[str]]


def keyed(folder: Path, **changes: Any) -> Study:
    """A study whose parties have keys; that of north is in the folder, with its data and its invitation."""
    planned = small_study(deadline="30m", **changes)
    identities = {party.name: Ed25519PrivateKey.generate() for party in planned.parties}
    write_key(folder / "north.key", identities["north"])
    (folder / "north.csv").write_text("age\n" + "\n".join(map(str, AGES)) + "\n")
    made = planned.with_keys({name: key.public_key().public_bytes_raw() for name, key in identities.items()})
    (folder / "north.study.toml").write_text(invitation(made, "north", relay=RELAY))
    return made


def form_of(client: TestClient, **changes: str) -> Sent:
    """The form as it stands, with some fields changed."""
    return fields(client.get("/join").text) | {key.replace("_", "-"): [value] for key, value in changes.items()}


def ticked(client: TestClient) -> Sent:
    """The form with the boxes ticked, and the button pressed."""
    html = client.get("/join").text
    words = re.search(r'name="words" value="(compared [^"]+)"', html)
    assert words is not None
    value = re.search(r'name="agreed" value="([^"]+)"', html)
    assert value is not None
    return fields(html) | {"agreed": [unescape(value[1])], "words": [words[1]], "action": ["take-part"]}


class Gate:
    """Stands in for the session itself: it waits until the test lets it go on."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.open = threading.Event()
        self.error: Exception = DeadlineError("the deadline passed; south is missing: join again to resume")

    def take_part(self, *_: Any, **options: Any) -> None:
        self.calls.append(options)
        assert self.open.wait(HANG_S)
        raise self.error


def send(client: TestClient, what: str, name: str, body: bytes) -> Any:
    return client.post(f"/join/upload-{what}", content=body, headers={"x-file-name": name})
