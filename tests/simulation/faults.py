"""Faults that the simulation must find: defects found so far, and rules left out on purpose."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import pytest

from tests.protocol.mask_symbols import MaskSymbols
from tests.simulation.symbols import Symbols
from tpmdp.ledger import Ledger, file, schema
from tpmdp.planning.losses import openings_of
from tpmdp.protocol import keepers, terms
from tpmdp.protocol.attempt import Attempt
from tpmdp.protocol.masks import to_words, word_type
from tpmdp.protocol.party import PartySession
from tpmdp.protocol.secrets import StoredSecrets
from tpmdp.study import session
from tpmdp.study.session import SessionAccount

Fault = Callable[[pytest.MonkeyPatch], None]
FAULTS: Final[dict[str, Fault]] = {}
_session: Any = session  # with the names that symbols stand in for


def fault(plant: Fault) -> Fault:
    FAULTS[plant.__name__] = plant
    return plant


@contextmanager
def planted(name: str) -> Iterator[None]:
    try:
        with pytest.MonkeyPatch.context() as patch:
            FAULTS[name](patch)
            schema.statements_of.cache_clear()
            yield
    finally:
        schema.statements_of.cache_clear()


@fault
def noise_is_missing(patch: pytest.MonkeyPatch) -> None:
    def noisy_vector(self: Any, _terms: Any, _index: int, encoded: Any, **_: Any) -> Any:
        return to_words(encoded, self.word)

    patch.setattr(Symbols, "noisy_vector", noisy_vector)


@fault
def noise_is_drawn_again_after_a_crash(patch: pytest.MonkeyPatch) -> None:
    def charge(self: Any, contribution: Any, attempt: int = 1, members: Any = None) -> Any:
        original(self, contribution, attempt, members)
        return _session.noisy_vector(
            contribution.terms, contribution.index, contribution.encoded, source=None, members=members
        )

    original = SessionAccount.charge
    patch.setattr(SessionAccount, "charge", charge)


@fault
def the_charge_comes_after_the_submission(patch: pytest.MonkeyPatch) -> None:
    def charge(self: Any, contribution: Any, attempt: int = 1, members: Any = None) -> Any:
        signed, name = contribution.terms, session.vector_name(contribution.terms, attempt)
        vector = self.stored().get(name)
        if vector is None:
            group = {"source": None, "members": members}
            drawn = _session.noisy_vector(signed, contribution.index, contribution.encoded, **group)
            vector = self._ledger.keep(self.key, name, drawn.tobytes())
        return np.frombuffer(vector, dtype=word_type(signed.grid.word))

    patch.setattr(SessionAccount, "charge", charge)


@fault
def a_cancelled_hold_is_used_again(patch: pytest.MonkeyPatch) -> None:
    """As if the entry had been removed."""

    def entries_of(self: Any, key: Any) -> Any:
        entries = original(self, key)
        return [] if entries and entries[-1].kind == "cancel" else entries

    original = Ledger._entries_of
    patch.setattr(Ledger, "_entries_of", entries_of)
    append = Ledger._append

    def append_once(self: Any, last: Any, kind: str, **options: Any) -> Any:
        if kind == "hold":
            with_key = options["key"]
            rows = self._read(
                "SELECT 1 FROM entries WHERE session = ? AND plan = ? AND kind = 'hold'",
                (with_key.session.hex(), with_key.plan.hex()),
            )
            if rows:
                return last
        return append(self, last, kind, **options)

    patch.setattr(Ledger, "_append", append_once)


@fault
def two_plans_of_a_session_are_charged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "_check_other_plans", lambda *_: None)
    rule = "OR (NEW.kind = 'charge' AND EXISTS "
    rule += "(SELECT 1 FROM entries WHERE session = NEW.session AND kind IN ('charge', 'reserve') AND session <> '')) "
    without = tuple(statement.replace(rule, "") for statement in schema.UPGRADE)
    assert without != schema.UPGRADE
    for module in (file, schema):
        patch.setattr(module, "UPGRADE", without)


@fault
def masks_are_not_bound_to_the_group(patch: pytest.MonkeyPatch) -> None:
    def mask_key(self: Any, agreed: bytes, session: bytes, low: int, *, high: int, context: bytes) -> bytes:
        del context
        return MaskSymbols.mask_key(self, agreed, session, low, high=high)

    patch.setattr(Symbols, "mask_key", mask_key)


@fault
def a_party_opens_more_than_one_attempt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StoredSecrets, "opening", lambda _, attempt: attempt)


@fault
def there_are_no_self_masks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Attempt, "add_self_mask", lambda *_: None)


@fault
def each_party_has_one_neighbour(patch: pytest.MonkeyPatch) -> None:
    def partners(self: Any, party: int) -> tuple[list[int], list[int]]:
        members = sorted(self.group)
        place = members.index(party)
        others = [members[place ^ 1]] if place ^ 1 < len(members) else []
        return (others, []) if place % 2 == 0 else ([], others)

    patch.setattr(Attempt, "partners", partners)


@fault
def the_lead_receiver_does_not_wait_for_all(patch: pytest.MonkeyPatch) -> None:
    def proceed(self: Any) -> Any:
        if self.is_lead and not self.may_drop and len(self.current.counted) >= self.terms.count - 1:
            for other in range(self.terms.count):
                self.current.counted.setdefault(other, bytes(32))
        return original(self)

    original = PartySession._proceed
    patch.setattr(PartySession, "_proceed", proceed)


@fault
def a_new_attempt_has_the_old_key_and_another_group(patch: pytest.MonkeyPatch) -> None:
    """Masks of two attempts are then the same where they are bound to the session only."""
    patch.setattr(StoredSecrets, "key", lambda self, _: self._store.keep("key 1", b"k" * 32))


@fault
def submissions_go_out_before_all_have_agreed(patch: pytest.MonkeyPatch) -> None:
    def ready(self: Any) -> bool:
        members, keys = self.current.members, self.current.keys
        return members is not None and len(keys) >= len(members) - 1

    patch.setattr(PartySession, "ready", property(ready))


@fault
def too_few_openings_open_an_attempt(patch: pytest.MonkeyPatch) -> None:
    """One less than the coalition needs for a second attempt."""
    patch.setattr(terms, "openings_of", lambda count, threshold: openings_of(count, threshold) - 1)


@fault
def there_are_too_few_keepers(patch: pytest.MonkeyPatch) -> None:
    """So few that all of them may be hostile, beside the lead receiver."""
    patch.setattr(keepers, "keeper_count", lambda size, threshold: min(threshold, size) - 1)


@fault
def noise_is_that_of_the_first_group(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(session, "vector_name", lambda *_: "vector")
