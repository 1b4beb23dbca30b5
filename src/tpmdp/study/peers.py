"""The other parties that a party knows: names and public keys in a file of its own, never from the study.

    north = "ed25519:..."      # one line per party, as `tpmdp fingerprint` and `tpmdp flower client` print it
    "st.mary" = "ed25519:..."  # a name with a dot needs quotes

The author of a study could otherwise invent the other parties and thereby hold most of the noise that is meant to
protect the only real one (docs/explanation/threat_model.md).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from tpmdp._util import fields as read
from tpmdp._util.files import StrPath, as_path, check_exists
from tpmdp.errors import InputError
from tpmdp.ledger import Ledger
from tpmdp.protocol.terms import Terms
from tpmdp.study.identity import check_name, parse_public, public_key_text

PEERS_FILE: Final = "peers.toml"  # looked for beside the key
_SIZE_MAX: Final = 1 << 20


def peer_line(name: str, public_key: bytes) -> str:
    """A party's line in a peers file.

    >>> peer_line("st.mary", bytes(32))
    '"st.mary" = "ed25519:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="'
    """
    key = f'"{name}"' if "." in name else name
    return f'{key} = "{public_key_text(public_key)}"'


def read_peers(path: StrPath) -> dict[str, bytes]:
    """Read public keys by name, from lines such as `tpmdp fingerprint` and `tpmdp flower client` print.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "peers.toml").write_text(f'server = "ed25519:{"A" * 43}="')
    ...     read_peers(Path(folder) / "peers.toml") == {"server": bytes(32)}
    True
    """
    path = as_path(path)
    check_exists(path)
    return dict(_peers_in(path, path.stat().st_mtime_ns if path.exists() else 0))


@lru_cache(maxsize=8)
def _peers_in(path: Path, changed: int) -> dict[str, bytes]:
    """Cached until the file changes: a Flower client reads it with every message."""
    del changed
    peers = {}
    for name, text in read.read_toml(path, _SIZE_MAX).items():
        field = f"{check_name('peer', name)} in {path}"
        if isinstance(text, dict):
            remedy = f'put a name with a dot in quotes: "{name}.x" = "ed25519:..."'
            raise InputError(field, "(a table)", "is not a public key", remedy)
        peers[name] = parse_public(field, text)
    return peers


def find_peers(given: Path | None, key_file: Path) -> Path | None:
    """The party's peers file: the given one, else peers.toml beside its key if there is one."""
    if given is not None:
        return given
    beside = key_file.with_name(PEERS_FILE)
    return beside if os.path.lexists(beside) else None  # a broken link is an error later, not a missing file


def first_stranger(terms: Terms, own_key: bytes, peers: Mapping[str, bytes]) -> int | None:
    """The first party of the terms that is not among the peers with this name and key; None if all are."""
    for index, key in enumerate(terms.roster):
        if key != own_key and peers.get(terms.spec.name(index)) != key:
            return index
    return None


def check_peers(terms: Terms, own_key: bytes, path: Path) -> None:
    """Refuse terms with a party that the peers file does not have under this name and with this key."""
    peers = read_peers(path)
    stranger = first_stranger(terms, own_key, peers)
    if stranger is None:
        return
    name, key = terms.spec.name(stranger), terms.roster[stranger]
    field, line = f"public_key of {name}", peer_line(name, key)
    other = next((peer for peer, known in peers.items() if known == key), None)
    if name in peers:
        rule = f"is not the one in {path}, {public_key_text(peers[name])}"
        remedy = (
            f"ask {name} itself by telephone whether it has a new key; if this is the one, change its line to {line}"
        )
    elif other is not None:
        rule = f"is that of {other} in {path}"
        remedy = f"ask the study's author to call the party {other}, or rename it in your file"
    else:
        rule = f"is not in {path}"
        remedy = f"ask {name} itself by telephone for its public key; if it is the same, add the line {line}"
    raise InputError(field, public_key_text(key), rule, remedy)


def author_notice(study_file: Path, key_file: Path) -> str:
    """What a party without a peers file should know.

    >>> author_notice(Path("study.toml"), Path("keys/north.key"))[:62]
    'the author of the study chose the other parties and their keys'
    """
    return (
        "the author of the study chose the other parties and their keys, and could have invented them: "
        f"compare tpmdp fingerprint {study_file} with them by telephone, then list them in "
        f"{key_file.with_name(PEERS_FILE)}"
    )


def has_no_session(ledger: Ledger) -> bool:
    """Whether the ledger has never seen a session: the time to say what its owner should know once.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Ledger.create(Path(folder) / "a.ledger", "a", 1.0, delta=1e-6) as ledger:
    ...         has_no_session(ledger)
    True
    """
    return not any(entry.session for entry in ledger.entries())
