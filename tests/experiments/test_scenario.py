"""Budgets, receivers, people and bounds of the experiments."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest
from sklearn.linear_model import LinearRegression  # type: ignore[import-untyped]

import tpmdp.experiments.regression_experiment as regression
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.experiments.jobs import Job
from tpmdp.experiments.population import RANGES, People, read_bounds, synthetic_adults
from tpmdp.experiments.scenario import DEFAULT, Scenario, draw_epsilon, draw_receivers, with_x

CENSUS = Path(__file__).parents[3] / "shared" / "data" / "acs2024_pums_adults.parquet"


def test_the_default_is_the_paper() -> None:
    spec = DEFAULT.setting(np.random.default_rng(0), 1.0).spec
    assert (spec.count, spec.threshold) == (1000, 500)
    assert set(spec.delta.tolist()) == {1 / 10_000}
    strict, liberal = spec.epsilon < 0.2, spec.epsilon == 1.0
    assert (int(strict.sum()), int(liberal.sum())) == (540, 90)
    assert spec.epsilon.min() >= 0.01
    assert 400 < spec.receiver_count < 600


@pytest.mark.parametrize(("conservative", "moderate"), [(0.0, 0.37), (1.0, 0.0), (0.7, 0.3), (0.0, 0.0), (0.5, 0.5)])
@pytest.mark.parametrize("count", [1, 2, 7, 1000])
def test_groups_have_their_sizes(conservative: float, moderate: float, count: int) -> None:
    epsilon = draw_epsilon(count, conservative, moderate, np.random.default_rng(1))
    assert len(epsilon) == count
    assert int((epsilon < 0.2).sum()) == round(conservative * count)
    assert ((epsilon >= 0.01) & (epsilon <= 1.0)).all()


def test_parties_of_a_group_stand_anywhere() -> None:
    random = np.random.default_rng(2)
    first = [draw_epsilon(100, 0.5, 0.3, random)[0] < 0.2 for _ in range(400)]
    assert 140 < sum(first) < 260


def test_receivers_are_any_set_but_the_empty_one() -> None:
    random = np.random.default_rng(3)
    sets = [tuple(draw_receivers(2, random).tolist()) for _ in range(300)]
    assert set(sets) == {(True, True), (True, False), (False, True)}
    assert min(sets.count(one) for one in set(sets)) > 60


def test_a_larger_share_of_strict_parties_leaves_fewer_others() -> None:
    scenario = with_x(DEFAULT, "conservative", 0.9)
    assert scenario.moderate == pytest.approx(0.1)
    assert with_x(DEFAULT, "density", 0.5) == DEFAULT


# --- people --------------------------------------------------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "people.parquet"
    people = synthetic_adults(2000, seed=4)
    with duckdb.connect() as connection:
        connection.register("people", {name: np.asarray(values) for name, values in people.items()})
        connection.execute(f"COPY people TO '{path}'")
    return path


def test_records_of_a_file_are_clipped_and_scaled(file: Path) -> None:
    people = People.of(file, None)
    assert people.count == 2000
    records = people.records(0, 0)
    assert (np.abs(records) <= 1).all()
    income = synthetic_adults(2000, seed=4)["income"]
    wanted = 2 * np.clip(income, 0, 200_000) / 200_000 - 1
    np.testing.assert_allclose(np.sort(records[:, -1]), np.sort(wanted), atol=1e-12)


def test_bounds_beside_the_data_choose_columns_and_target(file: Path, tmp_path: Path) -> None:
    bounds = tmp_path / "bounds.toml"
    bounds.write_text("income = [0, 100000]\nage = [18, 60]\n")
    people = People.of(file, bounds)
    records = people.records(0, 0)
    assert records.shape == (2000, 2)
    assert (records[:, 1] == 1).mean() > 0.1  # everybody over 60
    assert people.digest != People.of(file, None).digest


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("age = [18", "is not TOML"),
        ("age = [18, 96]", "has bounds of 1 columns, not of 2 to 100"),
        ("age = [18, 96]\nincome = 3", "bounds of income = 3 must be two numbers of usual size: write"),
        (f"age = [18, 1{400 * '0'}]\nincome = [0, 1]", "must be two numbers"),
        ("age = [18, 96]\nincome = [1, 2, 3]", "must be two numbers"),
        ("age = [18, 96]\nincome = [true, 2]", "must be two numbers"),
        ("age = [96, 18]\nincome = [0, 1]", "bounds of age = 96.0 to 18.0 must be a finite range"),
        ("age = [18, inf]\nincome = [0, 1]", "must be two numbers of usual size"),
    ],
)
def test_bad_bounds_are_one_line(tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "bounds.toml"
    path.write_text(text)
    with pytest.raises((FileError, InputError), match=says) as caught:
        read_bounds(path)
    assert "\n" not in str(caught.value)


def test_files_that_are_not_there_or_lack_a_column(file: Path, tmp_path: Path) -> None:
    with pytest.raises(FileError, match="does not exist"):
        People.of(tmp_path / "none.parquet", None)
    with pytest.raises(FileError, match="does not exist"):
        People.of(file, tmp_path / "none.toml")
    bounds = tmp_path / "bounds.toml"
    bounds.write_text("height = [0, 3]\nincome = [0, 200000]\n")
    with pytest.raises(TpmdpError, match="height"):
        People.of(file, bounds)


def test_a_changed_file_is_another_set_of_jobs(file: Path) -> None:
    before = regression.jobs(True, 1, People.of(file, None))
    assert not before  # 2000 people are too few for every point
    digest = People.of(file, None).digest
    with duckdb.connect() as connection:
        connection.execute(f"COPY (SELECT * FROM '{file}' LIMIT 10) TO '{file}'")  # noqa: S608
    assert People.of(file, None).digest != digest


@pytest.mark.skipif(not CENSUS.exists(), reason="the census file is not part of the package")
def test_the_census_is_read_with_its_public_bounds() -> None:
    people = People.of(CENSUS, None)
    assert people.count == 2_089_423
    assert [one.column for one in people.ranges] == [one.column for one in RANGES]
    records = people.records(0, 0)
    means = records[:, [1, 2]].mean(axis=0)
    np.testing.assert_allclose(means, [2 * 0.521 - 1, 2 * (52.0 - 18) / 78 - 1], atol=0.005)


# --- cross-validation ----------------------------------------------------------------------------------------------


def test_without_noise_cross_validation_is_that_of_least_squares() -> None:
    people = People().records(1, 500)
    found = regression.cross_validate(people, Scenario(400), np.random.default_rng(5))
    random = np.random.default_rng(5)
    Scenario(400).setting(random, 1.0, 500)
    fold_of = random.permutation(500) % 5
    for fold, errors in enumerate(found):
        training, testing = people[fold_of != fold], people[fold_of == fold]
        oracle = LinearRegression().fit(training[:, :-1], training[:, -1])
        residuals = oracle.predict(testing[:, :-1]) - testing[:, -1]
        assert errors["non-pri"] == pytest.approx(np.sqrt(np.mean(residuals**2)), rel=1e-9)


@pytest.mark.slow
def test_generous_budgets_come_close_to_no_noise_and_strict_ones_do_not() -> None:
    def mean(conservative: float, name: str) -> float:
        job = Job("regression", "conservative", conservative, 0, 2, 1, (("parties", 20_000),))
        return float(np.mean([row["error"] for row in regression.run(job) if row["mechanism"] == name]))

    assert mean(0.0, "MIN") < 1.05 * mean(0.0, "non-pri")
    assert mean(0.54, "MIN") > 1.05 * mean(0.54, "non-pri")
    assert mean(0.54, "non-thre") > mean(0.54, "MIN")


@pytest.mark.parametrize("threshold", [1, 39])
def test_few_parties_and_extreme_thresholds_run(threshold: int) -> None:
    job = Job("regression", "threshold", float(threshold), 0, 1, 1, (("parties", 40),))
    assert all(np.isfinite(float(row["error"] or 0)) for row in regression.run(job))
