"""What a party can know before it takes part in a study, as a value; `tpmdp.study.check` computes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tpmdp.data.faults import Fault
from tpmdp.data.table import ColumnKind
from tpmdp.errors import TpmdpError
from tpmdp.ledger import SessionKey, Spent, Status
from tpmdp.study.expected import Expectation
from tpmdp.study.identity import MissingKeysError

LedgerState = Status | Literal["not given", "new", "unreadable"]


@dataclass(frozen=True)
class ColumnCheck:
    """A column that the study needs: how it is read, how many values are bad, or why it cannot be read at all."""

    name: str
    kind: ColumnKind
    missing: int = 0
    unusable: int = 0  # present, but not a finite number, not text or too long
    problem: str = ""


@dataclass(frozen=True)
class Clipped:
    """How many values of a column lie outside the bounds of a query, and are moved to them."""

    query: str
    column: str
    low: float
    high: float
    below: int
    above: int
    records: int  # that count for the query

    @property
    def share(self) -> float:
        """Of the records that count.

        >>> Clipped("stay", "days", 0.0, 30.0, below=0, above=5, records=50).share
        0.1
        """
        return (self.below + self.above) / self.records if self.records else 0.0


@dataclass(frozen=True)
class Coalition:
    """Parties that pool what they see, and what they can then learn about a record of this party."""

    members: tuple[str, ...]
    epsilon: float
    is_within: bool  # the threshold: the budget is promised against it


@dataclass(frozen=True)
class Begun:
    """A session that was begun and has not ended: held, or charged."""

    study: str
    """Name of the study and number of the session."""
    key: SessionKey
    time: str
    """When it was begun, as the ledger has it."""
    is_charged: bool
    has_agreed: bool
    """Whether the party's agreement may have left."""


@dataclass(frozen=True)
class Earlier:
    """Other sessions of the same study that this ledger was charged for, and what they cost with this one."""

    sessions: tuple[tuple[str, str], ...]
    """Label and time of each, oldest first."""
    mu_squared: float
    """The sum over them and this session, rounded up."""
    closeness: float


@dataclass(frozen=True, repr=False)
class PartyCheck:
    """Everything that a party can know before it pays. Parts about its own data are for its eyes only.

    `problems` are the reasons for which `join` would stop, in the order in which it would meet them; the parts after
    a problem are None or empty where it makes them impossible to know.
    """

    party: str
    study: str
    unit: str
    offered: tuple[float, float]  # epsilon and delta
    records_stated: int
    records: int | None  # in the data; None if they cannot be counted
    bad_rows: int
    columns: tuple[ColumnCheck, ...]
    faults: tuple[Fault, ...]
    clipped: tuple[Clipped, ...]
    counting: tuple[tuple[str, int], ...]  # records that count, by query
    ledger: LedgerState
    cost: float | None  # epsilon of this session at the party's delta
    charged_now: bool  # whether joining would charge it: not so for a session that was charged before
    after: Spent | None
    coalitions: tuple[Coalition, ...]  # the smallest, the worst within the threshold, and one beyond it
    expected: Expectation | None
    problems: tuple[TpmdpError, ...]
    notes: tuple[str, ...]
    counted: float | None = None  # the epsilon of this session at the delta at which the ledger counts
    begun: Begun | None = None  # this session, if it was begun and has not ended
    earlier: Earlier | None = None
    about_data: tuple[TpmdpError, ...] = ()  # those of the problems that the party's own records have

    @property
    def own_problems(self) -> tuple[TpmdpError, ...]:
        """Problems on this party's side; public keys that a study still lacks are not."""
        return tuple(each for each in self.problems if not isinstance(each, MissingKeysError))

    @property
    def is_ready(self) -> bool:
        """Whether `join` would go on."""
        return not self.problems

    def __repr__(self) -> str:
        state = "ready" if self.is_ready else f"{len(self.problems)} problems"
        return f"PartyCheck({self.party!r}, {self.study!r}, {state})"
