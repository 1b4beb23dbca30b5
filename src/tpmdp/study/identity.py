"""The identity of a party: its name, its Ed25519 key file and the public key in the study."""

from __future__ import annotations

import base64
import binascii
import itertools
import os
import re
import stat
import unicodedata
from collections.abc import Sequence
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.files import StrPath, as_path, check_exists, check_output, readable
from tpmdp.errors import FileError, InputError
from tpmdp.spec import RESERVED_NAMES

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}", re.ASCII)  # safe as a file name on every system
_REMEDY: Final = "paste the line that Make my key on the page has shown, or tpmdp keygen has printed"
_PREFIX: Final = "ed25519:"
_SIZE_MAX: Final = 10_000
_STEM_MAX: Final = 50
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class MissingKeysError(InputError):
    """Parties of a study have no public key yet."""

    def __init__(self, lacking: Sequence[str]) -> None:
        remedy = (
            "each makes one with tpmdp keygen, the author adds it with tpmdp accept; use the file that has them all"
        )
        super().__init__(f"public_key of {', '.join(lacking)}", "(none)", "is missing", remedy)


def check_name(field: str, name: object) -> str:
    """A party's name; it must be safe as part of a file name.

    >>> check_name("party", "bank_1")
    'bank_1'
    >>> check_name("party", "../x")
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: party = ../x must be letters, digits, _ . - and start with a letter or digit: rename it
    """
    if isinstance(name, str) and name.casefold() in RESERVED_NAMES:
        raise InputError(field, name, "has a special meaning", "choose another name")
    if not isinstance(name, str) or not NAME.fullmatch(name) or name.endswith("."):
        rule = "must be letters, digits, _ . - and start with a letter or digit"
        raise InputError(field, name, rule, "rename it")
    return name


def names_to_mend(names: Sequence[str]) -> dict[str, str]:
    """The names of parties that a study refuses, each with one like it that it accepts.

    >>> names_to_mend(["St Anna", "bank_1", "Spital Süd", "..."])
    {'St Anna': 'St_Anna', 'Spital Süd': 'Spital_Sud', '...': 'party_4'}
    """
    mended: dict[str, str] = {}
    for number, name in enumerate(names, 1):
        try:
            check_name("name of a party", name)
        except InputError:
            plain = unicodedata.normalize("NFKD", name.strip()).encode("ascii", "ignore").decode()
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", plain).strip("_.-")[:_STEM_MAX] or f"party_{number}"
            taken = {*names, *mended.values()}
            tried = itertools.chain([stem], (f"{stem}_{count}" for count in itertools.count(2)))
            mended[name] = next(each for each in tried if each not in taken and each.casefold() not in RESERVED_NAMES)
    return mended


def check_party_names(names: Sequence[str]) -> None:
    """Refuse names that a study cannot have, all at once.

    >>> check_party_names(["St Anna", "bank", "St Rita"])
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: name of a party = St Anna must be letters, digits, _ . - without blanks: write St_Anna, and
    St_Rita for St Rita
    """
    mended = names_to_mend(names)
    if mended:
        (first, better), *others = mended.items()
        more = "".join(f", and {new} for {old}" for old, new in others)
        rule = "must be letters, digits, _ . - without blanks"
        raise InputError("name of a party", first, rule, f"write {better}{more}")


def public_text(identity: Ed25519PrivateKey) -> str:
    """The public key as text for the study file.

    >>> public_text(Ed25519PrivateKey.generate())[:8]
    'ed25519:'
    """
    return public_key_text(identity.public_key().public_bytes_raw())


def public_key_text(raw: bytes) -> str:
    """A public key of 32 bytes as text.

    >>> parse_public("public_key", public_key_text(bytes(32))) == bytes(32)
    True
    """
    return _PREFIX + base64.b64encode(raw).decode()


def parse_public(field: str, text: object) -> bytes:
    """The 32 bytes of a public key from its text.

    >>> key = Ed25519PrivateKey.generate()
    >>> parse_public("public_key", public_text(key)) == key.public_key().public_bytes_raw()
    True
    """
    try:
        if not isinstance(text, str) or not text.startswith(_PREFIX):
            raise ValueError
        raw = base64.b64decode(text[len(_PREFIX) :], validate=True)
        if len(raw) != 32:
            raise ValueError
    except (ValueError, binascii.Error):
        raise InputError(
            field,
            text,
            "is not a public key",
            _REMEDY,
        ) from None
    return raw


def write_key(path: StrPath, identity: Ed25519PrivateKey) -> None:
    """Write a new key file that only its owner can read; an existing file is never replaced."""
    path = as_path(path)
    check_output(path)
    pem = identity.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise FileError(path, "exists already", "choose another name; a lost key cannot be restored") from None
    except OSError as error:
        raise FileError(path, f"cannot be written ({error.strerror or error})", "check the folder") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(pem)
            stream.flush()
            os.fsync(stream.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise FileError(path, f"cannot be written ({error.strerror or error})", "check the disk") from None


def read_key(path: StrPath) -> Ed25519PrivateKey:
    """Read a key file; a file that others can read is refused.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     key = Ed25519PrivateKey.generate()
    ...     write_key(f"{folder}/bank.key", key)
    ...     public_text(read_key(f"{folder}/bank.key")) == public_text(key)
    True
    """
    file = as_path(path)
    check_exists(file)
    with readable(file, _SIZE_MAX):
        data, is_open = file.read_bytes(), os.name == "posix" and bool(file.stat().st_mode & _OTHERS)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise FileError(file, "is not a key file", "make one with tpmdp keygen NAME") from None
    if is_open:
        raise FileError(file, "can be read by others", f"run chmod 600 {file}")
    if not isinstance(key, Ed25519PrivateKey):
        raise FileError(file, "holds a key of another kind", "make one with tpmdp keygen NAME")
    return key
