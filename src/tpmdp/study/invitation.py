"""Inviting the parties of a study: a file for each of them, and the public keys that they return."""

from __future__ import annotations

import re
import shlex
import textwrap
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tpmdp._util.files import readable, replacing
from tpmdp.errors import FileError, InputError
from tpmdp.queries.catalogue import KINDS, Kinds
from tpmdp.study.identity import parse_public, public_key_text
from tpmdp.study.model import Study

_SIZE_MAX: Final = 16 << 20
_TABLE: Final = re.compile(r"\s*\[")
_PARTY: Final = re.compile(r"\s*\[\[\s*parties\s*\]\]\s*(#.*)?")
_NAME: Final = re.compile(r"\s*name\s*=")
_KEY: Final = re.compile(r"\s*public_key\s*=")
_LINE: Final = re.compile(r'\s*"?([^"=\s]+)"?\s*=\s*"?([^"\s]+)"?\s*')
_INDENT: Final = " " * 10
_PAGE: Final = "put this file into a folder, run tpmdp page --folder FOLDER, and choose Take part."
_INVITED: Final = re.compile(r"# Invitation for (\S{1,100}) to the study: ")
_NO_RELAY: Final = "https://RELAY"
_RELAY: Final = re.compile(r"(?:tpmdp join .* --relay|# Relay:) +(https?://[^\s'\"]{1,300})", re.ASCII)
RELAY_TEXT: Final = (
    "A relay is a server that passes on the parties' messages. It sees them encrypted only. One of the parties runs "
    "it, or somebody on whom they agree: tpmdp relay."
)
SPU_TEXT: Final = "Linux, and SPU in an environment of its own. tpmdp check says how to make it, if it is missing."
START_TEXT: Final = (
    "Agree on a moment to start. Then each party joins: on its page, in Take part, or with the command in its file. "
    "All of them must stay online until the answer is there; each waits for the others until the study's deadline. A "
    "party that is interrupted joins again in the same way, and goes on."
)


def invitation_name(party: str) -> str:
    """The name of a party's file.

    >>> invitation_name("north")
    'north.study.toml'
    """
    return f"{party}.study.toml"


def invitation(study: Study, party: str, *, relay: str | None = None) -> str:
    """The study as a file for one party. Its comments say what to do, with the exact commands.

    It can be joined as it is. Without all public keys it asks for the party's key.
    """
    file, member = invitation_name(party), study.party(party)
    data = f" --data {party}.csv" if member.records else ""
    lacking = [other.name for other in study.parties if other.public_key is None]
    lines = [f"Invitation for {party} to the study: {study.label}", ""]
    stated = {"Purpose:": study.purpose, "Contact:": study.contact}
    lines += [f"{key:10}{text}" for key, text in stated.items() if text]
    lines += [""] if any(stated.values()) else []
    lines += [f"On the page: {_PAGE}", "On the command line:", ""]
    lines += [f"Look:     tpmdp query explain --study {file}"]
    if lacking and member.records:
        lines += [
            f"Check:    tpmdp check {file} --as {party}{data}",
            f"          and tell the author now if you have other than {member.records:,} good records.",
        ]
    if member.public_key is None:
        lines += [
            f"Key:      tpmdp keygen {party}",
            "          and send the line that it prints, or that the page shows, to the author of the study.",
        ]
    if study.engine_used == "spu":
        lines += [f"Needs:    {SPU_TEXT}"]
    if study.uses_relay:
        lines += [f"Relay:    {relay or 'the address on which the parties agree'}", *_wrapped(RELAY_TEXT)]
    if lacking:
        lines += [
            f"Wait:     the study lacks the public keys of {', '.join(lacking)}. Join with the file that has them all."
        ]
    else:
        url = "" if not study.uses_relay else f" --relay {shlex.quote(relay or _NO_RELAY)}"
        lines += [
            f"Compare:  tpmdp fingerprint {file}",
            "          prints ten words, as the page does. Compare them with the other parties by telephone: all must",
            "          have the same. They are not in this file, since whoever changed it could write others.",
            f"Check:    tpmdp check {file} --as {party} --key {party}.key{data}",
            f"Join:     tpmdp join {file} --as {party} --key {party}.key{data}{url}",
        ]
        if study.uses_relay and relay is None:
            lines.append("          with the address of the relay that the parties agree on.")
    lines += ["Start:", *_wrapped(START_TEXT)]
    return "".join(f"# {line}".rstrip() + "\n" for line in lines) + "\n" + study.toml()


def _wrapped(text: str) -> list[str]:
    """Lines of a comment, under the word that they belong to."""
    return textwrap.wrap(text, 100, initial_indent=_INDENT, subsequent_indent=_INDENT)


def invited_relay(text: str) -> str:
    """The relay that an invitation names in its comments; empty if it names none. It is what its author wrote.

    >>> invited_relay("# Join:  tpmdp join north.study.toml --as north --relay https://relay.example.org\\nname = 1")
    'https://relay.example.org'
    >>> invited_relay("# Relay:    http://127.0.0.1:8400\\n# Wait: for keys")
    'http://127.0.0.1:8400'
    """
    for line in text.splitlines():
        match = _RELAY.search(line) if line.startswith("#") else None
        if match is not None and match[1] != _NO_RELAY:
            return match[1]
    return ""


def invited_party(text: str) -> str:
    """Whom an invitation is for, by its comments; empty if it does not say so. It is what its author wrote.

    >>> invited_party("# Invitation for north to the study: flu / session 1\\nname = 1")
    'north'
    """
    lines = text.splitlines()
    match = _INVITED.match(lines[0].removeprefix("\ufeff")) if lines else None
    return "" if match is None else match[1]


def write_invitations(study: Study, folder: Path, *, relay: str | None = None) -> list[Path]:
    """Write the file of every party; returns their paths."""
    texts = {
        folder / invitation_name(party.name): invitation(study, party.name, relay=relay) for party in study.parties
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(folder, f"cannot be created ({error.strerror})", "choose another folder") from None
    for path, text in texts.items():
        with replacing(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return list(texts)


def parse_key_line(line: str) -> tuple[str, str]:
    """Name and public key in a line that tpmdp keygen printed.

    >>> parse_key_line('north = "ed25519:AAAA"')
    ('north', 'ed25519:AAAA')
    """
    match = _LINE.fullmatch(line)
    if match is None:
        raise InputError("public key", "(none)", "is missing", "give the name and the key, or the line from keygen")
    return match[1], match[2]


def key_for(name: str, text: str) -> str:
    """The public key that a party has returned: the key alone, or the line with its name, which must be this party's.

    >>> key_for("north", "ed25519:AAAA"), key_for("north", 'north = "ed25519:AAAA"')
    ('ed25519:AAAA', 'ed25519:AAAA')
    >>> key_for("north", 'south = "ed25519:AAAA"')
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: public key = south = "ed25519:AAAA" is the line of south, not of north: ask for the right
    one
    """
    match = _LINE.fullmatch(text)
    if match is None:
        return text
    if match[1] != name:
        raise InputError("public key", text, f"is the line of {match[1]}, not of {name}", "ask for the right one")
    return match[2]


def refuse_twin(name: str, key: bytes, others: Mapping[str, bytes | None]) -> None:
    """Refuse a public key that another party has.

    >>> refuse_twin("north", bytes(32), {"north": bytes(32), "south": None})
    """
    twin = next((other for other, theirs in others.items() if theirs == key and other != name), None)
    if twin is not None:
        text = public_key_text(key)
        raise InputError(f"public key of {name}", text, f"is that of {twin}", "ask the party for its own")


def accept_key(path: Path, name: str, public_key: str, *, replace: bool = False, kinds: Kinds = KINDS) -> bool:
    """Write a party's public key into a study file, whose comments stay; returns whether the file has changed."""
    study = Study.read(path, kinds)
    present = study.party(name).public_key
    raw = parse_public(f"public key of {name}", public_key)
    if present == raw:
        return False
    if present is not None and not replace:
        value, rule = public_key_text(present), f"is the key of {name} already, and not the one that is given"
        raise InputError(f"public_key of {name}", value, rule, "ask the party, and add --replace if it has a new one")
    refuse_twin(name, raw, {party.name: party.public_key for party in study.parties})
    with readable(path, _SIZE_MAX):
        text = path.read_bytes().decode("utf-8-sig")
    changed = _with_key(text, name, f'public_key = "{public_key_text(raw)}"')
    if changed is None or not _is_expected(text, changed, name, key=public_key_text(raw)):
        remedy = f'write public_key = "{public_key_text(raw)}" into the entry of {name} yourself'
        raise FileError(path, f"lists {name} in a way that cannot be edited here", remedy)
    with replacing(path) as temporary:
        temporary.write_text(changed, encoding="utf-8")
    return True


def _with_key(text: str, name: str, line: str) -> str | None:
    """The text with this line in the party's table; None if there is no such table."""
    lines = text.splitlines()
    starts = [place for place, each in enumerate(lines) if _PARTY.fullmatch(each)]
    for start in starts:
        end = next((place for place in range(start + 1, len(lines)) if _TABLE.match(lines[place])), len(lines))
        if _name_in(lines[start + 1 : end]) == name:
            inside = [each for each in lines[start + 1 : end] if not _KEY.match(each)]
            place = next((place for place, each in enumerate(inside) if _NAME.match(each)), -1)
            inside.insert(place + 1, line)
            return "\n".join([*lines[: start + 1], *inside, *lines[end:]]) + "\n"
    return None


def _name_in(lines: list[str]) -> Any:
    try:
        return tomllib.loads("\n".join(lines)).get("name")
    except ValueError:
        return None


def _is_expected(before: str, after: str, name: str, *, key: str) -> bool:
    """Whether nothing but the key has changed."""
    expected, document = tomllib.loads(before), tomllib.loads(after)
    for party in expected["parties"]:
        if party.get("name") == name:
            party["public_key"] = key
    return bool(expected == document)
