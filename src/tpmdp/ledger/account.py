"""The account in a ledger: totals, limits, what is held, and the key it belongs to.

There is a total for each unit. What protects a whole party also costs each of its records, so charges by party count
towards the total by record, too.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tpmdp.errors import InputError, shown
from tpmdp.ledger.entry import SESSION_BYTES, Entry
from tpmdp.ledger.file import LedgerFile
from tpmdp.ledger.remaining import room_left
from tpmdp.ledger.schema import UNITS
from tpmdp.ledger.spending import (
    Charge,
    LedgerError,
    OverspendError,
    Spent,
    Totals,
    add_up,
    check_limit,
    promise,
    square_up,
)


class Account(LedgerFile):
    """What one party may spend, has spent and has set aside."""

    def set_limit(self, epsilon: float, delta: float, unit: str | None = None) -> None:
        """A new limit for all past and future sessions. If more is spent already, every new session is refused.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Account.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.set_limit(2.0, 1e-7)
        ...         ledger.spent().limit_epsilon
        2.0
        """
        limit, unit = check_limit(epsilon, delta), unit or self.unit
        check_unit(unit)
        with self._transaction() as last:
            balance = self._own_balance(unit)
            self._append(
                last, "limit", balance=replace(balance, limit_epsilon=limit[0], limit_delta=limit[1]), unit=unit
            )

    def has_limit(self, unit: str) -> bool:
        """Whether a limit was ever set for this unit; where none was, nothing is refused."""
        return self._newest_of(unit, "AND kind IN ('open', 'limit')") is not None

    def bind(self, public_key: bytes) -> None:
        """Bind the ledger to the party's key, for good; refuse another key.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Account.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.bind(b"1" * 32)
        ...         ledger.owner == b"1" * 32
        True
        """
        if len(public_key) != SESSION_BYTES:
            raise InputError("public key", f"{len(public_key)} bytes", f"must be {SESSION_BYTES} bytes", "give a key")
        if self.owner is None:
            with self._transaction() as last:
                if self.owner is None:
                    balance = self._own_balance(self.unit)
                    self._append(last, "bind", balance=balance, unit=self.unit, outcome=public_key.hex())
                    return
        self.check_owner(public_key)

    def check_owner(self, public_key: bytes) -> None:
        """Refuse another key than the one that the ledger is bound to; nothing is written."""
        owner = self.owner
        if owner is not None and owner != public_key:
            problem = f"belongs to the key {owner.hex()[:16]}..., and this one is {public_key.hex()[:16]}..."
            remedy = "give the ledger of this key; if that is lost, make a new key that the other parties accept"
            raise LedgerError(f"the ledger {shown(str(self.path), 300)}", problem, remedy)

    @property
    def owner(self) -> bytes | None:
        """The public key that the ledger is bound to; None for an old one that was not used since."""
        rows = self._read("SELECT outcome FROM entries WHERE kind = 'bind'")
        return bytes.fromhex(rows[0][0]) if rows else None

    def spent(self, unit: str | None = None) -> Spent:
        """What is spent and what is left, by the ledger's own unit or another one.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Account.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         spent = ledger.spent()
        ...         print(f"{spent.epsilon} {spent.left:.6f}")
        0.0 1.000000
        """
        counted = unit or self.unit
        check_unit(counted)
        with self._guard():
            return self._spent(self._balance(counted), counted)

    def after(
        self, charge: Charge, *, unit: str, sessions: Collection[bytes], limit: tuple[float, float] | None = None
    ) -> Spent:
        """What would be spent and left after this charge; nothing is written.

        `sessions` are those that it is for: room that they hold already is not counted twice. `limit` stands for one
        that would be set first.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Account.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         spent = ledger.after(Charge(0.1, 0.0, 0.5, 1e-6), unit="record", sessions=[bytes(32)])
        ...         round(spent.epsilon, 2), round(spent.left, 2), ledger.spent().epsilon
        (0.4, 0.9, 0.0)
        """
        check_unit(unit)
        with self._guard():
            plain, held = self._balance(unit), self._balance(unit, holds_besides=sessions)
            count = self._spent(plain, unit).sessions + len(sessions)
            others = len(self._holds_of(unit).keys() - {each.hex() for each in sessions})
        return spent_after(plain, charge, held=held, limit=limit, sessions=count, holds=others)

    def limit(self, unit: str, until: int | None = None) -> tuple[float, float]:
        """The most that may be spent in this unit, epsilon and delta; epsilon is infinite where there is no limit.

        With `until`, the limit that held when the entry of this number was the newest.
        """
        check_unit(unit)
        with self._guard():
            balance = self._own_balance(unit, until)
            return balance.limit_epsilon, balance.limit_delta

    def _spent(self, balance: Totals, unit: str) -> Spent:
        counted = [] if unit == "record" else [unit]  # a charge by party costs each record, too
        names = [*counted, ""] if unit == self.unit else counted
        among = f"AND unit IN ({', '.join('?' * len(names))})" if counted and self._version > 1 else ""
        query = f"SELECT count(*) FROM entries WHERE kind IN ('charge', 'reserve') {among}"  # noqa: S608
        total = balance.mu_squared_total
        holds = self._holds_of(unit)
        mu_left, left = room_left(self._balance(unit, holds_besides=()))
        return Spent(
            math.nextafter(math.sqrt(total), math.inf) if total else 0.0,
            balance.closeness_total,
            self._read(query, names if among else ())[0][0],
            epsilon=balance.epsilon,
            limit_epsilon=balance.limit_epsilon,
            limit_delta=balance.limit_delta,
            mu_left=mu_left,
            left=left,
            held=len(holds),
        )

    def _balance(
        self, unit: str, holds_besides: Collection[bytes] | None = None, plans_besides: Collection[str] = ()
    ) -> Totals:
        """Totals and limit of a unit. With `holds_besides` also what other sessions hold, under other plans."""
        balance = self._own_balance(unit)
        if unit == "record":
            more = self._own_balance("party")
            balance = replace(
                balance,
                mu_squared_total=add_up(balance.mu_squared_total, more.mu_squared_total),
                closeness_total=add_up(balance.closeness_total, more.closeness_total),
            )
        if holds_besides is not None:
            own = {session.hex() for session in holds_besides}
            for session, (mu, closeness) in self._holds_of(unit, plans_besides).items():
                if session not in own:
                    balance = balance.with_charge(mu, closeness)
        return balance

    def _holds_of(self, unit: str, plans_besides: Collection[str] = ()) -> dict[str, tuple[float, float]]:
        """What is set aside, by session: of several plans one can be charged, so the most that one of them costs."""
        most: dict[str, tuple[float, float]] = {}
        for entry in self.holds():
            if unit in ("record", entry.unit) and entry.plan not in plans_besides:
                mu, closeness = most.get(entry.session, (0.0, 0.0))
                most[entry.session] = max(mu, entry.mu), max(closeness, entry.closeness)
        return most

    def _own_balance(self, unit: str, until: int | None = None) -> Totals:
        """What the newest entry of the unit states; without a limit if it has none."""
        newest = self._newest_of(unit, "" if until is None else f"AND number <= {int(until)}")
        return Totals(0.0, 0.0, math.inf, limit_delta=self._last().limit_delta) if newest is None else newest.balance

    def charged_plan(self, session: bytes) -> bytes | None:
        """The plan with which the session was charged; empty if that is not known any more."""
        query = f"{self._select} WHERE session = ? AND session <> '' AND kind IN ('charge', 'reserve')"
        rows = self._read(query, (session.hex(),))
        if not rows:
            return None
        entry = Entry(*rows[0])
        return bytes.fromhex(entry.plan) if entry.plan else self._stored_under(entry.session, ["plan"]).get("plan", b"")

    def holds(self) -> list[Entry]:
        """The holds for which room is set aside, oldest first."""
        ended = "kind IN ('charge', 'reserve') OR (kind = 'cancel' AND plan = held.plan)"
        others = f"SELECT 1 FROM entries WHERE session = held.session AND session <> '' AND ({ended})"  # noqa: S608 - our own names
        query = f"{self._select} AS held WHERE kind = 'hold' AND NOT EXISTS ({others}) ORDER BY number"
        return [Entry(*row) for row in self._read(query)] if self._version > 1 else []

    def under_way(self) -> list[Entry]:
        """What was begun and has not ended, oldest first: holds, and charges that are not settled.

        >>> import pathlib, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     with Account.create(pathlib.Path(folder) / "a.ledger", "hospital", 1.0, 1e-6) as ledger:
        ...         ledger.under_way()
        []
        """
        settled = "SELECT 1 FROM entries WHERE session = begun.session AND kind = 'settle'"
        query = (
            f"{self._select} AS begun WHERE kind IN ('charge', 'reserve') AND NOT EXISTS ({settled}) ORDER BY number"
        )
        with self._guard():
            charged = [Entry(*row) for row in self._read(query)]
            return sorted([*self.holds(), *charged], key=lambda entry: entry.number)

    def _check_limits(
        self,
        study: str,
        charge: Charge,
        *,
        unit: str,
        besides: Collection[bytes] | None,
        plans_besides: Collection[str] = (),
    ) -> None:
        """Refuse a charge over a limit: with all that is spent, and for a hold with what other sessions hold, too."""
        for counted in UNITS if unit == "party" else (unit,):
            before = self._balance(counted, holds_besides=besides, plans_besides=plans_besides)
            after = before.with_charge(charge.mu, charge.closeness)
            if not after.is_within:
                alone = promise(square_up(charge.mu), charge.closeness, before.limit_delta)
                raise OverspendError(
                    self.path,
                    self.party,
                    study,
                    cost=alone,
                    after=after.epsilon,
                    spent=self.spent(counted),
                    unit="" if counted == self.unit else counted,
                )

    def _newest_of(self, unit: str, among: str = "") -> Entry | None:
        own, select = unit == self.unit, self._select
        if self._version == 1:
            return self._last() if own else None
        query = f"{select} WHERE unit IN (?, ?) {among} ORDER BY number DESC LIMIT 1"
        rows = self._read(query, (unit, "" if own else unit))
        return Entry(*rows[0]) if rows else None

    def _stored_under(self, place: str, names: Sequence[str] | Mapping[str, bytes]) -> dict[str, bytes]:
        places = ", ".join("?" * len(names))
        query = f"SELECT name, value FROM private WHERE session = ? AND name IN ({places})"  # noqa: S608
        return dict(self._read(query, (place, *names)))


def spent_after(
    balance: Totals,
    charge: Charge,
    *,
    held: Totals | None = None,
    limit: tuple[float, float] | None = None,
    sessions: int = 1,
    holds: int = 0,
) -> Spent:
    """What is spent and left after a charge; `held` is the balance with what other sessions have set aside.

    >>> spent = spent_after(Totals(0.0, 0.0, 1.0, 1e-6), Charge(0.1, 0.0, 0.5, 1e-6))
    >>> round(spent.epsilon, 2), round(spent.left, 2)
    (0.4, 0.9)
    """
    limits = {} if limit is None else {"limit_epsilon": limit[0], "limit_delta": limit[1]}
    after = replace(balance, **limits).with_charge(charge.mu, charge.closeness)
    room = replace(held or balance, **limits).with_charge(charge.mu, charge.closeness)
    mu_left, left = room_left(room)
    total = after.mu_squared_total
    return Spent(
        math.nextafter(math.sqrt(total), math.inf) if total else 0.0,
        after.closeness_total,
        sessions,
        epsilon=after.epsilon,
        limit_epsilon=after.limit_epsilon,
        limit_delta=after.limit_delta,
        mu_left=mu_left,
        left=left,
        held=holds,
    )


def check_unit(unit: str) -> None:
    """Refuse what is no unit."""
    if unit not in UNITS:
        raise InputError("unit", unit, f"must be one of {', '.join(UNITS)}", "say whose data one budget protects")
