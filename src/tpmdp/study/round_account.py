"""One party's sessions of a study by rounds in its ledger: one hold for all rounds, and the records, read once.

Before the first round, room is set aside for all of them in one transaction: for the first under its plan, for the
others under a stand-in, since their plans bind points that nobody knows yet. When a round's plan is known, it takes the
room of its stand-in: of several plans of one session the ledger counts the largest.

The party's columns lie in the ledger, sealed with a key of its identity, from the hold until the last round is charged.
From the first agreement on they are not read again: nothing in the data may stop or delay the party.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tpmdp.data.encoding import decode_table, encode_table
from tpmdp.data.table import Table
from tpmdp.errors import InputError, shown
from tpmdp.ledger import Hold, Ledger, LedgerError, SessionKey, Stored
from tpmdp.protocol.terms import Terms
from tpmdp.study.contribution import Contribution
from tpmdp.study.cost import charge_of, joint_charge
from tpmdp.study.model import Study
from tpmdp.study.progress import stand_ins
from tpmdp.study.release import PartyRelease
from tpmdp.study.round_part import RoundPart
from tpmdp.study.session import RELEASE, SessionAccount

_TABLE: Final = "table"
_TABLE_MAX: Final = 900_000_000  # bytes; a value in SQLite is below 1e9
_NONCE_BYTES: Final = 12


def account_of(
    study: Study, terms: Terms, party: str, *, identity: Ed25519PrivateKey, ledger: Ledger
) -> SessionAccount:
    """The account of a session: of one round, or of a study that has only one."""
    if study.part is None:
        return SessionAccount(study, terms, party, identity=identity, ledger=ledger)
    return RoundAccount(study, terms, party, identity=identity, ledger=ledger)


class RoundAccount(SessionAccount):
    """One round's session in the ledger."""

    def __init__(self, study: Study, terms: Terms, party: str, *, identity: Ed25519PrivateKey, ledger: Ledger) -> None:
        super().__init__(study, terms, party, identity=identity, ledger=ledger)
        assert study.part is not None
        self._part: RoundPart[Study] = study.part
        self._first = self._part.whole.first
        self._salt = self._first.session_id
        secret = HKDF(hashes.SHA256(), 32, salt=self._salt, info=b"tpmdp rounds 1").derive(identity.private_bytes_raw())
        self._table_cipher = AESGCM(secret)

    @cached_property
    def stand_ins(self) -> list[SessionKey]:
        """What stands for the rounds after the first while their plans are not known."""
        return stand_ins(self._part.whole, self._terms if self._part.number == 1 else self._first.terms())

    @property
    def _own_stand_in(self) -> SessionKey | None:
        return self.stand_ins[self._part.number - 2] if self._part.number > 1 else None

    @property
    def sessions(self) -> list[bytes]:
        return [self._first.session_id, *(key.session for key in self.stand_ins)]

    # Hold -------------------------------------------------------------------------------------------------------------

    def _private(self, contribution: Contribution) -> dict[str, bytes]:
        values = super()._private(contribution)
        if self._part.number == 1 and contribution.columns is not None:
            values[_TABLE] = self._sealed_table(contribution.columns)
        return values

    def _enter(self, contribution: Contribution, values: Mapping[str, bytes]) -> Stored:
        if self._part.number > 1:
            return super()._enter(contribution, values)
        whole, index = self._part.whole, contribution.index
        every = (self._terms, *whole.preview_terms[1:])
        keys = [self.key, *self.stand_ins]
        holds = [
            Hold(key, f"{whole.label}, round {number}", charge_of(terms, index), private=values if number == 1 else {})
            for number, (key, terms) in enumerate(zip(keys, every, strict=True), 1)
        ]
        joint = joint_charge(whole, index, every)
        return self._ledger.hold_all(holds, whole.label, joint, unit=whole.unit)

    def _sealed_table(self, table: Table) -> bytes:
        data = encode_table(table)
        if len(data) > _TABLE_MAX:
            rule = f"must take at most {_TABLE_MAX:,} bytes in a study by rounds, which keeps them in the ledger"
            raise InputError(f"data of {self._party}", f"{len(data):,} bytes", rule, "use fewer columns or rounds = 1")
        nonce = os.urandom(_NONCE_BYTES)
        return nonce + self._table_cipher.encrypt(nonce, data, self._salt)

    # Records ----------------------------------------------------------------------------------------------------------

    def columns(self) -> Table:
        """The party's columns as they were when it agreed to the first round."""
        stored = self._ledger.private_state(self.stand_ins[-1]).get(_TABLE) or self.stored().get(_TABLE)
        if stored is None:
            subject = f"the records of {shown(self._part.whole.label)}"
            remedy = f"set session = {self._part.whole.session + 1} in the study, which is charged anew"
            raise LedgerError(subject, "are not in the ledger any more: its rounds were cancelled", remedy)
        try:
            data = self._table_cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], self._salt)
        except InvalidTag:
            problem = "has records that this key does not open"
            raise LedgerError(f"session {self.key.session.hex()[:16]}", problem, "restore the ledger") from None
        return decode_table(data)

    def stored_contribution(self) -> Contribution | None:
        """As of a session; what was put into a round that has ended no longer matters."""
        stored = super().stored_contribution()
        if stored is None and self.is_settled:
            return Contribution.spent(self._study, self._terms, self._party)
        return stored

    def release(self) -> PartyRelease:
        """What a round that is settled gave."""
        return replace(PartyRelease.of_plain(json.loads(self.stored()[RELEASE])), again=True)

    def check_same(self, contribution: Contribution, stored: Mapping[str, bytes]) -> None:
        """Nothing to compare: the records of a study by rounds are those in the ledger."""

    # End --------------------------------------------------------------------------------------------------------------

    def settle(self, release: PartyRelease, outbox: Sequence[bytes] = ()) -> PartyRelease:
        table = self.stored().get(_TABLE) if self._part.number == 1 else None
        if table is not None:
            with suppress(LedgerError):  # cancelled, or the last round is charged: no further round needs the records
                self._ledger.keep(self.stand_ins[-1], _TABLE, table)
        return super().settle(release, outbox)

    def give_up(self) -> None:
        """Free the room of all rounds that were not charged; the records are erased with what is held."""

        def chosen() -> list[SessionKey]:
            held = {(entry.session, entry.plan) for entry in self._ledger.holds()}
            return [key for key in [self.key, *self.stand_ins] if (key.session.hex(), key.plan.hex()) in held]

        self._ledger.cancel_all(chosen)
