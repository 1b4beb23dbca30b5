"""One party's way through a study by rounds: one session after the other, each at the points that the last one gave.

A round that is settled is repeated from the ledger, so the same command goes on wherever it was interrupted. If a later
round cannot be done, the party has the result of the last one that was.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.errors import TpmdpError
from tpmdp.ledger import Ledger, LedgerError, OverspendError
from tpmdp.protocol.terms import Terms
from tpmdp.study.contribution import Contribution, contribute
from tpmdp.study.cost import joint_epsilon
from tpmdp.study.model import Study
from tpmdp.study.release import PartyRelease
from tpmdp.study.round_account import RoundAccount
from tpmdp.study.session import key_of

_ALL_HAVE_IT = ("charged", "settled")  # once a round is charged, every party has the result of the one before


@dataclass(frozen=True, eq=False, repr=False)
class PartyRounds:
    """A party in a study by rounds; `session` runs, resumes or repeats one, and `stop` tells the others to end."""

    first: Contribution
    identity: Ed25519PrivateKey
    ledger: Ledger
    session: Callable[[Contribution], PartyRelease]
    stop: Callable[[Terms], None]

    @property
    def _whole(self) -> Study:
        assert self.first.study.part is not None
        return self.first.study.part.whole

    def take_part(self) -> PartyRelease:
        """Run or resume every round."""
        whole = self._whole
        done, signed, problem = list[PartyRelease](), [self.first.terms], ""
        study = self.first.study
        while len(done) < whole.rounds and not problem:
            try:
                if done:
                    study = whole.round(len(done) + 1, done[-1].points)
                    signed.append(study.terms())
                done.append(self._round(study, signed[-1]))
            except TpmdpError as error:
                if not done:
                    raise
                problem = f"stopped after round {len(done)} of {whole.rounds}: {error}"
                if isinstance(error, OverspendError | LedgerError):
                    with suppress(TpmdpError):  # the others then wait until the deadline
                        self.stop(signed[-1])
        charged = [terms for terms in signed if self.ledger.status(key_of(terms)) in _ALL_HAVE_IT]
        epsilon = joint_epsilon(whole, whole.index(self.first.party), charged)
        release = PartyRelease.of_rounds(done, whole, epsilon=epsilon, note=problem)
        return release.with_ledger(self.ledger, whole.unit, again=release.again)

    def _round(self, study: Study, terms: Terms) -> PartyRelease:
        """One round. Of those that were done before, only the last one is repeated with the others."""
        assert study.part is not None
        account = RoundAccount(study, terms, self.first.party, identity=self.identity, ledger=self.ledger)
        if account.is_settled and not study.part.is_last:
            release = account.release()
            following = self._whole.round(study.part.number + 1, release.points).terms()
            if self.ledger.status(key_of(following)) in _ALL_HAVE_IT:
                return release
        if study.part.number == 1:
            return self.session(self.first)
        return self.session(account.stored_contribution() or self._contribution(account, study, terms))

    def _contribution(self, account: RoundAccount, study: Study, terms: Terms) -> Contribution:
        try:
            return contribute(study, terms, self.first.party, table=account.columns())
        except LedgerError:  # unless another process of this party has charged all rounds since
            stored = account.stored_contribution()
            if stored is None:
                raise
            return stored
