"""The client's mod: nothing gets around it, nothing but protocol messages gets out of it, and garbage costs nothing."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flwr.app import ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.common.serde import message_to_proto
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.flower.hostile import Hostile
from tests.flower.local_grid import LocalGrid, fields
from tests.flower.world import (
    AGREE,
    CLAIM,
    KEYS,
    KNOWN_FIELDS,
    LOSS,
    RECEIPT,
    REVEAL,
    SAID,
    SHARE,
    SUBMIT,
    World,
    check_replies,
    inbox,
    make_world,
    outbox,
    peel,
    problem,
    record_of_arrays,
)
from tpmdp.errors import InputError
from tpmdp.flower import private_mod
from tpmdp.flower.introduction import question
from tpmdp.flower.message_replay import Memory
from tpmdp.flower.mod import STATE
from tpmdp.flower.wire import pack, pack_text, record_of
from tpmdp.ledger import Ledger, LedgerError
from tpmdp.protocol.messages import Kind
from tpmdp.study.session import STATISTIC

ZEROS = {"w": np.zeros(3)}
PRIVATE = ("key", "pad", STATISTIC, "vector")  # what is in a ledger by such names goes nowhere


def plain(kind: str, content: RecordDict | None = None) -> Message:
    given = RecordDict({"arrays": record_of_arrays(ZEROS), "config": ConfigRecord({"server-round": 1})})
    return Message(given if content is None else content, dst_node_id=100, message_type=kind)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path, 2)


@pytest.fixture
def server(world: World) -> Hostile:
    return Hostile(world)


# What is not ours ----------------------------------------------------------------------------------------------------

KINDS = ["train", "train.special", "query", "query.special"]
CONTENTS: dict[str, RecordDict | None] = {
    "a model": None,
    "nothing": RecordDict(),
    "a record of metrics by our name": RecordDict({"tpmdp": MetricRecord({"version": 1})}),
    "no version": RecordDict({"tpmdp": ConfigRecord({"enrol": True})}),
    "another version": RecordDict({"tpmdp": ConfigRecord({"version": 2, "enrol": True})}),
    "a version of text": RecordDict({"tpmdp": ConfigRecord({"version": "1", "enrol": True})}),
    "our fields by another name": RecordDict({"Tpmdp": ConfigRecord({"version": 1, "enrol": True})}),
}


@pytest.mark.parametrize("evaluate", [False, True])
@pytest.mark.parametrize("what", CONTENTS)
def test_messages_that_are_not_ours_are_refused(tmp_path: Path, what: str, evaluate: bool) -> None:
    world = make_world(tmp_path, 1, evaluate=evaluate)
    for kind in KINDS if evaluate else [*KINDS, "evaluate"]:
        reply = world.grid.deliver(0, plain(kind, CONTENTS[what]))
        assert reply.has_error()
        assert reply.error.code == 403
    assert world.trained == []
    check_replies(world)


def test_an_app_of_the_old_kind_is_guarded_too(world: World) -> None:
    """Flower's client_fn answers to old message types as well."""
    from flwr.client import NumPyClient

    class Old(NumPyClient):
        def get_parameters(self, config: Any) -> Any:
            del config
            raise AssertionError("asked around the mod")

        get_properties = get_parameters

    app = ClientApp(client_fn=lambda _: Old().to_client(), mods=[private_mod(world.settings_of)])
    grid = LocalGrid(app, 1)
    for kind in ("train", "evaluate", "query"):
        assert grid.deliver(0, plain(kind)).error.code == 403


def test_evaluation_gets_through_only_where_it_is_allowed(tmp_path: Path) -> None:
    open_world = make_world(tmp_path, 1, evaluate=True)
    reply = open_world.grid.deliver(0, plain("evaluate"))
    assert reply.content.metric_records["metrics"]["loss"] == LOSS
    ours = plain("evaluate", record_of(question(Hostile(open_world).public, bytes(32))))
    assert set(fields(open_world.grid.deliver(0, ours))) == {"version", "note", *CLAIM}
    assert open_world.trained == []


@pytest.mark.parametrize("kind", ["evaluate", "query", "query.special", "train.special"])
@pytest.mark.parametrize("evaluate", [False, True])
def test_our_messages_of_other_types_give_protocol_messages_only(tmp_path: Path, kind: str, evaluate: bool) -> None:
    world = make_world(tmp_path, 1, evaluate=evaluate)
    server = Hostile(world)
    terms = server.terms()
    (key,) = (message for message in server.offer(0, terms) if message.kind == KEYS)
    reply = server.ask(0, train=terms, inbox=[server.key_message(terms)], kind=kind)
    assert [message.kind for message in outbox(reply)] in ([], [SUBMIT])
    assert key.sender == 1
    world.check()


# What gets out -------------------------------------------------------------------------------------------------------


def everything_in(reply: Message) -> bytes:
    """A reply as it goes over the wire, and its packed messages unpacked."""
    wire = message_to_proto(reply).SerializeToString()
    return bytes(wire) + b"".join(message.data for message in outbox(reply))


@pytest.mark.parametrize("tolerate", [0, 1])
def test_replies_have_nothing_of_the_app_and_the_files(tmp_path: Path, tolerate: int) -> None:
    world = make_world(tmp_path, 3, examples=[987654321, 123456787, 192837465], threshold=1)
    secret: list[bytes] = [SAID.encode(), str(tmp_path).encode(), struct.pack("<d", LOSS), struct.pack(">d", LOSS)]

    def say(number: int, message: Message, content: RecordDict) -> RecordDict:
        content["more"] = ConfigRecord({"said": SAID})
        secret.append(content.array_records["arrays"]["w"].data)
        secret.append(content.array_records["arrays"]["w"].numpy().tobytes())
        secret.append(
            (
                content.array_records["arrays"]["w"].numpy() - message.content.array_records["arrays"]["w"].numpy()
            ).tobytes()
        )
        if number == 2 and len(world.trained) > 4:
            raise RuntimeError(SAID)
        return content

    world.hook = say
    strategy = world.strategy(tolerate=tolerate, examples_most=1 << 30)
    world.start(strategy, rounds=3)
    for number in range(3):
        secret += [value for (_, name), value in world.private(number).items() if name.startswith(PRIVATE)]
        secret.append((world.folder / f"client-{number}.key").read_bytes().splitlines()[1])
        secret.append(world.settings(number).identity.private_bytes_raw())
        secret += [struct.pack("<d", line.mu) for line in world.lines(number) if line.mu]
        secret += [str(world.examples[number]).encode(), struct.pack("<q", world.examples[number])]
    assert len(secret) > 20
    spoken = 0
    for _, _, reply in world.grid.made:
        assert not reply.has_error()
        wire = everything_in(reply)
        assert not [part for part in secret if part in wire]
        assert set(fields(reply)) <= KNOWN_FIELDS
        spoken += bool(problem(reply))
    assert not spoken  # not even that an app fails
    world.check()


def raising(error: Exception) -> Any:
    def hook(number: int, message: Message, content: RecordDict) -> RecordDict:
        raise error

    return hook


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError(SAID),
        InputError(SAID, SAID, SAID, SAID),
        LedgerError(SAID, SAID, SAID),
        KeyError(SAID),
        OSError(2, SAID, "/home/doctor"),
        StopIteration(SAID),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_an_app_says_as_it_fails_stays_here(world: World, server: Hostile, error: Exception) -> None:
    world.hook = raising(error)
    terms = server.terms()
    server.offer(0, terms)
    reply = server.ask(0, train=terms)
    assert not problem(reply)
    assert SAID.encode() not in everything_in(reply)
    assert world.charged(0) == [terms.session.hex()]
    world.check()


def broken_settings(world: World, case: str) -> None:
    folder = world.folder
    settings_file, peers = folder / "client-0.toml", folder / "peers.toml"
    text = settings_file.read_text()
    if case == "unknown key":
        settings_file.write_text(text + f'colour = "{SAID}"\n')
    elif case == "missing key":
        settings_file.write_text(text.replace("threshold = 1\n", ""))
    elif case == "peer that is no key":
        peers.write_text(peers.read_text() + f'somebody = "{SAID}"\n')
    elif case == "no TOML":
        settings_file.write_text(f"{SAID} =")
    elif case == "no settings":
        settings_file.unlink()
    elif case == "no ledger":
        (folder / "client-0.ledger").unlink()
    elif case == "ledger of another":
        (folder / "client-0.ledger").unlink()
        Ledger.create(folder / "client-0.ledger", "other", 1.0, 1e-5, "party").close()
    elif case == "damaged ledger":
        (folder / "client-0.ledger").write_bytes(b"not a ledger at all")
    elif case == "no key":
        (folder / "client-0.key").write_text(SAID)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param("unknown key"),
        pytest.param("missing key"),
        pytest.param("peer that is no key"),
        "no TOML",
        "no settings",
        "no ledger",
        "ledger of another",
        "damaged ledger",
        "no key",
    ],
)
def test_what_is_wrong_with_files_stays_here(world: World, server: Hostile, case: str) -> None:
    broken_settings(world, case)
    reply = server.ask(0, enrol=True)
    assert problem(reply)
    wire = everything_in(reply)
    for word in (SAID, "colour", str(world.folder), ".toml", ".ledger", "other"):
        assert word.encode() not in wire


def test_a_node_without_settings(world: World) -> None:
    app = ClientApp(mods=[private_mod()])

    @app.train()
    def train(message: Message, context: Context) -> Message:
        raise AssertionError("asked around the mod")

    reply = LocalGrid(app, 1).deliver(0, plain("train", record_of({"enrol": True})))
    assert "tpmdp-party" in problem(reply)


# Budget --------------------------------------------------------------------------------------------------------------


def test_no_room_no_training(world: World, server: Hostile) -> None:
    """The app is not even asked; what is spent is not told."""
    terms = server.terms()
    with Ledger.open(world.folder / "client-0.ledger") as ledger:
        ledger.set_limit(0.01, 1e-5)
    keys = server.offer_all(terms)
    reply = server.ask(0, train=terms, inbox=[server.key_message(terms), *keys[1:]])
    assert outbox(reply) == []
    assert problem(reply) == "has no budget left for this round"
    assert fields(reply)["ready"] is False
    assert fields(server.ask(0, enrol=True))["ready"] is False
    assert world.trained == []
    assert world.charged(0) == []


# Nodes that forget, messages that come twice -------------------------------------------------------------------------


@pytest.mark.parametrize("tolerate", [0, 1])
@pytest.mark.parametrize("step", range(5))
def test_a_node_that_forgets_at_any_step(tmp_path: Path, step: int, tolerate: int) -> None:
    """A SuperNode started again loses Flower's state, not its ledger. Training goes on; nothing is paid twice."""
    world = make_world(tmp_path, 3, rounds=8)
    requests: list[Message] = []

    def forget(number: int, message: Message) -> bool:
        if number == 0:
            if len(requests) == step:
                world.grid.contexts[100].state = RecordDict()
            requests.append(message)
        return False

    world.grid.lose_request = forget
    strategy = world.strategy(tolerate=tolerate)
    world.start(strategy, rounds=2)
    assert [report.number for report in strategy.reports] == [1, 2]
    assert len(requests) > min(step, 3)
    if tolerate and step == 4:  # as it was to open, which the others do without it
        assert {message.kind for message in inbox(requests[4])} >= {Kind.OPEN}
        assert strategy.reports[0].sessions == 1


def test_what_a_client_remembers_after_its_submission(tmp_path: Path) -> None:
    """A party that is started anew opens an attempt with these; pads are of no more use, and neither is OPEN."""
    world = make_world(tmp_path, 3, rounds=8)
    remembered: list[set[int]] = []

    def look(number: int, message: Message) -> bool:
        if Kind.OPEN in {item.kind for item in inbox(message)}:
            memory = Memory(world.grid.contexts[100 + number], STATE)
            (session,) = (session for session in memory.sessions() if memory.inbox(session))
            remembered.append({peel(data).kind for data in memory.inbox(session)})
        return False

    world.grid.lose_request = look
    world.start(world.strategy(tolerate=1))
    assert len(remembered) == 3
    assert set.union(*remembered) <= {KEYS, Kind.LIST, SHARE}
    assert all({KEYS, Kind.LIST} <= kinds for kinds in remembered)


@pytest.mark.parametrize("tolerate", [0, 1])
def test_every_request_delivered_twice(tmp_path: Path, tolerate: int) -> None:
    world = make_world(tmp_path, 3)
    once = world.grid.deliver

    def twice(number: int, message: Message) -> Message:
        reply = once(number, message)
        again = once(number, message)
        assert {item.data for item in outbox(again)} <= {item.data for item in outbox(reply)}
        return reply

    world.grid.deliver = twice  # type: ignore[method-assign]
    strategy = world.strategy(tolerate=tolerate)
    world.start(strategy, rounds=2)
    assert [report.clients for report in strategy.reports] == [3, 3]
    for number in range(3):
        assert len(world.charged(number)) == len(world.settled(number)) == 2
    assert len(world.trained) == 6
    world.check()


def test_a_state_of_another_training_and_garbage_in_it(world: World, server: Hostile) -> None:
    world.start(world.strategy(name="earlier"), rounds=1)
    state = world.grid.contexts[100].state
    state["other"] = ConfigRecord({"x": 1})
    strategy = world.strategy(name="later")
    world.start(strategy, rounds=1)
    assert len(strategy.reports) == 1
    assert world.grid.contexts[100].state["other"] == ConfigRecord({"x": 1})


def test_two_trainings_at_the_same_time(tmp_path: Path) -> None:
    """Two sessions at every step in the same nodes: each gets its own sum."""
    world = make_world(tmp_path, 2, rounds=4)
    servers = [Hostile(world, name="one"), Hostile(world, name="two", clip=0.5)]
    terms = [server.terms(f"label {place}") for place, server in enumerate(servers)]
    keys = [server.offer_all(one) for server, one in zip(servers, terms, strict=True)]
    for number in range(2):
        for place, server in enumerate(servers):
            other = [server.key_message(terms[place]), keys[place][1 - number]]
            mixed = [servers[1 - place].key_message(terms[1 - place]), *other]
            found = outbox(server.ask(number, train=terms[place], inbox=mixed))
            assert [message.kind for message in found] == [Kind.PAD, SUBMIT]
            assert {message.session for message in found} == {terms[place].session}
    for number in range(2):
        assert world.charged(number) == [one.session.hex() for one in terms]
    assert world.trained == [(0, 1), (0, 1), (1, 1), (1, 1)]
    world.check()


def test_one_broken_session_does_not_stop_another(world: World, server: Hostile) -> None:
    terms = [server.terms("one"), server.terms("two")]
    keys = [server.offer_all(one) for one in terms]
    broken = server.sign(terms[0], Kind.RESULT, 1, bytes(40), 1)
    server.ask(0, train=terms[0])
    good = [server.key_message(terms[1]), keys[1][1]]
    reply = server.ask(0, train=terms[1], inbox=[broken, *good])
    assert [message.kind for message in outbox(reply)] == [Kind.PAD, SUBMIT]
    assert "breaks the protocol" in problem(reply)
    world.check()


# What an app may answer ----------------------------------------------------------------------------------------------


def without(*names: str) -> Any:
    def hook(number: int, message: Message, content: RecordDict) -> RecordDict:
        for name in names:
            del content[name]
        return content

    return hook


def arrays(**given: Any) -> Any:
    def hook(number: int, message: Message, content: RecordDict) -> RecordDict:
        content["arrays"] = record_of_arrays({name: np.asarray(value) for name, value in given.items()})
        return content

    return hook


def metric(**given: Any) -> Any:
    def hook(number: int, message: Message, content: RecordDict) -> RecordDict:
        content["metrics"] = MetricRecord({name.replace("_", "-"): value for name, value in given.items()})
        return content

    return hook


def two_records(number: int, message: Message, content: RecordDict) -> RecordDict:
    content["second"] = record_of_arrays(ZEROS)
    return content


def two_counts(number: int, message: Message, content: RecordDict) -> RecordDict:
    content["second"] = MetricRecord({"num-examples": 3})
    return content


NO_MODEL: dict[str, Any] = {
    "no arrays": without("arrays"),
    "two records of arrays": two_records,
    "another name": arrays(v=np.zeros(3)),
    "one array more": arrays(w=np.zeros(3), v=np.zeros(1)),
    "another shape": arrays(w=np.zeros((3, 1))),
    "other length": arrays(w=np.zeros(4)),
    "texts": arrays(w=np.array(["a", "b", "c"])),
    "no count": metric(loss=1.0),
    "no metrics": without("metrics"),
    "two counts": two_counts,
    "a negative count": metric(num_examples=-1),
    "a count that is no number": metric(num_examples=float("nan")),
    "a list of counts": metric(num_examples=[1, 2]),
}


@pytest.mark.parametrize("case", NO_MODEL)
def test_apps_that_give_no_model(world: World, case: str) -> None:
    """Whether an app fails may depend on its data: the server cannot tell, and asks once in a charged session."""
    server = Hostile(world, examples=100)
    world.hook = NO_MODEL[case]
    terms = server.terms()
    keys = server.offer_all(terms)
    others = [server.key_message(terms), *keys[1:]]
    reply = server.ask(0, train=terms, inbox=others)
    assert [message.kind for message in outbox(reply)] == [Kind.PAD, SUBMIT]
    assert not problem(reply)
    assert world.charged(0) == [terms.session.hex()]
    good = server.ask(1, train=terms, inbox=[server.key_message(terms), keys[0], *keys[2:]])
    assert set(fields(good)) == set(fields(reply))
    world.hook = None  # it is not asked again
    assert outbox(server.ask(0, train=terms, inbox=others)) == []
    assert len(world.trained) == 2
    world.check()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_model_that_is_not_finite_counts_as_no_change(world: World, bad: float) -> None:
    """It is charged and noisy like any other: who gives such a model is not to be seen."""
    server = Hostile(world)
    world.hook = arrays(w=[1.0, bad, 0.0])
    terms = server.terms()
    keys = server.offer_all(terms)
    reply = server.ask(0, train=terms, inbox=[server.key_message(terms), *keys[1:]])
    assert [message.kind for message in outbox(reply)] == [Kind.PAD, SUBMIT]
    assert problem(reply) == ""
    assert world.charged(0) == [terms.session.hex()]


@pytest.mark.parametrize(
    "model", [np.zeros(2), np.zeros(4), np.zeros((3, 3)), np.array([1, 2, 3])], ids=["short", "long", "square", "whole"]
)
def test_a_model_of_another_size_than_the_terms(world: World, server: Hostile, model: Any) -> None:
    world.hook = lambda _, message, content: RecordDict(
        {"arrays": message.content.array_records["arrays"], "metrics": content["metrics"]}
    )
    world.updates[0] = np.zeros(20)
    terms = Hostile(make_like(world)).terms()
    server.offer(0, terms)
    reply = server.ask(0, train=terms, model=model)
    assert outbox(reply) == []
    assert problem(reply)
    assert world.charged(0) == []


def make_like(world: World) -> World:
    """The same clients with a model of three entries."""
    return World(world.folder, [np.zeros(3)] * world.count, world.examples, world.server, world.settings_of)


# Fuzzing -------------------------------------------------------------------------------------------------------------

TEXT = st.text(max_size=20)
BYTES = st.binary(max_size=60) | st.binary(min_size=32, max_size=32)
VALUE = (
    st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats()
    | TEXT
    | BYTES
    | st.lists(st.binary(max_size=5), max_size=2)
)
PACKED = (
    BYTES.map(lambda data: b"z" + data) | BYTES.map(lambda data: b"-" + data) | st.lists(BYTES, max_size=3).map(pack)
)


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory: pytest.TempPathFactory) -> World:
    return make_world(tmp_path_factory.mktemp("fuzz"), 1)


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    st.dictionaries(
        st.sampled_from(["version", "enrol", "inbox", "terms", "train", "problem", "more"]), VALUE | PACKED, max_size=5
    ),
    st.booleans(),
)
def test_any_fields_get_an_answer_and_cost_nothing(fuzzed: World, some: dict[str, Any], good: bool) -> None:
    content = RecordDict({"tpmdp": ConfigRecord({**some, **({"version": 1} if good else {})})})
    content["arrays"] = record_of_arrays(ZEROS)
    fuzzed.grid.made.clear()
    reply = fuzzed.grid.deliver(0, plain("train", content))
    if reply.has_error():
        assert reply.error.code == 403  # Flower would have said 1 for an exception
        assert some.get("version") != 1 or not good
    check_replies(fuzzed)
    assert fuzzed.charged(0) == []
    assert fuzzed.trained == []


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_damaged_messages_and_terms(fuzzed: World, data: st.DataObject) -> None:
    """Good bytes with one of them changed, cut off or repeated."""
    server = Hostile(fuzzed)
    server.keys = server.keys[:2]
    terms = server.terms(f"label {data.draw(st.integers(0, 5))}")

    def damaged(good: bytes) -> bytes:
        place = data.draw(st.integers(0, 10**6)) % len(good)
        how = data.draw(st.sampled_from(["flip", "cut", "twice", "insert"]))
        if how == "flip":
            return good[:place] + bytes([good[place] ^ (1 << data.draw(st.integers(0, 7)))]) + good[place + 1 :]
        if how == "cut":
            return good[:place]
        return good + good if how == "twice" else good[:place] + b"\0" + good[place:]

    fuzzed.grid.made.clear()
    content = record_of({"terms": damaged(pack_text(terms.canonical()))})
    assert outbox(fuzzed.grid.deliver(0, plain("train", content))) == []
    text = damaged(terms.canonical().encode())
    content = record_of({"terms": pack_text(text.decode("latin-1"))})
    reply = fuzzed.grid.deliver(0, plain("train", content))
    if outbox(reply):  # another label, or the server's own delta: harmless, and then it is signed as it is
        assert all(message.kind in (AGREE, KEYS) for message in outbox(reply))
    for packed in (damaged(pack([server.key_message(terms)])), pack([damaged(server.key_message(terms))])):
        content = record_of({"inbox": packed})
        assert outbox(fuzzed.grid.deliver(0, plain("train", content))) == []
    check_replies(fuzzed)
    assert fuzzed.charged(0) == []


def test_a_bomb_of_zeros_is_refused(world: World) -> None:
    import zlib

    bomb = b"z" + zlib.compress(bytes(1 << 25))
    reply = world.grid.deliver(0, plain("train", record_of({"terms": bomb})))
    assert "too long" in problem(reply)


@pytest.mark.parametrize("tolerate", [0, 1])
def test_requests_have_what_clients_need_and_no_more(tmp_path: Path, tolerate: int) -> None:
    """What the server sends a client: headers, keys, groups and receipts of others, no submission of another client."""
    world = make_world(tmp_path, 3)
    world.start(world.strategy(tolerate=tolerate), rounds=2)
    seen = set()
    for number, request, _ in world.grid.log:
        for message in inbox(request):
            seen.add(message.kind)
            assert message.sender != number + 1
    both = {KEYS, RECEIPT, Kind.LIST, Kind.PAD}
    assert seen == (both | {SHARE, Kind.OPEN} if tolerate else both)
    said = {message.kind for _, _, reply in world.grid.made for message in outbox(reply)}
    assert {REVEAL, SHARE} & said == ({REVEAL, SHARE} if tolerate else set())
