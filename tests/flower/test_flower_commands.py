"""`tpmdp flower` as a client's operator calls it."""

from __future__ import annotations

import re
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.test_commands import refused, tpmdp
from tpmdp.flower import Training, read_peers, read_settings
from tpmdp.ledger import Charge, SessionKey
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
    (tmp_path / "peers.toml").write_text(server)
    done = tpmdp("flower", "check", "lab.toml", folder=tmp_path)
    assert "the peers file has no line for lab itself" in done.stderr
    other = tpmdp("flower", "client", "other", *GOOD, folder=tmp_path).stdout
    (tmp_path / "peers.toml").write_text(server + other.replace("other =", "lab ="))
    assert "has another key for lab" in tpmdp("flower", "check", "lab.toml", folder=tmp_path).stderr
    (tmp_path / "peers.toml").write_text(line + server + other)
    done = tpmdp("flower", "check", "lab.toml", folder=tmp_path)
    assert done.stderr == ""
    assert "with the server and 1 other client only" in done.stdout


def test_check_says_what_noise_to_expect(tmp_path: Path) -> None:
    tpmdp("flower", "client", "lab", *GOOD, folder=tmp_path)
    lines = [tpmdp("flower", "server", folder=tmp_path).stdout, tpmdp("key", "show", "lab.key", folder=tmp_path).stdout]
    lines += [f'{name} = "ed25519:{letter * 43}="\n' for name, letter in (("east", "A"), ("west", "E"))]
    (tmp_path / "peers.toml").write_text("".join(lines))
    said = tpmdp("flower", "check", "lab.toml", folder=tmp_path).stdout
    party = read_settings(tmp_path / "lab.toml").round_party
    alike = [replace(party, name=name) for name in ("lab", "east", "west")]
    noise = Training("any", clip=1.0, entries=280).outlook(alike).noise
    (stated,) = re.findall(r"if all 3 clients had this budget and threshold, .* would be about ([0-9.]+) times", said)
    assert float(stated) == pytest.approx(noise, rel=0.03)


def test_check_doubts_what_cannot_be_kept(tmp_path: Path) -> None:
    tpmdp("flower", "client", "lab", *GOOD, folder=tmp_path)
    server, own = tpmdp("flower", "server", folder=tmp_path), tpmdp("key", "show", "lab.key", folder=tmp_path)
    (tmp_path / "peers.toml").write_text(server.stdout + own.stdout)
    settings = tmp_path / "lab.toml"
    settings.write_text(settings.read_text().replace("epsilon = 4.0", "epsilon = 8.0"))
    done = tpmdp("flower", "check", "lab.toml", folder=tmp_path)
    assert "the ledger's limit (epsilon 4, delta 1e-05) is below the budget in the settings" in done.stderr
    assert "the threshold of 2 is more than the 1 client in the peers file" in done.stderr
    assert "depends on the budgets of the others" in done.stdout
    assert "spent and left" not in done.stdout
    with read_settings(settings).open_ledger() as ledger:
        key, charge = SessionKey(bytes(32), bytes(32)), Charge(0.3, 0.0, 1.0, delta=1e-5)
        ledger.charge(key, "round 1", charge, unit="party", private={})
    done = tpmdp("flower", "check", "lab.toml", folder=tmp_path)
    assert "(rounds add up to less than their sum, so spent and left are together more" in done.stdout
