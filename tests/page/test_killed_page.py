"""A page killed at every step of a session: the command line finishes it with the same files, charged once."""

from __future__ import annotations

import signal
from contextlib import suppress
from http.client import RemoteDisconnected
from urllib.error import URLError

import pytest

from tests.faults.test_crashes import STEPS
from tests.page.conftest import running_page
from tests.page.five import OURS, Five, Visitor, outcome
from tests.patience import HANG_S

pytestmark = pytest.mark.process

QUICK = "after:Ledger.charge:1"


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=[] if step == QUICK else pytest.mark.long, id=step) for step in STEPS]
)
def test_a_session_of_a_page_killed_at_any_step_is_finished_on_the_command_line(five: Five, step: str) -> None:
    others = five.join_others()
    with running_page(five.folder, harm=f"kill:{step}") as page:
        visitor = Visitor(page)
        with suppress(URLError, RemoteDisconnected, ConnectionError):  # it may die before it can answer
            visitor.post("/join", visitor.decided())
        assert page.process.wait(HANG_S) == -signal.SIGKILL
    assert outcome(five.join(OURS))["answers"] is not None
    for process in others:
        outcome(process)
    five.check_charged_once()
