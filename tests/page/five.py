"""Five parties, one of them the page; and a visitor of the page without a browser."""

from __future__ import annotations

import json
import random
import re
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar
from pathlib import Path
from typing import TYPE_CHECKING

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.faults.consortium import free_port
from tests.page.browsing import fields
from tests.patience import DEADLINE, HANG_S
from tests.processes import Process
from tpmdp import Study
from tpmdp.ledger import Ledger, Status
from tpmdp.study.identity import public_text, read_key, write_key
from tpmdp.study.invitation import write_invitations
from tpmdp.study.session import key_of
from tpmdp.study.status import study_status

if TYPE_CHECKING:
    from tests.page.conftest import RunningPage

NAMES = ("statistics_office", "hospital_north", "hospital_south", "insurer", "university")
OURS = "hospital_north"  # the page
RECORDS = 60


class Five:
    """Five parties with their files, a relay, and the command line of four of them."""

    def __init__(self, state: Path, folder: Path) -> None:
        self.state, self.folder, self.processes = state, folder, list[Process]()
        state.mkdir()
        draw, parties = random.Random(7), []
        for name in NAMES:
            place = folder if name == OURS else state
            identity = Ed25519PrivateKey.generate()
            write_key(place / f"{name}.key", identity)
            ages = [draw.randint(18, 99) for _ in range(RECORDS)]
            (place / f"{name}.csv").write_text("age\n" + "\n".join(map(str, ages)) + "\n")
            parties.append({"name": name, "epsilon": 1.0, "records": RECORDS, "public_key": public_text(identity)})
        document = {
            "name": "ages",
            "delta": 1e-6,
            "threshold": 2,
            "receivers": ["statistics_office", OURS],
            "deadline": DEADLINE,
            "parties": parties,
            "queries": [
                {"name": "over 64", "kind": "count", "column": "age", "at_least": 65},
                {"name": "ages", "kind": "histogram", "column": "age", "edges": [0, 40, 65, 120]},
            ],
        }
        self.study = Study.parse(document)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        write_invitations(self.study, state, relay=self.url)
        (state / f"{OURS}.study.toml").rename(folder / f"{OURS}.study.toml")
        relay = self.start("relay", "--port", port, "--store", state / "relay.sqlite")
        assert "listening" in relay.line()

    def start(self, *words: object) -> Process:
        self.processes.append(Process("tpmdp", *words))
        return self.processes[-1]

    def join(self, name: str) -> Process:
        place = self.folder if name == OURS else self.state
        words = ["join", place / f"{name}.study.toml", "--as", name, "--key", place / f"{name}.key"]
        return self.start(*words, "--data", place / f"{name}.csv", "--relay", self.url, "--json")

    def join_others(self) -> list[Process]:
        return [self.join(name) for name in NAMES if name != OURS]

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            process.close()

    @property
    def ledger(self) -> Path:
        return self.folder / f"{OURS}.ledger"

    def status(self) -> Status:
        """What our ledger says about the session."""
        if not self.ledger.exists():
            return "unknown"
        with Ledger.open(self.ledger) as ledger:
            return ledger.status(key_of(self.study.terms()))

    def agreed(self) -> int:
        """How many have agreed, as the relay says."""
        identity = read_key(self.folder / f"{OURS}.key")
        return sum(each.agreed for each in study_status(self.study, identity, self.url).parties)

    def check_charged_once(self) -> None:
        """The ledger has one charge, as the plan says, and nothing is wrong in it."""
        with Ledger.open(self.ledger) as ledger:
            ledger.verify()
            assert sum(entry.is_charge for entry in ledger.entries()) == 1
            assert ledger.status(key_of(self.study.terms())) == "settled"


def outcome(process: Process) -> dict[str, object]:
    """What `tpmdp join --json` printed at its end."""
    out, errors = process.communicate(HANG_S)
    assert process.wait() == 0, errors
    value: dict[str, object] = json.loads(out.splitlines()[-1])["outcome"]
    return value


class Visitor:
    """A browser without its window: the token, a cookie and forms."""

    def __init__(self, page: RunningPage) -> None:
        self._url = page.url
        self._opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
        self._opener.addheaders = [("Origin", page.url)]
        self.post("/enter", {"secret": page.token})

    def post(self, path: str, values: dict[str, str]) -> str:
        body = urllib.parse.urlencode(values).encode()
        with self._opener.open(self._url + path, body, timeout=HANG_S) as answer:
            return str(answer.read(), "utf-8")

    def get(self, path: str) -> str:
        with self._opener.open(self._url + path, timeout=HANG_S) as answer:
            return str(answer.read(), "utf-8")

    def decided(self) -> dict[str, str]:
        """The form as it stands, with the box ticked and the button pressed."""
        html = self.get("/join")
        agreed = re.search(r'name="agreed" value="([^"]+)"', html)
        words = re.search(r'name="words" value="(compared [^"]+)"', html)
        assert agreed is not None, html
        assert words is not None, html
        form = {name: values[0] for name, values in fields(html).items()}
        return form | {"agreed": agreed[1], "words": words[1], "action": "take-part"}
