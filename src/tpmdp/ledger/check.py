"""Verification of a whole ledger: every hash, total, limit and session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from tpmdp.errors import InputError, shown
from tpmdp.ledger.entry import SESSION_BYTES, Entry, entry_hash
from tpmdp.ledger.schema import UNITS
from tpmdp.ledger.spending import Totals, add_up, check_limit, promises, rounded_up

# Logarithms differ between machines in the last digits; a check on another machine allows for that.
_OTHER_MACHINE: Final = 1e-12
_WITHOUT_SESSION: Final = ("open", "limit", "bind")
_BEFORE: Final[dict[str, tuple[str, ...]]] = {  # the kinds that an entry of a session with its plan may follow
    "hold": ("",),
    "cancel": ("hold",),
    "charge": ("", "hold"),
    "reserve": ("",),
    "settle": ("charge", "reserve"),
}


class Verification:
    """The state of a verification that runs through the pages of a ledger of this unit."""

    def __init__(self, origin: str, unit: str) -> None:
        self.number, self.hash, self._unit = 0, origin, unit
        self._balances: dict[str, Totals] = {}  # by unit
        self._kinds: dict[tuple[str, str], str] = {}  # the last kind, by session and plan
        self._charged: set[str] = set()  # sessions
        self._bound = False

    def page(self, rows: Sequence[tuple[Any, ...]]) -> tuple[int, str] | None:
        """The number of the first wrong entry of the page and the problem; None if all are right."""
        totals: list[tuple[int, Totals]] = []
        problem: tuple[int, str] | None = None
        for row in rows:
            entry = Entry(*row)
            wrong = self._entry(row, entry)
            if wrong is not None:
                problem = (self.number + 1, wrong)
                break
            self.number, self.hash = entry.number, entry.hash
            if entry.is_charge:
                totals += [(self.number, balance) for balance in self._counted(entry.unit or self._unit)]
        balances = [balance for _, balance in totals]
        epsilons = promises(
            [balance.mu_squared_total for balance in balances],
            [balance.closeness_total for balance in balances],
            [balance.limit_delta for balance in balances],
        )
        for (number, balance), epsilon in zip(totals, epsilons, strict=True):
            limit = balance.limit_epsilon
            if not epsilon <= limit * (1.0 + _OTHER_MACHINE):
                return number, f"makes epsilon {rounded_up(epsilon)}, over the limit {limit!r} of its time"
        return problem

    def balances(self) -> dict[str, Totals]:
        """What is spent and allowed so far, by unit; by record with what protects whole parties."""
        return {unit: self._counted(unit)[0] for unit in self._balances}

    def _counted(self, unit: str) -> list[Totals]:
        """What a charge of this unit counts towards; by record also if it protects a whole party."""
        by_party, by_record = self._balances.get("party"), self._balances.get("record")
        if by_party is not None and by_record is not None:
            by_record = replace(
                by_record,
                mu_squared_total=add_up(by_record.mu_squared_total, by_party.mu_squared_total),
                closeness_total=add_up(by_record.closeness_total, by_party.closeness_total),
            )
        counted = (by_record,) if unit == "record" else (by_party, by_record)
        return [balance for balance in counted if balance is not None]

    def _entry(self, row: Sequence[Any], entry: Entry) -> str | None:
        """What is wrong with the next entry, if anything."""
        if entry.number != self.number + 1:
            return "is missing"
        if entry.previous != self.hash:
            return "does not follow from the entry before it"
        if entry.hash != entry_hash(row):
            return "does not match its hash"
        if (entry.kind == "open") != (entry.number == 1):
            return f"is of kind {shown(entry.kind)} out of place"
        return self._content(entry)

    def _content(self, entry: Entry) -> str | None:
        costs = entry.mu, entry.closeness, entry.epsilon, entry.delta
        priced = entry.is_charge or entry.kind == "hold"
        if not all(cost >= 0 for cost in costs) or entry.delta > 1 or (not priced and any(costs)):
            return "has a charge that cannot be"
        unit = entry.unit or self._unit
        if unit not in UNITS:
            return f"counts by unknown unit {shown(unit)}"
        balance = self._balances.get(unit)
        if balance is None:
            balance = Totals(0.0, 0.0, math.inf, limit_delta=entry.limit_delta)
        if entry.is_charge:
            balance = balance.with_charge(entry.mu, entry.closeness)
        if entry.kind in ("open", "limit"):
            try:
                limit = check_limit(entry.limit_epsilon, entry.limit_delta)
            except InputError as error:
                return f"sets a limit that cannot be ({error.field} {error.value!r})"
            balance = replace(balance, limit_epsilon=limit[0], limit_delta=limit[1])
        stated = entry.balance
        if (stated.mu_squared_total, stated.closeness_total) != (balance.mu_squared_total, balance.closeness_total):
            return "has totals that do not add up"
        if stated != balance:
            return "changes the limit without saying so"
        self._balances[unit] = balance
        return self._session(entry)

    def _session(self, entry: Entry) -> str | None:
        if entry.kind in _WITHOUT_SESSION:
            if entry.kind == "bind" and self._bound:
                return "binds the ledger to a second key"
            if entry.kind == "bind" and len(entry.outcome) != 2 * SESSION_BYTES:
                return "binds the ledger to no key"
            self._bound |= entry.kind == "bind"
            return "has a session" if entry.session else None
        if len(entry.session) != 2 * SESSION_BYTES:
            return "has no session"
        if entry.plan and len(entry.plan) != 2 * SESSION_BYTES:
            return "has no plan"
        if entry.kind not in _BEFORE:
            return f"is of unknown kind {shown(entry.kind)}"
        key = entry.session, entry.plan
        if self._kinds.get(key, "") not in _BEFORE[entry.kind]:
            return f"has kind {entry.kind} where its session does not allow that"
        if entry.is_charge and entry.session in self._charged:
            return "charges a session again"
        self._kinds[key] = entry.kind
        if entry.is_charge:
            self._charged.add(entry.session)
        return None
