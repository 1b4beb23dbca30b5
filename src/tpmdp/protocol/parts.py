"""What two parties with different study files tell each other: in which parts the files differ.

Each party hashes the parts of its study one by one. The list of hashes travels sealed: in clear, a relay could guess
an epsilon from its hash. It depends on no data.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Final

from tpmdp.errors import shown
from tpmdp.protocol.messages import MessageError

PARTS_MAX: Final = 1 << 20  # bytes of a list
_HASH_BYTES: Final = 8
_NAMED_MAX: Final = 4
_NAME_SHOWN: Final = 60

Parts = Mapping[str, str]  # the text of every part of a study, by its name


def encode_parts(parts: Parts) -> bytes:
    """The list of hashes; empty if the parts are not known.

    >>> encode_parts({"threshold": "2"})
    b'{"threshold":"4967ca7dc487bfd3"}'
    """
    hashes = {name: _hash(name, text) for name, text in parts.items()}  # in the order of the study
    return json.dumps(hashes, separators=(",", ":")).encode() if parts else b""


def _hash(name: str, text: str) -> str:
    data = f"{len(name)} {name}{text}".encode()
    return hashlib.blake2b(data, digest_size=_HASH_BYTES, person=b"tpmdp parts 1").hexdigest()


def differences(ours: bytes, theirs: bytes) -> list[str]:
    """How another party's list of hashes differs from ours, in words; empty if they are the same.

    >>> theirs = encode_parts({"threshold": "2", 'query "stay"': "mean", 'query "age"': "mean"})
    >>> differences(encode_parts({"threshold": "2", 'query "stay"': "sum", "receivers": "all"}), theirs)
    ['another query "stay"', 'no receivers', 'also query "age"']
    """
    own, others = _decode(ours), _decode(theirs)
    result = []
    for name, digest in own.items():
        if name not in others:
            result.append(f"no {name}")
        elif others[name] != digest:
            result.append(f"another {name}")
    return result + [f"also {shown(name, _NAME_SHOWN)}" for name in others if name not in own]


def _decode(data: bytes) -> dict[str, str]:
    try:
        hashes = json.loads(data)
    except (ValueError, RecursionError):
        raise MessageError("not a list of parts") from None
    if not isinstance(hashes, dict) or not all(isinstance(value, str) for value in hashes.values()):
        raise MessageError("not a list of parts")
    return hashes


def difference_text(party: str, parts: list[str]) -> str:
    """One line about what another party has.

    >>> difference_text("beta", ['another query "stay"'])
    'beta has another query "stay"'
    >>> difference_text("beta", [])
    'beta has another plan for the same study'
    """
    if not parts:
        return f"{party} has another plan for the same study"
    more = f" and {len(parts) - _NAMED_MAX} more differences" if len(parts) > _NAMED_MAX else ""
    return f"{party} has {', '.join(parts[:_NAMED_MAX])}{more}"


def compare_text(differences: list[str]) -> str:
    """What a party learns at its deadline if others have different studies.

    >>> compare_text(['beta has another query "stay"'])
    'the deadline passed; beta has another query "stay": compare the study files, correct one and join again'
    """
    return f"the deadline passed; {'; '.join(differences)}: compare the study files, correct one and join again"
