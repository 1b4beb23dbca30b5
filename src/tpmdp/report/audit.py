"""Tables: what an audit measured, beside what is promised and charged."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from tpmdp.ledger import rounded_down, rounded_up
from tpmdp.report.numbers import number, plain_number, plural
from tpmdp.report.tables import add_numbers, new_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from tpmdp.study.audit import Audit, AuditedParty
    from tpmdp.study.audit_entries import EntryFinding

_NAMES_SHOWN: Final = 4
_REACHED: Final = 0.95  # of a sensitivity, by tables that were found


def print_audit(audit: Audit, console: Console) -> None:
    """One line per party, then what the audit can show, and what it found."""
    from rich.markup import escape

    sessions = "one session" if audit.releases == 1 else f"{audit.releases} sessions"
    if audit.parties:
        table = new_table(escape(f"Audit of {audit.study.label}: epsilon of {sessions}"), "party", "seen by")
        add_numbers(table, "promised", "charged", "estimated", "at least\n(variance)", "at least\n(counts)")
        table.add_column("finding")
        for each in audit.parties:
            cells = [each.party, coalition_text(each), rounded_up(each.promised, 4), rounded_up(each.charged, 4)]
            cells += [number(each.estimated), *(rounded_down(bound) for bound in _bounds(each))]
            table.add_row(*map(escape, [*cells, "EXCEEDED" if each.exceeds else "as charged"]))
        table.caption = escape(_caption(audit))
        console.print(table)
    for party, reason in audit.skipped.items():
        console.print(escape(f"{party} is not audited: {reason}."))
    for each in audit.parties:
        if each.exceeds:
            console.print(escape(f"EXCEEDED: {exceeded_text(each)}"))
    if audit.entries is not None and audit.is_thin:
        console.print(escape(f"EXCEEDED: {thin_text(audit.entries)}"))
    console.print(escape(_reached_text(audit)), end="")
    console.print(escape(_closing(audit)))


def _bounds(each: AuditedParty) -> tuple[float, float]:
    """Lower bounds in few digits."""
    return float(f"{each.gaussian:.4g}"), float(f"{each.counted:.4g}")


def coalition_text(each: AuditedParty) -> str:
    """The members of the worst coalition; only the first ones of a large one."""
    return _names(each.coalition)


def _names(coalition: Sequence[str]) -> str:
    names = ", ".join(coalition[:_NAMES_SHOWN])
    more = len(coalition) - _NAMES_SHOWN
    return f"{names} and {more} more" if more > 0 else names


def exceeded_text(each: AuditedParty) -> str:
    """What is wrong with the charge of a party."""
    return (
        f"{each.party} loses at least epsilon {number(max(each.gaussian, each.counted))} and is charged "
        f"{rounded_up(each.charged, 4)}: do not take part, and report it"
    )


def thin_text(thinnest: EntryFinding) -> str:
    """Where noise is too small, and by how much at least."""
    seen = _names(thinnest.coalition)
    return (
        f"noise is smaller than planned in {thinnest.thin:,} of {plural(thinnest.tested, 'test')} of single entries. "
        f"Entry {thinnest.entry} of {thinnest.query} in {thinnest.session}, as {seen} would see it, has at most "
        f"{rounded_up(100 * thinnest.share, 3)} % of the planned variance: do not take part, and report it"
    )


def _reached_text(audit: Audit) -> str:
    """A line if the tables are not the worst ones, as far as the sensitivity tells."""
    least = min((each.reached for each in audit.parties), default=1.0)
    if least >= _REACHED:
        return ""
    return (
        f"The worst tables found move the vector by {100 * least:.0f} % of its sensitivity: it is larger than "
        "needed, as where no record is the worst for all queries and rounds, or the search missed it.\n"
    )


def _caption(audit: Audit) -> str:
    tested = audit.entries.tested if audit.entries is not None else 0
    return (
        f"From {plural(audit.draws, 'draw')} of all vectors; at each party's own delta. Variance: a bound if noise is "
        "Gaussian. Counts: a bound for any noise. The variance in single entries is tested as well, "
        f"{plural(tested, 'time')}. A study without fault is found at fault in fewer than 1 of 1,000 "
        f"audits; one that loses {100 * audit.excess:.2g} % more epsilon than is charged is found out in 95 of 100."
    )


def _closing(audit: Audit) -> str:
    if not audit.parties:
        return "Nothing was audited."
    if audit.exceeds:
        return "The study breaks its promise."
    return (
        "No bound exceeds its charge. An audit can show that a promise is broken; that it holds is proven, not shown."
    )


def audit_json(audit: Audit) -> dict[str, Any]:
    """The same as plain JSON values."""
    numbers = ("promised", "charged", "estimated", "gaussian", "counted")
    return {
        "study": audit.study.label,
        "releases": audit.releases,
        "draws": audit.draws,
        "excess_shown": plain_number(audit.excess),
        "exceeds": audit.exceeds,
        "entries": None if audit.entries is None else asdict(audit.entries),
        "parties": [
            {
                **asdict(each),
                "coalition": list(each.coalition),
                **{key: plain_number(getattr(each, key)) for key in numbers},
                "exceeds": each.exceeds,
            }
            for each in audit.parties
        ],
        "not_audited": audit.skipped,
    }
