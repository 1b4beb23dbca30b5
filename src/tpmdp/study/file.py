"""The study as a file: from TOML to the fields of a study, and back."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from tpmdp._util import fields as read
from tpmdp.errors import InputError
from tpmdp.planning.losses import check_losses
from tpmdp.protocol.terms import GUARANTEES
from tpmdp.queries.catalogue import Kinds, make_query
from tpmdp.queries.condition import parse_condition
from tpmdp.queries.guesses import Guesses
from tpmdp.queries.ranges import Range
from tpmdp.spec import Party
from tpmdp.study.identity import check_name, parse_public, public_key_text

ENGINES: Final = ("mpyc", "spu")
UNITS: Final = ("record", "party")
RECORDS_MAX: Final = 1 << 40
SESSION_MAX: Final = 1_000_000
_DURATION: Final = re.compile(r"(\d{1,6})([smhd])", re.ASCII)
_LABEL: Final = "[A-Za-z0-9-]{1,63}"
_HOST: Final = rf"(?=[^:]{{1,253}}:){_LABEL}(?:\.{_LABEL})*\.?"
_ADDRESS: Final = re.compile(rf"(\[[0-9A-Fa-f:.]+\]|{_HOST}):(\d{{1,5}})", re.ASCII)
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_TOP: Final = ("name", "threshold", "receivers", "parties", "queries")
_TOP_OPTIONAL: Final = (
    *("session", "unit", "guarantee", "engine", "sum_through", "deadline", "epsilon", "delta", "where"),
    *("weighting", "spread", "tolerate", "patience", "typical", "purpose", "contact"),
)
STUDY_KEYS: Final = (*_TOP, *_TOP_OPTIONAL)
_SUMS: Final = ("relay",)
WEIGHTINGS: Final = ("equal", "balanced", "own")
SPREAD_MIN: Final = 1e-6


def parse_fields(document: Mapping[str, Any], kinds: Kinds) -> dict[str, Any]:
    """The fields of a study from plain values, such as a parsed TOML file.

    >>> from tpmdp.queries.catalogue import KINDS
    >>> parties = [{"name": "bank", "epsilon": 1, "records": 9}, {"name": "lab", "epsilon": 2, "records": 5}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> parse_fields({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...               "parties": parties, "queries": [query]}, KINDS)["receivers"]
    ('bank',)
    """
    read.check_keys("study", document, _TOP, optional=_TOP_OPTIONAL)
    entries = read.tables("parties", document["parties"])
    parties = tuple(parse_party(place, entry, document) for place, entry in enumerate(entries, 1))
    names = [party.name for party in parties]
    check_party_names(names)
    if len(names) < 2:
        raise InputError("parties", len(names), "must be at least 2", "add parties")
    return {
        "name": read.title("name", document["name"]),
        "session": read.whole("session", document.get("session", 1), 1, high=SESSION_MAX),
        "parties": parties,
        "threshold": _threshold(document["threshold"], len(parties)),
        "receivers": _receivers(document["receivers"], names),
        "queries": _queries(document, kinds),
        "unit": read.choice("unit", document.get("unit", "record"), UNITS),
        "guarantee": read.choice("guarantee", document.get("guarantee", "computational"), GUARANTEES),
        "engine": read.choice("engine", document["engine"], ENGINES) if "engine" in document else "",
        "sum_through": read.choice("sum_through", document["sum_through"], _SUMS) if "sum_through" in document else "",
        "deadline": _deadline(document.get("deadline", "10m")),
        "weighting": _weighting(document.get("weighting"), parties),
        "spread": _spread(document.get("spread", 1.0)),
        "tolerate": _tolerate(document, len(parties)),
        "patience": _patience(document),
        "typical": Guesses.parse(document.get("typical", {})),
        "purpose": read.remark("purpose", document.get("purpose", "")),
        "contact": read.remark("contact", document.get("contact", "")),
    }


def _weighting(value: Any, parties: Sequence[Party]) -> str:
    """How parties are weighted; by their own weights if some have one."""
    given = [party for party in parties if party.weight is not None]
    if value is None:
        return "own" if given else "equal"
    chosen = str(read.choice("weighting", value, WEIGHTINGS))
    if chosen == "own" and not given:
        raise InputError("weighting", "own", "needs weights of the parties", "give parties weight = 0.5 or such")
    if chosen != "own" and given:
        rule = f"cannot be used with weighting = {chosen}"
        raise InputError(f"weight of {given[0].name}", given[0].weight, rule, 'remove it, or write weighting = "own"')
    return chosen


def _tolerate(document: Mapping[str, Any], parties: int) -> int:
    """How many parties may drop out."""
    value, threshold = document.get("tolerate", 0), _threshold(document["threshold"], parties)
    count = read.whole("tolerate", value, 0, high=parties - 1)
    if count and not threshold:
        raise InputError("tolerate", count, "needs a threshold of at least 1", "set threshold, or remove it")
    check_losses(parties, threshold, count, guarantee=str(document.get("guarantee", "computational")))
    return count


def _patience(document: Mapping[str, Any]) -> float:
    if "patience" not in document:
        return 60.0
    match = _DURATION.fullmatch(document["patience"]) if isinstance(document["patience"], str) else None
    if match is None or int(match[1]) == 0:
        rule = "must be a duration such as 30s or 5m"
        raise InputError("patience", read.written(document["patience"]), rule, 'write patience = "1m"')
    if not document.get("tolerate"):
        raise InputError(
            "patience", document["patience"], "needs tolerate", "say how many parties may drop out, or remove it"
        )
    return float(int(match[1]) * _SECONDS[match[2]])


def _spread(value: Any) -> float:
    share = read.number("spread", value)
    if not SPREAD_MIN <= share <= 1:
        rule = f"must lie in [{SPREAD_MIN:g}, 1]: how much parties' averages vary, of the most they could"
        raise InputError("spread", share, rule, "1 is safe for any data")
    return share


def check_party_names(names: Sequence[str]) -> None:
    """Refuse two parties of one name, and names that differ in case only.

    >>> check_party_names(["bank", "Bank"])
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: parties = Bank differs from bank in upper and lower case only: give every party its own
    name
    """
    folded: dict[str, str] = {}
    for name in names:
        other = folded.get(name.casefold())
        if other is not None:
            rule = "is listed twice" if other == name else f"differs from {other} in upper and lower case only"
            raise InputError("parties", name, rule, "give every party its own name")
        folded[name.casefold()] = name


def _threshold(value: Any, parties: int) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= parties:
        rule = f"must be less than the number of parties ({parties})"
        raise InputError("threshold", value, rule, "add parties or lower it")
    return read.whole("threshold", value, 0, high=parties - 1)


def _queries(document: Mapping[str, Any], kinds: Kinds) -> tuple[Any, ...]:
    everywhere = None
    if "where" in document:
        if not isinstance(document["where"], str):
            raise InputError("where", read.written(document["where"]), "must be text", 'write where = "age >= 18"')
        everywhere = parse_condition("where", document["where"])
    queries = tuple(make_query(entry, kinds, everywhere) for entry in read.tables("queries", document["queries"]))
    check_query_names([query.name for query in queries])
    return queries


def check_query_names(names: Sequence[str]) -> None:
    """Refuse two queries of one name.

    >>> check_query_names(["stay", "stay"])
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: name of a query = stay is given twice: they must have different names: rename one
    """
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise InputError("name of a query", twice[0], "is given twice: they must have different names", "rename one")


def parse_party(place: int, entry: Mapping[str, Any], document: Mapping[str, Any]) -> Party:
    """A party from its table; budgets that it lacks are those at the top of the document.

    >>> parse_party(1, {"name": "bank", "epsilon": 1, "records": 9}, {"delta": 1e-6}).delta
    1e-06
    """
    optional = ("epsilon", "delta", "public_key", "address", "weight")
    read.check_keys(f"party {place}", entry, ("name", "records"), optional=optional)
    name = check_name("name of a party", entry["name"])
    records = read.whole(f"records of {name}", entry["records"], 0, high=RECORDS_MAX)
    fallback = {"epsilon": math.inf, "delta": 0.5} if records == 0 else {}  # no data, nothing to protect
    budget = {}
    for field in ("epsilon", "delta"):
        value = entry.get(field, document.get(field, fallback.get(field)))
        if value is None:
            raise InputError(f"{field} of {name}", "(none)", "is missing", "give it one, or one for all at the top")
        budget[field] = read.number(f"{field} of {name}", value)
    key = entry.get("public_key")
    public = None if key is None else parse_public(f"public_key of {name}", key)
    address = entry.get("address")
    if address is not None:
        parse_address(f"address of {name}", address)
    weight = None if "weight" not in entry else read.number(f"weight of {name}", entry["weight"])
    return Party(
        name, budget["epsilon"], budget["delta"], records=records, public_key=public, address=address, weight=weight
    )


def parse_address(field: str, value: Any) -> tuple[str, int]:
    """Host and port.

    >>> parse_address("address", "node.example.org:7000"), parse_address("address", "[::1]:7000")
    (('node.example.org', 7000), ('::1', 7000))
    """
    match = _ADDRESS.fullmatch(value) if isinstance(value, str) else None
    if match is None or not 1 <= int(match[2]) <= 65535:
        raise InputError(field, read.written(value), "must be host:port", 'write such as "node.example.org:7000"')
    return match[1].strip("[]"), int(match[2])


def _receivers(value: Any, names: list[str]) -> tuple[str, ...]:
    if value == "all":
        return tuple(names)
    if not isinstance(value, list) or not value or not all(isinstance(name, str) for name in value):
        raise InputError("receivers", value, "must be a list of names", 'list at least one party, or write "all"')
    return tuple(value)


def _deadline(value: Any) -> float | datetime:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match[1]) == 0:
        rule = "must be a duration such as 90s, 10m, 2h, 3d or a date and time with its offset"
        raise InputError("deadline", str(value), rule, 'write deadline = "10m" or deadline = 2027-01-31T12:00:00Z')
    return float(int(match[1]) * _SECONDS[match[2]])


def parse_deadline(text: str) -> float | datetime:
    """A deadline from the command line: a duration or a moment.

    >>> parse_deadline("2m")
    120.0
    """
    try:
        return _deadline(text)
    except InputError:
        try:
            return _deadline(datetime.fromisoformat(text))
        except ValueError:
            return _deadline(text)


# Writing --------------------------------------------------------------------------------------------------------------


def to_toml(top: Mapping[str, Any], parties: Sequence[Mapping[str, Any]], queries: Sequence[Mapping[str, Any]]) -> str:
    """The text of a study file.

    >>> print(to_toml({"name": "demo"}, [], [{"name": "old", "by": {"sex": (0.0, 1.0)}}]))
    name = "demo"
    <BLANKLINE>
    [[queries]]
    name = "old"
    by = { "sex" = [0.0, 1.0] }
    <BLANKLINE>
    """
    lines = [f"{key} = {_toml(value)}" for key, value in top.items()]
    for party in parties:
        lines += ["", "[[parties]]"]
        lines += [f"{key} = {_toml(value)}" for key, value in party.items() if value is not None]
    for query in queries:
        lines += ["", "[[queries]]", *(f"{key} = {_toml(value)}" for key, value in query.items())]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bytes):
        return json.dumps(public_key_text(value))
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        pairs = [f"{json.dumps(key, ensure_ascii=False)} = {_toml(each)}" for key, each in value.items()]
        return "{ " + ", ".join(pairs) + " }"
    if isinstance(value, tuple) and value and isinstance(value[0], Range):
        return _toml({each.column: (each.low, each.high) for each in value})
    if isinstance(value, tuple | list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else repr(value)


def exact_settings(value: Any) -> Any:
    """Settings as values for canonical JSON, with floats in hexadecimal.

    >>> exact_settings({"edges": (0.0, 1.0), "name": "ages"})
    {'edges': ['0x0.0p+0', '0x1.0000000000000p+0'], 'name': 'ages'}
    """
    if isinstance(value, Mapping):
        return {key: exact_settings(each) for key, each in value.items()}
    if isinstance(value, Range):
        return [value.column, value.low.hex(), value.high.hex()]
    if isinstance(value, tuple | list):
        return [exact_settings(each) for each in value]
    return float(value).hex() if isinstance(value, float) else value
