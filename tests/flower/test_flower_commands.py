"""`tpmdp flower` as a client's operator calls it."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from tests.cli.test_commands import refused, tpmdp
from tpmdp.flower import read_peers, read_settings
from tpmdp.study.identity import read_key

GOOD = ("--epsilon", "4", "--delta", "1e-5", "--rounds", "20", "--threshold", "2")


def test_a_client_and_a_server_are_made_and_know_each_other(tmp_path: Path) -> None:
    lines = [tpmdp("flower", "server", folder=tmp_path), tpmdp("flower", "client", "lab", *GOOD, folder=tmp_path)]
    (tmp_path / "peers.toml").write_text("".join(done.stdout for done in lines))
    assert 'tpmdp-party="' in lines[1].stderr
    client = read_settings(tmp_path / "lab.toml")
    server = read_key(tmp_path / "server.key").public_key().public_bytes_raw()
    assert client.peers == read_peers(tmp_path / "peers.toml") == {"server": server, "lab": client.public_key}
    for name in ("lab.key", "lab.ledger", "server.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    told = tpmdp("flower", "check", "lab.toml", folder=tmp_path).stdout
    assert "epsilon 4 at delta 1e-05 over 20 rounds" in told
    assert "there is room for more rounds" in told
    with client.open_ledger() as ledger:
        assert (ledger.unit, ledger.spent().limit_epsilon) == ("party", 4.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--epsilon", "-1"), "epsilon = -1.0 must be greater than 0"),
        (("--epsilon", "many"), "--epsilon = many is not a number"),
        (("--delta", "2"), "delta = 2.0 must lie in (0, 1)"),
        (("--rounds", "0"), "rounds = 0 must be a whole number from 1"),
        (("--threshold", "0"), "threshold = 0 must be a whole number from 1"),
    ],
)
def test_a_bad_client_gets_one_line_and_no_file(tmp_path: Path, change: tuple[str, str], says: str) -> None:
    words = list(GOOD)
    words[words.index(change[0]) + 1] = change[1]
    assert says in refused("flower", "client", "lab", *words, folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bad_names_and_files(tmp_path: Path) -> None:
    assert "letters, digits" in refused("flower", "client", "../lab", *GOOD, folder=tmp_path)
    assert "is the server's" in refused("flower", "client", "server", *GOOD, folder=tmp_path)
    assert "does not exist" in refused("flower", "check", "lab.toml", folder=tmp_path)
    tpmdp("flower", "client", "lab", *GOOD, "--peers", "any", "--folder", "new/folder", folder=tmp_path)
    again = refused("flower", "client", "lab", *GOOD, "--folder", "new/folder", folder=tmp_path)
    assert "exists already" in again
    assert "anybody" in tpmdp("flower", "check", "new/folder/lab.toml", folder=tmp_path).stdout


def test_check_says_how_to_make_the_peers_file(tmp_path: Path) -> None:
    line = tpmdp("flower", "client", "lab", *GOOD, folder=tmp_path).stdout
    missing = refused("flower", "check", "lab.toml", folder=tmp_path)
    assert "peers.toml does not exist: make it of the lines that tpmdp flower server and tpmdp flower client" in missing
    assert "tpmdp key show lab.key prints yours again" in missing
    assert tpmdp("key", "show", "lab.key", folder=tmp_path).stdout == line  # as it says
    (tmp_path / "peers.toml").write_text(line)
    done = tpmdp("flower", "check", "lab.toml", folder=tmp_path)
    assert "the peers file has no line for the server" in done.stderr
    server = tpmdp("flower", "server", folder=tmp_path).stdout
    assert tpmdp("key", "show", "server.key", folder=tmp_path).stdout == server
    (tmp_path / "peers.toml").write_text(line + server)
    assert tpmdp("flower", "check", "lab.toml", folder=tmp_path).stderr == ""
