"""A client's settings: every way in which terms may ask for more than they allow; budgets spread over rounds."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mpmath
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tests.flower.hostile import Hostile
from tests.flower.world import World, kept_within, make_world
from tpmdp.errors import FileError, InputError, TpmdpError
from tpmdp.flower.client_settings import ClientSettings, read_settings, write_settings
from tpmdp.flower.round_terms import Ask
from tpmdp.ledger import Charge, Ledger, LedgerError, OverspendError, SessionKey
from tpmdp.protocol.terms import Terms
from tpmdp.spec import Party
from tpmdp.study.identity import public_text
from tpmdp.study.peers import read_peers


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("own"), 4, threshold=2)


@pytest.fixture(scope="module")
def terms(world: World) -> Terms:
    return Hostile(world, tolerate=1, examples=100).terms()


def tampered(change: Callable[[dict[str, Any]], None], terms: Terms) -> str:
    document = json.loads(terms.canonical())
    change(document)
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def replaced(name: str, place: int, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document[name][place] = value(document[name][place])

    return change


def times(factor: float) -> Callable[[str], str]:
    return lambda text: (float.fromhex(text) * factor).hex()


def query(**fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        read = json.loads(document["query"])
        read.update(fields)
        document["query"] = json.dumps(read, sort_keys=True, separators=(",", ":"))

    return change


def fields(**given: Any) -> Callable[[dict[str, Any]], None]:
    return lambda document: document.update(given)


def swap_names(document: dict[str, Any]) -> None:
    names = document["names"]
    names[1], names[2] = names[2], names[1]


def other_key(place: int) -> Callable[[dict[str, Any]], None]:
    key = Ed25519PrivateKey.from_private_bytes(bytes(31) + bytes([place])).public_key().public_bytes_raw()
    return replaced("roster", place, lambda _: key.hex())


def halved(document: dict[str, Any]) -> None:
    document["sigma"] = [value // 2 for value in document["sigma"]]


def silent(document: dict[str, Any]) -> None:
    document["sigma"] = [0] * 5


def no_losses(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    """The same in a session in which nobody may drop out."""

    def both(document: dict[str, Any]) -> None:
        del document["tolerate"], document["needs"]
        change(document)

    return both


def both_lowered(document: dict[str, Any]) -> None:
    """Half the noise, and less than that of what was promised of it."""
    halved(document)
    document["needs"] = [times(0.2)(need) for need in document["needs"]]


TOO_LITTLE = "honest noise in the group = .* is less than client-0 needs in every group"


REFUSED: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "epsilon raised": (replaced("epsilon", 1, times(1.000001)), "more than client-0 allows"),
    "epsilon doubled": (replaced("epsilon", 1, times(2.0)), "more than client-0 allows"),
    "epsilon infinite": (replaced("epsilon", 1, lambda _: "inf"), "more than client-0 allows"),
    "epsilon no number": (replaced("epsilon", 1, lambda _: "nan"), "greater than 0"),
    "delta raised": (replaced("delta", 1, times(1.000001)), "more than client-0 allows"),
    "delta nan": (replaced("delta", 1, lambda _: "nan"), "delta"),
    "epsilon lowered without more noise": (replaced("epsilon", 1, times(0.9)), "breaks the budget"),
    "threshold lowered": (fields(threshold=1), "less than client-0 asks for"),
    "threshold lowered, nobody drops out": (no_losses(fields(threshold=1)), "less than client-0 asks for"),
    "own threshold lowered": (no_losses(fields(threshold=[2, 1, 2, 2, 2])), "less than client-0 asks for"),
    "own threshold lowered where clients may drop out": (fields(threshold=[2, 1, 2, 2, 2]), "needs one threshold"),
    "threshold raised without more noise": (no_losses(fields(threshold=3)), "breaks the budget"),
    "threshold raised where clients may drop out": (fields(threshold=3), "tolerate = 1 must be at most 0"),
    "more may drop out than possible": (fields(tolerate=2), "tolerate = 2 must be at most 1 with 5 parties"),
    "needs raised": (replaced("needs", 1, times(1.5)), TOO_LITTLE),
    "needs lowered": (replaced("needs", 1, times(0.5)), "breaks the budget"),
    "needs and noise lowered": (both_lowered, "breaks the budget"),
    "no need": (replaced("needs", 1, lambda _: (0.0).hex()), "breaks the budget"),
    "need nan": (replaced("needs", 1, lambda _: "nan"), "must be 5 numbers"),
    "need negative": (replaced("needs", 1, times(-1.0)), "must be 5 numbers"),
    "needs of others too large for the grid": (replaced("needs", 2, times(1e4)), "needs of groups|wrap"),
    "one need too few": (lambda document: document["needs"].pop(), "must be 5 numbers"),
    "needs without drop-outs": (lambda document: document.pop("tolerate"), "belong to drop-outs"),
    "drop-outs without needs": (lambda document: document.pop("needs"), "belong to drop-outs"),
    "not public": (lambda document: document.pop("public"), "must say that everybody gets the model"),
    "not public, nobody drops out": (
        no_losses(lambda document: document.pop("public")),
        "must say that everybody gets the model",
    ),
    "public no longer true": (fields(public=False), "canonical"),
    "sensitivity lowered": (replaced("sensitivity", 1, times(1 - 2**-40)), "less than clipped updates have"),
    "sensitivity zero": (replaced("sensitivity", 1, lambda _: (0.0).hex()), "less than clipped updates have"),
    "sensitivity nan": (replaced("sensitivity", 1, lambda _: "nan"), "sensitivity"),
    "bound lowered": (replaced("bounds", 1, times(1 - 2**-40)), "less than clipped updates reach"),
    "bound zero": (replaced("bounds", 1, lambda _: (0.0).hex()), "less than clipped updates reach"),
    "bound of no counts": (replaced("bounds", 1, lambda _: (1.1).hex()), "less than clipped updates reach"),
    "bound nan": (replaced("bounds", 1, lambda _: "nan"), "bounds"),
    "bounds that wrap": (replaced("bounds", 2, lambda _: (1e30).hex()), "could wrap"),
    "one weight too few": (query(weights=[(1.0).hex()] * 4), "weights"),
    "one weight too many": (query(weights=[(1.0).hex()] * 6), "weights"),
    "weight above one": (query(weights=[(1.5).hex()] * 5), "out of range"),
    "weight negative": (query(weights=[(-1.0).hex()] * 5), "out of range"),
    "weight nan": (query(weights=["nan"] * 5), "out of range"),
    "clip raised": (query(clip=(1.001).hex()), "less than clipped updates have"),
    "clip zero": (query(clip=(0.0).hex()), "out of range"),
    "clip huge": (query(clip=(1e10).hex()), "out of range"),
    "clip infinite": (query(clip="inf"), "out of range"),
    "clip nan": (query(clip="nan"), "out of range"),
    "clip negative": (query(clip=(-1.0).hex()), "out of range"),
    "examples negative": (query(examples=-1), "out of range"),
    "examples huge": (query(examples=1 << 41), "out of range"),
    "another kind": (query(kind="sum"), "not a round of training"),
    "more in the query": (query(besides=1), "not a round of training"),
    "round as text": (query(round="1"), "not a round of training"),
    "query of another kind": (fields(query="sum"), "not a round of training"),
    "query of JSON": (fields(query="[1]"), "not a round of training"),
    "names swapped": (swap_names, "name client-0 otherwise"),
    "no names": (fields(names=None), "name client-0 otherwise"),
    "own key missing": (other_key(1), "do not list the key"),
    "peer with another key": (other_key(3), "not a peer"),
    "server with another key": (other_key(0), "not a peer"),
    "unknown peer": (replaced("names", 3, lambda _: "stranger"), "not a peer"),
    "server by another name": (replaced("names", 0, lambda _: "boss"), "not a peer"),
    "sigma halved": (halved, TOO_LITTLE),
    "sigma halved, nobody drops out": (no_losses(halved), "breaks the budget"),
    "no noise": (silent, TOO_LITTLE),
    "no noise, nobody drops out": (no_losses(silent), "breaks the budget"),
    "own noise missing": (replaced("sigma", 1, lambda _: 0), TOO_LITTLE),
    "own noise missing, nobody drops out": (no_losses(replaced("sigma", 1, lambda _: 0)), "breaks the budget"),
    "another's noise missing": (replaced("sigma", 4, lambda _: 0), TOO_LITTLE),
    "another's noise missing, nobody drops out": (no_losses(replaced("sigma", 4, lambda _: 0)), "breaks the budget"),
    "a sigma too small to be exact": (replaced("sigma", 1, lambda _: 3), "must be 0 or from 4"),
    "a negative sigma": (replaced("sigma", 1, lambda value: -value), "must be 0 or from 4"),
    "a sigma too large": (replaced("sigma", 1, lambda _: (1 << 26) + 1), "must be 0 or from 4"),
    "a step of no power of two": (fields(step=(0.3).hex()), "power of two"),
    "a finer step": (fields(step=(2.0**-60).hex()), "breaks the budget|wrap"),
    "word of 16 bits": (fields(word=16), "power of two|word"),
    "dimension raised": (fields(dimension=10**6), "breaks the budget"),
    "dimension zero": (fields(dimension=0), "dimension"),
    "guarantee unknown": (fields(guarantee="none"), "guarantee"),
    "no receivers": (fields(receivers=[]), "receivers"),
    "a key twice": (lambda document: document["roster"].__setitem__(3, document["roster"][2]), "public keys"),
    "a key too short": (replaced("roster", 3, lambda _: "00" * 31), "32 bytes"),
    "one more field": (fields(more=1), "canonical"),
    "one field less": (lambda document: document.pop("sigma"), "not terms"),
}


def test_good_terms_pass(world: World, terms: Terms) -> None:
    for number in range(world.count):
        index, ask = world.settings(number).check(Terms.parse(terms.canonical()))
        assert (index, ask.clip, ask.examples) == (number + 1, 1.0, 100)


@pytest.mark.parametrize("case", REFUSED)
def test_terms_that_are_tampered_with_are_refused(world: World, terms: Terms, case: str) -> None:
    change, reason = REFUSED[case]
    text = tampered(change, terms)
    assert text != terms.canonical()
    with pytest.raises(InputError, match=reason):
        world.settings(0).check(Terms.parse(text))


@pytest.mark.parametrize(
    "text", [" {}", "{} ", "{}\n", "{}".replace("{}", "{}{}")], ids=["before", "after", "line", "twice"]
)
def test_only_the_canonical_text_counts(world: World, terms: Terms, text: str) -> None:
    with pytest.raises(InputError):
        Terms.parse(text.replace("{}", terms.canonical()))
    with pytest.raises(InputError):
        Ask.parse(text.replace("{}", terms.query))


@pytest.mark.parametrize("text", ["", "{", "null", "[]", "1", '"a"', "{}", '{"weights":1}', "[" * 5000])
def test_texts_that_are_no_round(text: str) -> None:
    with pytest.raises(InputError, match="not a round of training"):
        Ask.parse(text)
    with pytest.raises(InputError):
        Terms.parse(text)


def test_what_only_concerns_others_passes(world: World, terms: Terms) -> None:
    """More noise, a higher threshold that the noise is enough for, less of a budget for another client."""
    more = tampered(lambda document: document.update(sigma=[0, *(4 * s for s in document["sigma"][1:])]), terms)
    world.settings(0).check(Terms.parse(more))
    greedy = tampered(replaced("epsilon", 2, times(3.0)), terms)
    world.settings(0).check(Terms.parse(greedy))
    with pytest.raises(InputError, match="client-1 allows"):
        world.settings(1).check(Terms.parse(greedy))
    careless = tampered(replaced("needs", 2, times(0.5)), terms)
    world.settings(0).check(Terms.parse(careless))
    with pytest.raises(InputError, match="breaks the budget of client-1"):
        world.settings(1).check(Terms.parse(careless))


def test_any_peers_are_taken_only_where_the_file_says_so(world: World, terms: Terms) -> None:
    text = tampered(other_key(3), terms)
    settings = world.settings(0)
    trusting = dataclasses.replace(settings, peers=None)
    trusting.check(Terms.parse(text))
    with pytest.raises(InputError, match="not a peer"):
        settings.check(Terms.parse(text))


# The budget of a round -----------------------------------------------------------------------------------------------

BUDGETS = [
    (1.0, 1e-5),
    (4.0, 1e-5),
    (0.01, 1e-6),
    (1e-6, 1e-9),
    (1e-12, 1e-15),
    (100.0, 1e-5),
    (1e4, 1e-5),
    (1e8, 1e-5),
    (1.0, 1e-250),
    (8.0, 0.4),
    (1e-3, 1e-6),
]


def mu_of(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that is exactly (epsilon, delta)-DP, just above it: by bisection."""
    with mpmath.workdps(40 + int(-math.log10(delta) / 2)):
        eps, target = mpmath.mpf(epsilon), mpmath.mpf(delta)

        def too_much(mu: Any) -> bool:
            first = mpmath.ncdf(-eps / mu + mu / 2)
            return bool(first - mpmath.exp(eps) * mpmath.ncdf(-eps / mu - mu / 2) > target)

        low, high = mpmath.mpf(0), mpmath.mpf(1)
        while not too_much(high):
            high *= 2
        for _ in range(90):
            middle = (low + high) / 2
            low, high = (low, middle) if too_much(middle) else (middle, high)
        return math.nextafter(float(high), math.inf)


def settings_of(folder: Path, epsilon: float, delta: float, rounds: int) -> ClientSettings:
    write_settings(folder, Party("client", epsilon, delta, threshold=1), rounds, peers="any")
    return read_settings(folder / "client.toml")


def key_of(number: int) -> SessionKey:
    return SessionKey(bytes([number] * 32), bytes([number] * 32))


@pytest.mark.parametrize("rounds", [1, 2, 7])
@pytest.mark.parametrize(("epsilon", "delta"), BUDGETS)
def test_as_many_rounds_fit_as_the_file_says_and_no_more(
    tmp_path: Path, epsilon: float, delta: float, rounds: int
) -> None:
    settings = settings_of(tmp_path, epsilon, delta, rounds)
    budget = (settings.round_party.epsilon, settings.round_party.delta)
    assert budget[0] > 0
    mu = mu_of(*budget)  # the most that terms may cost
    charge = Charge(mu, 1e-50, *budget)
    assert kept_within([mu] * rounds, epsilon, delta)
    with settings.open_ledger() as ledger:
        for number in range(rounds):
            assert settings.is_ready(ledger)
            ledger.charge(key_of(number), "round", charge, unit="party", private={})
        assert not settings.is_ready(ledger)
        with pytest.raises(OverspendError):
            ledger.charge(key_of(255), "one more", charge, unit="party", private={})
        ledger.verify()
    assert mu * math.sqrt(rounds) > 0.999 * mu_of(epsilon, delta)  # next to nothing is given away


@pytest.mark.parametrize("rounds", [100, 10_000, 1_000_000])
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 1e-5), (8.0, 1e-6), (1e4, 1e-5), (0.1, 1e-9)])
def test_very_many_rounds_compose_to_the_budget(epsilon: float, delta: float, rounds: int) -> None:
    identity = Ed25519PrivateKey.generate()
    party = Party("client", epsilon, delta, threshold=1)
    share = ClientSettings(party, identity, Path("no.ledger"), rounds=rounds, peers=None).round_party
    whole = mu_of(share.epsilon, share.delta) * math.sqrt(rounds)
    assert kept_within([whole], epsilon, delta)
    assert whole > 0.999 * mu_of(epsilon, delta)


@pytest.mark.parametrize(
    ("epsilon", "delta", "rounds"),
    [(1.0, 1e-3, 30_000), (1e-3, 1e-3, 7), (0.1, 0.01, 1000), (1.0, 0.3, 5), (1e-12, 1e-6, 2)],
)
def test_a_round_always_has_a_budget(tmp_path: Path, epsilon: float, delta: float, rounds: int) -> None:
    assert settings_of(tmp_path, epsilon, delta, rounds).round_party.epsilon > 0


def test_an_infinite_budget(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, math.inf, 1e-5, 3)
    assert settings.round_party.epsilon == settings.round_mu == math.inf
    with settings.open_ledger() as ledger:
        assert settings.is_ready(ledger)


def test_the_budget_of_the_file_holds_whatever_the_ledger_allows(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, 1.0, 1e-5, 2)
    with Ledger.open(settings.ledger) as ledger:
        ledger.set_limit(50.0, 1e-5)
    try:
        with settings.open_ledger() as ledger:
            for number in range(2):
                cost = Charge(settings.round_mu, 0.0, 0.0, 0.0)
                ledger.charge(key_of(number), "round", cost, unit="party", private={})
            ready = settings.is_ready(ledger)
    except TpmdpError:
        return  # as good: such a ledger is refused
    assert not ready


# Files ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    line = write_settings(tmp_path, Party("client", 1.0, 1e-5, threshold=2), 3)
    server = public_text(Ed25519PrivateKey.generate())
    (tmp_path / "peers.toml").write_text(f'{line}\nserver = "{server}"\n')
    return tmp_path


def edit(folder: Path, old: str, new: str) -> None:
    path = folder / "client.toml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))


def test_a_good_file(folder: Path) -> None:
    settings = read_settings(folder / "client.toml")
    assert settings.party == Party("client", 1.0, 1e-5, public_key=settings.public_key, threshold=2)
    assert (settings.name, settings.rounds, settings.threshold) == ("client", 3, 2)
    assert settings.peers is not None
    assert settings.peers["client"] == settings.public_key
    assert set(settings.peers) == {"client", "server"}
    assert repr(settings) == "ClientSettings(client)"
    for name in ("client.key", "client.ledger"):
        assert (folder / name).stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("name", ["client.toml", "client.key", "peers.toml"])
def test_missing_files(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(FileError, match="does not exist"):
        read_settings(folder / "client.toml")


def test_a_missing_ledger(folder: Path) -> None:
    settings = read_settings(folder / "client.toml")
    (folder / "client.ledger").unlink()
    with pytest.raises(FileError, match="does not exist"):
        settings.open_ledger()


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_files_that_others_can_read(folder: Path) -> None:
    settings = read_settings(folder / "client.toml")
    (folder / "client.ledger").chmod(0o644)
    with pytest.raises(FileError, match="open to others"):
        settings.open_ledger()
    (folder / "client.key").chmod(0o640)
    with pytest.raises(FileError, match="read by others"):
        read_settings(folder / "client.toml")


def test_the_ledger_of_somebody_else(folder: Path) -> None:
    (folder / "client.ledger").unlink()
    Ledger.create(folder / "client.ledger", "other", 1.0, 1e-5, "party").close()
    with pytest.raises(FileError, match="is the ledger of other"):
        read_settings(folder / "client.toml").open_ledger()


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("epsilon = 1.0", 'epsilon = "1.0"', "remove the quotes"),
        ("epsilon = 1.0", "epsilon = -1.0", "greater than 0"),
        ("epsilon = 1.0", "epsilon = 0", "greater than 0"),
        ("epsilon = 1.0", "epsilon = nan", "not a number"),
        ("epsilon = 1.0", "epsilon = true", "not a number"),
        ("epsilon = 1.0", f"epsilon = 1{'0' * 400}", "out of range"),
        ("delta = 1e-05", "delta = 0", "pure epsilon-DP"),
        ("delta = 1e-05", "delta = 1.0", r"\(0, 1\)"),
        ("delta = 1e-05", "delta = inf", r"\(0, 1\)"),
        ("rounds = 3", "rounds = 0", "whole number"),
        ("rounds = 3", "rounds = 3.0", "whole number"),
        ("rounds = 3", "rounds = inf", "whole number"),
        ("threshold = 2", "threshold = 0", "whole number"),
        ("threshold = 2", "threshold = true", "whole number"),
        ("threshold = 2", "threshold = 2\ncolour = 1", "unknown"),
        ("threshold = 2\n", "", "missing"),
        ('name = "client"', 'name = "server"', "is the server's"),
        ('name = "client"', 'name = "../x"', "must be letters"),
        ('name = "client"', "name = 3", "must be letters"),
        ('peers = "peers.toml"', "peers = []", "printable"),
        ('key = "client.key"', 'key = ""', "printable"),
    ],
)
def test_bad_values(folder: Path, old: str, new: str, reason: str) -> None:
    edit(folder, old, new)
    with pytest.raises(InputError, match=reason):
        read_settings(folder / "client.toml")


@pytest.mark.parametrize("text", ["name = ", "\0", "a = 1\na = 2", "[" * 3000, "name = inf inf"])
def test_files_that_are_no_toml(folder: Path, text: str) -> None:
    (folder / "client.toml").write_text(text)
    with pytest.raises(FileError, match="is not valid TOML"):
        read_settings(folder / "client.toml")
    (folder / "client.toml").write_bytes(b"name = \xff")
    with pytest.raises(FileError, match="is not UTF-8 text"):
        read_settings(folder / "client.toml")


def test_infinity_in_toml(folder: Path) -> None:
    edit(folder, "epsilon = 1.0", "epsilon = inf")
    assert read_settings(folder / "client.toml").round_party.epsilon == math.inf


def test_folders_and_huge_files_are_no_settings(folder: Path) -> None:
    with pytest.raises(FileError, match="is a folder"):
        read_settings(folder)
    (folder / "big.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(FileError, match="bytes"):
        read_settings(folder / "big.toml")


@pytest.mark.parametrize("line", ['x = "ed25519:"', "x = 1", 'x = "ed25519:AAAA"', 'x = "rsa:AAAA"', "[x]\ny = 1"])
def test_peers_that_are_no_keys(folder: Path, line: str) -> None:
    (folder / "peers.toml").write_text(line + "\n")
    with pytest.raises(InputError, match="not a public key"):
        read_peers(folder / "peers.toml")


def test_peers_are_read_again_when_they_change(folder: Path) -> None:
    before = read_peers(folder / "peers.toml")
    before["x"] = b"changed by the caller"
    assert set(read_peers(folder / "peers.toml")) == {"client", "server"}
    path = folder / "peers.toml"
    path.write_text(path.read_text().splitlines()[0] + "\n")
    os.utime(path, ns=(1, 1))
    assert set(read_peers(path)) == {"client"}


def test_nothing_is_replaced(folder: Path) -> None:
    for gone in ("client.toml", "client.key"):
        (folder / gone).unlink()
        with pytest.raises(FileError, match="exists already"):
            write_settings(folder, Party("client", 1.0, 1e-5, threshold=2), 3)
        assert not (folder / gone).exists()


def test_a_ledger_belongs_to_one_key(tmp_path: Path) -> None:
    """From the start, and an old one that was made without a key from its first use on."""
    settings = settings_of(tmp_path / "new", 1.0, 1e-5, 2)
    with settings.open_ledger() as ledger:
        assert ledger.owner == settings.public_key
    other = dataclasses.replace(settings, identity=Ed25519PrivateKey.generate())
    with pytest.raises(LedgerError, match="belongs to the key"):
        other.open_ledger()
    old = tmp_path / "old.ledger"
    Ledger.create(old, "client", 1.0, 1e-5, unit="party").close()
    dataclasses.replace(settings, ledger=old).open_ledger().close()
    with pytest.raises(LedgerError, match="belongs to the key"):
        dataclasses.replace(other, ledger=old).open_ledger()
