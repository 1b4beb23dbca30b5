"""Spec: broadcasting, receivers in every form, frozen values, and every refusal."""

from __future__ import annotations

import copy
import pickle
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tpmdp
from tpmdp import InputError, Spec

GOOD: dict[str, Any] = {"epsilon": [0.5, 1.0, 2.0], "delta": 1e-6, "threshold": 1, "names": ["a", "b", "c"]}


def make(**changes: Any) -> Spec:
    return Spec(**{**GOOD, **changes})


def test_scalars_broadcast_to_all_parties() -> None:
    spec = make(sensitivity=2)
    assert spec.count == 3
    assert spec.delta.tolist() == [1e-6] * 3
    assert spec.sensitivity.tolist() == [2.0] * 3
    assert spec.receivers.all()
    assert spec.receiver_count == 3


@pytest.mark.parametrize(
    ("receivers", "expected"),
    [
        ("all", [True, True, True]),
        ([], [False, False, False]),
        ([1], [False, True, False]),
        (np.array([2, 0]), [True, False, True]),
        (["b"], [False, True, False]),
        ("b", [False, True, False]),
        (("c", "a"), [True, False, True]),
        ([True, False, True], [True, False, True]),
        (np.array([False, False, True]), [False, False, True]),
    ],
)
def test_receivers_as_indices_names_masks_or_all(receivers: Any, expected: list[bool]) -> None:
    assert make(receivers=receivers).receivers.tolist() == expected


def test_length_may_come_from_any_field() -> None:
    assert Spec(epsilon=1.0, delta=1e-6, threshold=1, names=["a", "b"]).count == 2
    assert Spec(epsilon=1.0, delta=[1e-6, 1e-7, 1e-8], threshold=1).count == 3
    assert Spec(epsilon=1.0, delta=1e-6, threshold=1, receivers=[True, False]).count == 2
    assert Spec(epsilon=1.0, delta=1e-6, threshold=[1, 0]).count == 2
    assert Spec(epsilon=1.0, delta=1e-6, threshold=0).count == 1


def test_personal_thresholds_that_agree_are_a_common_threshold() -> None:
    assert make(threshold=[2, 2, 2]).threshold == 2
    personal = make(threshold=[0, 1, 2])
    assert not personal.common_threshold
    assert np.array_equal(personal.threshold, [0, 1, 2])
    assert "personal" in repr(personal)


def test_a_spec_cannot_be_changed() -> None:
    source = np.array([0.5, 1.0, 2.0])
    spec = make(epsilon=source)
    source[0] = 99.0
    assert spec.epsilon[0] == 0.5
    with pytest.raises(AttributeError, match="frozen"):
        spec.threshold = 2
    for field in ("epsilon", "delta", "sensitivity", "receivers"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(spec, field)[0] = 0


def test_specs_compare_by_value_and_can_be_varied() -> None:
    assert make() == make()
    assert make() != make(threshold=2)
    assert make() != "spec"
    assert make().replace(threshold=2) == make(threshold=2)
    assert make(threshold=[0, 1, 2]).replace(receivers=["a"]).receivers.tolist() == [True, False, False]


def test_ten_million_parties_are_a_normal_input() -> None:
    count = 10_000_000
    spec = Spec(epsilon=np.full(count, 0.5), delta=1e-6, threshold=count - 1, receivers=np.arange(5))
    assert spec.count == count
    assert spec.delta.strides == (0,)
    assert spec.name(count - 1) == "party 10000000"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epsilon": [1, -1, 1]}, "epsilon of b = -1.0 must be greater than 0"),
        ({"epsilon": 0}, "epsilon = 0.0 must be greater than 0"),
        ({"epsilon": [1, float("nan"), 1]}, "epsilon of b = nan"),
        ({"delta": 0}, "delta of a = 0.0 cannot be met by Gaussian noise, whose tails break pure epsilon-DP"),
        ({"delta": [0.1, 0.1, 1.5]}, "delta of c = 1.5 must lie in (0, 1)"),
        ({"delta": [0.1, 0.1, -1]}, "delta of c = -1.0 must lie in (0, 1)"),
        ({"sensitivity": [1, 1, -2]}, "sensitivity of c = -2.0 must be finite and not negative"),
        ({"threshold": -1}, "threshold = -1 must be 0 or more"),
        ({"threshold": 1.5}, "threshold = 1.5 must be a whole number"),
        ({"threshold": float("nan")}, "threshold = nan must be 0 or more"),
        ({"threshold": 3}, "threshold = 3 must be less than the number of parties (3): add parties or lower it"),
        ({"threshold": [1, 7, 1]}, "threshold of b = 7 must be less than the number of parties (3)"),
        ({"receivers": ["z"]}, "receivers = z is not one of the parties"),
        ({"receivers": ["a", "a"]}, "receivers = a is listed twice"),
        ({"receivers": [0, 0]}, "receivers = 0 is listed twice"),
        ({"receivers": [3]}, "receivers = 3 must be an index from 0 to 2"),
        ({"receivers": [-1]}, "receivers = -1 must be an index from 0 to 2"),
        ({"receivers": [0.5]}, "must be indices, names or a mask"),
        ({"receivers": [[0]]}, "must be a flat list"),
        ({"receivers": [True, False]}, "3 for epsilon, 3 for names, 2 for receivers do not agree"),
        ({"receivers": ["a"], "names": None}, "receivers = a is a name, but the parties have none"),
        ({"names": ["a", "b", "a"]}, "name of party 3 = a is used twice"),
        ({"names": ["a", "", "c"]}, "name of party 2 = (blank) must be printable text"),
        ({"names": ["a", "b\n", "c"]}, "name of party 2 = b? must be printable text"),
        ({"names": ["a", 5, "c"]}, "name of party 2 = 5 must be printable text"),
        ({"names": ["a", "b" * 300, "c"]}, "has more than 200 characters"),
        ({"names": "abc"}, "names = abc is not a list"),
        ({"names": 5}, "names = 5 is not a list"),
        ({"names": ["a", "all", "c"]}, "name of party 2 = all stands for a set of receivers: rename the party"),
        ({"receivers": None}, "receivers = None must be a flat list"),
        ({"receivers": [[0], [0, 1]]}, "must be a flat list of indices or names, or a mask"),
        ({"epsilon": [1, None, 1]}, "epsilon = [1, None, 1] is not a number"),
        ({"epsilon": [1, 10**5000, 1]}, "epsilon = (a huge number) is not a number"),
        ({"epsilon": np.array([1, "2", 3], dtype=object)}, "is not a number"),
        (
            {"epsilon": np.ma.masked_array([1.0, 2.0, 3.0], mask=[False, True, False])},
            "epsilon = masked array has missing values",
        ),
        ({"epsilon": [1, 2]}, "lengths = 2 for epsilon, 3 for names do not agree"),
        ({"epsilon": []}, "epsilon = [] is empty"),
    ],
)
def test_bad_input_names_field_value_rule_and_remedy(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**changes)
    text = str(caught.value)
    assert message in text
    assert ": " in text
    assert "\n" not in text


def test_errors_are_tpmdp_errors_and_value_errors() -> None:
    with pytest.raises(tpmdp.TpmdpError):
        make(threshold=9)
    with pytest.raises(ValueError, match="threshold"):
        make(threshold=9)


def test_hostile_values_cannot_flood_the_message() -> None:
    with pytest.raises(InputError) as caught:
        make(receivers=["x" * 100_000])
    assert len(str(caught.value)) < 300


def test_exact_numbers_are_accepted() -> None:
    assert make(epsilon=[Fraction(1, 2), Decimal("1.5"), 2]).epsilon.tolist() == [0.5, 1.5, 2.0]


@pytest.mark.parametrize("spec", [make(), make(threshold=[0, 1, 2], receivers=[1])])
def test_specs_can_be_copied_and_sent_to_other_processes(spec: Spec) -> None:
    for again in (copy.copy(spec), copy.deepcopy(spec), pickle.loads(pickle.dumps(spec))):  # noqa: S301
        assert again == spec
