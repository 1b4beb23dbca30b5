"""Who may ask the relay for what: sessions it serves, tokens that prove a party, and rates per party and address."""

from __future__ import annotations

import os
import re
from typing import Final

from starlette.requests import Request

from tpmdp.engines.relay import wire
from tpmdp.engines.relay.limits import Buckets, RelaySettings, address_key, client_address
from tpmdp.engines.relay.requests import RefusedError
from tpmdp.engines.relay.responses import too_many_error
from tpmdp.engines.relay.session_rows import SessionGoneError, StoredSession
from tpmdp.engines.relay.store import RelayStore
from tpmdp.errors import InputError, shown

_TOKEN_MAX: Final = 200  # characters of an Authorization header
_TOKENS_CACHED: Final = 16_384
_LOOKS_RATE: Final = 1.0  # questions for the status per second of one party in one session: each reads many rows
_LOOKS_BURST: Final = 20.0
_ID: Final = re.compile("[0-9a-f]{64}")


class Admission:
    """Admits a request to a session as a party, or refuses it. Requests without a valid token count by address."""

    def __init__(self, store: RelayStore, settings: RelaySettings) -> None:
        self._store, self._settings = store, settings
        self._nonce = os.urandom(wire.NONCE_BYTES)
        self.nonce_header = {wire.NONCE_HEADER: self._nonce.hex()}
        self._tokens: dict[tuple[int, str], int] = {}  # proved tokens: checking one costs 100 us
        self._parties = Buckets(settings.party_rate, settings.party_burst)
        self._addresses = Buckets(settings.address_rate, settings.address_burst)
        self._looks = Buckets(_LOOKS_RATE, _LOOKS_BURST)

    def session_name(self, request: Request) -> bytes:
        """The session in the request's path."""
        text = request.path_params["session"]
        if not _ID.fullmatch(text):
            remedy = "use the identifier of the session"
            raise RefusedError(404, InputError("session", text, "must be 64 digits of lower-case hexadecimal", remedy))
        name = bytes.fromhex(text)
        if self._settings.sessions is not None and name not in self._settings.sessions:
            remedy = "ask the relay's operator to add the study"
            raise RefusedError(403, InputError("session", text[:12] + "...", wire.NOT_SERVED, remedy))
        return name

    async def session(self, request: Request) -> StoredSession:
        """The session in the request's path, which must be stored here."""
        try:
            name = self.session_name(request)
            cached = self._store.cached(name)
            if cached is not None:
                return cached
            self._check_address(request)
            return await self._store.session(name)
        except (RefusedError, SessionGoneError):
            self.charge_address(request)
            raise

    def party(self, request: Request, session: StoredSession) -> int:
        """The party that the request's token proves, if it has not asked too often."""
        header = request.headers.get("authorization", "")[: _TOKEN_MAX + 1]
        key = session.id, header
        party = self._tokens.get(key)
        if party is None:
            self._check_address(request)
            if len(header) <= _TOKEN_MAX:
                party = wire.token_party(header, self._nonce, session.name, roster=session.roster)
            if party is None:
                self.charge_address(request)
                rule = "proves no party of this session to this relay"
                error = InputError("authorization", shown(header, 20), rule, f"sign the nonce in {wire.NONCE_HEADER}")
                raise RefusedError(401, error, {"www-authenticate": wire.SCHEME, **self.nonce_header})
            while len(self._tokens) >= _TOKENS_CACHED:
                del self._tokens[next(iter(self._tokens))]
            self._tokens[key] = party
        wait_s = self._parties.take((session.id, party))
        if wait_s > 0:
            raise too_many_error(f"of party {party}", wait_s)
        return party

    def charge_look(self, session: StoredSession, party: int) -> None:
        """Count a party's question for the status of its session."""
        wait_s = self._looks.take((session.id, party))
        if wait_s > 0:
            raise too_many_error(f"for the status, of party {party}", wait_s)

    def charge_address(self, request: Request) -> None:
        """Count a request without a valid token."""
        self._refuse_if(self._addresses.take(self.address(request)))

    def address(self, request: Request) -> str:
        """The key of the address that a request comes from."""
        peer = "" if request.client is None else request.client.host
        headers = request.headers.getlist("x-forwarded-for")
        return address_key(client_address(peer, headers[-1] if headers else "", self._settings.forwarded_by))

    @staticmethod
    def is_local(request: Request) -> bool:
        """Whether a request comes from this machine, and from no proxy on it."""
        forwarded = any(name in request.headers for name in ("x-forwarded-for", "forwarded", "via"))
        return request.client is not None and wire.is_loopback(request.client.host) and not forwarded

    def _check_address(self, request: Request) -> None:
        """Refuse an address that used up its requests without a token, before they cost anything."""
        self._refuse_if(self._addresses.peek(self.address(request)))

    @staticmethod
    def _refuse_if(wait_s: float) -> None:
        if wait_s > 0:
            raise too_many_error("without a valid token from your address", wait_s)
