"""Verification of a whole ledger: every hash, total, limit and session."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from tpmdp.errors import InputError, shown
from tpmdp.ledger.entry import SESSION_BYTES, Entry, entry_hash
from tpmdp.ledger.spending import add_up, check_limit, promises, rounded_up, square_up

# Logarithms differ between machines in the last digits; a check on another machine allows for that.
_OTHER_MACHINE: Final = 1e-12


class Verification:
    """The state of a verification that runs through the pages of a ledger."""

    def __init__(self, origin: str) -> None:
        self.number, self.hash = 0, origin
        self._mu_squared = self._closeness = 0.0
        self._limit = (0.0, 0.0)
        self._open: dict[str, bool] = {}  # by session: still unsettled

    def page(self, rows: Sequence[tuple[Any, ...]]) -> tuple[int, str] | None:
        """The number of the first wrong entry of the page and the problem; None if all are right."""
        reserved: list[tuple[int, float, float, float, float]] = []
        problem: tuple[int, str] | None = None
        for row in rows:
            wrong = self._entry(row, Entry(*row))
            if wrong is not None:
                problem = (self.number + 1, wrong)
                break
            self.number, self.hash = row[0], row[-1]
            if row[1] == "reserve":
                reserved.append((self.number, self._mu_squared, self._closeness, *self._limit))
        epsilons = promises([r[1] for r in reserved], [r[2] for r in reserved], [r[4] for r in reserved])
        for (number, _, _, limit, _), epsilon in zip(reserved, epsilons, strict=True):
            if not epsilon <= limit * (1.0 + _OTHER_MACHINE):
                return number, f"makes epsilon {rounded_up(epsilon)}, over the limit {limit!r} of its time"
        return problem

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
        if not all(cost >= 0 for cost in costs) or entry.delta > 1 or (entry.kind != "reserve" and any(costs)):
            return "has a charge that cannot be"
        self._mu_squared = add_up(self._mu_squared, square_up(entry.mu))
        self._closeness = add_up(self._closeness, entry.closeness)
        if (entry.mu_squared_total, entry.closeness_total) != (self._mu_squared, self._closeness):
            return "has totals that do not add up"
        limit = entry.limit_epsilon, entry.limit_delta
        if entry.kind in ("open", "limit"):
            try:
                self._limit = check_limit(*limit)
            except InputError as error:
                return f"sets a limit that cannot be ({error.field} {error.value!r})"
        elif limit != self._limit:
            return "changes the limit without saying so"
        return self._session(entry)

    def _session(self, entry: Entry) -> str | None:
        state = self._open.get(entry.session)
        if entry.kind in ("open", "limit"):
            return "has a session" if entry.session else None
        if len(entry.session) != 2 * SESSION_BYTES:
            return "has no session"
        if entry.kind == "reserve":
            if state is not None:
                return "reserves a session again"
        elif entry.kind != "settle":
            return f"is of unknown kind {shown(entry.kind)}"
        elif not state:
            return "settles a session that is not reserved" if state is None else "settles a session again"
        self._open[entry.session] = entry.kind == "reserve"
        return None
