"""What a query asks, in words for people who did not write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tpmdp.queries.base import BaseQuery
from tpmdp.queries.catalogue import KINDS
from tpmdp.report.numbers import number
from tpmdp.report.queries import about

_KINDS: Final[Mapping[str, str]] = {
    "count": "The number of records whose value is at least one bound and below the other, or that meet a condition.",
    "sum": "The sum of a column. Values outside low and high count as the nearer of the two.",
    "mean": "The mean of a column. Values outside low and high count as the nearer of the two.",
    "variance": "The variance of a column. Values outside low and high count as the nearer of the two.",
    "histogram": (
        "The number of records in each bin, which begins with an edge and ends below the next; or of each category. "
        "Values outside all of them are not counted."
    ),
    "quantiles": "The values below which these shares of the records lie, such as 0.5 for the median.",
    "distribution": (
        "The shares of the records whose value is at most each edge: edges that are listed, or equally spaced ones "
        "from low to high."
    ),
    "covariance": "How every two columns vary together (covariance), within their bounds.",
    "correlation": "How closely every two columns go together: the correlation, from -1 to 1.",
    "linear_regression": "How the target changes with the other columns that have bounds (least squares).",
    "vertical_covariance": "How every two columns, which different parties hold, vary together (covariance).",
    "vertical_correlation": "How closely every two columns, which different parties hold, go together (correlation).",
    "vertical_regression": "How the target changes with other columns, which other parties hold (least squares).",
    "joint_table": (
        "The number of people with each pair of values: one is a bin or category of one party, one of another party. "
        "Who is outside of all bins or categories at one of the two is not counted."
    ),
    "pair_function": (
        "What a function of your own gives for the columns of two parties; it is written in JAX, and computed between "
        "the two without a third party."
    ),
    "kaplan_meier": (
        "The share of records that had no event by each time, though some were not followed so long (Kaplan and Meier)."
    ),
    "log_rank": (
        "Whether survival is the same in two or more groups: the log-rank test, which counts the noise as well, the "
        "hazard ratio, and the curve of each group."
    ),
    "poisson_regression": (
        "How the mean of a count changes with the other columns that have bounds (logarithm of the mean)."
    ),
    "logistic_regression": (
        "How it changes with the other columns that have bounds whether the target reaches a threshold (log-odds)."
    ),
}
_SIDES: Final = ("rows", "columns")  # of a joint table


def kind_text(kind: str) -> str:
    """What a kind of query tells, in words for people who do not write study files; else what its class says.

    >>> kind_text("sum")
    'The sum of a column. Values outside low and high count as the nearer of the two.'
    """
    return _KINDS[kind] if kind in _KINDS else about(KINDS[kind]).replace("`", "")


def noise_notes(queries: Sequence[BaseQuery]) -> list[str]:
    """What people ask about expected errors, where it applies to these queries."""
    settings = [query.settings() for query in queries if query.settings()["kind"] == "histogram"]
    settings = [each for each in settings if "ranges" not in each]
    if not any(len(each.get("edges", ())) > 2 or len(each.get("categories", ())) > 1 for each in settings):
        return []
    return [
        "A record that is replaced by another may leave one bin and enter another one. So each bin of a histogram has "
        "the square root of 2 times the noise of a count with the same share of the budget."
    ]


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


def short_text(query: BaseQuery) -> str:
    """What a query asks, in a few words, for a line that lists several.

    >>> from tpmdp.queries.catalogue import make_query
    >>> short_text(make_query({"name": "stay", "kind": "mean", "column": "days", "low": 0, "high": 30}))
    'mean of days'
    >>> ages = {"name": "ages", "kind": "histogram", "column": "age", "edges": [0, 18, 65], "where": "sex = 1"}
    >>> short_text(make_query(ages))
    'number of records by age, among records with sex = 1'
    """
    settings = query.settings()
    kind, column = settings["kind"], settings.get("column")
    if kind == "count":
        text = _question(settings).replace("How many records have ", "number of records with ")
        text = text.replace("How many records are there", "number of records")
    elif kind == "histogram":
        text = f"number of records by {column}"
    elif kind == "maximum":
        text = f"largest of: {_question(settings['of'])}"
    else:
        sides = [settings[side]["column"] for side in _SIDES if side in settings]
        named = [settings[key] for key in ("column", "target", "event") if settings.get(key)] or sides
        named = named or [each.column for each in settings.get("bounds", ()) if hasattr(each, "column")]
        text = f"{kind.replace('_', ' ')}{' of ' if named else ''}{' and '.join(map(str, named))}"
    text += f", among records with {settings['where']}" if "where" in settings else ""
    return text + "".join(f", for each {group}" for group in settings.get("by", {}))


def _question(settings: Mapping[str, Any]) -> str:
    kind, column, target = settings["kind"], settings.get("column"), settings.get("target")
    within = f"(values are cut to {_value(settings['low'])} to {_value(settings['high'])})" if "low" in settings else ""
    bounds = f"(bounds: {_value(settings['bounds'])})" if "bounds" in settings else ""
    if kind == "count" and column is not None:
        ends = [f"at least {_value(settings['at_least'])}"] if "at_least" in settings else []
        ends += [f"below {_value(settings['below'])}"] if "below" in settings else []
        return f"How many records have {column} {' and '.join(ends)}"
    if kind == "histogram" and "ranges" in settings:
        spans = ", ".join(f"{_value(low)} to below {_value(high)}" for low, high in settings["ranges"])
        return f"How many records have {column} in each of these ranges: {spans}"
    if kind == "histogram":
        places = f"with edges {_value(settings['edges'])}" if "edges" in settings else ""
        places = places or (f"over {_value(settings['categories'])}" if "categories" in settings else "")
        return f"How many records fall into each part of {column} {places}".rstrip()
    if kind == "joint_table":
        return f"How many people have each pair of {' and '.join(_side_text(settings[key]) for key in _SIDES)}"
    if kind == "pair_function":
        return f"What does the function {settings['function']} give for the columns of two parties {bounds}"
    if kind == "quantiles":
        return (
            f"Below which values of {column} lie these shares of records: {_value(settings['probabilities'])} {within}"
        )
    if kind == "distribution":
        spaced = f"{settings.get('bins', 20)} equal steps from {_value(settings.get('low', 0.0))} to "
        places = _value(settings["edges"]) if "edges" in settings else spaced + _value(settings.get("high", 0.0))
        return f"Which share of the records has {column} at most: {places}"
    if "event" in settings:
        what = "What share of records had no event by each time"
        if kind == "log_rank":
            what = f"Is the share of records without an event by each time the same for {settings['group']} "
            what += _value(settings["categories"])
        return f"{what} ({settings['event']} at {settings['time']}, {_bins_text(settings)})"
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
        "vertical_covariance": f"How do these columns, which different parties hold, vary together {bounds}",
        "vertical_correlation": f"How are these columns, which different parties hold, correlated {bounds}",
        "vertical_regression": (
            f"How does {target} change with the other columns, which other parties hold: linear regression {bounds}"
        ),
        "poisson_regression": (
            f"How does the mean of {target} (cut to 0 to {_value(settings.get('high', 0.0))}) change with other "
            f"columns: Poisson regression {bounds}"
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


def _side_text(side: Mapping[str, Any]) -> str:
    places = f"with edges {_value(side['edges'])}" if "edges" in side else f"over {_value(side['categories'])}"
    return f"{side['column']} of {side['party']} ({places})"


def _bins_text(settings: Mapping[str, Any]) -> str:
    if "edges" in settings:
        return f"with edges {_value(settings['edges'])}"
    return f"in {settings.get('bins', 50)} bins from {_value(settings.get('low', 0.0))} to {_value(settings['high'])}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    if hasattr(value, "column") and hasattr(value, "width"):  # bounds of a column
        return f"{value.column} from {value.low:g} to {value.high:g}"
    if isinstance(value, tuple | list):
        return ", ".join(_value(each) for each in value)
    return str(value)
