"""What the page on threats says is what the messages and the planner show."""

from __future__ import annotations

import re

import tpmdp
from tests.protocol.sessions import World
from tests.test_docs import DOCS, text_of
from tpmdp.gaussian.calibration import epsilon_at
from tpmdp.planning.person import person_protection

PAGE = DOCS / "explanation" / "threat_model.md"


def test_the_page_lists_what_every_message_shows_the_relay() -> None:
    world = World(3, 1)
    messages = [data for party in world.parties() for data in party.start()]
    assert messages
    assert all(world.terms.plan_hash in data and world.terms.session in data for data in messages)
    (row,) = re.findall(r"^\| the relay \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    for item in ("public keys", "a hash of the label", "the plan hash", "ciphertext", "signatures"):
        assert item in row


def test_the_numbers_on_the_author_and_on_people_are_the_planners() -> None:
    text = text_of(PAGE)
    plan = tpmdp.plan(tpmdp.Spec(epsilon=[1.0] * 50, delta=1e-6, threshold=5))
    assert f"really {epsilon_at(float(plan.variance[0]) ** 0.5, 1e-6):.1f}." in text
    assert f"1/{round(plan.need[0] / plan.variance[0])} of the noise" in text
    spec = tpmdp.Spec(epsilon=[0.5, 0.8, 1, 2, 3], delta=1e-6, threshold=2, receivers=[0, 4])
    people = [person_protection(tpmdp.plan(spec), party).epsilon for party in ([1], [1, 2], [1, 2, 3])]
    assert "epsilon {:.1f}, with a record at two of them {:.2f}, at all three {:.2f},".format(*people) in text
    sole = tpmdp.plan(tpmdp.Spec(epsilon=[1.0] * 3, delta=1e-6, threshold=1, receivers=[0]))
    published = sole.variance.sum() - sole.variance[1]  # a party that is not a receiver colludes
    assert f"really have epsilon {epsilon_at(float(published) ** 0.5, 1e-6):.2f}." in text
    assert sole.variance[0] == 0
