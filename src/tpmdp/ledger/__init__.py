"""What one party has spent on privacy: a durable, append-only, hash-chained ledger in one SQLite file."""

from tpmdp.ledger.book import Ledger, Reservation, Status
from tpmdp.ledger.entry import Entry
from tpmdp.ledger.file import UNITS
from tpmdp.ledger.spending import (
    NEXT_CLOSENESS,
    Charge,
    LedgerError,
    OverspendError,
    Spent,
    add_up,
    promise,
    promises,
    rounded_down,
    rounded_up,
    square_up,
)

__all__ = [
    "NEXT_CLOSENESS",
    "UNITS",
    "Charge",
    "Entry",
    "Ledger",
    "LedgerError",
    "OverspendError",
    "Reservation",
    "Spent",
    "Status",
    "add_up",
    "promise",
    "promises",
    "rounded_down",
    "rounded_up",
    "square_up",
]
