"""`tpmdp join --peers`, `tpmdp fingerprint` and state folders of others, as a user meets them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.cli.test_commands import EXAMPLE, refused, tpmdp
from tests.faults.consortium import NAMES, Consortium, check_answers, ended
from tests.patience import wait_until
from tpmdp import Study
from tpmdp.ledger import Ledger
from tpmdp.study.fingerprint import WORDS
from tpmdp.study.identity import public_key_text, read_key
from tpmdp.study.peers import peer_line

pytestmark = pytest.mark.process

NOTICE = "tpmdp: the author of the study chose the other parties"


@pytest.fixture
def consortium(tmp_path: Path) -> Iterator[Consortium]:
    with Consortium(tmp_path) as parties:
        yield parties


def line_of(consortium: Consortium, name: str) -> str:
    return peer_line(name, read_key(consortium.key(name)).public_key().public_bytes_raw()) + "\n"


def words_of(consortium: Consortium, name: str, *more: object) -> list[object]:
    words = ["join", consortium.study_file, "--as", name, "--key", consortium.key(name)]
    return [*words, "--data", consortium.data(name), "--relay", consortium.url, *more]


def invent(consortium: Consortium, name: str) -> str:
    """A study file whose author has replaced the key of a party by one of its own; returns the party's new line."""
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    study = consortium.study
    parties = tuple(replace(one, public_key=key) if one.name == name else one for one in study.parties)
    consortium.study_file.write_text(replace(study, parties=parties).toml())
    return peer_line(name, key)


def test_parties_that_know_each_other_get_their_answer(consortium: Consortium) -> None:
    (consortium.folder / "peers.toml").write_text("".join(line_of(consortium, name) for name in NAMES))
    consortium.relay()
    processes = {name: consortium.join(name) for name in NAMES}
    outputs = {name: process.communicate() for name, process in processes.items()}
    assert all(NOTICE not in errors for _, errors in outputs.values())
    check_answers({name: ended(process) for name, process in processes.items()}, consortium.study)


@pytest.mark.parametrize("flag", [False, True])
def test_an_invented_party_is_refused_before_anything_is_held_or_sent(consortium: Consortium, flag: bool) -> None:
    peers = consortium.folder / ("known.toml" if flag else "peers.toml")
    peers.write_text(line_of(consortium, "south") + line_of(consortium, "lab"))
    line = invent(consortium, "lab")
    words = words_of(consortium, "north", *(["--peers", peers] if flag else []))
    error = refused(*words, folder=consortium.folder)
    assert error.startswith("tpmdp: public_key of lab = ed25519:")
    assert error.endswith(f"change its line to {line}\n")
    assert not consortium.ledger_file("north").exists()


def test_an_unknown_party_and_bad_files_get_one_line(consortium: Consortium) -> None:
    peers = consortium.folder / "known.toml"
    words = words_of(consortium, "north", "--peers", peers)
    assert "known.toml does not exist" in refused(*words, folder=consortium.folder)
    peers.write_text("")
    error = refused(*words, folder=consortium.folder)
    assert error.startswith("tpmdp: public_key of south = ed25519:")
    assert f" is not in {peers}: " in error
    assert error.endswith(f"add the line {line_of(consortium, 'south')}")
    peers.write_text("south = 1")
    assert "is not a public key" in refused(*words, folder=consortium.folder)
    peers.write_bytes(b"\xff")
    assert "is not UTF-8" in refused(*words, folder=consortium.folder)
    assert not consortium.ledger_file("north").exists()


def test_without_peers_the_notice_comes_once(consortium: Consortium) -> None:
    """The ledger is made first, as the how-to page says: the notice is not only for new ledgers."""
    ledger = ["ledger", "create", consortium.ledger_file("north"), "--party", "north", "--epsilon", 4, "--delta", 1e-6]
    tpmdp(*ledger, folder=consortium.folder)
    consortium.relay()
    process = consortium.join("north")
    wait_until(lambda: has_held(consortium.ledger_file("north")))
    process.kill()
    _, errors = process.communicate()
    assert errors.count(NOTICE) == 1
    assert "tpmdp fingerprint" in errors
    assert "peers.toml" in errors
    again = tpmdp(*words_of(consortium, "north", "--deadline", "1s"), folder=consortium.folder, code=3)
    assert NOTICE not in again.stderr


def has_held(path: Path) -> bool:
    with Ledger.open(path) as ledger:
        return bool(ledger.holds())


def test_a_run_on_one_machine_gives_no_notice(tmp_path: Path) -> None:
    done = tpmdp("run", EXAMPLE, "--state", tmp_path / "state", folder=tmp_path)
    assert NOTICE not in done.stderr + done.stdout


# Fingerprints ---------------------------------------------------------------------------------------------------------


def fingerprint(consortium: Consortium, *more: object) -> list[str]:
    return tpmdp("fingerprint", consortium.study_file, *more, folder=consortium.folder).stdout.splitlines()


def test_a_fingerprint_shows_phrase_hash_and_lines_for_a_peers_file(consortium: Consortium) -> None:
    label, phrase, digest, keyless, blank, *lines = fingerprint(consortium)
    assert label == "faults / session 1"
    words = phrase.removeprefix("phrase: ").split()
    assert len(words) == 10
    assert set(words) <= set(WORDS)
    assert digest == f"hash:   {consortium.terms.plan_hash.hex()}"
    assert keyless == f"hash of the study without keys: {consortium.terms.keyless_hash.hex()}"
    assert blank == ""
    assert [line + "\n" for line in lines] == [line_of(consortium, name) for name in NAMES]
    shown = json.loads("\n".join(fingerprint(consortium, "--json")))
    assert shown["phrase"] == words
    assert shown["plan_hash"] == consortium.terms.plan_hash.hex()
    key = read_key(consortium.key("lab")).public_key().public_bytes_raw()
    assert shown["parties"]["lab"] == public_key_text(key)


def test_the_phrase_depends_on_what_is_signed_and_on_nothing_else(consortium: Consortium) -> None:
    first = fingerprint(consortium)[1]
    text = consortium.study_file.read_text()
    consortium.study_file.write_text(re.sub('deadline = "[^"]+"', 'deadline = "90s"', text))
    assert consortium.study_file.read_text() != text
    assert fingerprint(consortium)[1] == first
    tpmdp("terms", consortium.study_file, "--out", "terms.json", folder=consortium.folder)
    assert fingerprint(consortium, "--terms", "terms.json")[1] == first
    assert fingerprint(consortium, "--session", 2)[1] != first
    invent(consortium, "lab")
    assert fingerprint(consortium)[1] != first
    consortium.study_file.write_text(text.replace("at_least = 65", "at_least = 64"))
    assert fingerprint(consortium)[1] != first


def test_a_draft_has_the_hash_that_the_study_keeps_when_it_has_keys(consortium: Consortium) -> None:
    study = Study.read(consortium.study_file)
    study.without_keys().write(consortium.folder / "draft.toml")
    label, keyless, lacking = tpmdp("fingerprint", "draft.toml", folder=consortium.folder).stdout.splitlines()
    assert label == study.label
    assert keyless == fingerprint(consortium)[3]
    assert lacking == f"The ten words need the keys of all parties; missing: {', '.join(NAMES)}."
    shown = json.loads(tpmdp("fingerprint", "draft.toml", "--json", folder=consortium.folder).stdout)
    assert (shown["phrase"], shown["plan_hash"], shown["parties"]) == (None, None, {})
    assert keyless.endswith(shown["keyless_hash"])
    text = consortium.study_file.read_text()
    consortium.study_file.write_text(text.replace("at_least = 65", "at_least = 64"))
    assert fingerprint(consortium)[3] != keyless


def test_mistakes_of_fingerprints_get_one_line(consortium: Consortium) -> None:
    folder = consortium.folder
    assert "no.toml does not exist" in refused("fingerprint", "no.toml", folder=folder)
    assert "session = 0" in refused("fingerprint", consortium.study_file, "--session", 0, folder=folder)
    terms = ["fingerprint", consortium.study_file, "--terms", consortium.study_file]
    assert "does not hold the terms" in refused(*terms, folder=folder)
    tpmdp("terms", consortium.study_file, "--session", 2, "--out", "terms.json", folder=folder)
    other = ["fingerprint", consortium.study_file, "--terms", "terms.json"]
    assert "differ from the study" in refused(*other, folder=folder)


# State folders --------------------------------------------------------------------------------------------------------


def test_a_state_folder_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    state.chmod(0o775)
    line = refused("run", EXAMPLE, "--state", state, folder=tmp_path)
    assert f"{state} can be written to by others: run chmod go-w {state}" in line
    assert list(state.iterdir()) == []
    state.chmod(0o755)
    tpmdp("run", EXAMPLE, "--state", state, folder=tmp_path)
