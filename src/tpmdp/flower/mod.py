"""The client's side: a Flower mod that lets nothing leave but protocol messages.

It stands between the server and an ordinary client app. The app trains as always; its model is turned into an update,
clipped, put on the grid, given its share of noise, charged to the client's own ledger and masked. Metrics, counts and
errors of the app stay here. Messages that are not ours are refused: no server can ask around the mod.
"""

from __future__ import annotations

from collections.abc import Callable
from logging import INFO, WARNING
from pathlib import Path
from typing import Final, cast

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp.typing import ClientAppCallable, Mod
from flwr.common import log

from tpmdp._util.arrays import FloatArray
from tpmdp.errors import InputError, TpmdpError
from tpmdp.flower.client_settings import NODE_KEY, Own, read_own
from tpmdp.flower.desk import mark, replay, unsent
from tpmdp.flower.rounds import Ask, published
from tpmdp.flower.update import contribution, flatten, is_trained, update_of
from tpmdp.flower.wire import RECORD, Value, bytes_of, fields_of, pack, record_of, unpack, unpack_text
from tpmdp.ledger import Ledger, LedgerError, OverspendError
from tpmdp.ledger.session_store import LedgerSecrets
from tpmdp.protocol.masks import Mask, word_type
from tpmdp.protocol.messages import Kind, MessageError, decode, session_of
from tpmdp.protocol.party import PartySession, ProtocolError
from tpmdp.protocol.secrets import FreshSecrets, MappingStore, StoredSecrets
from tpmdp.protocol.terms import Terms
from tpmdp.study.session import charge_of, noise_source, noisy_vector

STATE: Final = "tpmdp"  # in the client's own context, which Flower keeps between messages
EXAMPLES: Final = "num-examples"
REFUSED: Final = 403
_SESSIONS_MAX: Final = 4  # remembered at a time
_FIRST_KEY: Final = "key 1"
_SMALL: Final = 32_768  # bytes of a key or group
_INBOX_MAX: Final = 200_000  # messages that wait for training
_Moved = tuple[PartySession, StoredSecrets, list[bytes], list[bytes]]  # also what it says, and which messages to keep


def private_mod(party: Callable[[Context], Own] | None = None, evaluate: bool = False) -> Mod:
    """A mod for `ClientApp(mods=[private_mod()])`; put it first.

    Settings come from the file that the node configuration names (`tpmdp-party="/srv/hospital.toml"`), or from `party`.
    `evaluate` lets plain evaluation messages through: what the app answers to them is then NOT private.

    >>> from flwr.clientapp import ClientApp
    >>> app = ClientApp(mods=[private_mod()])
    """
    find = party or _party_of_node

    def mod(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        if evaluate and message.metadata.message_type.startswith("evaluate") and RECORD not in message.content:
            return call_next(message, context)
        try:
            fields = fields_of(message.content)
        except MessageError as error:
            reason = f"this client takes part in private trainings only: use tpmdp.flower.PrivateStrategy ({error})"
            return Message(Error(REFUSED, reason), reply_to=message)
        try:
            own = find(context)
        except Exception as error:  # Flower would tell the server what it says
            log(WARNING, "tpmdp: %s", error)
            known = isinstance(error, _NoSettingsError)
            problem = str(error) if known else "has settings that are not in order: its own log says why"
            return Message(record_of({"problem": problem}), reply_to=message)
        try:
            told = _Desk(own, message, context, call_next).answer(fields)
        except Exception as error:
            told = {"problem": _logged(error)}
        return Message(record_of(told), reply_to=message)

    return mod


class _NoSettingsError(InputError):
    """The node was started without settings."""


def _party_of_node(context: Context) -> Own:
    path = context.node_config.get(NODE_KEY)
    if not isinstance(path, str):
        remedy = f"start the SuperNode with --node-config '{NODE_KEY}=\"/path/to/client.toml\"'"
        raise _NoSettingsError("node configuration", "(none)", f"has no {NODE_KEY}", remedy)
    return read_own(Path(path))


def _logged(error: Exception) -> str:
    """The whole story for our own log; for the server only what is about its own messages, not our files or ledger."""
    log(WARNING, "tpmdp: %s", error if isinstance(error, TpmdpError) else repr(error))
    if isinstance(error, OverspendError):
        return "has no budget left for this round"
    if isinstance(error, InputError | ProtocolError | MessageError | TrainingError):
        return str(error)
    return "cannot take part: its own log says why"


class TrainingError(TpmdpError):
    """The app failed, or there is no model; what the app said stays on this machine."""


class _Memory:
    """What a client remembers between messages, beside its ledger: messages of others, and keys not used yet."""

    def __init__(self, context: Context) -> None:
        self._record = cast(ConfigRecord, context.state.setdefault(STATE, ConfigRecord()))

    def read(self, what: str, session: bytes) -> bytes:
        return cast(bytes, self._record.get(f"{what} {session.hex()}", b""))

    def listed(self, what: str, session: bytes) -> list[bytes]:
        return list(cast(list[bytes], self._record.get(f"{what} {session.hex()}", [])))

    def write(self, what: str, session: bytes, value: bytes | list[bytes]) -> None:
        self._record[f"{what} {session.hex()}"] = value

    def sessions(self) -> list[bytes]:
        """Those with terms, oldest first."""
        names = [name.split() for name in self._record]
        return [bytes.fromhex(parts[1]) for parts in names if parts[0] == "terms"]

    def forget(self, session: bytes) -> None:
        for name in [name for name in self._record if name.endswith(f" {session.hex()}")]:
            del self._record[name]


class _Desk:
    """One message at a client."""

    def __init__(self, own: Own, message: Message, context: Context, call_next: ClientAppCallable) -> None:
        self._own, self._message, self._context, self._call_next = own, message, context, call_next
        self._memory = _Memory(context)

    def answer(self, fields: dict[str, Value]) -> dict[str, Value]:
        """Everything the server may know."""
        own = self._own
        with own.open_ledger() as ledger:
            if fields.get("enrol") is True:
                client = own.client()
                known: dict[str, Value] = {"name": client.name, "key": client.key, "epsilon": client.epsilon}
                return {**known, "delta": client.delta, "threshold": client.threshold, "ready": own.is_ready(ledger)}
            arrived = self._sorted(unpack(bytes_of(fields, "inbox") or b"-"))
            train = bytes_of(fields, "train")
            out: list[bytes] = []
            problems: list[str] = []
            for session in self._memory.sessions():
                try:
                    out += self._go_on(session, arrived.get(session, []), train == session, ledger)
                except TpmdpError as error:  # of this session; others go on
                    problems.append(_logged(error))
                    if isinstance(error, ProtocolError):
                        self._memory.write("broken", session, b"1")
            if train and train not in self._memory.sessions() and ledger.status(train) == "unknown":
                problems.append(_logged(MessageError("asked to train for terms that this client does not know")))
            told: dict[str, Value] = {"problem": "; ".join(problems)[:1000]}
            if bytes_of(fields, "terms"):
                try:
                    out += self._offered(unpack_text(bytes_of(fields, "terms")), ledger)
                except TpmdpError as error:
                    told["refused"] = _logged(error)[:1000]
            told["outbox"] = pack(out)
            return {**told, "ready": own.is_ready(ledger)} if train else told

    def _sorted(self, messages: list[bytes]) -> dict[bytes, list[bytes]]:
        found: dict[bytes, list[bytes]] = {}
        for data in messages:
            found.setdefault(session_of(data), []).append(data)
        return found

    def _offered(self, text: str, ledger: Ledger) -> list[bytes]:
        """Terms of a round to come: checked against our own settings, and answered with a signed key. No cost yet.

        We sign one plan for a session. With two, each of us could be told that the noise is with the others.
        """
        terms = Terms.parse(text)
        index, _ = self._own.check(terms)
        session, memory = terms.session, self._memory
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
        nothing = np.zeros(terms.grid.dimension, dtype=word_type(terms.grid.word))
        out = PartySession(terms, index, self._own.identity, nothing, secrets).start()
        memory.write("sent", session, [mark(data) for data in out])
        return out

    def _key_before(self, terms: Terms, ledger: Ledger) -> bytes:
        """The first attempt's key: of a session that was begun before a restart, the one it had then."""
        if ledger.status(terms.session) == "unknown":
            return FreshSecrets().key(1)
        kept = ledger.kept(terms.session)
        if kept.get("plan") != terms.plan_hash or _FIRST_KEY not in kept:
            raise InputError("terms", terms.label, "are of a session that is over or has others", "name a new session")
        return kept[_FIRST_KEY]

    def _go_on(self, session: bytes, arrived: list[bytes], train: bool, ledger: Ledger) -> list[bytes]:
        """A session that we have agreed to; nothing of it before we have trained for it."""
        memory = self._memory
        inbox = memory.listed("inbox", session) + arrived
        status = ledger.status(session)
        if status == "settled" or (not arrived and not train):
            return []
        if memory.read("broken", session):
            raise ProtocolError("somebody broke the protocol in this session before: start a new one")
        if status == "unknown" and not train:
            useful = [data for data in inbox if len(data) < _SMALL and decode(data).kind in (Kind.KEYS, Kind.GROUP)]
            memory.write("inbox", session, useful[:_INBOX_MAX])
            return []
        terms = Terms.parse(memory.read("terms", session).decode())
        index = terms.roster.index(self._own.public_key)  # checked when they were offered
        begun = self._begin(terms, index, inbox, ledger) if status == "unknown" else None
        party, secrets, out, kept = begun or self._resume(terms, index, inbox, ledger)
        sent = memory.listed("sent", session)
        out = unsent(out, sent)
        if party.receipt:
            ledger.settle(session, "receipt", {})
            memory.forget(session)
            log(INFO, "tpmdp: %s is counted in %s", self._own.name, terms.label)
            return out
        if party.attempt in secrets.submissions():  # of the others' messages only groups are of use now
            kept = [data for data in kept if decode(data).kind == Kind.GROUP]
        memory.write("inbox", session, kept)
        memory.write("sent", session, sent + [mark(data) for data in out])
        return out

    def _begin(self, terms: Terms, index: int, inbox: list[bytes], ledger: Ledger) -> _Moved | None:
        """Charge, train, draw noise and say what there is to say; None if another process was faster.

        The charge comes before the app: how it ends, and how long it takes, depends on the data. It runs once in a
        session. The noisy vector and all that the party must not forget reach the disk together, before any leaves.
        """
        self._own.check(terms)  # our settings may have changed since the offer
        model = _only_arrays(self._message.content, "the server's message")
        ask = Ask.parse(terms.query)
        entries = sum(array.size for array in model.to_numpy_ndarrays() if is_trained(array))
        if entries + ask.counted != terms.grid.dimension:
            rule = f"must be {terms.grid.dimension - ask.counted}, as the terms say"
            raise InputError("trained entries of the model", entries, rule, "send the model of the training")
        kept = {_FIRST_KEY: self._memory.read("key", terms.session)}
        charge = charge_of(published(terms), index)
        private = {"plan": terms.plan_hash, **kept}
        if not ledger.reserve(terms.session, terms.label, charge, ledger.unit, private).new:
            return None
        log(INFO, "tpmdp: %s takes part in %s, epsilon %g", self._own.name, terms.label, charge.epsilon)
        vector = self._noisy(terms, index, ask, *self._train(ask, model))
        secrets = StoredSecrets(MappingStore(kept))
        party = PartySession(terms, index, self._own.identity, vector, secrets)
        out, left = replay(party, inbox)
        wanted = {"vector": vector.tobytes(), **kept}
        return (party, secrets, out, left) if ledger.keep_all(terms.session, wanted) == wanted else None

    def _noisy(self, terms: Terms, index: int, ask: Ask, update: FloatArray, share: float) -> Mask:
        """What we contribute, noise included."""
        weighted = contribution(update, ask.clip, ask.weights[index], share if ask.counted else None)
        encoded = terms.grid.encode(weighted, float(terms.bounds[index]))
        return noisy_vector(terms, index, encoded, noise_source(terms))

    def _resume(self, terms: Terms, index: int, inbox: list[bytes], ledger: Ledger) -> _Moved:
        """Go on with what the ledger has: the vector is fixed, whatever we are asked now."""
        kept = ledger.kept(terms.session)
        if kept.get("plan") != terms.plan_hash:
            name = f"session {terms.session.hex()[:16]}"
            raise LedgerError(name, "was begun with another plan, or is over", "start a new session")
        if "vector" not in kept:  # cut off in training, which is not done twice: noise alone
            ask = Ask.parse(terms.query)
            nothing = self._noisy(terms, index, ask, np.zeros(terms.grid.dimension - ask.counted), 0.0)
            kept["vector"] = ledger.keep(terms.session, "vector", nothing.tobytes())
        vector = np.frombuffer(kept["vector"], dtype=word_type(terms.grid.word))
        secrets = LedgerSecrets(ledger, terms.session)
        party = PartySession(terms, index, self._own.identity, vector, secrets, secrets.last_attempt())
        return party, secrets, *replay(party, inbox)

    def _train(self, ask: Ask, model: ArrayRecord) -> tuple[FloatArray, float]:
        """The app's update and its share of examples. If it fails that counts as no update: failing tells of data."""
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
            log(WARNING, "tpmdp: the client app failed, and counts as no update in this round: %r", error)
            return nothing, 0.0


def _examples(content: RecordDict) -> float:
    """How many examples the app has trained with."""
    found = [record[EXAMPLES] for record in content.metric_records.values() if EXAMPLES in record]
    if len(found) != 1 or not isinstance(found[0], int | float) or not found[0] >= 0:
        raise TrainingError(f"the client app's reply has no {EXAMPLES}: add it to its MetricRecord")
    return float(found[0])


def _only_arrays(content: RecordDict, where: str) -> ArrayRecord:
    records = list(content.array_records.values())
    if len(records) != 1:
        raise TrainingError(f"{where} has {len(records)} array records, and must have one")
    return records[0]
