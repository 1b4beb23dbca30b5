"""Run every benchmark, print the table, and keep it: `python -m benchmarks --out docs/benchmarks.md`."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from pathlib import Path

from benchmarks import calibration, data, ledger, noise, planning, regression, secure_sum, startup, vertical
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
HEAD = """# Benchmarks

Ratios measured in one run by `make bench`, which rewrites this page. Absolute times say little: machines are shared.

"""


def table(rows: list[Row]) -> str:
    lines = ["| what | measured | wanted | note |", "| --- | ---: | --- | --- |"]
    return "\n".join(lines + [f"| {row.what} | {row.ratio} | {row.wanted} | {row.note} |" for row in rows]) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("--out", type=Path)
    out = parser.parse_args().out
    rows = []
    for module in (startup, calibration, planning, noise, secure_sum, ledger, data, regression, vertical):
        print(f"running {module.__name__} ...", file=sys.stderr)
        rows += module.rows()
    made = "Python " + sys.version.split()[0] + ", " + ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    text = HEAD + table(rows) + f"\nMeasured with {made}.\n"
    print(text)
    if out is not None:
        out.write_text(text)


if __name__ == "__main__":
    main()
