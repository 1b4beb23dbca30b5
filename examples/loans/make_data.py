"""Write the customers of a made-up bank and shop, in the same order in both files, always the same.

python examples/loans/make_data.py OUT_FOLDER
"""

import csv
import sys
from pathlib import Path

import numpy as np

from tpmdp import Study


def main() -> None:
    """Who spends much of what they earn, and returns much of it, defaults more often."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    study = Study.read(Path(__file__).with_name("study.toml"))
    count = study.party("bank").records
    random = np.random.default_rng(11)
    income = np.clip(random.lognormal(7.9, 0.4, count), 0, 10_000)
    spending = np.clip(0.12 * income * random.lognormal(0.0, 0.5, count), 0, 2000)
    returns = random.beta(2.0, 6.0, count)
    risk = 0.10 - 0.000015 * income + 0.0002 * spending + 0.15 * returns
    default = (random.random(count) < np.clip(risk, 0.0, 1.0)).astype(int)
    columns = {"bank": {"default": default, "income": income}, "shop": {"spending": spending, "returns": returns}}
    for name, table in columns.items():
        with (folder / f"{name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(table)
            writer.writerows(zip(*(np.round(values, 4).tolist() for values in table.values()), strict=True))
    print(f"wrote {count} made-up customers of a bank and a shop to {folder}")


main()
