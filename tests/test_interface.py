"""The public interface as people use it: text or paths everywhere, and the same contribution from any table."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tpmdp
from tpmdp import FileError, InputError, Ledger, Study, join, load_queries, read_key, read_table, run
from tpmdp.planning.parties_file import read_parties
from tpmdp.planning.plan_file import read_plan, write_plan
from tpmdp.study.contribution import contribute
from tpmdp.study.identity import public_key_text, write_key
from tpmdp.study.peers import read_peers

ROOT = Path(__file__).parents[1]
STAY = ROOT / "examples" / "stay"
KEYS = [Ed25519PrivateKey.from_private_bytes(bytes([place]) * 32) for place in range(2)]


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in tpmdp.__all__:
        value = getattr(tpmdp, name)
        if inspect.isclass(value):
            members = inspect.getmembers(value, callable)
            yield from ((f"{name}.{member}", each) for member, each in members if not member.startswith("_"))
        elif callable(value):
            yield name, value


def test_no_public_function_insists_on_a_path() -> None:
    for name, value in callables():
        try:
            parameters = inspect.signature(value).parameters.values()
        except (TypeError, ValueError):
            continue
        for parameter in parameters:
            words = str(parameter.annotation).replace("StrPath", "").split()
            assert "Path" not in words, f"{name}: {parameter}"


@pytest.mark.parametrize("kind", [str, Path])
def test_text_and_paths_do_the_same(tmp_path: Path, kind: Callable[[Path], Any]) -> None:
    study = Study.read(kind(STAY / "study.toml"))
    assert set(study.read_tables(kind(STAY))) == {party.name for party in study.parties}
    assert len(np.asarray(read_table(kind(STAY / "insurer.csv"), {"age": "number"})["age"])) == 380
    assert "geometric_mean" in load_queries(kind(ROOT / "examples" / "own_query" / "geometric_mean.py"))
    write_key(kind(tmp_path / "a.key"), KEYS[0])
    assert read_key(kind(tmp_path / "a.key")).private_bytes_raw() == KEYS[0].private_bytes_raw()
    Ledger.create(kind(tmp_path / "a.ledger"), "north", epsilon=1.0, delta=1e-6).close()
    with Ledger.open(kind(tmp_path / "a.ledger")) as ledger:
        assert ledger.path == tmp_path / "a.ledger"
    (tmp_path / "peers.toml").write_text(f'server = "{public_key_text(bytes(32))}"')
    assert read_peers(kind(tmp_path / "peers.toml")) == {"server": bytes(32)}
    parties = read_parties(kind(ROOT / "examples" / "consortium.csv"))
    assert parties.names
    write_plan(study.plan().plan, kind(tmp_path / "plan.json"))
    assert read_plan(kind(tmp_path / "plan.json"))[0].count == 5


@pytest.mark.parametrize("path", [7, None, b"study.toml", "", "a\0b", {"name": "flu"}])
def test_what_is_no_path_is_refused(path: Any) -> None:
    for call in (Study.read, read_key, Ledger.open, study_of_people().write):
        with pytest.raises(InputError, match="is not a path: give text such as"):
            call(path)


def study_of_people() -> Study:
    builder = Study.new("flu", threshold=1, receivers="all", delta=1e-6)
    for name, key in zip(["north", "south"], KEYS, strict=True):
        public = public_key_text(key.public_key().public_bytes_raw())
        builder = builder.party(name, epsilon=1, records=3, public_key=public)
    return builder.count("age", at_least=65).histogram("region", categories=["a", "b"]).build()


AGES, REGIONS = [70, 20, 66], ["a", "b", "a"]


def tables(folder: Path) -> dict[str, Any]:
    frame = pd.DataFrame({"region": REGIONS, "age": AGES})
    frame.to_csv(folder / "north.csv", index=False)
    frame.to_parquet(folder / "north.parquet")
    return {
        "pandas": frame,
        "Arrow": pa.table({"age": AGES, "region": REGIONS}),
        "columns of pandas": {"age": frame["age"], "region": frame["region"]},
        "lists": {"age": AGES, "region": REGIONS},
        "text": str(folder / "north.csv"),
        "path": folder / "north.parquet",
    }


def test_every_kind_of_table_gives_the_same_contribution(tmp_path: Path) -> None:
    study = study_of_people()
    terms = study.terms()
    arrays: dict[str, Any] = {"age": np.array(AGES, dtype=float), "region": REGIONS}
    expected = contribute(study, terms, "north", table=arrays).encoded
    for name, table in tables(tmp_path).items():
        assert (contribute(study, terms, "north", table=table).encoded == expected).all(), name
        assert len(run(study, {"north": table, "south": arrays}).answers) == 3


def test_a_wrong_number_of_records_is_refused(tmp_path: Path) -> None:
    study = study_of_people()
    short = pd.DataFrame({"age": AGES[:2], "region": REGIONS[:2]})
    with pytest.raises(InputError, match="records of north = 2 must be the number the study states"):
        run(study, {"north": short, "south": short})
    with pytest.raises(FileError, match="does not exist"):
        run(study, {"north": str(tmp_path / "no.csv"), "south": short})
    with pytest.raises(InputError, match="data of north = int is not a table"):
        run(study, {"north": 7, "south": short})  # type: ignore[dict-item]


def test_a_party_joins_with_a_data_frame_and_text(tmp_path: Path) -> None:
    """It gets as far as the certificate: nothing is charged before the relay is reached."""
    frame = pd.DataFrame({"age": AGES, "region": REGIONS})
    with Ledger.create(str(tmp_path / "a.ledger"), "north", epsilon=1.0, delta=1e-6) as ledger:
        for table in (frame, lambda: frame):
            with pytest.raises(FileError, match=r"no\.pem does not exist"):
                join(
                    study_of_people(),
                    "north",
                    KEYS[0],
                    table,
                    ledger,
                    "https://relay.example",
                    certificate_authority=str(tmp_path / "no.pem"),
                )
        assert ledger.spent().sessions == 0
