"""The content of Flower messages: one record of fixed fields, with several protocol messages in one field.

Types, sizes and version of what comes from the other side are checked here. There is no pickle and no code.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import Final

from flwr.app import ConfigRecord, RecordDict

from tpmdp.engines.relay.wire import frames, join_frames
from tpmdp.protocol.messages import MESSAGE_MAX, OVERHEAD, MessageError

RECORD: Final = "tpmdp"
VERSION: Final = 1
TEXT_MAX: Final = 1 << 24
PACKED_MAX: Final = 64 << 20  # bytes of compressed messages, unpacked
PLAIN_MAX: Final = 1 << 30  # bytes of other messages, which take as many on the wire
COUNT_MAX: Final = 400_000  # messages in one Flower message
_SMALL: Final = 4096  # messages longer than this are mostly ciphertext, which does not compress
_PLAIN, _PACKED = b"-", b"z"
Value = bool | int | float | str | bytes


def pack(messages: Iterable[bytes]) -> bytes:
    """Several protocol messages as one field, compressed if small: keys of many parties share most of their headers.

    >>> len(unpack(pack([bytes(200), bytes(300)])))
    2
    """
    listed = list(messages)
    body = join_frames(listed)
    if all(len(data) < _SMALL for data in listed):
        smaller = zlib.compress(body)
        if len(smaller) < len(body):
            return _PACKED + smaller
    return _PLAIN + body


def unpack(field: bytes) -> list[bytes]:
    """The messages of a field from outside.

    >>> unpack(b"z" + b"no")
    Traceback (most recent call last):
        ...
    tpmdp.protocol.messages.MessageError: packed messages are damaged
    """
    messages: list[bytes] = []
    for _, data in frames(_inflate(field, PACKED_MAX)):
        if not OVERHEAD <= len(data) <= MESSAGE_MAX or len(messages) >= COUNT_MAX:
            raise MessageError("a message of an impossible size, or too many messages")
        messages.append(data)
    return messages


def pack_text(text: str) -> bytes:
    """A long text, compressed.

    >>> unpack_text(pack_text("terms" * 100)) == "terms" * 100
    True
    """
    return _PACKED + zlib.compress(text.encode())


def unpack_text(field: bytes) -> str:
    """A text from outside."""
    try:
        return _inflate(field, TEXT_MAX).decode()
    except UnicodeDecodeError:
        raise MessageError("a text is damaged") from None


def _inflate(field: bytes, most: int) -> bytes:
    if field[:1] == _PLAIN and len(field) <= max(most, PLAIN_MAX):
        return field[1:]
    if field[:1] != _PACKED:
        raise MessageError("packed messages are damaged")
    machine = zlib.decompressobj()
    try:
        body = machine.decompress(field[1:], most)
    except zlib.error:
        raise MessageError("packed messages are damaged") from None
    if not machine.eof or machine.unused_data:
        raise MessageError("packed messages are damaged or too long")
    return body


def record_of(fields: Mapping[str, Value]) -> RecordDict:
    """The content of a Flower message with these fields.

    >>> fields_of(record_of({"late": True}))["late"]
    True
    """
    return RecordDict({RECORD: ConfigRecord({"version": VERSION, **fields})})


def fields_of(content: RecordDict) -> dict[str, Value]:
    """The fields in a Flower message from outside."""
    record = content.config_records.get(RECORD)
    if record is None:
        raise MessageError("not a message of tpmdp")
    if record.get("version") != VERSION:
        raise MessageError(f"version {record.get('version')!r} of the record, and this tpmdp reads {VERSION}")
    return {name: value for name, value in record.items() if isinstance(value, bool | int | float | str | bytes)}


def bytes_of(fields: Mapping[str, Value], name: str) -> bytes:
    """A field that must be bytes; empty if it is missing.

    >>> bytes_of({"inbox": b"1"}, "inbox"), bytes_of({}, "inbox")
    (b'1', b'')
    """
    value = fields.get(name, b"")
    if not isinstance(value, bytes):
        raise MessageError(f"field {name} must be bytes")
    return value


def text_of(fields: Mapping[str, Value], name: str) -> str:
    """A field that must be short text; empty if it is missing.

    >>> text_of({"problem": "none"}, "problem")
    'none'
    """
    value = fields.get(name, "")
    if not isinstance(value, str) or len(value) > 4096:
        raise MessageError(f"field {name} must be short text")
    return value
