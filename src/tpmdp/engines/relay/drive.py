"""The loop that takes one party through its session with the relay, until the deadline."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from tpmdp._util.clock import now_s
from tpmdp.engines.relay.mailbox import PAUSE_S, Mailbox, RelayChangedError
from tpmdp.errors import DeadlineError, shown
from tpmdp.protocol.messages import Kind, MessageError, decode
from tpmdp.protocol.parts import compare_text
from tpmdp.protocol.party import PartySession, TooEarlyError

_ALL_WAIT_S: Final = 2.0

Watch = Callable[[PartySession, int], None]  # called with the party and the bytes it has sent


def drive(
    make: Callable[[], PartySession],
    mailbox: Mailbox,
    deadline: float,
    failed: int = 0,
    watch: Watch = lambda *_: None,
    patience_s: float = math.inf,
) -> tuple[PartySession, list[bytes]]:
    """Take a party through its session; returns it when done, with the messages it has yet to send (`mailbox.post`).

    `make` creates the party from its stored secrets; it is called again when the relay may have lost messages.
    `deadline` is a time of `now_s`. `failed` is the attempt that failed before, if any: its messages are read first.
    When nothing has come for `patience_s`, the lead receiver goes on without the parties that may drop out.
    """
    while True:
        party = make()
        try:
            return party, _Drive(party, mailbox, deadline, watch=watch, patience_s=patience_s).run(failed)
        except RelayChangedError:
            continue
        except DeadlineError as error:
            raise _LateError(party, error) from None


class _LateError(DeadlineError):
    """A deadline that passed, with the attempt the party was in."""

    def __init__(self, party: PartySession, error: DeadlineError) -> None:
        self.attempt = party.attempt
        super().__init__(str(error))


class _Drive:
    """The state of the loop: how far the mailbox has been read."""

    def __init__(self, party: PartySession, mailbox: Mailbox, deadline: float, watch: Watch, patience_s: float) -> None:
        self._party, self._mailbox, self._deadline, self._watch = party, mailbox, deadline, watch
        self._patience_s = patience_s if party.is_lead and party.may_drop else math.inf
        self._moved = now_s()  # when the lead receiver last got on
        self._place: tuple[object, ...] = ()
        self._seen = dict.fromkeys(Kind, 0)
        self._asked: dict[Kind, frozenset[int]] = {}  # from whom messages of some kinds were asked for
        self._early: dict[Kind, int] = {}  # the lowest number of a message that came too early
        self._pause = 0.0
        self._progress = False  # whether the last batch held anything useful

    def run(self, failed: int) -> list[bytes]:
        party, mailbox = self._party, self._mailbox
        mailbox.post(party.start())
        looking, is_first = failed == party.attempt, True  # what lies there is read before anything is said
        while True:
            self._check_deadline()
            began, wait_s = now_s(), 0.0 if looking or is_first else self._deadline - now_s()
            least = max(1, party.missing)
            if least > 1:  # one request for all of them; a new attempt must not wait long for that
                wait_s = min(wait_s, _ALL_WAIT_S)
            wait_s = max(0.0, min(wait_s, self._moved + self._patience_s - now_s()))
            batch = self._fetch(wait_s, least)
            left = self._deliver(batch)
            if looking and left is None and not self._progress:
                looking = False  # all messages of the failed attempt are read, and it did not finish
                if party.attempt == failed:
                    mailbox.post(party.retry())
                continue
            self._watch(party, mailbox.bytes_sent)
            if left is None:
                left = self._pair()
            if left is not None:
                return left
            self._go_on()
            self._rest(now_s() - began < PAUSE_S[0] and not is_first)
            is_first = False

    def _go_on(self) -> None:
        """At the lead receiver: go on without parties that may drop out, if nothing has come for long."""
        party = self._party
        place = (party.attempt, party.step, tuple(party.waiting_for())) if self._patience_s < math.inf else ()
        if place != self._place:  # and not whatever somebody says
            self._place, self._moved = place, now_s()
        elif now_s() - self._moved >= self._patience_s:
            self._moved = now_s()
            again = self._party.drop_missing()
            if again:
                self._mailbox.post(again)
                self._look_again()

    def _pair(self) -> list[bytes] | None:
        """At a holder of columns: compute with the others; what is left to send once the party is done."""
        if not self._party.is_to_pair:
            return None
        out = self._party.pair(self._is_news)
        if self._party.done:
            return out
        if out:
            self._mailbox.post(out)
        return None

    def _is_news(self) -> bool:
        """Whether there is a message that was not read yet."""
        return bool(self._fetch(0.0))

    def _fetch(self, wait_s: float, least: int = 1) -> list[tuple[int, bytes]]:
        senders = {kind: each for kind, each in self._party.senders.items() if kind in self._party.expects}
        for kind, each in senders.items():
            if not each <= self._asked.get(kind, each):  # of others, too, than before: their messages may be older
                self._seen[kind] = 0
        self._asked = dict(senders)
        after = {kind: self._seen[kind] for kind in self._party.expects}
        return self._mailbox.fetch(after, wait_s, least, senders=senders)

    def _look_again(self) -> None:
        """A new attempt has begun: messages that came too early may be useful now."""
        for early, lowest in self._early.items():
            self._seen[early] = min(self._seen[early], lowest - 1)
        self._early.clear()

    def _deliver(self, batch: list[tuple[int, bytes]]) -> list[bytes] | None:
        """Hand over a batch; returns what is left to send once the party is done."""
        party, self._progress = self._party, False
        for number, data in batch:
            self._check_deadline()
            try:
                kind = decode(data).kind
            except MessageError:
                continue  # no honest relay stores this
            attempt = party.attempt
            fresh = number > self._seen[kind]
            try:
                out = party.receive(data)
                self._progress |= fresh
            except MessageError:
                out = []  # not signed by the party it names, or of another session
            except TooEarlyError:
                out = []  # read again when a new attempt has begun
                self._early[kind] = min(number, self._early.get(kind, number))
            self._seen[kind] = max(self._seen[kind], number)
            if party.done:
                return out
            if out:
                self._mailbox.post(out)
            if party.attempt != attempt:
                self._look_again()
        return None

    def _rest(self, at_once: bool) -> None:
        """Pause: a relay that answers at once with nothing useful must not keep us busy."""
        if self._progress or not at_once:
            self._pause = 0.0
        else:
            self._pause = min(max(2 * self._pause, PAUSE_S[0]), PAUSE_S[1])
            time.sleep(max(0.0, min(self._pause, self._deadline - now_s())))

    def _check_deadline(self) -> None:
        if now_s() >= self._deadline:
            raise DeadlineError(_late(self._party))


def _late(party: PartySession) -> str:
    if party.left_out:
        own = party.terms.spec.name(party.index)
        return f"the deadline passed, and the others went on without {own}: its data are in no answer, any charge stays"
    names = [party.terms.spec.name(other) for other in party.waiting_for()]
    listed = shown(", ".join(names), 400)
    differ = party.difference_texts()
    if differ:
        return compare_text(differ)
    if party.step in ("agree", "keys") and len(names) == party.terms.count - 1:
        listed += " (a study with another name, session or key is another session: compare them, too)"
    remedy = "join again with a later deadline to resume the session"
    return f"the deadline passed with no {party.awaited} from {listed}: {remedy}"
