"""What goes wrong in Take part, in words for a party that was invited: it cannot change the study."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tpmdp.errors import DeadlineError, FileError, InputError, TpmdpError
from tpmdp.ledger import LedgerError, OverspendError, rounded_up
from tpmdp.page.forms import problem_text
from tpmdp.study.contribution import BadRecordsError, RecordCountError

OTHER_STUDY: Final = (
    "This is not the study you took part in. Ask the author for a new session number, or ignore this file."
)
_RAISING = "or ask whoever decided the limit to raise it: that weakens the protection of every record"


def invitee_text(error: TpmdpError) -> str:
    """An error for a party that was invited. What the author of a study could do, the party asks the author for.

    >>> invitee_text(RecordCountError("north", 349, 400))[:49]
    'The study expects 400 records, your file has 349.'
    """
    match error:
        case RecordCountError():
            text = f"The study expects {error.stated:,} records, your file has {error.count:,}."
            return f"{text} Is it the right file? If so, ask the author for a new invitation."
        case BadRecordsError():
            text = f"{Path(str(error.path)).name} has bad values in {error.bad:,} of {error.count:,} records"
            ask = "If they must be left out, ask the author for an invitation with fewer records."
            return f"{text} ({error.places}). Correct these records. {ask}"
        case OverspendError():
            return _over_limit(error)
        case DeadlineError() if "deadline of the study" in str(error):
            return "The deadline of the study has passed: ask its author for a new invitation."
        case LedgerError(problem="was charged with another plan or query"):
            return OTHER_STUDY
        case LedgerError(problem="was cancelled"):
            again = "To take part after all, ask its author for a new invitation, with another session number."
            return f"You have withdrawn from this session. {again}"
        case InputError(field="data", value="(none)"):
            return "No file of records is chosen: choose yours above."
    return problem_text(error)


def _over_limit(error: OverspendError) -> str:
    """A limit is a safeguard, so the first way out is to stay within it."""
    limit = f"epsilon {error.spent.limit_epsilon:.12g} at delta {error.spent.limit_delta:g}"
    total = f"it would make epsilon {rounded_up(error.after)} in all, and your limit is {limit}"
    return f"This goes over your limit: {total}, of which {error.spent.left_text} is left. Decline; {_RAISING}."


def invitation_error(name: str, error: TpmdpError, *, is_study: bool) -> TpmdpError:
    """Why an uploaded file is no invitation that can be opened.

    >>> print(invitation_error("letter.pdf", TpmdpError("x"), is_study=False))
    letter.pdf is not an invitation: choose the .study.toml file that you were sent, or ask its sender again
    """
    if not is_study:
        remedy = "choose the .study.toml file that you were sent, or ask its sender again"
        return FileError(name, "is not an invitation", remedy)
    why = error.problem if isinstance(error, FileError) else str(error)
    return FileError(name, f"is an invitation that cannot be read: it {why}", "ask its sender for a new one")
