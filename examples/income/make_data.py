"""Write one Parquet file of adults for each region: from a census file if there is one, else synthetic.

python examples/income/make_data.py OUT_FOLDER [CENSUS_FILE]
"""

import sys
from pathlib import Path

import numpy as np

from tpmdp import Study
from tpmdp.experiments.population import COLUMNS, read_adults


def main() -> None:
    """Deal the people out to the regions."""
    import duckdb

    folder = Path(sys.argv[1])
    census = Path(sys.argv[2]) if len(sys.argv) > 2 else None
    study = Study.read(Path(__file__).with_name("study.toml"))
    people = read_adults(census, study.records, seed=0)
    table = np.column_stack([np.asarray(people[column]) for column in COLUMNS])
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for member in study.parties:
        part = table[start : start + member.records]
        columns = {column: part[:, place] for place, column in enumerate(COLUMNS)}
        with duckdb.connect() as connection:
            connection.register("part", columns)
            connection.sql("SELECT * FROM part").write_parquet(str(folder / f"{member.name}.parquet"))
        start += member.records
    source = f"of {census}" if census is not None and census.exists() else "drawn at random (no census file)"
    print(f"wrote {len(study.parties)} regions of adults {source} to {folder}")


main()
