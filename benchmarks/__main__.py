"""Run the benchmarks and print the table: `python -m benchmarks [NAME ...] [--out FILE] [--census FILE] [--toy]`."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

from benchmarks import (
    calibration,
    cumulative,
    data,
    example_run,
    large_sessions,
    ledger,
    noise,
    planning,
    regression,
    relay_load,
    secure_sum,
    startup,
    vertical,
)
from benchmarks.timing import Row

PACKAGES = (
    "numpy",
    "scipy",
    "dp-accounting",
    "diffprivlib",
    "autodp",
    "gurobipy",
    "numba",
    "opendp",
    "mpyc",
    "cryptography",
    "uvicorn",
    "httpx",
    "duckdb",
    "pandas",
    "pyarrow",
)
BENCHMARKS: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        startup,
        example_run,
        calibration,
        cumulative,
        planning,
        noise,
        secure_sum,
        relay_load,
        large_sessions,
        ledger,
        data,
        regression,
        vertical,
    )
}
HEAD = """# Benchmarks

Ratios measured in one run of `{target}`, which rewrites this page.
Absolute times say little, since machines are shared.

"""


def table(rows: list[Row]) -> str:
    lines = ["| what | measured | wanted | note |", "| --- | ---: | --- | --- |"]
    return "\n".join(lines + [f"| {row.what} | {row.ratio} | {row.wanted} | {row.note} |" for row in rows]) + "\n"


def run(name: str, toy: bool = False, census: Path | None = None) -> list[Row]:
    """The rows of a benchmark. Each module has `rows`, the size `FULL`, and the size `TOY` for its smoke test."""
    module = BENCHMARKS[name]
    size: Any = module.TOY if toy else module.FULL
    if census is not None and hasattr(size, "census"):
        size = replace(size, census=census)
    rows: list[Row] = module.rows(size)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", choices=[[], *BENCHMARKS], metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--census", type=Path, help="people for the regression, else a synthetic population")
    parser.add_argument("--toy", action="store_true", help="sizes that show only that the benchmarks run")
    given = parser.parse_args()
    rows = []
    for name in given.names or BENCHMARKS:
        print(f"running {name} ...", file=sys.stderr)
        measured = run(name, toy=given.toy, census=given.census)
        print(f"{name}: {len(measured)} rows", file=sys.stderr)
        rows += measured
    versions = "Python " + sys.version.split()[0] + ", " + ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    target = "make bench" if not given.names else f"python -m benchmarks {' '.join(given.names)}"
    text = HEAD.format(target=target) + table(rows) + f"\nMeasured with {versions}.\n"
    print(text)
    if given.out is not None:
        given.out.write_text(text)


if __name__ == "__main__":
    main()
