"""Purpose and contact of a study: shown to everybody, signed by nobody, and never a way into a file."""

from __future__ import annotations

import tomllib

import pytest

from tests.study.sessions import study
from tpmdp import Study
from tpmdp.errors import InputError
from tpmdp.study.invitation import invitation, invited_party, invited_relay
from tpmdp.study.record import SessionRecord

ODD = 'to "plan" beds \\ [[parties]] # ünïcode'


def keyed(**changes: str) -> Study:
    plain = study(**changes)
    return plain.with_keys({party.name: bytes([place] * 32) for place, party in enumerate(plain.parties)})


def test_they_are_written_and_read_and_change_nothing_that_is_signed() -> None:
    stated = keyed(purpose=ODD, contact="Ada, a@example.org")
    assert Study.parse(tomllib.loads(stated.toml())) == stated
    assert stated.terms().plan_hash == keyed().terms().plan_hash
    assert stated.terms().keyless_hash == keyed().terms().keyless_hash
    assert "purpose" not in keyed().toml()
    assert keyed(purpose="", contact="  ").toml() == keyed().toml()


def test_an_invitation_shows_them_in_comments_and_can_be_read() -> None:
    stated = keyed(purpose=ODD, contact="Ada")
    text = invitation(stated, "south", relay="https://relay.example.org")
    assert f"# Purpose:  {ODD}" in text
    assert "# Contact:  Ada" in text
    assert Study.parse(tomllib.loads(text)) == stated
    assert invited_party(text) == "south"
    assert invited_relay(text) == "https://relay.example.org"
    assert "Purpose" not in invitation(keyed(), "south")


@pytest.mark.parametrize(
    "text", ["", "name = 1", "# Invitation for  to the study: x", "x\n# Invitation for a to the study: x"]
)
def test_a_file_that_says_nothing_is_for_nobody(text: str) -> None:
    assert invited_party(text) == ""


@pytest.mark.parametrize("value", ["two\nlines", "x" * 501, "bell\a", 3, ["a"], None, "\u202eevil"])
def test_other_values_are_refused(value: object) -> None:
    with pytest.raises(InputError, match="must be text of at most 500 printable characters, on one line"):
        study(purpose=value)


def test_the_longest_one_is_taken() -> None:
    assert study(contact="x" * 500).contact == "x" * 500


def test_the_builder_takes_them() -> None:
    built = (
        Study.new("flu", threshold=1, receivers="all", delta=1e-6, purpose="beds", contact="Ada")
        .count("age", at_least=65)
        .party("north", epsilon=1, records=100)
        .party("south", epsilon=2, records=80)
        .build()
    )
    assert (built.purpose, built.contact) == ("beds", "Ada")


def test_a_check_of_a_record_says_that_nobody_signs_them() -> None:
    point = "purpose and contact: nobody signs them"
    assert point in SessionRecord.of(keyed(purpose="beds")).open_points().never
    assert point not in SessionRecord.of(keyed()).open_points().never
