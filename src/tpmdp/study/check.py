"""Before a party pays: what its data, its ledger and the plan say. Nothing is charged, sent or written."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp.data.faults import Fault, Faults, bad_values
from tpmdp.data.frame import Records, as_table
from tpmdp.data.source import survey_table
from tpmdp.data.table import Column, Table
from tpmdp.errors import DeadlineError, FileError, InputError, TpmdpError
from tpmdp.ledger import Ledger, OverspendError, Spent, Totals, promise, square_up
from tpmdp.ledger.account import spent_after
from tpmdp.planning.coalition import worst_coalitions
from tpmdp.protocol.terms import Terms
from tpmdp.queries.base import BaseQuery, length
from tpmdp.queries.computation import SharedFunction
from tpmdp.queries.ranges import numbers
from tpmdp.study.begun import begun_sessions, earlier_sessions
from tpmdp.study.contribution import (
    BadRecordsError,
    Contribution,
    RecordCountError,
    check_column,
    check_given,
    contribute,
)
from tpmdp.study.cost import all_terms, joint_charge, joint_epsilon
from tpmdp.study.expectation import expect, trial_terms
from tpmdp.study.identity import MissingKeysError
from tpmdp.study.join import addresses_of, check_in
from tpmdp.study.model import Study
from tpmdp.study.party_check import Begun, Clipped, Coalition, ColumnCheck, Earlier, LedgerState, PartyCheck
from tpmdp.study.peers import check_peers
from tpmdp.study.progress import rounds_text, sessions_in, status_of
from tpmdp.study.round_account import account_of
from tpmdp.study.session import SessionAccount, check_holder, check_noise, check_room, key_of
from tpmdp.study.shared_job import check_installed

_SHOWN: Final = 3  # places named in a line
T = TypeVar("T")


def check_party(
    study: Study,
    name: str,
    data: Records | None,
    *,
    ledger: Ledger | Callable[[], Ledger | None] | None = None,
    identity: Ed25519PrivateKey | Callable[[], Ed25519PrivateKey] | None = None,
    terms: Terms | None = None,
    peers: Path | None = None,
) -> PartyCheck:
    """Everything that can be known before the party joins; nothing is charged, sent or written.

    `data` is a file, a table or columns, as for `join`. Without a ledger, the cost is that to a new one. A function in
    place of a ledger or an identity is called to get it, and an error of it is one of the problems.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 3}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> query = {"name": "stay", "kind": "mean", "column": "days", "low": 0, "high": 10}
    >>> study = Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all",
    ...                      "parties": parties, "queries": [query]})
    >>> result = check_party(study, "bank", {"days": np.array([1.0, 70.0, np.nan])})
    >>> for problem in result.problems:
    ...     print(str(problem).split(":")[0])
    data of bank = 1 of 3 records have bad values (column days, record 3)
    public_key of bank, lab = (none) is missing
    >>> result.clipped[0].above, round(result.cost, 6)
    (1, 1.0)
    """
    index = study.index(name)
    problems = _Problems()
    key = problems.attempt(identity) if callable(identity) else identity
    offered = problems.attempt(lambda: check_in(study, name, key, terms=terms))
    if peers is not None and offered is not None:
        problems.attempt(lambda: check_peers(offered, offered.roster[index], peers))
    known = offered or _quietly(lambda: trial_terms(study))
    about_data, about_ledger = _Problems(), _Problems()
    records = _survey(study, name, data, problems=about_data)
    contribution = None
    if offered is not None and records.is_clean:
        contribution = about_data.attempt(lambda: contribute(study, offered, name, table=records.table))
    book = about_ledger.attempt(ledger) if callable(ledger) else ledger
    is_lost = bool(about_ledger.met)
    account = _account(study, known, name, ledger=book, key=key, problems=about_ledger)
    session = account.session
    if session is not None and (session.has_agreed or (study.rounds > 1 and session.is_settled)):
        about_data.met.clear()  # the session goes on with the data it had then
    elif session is not None and contribution is not None and account.state == "settled":
        about_data.attempt(lambda: session.check_same(contribution, session.stored()))
    problems.met += about_data.met + about_ledger.met
    _check_means(study, account.state, problems)
    state: LedgerState = "unreadable" if is_lost else "not given" if ledger is None else account.state
    expected = None if known is None else problems.attempt(lambda: expect(study, known))
    return PartyCheck(
        party=name,
        study=study.label,
        unit=study.unit,
        offered=(study.parties[index].epsilon, study.parties[index].delta),
        records_stated=study.parties[index].records,
        records=records.count,
        bad_rows=records.bad_rows,
        columns=records.columns,
        faults=records.faults,
        clipped=_clipped(study, name, records.good),
        counting=_counting(study, records.good),
        ledger=state,
        cost=None if known is None else joint_epsilon(study, index, all_terms(study, known)),
        charged_now=account.state not in ("charged", "settled"),
        after=None if is_lost else account.after,
        counted=None if known is None or account.after is None else _counted(study, known, index, after=account.after),
        begun=account.begun,
        earlier=account.earlier,
        coalitions=() if known is None else _coalitions(study, known, index),
        expected=expected,
        about_data=tuple(about_data.met),
        problems=tuple(sorted(problems.met, key=lambda problem: isinstance(problem, MissingKeysError))),
        notes=(
            *_uncounted(study, name, contribution),
            *_state_notes(study, state, account.rounds),
            *_risk_notes(study),
        ),
    )


class _Problems:
    """The reasons to stop, in the order in which they are met."""

    def __init__(self) -> None:
        self.met: list[TpmdpError] = []

    def attempt(self, step: Callable[[], T]) -> T | None:
        """What the step gives, or None where it is refused."""
        try:
            return step()
        except TpmdpError as error:
            self.met.append(error)
            return None


def _quietly(step: Callable[[], T]) -> T | None:
    try:
        return step()
    except TpmdpError:
        return None


# Records --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Records:
    """What was read: `table` as it is, `good` without records that have a bad value."""

    table: dict[str, Column] = field(default_factory=dict)
    good: dict[str, Column] = field(default_factory=dict)
    count: int | None = None
    bad_rows: int = 0
    columns: tuple[ColumnCheck, ...] = ()
    faults: tuple[Fault, ...] = ()
    is_clean: bool = False


def _survey(study: Study, name: str, data: Records | None, problems: _Problems) -> _Records:
    stated = study.party(name).records
    problems_before = len(problems.met)
    problems.attempt(lambda: check_given(study, name, data))
    if len(problems.met) > problems_before or not stated:
        return _Records(count=0 if not stated else None, is_clean=not stated and len(problems.met) == problems_before)
    assert data is not None
    wanted = study.columns_of(name)
    read = problems.attempt(lambda: _read(study, name, data))
    if read is None:
        return _Records(columns=tuple(ColumnCheck(column, kind) for column, kind in wanted.items()))
    table, faults, lost = read
    report = faults.report()
    columns = []
    for column, kind in wanted.items():
        mine = [fault for fault in report if fault.column == column]
        missing = sum(fault.count for fault in mine if fault.kind == "missing")
        unusable = sum(fault.count for fault in mine) - missing
        problem = lost[column].problem if column in lost else ""
        columns.append(ColumnCheck(column, kind, missing=missing, unusable=unusable, problem=problem))
    problems.met.extend(error for error in lost.values())
    if len({len(column) for column in table.values()}) > 1:
        sizes = ", ".join(f"{column} {len(values)}" for column, values in table.items())
        rule = "must have as many records in each column"
        problems.met.append(InputError(f"data of {name}", sizes, rule, "correct the data"))
        return _Records(columns=tuple(columns), faults=report)
    count = length(table) if table else None
    bad = np.zeros(count or 0, dtype=np.bool_)
    for values in table.values() if report else ():  # in memory, an empty text is a text
        bad |= bad_values(values)
    if report:
        problems.met.append(_bad_rows_error(name, data, int(bad.sum()), count=count or 0, faults=report))
    if count is not None and count != stated:
        problems.met.append(RecordCountError(name, count, stated))
    return _Records(
        table=table,
        good={column: values[~bad] for column, values in table.items()},
        count=count,
        bad_rows=int(bad.sum()),
        columns=tuple(columns),
        faults=report,
        is_clean=not lost and not report and count == stated,
    )


def _read(
    study: Study, name: str, data: Records
) -> tuple[dict[str, Column], Faults, Mapping[str, FileError | _LostColumnError]]:
    wanted = study.columns_of(name)
    if not isinstance(data, str | os.PathLike):
        return _take(name, data, study)
    table, faults, lost = survey_table(Path(data), wanted)
    return table, faults, lost


class _LostColumnError(InputError):
    """A column of a table in memory that cannot be used."""

    def __init__(self, error: InputError) -> None:
        super().__init__(error.field, error.value, error.rule, error.remedy)
        self.problem = error.rule


def _take(name: str, data: Records, study: Study) -> tuple[dict[str, Column], Faults, dict[str, _LostColumnError]]:
    """As `survey_table`, for a table in memory."""
    faults, lost = Faults(), {}
    columns: dict[str, Column] = {}
    for column, kind in study.columns_of(name).items():
        try:
            table = as_table(data, {column: kind}, name, faults=faults)
            if any(fault.column == column for fault in faults.report()):  # its bad entries are counted
                columns[column] = table[column]
            else:
                columns[column] = check_column(name, column, kind, table=table, records=None, faults=faults)
        except InputError as error:
            lost[column] = _LostColumnError(error)
    return columns, faults, lost


def _bad_rows_error(name: str, data: Records, bad: int, *, count: int, faults: tuple[Fault, ...]) -> TpmdpError:
    first = faults[0]
    where = f"column {first.column}, " if first.column else ""
    text = f"{where}{', '.join(first.places[:_SHOWN])}{', ...' if bad > len(first.places[:_SHOWN]) else ''}"
    remedy = "correct these records, or remove them and lower `records` in the study"
    if isinstance(data, str | os.PathLike):
        return BadRecordsError(data, bad, count, places=text, remedy=remedy)
    return InputError(f"data of {name}", f"{bad} of {count} records", f"have bad values ({text})", remedy)


def _clipped(study: Study, name: str, table: Table) -> tuple[Clipped, ...]:
    """Of the columns that could be read."""
    result = []
    for query in study.queries:
        if not _is_whole(query, name, table):
            continue
        part = query.selected(table)
        for bounds in query.ranges_of(name):
            values = numbers(part, bounds.column)
            below, above = int((values < bounds.low).sum()), int((values > bounds.high).sum())
            result.append(
                Clipped(
                    query.name,
                    bounds.column,
                    bounds.low,
                    high=bounds.high,
                    below=below,
                    above=above,
                    records=len(values),
                )
            )
    return tuple(result)


def _counting(study: Study, table: Table) -> tuple[tuple[str, int], ...]:
    """How many records count, for queries that leave some out."""
    sums = [query for query in study.computation.sums if query.columns and set(query.columns) <= set(table)]
    counts = [(query.name, length(query.selected(table)) if length(table) else 0) for query in sums]
    return tuple((query, count) for query, count in counts if count < length(table) or not count)


def _is_whole(query: BaseQuery, name: str, table: Table) -> bool:
    """Whether all columns of a query could be read, and there are records."""
    return bool(length(table)) and set(query.columns_of(name)) <= set(table)


def _uncounted(study: Study, name: str, contribution: Contribution | None) -> list[str]:
    records = study.party(name).records
    return [
        f"none of your {records} records counts for {query}: check the spelling of categories and conditions"
        for query in (contribution.uncounted if contribution is not None else ())
    ]


# Ledger ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _LedgerView:
    state: LedgerState
    after: Spent | None
    session: SessionAccount | None = None
    rounds: str = ""  # which are done
    begun: Begun | None = None
    earlier: Earlier | None = None


def _account(
    study: Study,
    terms: Terms | None,
    name: str,
    *,
    ledger: Ledger | None,
    key: Ed25519PrivateKey | None,
    problems: _Problems,
) -> _LedgerView:
    """What the ledger says to the session, and what it would say afterwards."""
    party = study.party(name)
    limit = (party.epsilon, party.delta)  # of a new ledger, or of a unit for which none was set
    if terms is None:
        return _LedgerView("new" if ledger is None else "unknown", None)
    every, index = all_terms(study, terms), study.index(name)
    charge = joint_charge(study, index, every)
    if ledger is None:
        after = spent_after(Totals(0.0, 0.0, limit[0], limit_delta=limit[1]), charge, sessions=len(every))
        problems.attempt(lambda: check_noise(terms, index, limit[0]))
        return _LedgerView("new", after)
    problems.attempt(lambda: check_holder(ledger, name))
    if key is not None:
        problems.attempt(lambda: ledger.check_owner(key.public_key().public_bytes_raw()))
    session = account_of(study.first, terms, name, identity=key, ledger=ledger) if key is not None else None
    reached = sessions_in(ledger, study, terms)
    state = status_of(reached)
    begun = next((each for each in begun_sessions(ledger) if each.key == key_of(terms)), None)
    earlier = earlier_sessions(study, ledger, joint_charge(study, index, every), session=terms.session)
    if study.rounds > 1 and state == "charged":
        every = every[len(reached) - (reached[-1].status != "charged") :]
        left = joint_charge(study, index, every)
        after = ledger.after(left, unit=study.unit, sessions=[each.session for each in every])
        return _LedgerView(state, after, session, rounds=rounds_text(reached), begun=begun, earlier=earlier)
    if state in ("charged", "settled"):
        return _LedgerView(state, ledger.spent(study.unit), session, begun=begun, earlier=earlier)
    used = limit if not ledger.has_limit(study.unit) else None
    after = ledger.after(charge, unit=study.unit, sessions=[each.session for each in every], limit=used)
    problems.attempt(lambda: check_noise(terms, index, after.limit_epsilon))
    if charge.mu != np.inf:
        problems.attempt(lambda: check_room(study.first, terms, index, ledger=ledger))
        if used is not None and after.epsilon > after.limit_epsilon:
            total = ledger.spent(study.unit)
            cost = joint_epsilon(study, index, every)
            problems.met.append(
                OverspendError(ledger.path, name, study.label, cost=cost, after=after.epsilon, spent=total)
            )
    return _LedgerView(state, after, session, begun=begun, earlier=earlier)


def _state_notes(study: Study, state: LedgerState, rounds: str) -> list[str]:
    if rounds and state != "settled":
        return [f"{rounds}: joining goes on with the others, for which room is set aside, and with the same records"]
    texts: dict[LedgerState, str] = {
        "not given": "no ledger was given: the cost is shown for a new one, whose limit is the budget in the study",
        "new": "no ledger is there yet: joining makes one, whose limit is the budget in the study",
        "held": "this session was begun: its room is set aside, and joining goes on with it",
        "charged": "this session was charged before: joining goes on with it, at no new cost",
        "settled": f"this session is finished: joining repeats its outcome at no cost; "
        f"a new one is --session {study.session + 1}",
    }
    return [texts[state]] if state in texts else []


def _check_means(study: Study, state: LedgerState, problems: _Problems) -> None:
    """Refuse what `join` would refuse before it waits for the others."""
    if state == "settled":
        return
    if isinstance(study.computation, SharedFunction):
        problems.attempt(lambda: check_installed(study))
        problems.attempt(lambda: addresses_of(study))
    if study.seconds_left() <= 0:
        problems.met.append(DeadlineError("the deadline of the study has passed: join with a later one"))


def _risk_notes(study: Study) -> list[str]:
    if study.threshold:
        return []
    return ["threshold = 0: no noise is added, and every receiver learns the exact answer"]


# Coalitions -----------------------------------------------------------------------------------------------------------


def _counted(study: Study, terms: Terms, index: int, *, after: Spent) -> float:
    """What the session costs, with all its rounds, at the delta of the ledger's limit."""
    charge = joint_charge(study, index, all_terms(study, terms))
    return promise(square_up(charge.mu), charge.closeness, after.limit_delta)


def _coalitions(study: Study, first: Terms, index: int) -> tuple[Coalition, ...]:
    """The smallest that can learn anything, the worst within the threshold, and the worst with one party more.

    One party more than the threshold can put all shares together, where the study is computed on shares. Of a study by
    rounds, the coalition that is worst in the last one; the epsilon is that of the worst in each.
    """
    every = all_terms(study, first)
    terms = every[-1]
    spec = terms.spec
    within = max(1, int(np.max(spec.threshold)))
    squares = (terms.sigma * terms.sigma).astype(np.float64)
    result: list[Coalition] = []
    for size in dict.fromkeys((1, within, within + 1)):
        if size >= spec.count:
            continue
        members = worst_coalitions(squares, size, spec.receivers).coalition(index).tolist()
        names = tuple(spec.name(member) for member in members)
        if names:
            is_within = size <= int(np.max(spec.threshold))
            has_shares = size > within and not study.computation.is_sum
            epsilon = math.inf if has_shares else joint_epsilon(study, index, every, colluders=size)
            result.append(Coalition(names, epsilon, is_within))
    return tuple(result)
