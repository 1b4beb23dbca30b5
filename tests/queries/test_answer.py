"""Further intervals of an answer: written, read back, and shown wherever answers are shown."""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from tests.study.sessions import finish, study
from tpmdp.errors import InputError
from tpmdp.queries.answer import Answer, FurtherInterval, further_names
from tpmdp.report.answer_file import write_answer_file
from tpmdp.report.html_report import page
from tpmdp.report.release import answer_table
from tpmdp.study.display import answer_rows, answers_html
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease

OPEN = FurtherInterval("noise and sampling", 5.25, math.inf)
ANSWERS = (Answer("old", 9.0, 1.0, further=(OPEN,)), Answer("old", 3.0, 1.0, "rest"))


def test_they_survive_json() -> None:
    plain = json.loads(json.dumps(ANSWERS[0].plain(), allow_nan=False))
    assert plain["further"] == {"noise and sampling": [5.25, None]}
    assert Answer.of_plain(plain) == ANSWERS[0]
    assert "further" not in ANSWERS[1].plain()
    assert further_names(ANSWERS) == ["noise and sampling"]


def test_they_are_shown_in_tables_frames_and_notebooks() -> None:
    rows = answer_rows(ANSWERS)
    assert (rows[0]["noise_and_sampling_low"], rows[0]["noise_and_sampling_high"]) == (5.25, math.inf)
    assert math.isnan(rows[1]["noise_and_sampling_low"])
    html = answers_html(ANSWERS)
    assert "95 % interval of noise and sampling" in html
    assert "5.2 or more" in html
    release = PartyRelease(
        "north", ANSWERS, "", 1.0, delta=1e-6, spent=None, left=None, bytes_sent=0, attempt=1
    )  # fmt: skip
    table = answer_table([release])
    assert table is not None
    assert list(table.columns[-1].cells) == ["5.2 or more", ""]
    assert "further intervals: noise and sampling" in str(table.caption)


def test_they_are_in_files_and_are_checked_when_read(tmp_path: Path) -> None:
    done = finish(study(), tmp_path)
    with done.ledger("north") as ledger:
        record = replace(SessionRecord.of(done.study, [ledger], with_answer=True), answers=ANSWERS)
    write_answer_file(record, tmp_path / "answer.csv")
    with (tmp_path / "answer.csv").open(newline="") as stream:
        first, second = csv.DictReader(stream)
    assert (first["noise_and_sampling_low"], first["noise_and_sampling_high"]) == ("5.25", "")
    assert second["noise_and_sampling_low"] == ""
    assert "further intervals: noise and sampling" in page(record)
    broken: tuple[object, ...] = ([], {"noise": 1}, {"noise": [1]}, {"noise": ["1", 2]})
    for wrong in broken:
        document = record.document()
        document["answers"][0]["further"] = wrong
        with pytest.raises(InputError, match="further"):
            SessionRecord.parse(document)
