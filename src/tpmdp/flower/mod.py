"""The client's side: a Flower mod that lets only protocol messages leave.

It stands between the server and an ordinary client app. The app trains as usual; its model is turned into an update,
clipped, put on the grid, given its share of noise, charged to the client's ledger and masked. Metrics, counts and
errors of the app stay here. Messages of other kinds are refused: no server can ask around the mod.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from logging import INFO, WARNING
from pathlib import Path
from typing import Final

import numpy as np
from flwr.app import ArrayRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import log

from tpmdp._util.arrays import FloatArray, IntArray
from tpmdp.errors import InputError, TpmdpError
from tpmdp.flower.client_settings import NODE_KEY, ClientSettings, read_settings
from tpmdp.flower.head_notes import check_returned, keep_heads, pack_heads
from tpmdp.flower.introduction import introduce
from tpmdp.flower.message_replay import Memory, digest, replay, signed_setup
from tpmdp.flower.round_terms import Ask
from tpmdp.flower.update import contribution, flatten, is_trained, update_of
from tpmdp.flower.wire import RECORD, Value, bytes_of, fields_of, pack, record_of, unpack, unpack_text
from tpmdp.ledger import Ledger, LedgerError, OverspendError
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.ledger.witness import LedgerNotes
from tpmdp.protocol.masks import Mask, word_type
from tpmdp.protocol.messages import Kind, MessageError, decode, session_of
from tpmdp.protocol.party import PartySession, ProtocolError
from tpmdp.protocol.secrets import FreshSecrets, MappingStore, StoredSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.protocol.vectors import Vector, noise_source, noisy_vector
from tpmdp.study.cost import charge_among
from tpmdp.study.session import STATISTIC, Payer, StatisticSeal, key_of, vector_name

STATE: Final = "tpmdp"  # in the client's context, which Flower stores between messages
EXAMPLES: Final = "num-examples"
REFUSED: Final = 403
APP_FAILED: Final = "the client app failed, and counts as no update in this round"
_SESSIONS_MAX: Final = 4  # remembered at a time
_FIRST_KEY: Final = "key 1"
_START_NODE: Final = f"start the SuperNode with --node-config '{NODE_KEY}=\"/path/to/client.toml\"'"
_NO_SETTINGS: Final = f"its node configuration has no {NODE_KEY}: {_START_NODE}"
_Replayed = tuple[PartySession, StoredSecrets, list[bytes], list[bytes]]  # with messages to send and to remember


def private_mod(settings: Callable[[Context], ClientSettings] | None = None, evaluate: bool = False) -> Mod:
    """A mod for `ClientApp(mods=[private_mod()])`; put it first.

    Settings come from the file that the node configuration names (`tpmdp-party="/srv/hospital.toml"`), or from
    `settings`. `evaluate` lets plain evaluation messages through: what the app answers to them is then NOT private.

    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[private_mod()])
    """
    settings_of = settings or _settings_of_node

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if evaluate and message.metadata.message_type.startswith("evaluate") and RECORD not in message.content:
            return call_next(message, context)
        try:
            fields = fields_of(message.content)
        except MessageError as error:
            reason = f"this client takes part in private trainings only: use tpmdp.flower.PrivateStrategy ({error})"
            return Message(Error(REFUSED, reason), reply_to=message)
        try:
            client = _Client(settings_of(context), message, context, call_next=call_next)
        except Exception as error:  # Flower would send its text to the server
            log(WARNING, "tpmdp: %s", error)
            known = isinstance(error, _NoSettingsError)
            problem = _NO_SETTINGS if known else "has settings that are not in order: its own log says why"
            return Message(record_of({"problem": problem}), reply_to=message)
        try:
            reply = client.answer(fields)
        except Exception as error:
            reply = {"problem": _logged(error)}
        return Message(record_of(reply), reply_to=message)

    return mod


@lru_cache(maxsize=8)  # clients of one simulation share their terms
def _keys_in(terms: str) -> frozenset[bytes]:
    return frozenset(Terms.parse(terms).roster)


class _NoSettingsError(InputError):
    """The node was started without settings."""


def _settings_of_node(context: Context) -> ClientSettings:
    path = context.node_config.get(NODE_KEY)
    if not isinstance(path, str):
        has = ", ".join(f"{name}={value}" for name, value in context.node_config.items()) or "(none)"
        remedy = f"{_START_NODE}; in a simulation use private_mod(simulated_clients(...))"
        raise _NoSettingsError("node configuration", has, f"has no {NODE_KEY}", remedy=remedy)
    return read_settings(Path(path))


def _logged(error: Exception) -> str:
    """Log an error in full; returns what the server may know, which is nothing about files or the ledger."""
    log(WARNING, "tpmdp: %s", error if isinstance(error, TpmdpError) else repr(error))
    if isinstance(error, OverspendError):
        return "has no budget left for this round"
    if isinstance(error, InputError | ProtocolError | MessageError | TrainingError):
        return str(error)
    return "cannot take part: its own log says why"


class TrainingError(TpmdpError):
    """The app failed, or there is no model; the app's own error stays on this machine."""


class _Client:
    """One message at a client."""

    def __init__(
        self, settings: ClientSettings, message: Message, context: Context, call_next: ClientAppCallable
    ) -> None:
        self._settings, self._message, self._context, self._call_next = settings, message, context, call_next
        self._memory = Memory(context, STATE)

    def answer(self, fields: dict[str, Value]) -> dict[str, Value]:
        """Everything the server may know."""
        settings, memory = self._settings, self._memory
        with settings.open_ledger() as ledger:
            notes = LedgerNotes(ledger, None, settings.identity)
            check_returned(notes, fields)  # before anything is agreed to or charged
            if fields.get("enrol") is True:
                node = self._message.metadata.dst_node_id
                answer = introduce(settings, fields, node, ready=settings.is_ready(ledger))
                return {**answer, "note": notes.own()}
            known = self._known_keys() if fields.get("heads") else set()
            arrived: dict[bytes, list[bytes]] = {}
            for data in unpack(bytes_of(fields, "inbox") or b"-"):
                arrived.setdefault(session_of(data), []).append(data)
            train = bytes_of(fields, "train")
            out: list[bytes] = []
            problems: list[str] = []
            for session in memory.sessions():
                try:
                    out += self._go_on(session, arrived.get(session, []), train == session, ledger=ledger)
                except TpmdpError as error:  # in this session; the others go on
                    problems.append(_logged(error))
                    if isinstance(error, ProtocolError):
                        memory.write("broken", session, b"1")
            if train and train not in memory.sessions() and ledger.charged_plan(train) is None:
                problems.append(_logged(MessageError("asked to train for terms that this client does not know")))
            reply: dict[str, Value] = {"problem": "; ".join(problems)[:1000]}
            if bytes_of(fields, "terms"):
                try:
                    terms = Terms.parse(unpack_text(bytes_of(fields, "terms")))
                    out += self._offered(terms, ledger)
                    reply["witnessed"] = pack_heads(notes.of_others(terms.roster))
                except TpmdpError as error:
                    reply["refused"] = _logged(error)[:1000]
            reply["outbox"] = pack(out)
            if fields.get("heads"):
                keep_heads(notes, fields, known | self._known_keys())  # of sessions that ended just now or were offered
            return {**reply, "ready": settings.is_ready(ledger), "note": notes.own()} if train else reply

    def _known_keys(self) -> set[bytes]:
        """The keys of the parties in the sessions that this client remembers."""
        texts = [self._memory.read("terms", session).decode() for session in self._memory.sessions()]
        return {key for text in texts for key in _keys_in(text)} - {self._settings.public_key}

    def _offered(self, terms: Terms, ledger: Ledger) -> list[bytes]:
        """Check the terms of a round to come against the settings and answer with a signed key. It costs nothing yet.

        A client signs one plan per session. With two, each client could be told that the others add the noise.
        """
        index, _ = self._settings.check(terms)
        session, memory, text = terms.session, self._memory, terms.canonical()
        if session in memory.sessions():
            if memory.read("terms", session) != text.encode():
                raise InputError("terms", terms.label, "differ from those this client has signed", "name a new session")
        else:
            key = self._key_before(terms, ledger)
            for old in memory.sessions()[: 1 - _SESSIONS_MAX]:
                memory.forget(old)
            memory.write("terms", session, text.encode())
            memory.write("key", session, key)
        secrets = StoredSecrets(MappingStore({_FIRST_KEY: memory.read("key", session)}))
        out = self._party(terms, index, _no_vector, secrets=secrets).start()
        memory.write("sent", session, [digest(data) for data in out])
        return out

    def _key_before(self, terms: Terms, ledger: Ledger) -> bytes:
        """The first attempt's key: for a session that was begun before a restart, the key it had then."""
        if ledger.charged_plan(terms.session) is None:
            return FreshSecrets().key(1)
        stored = ledger.private_state(key_of(terms))
        if _FIRST_KEY not in stored:
            raise InputError("terms", terms.label, "are of a session that is over or has others", "name a new session")
        return stored[_FIRST_KEY]

    def _go_on(self, session: bytes, arrived: list[bytes], train: bool, ledger: Ledger) -> list[bytes]:
        """Go on with a session that this client has agreed to; it sends nothing before it has trained for it."""
        memory = self._memory
        inbox = memory.inbox(session) + arrived
        terms = Terms.parse(memory.read("terms", session).decode())
        status = ledger.status(key_of(terms))
        if status == "settled" or (not arrived and not train):
            return []
        if memory.read("broken", session):
            raise ProtocolError("a party broke the protocol in this session before: start a new one")
        if status == "unknown" and not train:
            memory.write_inbox(session, memory.inbox(session) + signed_setup(terms, arrived))
            return []
        index = terms.roster.index(self._settings.public_key)  # checked when they were offered
        begun = self._begin(terms, index, inbox, ledger=ledger) if status == "unknown" else None
        party, secrets, out, useful = begun or self._resume(terms, index, inbox, ledger=ledger)
        out = memory.unsent(session, out)
        if party.receipt:
            ledger.settle(key_of(terms), "receipt", {})
            memory.forget(session)
            log(INFO, "tpmdp: %s is counted in %s", self._settings.name, terms.label)
            return out
        if party.attempt in secrets.submissions():  # pads are of no more use; without keepers, only groups are
            kinds = {Kind.GROUP, Kind.KEYS, Kind.LIST, Kind.SHARE} if terms.has_keepers else {Kind.GROUP}
            useful = [data for data in useful if decode(data).kind in kinds]
        memory.write_inbox(session, useful)
        return out

    def _party(
        self, terms: Terms, index: int, vector: Vector, secrets: StoredSecrets, attempt: int = 1
    ) -> PartySession:
        identity = self._settings.identity
        return PartySession(terms, index, identity, vector=vector, secrets=secrets, attempt=attempt)

    def _begin(self, terms: Terms, index: int, inbox: list[bytes], ledger: Ledger) -> _Replayed | None:
        """Charge, train, draw noise and replay the messages; None if another process was faster.

        The charge comes before the app: how it ends, and how long it takes, depends on the data. It runs once in a
        session. The noisy vector and the party's secrets reach the disk together, before any message leaves.
        """
        self._settings.check(terms)  # the settings may have changed since the offer
        model = _only_arrays(self._message.content, "the server's message")
        ask = Ask.parse(terms.query)
        entries = sum(array.size for array in model.to_numpy_ndarrays() if is_trained(array))
        if entries + ask.counted != terms.grid.dimension:
            rule = f"must be {terms.grid.dimension - ask.counted}, as the terms say"
            raise InputError("trained entries of the model", entries, rule, "send the model of the training")
        state = {_FIRST_KEY: self._memory.read("key", terms.session)}
        charge = charge_among(terms, index, range(terms.count))  # if later attempts cost more, that is added
        private = {"plan": terms.plan_hash, **state}
        if not ledger.charge(key_of(terms), terms.label, charge, unit="party", private=private).new:
            return None
        log(INFO, "tpmdp: %s takes part in %s, epsilon %g", self._settings.name, terms.label, charge.epsilon)
        update, share = self._train(ask, model)
        seal = StatisticSeal(self._settings.identity, key_of(terms))
        encoded = _encoded(terms, index, update, share=share)
        private = {STATISTIC: seal.sealed(encoded), **state}
        if ledger.keep_all(key_of(terms), private) != private:
            return None
        secrets = LedgerSecrets(ledger, key_of(terms))
        party = self._party(terms, index, self._vector(terms, index, encoded, ledger=ledger), secrets=secrets)
        return party, secrets, *replay(party, inbox)

    def _vector(self, terms: Terms, index: int, encoded: IntArray, ledger: Ledger) -> Vector:
        """What the client contributes to an attempt, noise included; on the disk before it is used."""
        key, word = key_of(terms), word_type(terms.grid.word)

        def vector(attempt: int, members: frozenset[int]) -> Mask:
            name = vector_name(terms, attempt)
            stored = ledger.private_state(key).get(name)
            if stored is None:
                drawn = noisy_vector(terms, index, encoded, source=noise_source(terms), members=members).tobytes()
                payer = Payer(ledger, key, terms.label, unit="party")
                stored = payer.pay(attempt, charge_among(terms, index, members), private={name: drawn})[name]
            return np.frombuffer(stored, dtype=word)

        return vector

    def _resume(self, terms: Terms, index: int, inbox: list[bytes], ledger: Ledger) -> _Replayed:
        """Go on with what the ledger has: the update is fixed, whatever the server asks now."""
        key = key_of(terms)
        stored = ledger.private_state(key)
        if not stored:
            name = f"session {terms.session.hex()[:16]}"
            raise LedgerError(name, "was begun with another plan, or is over", "start a new session")
        seal = StatisticSeal(self._settings.identity, key)
        if STATISTIC not in stored:  # cut off in training, which is not done twice: noise alone
            entries = terms.grid.dimension - Ask.parse(terms.query).counted
            nothing = _encoded(terms, index, np.zeros(entries), share=0.0)
            stored[STATISTIC] = ledger.keep(key, STATISTIC, seal.sealed(nothing))
        secrets = LedgerSecrets(ledger, key)
        vector = self._vector(terms, index, seal.opened(stored[STATISTIC]), ledger=ledger)
        party = self._party(terms, index, vector, secrets=secrets, attempt=secrets.last_attempt())
        return party, secrets, *replay(party, inbox)

    def _train(self, ask: Ask, model: ArrayRecord) -> tuple[FloatArray, float]:
        """The app's update and share of examples; a failure counts as no update, since it may depend on the data."""
        before = model.to_numpy_ndarrays()
        nothing = flatten(before) * 0.0
        del self._message.content[RECORD]
        try:
            reply = self._call_next(self._message, self._context)
            if reply.has_error():
                raise TrainingError(f"the client app gave an error: {reply.error.reason}")
            after = _only_arrays(reply.content, "the client app's reply")
            if set(after) != set(model):
                raise TrainingError("the client app's reply has other arrays than the model it was given")
            update = update_of(before, [after[name].numpy() for name in model])
            return update, _examples(reply.content) / ask.examples if ask.counted else 0.0
        except (Exception, SystemExit) as error:
            log(WARNING, "tpmdp: %s, round %s: %s: %r", self._settings.name, ask.number, APP_FAILED, error)
            return nothing, 0.0


def _no_vector(_attempt: int, _members: frozenset[int]) -> Mask:
    raise AssertionError("nothing that depends on data is sent before the training")


def _encoded(terms: Terms, index: int, update: FloatArray, share: float) -> IntArray:
    """What the client contributes, on the grid, without noise."""
    ask = Ask.parse(terms.query)
    weighted = contribution(update, ask.clip, ask.weights[index], share=share if ask.counted else None)
    return terms.grid.encode(weighted, float(terms.bounds[index]))


def _examples(content: RecordDict) -> float:
    """How many examples the app has trained with."""
    counts = [record[EXAMPLES] for record in content.metric_records.values() if EXAMPLES in record]
    if len(counts) != 1 or not isinstance(counts[0], int | float) or not counts[0] >= 0:
        raise TrainingError(f"the client app's reply has no {EXAMPLES}: add it to its MetricRecord")
    return float(counts[0])


def _only_arrays(content: RecordDict, where: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise TrainingError(f"{where} has {len(records)} array records, and must have one")
    return records[0]
