"""`tpmdp ledger`: make, show, check, export and limit a party's privacy ledger."""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tpmdp.cli.options import number
from tpmdp.cli.sections import WholeSummaries
from tpmdp.errors import InputError, shown

if TYPE_CHECKING:
    from rich.console import Console

    from tpmdp.ledger import Entry, Ledger, Spent

_FILE: Final = click.Path(path_type=Path, readable=False)  # tpmdp reports its own errors
_EXPORTS: Final = (".csv", ".jsonl", ".json")
_ROWS_MAX: Final = 40  # a longer ledger shows its newest entries only
_SESSION_SHOWN: Final = 8
_TEXT_SHOWN: Final = 32
_WIDE: Final = 100  # columns that the whole table takes
_NARROW: Final = 72


@click.group(cls=WholeSummaries)
def ledger() -> None:
    """What a party has spent on privacy, and what it may still spend."""


@ledger.command()
@click.argument("file", type=_FILE)
@click.option("--party", required=True, help="Whose ledger this is.")
@click.option("--epsilon", required=True, callback=number, help="Most to spend in all; inf for no limit.")
@click.option("--delta", required=True, callback=number, help="The delta at which all is added up, such as 1e-6.")
@click.option("--unit", default="record", show_default=True, help="What a budget protects: record or party.")
def create(file: Path, party: str, epsilon: float, delta: float, unit: str) -> None:
    """Make a new ledger FILE, readable by you only.

    Example: tpmdp ledger create north.ledger --party hospital_north --epsilon 2 --delta 1e-6
    """
    from tpmdp.ledger import Ledger

    with Ledger.create(file, party, epsilon, delta=delta, unit=unit):
        click.echo(f"wrote {file}")


@ledger.command()
@click.argument("file", type=_FILE)
@click.option("--json", "as_json", is_flag=True, help="Print what is spent and left as JSON.")
def show(file: Path, as_json: bool) -> None:
    """Show the newest entries of the ledger FILE, what is spent, the limit and what is left."""
    from tpmdp.ledger import UNITS, Ledger

    with Ledger.open(file) as opened:
        spent = opened.spent()
        newest = opened.newest(_ROWS_MAX)
        others = {unit: opened.spent(unit) for unit in UNITS if unit != opened.unit and opened.has_limit(unit)}
        if as_json:
            click.echo(json.dumps(_summary(opened, spent, newest[-1]), allow_nan=False))
            return
    from tpmdp.cli.output import print_with

    print_with(lambda console: _show(opened, spent, newest, others=others, console=console))


@ledger.command()
@click.argument("file", type=_FILE)
@click.option("--head", help="A hash noted earlier, which must still be in the ledger.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def verify(file: Path, head: str | None, as_json: bool) -> None:
    """Check every entry of the ledger FILE: hashes, totals, limits, sessions.

    Note the head it prints, somewhere else: given back with --head it shows whether entries were cut off or rewritten.
    """
    from tpmdp._util.progress import stage
    from tpmdp.ledger import Ledger

    with Ledger.open(file) as opened, stage("checking the ledger") as progress:
        newest = opened.verify(head, progress)
        count = next(entry.number for entry in opened.newest(1))
    if as_json:
        click.echo(json.dumps({"valid": True, "entries": count, "head": newest}))
        return
    noted = " The head noted earlier is among them." if head else ""
    click.echo(f"VALID: {count} {'entry' if count == 1 else 'entries'}, each as it was written.{noted}\nhead {newest}")


@ledger.command()
@click.argument("file", type=_FILE)
@click.option("--out", type=_FILE, help="Write here instead; a name ending in .csv gets CSV.")
def export(file: Path, out: Path | None) -> None:
    """Write all entries of the ledger FILE as JSON lines or CSV, without private state."""
    from tpmdp._util.files import check_output, replacing
    from tpmdp.ledger import Ledger

    if out is not None:
        check_output(out)
        if os.path.realpath(out) == os.path.realpath(file) or (file.exists() and out.exists() and out.samefile(file)):
            raise InputError("--out", str(out), "is the ledger itself", "choose another name")
        if out.suffix.lower() not in _EXPORTS:
            raise InputError("--out", str(out), f"must end in {', '.join(_EXPORTS)}", "rename it")
    with Ledger.open(file) as opened:
        if out is None:
            for row in opened.export():
                click.echo(json.dumps(row, allow_nan=False))
            return
        with replacing(out) as temporary:
            _write(opened.export(), temporary, as_csv=out.suffix.lower() == ".csv")
    click.echo(f"wrote {out}")


@ledger.command()
@click.argument("file", type=_FILE)
@click.option("--epsilon", callback=number, help="Most to spend in all. Default: as before.")
@click.option("--delta", callback=number, help="The delta at which all is added up. Default: as before.")
@click.option("--unit", help="What the limit protects: record or party. Default: the ledger's own unit.")
def limit(file: Path, epsilon: float | None, delta: float | None, unit: str | None) -> None:
    """Set a new limit for the ledger FILE; what was spent before counts towards it."""
    from tpmdp.ledger import Ledger

    if epsilon is None and delta is None:
        raise InputError("--epsilon", "(none)", "is missing", "give a new epsilon, a new delta or both")
    with Ledger.open(file) as opened:
        now = opened.spent(unit)
        limits = now.limit_epsilon if epsilon is None else epsilon, now.limit_delta if delta is None else delta
        opened.set_limit(*limits, unit=unit)
        click.echo(_balance(opened.spent(unit)))


@ledger.command()
@click.argument("file", type=_FILE)
@click.argument("session")
def cancel(file: Path, session: str) -> None:
    """Give up a session of the ledger FILE for which room is held; SESSION is how its id begins, as show prints it.

    The room is free again. The session is never resumed: set another number in the study to ask again. Of a study by
    rounds, all rounds that are held are given up.

    The other parties are not told, and your agreement may already be with them: it cannot be called back. Once all have
    agreed, the others are charged, and without you they get no answer, unless the study lets enough parties drop out.
    """
    from tpmdp.ledger import Ledger
    from tpmdp.study.begun import give_up, withdrawal_text

    with Ledger.open(file) as opened:
        holds = [entry for entry in opened.holds() if entry.session.startswith(session.lower())]
        if len(session) < _SESSION_SHOWN or not holds or len({entry.session for entry in holds}) > 1:
            rule = f"must be the first {_SESSION_SHOWN} digits or more of one session that is held"
            raise InputError("SESSION", session, rule, f"see tpmdp ledger show {file}")
        rounds = "" if give_up(opened, holds) == 1 else " and the rounds after it"
        click.echo(f"cancelled {shown(holds[0].study)}{rounds}; {_balance(opened.spent())}")
        click.echo(withdrawal_text())


def _write(rows: Iterable[Mapping[str, object]], path: Path, as_csv: bool) -> None:
    with path.open("w", encoding="utf-8", newline="") as stream:
        if not as_csv:
            stream.writelines(json.dumps(row, allow_nan=False) + "\n" for row in rows)
            return
        writer = csv.writer(stream)
        for place, row in enumerate(rows):
            if place == 0:
                writer.writerow(row)
            writer.writerow(row.values())


def _plain(value: Any) -> Any:
    """JSON has no infinity."""
    return "inf" if isinstance(value, float) and math.isinf(value) else value


def _summary(opened: Ledger, spent: Spent, last: Entry) -> dict[str, Any]:
    numbers = {name: _plain(value) for name, value in asdict(spent).items()}
    return {"party": opened.party, "unit": opened.unit, **numbers, "entries": last.number, "head": last.hash}


def _balance(spent: Spent) -> str:
    from tpmdp.ledger import rounded_up
    from tpmdp.report.numbers import plural

    left = spent.left_text if spent.left_text == "none" else f"epsilon {spent.left_text}"
    held = f"; room set aside for {plural(spent.held, 'session')}" if spent.held else ""
    return (
        f"spent epsilon {rounded_up(spent.epsilon)}, limit epsilon {spent.limit_epsilon:.12g} at delta "
        f"{spent.limit_delta:g}{held}; left for one more release: {left}"
    )


def _show(opened: Ledger, spent: Spent, newest: list[Entry], *, others: Mapping[str, Spent], console: Console) -> None:
    """The table of entries and the balance under it."""
    from rich.markup import escape

    from tpmdp.ledger import promises, rounded_up, square_up
    from tpmdp.report.numbers import number, plural
    from tpmdp.report.tables import new_table

    table = new_table("Privacy ledger")
    wide = console.width >= _WIDE
    table.add_column("time (UTC)" if wide else "date", no_wrap=True)
    table.add_column("entry", no_wrap=True)
    narrow = console.width < _NARROW
    if not narrow:
        table.add_column("study", overflow="fold", min_width=8)
    if wide:
        table.add_column("session", no_wrap=True)
        table.add_column("mu", justify="right", no_wrap=True)
    for heading in ("epsilon\nalone", "epsilon\nin all"):
        table.add_column(heading, justify="right", no_wrap=True, min_width=7)
    table.add_column("remark", overflow="fold", min_width=8)
    delta = [spent.limit_delta] * len(newest)
    alone = promises([square_up(entry.mu) for entry in newest], [entry.closeness for entry in newest], delta)
    running = promises([e.mu_squared_total for e in newest], [e.closeness_total for e in newest], delta)
    if newest[0].number > 1:
        table.add_row(f"... {newest[0].number - 1} earlier")
    for entry, own, total in zip(newest, alone, running, strict=True):
        remark = entry.outcome
        if entry.kind in ("open", "limit"):
            remark = f"limit {entry.limit_epsilon:.6g} at {entry.limit_delta:g}"
        mu, cost = (number(entry.mu), rounded_up(own)) if entry.is_charge or entry.kind == "hold" else ("", "")
        text = escape(shown(entry.study, _TEXT_SHOWN)) if entry.study else ""
        when = entry.time.removesuffix("+00:00").replace("T", " ")
        more = [entry.session[:_SESSION_SHOWN], mu] if wide else []
        cells = [entry.kind, *([] if narrow else [text]), *more, cost, rounded_up(total)]
        shown_remark = escape(shown(remark, _TEXT_SHOWN)) if remark else ""
        table.add_row(escape(when if wide else when[:10]), *cells, shown_remark)
    table.caption = f"epsilon at today's delta, {spent.limit_delta:g}"
    console.print(f"{escape(opened.party)}: {plural(spent.sessions, 'session')}; a budget protects one {opened.unit}")
    console.print(table)
    console.print(_balance(spent))
    for unit, other in others.items():
        console.print(f"by {unit}: {_balance(other)}")
    console.print(f"head {newest[-1].hash}")
