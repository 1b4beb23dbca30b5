"""Peers: who a party knows, what an author gains by inventing the others, and state folders that others can write."""

from __future__ import annotations

import math
import os
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import tpmdp
from tests.oracles import exact_delta
from tpmdp.errors import FileError, InputError
from tpmdp.ledger import Charge, Ledger, SessionKey
from tpmdp.protocol.terms import Terms
from tpmdp.study.identity import public_key_text
from tpmdp.study.local_run import run_study
from tpmdp.study.model import Study
from tpmdp.study.peers import check_peers, find_peers, first_stranger, has_no_session, peer_line, read_peers

NAMES = ("north", "st.mary", "lab")


def key_of(name: str) -> bytes:
    seed = name.encode().ljust(32, b".")
    return Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()


def study_of(**keys: bytes) -> Study:
    parties = [
        {"name": name, "epsilon": 1.0, "records": 9, "public_key": public_key_text(keys.get(name, key_of(name)))}
        for name in NAMES
    ]
    query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    top: dict[str, Any] = {"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": "all"}
    return Study.parse({**top, "parties": parties, "queries": [query]})


@pytest.fixture
def peers(tmp_path: Path) -> Path:
    path = tmp_path / "peers.toml"
    path.write_text("\n".join(peer_line(name, key_of(name)) for name in NAMES[1:]) + "\n")
    return path


def checked(terms: Terms, peers: Path) -> None:
    check_peers(terms, key_of("north"), peers)


def test_known_parties_pass_and_the_party_itself_need_not_be_listed(peers: Path) -> None:
    checked(study_of().terms(), peers)
    assert set(read_peers(peers)) == {"st.mary", "lab"}


def test_a_changed_key_is_refused_and_the_line_of_the_remedy_mends_it(peers: Path) -> None:
    terms = study_of(lab=key_of("invented")).terms()
    with pytest.raises(InputError, match=r"^public_key of lab = ed25519:\S+ is not the one in \S+, ed25519:") as caught:
        checked(terms, peers)
    assert public_key_text(key_of("lab")) in caught.value.rule
    assert "ask lab itself" in caught.value.remedy
    assert "\n" not in str(caught.value)
    peers.write_text(peers.read_text().splitlines()[0] + "\n" + line_in(caught.value.remedy))
    os.utime(peers, ns=(1, 1))
    checked(terms, peers)


def test_an_unknown_party_is_refused_and_the_line_of_the_remedy_mends_it(peers: Path) -> None:
    peers.write_text(peer_line("lab", key_of("lab")) + "\n")
    with pytest.raises(InputError, match=r"^public_key of st.mary = \S+ is not in \S+: ask st.mary itself") as caught:
        checked(study_of().terms(), peers)
    peers.write_text(peers.read_text() + line_in(caught.value.remedy))
    os.utime(peers, ns=(1, 1))
    checked(study_of().terms(), peers)


def line_in(remedy: str) -> str:
    """The line that a remedy ends with; it is valid TOML."""
    line = remedy.partition(" line ")[2].removeprefix("to ")
    tomllib.loads(line)
    return line + "\n"


def test_a_known_key_under_another_name_is_refused(peers: Path) -> None:
    peers.write_text(peer_line("laboratory", key_of("lab")) + "\n" + peer_line("st.mary", key_of("st.mary")))
    with pytest.raises(InputError, match=r"public_key of lab = \S+ is that of laboratory in"):
        checked(study_of().terms(), peers)


def test_swapped_keys_are_changed_keys(peers: Path) -> None:
    terms = study_of(**{"lab": key_of("st.mary"), "st.mary": key_of("lab")}).terms()
    assert first_stranger(terms, key_of("north"), read_peers(peers)) == 1


def test_the_file_beside_the_key_is_the_default(tmp_path: Path) -> None:
    key = tmp_path / "north.key"
    assert find_peers(None, key) is None
    assert find_peers(Path("other.toml"), key) == Path("other.toml")
    (tmp_path / "peers.toml").symlink_to(tmp_path / "gone.toml")
    path = find_peers(None, key)  # a link that leads nowhere is a mistake, not a party without peers
    assert path == tmp_path / "peers.toml"
    with pytest.raises(FileError, match="does not exist"):
        checked(study_of().terms(), path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lab = 1", "is not a public key"),
        ('lab = "ed25519:AAAA"', "is not a public key"),
        (f'st.mary = "{public_key_text(bytes(32))}"', "put a name with a dot in quotes"),
        ('"../x" = "a"', "must be letters"),
        ("lab", "is not valid TOML"),
    ],
)
def test_files_that_hold_no_peers(peers: Path, text: str, message: str) -> None:
    peers.write_text(text)
    os.utime(peers, ns=(2, 2))
    with pytest.raises((InputError, FileError), match=message):
        checked(study_of().terms(), peers)


def test_a_new_ledger_has_no_session_until_the_first_hold(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "a.ledger", "a", 1.0, delta=1e-6) as ledger:
        for limit in (2.0, 3.0, 4.0, 5.0, 6.0):
            ledger.set_limit(limit, 1e-6)
        assert has_no_session(ledger)
        key = SessionKey(bytes(32), bytes(32))
        ledger.hold(key, "demo", Charge(0.1, 0.0, 1.0, delta=1e-6), unit="record", private={})
        assert not has_no_session(ledger)
        ledger.cancel(key)
        for limit in (2.0, 3.0, 4.0, 5.0, 6.0):
            ledger.set_limit(limit, 1e-6)
        assert not has_no_session(ledger)


# What the author of a study gains by inventing parties ----------------------------------------------------------------


def real_epsilon(variance: float) -> float:
    """The epsilon at delta 1e-6 of a change by 1 under this variance, by bisection in 80 digits."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if exact_delta(1 / math.sqrt(variance), middle) > 1e-6 else (low, middle)
    return high


def test_with_invented_parties_a_promise_of_1_is_really_8_3() -> None:
    """The numbers of the threat model: 49 of 50 parties are the author's, threshold 5, epsilon 1 at delta 1e-6."""
    spec = tpmdp.Spec(epsilon=[1.0] * 50, delta=1e-6, threshold=5)
    plan = tpmdp.plan(spec)
    assert plan.protection().epsilon[0] == 1.0  # as promised, if at most 5 collude
    only_own = real_epsilon(plan.variance[0])  # all others are one person, who knows their noise
    assert 8.3 < only_own < 8.35
    assert float(tpmdp.epsilon_at(np.sqrt(plan.variance[0]), 1e-6)) == pytest.approx(only_own, rel=1e-9)


def test_an_author_who_also_chooses_receivers_can_leave_the_only_real_party_without_noise() -> None:
    spec = tpmdp.Spec(epsilon=[1.0] * 50, delta=1e-6, threshold=5, receivers=[0, 1])
    plan = tpmdp.plan(spec)
    assert plan.protection().epsilon[0] <= 1.0
    assert plan.variance[0] == 0.0


# State folders --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777, 0o1777, 0o770])
def test_a_state_folder_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    state = tmp_path / "my state"
    state.mkdir()
    state.chmod(mode)
    with pytest.raises(
        FileError, match=r"my state can be written to by others: run chmod go-w '.*my state' if"
    ) as caught:
        run_study(study_of(), data_folder(tmp_path), state)
    assert "\n" not in str(caught.value)
    assert list(state.iterdir()) == []


def test_a_state_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, stranger = tmp_path / "state", os.geteuid() + 1
    state.mkdir(mode=0o755)
    monkeypatch.setattr(os, "geteuid", lambda: stranger)
    with pytest.raises(FileError, match="belongs to somebody else: choose another folder"):
        run_study(study_of(), data_folder(tmp_path), state)
    assert list(state.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a link away")
def test_a_link_of_somebody_else_to_our_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir(mode=0o700)
    state = tmp_path / "state"
    state.symlink_to(tmp_path / "ours")
    os.chown(state, 12345, 12345, follow_symlinks=False)
    with pytest.raises(FileError, match="belongs to somebody else"):
        run_study(study_of(), data_folder(tmp_path), state)


def data_folder(folder: Path) -> Path:
    data = folder / "data"
    data.mkdir()
    for name in NAMES:
        (data / f"{name}.csv").write_text("age\n" + "70\n" * 9)
    return data
