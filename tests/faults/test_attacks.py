"""Attacks by relay, strangers and parties: a session is finished rightly or refused, never answered wrongly."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults.consortium import NAMES, Consortium, check_answers, ended, wait_until
from tests.faults.evil_relay import EvilRelay, FlipOnce, TarPit, join
from tests.patience import HANG_S
from tpmdp._util.clock import now_s
from tpmdp.engines.relay.mailbox import Mailbox
from tpmdp.engines.relay.wire import frame
from tpmdp.ledger import Ledger
from tpmdp.protocol.channel import SEAL_BYTES, open_sealed
from tpmdp.protocol.hybrid import HybridKey
from tpmdp.protocol.messages import EVERYONE, HASH_BYTES, Kind, Message, MessageError, decode, encode
from tpmdp.protocol.messages import verify as verify_signature
from tpmdp.protocol.rules import COUNTED_BYTES
from tpmdp.protocol.terms import Terms
from tpmdp.study.identity import read_key
from tpmdp.study.session import key_of

pytestmark = pytest.mark.process

Batch = list[tuple[int, bytes]]


def old_messages(folder: Path) -> list[bytes]:
    """Everything that was sent in a session that finished."""
    folder.mkdir()
    with Consortium(folder) as consortium:
        consortium.relay()
        for process in consortium.join_all():
            assert ended(process).code == 0
        connection = sqlite3.connect(consortium.store)
        rows = connection.execute("SELECT data FROM messages ORDER BY number").fetchall()
        connection.close()
        return [row[0] for row in rows]


def attack_with(mode: str, replayed: list[bytes]) -> Callable[[Batch], bytes]:
    attacks: dict[str, Callable[[Batch], bytes]] = {
        "bit flips": FlipOnce(),
        "duplicates": lambda batch: join(batch) + join(batch) + join(batch[::-1]),
        "reversed order": lambda batch: join(batch[::-1]),
        "replays of another session": lambda batch: b"".join(map(frame, replayed)) + join(batch),
        "wrong type": lambda batch: frame(b"<html>" * 50) + frame(b"") + join(batch),
        "truncated messages": lambda batch: join([(0, data[:-1]) for _, data in batch]) + join(batch),
    }
    return attacks[mode]


@pytest.mark.parametrize(
    "mode",
    [
        "bit flips",
        "duplicates",
        "reversed order",
        "replays of another session",
        "wrong type",
        "truncated messages",
    ],
)
def test_a_relay_that_adds_rubbish_changes_nothing(tmp_path: Path, mode: str) -> None:
    replayed = old_messages(tmp_path / "old") if mode.startswith("replays") else []
    (tmp_path / "new").mkdir()
    with Consortium(tmp_path / "new") as consortium:
        consortium.relay()
        with EvilRelay(consortium.url, attack_with(mode, replayed)) as evil:
            processes = {name: consortium.join(name, "--relay", evil.url) for name in NAMES}
            told = {name: ended(process) for name, process in processes.items()}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize(
    ("mode", "attack"),
    [
        ("cut frames", lambda batch: join(batch)[:-1]),
        ("100 megabytes", lambda batch: join(batch) + bytes(100_000_000)),
        ("a web page", lambda _: b"<html>not a relay</html>" * 10),
    ],
)
def test_a_relay_that_sends_nonsense_is_left_in_good_order(
    tmp_path: Path, mode: str, attack: Callable[[Batch], bytes]
) -> None:
    del mode
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        with EvilRelay(consortium.url, attack) as evil:
            event = tmp_path / "a party gave up"
            harm = (f"late:{event}",)
            processes = [consortium.join(name, "--relay", evil.url, harm=harm) for name in NAMES]
            wait_until(lambda: any(process.poll() is not None for process in processes))
            event.touch()
            told = [ended(process) for process in processes]
        assert all(one.code in (2, 3) and one.errors.count("\n") == 1 for one in told)
        assert any("the relay sent" in one.errors for one in told)
        consortium.check_ledgers()
        # With an honest relay the very same session is finished.
        again = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        check_answers(again, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize(
    "mode",
    [
        "drip",
        "silence",
        *(
            pytest.param(mode, marks=pytest.mark.long)
            for mode in ("slow head", "100 continue", "80,000 frames", "nothing at once", "a new nonce each time")
        ),
    ],
)
def test_no_relay_holds_a_party_past_its_deadline(tmp_path: Path, mode: str) -> None:
    with Consortium(tmp_path) as consortium, TarPit(mode) as pit:
        one = ended(consortium.join("north", "--relay", pit.url, "--deadline", "6s"))  # the pit would hold it longer
        assert one.code in (2, 3)
        assert one.errors.count("\n") == 1
        assert pit.requests < 300, "the party was kept busy"


def test_a_message_of_a_far_attempt_delays_nobody_else_and_its_sender_is_named(tmp_path: Path) -> None:
    """lab agrees, then sends only a submission of attempt 5, which nobody can use."""
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        terms, identity = consortium.terms, read_key(consortium.key("lab"))
        body = bytes(SEAL_BYTES + 32 + terms.masked_bytes)
        early = encode(Message(Kind.SUBMIT, 5, 2, 0, terms.session, terms.plan_hash, body), identity)
        with Mailbox(consortium.url, terms, 2, identity, now_s() + HANG_S) as mailbox:
            mailbox.post([early])
        lab = consortium.join("lab", harm=("kill:after:Mailbox.post:1",))
        event = tmp_path / "all but lab submitted"
        north, south = consortium.join_until(event, "north"), consortium.join_until(event, "south")
        lab.communicate(timeout=HANG_S)
        wait_until(lambda: Kind.SUBMIT in consortium.kinds_of(1))
        event.touch()
        assert "no mask from lab:" in ended(north).errors
        assert ended(south).code == 3


def test_a_party_with_another_plan_is_named_and_nothing_is_computed(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        parties = tuple(dataclasses.replace(m, epsilon=m.epsilon * 2) for m in consortium.study.parties)
        other = tmp_path / "other.toml"
        other.write_text(dataclasses.replace(consortium.study, parties=parties).toml())
        event = tmp_path / "enough"
        processes = [consortium.join_until(event, name) for name in ("north", "south")]
        processes.append(consortium.join("lab", study=other, harm=(f"late:{event}",)))
        wait_until(lambda: sum(kind == Kind.PARTS for kind, _ in stored_kinds(consortium)) == 4)
        event.touch()
        results = [ended(process) for process in processes]
        assert [result.code for result in results] == [3, 3, 3]
        for result in results[:2]:
            assert "lab has another epsilon of north, another epsilon of south, another epsilon of lab" in result.errors
        kinds = {kind for kind, _ in stored_kinds(consortium)}
        assert kinds == {Kind.AGREE, Kind.KEYS, Kind.PARTS, Kind.NOTES}


def stored_kinds(consortium: Consortium) -> list[tuple[int, bytes]]:
    connection = sqlite3.connect(consortium.store)
    rows = connection.execute("SELECT kind, data FROM messages ORDER BY number").fetchall()
    connection.close()
    return rows


def test_a_party_that_equivocates_is_named(tmp_path: Path) -> None:
    """lab signs a second key message with other contents, and a relay that plays along delivers both to the lead."""
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        identity, terms = read_key(consortium.key("lab")), consortium.terms
        body = HybridKey.fresh().public
        second = encode(Message(Kind.KEYS, 1, 2, EVERYONE, terms.session, terms.plan_hash, body), identity)
        with EvilRelay(consortium.url, lambda batch: join(batch) + frame(second, 10**9)) as evil:
            consortium.join("lab")
            wait_until(lambda: Kind.KEYS in consortium.kinds_of(2))  # later, its number would be below the second's
            told = ended(consortium.join("north", "--relay", evil.url))
        assert told.code == 2, told
        assert "lab sent two different KEYS messages" in told.errors
        consortium.check_ledgers()


def test_the_relay_and_colluding_non_receivers_see_ciphertext_keys_and_signatures_only(tmp_path: Path) -> None:
    """Every message at the relay is one of: an empty agreement, a public key, a digest, or a sealed box that opens
    with the addressee's key and with no other key that the colluders hold."""
    with Consortium(tmp_path, "statistical") as consortium:
        consortium.relay()
        others = [consortium.join(name) for name in ("south", "lab")]
        lead = consortium.join("north", harm=("kill:before:Ledger.settle:1",))
        lead.communicate(timeout=HANG_S)
        terms = consortium.terms
        keys: dict[int, HybridKey] = {}
        vectors = {}
        heads: list[bytes] = []
        for place, name in enumerate(NAMES):
            with Ledger.open(consortium.ledger_file(name)) as ledger:
                heads += [bytes.fromhex(entry.hash) for entry in ledger.entries()]
                kept = ledger.private_state(key_of(terms))
                keys[place] = HybridKey(kept["key 1"])
                vectors[place] = kept["vector"]
        for process in (consortium.join("north"), *others):
            assert ended(process).code == 0
        rows = stored_kinds(consortium)
        public = {place: key.public for place, key in keys.items()}
        sealed = 0
        for _, data in rows:
            message = decode(data)
            verify_signature(data, terms.roster[message.sender])
            if message.kind == Kind.AGREE:
                assert message.body == b""
            elif message.kind == Kind.KEYS:
                assert message.body == public[message.sender]
            elif message.kind == Kind.LIST:
                assert len(message.body) == 3 * HASH_BYTES
            elif message.kind == Kind.NOTES:  # sealed for its owner
                assert not any(head in message.body for head in heads)
            elif message.kind == Kind.RECEIPT:
                starts = range(0, len(message.body), COUNTED_BYTES)
                halves = [message.body[start : start + COUNTED_BYTES] for start in starts]
                others = [party for party in range(terms.count) if not terms.spec.receivers[party]]
                for party in others:
                    assert submission_digest(rows, party, terms.roster).startswith(halves[party])
            else:
                sealed += 1
                assert open_sealed(keys[message.recipient], public[message.sender], message)
                for other in set(keys) - {message.recipient, message.sender}:
                    for claimed in public.values():
                        with pytest.raises(MessageError):
                            open_sealed(keys[other], claimed, message)
        assert sealed == 3 + 2 + 1  # pads, submissions, the result
        stored = consortium.store.read_bytes() + wal(consortium.store)
        for place, name in enumerate(NAMES):
            if terms.sigma[place]:  # otherwise it is four well-known bytes, which any file holds somewhere
                assert vectors[place] not in stored
            assert not any(secret in stored for secret in (keys[place]._secret[:32], keys[place]._secret[32:]))
            assert read_key(consortium.key(name)).private_bytes_raw() not in stored
            assert name.encode() not in stored
        assert b"faults" not in stored


def submission_digest(rows: list[tuple[int, bytes]], sender: int, roster: tuple[bytes, ...]) -> bytes:
    data = next(data for kind, data in rows if kind == Kind.SUBMIT and decode(data).sender == sender)
    return verify_signature(data, roster[sender])


def wal(store: Path) -> bytes:
    path = store.with_name(store.name + "-wal")
    return path.read_bytes() if path.exists() else b""


def test_a_plan_computed_by_somebody_else_is_signed_only_by_whom_it_does_not_harm(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        file = tmp_path / "terms.json"
        assert ended(consortium.start("terms", str(consortium.study_file), "--out", str(file))).code == 0
        honest = Terms.parse(file.read_text())
        more = dataclasses.replace(honest, sigma=honest.sigma + 4)  # another plan, no worse for anybody
        file.write_text(more.canonical())
        processes = {name: consortium.join(name, "--terms", str(file)) for name in NAMES}
        check_answers({name: ended(process) for name, process in processes.items()}, consortium.study)
        weak = dataclasses.replace(honest, sigma=honest.sigma // 2)
        file.write_text(weak.canonical())
        for name in NAMES:
            consortium.ledger_file(name).unlink()
            one = ended(consortium.join(name, "--terms", str(file), "--relay", "http://127.0.0.1:9"))
            assert one.code == 2
            assert f"breaks the budget of {name}" in one.errors
            assert not consortium.ledger_file(name).exists()
        file.write_text(dataclasses.replace(honest, query="something else").canonical())
        one = ended(consortium.join("north", "--terms", str(file)))
        assert one.code == 2
        assert "terms = query differ from the study" in one.errors
        file.write_text("{}")
        assert "does not hold the terms of a session" in ended(consortium.join("north", "--terms", str(file))).errors


# Studies and names ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc/passwd", ".hidden", "x" * 80, "", "a b", "a\nb", "con..", "ü"])
def test_a_name_that_could_be_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with Consortium(tmp_path) as consortium:
        study = tmp_path / "bad.toml"
        import json

        study.write_text(consortium.study_file.read_text().replace('"lab"', json.dumps(name)))
        before = sorted(tmp_path.rglob("*"))
        for arguments in (["run", str(study)], ["keygen", name]):
            one = ended(consortium.start(*arguments))
            assert one.code == 2
            assert one.errors.count("\n") == 1
        assert sorted(tmp_path.rglob("*")) == before


def test_a_wrong_key_or_party_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        one = ended(consortium.join("lab", "--key", str(consortium.key("south"))))
        assert one.code == 2
        assert "does not fit its public key" in one.errors
        assert ended(consortium.join("north", "--as", "nobody")).code == 2
        assert consortium.senders() == set()
        assert [path.name for path in tmp_path.glob("*.ledger")] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("age\n70\n20\n66\n", "must be the number the study states (4)"),
        ("age\n70\n20\n66\nabc\n", "line 5 has no finite number in column age"),
        ("age\n70\n20\n66\nnan\n", "no finite number"),
        ("years\n70\n20\n66\n41\n", "has no column age"),
        ("", "is empty"),
    ],
)
def test_bad_data_is_refused_before_anything_is_charged(tmp_path: Path, text: str, message: str) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.data("north").write_text(text)
        one = ended(consortium.join("north", "--relay", "http://127.0.0.1:9"))
        assert one.code == 2
        assert message in one.errors
        assert "abc" not in one.errors
        with pytest.raises(FileNotFoundError):
            consortium.ledger_file("north").stat()


def test_changed_data_or_plan_is_a_new_session_with_a_new_charge(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        value = check_answers(
            {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)},
            consortium.study,
        )
        consortium.data("north").write_text("age\n70\n20\n66\n90\n")
        one = ended(consortium.join("north"))
        assert one.code == 2
        assert "was begun with other data: set session = 2" in one.errors.replace("\n", " ")
        for name in NAMES:  # room for one more session
            with Ledger.open(consortium.ledger_file(name)) as ledger:
                ledger.set_limit(5.0, 1e-6)
        told = {
            name: ended(process) for name, process in zip(NAMES, consortium.join_all("--session", "2"), strict=True)
        }
        assert told["north"].outcome["answers"][0]["value"] != value
        with Ledger.open(consortium.ledger_file("north")) as ledger:
            assert ledger.spent().sessions == 2


def test_overspending_is_refused_before_a_message_leaves_and_says_what_is_left(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        with Ledger.create(consortium.ledger_file("north"), "north", 0.3, 1e-6):
            pass
        one = ended(consortium.join("north"))
        assert one.code == 2
        assert "over the limit epsilon 0.3" in one.errors
        assert "left" in one.errors
        assert consortium.senders() == set()


def test_a_full_disk_stops_a_party_before_it_sends_and_it_can_come_back(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        with Ledger.create(consortium.ledger_file("lab"), "lab", 3.0, 1e-6):
            pass
        one = ended(consortium.join("lab", harm=("full:4096",)))
        assert one.code == 2
        assert one.errors.count("\n") == 1
        assert 2 not in consortium.senders()
        told = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


# Time -----------------------------------------------------------------------------------------------------------------


def test_a_party_that_never_comes_is_named_at_the_deadline_and_the_session_can_be_resumed(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        event = tmp_path / "both agreed"
        waiting = [consortium.join_until(event, name) for name in ("north", "south")]
        wait_until(lambda: consortium.senders() == {0, 1})
        event.touch()
        told = [ended(process) for process in waiting]
        for one in told:
            assert one.code == 3
            assert "no agreement from lab" in one.errors
        consortium.check_ledgers()
        again = {name: consortium.join(name) for name in ("north", "south")}
        wait_until(lambda: all(consortium.attempts_of(party) == {1, 2} for party in (0, 1)))
        again["lab"] = consortium.join("lab")
        late = {name: ended(process) for name, process in again.items()}
        check_answers(late, consortium.study)
        assert {one.outcome["attempt"] for one in late.values()} == {2}  # fresh keys
        consortium.check_ledgers()  # and no second charge


def test_a_relay_that_is_not_there_ends_at_the_deadline(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        one = ended(consortium.join("north", "--deadline", "10s"))
        assert one.code == 3
        assert "the relay could not be used before the deadline" in one.errors


@pytest.mark.parametrize("seconds", [86_400, -86_400])
def test_a_wrong_clock_neither_helps_nor_harms(tmp_path: Path, seconds: int) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay(f"skew:{-seconds}")
        processes = {name: consortium.join(name) for name in ("north", "lab")}
        processes["south"] = consortium.join("south", harm=(f"skew:{seconds}",))
        told = {name: ended(process) for name, process in processes.items()}
        check_answers(told, consortium.study)
        consortium.check_ledgers()


def test_a_clock_past_the_deadline_stops_a_party_before_it_is_charged(tmp_path: Path) -> None:
    from datetime import UTC, datetime, timedelta

    changes: dict[str, Any] = {"deadline": datetime.now(UTC) + timedelta(hours=1)}
    with Consortium(tmp_path, **changes) as consortium:
        consortium.relay()
        one = ended(consortium.join("south", harm=("skew:7200",)))
        assert one.code == 3
        assert "the deadline of the study has passed" in one.errors
        assert 1 not in consortium.senders()
        told = {name: ended(process) for name, process in zip(NAMES, consortium.join_all(), strict=True)}
        check_answers(told, consortium.study)


# TLS ------------------------------------------------------------------------------------------------------------------


def certificate(folder: Path, host: str = "127.0.0.1", days: tuple[int, int] = (-1, 1)) -> tuple[Path, Path]:
    """A self-signed certificate for a host, valid between these days from today, and its key."""
    from datetime import UTC, datetime, timedelta
    from ipaddress import ip_address

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "relay")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now + timedelta(days=days[0]))
        .not_valid_after(now + timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address(host))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "relay.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "relay.key").write_bytes(pem)
    return folder / "relay.pem", folder / "relay.key"


def test_parties_join_over_tls_and_refuse_a_certificate_they_do_not_know(tmp_path: Path) -> None:
    public, private = certificate(tmp_path)
    with Consortium(tmp_path) as consortium:
        words = ["relay", "--port", str(consortium.port), "--store", str(consortium.store)]
        relay = consortium.start(*words, "--certificate", str(public), "--private-key", str(private))
        assert "https://" in relay.line()
        url = consortium.url.replace("http", "https")
        one = ended(consortium.join("north", "--relay", url))
        assert one.code == 2
        assert "certificate is not trusted" in one.errors
        processes = {name: consortium.join(name, "--relay", url, "--ca", str(public)) for name in NAMES}
        check_answers({name: ended(process) for name, process in processes.items()}, consortium.study)
        consortium.check_ledgers()


@pytest.mark.parametrize(
    ("host", "days", "cause"),
    [
        ("127.0.0.1", (-9, -2), "it has expired by the clock of this machine ("),
        ("127.0.0.1", (2, 9), "it is not yet valid by the clock of this machine ("),
        ("192.0.2.1", (-1, 1), "it is not for the host 127.0.0.1: use the host name"),
    ],
)
def test_a_certificate_that_does_not_fit_names_clock_or_host(
    tmp_path: Path, host: str, days: tuple[int, int], cause: str
) -> None:
    public, private = certificate(tmp_path, host, days)
    with Consortium(tmp_path) as consortium:
        words = ["relay", "--port", str(consortium.port), "--store", str(consortium.store)]
        relay = consortium.start(*words, "--certificate", str(public), "--private-key", str(private))
        assert "https://" in relay.line()
        url = consortium.url.replace("http", "https")
        for process in (
            consortium.join("north", "--relay", url, "--ca", str(public)),
            consortium.start(
                *("status", str(consortium.study_file), "--key", str(consortium.key("lab"))),
                *("--relay", url, "--ca", str(public)),
            ),
        ):
            one = ended(process)
            assert one.code == 2
            assert cause in one.errors
            assert one.errors.count("\n") == 1


def test_tls_to_a_relay_without_is_said_at_once(tmp_path: Path) -> None:
    with Consortium(tmp_path) as consortium:
        consortium.relay()
        one = ended(consortium.join("north", "--relay", consortium.url.replace("http", "https")))
        assert (one.code, one.errors.count("\n")) == (2, 1)
        assert "does not answer with TLS: write http://" in one.errors
        assert not consortium.senders()


# The embedded run -----------------------------------------------------------------------------------------------------


def test_a_whole_study_runs_with_one_command_and_the_same_session_costs_nothing_more(tmp_path: Path) -> None:
    import json

    with Consortium(tmp_path) as consortium:
        bare = dataclasses.replace(
            consortium.study,
            parties=tuple(dataclasses.replace(member, public_key=None) for member in consortium.study.parties),
        )
        study, state = tmp_path / "bare.toml", tmp_path / "state"
        study.write_text(bare.toml())
        outcomes = []
        for _ in range(2):
            process = consortium.start("run", str(study), "--state", str(state), "--json")
            outcomes.append(ended(process).lines[-1])
        first, second = (json.dumps(one) for one in outcomes)
        assert first.replace('"again": false', '"again": true') == second
        assert oct(state.stat().st_mode)[-3:] == "700"
