"""Take part in a study by rounds: the cost of all rounds, who learns what, and a study that stopped early."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from tests.page.browsing import TestClient
from tests.page.joining import keyed
from tests.study.rounds import study_by_rounds, tables_for
from tpmdp import Ledger
from tpmdp import run as run_study
from tpmdp.engines.memory import MemoryEngine
from tpmdp.errors import DeadlineError
from tpmdp.ledger import rounded_up
from tpmdp.page.join_parts import outcome_part
from tpmdp.page.runs import RunKey, SessionRun
from tpmdp.study.check import check_party
from tpmdp.study.events import SessionEvent
from tpmdp.study.record import SessionRecord

QUERY = {"name": "odds", "kind": "logistic_regression", "target": "ill", "bounds": {"age": [18, 90]}}


def test_an_invitation_by_rounds_says_so_and_states_the_cost_of_all(client: TestClient, folder: Path) -> None:
    study = keyed(folder, receivers="all", queries=[QUERY])
    (folder / "north.csv").write_text("age,ill\n70,1\n20,0\n66,1\n41,0\n")
    html = client.get("/join").text
    table = {"age": np.array([70.0, 20.0, 66.0, 41.0]), "ill": np.array([1.0, 0.0, 1.0, 0.0])}
    check = check_party(study, "north", table)
    assert check.cost is not None
    assert math.isclose(check.cost, 1.0, rel_tol=1e-4)
    assert f"agree to spend epsilon {rounded_up(check.cost)}" in html
    assert ", in 4 rounds, of which all parties learn the result" in html
    assert "the result of each of the 4 rounds, with the noise of all parties in it" in html
    for coalition in check.coalitions:
        assert rounded_up(coalition.epsilon) in html


class Failing(MemoryEngine):
    """The second round fails."""

    rounds = 0

    def run(self, *arguments: Any, **more: Any) -> Any:
        self.rounds += 1
        if self.rounds == 2:
            raise DeadlineError("the deadline passed")
        return super().run(*arguments, **more)


def test_a_study_that_stopped_early_shows_what_it_gave_and_how_far_it_came(tmp_path: Path) -> None:
    study = study_by_rounds("abc")
    ledgers = {
        party.name: Ledger.create(tmp_path / f"{party.name}.ledger", party.name, party.epsilon, party.delta)
        for party in study.parties
    }
    stopped = run_study(study, tables_for(study), ledgers, Failing()).parties["a"]
    text = str(outcome_part(study, stopped, SessionRecord.of(study)))
    assert "It has done 1 of 3 rounds; each is charged once." in text
    assert 'class="warning"' in text
    whole = run_study(study.with_session(2), tables_for(study)).parties["a"]
    assert "It has done all 3 rounds" in str(outcome_part(study, whole, SessionRecord.of(study)))
    for ledger in ledgers.values():
        ledger.close()


def test_in_a_new_round_all_parties_join_again() -> None:
    run = SessionRun(1, RunKey("/data", b"1", "a"), b"plan", None)

    def event(number: int, names: tuple[str, ...]) -> SessionEvent:
        return SessionEvent(
            "joined",
            "a",
            "agree",
            attempt=1,
            names=names,
            joined=1 + len(names),
            parties=3,
            awaited="agreement",
            waiting_for=(),
            waiting=0,
            sent=0,
            seconds_left=60.0,
            round=number,
            rounds=2,
        )

    run.take(event(1, ("b", "c")))
    assert run.joined == {"b", "c"}
    run.take(event(2, ("c",)))
    assert run.joined == {"c"}
    assert run.lines[-1] == "round 2 of 2: c has joined (2 of 3)"
