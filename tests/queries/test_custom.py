"""Queries of one's own: they work in a study, their code is among the terms, bad files are refused in one line."""

from __future__ import annotations

import hashlib
import tomllib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from tests.queries.cases import UNITS, statistic
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.queries.base import Query
from tpmdp.queries.catalogue import KINDS, make_query
from tpmdp.queries.custom import load_queries
from tpmdp.queries.search import search
from tpmdp.study.answers import answers as answers_from
from tpmdp.study.model import Study
from tpmdp.study.run import run

GOOD: Final = '''
"""The share of even numbers."""
from dataclasses import dataclass

import numpy as np

from tpmdp.queries.answer import Answer
from tpmdp.queries.base import Query


@dataclass(frozen=True)
class EvenShare(Query):
    column: str
    upto: float = 100.0

    dimension = 1
    spread = 1.0

    @property
    def columns(self):
        return {self.column: "number"}

    def features(self, table):
        values = table[self.column]
        return [((values % 2 == 0) & (np.abs(values) <= self.upto)).astype(np.float64)]

    def answers(self, total, records, standard_error):
        return [Answer(self.name, float(total[0]) / records, standard_error / records)]
'''
ENTRY: Final = {"name": "even", "kind": "even_share", "column": "x"}


def study_with(kinds: Any, *entries: dict[str, Any]) -> Study:
    parties = [{"name": name, "records": 10} for name in ("a", "b", "c")]
    top = {"name": "s", "threshold": 1, "receivers": "all", "delta": 1e-6, "epsilon": 1.0, "parties": parties}
    return Study.parse({**top, "queries": list(entries)}, kinds)


def asked(study: Study) -> str:
    return study.with_keys({name: name.encode() * 32 for name in ("a", "b", "c")}).terms().query


@pytest.fixture
def own_file(tmp_path: Path) -> Path:
    path = tmp_path / "own.py"
    path.write_text(GOOD, encoding="utf-8")
    return path


def test_a_query_of_ones_own_works_in_a_study(own_file: Path) -> None:
    kinds = load_queries(own_file)
    assert set(kinds) == {*KINDS, "even_share"}
    study = study_with(kinds, {**ENTRY, "upto": 50}, {"name": "c", "kind": "count", "column": "x", "at_least": 3})
    column = np.arange(10.0)
    total = sum(statistic(study, name, {"x": column}) for name in ("a", "b", "c"))
    terms = study.with_keys({name: name.encode() * 32 for name in ("a", "b", "c")}).terms()
    even, count = answers_from(study, terms, np.rint(np.asarray(total) / terms.grid.step).astype(np.int64))
    assert even.value == pytest.approx(0.5, abs=0.01)
    assert count.value == pytest.approx(21, abs=0.1)
    assert Study.parse(tomllib.loads(study.toml()), kinds) == study
    with pytest.raises(InputError, match="even_share"):
        Study.parse(tomllib.loads(study.toml()))


@pytest.mark.parametrize("unit", UNITS)
def test_the_search_knows_a_query_of_ones_own(own_file: Path, unit: Any) -> None:
    query = make_query(ENTRY, load_queries(own_file))
    assert isinstance(query, Query)
    assert search(query, unit, tries=400).verdict == "tight"


def test_the_code_is_part_of_what_parties_agree_on(own_file: Path, tmp_path: Path) -> None:
    digest = hashlib.sha256(own_file.read_bytes()).hexdigest()
    study = study_with(load_queries(own_file), ENTRY)
    assert digest in asked(study)
    other = tmp_path / "other.py"
    other.write_text(GOOD.replace("% 2 == 0", "% 2 == 1"), encoding="utf-8")
    different = study_with(load_queries(other), ENTRY)
    assert asked(different) != asked(study)
    keys = {name: name.encode() * 32 for name in ("a", "b", "c")}
    with pytest.raises(InputError, match="terms = query differ from the study"):
        different.with_keys(keys).check_terms(study.with_keys(keys).terms())
    again = study_with(load_queries(own_file), ENTRY)
    assert asked(again) == asked(study)
    again.with_keys(keys).check_terms(study.with_keys(keys).terms())


def test_a_query_of_ones_own_has_no_parts_unless_it_says_so(own_file: Path) -> None:
    with pytest.raises(InputError, match="cannot have `where` or `by`"):
        make_query({**ENTRY, "where": "x >= 1"}, load_queries(own_file))


def test_keys_of_ones_own_query_are_checked_like_others(own_file: Path) -> None:
    kinds = load_queries(own_file)
    for change, field in (({"upto": "5"}, "upto of even"), ({"up": 5}, "key in the even_share query even")):
        with pytest.raises(InputError) as caught:
            make_query({**ENTRY, **change}, kinds)
        assert caught.value.field == field


HEAD: Final = "from dataclasses import dataclass\nfrom tpmdp.queries.base import Query\n"
BAD: Final = {
    "a syntax error": ("class Broken(:\n", r"line 1 fails \(SyntaxError"),
    "an exception": ("import math\n\nmath.sqrt(-1)\n", r"line 3 fails \(ValueError"),
    "an exception of several lines": ("raise RuntimeError('a\\nb\\x1b[31m' + 'c' * 5000)\n", r"line 1 fails"),
    "a missing module": ("import no_such_module_at_all\n", r"line 1 fails \(ModuleNotFoundError"),
    "endless recursion": ("def f():\n    f()\nf()\n", r"fails \(RecursionError"),
    "no query": ("x = 1\n", "has no query"),
    "nothing": ("", "has no query"),
    "only a query that is imported": ("from tpmdp.queries.count import Count\n", "has no query"),
    "an abstract query": (
        f"{HEAD}@dataclass(frozen=True)\nclass Half(Query):\n    column: str\n",
        "which lacks answers",
    ),
    "no dataclass": (GOOD.replace("@dataclass(frozen=True)\n", ""), "which is not a dataclass"),
    "a dataclass that is not frozen": (GOOD.replace("(frozen=True)", ""), r"fails \(TypeError"),
    "a kind that exists": (GOOD.replace("EvenShare", "Count"), "of kind count, which tpmdp has"),
    "a kind of joint query that exists": (GOOD.replace("EvenShare", "Maximum"), "of kind maximum, which tpmdp has"),
    "a null byte": ("x = '\x00'\n", "fails"),
    "too much": ("#" * ((1 << 20) + 1), "the limit is"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    source, problem = BAD[name]
    path = tmp_path / "own.py"
    path.write_text(source, encoding="utf-8")
    with pytest.raises(FileError, match=problem) as caught:
        load_queries(path)
    message = str(caught.value)
    assert str(path) in message
    assert message.isprintable()
    assert len(message) < 600


def test_a_file_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_bytes(b"name = '\xff\xfe'\n")
    with pytest.raises(FileError, match="fails") as caught:
        load_queries(path)
    assert str(caught.value).isprintable()


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.py"):
        with pytest.raises(FileError):
            load_queries(path)


SUBCLASS: Final = """
from dataclasses import dataclass
from tpmdp.queries.mean import Mean

@dataclass(frozen=True)
class OwnMean(Mean):
    kind = "own_mean"
"""


def test_the_code_inside_a_maximum_is_part_of_what_parties_agree_on(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(SUBCLASS, encoding="utf-8")
    entry = {"name": "m", "kind": "maximum", "of": {"kind": "own_mean", "column": "x", "low": 0, "high": 1}}
    study = study_with(load_queries(path), entry)
    assert hashlib.sha256(path.read_bytes()).hexdigest() in asked(study)


@pytest.mark.parametrize("part", [{"where": "x >= 1"}, {"by": {"x": [1]}}], ids=["where", "by"])
def test_the_code_of_parts_is_part_of_what_parties_agree_on(part: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(SUBCLASS, encoding="utf-8")
    entry = {"name": "m", "kind": "own_mean", "column": "x", "low": 0, "high": 1, **part}
    assert hashlib.sha256(path.read_bytes()).hexdigest() in asked(study_with(load_queries(path), entry))


def test_a_subclass_keeps_what_it_overrides_where_only_some_records_count(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text(
        "from dataclasses import dataclass\nimport numpy as np\nfrom tpmdp.queries.count import Count\n\n"
        "@dataclass(frozen=True)\nclass OddCount(Count):\n    kind = 'odd_count'\n\n"
        "    def features(self, table):\n        return [(np.asarray(table[self.column]) % 2 == 1).astype(float)]\n",
        encoding="utf-8",
    )
    query = make_query(
        {"name": "o", "kind": "odd_count", "column": "x", "at_least": 0, "where": "x >= 3"}, load_queries(path)
    )
    assert isinstance(query, Query)
    assert query.settings()["kind"] == "odd_count"
    assert query.statistic({"x": np.arange(10.0)}).tolist() == [4]


def test_a_file_that_ends_the_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    path.write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    with pytest.raises(TpmdpError):
        load_queries(path)


def test_two_queries_of_one_kind_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    other = GOOD.replace("class EvenShare(Query):", "class Other(Query):\n    kind = 'even_share'")
    path.write_text(GOOD + other, encoding="utf-8")
    with pytest.raises(FileError):
        load_queries(path)


def spoilt(tmp_path: Path, old: str, new: str) -> Study:
    path = tmp_path / "own.py"
    assert old in MEAN_FILE
    path.write_text(MEAN_FILE.replace(old, new), encoding="utf-8")
    document = {
        "name": "own",
        "threshold": 1,
        "receivers": "all",
        "epsilon": 1.0,
        "delta": 1e-6,
        "parties": [{"name": "a", "records": 4}, {"name": "b", "records": 4}],
        "queries": [{"name": "m", "kind": "my_mean", "column": "x"}],
    }
    return Study.parse(document, load_queries(path))


MEAN_FILE: Final = """
from dataclasses import dataclass
import numpy as np
from tpmdp import Answer, Query

@dataclass(frozen=True)
class MyMean(Query):
    column: str
    dimension = 1
    spread = 1.0
    largest = 1.0

    @property
    def columns(self):
        return {self.column: "number"}

    def features(self, table):
        values = np.clip(table[self.column], 0, 1)
        return [values]

    def answers(self, total, records, standard_error):
        return [Answer(self.name, total[0] / records, standard_error / records)]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "return [values]",
            "raise ValueError(f'age {values[0]} of Mr Smith')",
            r"line 19: features .* fails \(ValueError\)",
        ),
        ("return [values]", "return 'text'", "not give a list of arrays"),
        ("return [values]", "return 3.0", "not give a list of arrays"),
        ("return [values]", "return [values[:2]]", "must be one number per record"),
        ("return [values]", "return [values, values]", "must give 1 features"),
        ("return [values]", "return [table['y']]", r"fails \(KeyError\): .* declare every column"),
        ("return [values]", "return [values * values.mean()]", "NOT A SUM"),
        ("return [values]", "return [values * np.nan]", "not finite"),
        ("spread = 1.0", "spread = 0.0", "must be a number above 0"),
        ("spread = 1.0", "spread = -1.0", "must be a number above 0"),
        ("spread = 1.0", "spread = 'wide'", "must be a number above 0"),
        ("spread = 1.0", "spread = 0.9", "EXCEEDED"),
        ("dimension = 1", "dimension = 0", "must be a whole number of at least 1"),
        ("dimension = 1", "dimension = 1.0", "must be a whole number of at least 1"),
        ("largest = 1.0", "largest = 0.7", "must be a power of two"),
        ('return {self.column: "number"}', "return [self.column]", "must map column names"),
        ("return [Answer(self.name", "return None and [Answer(self.name", "must be a list of Answers"),
        ("total[0] / records,", "1 / 0,", r"answers of the query m fails \(ZeroDivisionError\)"),
        ("total[0] / records,", "float('nan'),", "finite numbers"),
        ("[Answer(self.name,", "[Answer('other',", "the query's name"),
    ],
)
def test_a_mistake_in_a_query_costs_nothing(tmp_path: Path, old: str, new: str, message: str) -> None:
    """It is refused before anybody is charged, in one line that shows no record."""
    tables = {name: {"x": np.array([0.93, 0.2, 0.3, 1.0])} for name in ("a", "b")}
    with pytest.raises(TpmdpError, match=message) as caught:
        run(spoilt(tmp_path, old, new), tables)
    assert "Smith" not in str(caught.value)
    assert str(caught.value).isprintable()


def test_what_a_query_prints_does_not_reach_standard_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = spoilt(tmp_path, "return [values]", "print('RECORD', values); return [values]")
    tables = {name: {"x": np.array([0.93, 0.2, 0.3, 1.0])} for name in ("a", "b")}
    assert len(run(study, tables).answers) == 1
    assert capsys.readouterr().out == ""
