"""The data of `tpmdp experiment coverage`: a thousand records, five ways."""

from __future__ import annotations

from typing import Final

import numpy as np

from tpmdp.data.table import Table

RECORDS: Final = 1000
DATA: Final = ("even", "skewed", "constant", "outlier", "empty")
TIME_END: Final = 2.0
COUNT_MOST: Final = 5.0


def records_of(data: str) -> Table:
    """A thousand records with columns x, y, z in [-1, 1], a group g of 0 and 1, and w, which is 1 for most.

    In `empty` no record meets w = 1 or has a group, and all values lie beyond the bounds.

    >>> [float(np.var(records_of(data)["x"]).round(3)) for data in DATA]
    [0.328, 0.093, 0.0, 0.004, 0.0]
    """
    random = np.random.default_rng(DATA.index(data))
    place = np.arange(RECORDS)
    group, meets = (place % 2).astype(np.float64), (place % 5 < 4).astype(np.float64)
    first, second, third = random.exponential(0.3, (3, RECORDS))
    columns = (first, second + first / 2, 0.2 + first / 2 + third / 4)
    if data == "even":
        x, y, z = random.uniform(-1, 1, (3, RECORDS))
        y, z = x / 2 + y / 2, x / 2 + z / 2
    elif data == "skewed":
        x, y, z = (np.clip(column - 1, -1.0, 1.0) for column in columns)
    elif data == "constant":
        x, y, z = (np.full(RECORDS, value) for value in (0.3, -0.2, 0.5))
    elif data == "outlier":
        x, y, z = (np.where(place == odd, 1.0, -1.0) for odd in (0, 0, 1))
    else:
        x = y = z = np.full(RECORDS, 9.0)
        group, meets = np.full(RECORDS, 7.0), np.zeros(RECORDS)
    return {"x": x, "y": y, "z": z, "g": group, "w": meets}


def times_of(data: str) -> Table:
    """Times, of an event where `event` is 1, with the same groups and conditions.

    `constant` has all times in one bin; in `outlier` one record has an event and the others none to the end.

    >>> [int(np.sum(times_of(data)["event"])) for data in DATA]
    [679, 599, 650, 1, 0]
    """
    random = np.random.default_rng(10 + DATA.index(data))
    place = np.arange(RECORDS)
    time, event = np.full(RECORDS, 9.0), np.zeros(RECORDS)
    if data == "even":
        time, event = random.uniform(0, 1.25 * TIME_END, RECORDS), np.where(random.random(RECORDS) < 0.7, 1.0, 0.0)
    elif data == "skewed":
        time, event = random.exponential(0.2 * TIME_END, RECORDS), np.where(random.random(RECORDS) < 0.6, 1.0, 0.0)
    elif data == "constant":
        time, event = np.full(RECORDS, 0.55 * TIME_END), np.where(7 * place % 20 < 13, 1.0, 0.0)
    elif data == "outlier":
        time, event = np.where(place == 0, 0.3 * TIME_END, 9.0), np.where(place == 0, 1.0, 0.0)
    return {"time": time, "event": event, **_parts(data)}


def outcomes_of(data: str) -> Table:
    """Columns x and y in [-1, 1], an outcome `yes` of 0 and 1, and `times`, a number from 0 to 5.

    In `constant` the outcomes are, in `outlier` each column is 1 for 20 records and -1 for the others.

    >>> [float(np.mean(outcomes_of(data)["times"]).round(2)) for data in DATA]
    [1.03, 0.86, 2.0, 0.84, 4.94]
    """
    random = np.random.default_rng(20 + DATA.index(data))
    place, chances = np.arange(RECORDS), random.random(RECORDS)
    x, y = random.uniform(-1, 1, (2, RECORDS))
    if data == "skewed":
        x, y = np.clip(random.exponential(0.3, (2, RECORDS)) - 1, -1.0, 1.0)
    elif data == "outlier":
        x, y = np.where(place % 51 == 0, 1.0, -1.0), np.where(place % 53 == 1, 1.0, -1.0)
    elif data == "empty":
        x = y = np.full(RECORDS, 9.0)
    predictor = (x - y / 2) / (2 if data == "outlier" else 1)
    yes = np.where(chances < 1 / (1 + np.exp(-predictor)), 1.0, 0.0)
    times = np.minimum(random.poisson(np.exp(predictor / 2)), COUNT_MOST).astype(np.float64)
    if data == "constant":
        yes, times = np.ones(RECORDS), np.full(RECORDS, 2.0)
    return {"x": x, "y": y, "yes": yes, "times": times, **_parts(data)}


def _parts(data: str) -> Table:
    """The group and the condition."""
    records = records_of(data)
    return {"g": records["g"], "w": records["w"]}
