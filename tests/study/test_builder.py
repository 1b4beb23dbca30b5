"""Studies built in code: the same study, plan and hash as from a file; nothing changes; errors name the call."""

from __future__ import annotations

import copy
import hashlib
import pickle
import tomllib
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpmdp
from tests.queries.cases import records_at
from tpmdp import FileError, InputError, Study, StudyBuilder, load_queries
from tpmdp.queries.catalogue import EXAMPLES, KINDS
from tpmdp.queries.rounds import RoundsQuery

ROOT = Path(__file__).parents[2]
KEY = "ed25519:" + "A" * 43 + "="


def begun(**settings: Any) -> StudyBuilder[Study]:
    return Study.new("flu", **{"threshold": 1, "receivers": ["north"], "delta": 1e-6, **settings})


def peopled(**settings: Any) -> StudyBuilder[Study]:
    return begun(**settings).party("north", epsilon=1, records=100).party("south", epsilon=2, records=80)


def wrong(**settings: Any) -> Any:
    """A builder that type checkers let misuse."""
    return begun(**settings)


def keyed(study: Study) -> Study:
    return study.with_keys({party.name: hashlib.sha256(party.name.encode()).digest() for party in study.parties})


FILE = """
name = "flu"
session = 3
threshold = 1
receivers = ["north"]
delta = 1e-6
unit = "party"
deadline = "2m"
where = "age >= 18"

[[parties]]
name = "north"
epsilon = 1
records = 100

[[parties]]
name = "south"
epsilon = 0.5
delta = 1e-7
records = 80

[[parties]]
name = "office"
records = 0

[[queries]]
name = "long stays"
kind = "count"
column = "days"
at_least = 7
by = { ward = ["a", "b"] }

[[queries]]
name = "stay"
kind = "mean"
column = "days"
low = 0
high = 30
weight = 2
"""


def test_the_study_is_the_same_as_from_a_file() -> None:
    built = (
        begun(session=3, unit="party", deadline=timedelta(minutes=2), where="age >= 18")
        .party("north", epsilon=1, records=100)
        .party("south", epsilon=0.5, delta=1e-7, records=80)
        .party("office", records=0)
        .count("days", at_least=7, by={"ward": ("a", "b")}, name="long stays")
        .mean("days", low=0, high=30, weight=2, name="stay")
        .build()
    )
    parsed = Study.parse(tomllib.loads(FILE))
    assert built == parsed
    assert keyed(built).terms().plan_hash == keyed(parsed).terms().plan_hash


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_a_call(kind: str) -> None:
    entry = tomllib.loads(EXAMPLES[kind])
    settings = {key: value for key, value in entry.items() if key != "kind"}
    names = ("bank", "school", "family")
    receivers = "all" if issubclass(KINDS[kind], RoundsQuery) else [names[0]]
    builder = begun(receivers=receivers)
    counts = records_at(entry, names, 1000)
    for name, records in counts.items():
        builder = builder.party(name, epsilon=1, records=records)
    call = getattr(builder, kind)
    built = call(**settings).build()
    parties = [{"name": name, "epsilon": 1, "records": records} for name, records in counts.items()]
    document = {"name": "flu", "threshold": 1, "receivers": receivers, "delta": 1e-6, "parties": parties}
    parsed = Study.parse({**document, "queries": [entry]})
    assert built == parsed
    assert keyed(built).terms().plan_hash == keyed(parsed).terms().plan_hash
    assert builder.query(**entry).build() == parsed
    assert call(**{key: value for key, value in settings.items() if key != "name"}).build().queries[0].name


def test_every_setting_of_a_study_can_be_given() -> None:
    moment = datetime(2027, 1, 1, tzinfo=UTC)
    study = (
        Study.new("flu", threshold=1, receivers="all", epsilon=1.0, delta=1e-6, guarantee="statistical")
        .party("north", records=100, public_key=KEY, address="north.example:7000", weight=0.5)
        .party("south", records=80)
        .party("east", records=80)
        .count("age", below=18)
    )
    assert study.build().party("north").weight == 0.5
    assert study.build().guarantee == "statistical"
    more = (
        peopled(deadline=moment, weighting="balanced", spread=0.5)
        .party("east", epsilon=1, records=9)
        .count("age", below=9)
    )
    assert more.build().deadline == moment
    assert (more.build().weighting, more.build().spread) == ("balanced", 0.5)
    drops = (
        peopled(tolerate=1, patience=timedelta(seconds=30))
        .party("east", epsilon=1, records=9)
        .party("west", epsilon=1, records=9)
        .count("age", below=9)
    )
    assert (drops.build().tolerate, drops.build().patience) == (1, 30.0)


def test_nothing_changes_what_was_built_before() -> None:
    first = peopled().count("age", at_least=65)
    study = first.build()
    second = first.mean("days", low=0, high=30)
    assert len(second.build().queries) == 2
    assert first.build() == study
    edges = [0, 18, 65]
    third = first.histogram("age", edges=edges)
    edges.append(1)
    assert third.build().queries[1].settings()["edges"] == (0, 18, 65)
    assert repr(third) == 'StudyBuilder("flu": 2 parties, 2 queries so far)'


def test_numbers_of_numpy_and_sequences_are_taken() -> None:
    plain = peopled().histogram("age", edges=[0, 10, 20]).sum("days", low=0, high=30).build()
    arrays = peopled().histogram("age", edges=np.arange(0, 30, 10)).sum("days", low=0, high=30)
    assert arrays.build() == plain
    assert wrong().mean("days", low=np.float32(0), high=np.int64(30)).queries[0]["high"] == 30
    assert peopled().histogram("age", edges=range(0, 30, 10)).sum("days", low=0, high=30).build() == plain


def test_names_tell_queries_apart() -> None:
    study = (
        peopled()
        .count(where="age >= 65")
        .mean("days", low=0, high=30)
        .mean("days", low=0, high=30, where="age < 18")
        .mean("days", low=0, high=30, by={"ward": ["a", "b"]})
        .correlation({"age": (0, 120), "days": (0, 30)})
        .build()
    )
    assert [query.name for query in study.queries] == [
        "count where age >= 65",
        "mean of days",
        "mean of days where age < 18",
        "mean of days by ward",
        "correlation",
    ]


@pytest.mark.parametrize(
    ("call", "complaint"),
    [
        (
            lambda: wrong().party("no", epsilon=1, records="7"),
            '.party("no"): records of no = "7" must be a whole number',
        ),
        (lambda: wrong().party("a b", epsilon=1, records=7), '.party("a b"): name of a party = a b'),
        (lambda: wrong().party("<b>", epsilon=1, records=7), '.party("<b>"): name of a party = <b>'),
        (lambda: wrong().party("x", records=7), '.party("x"): epsilon of x = (none) is missing'),
        (lambda: wrong().party(7, epsilon=1, records=7), '.party("7"): name of a party = 7'),
        (lambda: peopled().party("North", epsilon=1, records=7), '.party("North"): parties = North differs from north'),
        (
            lambda: wrong().count("age", at_lest=3),
            '.count("age"): key in the count query count of age = at_lest is unknown',
        ),
        (lambda: wrong().count(), ".count(): column of count = (none) leaves a count of all records"),
        (lambda: wrong().mean("days", low="0", high=3), '.mean("days"): low of mean of days = "0" is not a number'),
        (lambda: wrong().histogram("age", edges={1, 2}), '.histogram("age"): edges of histogram of age'),
        (
            lambda: wrong().count("a", below=3).count("a", below=4),
            '.count("a"): name of a query = count of a is given twice',
        ),
        (lambda: wrong().query("men", column="a"), '.men("a"): kind of a query = "men" must be one of'),
        (lambda: wrong().count(where="age =>"), ".count(): where of count where age => = age => is not a condition"),
        (
            lambda: Study.new("flu", treshold=1),
            'Study.new("flu"): key in a study = treshold is unknown: did you mean threshold?',
        ),
        (lambda: Study.new(None), 'Study.new("None"): name in a study = (none) is missing'),  # type: ignore[arg-type]
        (lambda: Study.new(""), 'Study.new("(blank)"): name = (blank) must be text'),
        (lambda: Study.new("a\nb"), 'Study.new("a?b"): name = a?b must be text'),
        (lambda: begun(where="age =>"), 'Study.new("flu"): where = age => is not a condition'),
        (lambda: wrong().build(), '.build(): parties = 0 must be at least 2: add .party("north"'),
        (
            lambda: wrong().party("a", epsilon=1, records=7).count("b", below=3).build(),
            ".build(): parties = 1 must be at least 2",
        ),
        (lambda: peopled().build(), ".build(): queries = 0 must be at least 1: add such as .count("),
        (
            lambda: peopled(threshold=None).count("a", below=3).build(),
            ".build(): threshold = (none) is missing: give it to Study.new",
        ),
        (lambda: peopled(receivers=None).count("a", below=3).build(), ".build(): receivers = (none) is missing"),
        (
            lambda: peopled(threshold=2).count("a", below=3).build(),
            ".build(): threshold = 2 must be less than the number",
        ),
        (
            lambda: peopled(receivers=["x"]).count("a", below=3).build(),
            ".build(): receivers = x is not one of the parties",
        ),
    ],
)
def test_errors_name_the_call(call: Callable[[], Any], complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_custom_kinds_can_be_built() -> None:
    kinds = load_queries(str(ROOT / "examples" / "own_query" / "geometric_mean.py"))
    parsed = Study.read(str(ROOT / "examples" / "own_query" / "study.toml"), kinds)
    builder = Study.new(parsed.name, threshold=parsed.threshold, receivers=parsed.receivers, kinds=kinds)
    for party in parsed.parties:
        builder = builder.party(party.name, epsilon=party.epsilon, delta=party.delta, records=party.records)
    for query in parsed.queries:
        builder = builder.query(**query.settings())
    assert builder.build() == replace(parsed.without_keys(), deadline=600.0)


@pytest.mark.parametrize("example", ["stay", "income"])
def test_a_written_study_is_read_as_the_same(tmp_path: Path, example: str) -> None:
    study = Study.read(ROOT / "examples" / example / "study.toml")
    for path in (tmp_path / "study.toml", str(tmp_path / "study.toml")):  # the second replaces the first
        study.write(path)
        again = Study.read(path)
        assert again == study
        assert keyed(again).terms().plan_hash == keyed(study).terms().plan_hash
    assert [file.name for file in tmp_path.iterdir()] == ["study.toml"]


def test_a_study_is_written_completely_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = peopled().count("age", at_least=65).build()
    with pytest.raises(FileError, match="lies in a folder that does not exist"):
        study.write(tmp_path / "no" / "study.toml")
    with pytest.raises(FileError, match="is a folder"):
        study.write(tmp_path)
    with pytest.raises(InputError, match="is not a path"):
        study.write(None)  # type: ignore[arg-type]
    (tmp_path / "study.toml").write_text("old")

    def fail(self: Study) -> str:
        raise KeyboardInterrupt

    monkeypatch.setattr(Study, "toml", fail)
    with pytest.raises(KeyboardInterrupt):
        study.write(tmp_path / "study.toml")
    assert (tmp_path / "study.toml").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_builder_says_how_to_get_the_study() -> None:
    for name in ("plan", "sweep", "terms"):
        with pytest.raises(AttributeError, match=f"a StudyBuilder has no {name}: call .build\\(\\) first"):
            getattr(peopled(), name)
    with pytest.raises(AttributeError, match=r"call \.build"):
        tpmdp.run(wrong(), {})


def test_one_receiver_needs_no_list() -> None:
    assert peopled(receivers="south").count("age", below=3).build().receivers == ("south",)


def test_a_builder_can_be_copied() -> None:
    builder = peopled().count("age", at_least=65)
    assert copy.copy(builder).build() == copy.deepcopy(builder).build() == builder.build()
    assert pickle.loads(pickle.dumps(builder)).build() == builder.build()  # noqa: S301
