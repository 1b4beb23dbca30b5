"""The input of planning: budgets, sensitivities, the threshold and the receivers, validated once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tpmdp._util.arrays import FloatArray
from tpmdp._util.budget_rules import (
    SENSITIVITY_MIN,
    Label,
    as_floats,
    check_delta,
    check_epsilon,
    check_sensitivity,
    party_number,
)
from tpmdp.errors import InputError, shown

NAME_LENGTH_MAX: Final = 200
RESERVED_NAMES: Final = ("all", "none")  # what a set of receivers may be called
_FIELDS: Final = ("epsilon", "delta", "sensitivity", "threshold", "receivers", "names")


@dataclass(frozen=True)
class Party:
    """A party with its budget, in studies, sessions and trainings.

    `public_key` may be missing only if tpmdp makes the keys itself (`tpmdp run`). `address` (host:port) is needed only
    if parties connect to each other without a relay. `threshold` is the party's own, if it has one.
    """

    name: str
    epsilon: float
    delta: float
    records: int = 1
    public_key: bytes | None = None
    address: str | None = None
    weight: float | None = None
    threshold: int | None = None


class Spec:
    """Budgets, sensitivities, threshold and receivers of n parties: a frozen, validated value.

    Every numeric field is one number for all parties, or one per party. `threshold` is how many parties may collude;
    an array gives each party its own threshold. `receivers` are indices, names, a mask, or "all".

    >>> spec = Spec(epsilon=[0.5, 1.0, 2.0], delta=1e-6, threshold=1, receivers=["bank"], names=["bank", "lab", "city"])
    >>> spec.count, spec.receivers.tolist()
    (3, [True, False, False])
    >>> Spec(epsilon=[1.0, -1.0], delta=1e-6, threshold=1)
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: epsilon of party 2 = -1.0 must be greater than 0:
    use a positive number, or inf for no protection
    """

    __slots__ = ("_frozen", "count", *_FIELDS)

    count: int
    epsilon: FloatArray
    delta: FloatArray
    sensitivity: FloatArray
    threshold: int | NDArray[np.int64]
    receivers: NDArray[np.bool_]
    names: tuple[str, ...] | None

    def __init__(
        self,
        *,
        epsilon: ArrayLike,
        delta: ArrayLike,
        sensitivity: ArrayLike = 1.0,
        threshold: ArrayLike,
        receivers: Any = "all",
        names: Sequence[str] | None = None,
    ) -> None:
        columns = {
            "epsilon": as_floats("epsilon", epsilon),
            "delta": as_floats("delta", delta),
            "sensitivity": as_floats("sensitivity", sensitivity),
            "threshold": as_floats("threshold", threshold),
        }
        checked_names = None if names is None else check_names(names)
        count = _count(columns, checked_names, receivers)
        put = object.__setattr__
        put(self, "_frozen", False)
        self.count = count
        self.names = checked_names
        check_epsilon(columns["epsilon"], self.name)
        check_delta(columns["delta"], columns["epsilon"], self.name)
        check_sensitivity(columns["sensitivity"], self.name)
        for field in ("epsilon", "delta", "sensitivity"):
            put(self, field, _freeze(columns[field], count))
        self.threshold = check_threshold(columns["threshold"], count, self.name)
        self.receivers = check_receivers(receivers, count, checked_names)
        put(self, "_frozen", True)

    def __setattr__(self, field: str, value: object) -> None:
        if getattr(self, "_frozen", False):
            raise AttributeError(f"Spec is frozen: make a new one with another {field}")
        object.__setattr__(self, field, value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Spec):
            return NotImplemented
        return all(np.array_equal(getattr(self, field), getattr(other, field)) for field in _FIELDS[:5]) and (
            self.names == other.names
        )

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, ({field: getattr(self, field) for field in _FIELDS},)

    def __repr__(self) -> str:
        threshold = self.threshold if self.common_threshold else "personal"
        return f"Spec({self.count} parties, threshold {threshold}, {self.receiver_count} receivers)"

    @property
    def common_threshold(self) -> bool:
        """Whether one threshold holds for all parties."""
        return isinstance(self.threshold, int)

    @property
    def receiver_count(self) -> int:
        """How many parties learn the answer."""
        return int(np.count_nonzero(self.receivers))

    def name(self, index: int) -> str:
        """The party's name, or "party 1", "party 2", ... if no names were given."""
        return party_number(index) if self.names is None else self.names[index]

    def replace(self, **changes: Any) -> Spec:
        """A new spec with some fields changed, validated like any other.

        >>> Spec(epsilon=[1, 2], delta=1e-6, threshold=1).replace(threshold=0).threshold
        0
        """
        return Spec(**{**{field: getattr(self, field) for field in _FIELDS}, **changes})

    def weighted(self, weights: FloatArray) -> Spec:
        """The same parties with sensitivities of weighted contributions: exact for weights 0 and 1, else rounded up.

        >>> spec = Spec(epsilon=[1, 1, 1], delta=1e-6, sensitivity=[1, 1, 3], threshold=1)
        >>> spec.weighted(np.array([1.0, 0.0, 0.1])).sensitivity.tolist()
        [1.0, 0.0, 0.3000000000000001]
        """
        product = self.sensitivity * weights
        exact = (weights == 1) | (weights == 0) | (self.sensitivity == 0)
        up = np.maximum(np.nextafter(product, np.inf), SENSITIVITY_MIN)
        return self.replace(sensitivity=np.where(exact, product, up))


def _rebuild(fields: dict[str, Any]) -> Spec:
    """Copies and unpickled specs are validated like new ones."""
    return Spec(**fields)


def _freeze(values: FloatArray, count: int) -> FloatArray:
    """A read-only array of n entries; a copy, so that the caller cannot change it."""
    if values.ndim and len(values) == count:
        values = values.copy()
        values.flags.writeable = False
        return values
    return np.broadcast_to(values.reshape(-1)[0].copy(), (count,))


def _count(columns: dict[str, FloatArray], names: tuple[str, ...] | None, receivers: Any) -> int:
    """The number of parties all fields agree on."""
    lengths = {field: len(column) for field, column in columns.items() if column.ndim}
    if names is not None:
        lengths["names"] = len(names)
    if not isinstance(receivers, str):
        mask = _as_list(receivers)
        if mask.dtype == np.bool_ and mask.ndim == 1:
            lengths["receivers"] = len(mask)
    for field, length in lengths.items():
        if length == 0:
            raise InputError(field, "[]", "is empty", "a study needs at least one party")
    sizes = set(lengths.values()) or {1}
    if len(sizes) > 1:
        listed = ", ".join(f"{length} for {field}" for field, length in lengths.items())
        raise InputError("lengths", listed, "do not agree", "give every field one value, or one value per party")
    return sizes.pop()


def check_names(names: Sequence[str], label: Label = party_number) -> tuple[str, ...]:
    """Names are printable, short and unique, and none stands for a set of receivers.

    >>> check_names(["bank", "lab"])
    ('bank', 'lab')
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError("names", names, "is not a list", "give a list of names")
    checked = tuple(names)
    seen: set[str] = set()
    for index, name in enumerate(checked):
        if not isinstance(name, str) or not name.strip() or name != name.strip() or not name.isprintable():
            rule = "must be printable text with no blanks around it"
            raise InputError(f"name of {label(index)}", name, rule, "rename the party")
        if len(name) > NAME_LENGTH_MAX:
            raise InputError(
                f"name of {label(index)}", name, f"has more than {NAME_LENGTH_MAX} characters", "shorten it"
            )
        if name in RESERVED_NAMES:
            raise InputError(f"name of {label(index)}", name, "stands for a set of receivers", "rename the party")
        if name in seen:
            raise InputError(f"name of {label(index)}", name, "is used twice", "give each party its own name")
        seen.add(name)
    return checked


def check_threshold(values: FloatArray, count: int, label: Label = party_number) -> int | NDArray[np.int64]:
    """A threshold is a whole number below the number of parties; one for all, or an array where they differ.

    >>> check_threshold(np.array([1.0, 1.0]), 2)
    1
    """
    flat = np.atleast_1d(values)
    with np.errstate(invalid="ignore"):
        bad = ~((flat >= 0) & (flat < count) & (flat == np.floor(flat)))
    if bad.any():
        index = int(np.argmax(bad))
        value = float(flat[index])
        field = f"threshold of {label(index)}" if values.ndim else "threshold"
        if not value >= 0:
            raise InputError(field, _whole(value), "must be 0 or more", "give how many parties may collude")
        if value < count:
            raise InputError(field, value, "must be a whole number", "give how many parties may collude")
        rule = f"must be less than the number of parties ({count})"
        raise InputError(field, _whole(value), rule, "add parties or lower it")
    if (flat == flat[0]).all():
        return int(flat[0])
    thresholds = flat.astype(np.int64)
    thresholds.flags.writeable = False
    return thresholds


def _whole(value: float) -> int | float:
    return int(value) if value.is_integer() else value


def check_receivers(receivers: Any, count: int, names: tuple[str, ...] | None = None) -> NDArray[np.bool_]:
    """A mask of the receivers, from indices, names, a mask or "all".

    >>> check_receivers([2], 3).tolist()
    [False, False, True]
    """
    mask = np.zeros(count, dtype=np.bool_)
    if isinstance(receivers, str) and receivers == "all":
        mask[:] = True
    else:
        listed = _as_list(receivers)
        if listed.ndim > 1:
            raise InputError("receivers", f"array of shape {listed.shape}", "must be a flat list", "list each one once")
        listed = listed.reshape(-1)
        if listed.dtype == np.bool_:
            if len(listed) != count:
                raise InputError("receivers", f"mask of length {len(listed)}", f"must have {count} entries", "fix it")
            mask |= listed
        elif listed.dtype.kind in "OU" and len(listed):
            _mark_names(mask, list(listed), names)
        elif len(listed):
            _mark_indices(mask, listed, count)
    mask.flags.writeable = False
    return mask


def _as_list(receivers: Any) -> NDArray[Any]:
    try:
        if receivers is None:
            raise ValueError
        return np.asarray([receivers] if isinstance(receivers, str) else receivers)
    except ValueError:
        rule = "must be a flat list of indices or names, or a mask"
        raise InputError("receivers", receivers, rule, 'use "all" for everybody, [] for nobody') from None


def _mark_names(mask: NDArray[np.bool_], listed: list[Any], names: tuple[str, ...] | None) -> None:
    if names is None:
        raise InputError(
            "receivers", listed[0], "is a name, but the parties have none", "give names, or indices from 0"
        )
    index = {name: position for position, name in enumerate(names)}
    for name in listed:
        if name not in index:
            known = shown(", ".join(names[:8]))
            raise InputError("receivers", name, "is not one of the parties", f"use names such as {known}, or all")
        if mask[index[name]]:
            raise InputError("receivers", name, "is listed twice", "list each receiver once")
        mask[index[name]] = True


def _mark_indices(mask: NDArray[np.bool_], listed: NDArray[Any], count: int) -> None:
    remedy = 'list indices or names, give a mask, or use "all"'
    if listed.dtype.kind not in "iu":
        raise InputError("receivers", listed.tolist(), "must be indices, names or a mask", remedy)
    bad = (listed < 0) | (listed >= count)
    if bad.any():
        value = int(listed[int(np.argmax(bad))])
        raise InputError("receivers", value, f"must be an index from 0 to {count - 1}", remedy)
    unique, counts = np.unique(listed, return_counts=True)
    if (counts > 1).any():
        value = int(unique[int(np.argmax(counts > 1))])
        raise InputError("receivers", value, "is listed twice", "list each receiver once")
    mask[listed] = True
