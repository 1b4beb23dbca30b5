"""plan.json: a plan with its certificate, for others to check. Reading is strict, writing is atomic."""

from __future__ import annotations

import json
import math
import re
from fractions import Fraction
from typing import Any, Final

import numpy as np

from tpmdp._util import fields as read
from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp._util.files import StrPath, as_path, replacing
from tpmdp.errors import InputError
from tpmdp.planning.certificate import Certificate
from tpmdp.planning.plan import Plan
from tpmdp.planning.weights import Weights
from tpmdp.planning.witness import Bundle
from tpmdp.spec import Spec

FORMAT: Final = "tpmdp.plan"
VERSION: Final = 1
_SIZE_MAX: Final = 2 << 30
_COUNT_MAX: Final = (1 << 40) - 1
_REMEDY: Final = "ask for the plan again, from `tpmdp plan --out`"
_FRACTION: Final = re.compile(r"\d{1,60}(/[1-9]\d{0,59})?", re.ASCII)


def _column(values: FloatArray) -> Any:
    """A list, or a single value if all are equal. Infinity, which JSON lacks, is written as "inf"."""
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
    """How the receiver scales the sum back, and under which assumption; empty if all weights are 1."""
    if (weights.each == 1).all():
        return {}
    return {
        "weights": {
            "each": _column(weights.each),
            "records": _column(weights.records),
            "scale": weights.scale,
            "width": weights.width,
            "bias_bound": weights.bias_bound,
            "assumes": weights.assumes,
        }
    }


def write_plan(plan: Plan, path: StrPath) -> None:
    """Write plan.json; an interrupted write leaves nothing behind."""
    with replacing(as_path(path)) as temporary, temporary.open("w", encoding="utf-8") as stream:
        json.dump(plan_document(plan), stream, allow_nan=False, indent=None, separators=(",", ":"))
        stream.write("\n")


def read_plan(path: StrPath) -> tuple[Spec, Certificate]:
    """Read plan.json: the spec that the plan claims to serve, and the certificate to check against it.

    >>> import tempfile, tpmdp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = f"{folder}/plan.json"
    ...     write_plan(tpmdp.plan(tpmdp.Spec(epsilon=[1, 2], delta=1e-6, threshold=1)), file)
    ...     spec, certificate = read_plan(file)
    >>> certificate.check(spec).parties
    2
    """
    path = as_path(path)
    document = read.read_json(path, _SIZE_MAX, _REMEDY)
    with read.in_file(path, _REMEDY):
        keys = ("format", "version", "parties", "threshold", "receivers", "need", "variance", "witness", "gap")
        root = read.table("plan", document, keys, optional=["weights"])
        if root["format"] != FORMAT or root["version"] != VERSION or isinstance(root["version"], bool):
            value = f"{read.written(root['format'])} version {read.written(root['version'])}"
            raise InputError("format", value, f"is not {FORMAT} version {VERSION}", _REMEDY)
        witness = read.table("witness", root["witness"], ("classes", "bundles"))
        classes = read.entries("classes", witness["classes"])
        arguments = _read_parties(root["parties"], len(classes))
        count, threshold = len(classes), root["threshold"]
        arguments["threshold"] = (
            _read_column("threshold", threshold, count)
            if isinstance(threshold, list)
            else read.number("threshold", threshold, finite=True)
        )
        arguments["receivers"] = _read_wholes("receivers", root["receivers"], count)
        bundles = tuple(_read_bundle(entry, count) for entry in read.entries("bundles", witness["bundles"]))
        need, variance = (_read_column(key, root[key], count) for key in ("need", "variance"))
        gap = read.number("gap", root["gap"], finite=True)
        weights, records, width = _read_weights(root.get("weights"), count)
        class_numbers = _read_wholes("classes", classes, max(count, 8))
    spec = Spec(**arguments)
    certificate = Certificate(
        variance,
        need,
        spec.threshold,
        receivers=spec.receivers,
        classes=class_numbers,
        bundles=bundles,
        gap=gap,
        weights=weights,
        records=records,
        width=width,
    )
    return spec, certificate


def _read_parties(value: Any, listed: int) -> dict[str, Any]:
    """Names and budgets, as arguments of `Spec`."""
    parties = read.table("parties", value, ("count", "names", "epsilon", "delta", "sensitivity"))
    count = read.whole("count", parties["count"], 0, high=_COUNT_MAX)
    if count != listed or count == 0:
        raise InputError("count", count, "is not the number of parties listed", _REMEDY)
    names = parties["names"]
    if names is not None and len(read.entries("names", names)) != count:
        raise InputError("names", f"{len(names)} names", f"must be one for each of {count} parties", _REMEDY)
    columns = {key: _read_column(key, parties[key], count) for key in ("delta", "sensitivity")}
    return {"epsilon": _read_column("epsilon", parties["epsilon"], count, infinite=True), **columns, "names": names}


def _read_column(field: str, value: Any, count: int, infinite: bool = False) -> FloatArray:
    """One value for all parties, or a list with one per party."""

    def number(entry: Any) -> float:
        return math.inf if infinite and entry == "inf" else read.number(field, entry, finite=True)

    if not isinstance(value, list):
        return np.full(count, number(value))
    if len(value) != count:
        raise InputError(field, f"{len(value)} values", f"must be one for each of {count} parties", _REMEDY)
    return np.array([number(entry) for entry in value], dtype=np.float64)


def _read_wholes(field: str, value: Any, below: int) -> IntArray:
    numbers = [read.whole(field, entry, 0, high=below - 1) for entry in read.entries(field, value)]
    return np.array(numbers, dtype=np.int64)


def _read_weights(value: Any, count: int) -> tuple[FloatArray | None, FloatArray | None, float]:
    """Weights, records and width. Scale and bound follow from them and must agree."""
    if value is None:
        return None, None, 0.0
    table = read.table("weights", value, ("each", "records", "scale", "width", "bias_bound", "assumes"))
    each, records = _read_column("weights", table["each"], count), _read_column("records", table["records"], count)
    width = read.number("width", table["width"], finite=True)
    if (each * records).any():  # otherwise the certificate's check refuses it
        weights = Weights(each, records, width, spread=0.0)
        for key in ("scale", "bias_bound"):
            if not math.isclose(read.number(key, table[key], finite=True), getattr(weights, key), rel_tol=1e-9):
                raise InputError(key, read.written(table[key]), "does not follow from the weights", _REMEDY)
    return each, records, width


def _read_bundle(value: Any, count: int) -> Bundle:
    table = read.table("bundle", value, ("members", "weight", "marginals"))
    marginals = read.entries("marginals", table["marginals"])
    return Bundle(
        _read_wholes("members", table["members"], count),
        _read_fraction("weight", table["weight"]),
        tuple(_read_fraction("marginal", marginal) for marginal in marginals),
    )


def _read_fraction(field: str, value: Any) -> Fraction:
    if not isinstance(value, str) or not _FRACTION.fullmatch(value):
        raise InputError(field, read.written(value), "is not a fraction such as 2/3", _REMEDY)
    return Fraction(value)
