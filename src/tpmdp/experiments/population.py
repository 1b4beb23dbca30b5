"""Adults with five attributes, as in the paper's regression: from a census file, or drawn at random without one.

The synthetic population imitates the shape of the American Community Survey (means, spreads, ties, a skewed income
with many zeros that depends on the rest), not its numbers.
"""

from __future__ import annotations

import hashlib
import tomllib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np

from tpmdp._util.arrays import FloatArray
from tpmdp._util.files import readable
from tpmdp.data.source import read_table
from tpmdp.data.table import Table
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.queries.ranges import Range

RANGES: Final = (
    Range("children", 0.0, 10.0),
    Range("gender", 0.0, 1.0),
    Range("age", 18.0, 96.0),
    Range("education", 1.0, 24.0),
    Range("income", 0.0, 200_000.0),
)
"""Public bounds of the five attributes; the last is what is predicted."""
COLUMNS: Final = tuple(bounds.column for bounds in RANGES)
_BOUNDS_FILE_MAX: Final = 1 << 20
_COLUMNS_MAX: Final = 100


def synthetic_adults(records: int, seed: int) -> dict[str, FloatArray]:
    """Draw a population; the same seed gives the same people.

    >>> people = synthetic_adults(1000, seed=0)
    >>> sorted(people) == sorted(COLUMNS), bool((people["age"] >= 18).all())
    (True, True)
    """
    random = np.random.default_rng(seed)
    gender = (random.random(records) < 0.52).astype(np.float64)
    age = np.floor(18 + 78 * random.beta(1.6, 2.0, records))
    education = np.clip(np.rint(random.normal(18.5, 3.2, records)), 1, 24)
    parents = random.random(records) < np.clip(1.1 - np.abs(age - 38) / 30, 0.02, 0.6)
    children = np.where(parents, 1 + random.poisson(0.8, records), 0).astype(np.float64)
    working = random.random(records) < np.where(age < 67, 0.82, 0.35)
    level = 9.6 + 0.09 * (education - 12) + 0.02 * np.minimum(age, 55) - 0.35 * gender + 0.03 * children
    wages = np.exp(level - 0.2 + 0.75 * random.normal(size=records))
    income = np.where(working, wages, 14_000 * random.random(records))
    income = np.where(random.random(records) < 0.08, 0.0, np.rint(income))
    return {"children": children, "gender": gender, "age": age, "education": education, "income": income}


def read_adults(path: Path | None, records: int, seed: int) -> Table:
    """This many adults of a file with the five columns, drawn at random; a synthetic population if there is no file.

    >>> len(read_adults(None, 10, seed=0)["income"])
    10
    """
    if path is None or not path.exists():
        return synthetic_adults(records, seed)
    whole = read_table(path, dict.fromkeys(COLUMNS, "number"))
    chosen = np.random.default_rng(seed).choice(len(whole["income"]), records, replace=False)
    return {column: whole[column][chosen] for column in COLUMNS}


@dataclass(frozen=True)
class People:
    """Whose records an experiment uses: those of a file with public bounds, or a synthetic population."""

    data: str | None = None
    bounds: str | None = None
    digest: str = ""
    """Of the file and the bounds, so that results of other data are not mistaken for these."""
    count: int | None = None
    """How many records there are; None if as many as needed are drawn."""
    sha256: str = ""
    """Of the file alone, as sha256sum prints it."""

    @classmethod
    def of(cls, data: Path | None, bounds: Path | None) -> People:
        """Read and check the files.

        >>> People.of(None, Path("bounds.toml"))
        Traceback (most recent call last):
            ...
        tpmdp.errors.InputError: bounds = bounds.toml is for a file of records, but there is none: give --data FILE too
        """
        if data is None:
            if bounds is not None:
                rule = "is for a file of records, but there is none"
                raise InputError("bounds", str(bounds), rule, "give --data FILE too")
            return cls()
        ranges = RANGES if bounds is None else read_bounds(bounds)
        with readable(data, 1 << 40), data.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256")
        sha256 = digest.hexdigest()
        digest.update(repr(ranges).encode())
        people = cls(str(data.resolve()), None if bounds is None else str(bounds.resolve()), digest.hexdigest())
        try:
            count = len(people.records(0, 0))
        except TpmdpError as error:  # worded for parties of a study, which state how many records they have
            raise TpmdpError(str(error).replace(" and lower `records` in the study", "")) from None
        return replace(people, count=count, sha256=sha256)

    @property
    def ranges(self) -> tuple[Range, ...]:
        """The public bounds, the target last."""
        return RANGES if self.bounds is None else read_bounds(Path(self.bounds))

    def records(self, seed: int, synthetic: int) -> FloatArray:
        """All people, or this many synthetic ones, with every attribute scaled to [-1, 1].

        >>> People().records(1, 1000).shape
        (1000, 5)
        """
        return _records(self, 0 if self.data else seed, 0 if self.data else synthetic)


@lru_cache(maxsize=1)
def _records(people: People, seed: int, synthetic: int) -> FloatArray:
    """Cached, because every point of an experiment needs them."""
    ranges = people.ranges
    table: Table
    if people.data is None:
        table = synthetic_adults(synthetic, seed)
    else:
        table = read_table(Path(people.data), dict.fromkeys([bounds.column for bounds in ranges], "number"))
    return np.column_stack([2 * bounds.shares(table) for bounds in ranges])


def read_bounds(path: Path) -> tuple[Range, ...]:
    """Public bounds from a TOML file with a line `column = [low, high]` for each, the target last.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "bounds.toml"
    ...     _ = file.write_text("age = [18, 96]\\nincome = [0, 200000]\\n")
    ...     [bounds.column for bounds in read_bounds(file)]
    ['age', 'income']
    """
    with readable(path, _BOUNDS_FILE_MAX):
        try:
            document = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise FileError(path, f"is not TOML ({error})", "write lines such as age = [18, 96]") from None
    if not 2 <= len(document) <= _COLUMNS_MAX:
        rule = f"has bounds of {len(document)} columns, not of 2 to {_COLUMNS_MAX}"
        raise FileError(path, rule, "give the columns to predict from, then the one to predict")
    ranges = []
    for column, value in document.items():
        pair = value if isinstance(value, list) and len(value) == 2 else [None]
        if any(isinstance(end, bool) or not isinstance(end, int | float) or abs(end) > 1e300 for end in pair):
            raise InputError(f"bounds of {column}", value, "must be two numbers of usual size", "write [low, high]")
        ranges.append(Range(column, *pair))
    return tuple(ranges)
