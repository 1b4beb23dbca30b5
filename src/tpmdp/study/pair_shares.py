"""The step before a sum through a relay in which holders of columns compute in pairs; see `protocol.pair_step`.

Holders connect to each other for it, at the addresses in the study. The session is charged when they are connected, and
each stores its share of the noisy result in its ledger.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp.engines.direct.job import DirectJob
from tpmdp.engines.direct.network import Address
from tpmdp.engines.direct.session import Notes, Numbers
from tpmdp.engines.direct.worker_process import run_in_process
from tpmdp.errors import shown
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.protocol.masks import Mask, from_words, to_words, word_type
from tpmdp.protocol.parts import encode_parts
from tpmdp.study.contribution import Contribution
from tpmdp.study.events import EventTracker
from tpmdp.study.session import SessionAccount
from tpmdp.study.shared_job import shared_job

_NOWHERE: Final = ("", 0)  # for parties that nobody connects to
_SUBMITTED: Final = "pairs submitted"  # the one attempt that our share goes to


@dataclass(eq=False, repr=False)
class PairShares:
    """One party's part in the step."""

    contribution: Contribution
    identity: Ed25519PrivateKey
    ledger: Ledger
    account: SessionAccount
    tracker: EventTracker
    addresses: dict[int, Address]  # of the holders
    deadline: float
    bind: Address | None
    bytes_sent: int = 0

    def job(self, attempt: int) -> DirectJob:
        """What is computed for this attempt."""
        return shared_job(self.contribution.study, self.contribution.terms, attempt)

    @property
    def holders(self) -> frozenset[int]:
        return frozenset(self.addresses)

    def is_cut_off(self, attempt: int) -> bool:
        """Whether we began to compute for this attempt and have no share: another process, or a crash."""
        stored = self.account.stored()
        return _begun(attempt) in stored and _share(attempt) not in stored

    def compute(self, attempt: int, is_news: Callable[[], bool]) -> bool:
        if _share(attempt) in self.account.stored():
            return True
        contribution, index = self.contribution, self.contribution.index
        word = contribution.terms.grid.word
        job = self.job(attempt)

        def connected(_: Notes) -> Numbers:
            self.tracker.step("compute")
            noise = from_words(self.account.charge(contribution), word)
            self._begin(attempt)
            return Numbers(contribution.encoded, noise, note=b"")

        def keep(share: IntArray | None, sent: int) -> None:
            assert share is not None
            self.bytes_sent += sent
            self.ledger.keep(self.account.key, _share(attempt), to_words(share, word).tobytes())

        def missing(others: list[int]) -> None:
            self.tracker.connected(others)
            if others and is_news():
                raise _NewsError

        self.tracker.connected([other for other in job.members if other != index])
        try:
            run_in_process(
                job,
                index,
                self.identity,
                addresses=[self.addresses.get(party, _NOWHERE) for party in range(contribution.terms.count)],
                deadline=self.deadline,
                on_connected=connected,
                on_result=keep,
                bind=self.bind,
                parts=encode_parts(contribution.study.parts()),
                on_difference=self.tracker.difference,
                on_missing=missing,
            )
        except _NewsError:  # nothing has begun
            return False
        return True

    def share(self, attempt: int) -> Mask:
        number = attempt.to_bytes(4, "big")
        if self.ledger.keep(self.account.key, _SUBMITTED, number) != number:
            label, study = shown(self.contribution.study.label), self.contribution.study
            remedy = f"set session = {study.session + 1} for a new session, which is charged anew"
            raise LedgerError(label, "was submitted to another attempt, and must not be twice", remedy)
        words = self.account.stored()[_share(attempt)]
        return np.frombuffer(words, dtype=word_type(self.contribution.terms.grid.word))

    def _begin(self, attempt: int) -> None:
        """Once for an attempt, and in one process of this party only."""
        ours = os.urandom(16)
        if self.ledger.keep(self.account.key, _begun(attempt), ours) != ours:
            label = shown(self.contribution.study.label)
            raise LedgerError(label, "is being computed in another process of this party", "run the same command again")


class _NewsError(Exception):
    """There are messages to read; the others may be in a new attempt."""


def _begun(attempt: int) -> str:
    return f"pairs begun {attempt}"


def _share(attempt: int) -> str:
    return f"pairs share {attempt}"
