"""What a query asks, in words for people who did not write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpmdp.queries.base import BaseQuery
from tpmdp.report.numbers import number


def question_text(query: BaseQuery) -> str:
    """What a query asks, in words.

    >>> from tpmdp.queries.catalogue import make_query
    >>> question_text(make_query({"name": "old", "kind": "count", "column": "age", "at_least": 65, "where": "sex = 1"}))
    'How many records have age at least 65, among records with sex = 1?'
    """
    settings = query.settings()
    text = _question(settings)
    text += f", among records with {settings['where']}" if "where" in settings else ""
    for column, values in settings.get("by", {}).items():
        text += f", for each {column} of {_value(values)}"
    share = f" It has {number(settings['weight'])} times the usual share of the budget." if "weight" in settings else ""
    return f"{text}?{share}"


def _question(settings: Mapping[str, Any]) -> str:
    kind, column, target = settings["kind"], settings.get("column"), settings.get("target")
    within = f"(values are cut to {_value(settings['low'])} to {_value(settings['high'])})" if "low" in settings else ""
    bounds = f"(bounds: {_value(settings['bounds'])})" if "bounds" in settings else ""
    if kind == "count" and column is not None:
        ends = [f"at least {_value(settings['at_least'])}"] if "at_least" in settings else []
        ends += [f"below {_value(settings['below'])}"] if "below" in settings else []
        return f"How many records have {column} {' and '.join(ends)}"
    if kind == "histogram":
        places = f"with edges {_value(settings['edges'])}" if "edges" in settings else ""
        places = places or (f"over {_value(settings['categories'])}" if "categories" in settings else "")
        return f"How many records fall into each part of {column} {places}".rstrip()
    if kind == "quantiles":
        return (
            f"Below which values of {column} lie these shares of records: {_value(settings['probabilities'])} {within}"
        )
    if kind == "maximum":
        return f"The largest of the parties' answers to: {_question(settings['of'])}"
    words: dict[str, str] = {
        "count": "How many records are there",
        "sum": f"What is the sum of {column} {within}",
        "mean": f"What is the mean of {column} {within}",
        "variance": f"What is the variance of {column} {within}",
        "covariance": f"How do these columns vary together {bounds}",
        "correlation": f"How are these columns correlated {bounds}",
        "linear_regression": f"How does {target} change with the other columns: linear regression {bounds}",
        "vertical_regression": (
            f"How does {target} change with the other columns, which other parties hold: linear regression {bounds}"
        ),
        "logistic_regression": (
            f"How does it change with other columns whether {target} is at least "
            f"{_value(settings.get('threshold', 0.5))}: logistic regression {bounds}"
        ),
    }
    if kind in words:
        return words[kind].strip()
    rest = {key: value for key, value in settings.items() if key not in ("name", "kind", "weight", "where", "by")}
    return f"{kind.replace('_', ' ')} ({'; '.join(f'{key}: {_value(value)}' for key, value in rest.items())})"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "column") and hasattr(value, "width"):  # bounds of a column
        return f"{value.column} from {value.low:g} to {value.high:g}"
    if isinstance(value, tuple | list):
        return ", ".join(_value(each) for each in value)
    return str(value)
