"""Studies in which parties may drop out: the plan, the file, the answers, and a real run that goes on without one."""

from __future__ import annotations

import threading
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.engines.patience import drops_only
from tests.patience import DEADLINE, HANG_S
from tpmdp import Ledger, Study, join, run
from tpmdp.engines.memory import MemoryEngine
from tpmdp.engines.relay.engine import relay_process
from tpmdp.errors import DeadlineError, InputError
from tpmdp.protocol.messages import Kind
from tpmdp.protocol.party import PartySession
from tpmdp.study.release import PartyRelease

NAMES = ("north", "south", "east", "west", "coast", "hills", "office")


def document(**changes: Any) -> dict[str, Any]:
    parties = [{"name": name, "epsilon": 1 + place, "records": 40} for place, name in enumerate(NAMES)]
    query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    mean = {"name": "age", "kind": "mean", "column": "age", "low": 0, "high": 100}
    made = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["office", "south"], "tolerate": 2}
    return {**made, "parties": parties, "queries": [query, mean], **changes}


def tables(seed: int = 0) -> dict[str, Any]:
    random = np.random.default_rng(seed)
    return {name: {"age": random.uniform(0, 100, 40)} for name in NAMES}


@pytest.mark.parametrize("weighting", ["equal", "balanced"])
def test_who_may_drop_out_costs_no_noise(weighting: str) -> None:
    tolerant, plain = (Study.parse(document(tolerate=most, weighting=weighting)).plan() for most in (2, 0))
    assert (tolerant.grid.step, tolerant.grid.word) == (plain.grid.step, plain.grid.word)
    assert tolerant.sigma.tolist() == plain.sigma.tolist()


def test_the_file_keeps_what_may_drop_out() -> None:
    study = Study.parse(document(patience="5m"))
    assert (study.tolerate, study.patience) == (2, 300.0)
    assert Study.parse(tomllib.loads(study.toml())) == study
    assert Study.parse(document(tolerate=0)).toml().count("tolerate") == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tolerate": -1}, "tolerate = -1 must"),
        ({"tolerate": True}, "tolerate = true must"),
        ({"tolerate": "1"}, 'tolerate = "1" must'),
        ({"tolerate": 7}, "tolerate = 7 must be a whole number from 0 to 6"),
        ({"tolerate": 3}, "tolerate = 3 must be at most 2 with 7 parties and threshold 1: with fewer left, colluders"),
        ({"threshold": 3}, "tolerate = 2 must be at most 1 with 7 parties and threshold 3: with fewer left, colluders"),
        (
            {"tolerate": 6, "guarantee": "statistical"},
            "tolerate = 6 must be at most 5 with 7 parties and threshold 1: more parties must be left than may collude",
        ),
        ({"threshold": 0}, "tolerate = 2 needs a threshold of at least 1"),
        ({"patience": "soon"}, 'patience = "soon" must be a duration'),
        ({"patience": 5}, "patience = 5 must be a duration"),
        ({"tolerate": 0, "patience": "5m"}, "patience = 5m needs tolerate"),
    ],
)
def test_bad_values_get_one_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError) as caught:
        Study.parse(document(**changes))
    assert words in str(caught.value)


@pytest.mark.parametrize("weighting", ["equal", "balanced"])
@pytest.mark.parametrize("lost", [{}, {0: Kind.SUBMIT}, {0: Kind.KEYS, 3: Kind.SUBMIT}])
def test_answers_are_for_those_who_stayed(weighting: str, lost: dict[int, Kind]) -> None:
    study = Study.parse(document(weighting=weighting))
    data = tables()
    released = run(study, data, engine=MemoryEngine(lost))
    stayed = [name for place, name in enumerate(NAMES) if place not in lost]
    assert sorted(released.parties) == sorted(stayed)
    ages = np.concatenate([data[name]["age"] for name in stayed])
    old, age = released.answers
    low, high = old.always or old.interval
    assert low - 3 * old.standard_error < np.sum(ages >= 65) < high + 3 * old.standard_error
    low, high = age.always or age.interval
    assert low - 3 * age.standard_error < ages.mean() < high + 3 * age.standard_error
    told = released.parties["office"]
    assert told.missing == tuple(NAMES[place] for place in sorted(lost))
    assert "coalitions of at most 1 party that cannot break" in told.guarantee


@pytest.mark.parametrize("lost", [0, 5])
def test_error_bars_are_for_the_plan_of_those_who_stayed(lost: int) -> None:
    study = Study.parse(document())
    whole = run(study, tables()).answers[0].standard_error
    less = run(study, tables(), engine=MemoryEngine({lost: Kind.SUBMIT})).answers[0].standard_error
    keys = {name: Ed25519PrivateKey.generate().public_key().public_bytes_raw() for name in NAMES}
    terms = study.with_keys(keys).terms()
    deviation = terms.standard_deviation_of([place for place in range(7) if place != lost])
    assert less / whole == pytest.approx(deviation / terms.standard_deviation, rel=1e-9)


def test_too_many_lost_is_no_answer() -> None:
    with pytest.raises(DeadlineError, match="north, east, west dropped out in step keys"):
        run(Study.parse(document()), tables(), engine=MemoryEngine(dict.fromkeys((0, 2, 3), Kind.KEYS)))


def test_what_was_told_before_parties_could_drop_out_is_still_read() -> None:
    study = Study.parse(document())
    told = run(study, tables()).parties["office"].plain()
    assert PartyRelease.of_plain(told).missing == ()
    del told["missing"]
    assert PartyRelease.of_plain(told).missing == ()


@pytest.mark.process
def test_a_study_over_the_relay_goes_on_without_a_party_that_never_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PartySession, "drop_missing", drops_only({NAMES.index("west")}))
    study = Study.parse(document(patience="1s", deadline=DEADLINE))
    identities = {name: Ed25519PrivateKey.generate() for name in NAMES}
    study = study.with_keys({name: one.public_key().public_bytes_raw() for name, one in identities.items()})
    data, told, failed = tables(), {}, {}

    def take_part(name: str, url: str) -> None:
        try:
            with Ledger.create(tmp_path / f"{name}.ledger", name, 9.0, 1e-5) as ledger:
                told[name] = join(study, name, identities[name], data[name], ledger, url)
        except Exception as error:  # shown by the assertion below
            failed[name] = error

    with relay_process(tmp_path / "relay.sqlite") as url:
        threads = [threading.Thread(target=take_part, args=(name, url)) for name in NAMES if name != "west"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(HANG_S)
    assert not failed
    assert sorted(told) == sorted(set(NAMES) - {"west"})
    assert {one.missing for one in told.values()} == {("west",)}
    assert told["office"].answers == told["south"].answers
    assert told["north"].answers is None
    assert told["north"].spent is not None
    assert told["north"].spent > 0
