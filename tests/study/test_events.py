"""What a party sees happen, as events and as sentences."""

from __future__ import annotations

import json
from dataclasses import replace

from tests.protocol.sessions import World
from tpmdp._util.clock import now_s
from tpmdp.protocol.messages import EVERYONE, decode
from tpmdp.report.progress import RunProgress
from tpmdp.study.events import EventTracker, SessionEvent, names_text

LEAD, OTHER = 0, 1


def events_of(index: int, count: int = 3) -> list[SessionEvent]:
    """A whole session, message by message, as one party sees it."""
    world = World(count, 1, [LEAD])
    parties = world.parties()
    seen: list[SessionEvent] = []
    tracker = EventTracker(world.terms, index, now_s() + 100.0, on_event=seen.append)
    queue: list[tuple[int, bytes]] = []

    def post(sender: int, messages: list[bytes]) -> None:
        for data in messages:
            to = decode(data).recipient
            queue.extend((each, data) for each in range(count) if each != sender and to in (each, EVERYONE))

    for party in parties:
        post(party.index, party.start())
    tracker.watch(parties[index], 100)
    while queue:
        recipient, data = queue.pop(0)
        post(recipient, parties[recipient].receive(data))
        tracker.watch(parties[index], 200)
    return seen


def without_time(event: SessionEvent) -> str:
    return event.line().rpartition("; 1 min")[0] or event.line()


def test_the_lead_receiver_sees_each_arrival_once() -> None:
    assert [without_time(event) for event in events_of(LEAD)] == [
        "1 of 3 have joined; waiting for party 2, party 3",
        "party 2 has joined (2 of 3); waiting for party 3",
        "party 3 has joined (3 of 3)",
        "all 3 have joined; waiting for the key of party 3",
        "all 3 have joined; waiting for the mask of party 3",
        "all 3 have joined; waiting for the submission of party 2, party 3",
        "submission of party 2 is here; waiting for the submission of party 3",
        "done",
    ]


def test_another_party_sees_who_joins_and_that_it_waits_for_the_answer() -> None:
    seen = events_of(OTHER)
    assert [without_time(event) for event in seen] == [
        "1 of 3 have joined; waiting for party 1, party 3",
        "party 1 has joined (2 of 3); waiting for party 3",
        "party 3 has joined (3 of 3)",
        "all 3 have joined; waiting for the list of keys of party 1",
        "all 3 have joined; waiting for the mask of party 1",
        "submitted; waiting for the answer of party 1",
        "done",
    ]
    assert [event.kind for event in seen] == ["step", "joined", "joined", "step", "step", "step", "step"]
    assert {event.party for event in seen} == {"party 2"}
    assert [event.sent for event in seen] == [100, 200, 200, 200, 200, 200, 200]
    assert all(0 < event.seconds_left <= 100 for event in seen)


def test_a_party_of_a_large_consortium_lists_few_names() -> None:
    first = events_of(OTHER, count=30)[0]
    assert (len(first.waiting_for), first.waiting) == (20, 29)
    assert "party 6 and 24 more; 1 min" in first.line()
    assert names_text(["\u202eabc\x1b[2J"]) == "?abc?[2J"


def test_a_computation_on_shares_shows_who_is_connected_and_its_steps() -> None:
    seen: list[SessionEvent] = []
    tracker = EventTracker(World(3, 1, [0]).terms, 1, now_s() + 100.0, on_event=seen.append)
    for missing in ([0, 2], [2], [0, 2], [0], []):  # one is lost, and comes back
        tracker.connected(missing)
    for step in ("compute", "open", "done"):
        tracker.step(step)
    assert [without_time(event) for event in seen] == [
        "1 of 3 have joined; waiting for party 1, party 3",
        "party 1 has joined (2 of 3); waiting for party 3",
        "party 3 has joined (2 of 3); waiting for party 1",
        "party 1 has joined (3 of 3)",
        "all 3 have joined, computing on shares",
        "all 3 have joined, opening the result",
        "done",
    ]


def test_problems_are_said_once_and_survive_json() -> None:
    seen: list[SessionEvent] = []
    tracker = EventTracker(World(3, 1, [0]).terms, 1, now_s() + 100.0, on_event=seen.append)
    for _ in range(2):
        tracker.difference("party 1 has another threshold")
    tracker.trouble("cannot use http://127.0.0.1:1 now (refused)")
    assert [event.kind for event in seen] == ["difference", "trouble"]
    assert "party 1 has another threshold; nothing is charged" in seen[0].line()
    assert "trying until the deadline; 1 min" in seen[1].line()
    for event in [*seen, *events_of(LEAD)]:
        rounded = replace(event, seconds_left=round(event.seconds_left, 1))
        assert SessionEvent.of_plain(json.loads(json.dumps(event.plain()))) == rounded


def test_a_run_logs_the_arrival_and_the_end_of_each_party() -> None:
    progress = RunProgress(["party 1", "party 2", "party 3"])
    lines = [progress.take(event) for index in (LEAD, OTHER) for event in events_of(index)]
    assert [line.rpartition("; 1 min")[0] for line in lines if line] == [
        "party 1 has joined (1 of 3); waiting for party 2, party 3",
        "party 1 is done (1 of 3); waiting for party 2, party 3",
        "party 2 has joined (2 of 3); waiting for party 3",
        "party 2 is done (2 of 3); waiting for party 3",
    ]


def test_an_event_of_a_round_says_which_one() -> None:
    event = SessionEvent(
        "joined",
        "north",
        "agree",
        attempt=1,
        names=("south",),
        joined=2,
        parties=3,
        awaited="agreement",
        waiting_for=("lab",),
        waiting=1,
        sent=800,
        seconds_left=90.0,
        round=2,
        rounds=4,
    )
    assert event.line() == "round 2 of 4: south has joined (2 of 3); waiting for lab; 1 min 30 s left"
    assert event.place_text() == "round 2 of 4: 2 of 3 have joined; waiting for lab"
    assert (event.plain()["round"], event.plain()["rounds"]) == (2, 4)
    assert SessionEvent.of_plain(event.plain()) == event
    done = replace(event, step="done", kind="step")
    assert done.line() == "round 2 of 4: done"
    assert not done.is_end
    assert replace(done, round=4).is_end
    assert "round" not in replace(event, round=1, rounds=1).plain()
