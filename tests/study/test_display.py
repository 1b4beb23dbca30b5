"""Studies, plans and releases in a notebook: short reprs, escaped HTML, data frames."""

from __future__ import annotations

import builtins
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import tpmdp
from tpmdp import Answer, InputError, MissingDependencyError, Plan, Release, Spec, Study, run
from tpmdp._util.html import ROWS_MAX, html_table

MARKUP = '<script>alert("x")</script> & \u202e\u05e9\u05dc\u05d5\u05dd'


def study(**settings: Any) -> Study:
    builder = Study.new("flu", **{"threshold": 1, "receivers": ["north"], "delta": 1e-6, **settings})
    builder = builder.party("north", epsilon=1, records=3).party("south", epsilon=2, records=2)
    return builder.count("age", at_least=65).histogram("age", edges=[0, 50, 100], name="ages").build()


def release(**settings: Any) -> Release:
    tables = {"north": pd.DataFrame({"age": [70, 20, 66]}), "south": {"age": np.array([1.0, 80.0])}}
    return run(study(**settings), tables)


class Seen(HTMLParser):
    """The tags and the text of a page; fails at a tag that is left open."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert all(name in ("style", "colspan") for name, _ in attrs)
        self.open.append(tag)
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data + " "


TAGS = {"h4", "p", "table", "thead", "tbody", "tr", "th", "td", "bdi"}


def test_reprs_are_short_and_hold_no_answer() -> None:
    got = release()
    assert repr(study()) == "Study(flu / session 1: 2 parties, 5 records, threshold 1, 1 receiver; 2 queries)"
    assert repr(got) == "Release(flu / session 1: 3 answers for north)"
    assert repr(got.parties["south"]).startswith("PartyRelease(south: a receipt, charged epsilon ")
    assert repr(got.parties["north"]).startswith("PartyRelease(north: 3 answers, charged epsilon ")
    assert repr(study().plan()).startswith("GridPlan(2 parties, standard deviation ")
    assert repr(replace(got, study=None)) == "Release(session: 3 answers for north)"


def test_a_study_shows_its_parties_and_queries() -> None:
    seen = Seen(study(tolerate=0)._repr_html_())
    assert seen.tags <= TAGS
    for text in ("flu / session 1", "north", "south", "count of age", "ages", "column age, at_least 65", "each record"):
        assert text in seen.text


@pytest.mark.parametrize("kind", tpmdp.load_queries(None))
def test_settings_of_every_kind_are_shown(kind: str) -> None:
    import tomllib

    from tpmdp.queries.catalogue import EXAMPLES, make_query
    from tpmdp.study.display import settings_text

    text = settings_text(make_query(tomllib.loads(EXAMPLES[kind])))
    assert text
    assert "(" not in text or kind == "maximum"


def test_a_plan_shows_who_would_have_to_collude() -> None:
    plan = tpmdp.plan(Spec(epsilon=[0.5, 1, 2], delta=1e-6, threshold=1, names=["a", "b", "c"]))
    seen = Seen(plan._repr_html_())
    assert seen.tags <= TAGS
    assert "if these collude" in seen.text
    frame = plan.to_frame()
    assert list(frame["party"]) == ["a", "b", "c"]
    assert frame["variance"].sum() == pytest.approx(plan.total_variance)
    assert (frame["real_epsilon"] <= frame["epsilon"]).all()
    on_grid = study().plan()
    assert list(on_grid.to_frame()["epsilon"]) == [1.0, 2.0]
    assert "standard deviation" in Seen(on_grid._repr_html_()).text


def test_a_plan_without_noise_says_so() -> None:
    with pytest.warns(tpmdp.NoNoiseWarning):
        plan = tpmdp.plan(Spec(epsilon=[1, 1], delta=1e-6, threshold=0))
    assert "NO NOISE IS ADDED: the threshold is 0" in Seen(plan._repr_html_()).text
    assert "NO NOISE IS ADDED" in Seen(study(threshold=0).plan()._repr_html_()).text


def test_a_plan_of_many_parties_is_shown_at_once() -> None:
    plan = tpmdp.plan(Spec(epsilon=np.linspace(0.5, 2, 20_000), delta=1e-6, threshold=9_000))
    seen = Seen(plan._repr_html_())
    assert f"... {20_000 - ROWS_MAX} more" in seen.text
    assert "and 8997 more" in seen.text


def test_the_real_epsilon_is_never_shown_smaller() -> None:
    plan: Plan = tpmdp.plan(Spec(epsilon=[0.12341, 1], delta=1e-6, threshold=1, names=["a", "b"]))
    assert "0.1235" in Seen(plan._repr_html_()).text


def test_a_release_shows_answers_and_charges() -> None:
    got = release()
    seen = Seen(got._repr_html_())
    assert seen.tags <= TAGS
    for text in (
        "count of age",
        "0 to below 50",
        "only these parties see the answer: north",
        "receipt",
        "charged epsilon",
        "not sampling",
    ):
        assert text in seen.text
    assert "only these" not in Seen(release(receivers="all")._repr_html_()).text
    receipt = Seen(got.parties["south"]._repr_html_())
    assert "receipt" in receipt.text
    assert "count of age" not in receipt.text
    assert "count of age" in Seen(got.parties["north"]._repr_html_()).text


def test_names_from_outside_never_become_markup() -> None:
    answer = Answer(MARKUP, 1.0, 0.5, part=MARKUP, note=MARKUP)
    got = release()
    north = replace(got.parties["north"], party=MARKUP, answers=(answer,), guarantee=MARKUP)
    strange = replace(study(), name=MARKUP, receivers=(MARKUP,))
    strange = replace(strange, parties=tuple(replace(party, name=MARKUP) for party in strange.parties))
    plan = tpmdp.plan(Spec(epsilon=[1, 1], delta=1e-6, threshold=1, names=["<script>x</script>", "<b>"]))
    shown = Release({MARKUP: north}, strange)
    for page in (north._repr_html_(), shown._repr_html_(), strange._repr_html_(), plan._repr_html_()):
        assert Seen(page).tags <= TAGS
        assert "<script" not in page
        assert "&lt;script&gt;" in page


def test_an_answer_that_noise_hides_is_not_a_number() -> None:
    hidden = Answer("r2", float("nan"), 1.0, limits=(0.0, 1.0), note="the noise is larger than the answer")
    north = replace(release().parties["north"], answers=(hidden,))
    text = Seen(north._repr_html_()).text
    assert "nan" not in text
    assert " - " in text
    assert "the noise is larger than the answer" in text
    assert north.to_frame()["value"].isna().all()


def test_long_tables_are_cut() -> None:
    page = html_table(["n"], [[str(place)] for place in range(ROWS_MAX + 5)])
    assert page.count("<tr>") == ROWS_MAX + 2
    assert "... 5 more" in page
    assert html_table(["n"], []).count("<td") == 0


def test_a_release_becomes_a_data_frame() -> None:
    got = release()
    frame = got.to_frame()
    bands = ["all_bins_at_once_low", "all_bins_at_once_high"]
    assert list(frame.columns) == ["query", "part", "value", "standard_error", "low", "high", *bands, "note"]
    assert list(frame["query"]) == ["count of age", "ages", "ages"]
    assert list(frame["value"]) == [answer.value for answer in got.answers]
    assert frame.equals(got.parties["north"].to_frame())
    with pytest.raises(InputError, match="answers = \\(none\\) are not for south, which is not a receiver"):
        got.parties["south"].to_frame()
    assert frame.equals(type(frame)(got.rows()))


def test_weights_add_columns() -> None:
    got = release(weighting="balanced", receivers="all")
    assert {"noise", "always_low", "always_high"} <= set(got.to_frame().columns)
    assert "whatever the data" in Seen(got._repr_html_()).text


def test_a_release_that_no_receiver_got_is_shown() -> None:
    got = release()
    lost = Release({"south": got.parties["south"]}, got.study)
    assert repr(lost) == "Release(flu / session 1: 0 answers for nobody)"
    assert len(lost.to_frame()) == 0
    assert "receipt" in Seen(lost._repr_html_()).text


def test_data_frames_need_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    got, real = release(), builtins.__import__

    def without(name: str, *arguments: Any, **options: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingDependencyError, match=r"pandas is not installed and is needed to make a data frame"):
        got.to_frame()
