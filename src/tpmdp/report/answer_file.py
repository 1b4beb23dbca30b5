"""Files that people keep of a session: the record as JSON, the answers as CSV, or the report as HTML."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Final

from tpmdp._util.files import check_output, replacing
from tpmdp.errors import InputError
from tpmdp.queries.answer import further_names
from tpmdp.report.html_report import page
from tpmdp.study.record import SessionRecord

COLUMNS: Final = ("query", "part", "value", "standard_error", "low", "high", "note")
_WEIGHTED: Final = ("noise", "always_low", "always_high")
_BEGINS: Final = {  # what our own files begin with
    ".json": b'{\n  "format": "tpmdp.session"',
    ".csv": ",".join(COLUMNS).encode(),
    ".html": b'<!DOCTYPE html>\n<html lang="en">\n<head>\n',
}
SUFFIXES: Final = tuple(_BEGINS)
# A cell that a spreadsheet would take for a formula; numbers and ranges of numbers, such as "-5 to below 0", are none.
_FORMULA: Final = re.compile(r"[=+@\t\r]|-(?![0-9.e+-]+( to below [0-9.e+-]+)?$)")


def check_answer_file(path: Path, has_answer: bool = True, suffixes: tuple[str, ...] = SUFFIXES) -> None:
    """Refuse, before anybody pays, a file that could not be written or would replace something else.

    >>> check_answer_file(Path("answer.xlsx"))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: out = answer.xlsx must end in .json, .csv or .html: rename it
    """
    suffix = path.suffix.lower()
    if suffix not in suffixes:
        rule = f"must end in {', '.join(suffixes[:-1])} or {suffixes[-1]}"
        raise InputError("out", str(path), rule, "rename it")
    if suffix == ".csv" and not has_answer:
        rule, remedy = "would be empty: this party does not receive the answer", "use .json or .html"
        raise InputError("out", str(path), rule, remedy)
    check_output(path)
    if path.exists() and path.stat().st_size:
        with path.open("rb") as stream:
            begins = stream.read(len(_BEGINS[suffix]))
        if begins != _BEGINS[suffix]:
            raise InputError("out", str(path), "exists and is something else", "choose another name")


def write_answer_file(record: SessionRecord, path: Path) -> None:
    """Write the file for its suffix. If it has an answer that not all parties receive, only its owner can read it."""
    suffix = path.suffix.lower()
    is_private = record.answers is not None and len(record.study.receivers) < len(record.study.parties)
    with replacing(path, private=is_private) as temporary:
        if suffix == ".csv":
            _write_csv(record, temporary)
        elif suffix == ".json":
            text = json.dumps(record.document(), indent=2, ensure_ascii=False, allow_nan=False)
            temporary.write_text(text + "\n", encoding="utf-8")
        else:
            temporary.write_text(page(record), encoding="utf-8")


def answer_remark(record: SessionRecord) -> str:
    """Whether a file has the answer, and who may see it."""
    if record.answers is None:
        return ", without the answer"
    if len(record.study.receivers) == len(record.study.parties):
        return " with the answer, which all parties receive"
    return f" with the answer: only {', '.join(record.study.receivers)} may see it"


def _write_csv(record: SessionRecord, path: Path) -> None:
    answers = record.answers or ()
    further = {name: name.replace(" ", "_") for name in further_names(answers)}
    columns = [*COLUMNS, *(_WEIGHTED if any(answer.always is not None for answer in answers) else ())]
    columns += [f"{name}_{end}" for name in further.values() for end in ("low", "high")]
    with path.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        for answer in answers:
            values = answer.plain()
            for covers, ends in values.get("further", {}).items():
                values |= {f"{further[covers]}_low": ends[0], f"{further[covers]}_high": ends[1]}
            writer.writerow([_cell(values.get(column)) for column in columns])


def _cell(value: object) -> object:
    """A cell; text from outside never becomes a formula of a spreadsheet, and what is infinite stays empty."""
    if isinstance(value, str) and _FORMULA.match(value):
        return "'" + value
    return "" if value is None else value
