"""Write the patients of a made-up trial: one CSV file for each of five hospitals, always the same.

python examples/trial/make_data.py OUT_FOLDER
"""

import csv
import sys
from pathlib import Path

import numpy as np

from tpmdp import Study

RATE = 0.019  # relapses per month and patient of the standard arm
RATIO = 0.7  # of the rates: the new arm's to the standard one's
LOST = 0.005  # patients who leave the trial, per month


def main() -> None:
    """Draw patients: hospitals differ a little; arms are dealt out in turn; the trial ends for all on one day."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(7)
    study = Study.read(Path(__file__).with_name("study.toml"))
    for hospital in study.parties:
        count = hospital.records
        is_new = np.arange(count) % 2 == 1
        rate = RATE * np.where(is_new, RATIO, 1.0) * random.lognormal(0.0, 0.15)
        relapse = random.exponential(1.0, count) / rate
        followed = np.minimum(random.uniform(24.0, 48.0, count), random.exponential(1 / LOST, count))
        with (folder / f"{hospital.name}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(["months", "relapsed", "arm"])
            for event, end, new in zip(relapse, followed, is_new, strict=True):
                writer.writerow([f"{min(event, end):.2f}", int(event <= end), "new" if new else "standard"])
    print(f"wrote {study.records} made-up patients of {len(study.parties)} hospitals to {folder}")


main()
