"""Parties that join a study by rounds through a relay: interrupted, refused, mended and repeated."""

from __future__ import annotations

import json
import math
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.patience import DEADLINE
from tests.processes import run
from tests.study.rounds import ZOOM_KINDS, Zoom, study_by_rounds, tables_for
from tpmdp import Ledger, Study
from tpmdp.engines.relay.engine import relay_process
from tpmdp.errors import CertificateError, InputError, NoNoiseWarning
from tpmdp.ledger import OverspendError, SessionKey
from tpmdp.queries.rounds import Point
from tpmdp.report.html_report import page, read_page
from tpmdp.study.events import SessionEvent
from tpmdp.study.join import join
from tpmdp.study.record import SessionRecord
from tpmdp.study.release import PartyRelease
from tpmdp.study.session import open_or_create_ledger
from tpmdp.study.status import study_status

pytestmark = pytest.mark.process
Watch = Callable[[SessionEvent], None]


class CrashError(Exception):
    """The process of a party ends here."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with relay_process(tmp_path_factory.mktemp("relay") / "relay.sqlite") as address:
        yield address


@dataclass
class Consortium:
    """The parties of one study, each with a key and a ledger."""

    folder: Path
    url: str
    study: Study
    keys: dict[str, Ed25519PrivateKey]

    @classmethod
    def of(cls, folder: Path, url: str, study: Study) -> Consortium:
        keys = {party.name: Ed25519PrivateKey.generate() for party in study.parties}
        public = {name: key.public_key().public_bytes_raw() for name, key in keys.items()}
        return cls(folder, url, study.with_keys(public), keys)

    def ledger(self, name: str) -> Ledger:
        return open_or_create_ledger(self.folder / f"{name}.ledger", self.study, name, identity=self.keys[name])

    def join(self, name: str, table: Any, watch: Watch = lambda _: None, study: Study | None = None) -> PartyRelease:
        with self.ledger(name) as ledger:
            return join(study or self.study, name, self.keys[name], table, ledger, self.url, on_event=watch)

    def join_all(
        self, tables: dict[str, Any], watches: dict[str, Watch] | None = None, studies: dict[str, Study] | None = None
    ) -> dict[str, PartyRelease | BaseException]:
        """What every party got, or why it ended."""
        ends: dict[str, PartyRelease | BaseException] = {}

        def take_part(name: str) -> None:
            try:
                watch = (watches or {}).get(name, lambda _: None)
                ends[name] = self.join(name, tables[name], watch, study=(studies or {}).get(name))
            except BaseException as error:  # whatever ends a party
                ends[name] = error

        threads = [threading.Thread(target=take_part, args=(name,)) for name in tables]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ends

    def charges(self, name: str) -> list[str]:
        with self.ledger(name) as ledger:
            ledger.verify()
            return [entry.study.rpartition(", ")[2] for entry in ledger.entries() if entry.is_charge]

    def secrets(self, name: str) -> set[str]:
        """The names of everything private that is left in a ledger."""
        with self.ledger(name) as ledger:
            keys = {(entry.session, entry.plan) for entry in ledger.entries() if entry.session}
            every = [SessionKey(bytes.fromhex(session), bytes.fromhex(plan)) for session, plan in keys]
            return {stored for key in every for stored in ledger.private_names(key)}


def released(ends: dict[str, PartyRelease | BaseException]) -> dict[str, PartyRelease]:
    result = {}
    for name, end in ends.items():
        assert isinstance(end, PartyRelease), (name, end)
        result[name] = end
    return result


def by_rounds(**changes: Any) -> Study:
    return study_by_rounds("abc", **{"deadline": DEADLINE, **changes})


def never() -> Any:
    raise AssertionError("the records were read again")


def at(number: int, action: Callable[[], None], step: str = "") -> Watch:
    """Do something once, in a round: at its first event, after the party has agreed, or at a step."""
    done: list[bool] = []

    def watch(event: SessionEvent) -> None:
        if event.round == number and step in ("", event.step) and not done:
            done.append(True)
            action()

    return watch


def crash() -> None:
    raise CrashError


def exact_mean(tables: dict[str, dict[str, Any]]) -> float:
    return float(np.concatenate([table["x"] for table in tables.values()]).mean())


ROUNDS = ["round 1", "round 2", "round 3"]


def test_all_rounds_and_again_without_records(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    tables = tables_for(consortium.study)
    events: list[SessionEvent] = []
    first = released(consortium.join_all(tables, {"b": events.append}))
    assert len({release.answers for release in first.values()}) == 1
    assert [event.round for event in events if event.step == "done"] == [1, 2, 3]
    assert {event.rounds for event in events} == {3}
    assert [event.is_end for event in events].count(True) == 1
    assert all(SessionEvent.of_plain(event.plain()) == replace(event, seconds_left=event.plain()["seconds_left"])
               for event in events)  # fmt: skip
    for name, release in first.items():
        assert not release.again
        assert (release.rounds_done, release.note) == (3, "")
        assert consortium.charges(name) == ROUNDS
        with consortium.ledger(name) as ledger:
            assert ledger.spent().epsilon == release.epsilon == release.spent
            assert release.epsilon <= consortium.study.party(name).epsilon
            assert ledger.spent().held == 0
        assert consortium.secrets(name) <= {"plan", "data", "told", "outbox"}
    again = released(consortium.join_all(dict.fromkeys(tables, never)))
    for name, release in again.items():
        assert release.again
        assert release.answers == first[name].answers
        assert release.epsilon == first[name].epsilon
        assert consortium.charges(name) == ROUNDS


def record_of(consortium: Consortium, names: str = "abc", *, with_answer: bool = False) -> SessionRecord:
    with ExitStack() as stack:
        ledgers = [stack.enter_context(consortium.ledger(name)) for name in names]
        return SessionRecord.of(consortium.study, ledgers, with_answer=with_answer)


def test_the_record_of_a_study_by_rounds(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    first = released(consortium.join_all(tables_for(consortium.study)))["a"]
    record = record_of(consortium, with_answer=True)
    assert record.status == "settled"
    assert record.answers == first.answers
    assert record.charge_of("a") == first.epsilon
    statements = record.check()
    assert "of the plans of 3 rounds, those of the first 3, with the points at which they ask" in statements
    assert "all rounds together cost each party what it offers at most, by exact composition" in statements
    for name in "abc":
        with consortium.ledger(name) as ledger:
            assert record.check_ledger(ledger).has_answer
    document = json.loads(record.text())
    again = SessionRecord.parse(document, ZOOM_KINDS)
    assert again.text() == record.text()
    assert again.check() == statements
    text = page(record)
    (tmp_path / "report.html").write_text(text)
    assert read_page(tmp_path / "report.html", ZOOM_KINDS)[1]
    assert "round 2" in text
    assert document["plan_hash"] == consortium.study.terms().plan_hash.hex()


def moved_point(document: dict[str, Any]) -> None:
    document["rounds"][0]["points"]["mean"] = [(0.123).hex()]


def lost_round(document: dict[str, Any]) -> None:
    del document["rounds"][-1]


def one_round_more(document: dict[str, Any]) -> None:
    document["rounds"].append(document["rounds"][-1])


def other_round(document: dict[str, Any]) -> None:
    document["rounds"].reverse()


def no_first_charge(document: dict[str, Any]) -> None:
    entries = document["parties"][0]["entries"]
    entries.remove(next(entry for entry in entries if entry["kind"] == "charge"))


@pytest.mark.parametrize("change", [moved_point, lost_round, one_round_more, other_round, no_first_charge])
def test_a_changed_record_of_rounds_does_not_hold(
    tmp_path_factory: pytest.TempPathFactory, url: str, change: Callable[[dict[str, Any]], None]
) -> None:
    if "record" not in _FINISHED:
        consortium = Consortium.of(tmp_path_factory.mktemp("finished"), url, by_rounds())
        released(consortium.join_all(tables_for(consortium.study)))
        _FINISHED["record"] = record_of(consortium).text()
    document = json.loads(_FINISHED["record"])
    change(document)
    with pytest.raises(CertificateError, match=r"violated|differ from the study"):
        SessionRecord.parse(document, ZOOM_KINDS).check()


_FINISHED: dict[str, str] = {}


def test_a_party_that_crashes_goes_on_without_its_records(tmp_path: Path, url: str) -> None:
    """Without noise the answer is exact: it comes from the records as they were at the first agreement."""
    study = by_rounds(threshold=0, queries=[
        {"name": "mean", "kind": "zoom", "column": "x", "rounds": 3},
        {"name": "high", "kind": "count", "column": "x", "at_least": 0.5},
    ])  # fmt: skip
    parties = tuple(replace(party, epsilon=math.inf) for party in study.parties)
    consortium = Consortium.of(tmp_path, url, replace(study, parties=parties))
    tables = tables_for(consortium.study)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoNoiseWarning)
        ends: dict[str, Any] = {}
        others = threading.Thread(target=lambda: ends.update(consortium.join_all({"a": tables["a"], "c": tables["c"]})))
        others.start()
        for number in (1, 2, 3):  # each time it agrees to a round, and ends
            table = tables["b"] if number == 1 else never
            with pytest.raises(CrashError):
                consortium.join("b", table, at(number, crash))
        last = consortium.join("b", {"x": np.zeros(50)})
        others.join()
    assert [answer.query for answer in last.answers or ()] == ["mean", "high"]
    assert (last.answers or ())[0].value == pytest.approx(exact_mean(tables), abs=1e-4)
    assert released(ends)["a"].answers == last.answers
    assert consortium.charges("b") == ROUNDS


def test_two_processes_of_one_party(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    tables = tables_for(consortium.study)
    ends: list[Any] = []

    def twin() -> None:
        try:
            ends.append(consortium.join("b", tables["b"]))
        except BaseException as error:
            ends.append(error)

    second = threading.Thread(target=twin)
    second.start()
    releases = released(consortium.join_all(tables))
    second.join()
    assert isinstance(ends[0], PartyRelease), ends
    notes = ends[0].note, releases["b"].note, releases["a"].note
    assert not any(release.is_stopped for release in (ends[0], *releases.values())), notes
    assert ends[0].answers == releases["b"].answers == releases["a"].answers
    assert consortium.charges("b") == ROUNDS


def test_a_party_whose_limit_was_lowered_ends_the_study_for_all_until_it_is_raised(tmp_path: Path, url: str) -> None:
    queries = [
        {"name": "mean", "kind": "zoom", "column": "x", "rounds": 3},
        {"name": "high", "kind": "count", "column": "x", "at_least": 0.5},
    ]
    consortium = Consortium.of(tmp_path, url, by_rounds(queries=queries))
    tables = tables_for(consortium.study)

    def lower() -> None:
        with consortium.ledger("b") as ledger:
            ledger.set_limit(0.4, 1e-6)

    ends = released(consortium.join_all(tables, {"b": at(1, lower, step="done")}))  # none waits for the deadline
    for name, release in ends.items():
        assert release.is_stopped
        assert (release.rounds_done, release.rounds) == (1, 3)
        assert [answer.query for answer in release.answers or ()] == ["mean"]
        assert (release.answers or ())[0].standard_error == math.inf
        assert consortium.charges(name) == ["round 1"]
        with consortium.ledger(name) as ledger:
            assert release.epsilon == ledger.spent().epsilon == release.spent
            assert ledger.spent().held == 2  # so that it can go on
    assert ends["b"].note.startswith("stopped after round 1 of 3: study rounds / session 1, round 2 would cost b")
    assert ends["a"].note == (
        "stopped after round 1 of 3: b takes no part in the next round (it cannot pay for it, or has withdrawn): once "
        "it has joined again, run the same command again"
    )
    stopped = record_of(consortium, with_answer=True)
    stopped.check()
    assert stopped.status == "charged"
    assert stopped.answers == ends["a"].answers
    assert stopped.charge_of("a") == ends["a"].epsilon
    with consortium.ledger("b") as ledger:
        ledger.set_limit(3.0, 1e-6)
    joined = threading.Event()
    late: dict[str, Any] = {}

    def rest() -> None:
        joined.wait()
        late.update(consortium.join_all({"a": never, "c": never}))

    others = threading.Thread(target=rest)
    others.start()
    release = consortium.join("b", never, at(2, joined.set))
    others.join()
    assert [answer.query for answer in release.answers or ()] == ["mean", "high"]
    assert released(late)["a"].answers == release.answers
    assert all(consortium.charges(name) == ROUNDS for name in "abc")


@dataclass(frozen=True)
class OtherZoom(Zoom):
    """Another version of the query: its points differ in the last digit."""

    kind = "zoom"

    def next_point(self, number: int, point: Point, **given: Any) -> Point:
        return tuple(math.nextafter(each, 2.0) for each in super().next_point(number, point, **given))


def test_parties_whose_points_differ_learn_it_and_pay_nothing_for_that_round(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    other = replace(consortium.study, queries=(OtherZoom("mean", "x", rounds=3),))
    assert other.terms().plan_hash == consortium.study.terms().plan_hash
    texts: dict[str, str] = {}

    def ending(name: str) -> Watch:
        def watch(event: SessionEvent) -> None:
            if event.kind == "difference" and "point" in event.text:
                texts[name] = event.text
                raise CrashError

        return watch

    tables = tables_for(consortium.study)
    ends = consortium.join_all(
        {name: tables[name] for name in "abc"}, {name: ending(name) for name in "abc"}, {"b": other}
    )
    assert all(isinstance(end, CrashError) for end in ends.values()), ends
    assert texts["a"] == 'b has another point of query "mean"'
    assert texts["b"].endswith('has another point of query "mean"')
    assert all(consortium.charges(name) == ["round 1"] for name in "abc")


def test_a_ledger_without_room_for_all_rounds_refuses_before_the_relay_is_asked(tmp_path: Path) -> None:
    consortium = Consortium.of(tmp_path, "http://127.0.0.1:9", by_rounds())
    with consortium.ledger("a") as ledger:
        ledger.set_limit(0.7, 1e-6)
    with pytest.raises(OverspendError, match="study rounds / session 1 would cost a epsilon 1 "):
        consortium.join("a", {"x": np.zeros(50)})
    with consortium.ledger("a") as ledger:
        assert ledger.spent().held == 0


def test_rounds_given_up_are_never_resumed(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    tables = tables_for(consortium.study)
    ends: dict[str, Any] = {}
    crashes = {name: at(2, crash) for name in "ac"}

    def give_up() -> None:
        with consortium.ledger("b") as ledger:
            for entry in ledger.holds():
                ledger.cancel(SessionKey(bytes.fromhex(entry.session), bytes.fromhex(entry.plan)))

    ends = consortium.join_all(tables, {"b": at(1, give_up, step="done"), **crashes})
    stopped = ends["b"]
    assert isinstance(stopped, PartyRelease)
    assert "are not in the ledger any more: its rounds were cancelled" in stopped.note
    assert "table" not in consortium.secrets("b")
    with consortium.ledger("b") as ledger:
        assert ledger.spent().held == 0
        assert ledger.spent().sessions == 1
    assert "table" in consortium.secrets("a")


def test_the_command_cancels_all_rounds_that_are_held(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    with pytest.raises(CrashError):
        consortium.join("a", tables_for(consortium.study)["a"], at(1, crash))
    with consortium.ledger("a") as ledger:
        first = ledger.holds()[0].session
        assert ledger.spent().held == 3
    done = run("ledger", "cancel", tmp_path / "a.ledger", first[:8])
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cancelled rounds / session 1, round 1 and the rounds after it; ")
    with consortium.ledger("a") as ledger:
        assert ledger.spent().held == 0
        ledger.verify()
    assert consortium.secrets("a") == set()


def test_terms_from_a_file_are_refused(tmp_path: Path) -> None:
    consortium = Consortium.of(tmp_path, "http://127.0.0.1:9", by_rounds())
    other = by_rounds(delta=1e-7).with_keys({p.name: p.public_key or b"" for p in consortium.study.parties}).terms()
    with consortium.ledger("a") as ledger, pytest.raises(InputError, match="cannot be given for a study by rounds"):
        join(consortium.study, "a", consortium.keys["a"], {"x": np.zeros(50)}, ledger, consortium.url, terms=other)


def test_the_status_says_which_round_goes_on(tmp_path: Path, url: str) -> None:
    consortium = Consortium.of(tmp_path, url, by_rounds())
    tables = tables_for(consortium.study)

    def summary() -> str:
        return study_status(consortium.study, consortium.keys["a"], url).summary()

    assert summary() == "round 1 of 3: nobody has joined at this relay yet"
    ends = consortium.join_all(tables, {name: at(2, crash) for name in "abc"})
    assert all(isinstance(end, CrashError) for end in ends.values())
    assert summary().startswith("round 2 of 3: all ")  # and perhaps some have submitted
    released(consortium.join_all(dict.fromkeys(tables, never)))
    status = study_status(consortium.study, consortium.keys["b"], url)
    assert status.summary() == "round 3 of 3: finished: the lead receiver has sent answers and receipts"
    assert status.is_finished
