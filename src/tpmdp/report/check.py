"""What a party can know before it takes part, as tables and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tpmdp.ledger import left_text, promise, rounded_up
from tpmdp.ledger.spending import NONE_LEFT
from tpmdp.report.numbers import number, plain_number, plural
from tpmdp.report.promise import best_guess, percent_up
from tpmdp.report.queries import expected_json, expected_table, no_noise_text
from tpmdp.report.tables import add_numbers, keep_numbers, new_table

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from tpmdp.ledger import Spent
    from tpmdp.study.model import Study
    from tpmdp.study.party_check import Coalition, PartyCheck

_NAMES_SHOWN: Final = 4
_EARLIER_SHOWN: Final = 3
_DIGITS: Final = 3
EYES_ONLY: Final = "For your eyes only: do not pass it on, it is not protected."
NOBODY: Final = "nobody can. You are the only receiver."
_WIDE: Final = 80  # columns from which more is shown
_MANY_CLIPPED: Final = 0.05  # of the records


def print_check(study: Study, check: PartyCheck, console: Console) -> None:
    """Records, cost, expected errors and coalitions, and whether `join` would go on."""
    from rich.markup import escape

    console.print(escape(f"{check.study} as {check.party}. Nothing was charged, sent or written."))
    _print_records(check, console)
    if check.expected is not None:
        console.print()
        if text := no_noise_text(study, check.expected):
            console.print(escape(text))
        console.print(expected_table(study, check.expected.queries))
        if study.assumes:
            console.print(escape(f"Assumed: {study.assumes}."))
    _print_cost(check, console)
    _print_coalitions(check, console)
    console.print()
    for note in check.notes:
        console.print(escape(f"Note: {note}."))
    if check.is_ready:
        console.print("tpmdp join would go on.")
        return
    if not check.own_problems:
        console.print("Nothing on your side stands in the way. Before you can join:")
    else:
        console.print("tpmdp join would stop:")
    for problem in check.problems:
        console.print(escape(f"- {problem}"))


def _print_records(check: PartyCheck, console: Console) -> None:
    from rich.markup import escape

    if not check.records_stated:
        console.print(escape(f"The study says that {check.party} has no records."))
        return
    table = new_table("Your columns", "column")
    add_numbers(table, "read as", "missing", "not\nusable")
    has_problem = any(column.problem for column in check.columns)
    if has_problem:
        table.add_column("problem", overflow="fold")
    for column in check.columns:
        counted = check.records is not None and not column.problem
        cells = [f"{column.missing:,}", f"{column.unusable:,}"] if counted else ["-", "-"]
        table.add_row(escape(column.name), column.kind, *cells, *([escape(column.problem)] if has_problem else []))
    if check.columns:  # without data there is nothing to say about columns
        console.print(keep_numbers(table))
    console.print(escape(records_text(check)))
    for text in fault_texts(check):
        console.print(escape(text))
    if check.clipped or check.counting:
        console.print()
        console.print(_own_table(check, console.width))


def _own_table(check: PartyCheck, width: int) -> Table:
    """How many values are clipped, and how many records count; a narrow terminal shows fewer columns."""
    from rich.markup import escape

    is_wide = width >= _WIDE
    table = new_table("Your values against the queries", "query", *(["column", "bounds"] if is_wide else []))
    add_numbers(table, *(["below", "above"] if is_wide else []), "clipped", "records\ncounting")
    counting = dict(check.counting)
    for row in check.clipped:
        counting.pop(row.query, None)
        share = f"{100 * row.share:.1f} %"
        bounds = f"{number(row.low)} to {number(row.high)}"
        cells = [row.query, row.column, bounds, f"{row.below:,}", f"{row.above:,}"]
        texts = cells if is_wide else [f"{row.query}: {row.column}, {bounds}"]
        table.add_row(*map(escape, texts), share, f"{row.records:,}")
    for query, count in counting.items():
        table.add_row(escape(query), *[""] * (5 if is_wide else 1), f"{count:,}")
    table.caption = "\n".join(filter(None, [EYES_ONLY, clipped_advice(check)]))
    return keep_numbers(table)


def clipped_advice(check: PartyCheck) -> str:
    """What to do where many values are clipped; empty if few are."""
    if not any(row.share > _MANY_CLIPPED for row in check.clipped):
        return ""
    return "Clipped values are moved to the nearest bound. Where many are, the answer is off: ask for wider ones."


def records_text(check: PartyCheck) -> str:
    """How many records there are, beside what the study states."""
    if check.records is None:
        return f"Records: not counted; the study states {check.records_stated:,}."
    is_right = check.records == check.records_stated
    verdict = "as the study states" if is_right else f"but the study states {check.records_stated:,}"
    return f"Records: {check.records:,}, {verdict}."


def fault_texts(check: PartyCheck) -> list[str]:
    """A line for each kind of bad value in a column."""
    texts = []
    for fault in check.faults:
        where = f"{fault.column}: " if fault.column else ""
        more = ", ..." if fault.count > len(fault.places) else ""
        texts.append(f"{where}{fault.kind} in {plural(fault.count, 'row')}: {', '.join(fault.places)}{more}")
    if check.bad_rows:
        texts.append(f"Rows with a bad value: {check.bad_rows:,}. What follows leaves them out.")
    return texts


def cost_texts(check: PartyCheck) -> list[str]:
    """What the session costs the party, and what its ledger says afterwards; empty if that cannot be known."""
    if check.cost is None:
        return []
    epsilon, delta = check.offered
    text = f"Cost: epsilon {rounded_up(check.cost)} at delta {number(delta)}, of the {number(epsilon)} that you offer."
    if not check.charged_now:
        text = f"Cost: nothing new. This session was charged before (epsilon {rounded_up(check.cost)})."
    if check.after is None:
        return [text]
    return [text, ledger_text(check.after, check.counted, epsilon), *earlier_texts(check)]


def ledger_text(after: Spent, counted: float | None, budget: float) -> str:
    """What the ledger says after a session, at its own delta, where the session's epsilon is `counted`."""
    here = "" if counted is None else f", where this session is {rounded_up(counted, _DIGITS)}"
    counts = f"Your ledger counts at delta {number(after.limit_delta)}{here}. Afterwards:"
    limit, left = f"{after.limit_epsilon:.12g}", left_text(after.left, budget, _DIGITS)
    if left == NONE_LEFT:
        return f"{counts} no room for a further session within your limit of {limit}."
    difference = left_text(after.limit_epsilon - after.epsilon, budget, _DIGITS)
    no_sum = "" if difference == left else f" (Not {difference}: epsilons do not simply add.)"
    return f"{counts} room for one further session of up to {left}, within your limit of {limit}.{no_sum}"


def earlier_texts(check: PartyCheck) -> list[str]:
    """That the party has answered this study before, and what all its sessions show together; or nothing."""
    earlier = check.earlier
    if earlier is None:
        return []
    listed = [f"{label.rpartition(' / ')[2]} on {time[:10]}" for label, time in earlier.sessions[-_EARLIER_SHOWN:]]
    more = len(earlier.sessions) - len(listed)
    which = f"{', '.join(listed)}{f' and {more} before' if more else ''}"
    whose = "one record" if check.unit == "record" else "all your records"
    guess = percent_up(best_guess(math.sqrt(earlier.mu_squared), earlier.closeness))
    epsilon = rounded_up(promise(earlier.mu_squared, earlier.closeness, check.offered[1]), _DIGITS)
    return [
        f"You answered this study before: {which}. If it was about the same records, all of it together is epsilon "
        f"{epsilon} at delta {number(check.offered[1])} about {whose}: the best guess is right at most {guess} of the "
        "time."
    ]


def coalitions_text(check: PartyCheck) -> str:
    """What the epsilons of coalitions mean."""
    whose = "one record of yours" if check.unit == "record" else "all your records"
    return f"epsilon: at your delta, about {whose}. A coalition needs a receiver."


def _print_cost(check: PartyCheck, console: Console) -> None:
    from rich.markup import escape

    texts = cost_texts(check)
    if texts:
        console.print()
    for text in texts:
        console.print(escape(text))


def _print_coalitions(check: PartyCheck, console: Console) -> None:
    from rich.markup import escape

    if check.cost is None or not check.records_stated:
        return
    console.print()
    if not check.coalitions:
        console.print(f"Who would have to collude against you: {NOBODY}")
        return
    table = new_table("Who would have to collude against you", "coalition", "")
    add_numbers(table, "epsilon")
    for place, coalition in enumerate(check.coalitions):
        table.add_row(escape(names_text(coalition)), coalition_role(check, place), rounded_up(coalition.epsilon))
    table.caption = coalitions_text(check)
    console.print(keep_numbers(table))


def names_text(coalition: Coalition) -> str:
    """The members, shortened.

    >>> from tpmdp.study.party_check import Coalition
    >>> names_text(Coalition(("a", "b", "c", "d", "e", "f"), 1.0, True))
    'a, b, c, d and 2 more'
    """
    names = coalition.members
    more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
    return ", ".join(names[:_NAMES_SHOWN]) + more


def coalition_role(check: PartyCheck, place: int) -> str:
    """Whether a coalition of the check lies within the threshold."""
    coalition = check.coalitions[place]
    if not coalition.is_within:
        return "beyond the threshold: no promise"
    last = place + 1 == len(check.coalitions) or not check.coalitions[place + 1].is_within
    if place == 0:
        return "a single party, and the worst within the threshold" if last else "a single party"
    return "the worst within the threshold"


def check_json(check: PartyCheck) -> dict[str, Any]:
    """The same as plain JSON values."""
    after = check.after
    return {
        "study": check.study,
        "party": check.party,
        "ready": check.is_ready,
        "problems": [str(problem) for problem in check.problems],
        "notes": list(check.notes),
        "private": {
            "note": EYES_ONLY,
            "records": check.records,
            "bad_rows": check.bad_rows,
            "columns": [
                {
                    "column": column.name,
                    "kind": column.kind,
                    "missing": column.missing,
                    "unusable": column.unusable,
                    "problem": column.problem or None,
                }
                for column in check.columns
            ],
            "faults": [
                {
                    "column": fault.column or None,
                    "kind": fault.kind,
                    "count": fault.count,
                    "places": list(fault.places),
                }
                for fault in check.faults
            ],
            "clipped": [
                {
                    "query": row.query,
                    "column": row.column,
                    "low": row.low,
                    "high": row.high,
                    "below": row.below,
                    "above": row.above,
                    "share": row.share,
                    "records": row.records,
                }
                for row in check.clipped
            ],
            "counting": dict(check.counting),
        },
        "records_stated": check.records_stated,
        "cost": None
        if check.cost is None
        else {
            "epsilon": plain_number(check.cost),
            "delta": check.offered[1],
            "offered_epsilon": plain_number(check.offered[0]),
            "charged_now": check.charged_now,
        },
        "ledger": {
            "state": check.ledger,
            "spent_after": None if after is None else plain_number(after.epsilon),
            "limit_epsilon": None if after is None else plain_number(after.limit_epsilon),
            "limit_delta": None if after is None else after.limit_delta,
            "counted": None if check.counted is None else plain_number(check.counted),
            "earlier_sessions": [] if check.earlier is None else [label for label, _ in check.earlier.sessions],
            "left_after": None if after is None else plain_number(after.left),
        },
        "coalitions": [
            {
                "members": list(coalition.members),
                "epsilon": plain_number(coalition.epsilon),
                "within_threshold": coalition.is_within,
            }
            for coalition in check.coalitions
        ],
        "queries": [] if check.expected is None else [expected_json(each) for each in check.expected.queries],
    }
