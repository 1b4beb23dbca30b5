"""What a study asks of a party, as HTML: purpose and contact, the deadline, and all that leaves the house."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from tpmdp.report.markup import Html, joined, names, tag
from tpmdp.report.queries import leaves_text
from tpmdp.study.events import time_text
from tpmdp.study.model import Study

NOT_STATED: Final = "not stated"
UNSIGNED: Final = "by the author of the study; not part of what is signed"


def stated_rows(study: Study) -> list[tuple[str, object]]:
    """Purpose and contact, which the author of the study wrote and nobody signs."""
    stated = (("Purpose", study.purpose), ("Contact", study.contact))
    return [(key, _stated(text)) for key, text in stated]


def _stated(text: str) -> Html | str:
    if not text:
        return NOT_STATED
    return joined([tag("bdi", text), " ", tag("span", f"({UNSIGNED})", class_="note")])


def deadline_words(study: Study) -> str:
    """Until when the parties wait for each other; the same at any time, unlike the time that is left.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 900}, {"name": "lab", "epsilon": 2, "records": 500}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> deadline_words(Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                             "deadline": "2h", "parties": parties, "queries": [query]}))
    'each party waits 2 h 0 min for the others, from when it joins'
    """
    if isinstance(study.deadline, datetime):
        return f"{study.deadline.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    return f"each party waits {time_text(study.deadline)} for the others, from when it joins"


def leaving_list(study: Study) -> Html:
    """Everything that leaves a party in a session, in one list, and what stays."""
    leaves = dict.fromkeys(leaves_text(query) for query in study.queries)
    asking = {text: [query.name for query in study.queries if leaves_text(query) == text] for text in leaves}
    if study.computation.is_sum:
        how = "with noise in it, and masked so that only the sum over all parties can be read"
        whom = "to the relay and the other parties"
    else:
        how = "split into shares; noise is added before the result is opened"
        whom = "to the relay and the other parties" if study.uses_relay else "to the other parties"
    items = [tag("li", "For ", names(asking[text]), f": {text}, {how}.") for text in leaves]
    texts = [
        "The exact number of records, which stands in the study; so do the budgets.",
        "A sealed proof of the state of the ledger. The others keep it, and only its owner can read it. It shows the "
        "owner, in a later session, if the ledger was replaced by an old copy.",
        "The public key, and the agreement to the study and its plan, signed with it.",
        f"When the party takes part, how much it sends, and its network address, {whom}; also that it was late or "
        "stopped.",
    ]
    items += [tag("li", text) for text in texts]
    stays = "Records, the secret key, the noise and the ledger itself stay with their party."
    return joined([tag("ul", *items), tag("p", stays)])
