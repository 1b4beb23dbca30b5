"""plan.json: a plan with its certificate, for somebody who did not make it. Strict on reading, atomic on writing."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.files import readable, replacing
from tpmdp.errors import FileError, shown
from tpmdp.planning.certificate import Certificate
from tpmdp.planning.plan import Plan
from tpmdp.planning.weights import Weights
from tpmdp.planning.witness import Bundle
from tpmdp.spec import Spec

FORMAT: Final = "tpmdp.plan"
VERSION: Final = 1
_SIZE_MAX: Final = 2 << 30
_FRACTION: Final = re.compile(r"\d{1,60}(/[1-9]\d{0,59})?", re.ASCII)


def _column(values: FloatArray) -> Any:
    """A list, or one value where all are the same; infinity, which JSON lacks, as "inf"."""
    if values.strides == (0,) or (len(values) > 1 and (values == values[0]).all()):
        value = float(values[0])
        return "inf" if math.isinf(value) else value
    return ["inf" if math.isinf(value) else value for value in values.tolist()]


def plan_document(plan: Plan) -> dict[str, Any]:
    """The plan and its certificate as plain JSON values.

    >>> import tpmdp
    >>> document = plan_document(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)))
    >>> document["format"], document["threshold"], document["receivers"]
    ('tpmdp.plan', 1, [0, 1])
    """
    spec, certificate = plan.spec, plan.certificate()
    return {
        "format": FORMAT,
        "version": VERSION,
        "parties": {
            "count": spec.count,
            "names": None if spec.names is None else list(spec.names),
            "epsilon": _column(spec.epsilon),
            "delta": _column(spec.delta),
            "sensitivity": _column(spec.sensitivity),
        },
        "threshold": spec.threshold if isinstance(spec.threshold, int) else spec.threshold.tolist(),
        "receivers": np.flatnonzero(spec.receivers).tolist(),
        "need": _column(plan.need),
        "variance": _column(plan.variance),
        "witness": {
            "classes": certificate.classes.tolist(),
            "bundles": [
                {
                    "members": bundle.members.tolist(),
                    "weight": str(bundle.weight),
                    "marginals": [str(marginal) for marginal in bundle.marginals],
                }
                for bundle in certificate.bundles
            ],
        },
        "gap": certificate.gap,
        **_weights(plan.weights),
    }


def _weights(weights: Weights) -> dict[str, Any]:
    """How the receiver scales the sum back, and what that rests on; nothing where all weights are 1."""
    if (weights.each == 1).all():
        return {}
    told = {
        "each": _column(weights.each),
        "records": _column(weights.records),
        "scale": weights.scale,
        "width": weights.width,
        "bias_bound": weights.bias_bound,
        "assumes": weights.assumes,
    }
    return {"weights": told}


def write_plan(plan: Plan, path: Path) -> None:
    """Write plan.json; an interrupted write leaves nothing behind."""
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        json.dump(plan_document(plan), stream, allow_nan=False, indent=None, separators=(",", ":"))
        stream.write("\n")


class _Reader:
    """Walks a parsed document; every complaint names the file and the key."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, problem: str) -> NoReturn:
        raise FileError(self.path, problem, "ask for the plan again, from `tpmdp plan --out`")

    def table(self, value: Any, key: str, keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
        if not isinstance(value, dict):
            self.fail(f"has {key} = {shown(value)}, which is not a table")
        for name in keys:
            if name not in value:
                self.fail(f"lacks {name} in {key}")
        for name in value:
            if name not in keys + optional:
                self.fail(f"has an unknown key {shown(name)} in {key}")
        return value

    def number(self, value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(f"has {key} = {shown(value)}, which is not a number")
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            self.fail(f"has {key} = {shown(value)}, which is out of range")
        return number

    def whole(self, value: Any, key: str, below: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < below:
            self.fail(f"has {key} = {shown(value)}, which is not a whole number from 0 to {below - 1}")
        return value

    def wholes(self, value: Any, key: str, below: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        entries = self.entries(value, key)
        return np.array([self.whole(entry, key, below) for entry in entries], dtype=np.int64)

    def entries(self, value: Any, key: str) -> list[Any]:
        if not isinstance(value, list):
            self.fail(f"has {key} = {shown(value)}, which is not a list")
        return value

    def column(self, value: Any, key: str, count: int, infinite: bool = False) -> FloatArray:
        def one(entry: Any) -> float:
            return math.inf if infinite and entry == "inf" else self.number(entry, key)

        if not isinstance(value, list):
            return np.full(count, one(value))
        if len(value) != count:
            self.fail(f"has {len(value)} values of {key} for {count} parties")
        return np.array([one(entry) for entry in value], dtype=np.float64)

    def fraction(self, value: Any, key: str) -> Fraction:
        if not isinstance(value, str) or not _FRACTION.fullmatch(value):
            self.fail(f"has {key} = {shown(value)}, which is not a fraction such as 2/3")
        return Fraction(value)


def _parse(path: Path) -> Any:
    reader = _Reader(path)

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = dict(pairs)
        if len(keys) != len(pairs):
            reader.fail("has a key twice")
        return keys

    def constant(name: str) -> NoReturn:
        reader.fail(f"holds {name}, which JSON does not allow")

    try:
        with readable(path, _SIZE_MAX):
            text = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError:
        reader.fail("is not UTF-8 text")
    if not text.strip():
        reader.fail("is empty")
    try:
        return json.loads(text, object_pairs_hook=unique, parse_constant=constant)
    except (ValueError, RecursionError) as error:
        reader.fail(f"is not valid JSON ({shown(str(error))})")


def read_plan(path: Path) -> tuple[Spec, Certificate]:
    """Read plan.json: the spec it claims to serve and the certificate to check against it.

    >>> import tempfile, tpmdp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "plan.json"
    ...     write_plan(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)), file)
    ...     spec, certificate = read_plan(file)
    >>> certificate.check(spec).parties
    2
    """
    reader = _Reader(path)
    keys = ("format", "version", "parties", "threshold", "receivers", "need", "variance", "witness", "gap")
    root = reader.table(_parse(path), "plan", keys, ("weights",))
    if root["format"] != FORMAT or root["version"] != VERSION or isinstance(root["version"], bool):
        reader.fail(f"is {shown(root['format'])} version {shown(root['version'])}, not {FORMAT} version {VERSION}")
    parties = reader.table(root["parties"], "parties", ("count", "names", "epsilon", "delta", "sensitivity"))
    count = reader.whole(parties["count"], "count", 1 << 40)
    witness = reader.table(root["witness"], "witness", ("classes", "bundles"))
    if count == 0 or len(reader.entries(witness["classes"], "classes")) != count:
        reader.fail(f"has count = {count}, which is not the number of parties listed")
    names = parties["names"]
    if names is not None and len(reader.entries(names, "names")) != count:
        reader.fail(f"has {len(names)} names for {count} parties")
    threshold = root["threshold"]
    spec = Spec(
        epsilon=reader.column(parties["epsilon"], "epsilon", count, infinite=True),
        delta=reader.column(parties["delta"], "delta", count),
        sensitivity=reader.column(parties["sensitivity"], "sensitivity", count),
        threshold=reader.column(threshold, "threshold", count)
        if isinstance(threshold, list)
        else reader.number(threshold, "threshold"),
        receivers=reader.wholes(root["receivers"], "receivers", count),
        names=names,
    )
    bundles = tuple(_read_bundle(reader, entry, count) for entry in reader.entries(witness["bundles"], "bundles"))
    classes = reader.wholes(witness["classes"], "classes", max(count, 8))
    need, variance = (reader.column(root[key], key, count) for key in ("need", "variance"))
    gap = reader.number(root["gap"], "gap")
    weights, records, width = _read_weights(reader, root.get("weights"), count)
    form = (variance, need, spec.threshold, spec.receivers, classes, bundles, gap)
    return spec, Certificate(*form, weights, records, width)


def _read_weights(reader: _Reader, value: Any, count: int) -> tuple[FloatArray | None, FloatArray | None, float]:
    """Weights, records and width; scale, bound and words are made of them and not read."""
    if value is None:
        return None, None, 0.0
    table = reader.table(value, "weights", ("each", "records", "scale", "width", "bias_bound", "assumes"))
    each, records = reader.column(table["each"], "weights", count), reader.column(table["records"], "records", count)
    width = reader.number(table["width"], "width")
    if (each * records).any():  # otherwise refused by the check
        made = Weights(each, records, width, 0.0)
        for key in ("scale", "bias_bound"):
            if not math.isclose(reader.number(table[key], key), getattr(made, key), rel_tol=1e-9):
                reader.fail(f"has {key} = {shown(table[key])}, which is not that of its weights")
    return each, records, width


def _read_bundle(reader: _Reader, entry: Any, count: int) -> Bundle:
    table = reader.table(entry, "bundle", ("members", "weight", "marginals"))
    marginals = reader.entries(table["marginals"], "marginals")
    return Bundle(
        reader.wholes(table["members"], "members", count),
        reader.fraction(table["weight"], "weight"),
        tuple(reader.fraction(marginal, "marginal") for marginal in marginals),
    )
