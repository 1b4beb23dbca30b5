"""The exception tree. Every error that a user can cause gives field, value, rule and remedy in one line."""

from __future__ import annotations

from typing import Any

_SHOWN = 60
_PATH_SHOWN = 300


def shown(value: Any, most: int = _SHOWN) -> str:
    """The value as text, shortened and on one line, so that hostile input cannot fill a terminal.

    >>> shown("a" * 100)[-3:]
    '...'
    """
    if isinstance(value, str) and not value.strip():
        return "(blank)"
    try:
        text = value if isinstance(value, str) else repr(value)
    except ValueError:  # Python refuses to print numbers of thousands of digits
        text = "(a huge number)"
    text = "".join(char if char.isprintable() else "?" for char in text[: most + 1])
    return text if len(text) <= most else text[: most - 3] + "..."


class TpmdpError(Exception):
    """Base of everything tpmdp raises on purpose."""


class InputError(TpmdpError, ValueError):
    """Bad input: names the field, the value, the rule it breaks and the remedy.

    >>> str(InputError("threshold", 5, "must be less than the number of parties (4)", "add parties or lower it"))
    'threshold = 5 must be less than the number of parties (4): add parties or lower it'
    """

    def __init__(self, field: str, value: Any, rule: str, remedy: str) -> None:
        self.field, self.value, self.rule, self.remedy = field, value, rule, remedy
        super().__init__(f"{field} = {shown(value)} {rule}: {remedy}")


class FileError(TpmdpError):
    """A file that cannot be read or written: names the file, what is wrong and the remedy."""

    def __init__(self, path: object, problem: str, remedy: str) -> None:
        self.path, self.problem, self.remedy = path, problem, remedy
        super().__init__(f"{shown(str(path), _PATH_SHOWN)} {problem}: {remedy}")


class CertificateError(TpmdpError):
    """A certificate that does not prove what it claims; the message is the violated inequality."""


class SolverError(TpmdpError):
    """A linear-program solver failed, or the problem is too large for it."""


class MissingDependencyError(TpmdpError):
    """An optional package is needed for this call."""

    def __init__(self, package: str, extra: str, purpose: str) -> None:
        self.package, self.extra = package, extra
        super().__init__(f"{package} is not installed and is needed {purpose}: pip install 'tpmdp[{extra}]'")


class DeadlineError(TpmdpError):
    """The deadline passed; the message names the missing parties. The session can be resumed."""


class NoNoiseWarning(UserWarning):
    """The plan adds no noise, because under the threat model nobody can attack."""
