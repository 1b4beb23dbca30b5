"""Tables in terminals of every width: nothing is cut."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.markup import escape

import tpmdp
from tpmdp.planning.parties_file import read_parties
from tpmdp.queries.answer import Answer
from tpmdp.queries.catalogue import KINDS
from tpmdp.report.plan import PlanReport, print_plan
from tpmdp.report.queries import print_kinds
from tpmdp.report.release import answer_table, count_queries, print_releases
from tpmdp.report.tables import add_numbers, new_table
from tpmdp.study.release import PartyRelease

ROOT = Path(__file__).parents[2]
WIDTHS = (40, 60, 80, 100, 140)


def printed(width: int, *parts: object) -> str:
    stream = io.StringIO()
    console = Console(file=stream, width=width, highlight=False, emoji=False)
    for part in parts:
        console.print(part)
    return check_width(stream.getvalue(), width)


def check_width(text: str, width: int) -> str:
    for line in text.splitlines():
        assert len(line.rstrip()) <= width, line
    return text


def words(text: str) -> str:
    """Without blanks and line ends, so that folded names are found."""
    return re.sub(r"\s", "", text)


def consortium() -> PlanReport:
    parties = read_parties(ROOT / "examples" / "consortium.csv")
    return PlanReport.of(tpmdp.plan(parties.spec(2, ["statistics_office", "hospital_north"])))


@pytest.mark.parametrize("width", WIDTHS)
def test_a_plan_shows_the_same_at_every_width(width: int) -> None:
    report, stream = consortium(), io.StringIO()
    print_plan(report, Console(file=stream, width=width, highlight=False))
    text = check_width(stream.getvalue(), width)
    assert "…" not in text
    bare = words(text)
    for name in ("hospital_north", "hospital_south", "insurer", "university", "statistics_office"):
        assert name in bare or width < 60
    for number in ("64.93", "37.91", "11.3x", "97.39", "0.91x", "0.652", "1.323", "1e-06"):
        assert number in text, number
    for phrase in ("collude", "the noise is there for", "worst-case", "83 %", "a third party sees all the data"):
        assert words(phrase) in bare or words(phrase.split()[-1]) in bare, phrase
    # the worst coalition of each party
    assert bare.count("hospital_north") >= 5


def test_rows_become_blocks_where_numbers_would_be_cut() -> None:
    table = new_table("Parties", "party")
    add_numbers(table, "sensi-\ntivity", "left for\none more")
    table.add_row(escape("north [bold]"), "1,234,567.5", "0.000123456")
    assert "north [bold]   1,234,567.5" in re.sub(r" {3,}", "   ", printed(60, table))
    blocks = printed(30, table)
    assert "party north [bold]" in blocks
    assert words("sensitivity 1,234,567.5; left for one more 0.000123456") in words(blocks)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_catalogue_prints_its_footnote(width: int) -> None:
    stream = io.StringIO()
    print_kinds(KINDS, Console(file=stream, width=width, highlight=False))
    bare = words(check_width(stream.getvalue(), width))
    assert words("[key]: may be left out. where: a condition; by: groups. More: tpmdp query explain KIND.") in bare
    assert all(kind in bare for kind in KINDS) or width < 80


@pytest.fixture(scope="module")
def releases() -> tuple[tpmdp.Study, list[PartyRelease]]:
    folder = ROOT / "examples" / "stay"
    study = tpmdp.Study.read(folder / "study.toml")
    return study, list(tpmdp.run(study, study.read_tables(folder)).parties.values())


@pytest.mark.parametrize("width", WIDTHS)
def test_a_release_says_what_a_narrow_terminal_leaves_out(
    releases: tuple[tpmdp.Study, list[PartyRelease]], width: int
) -> None:
    stream = io.StringIO()
    print_releases(*releases, Console(file=stream, width=width, highlight=False))
    bare = words(check_width(stream.getvalue(), width))
    for heading in (
        "offered epsilon",
        "charged epsilon",
        "at delta",
        "spent in all",
        "left for one more",
        "bytes sent",
    ):
        assert all(word in bare for word in heading.split()), heading
    assert ("Inawiderterminalalso:" in bare) == (width < 92)


def test_counts_are_printed_as_whole_numbers(releases: tuple[tpmdp.Study, list[PartyRelease]]) -> None:
    study, parties = releases
    assert count_queries(study) == {"patients over 65"}
    answers = [
        Answer("patients over 65", 561.37, 0.42),
        Answer("mean stay in days", 6.5213, 0.2505),
    ]
    table = answer_table([replace(parties[0], answers=tuple(answers))], 140, count_queries(study))
    assert table is not None
    text = printed(100, table)
    assert re.search(r"patients over 65 +561 +0.42 +560 to 563", text)
    assert re.search(r"mean stay in days +6.52 +0.25 +6.03 to 7.02", text)
