"""What one party has spent on privacy: a durable, append-only, hash-chained ledger in one SQLite file."""

from tpmdp.ledger.book import Hold, Ledger, Status, Stored
from tpmdp.ledger.entry import Entry, SessionKey
from tpmdp.ledger.schema import UNITS
from tpmdp.ledger.spending import (
    NEXT_CLOSENESS,
    Charge,
    LedgerError,
    OverspendError,
    Spent,
    Totals,
    add_up,
    left_text,
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
    "Hold",
    "Ledger",
    "LedgerError",
    "OverspendError",
    "SessionKey",
    "Spent",
    "Status",
    "Stored",
    "Totals",
    "add_up",
    "left_text",
    "promise",
    "promises",
    "rounded_down",
    "rounded_up",
    "square_up",
]
