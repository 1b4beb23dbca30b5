"""Drop-outs and deadlines that wait for events and not for time, so that a busy machine changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tpmdp._util import clock
from tpmdp.engines.relay import drive, mailbox
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.party import PartySession

FAR_S = 1e6


def drops_only(lost: set[int]) -> Callable[[PartySession], list[bytes]]:
    """`PartySession.drop_missing` that waits on for a party that is merely slow: it leaves out none but these."""
    original = PartySession.drop_missing

    def drop_missing(party: PartySession) -> list[bytes]:
        waiting = set(party.waiting_for())
        only_lost = waiting <= lost
        if party.step == "receive" and party.terms.guarantee == "statistical":
            only_lost = lost <= waiting  # the others wait for their pads, and are not left out
        may = only_lost or party.step not in ("agree", "keys", "receive")
        return original(party) if may else []

    return drop_missing


def pass_deadline_after(event: Path) -> None:
    """In this process every deadline passes once the file is there and the party has read all that was sent to it."""
    fetch, shift_s = Mailbox.fetch, 0.0

    def watched(
        self: Mailbox, after: Mapping[Kind, int], wait_s: float, *more: Any, **senders: Any
    ) -> list[tuple[int, bytes]]:
        nonlocal shift_s
        has_happened = event.exists()
        batch = fetch(self, after, min(wait_s, 0.5), *more, **senders)
        if has_happened and not batch:
            shift_s = FAR_S
        return batch

    def now_s() -> float:
        return clock.now_s() + shift_s

    Mailbox.fetch = watched  # type: ignore[method-assign]
    for module in (drive, mailbox):
        vars(module)["now_s"] = now_s
