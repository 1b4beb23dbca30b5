"""Where a session stands, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tpmdp.study.status import PartyStatus, StudyStatus

NAMES = ("hospital_north", "hospital_south", "insurer")


def status(agreed: Sequence[int], keys: Sequence[int], submitted: Sequence[int], *, is_over: bool = False) -> str:
    parties = tuple(
        PartyStatus(
            name,
            agreed=place in agreed,
            key=place in keys,
            submitted=place in submitted,
            answered=is_over,
            other_plan=False,
        )
        for place, name in enumerate(NAMES)
    )
    return StudyStatus("demo / session 1", known=True, attempt=1, lead=NAMES[0], parties=parties).summary()


@pytest.mark.parametrize(
    ("agreed", "keys", "submitted", "text"),
    [
        ((), (), (), "nobody has joined at this relay yet"),
        ((0, 2), (), (), "2 of 3 have joined; waiting for hospital_south"),
        ((0, 1, 2), (0,), (), "all 3 have joined; waiting for the key of hospital_south, insurer"),
        ((0, 1, 2), (0, 1, 2), (2,), "all 3 have joined; waiting for the submission of hospital_south"),
        ((0, 1, 2), (0, 1, 2), (1, 2), "all have submitted; waiting for hospital_north, which adds up"),
    ],
)
def test_who_is_waited_for_is_named(
    agreed: Sequence[int], keys: Sequence[int], submitted: Sequence[int], text: str
) -> None:
    assert status(agreed, keys, submitted) == text


def test_a_finished_session_waits_for_nobody() -> None:
    assert status((0, 1, 2), (0, 1, 2), (1, 2), is_over=True).startswith("finished: ")
