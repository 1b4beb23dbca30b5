"""The sections of a report on who learns what, and what is promised against whom."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from tpmdp.engines.contract import lacks_noise
from tpmdp.ledger import rounded_up
from tpmdp.planning.person import PLACES_MAX
from tpmdp.queries.vertical_query import VerticalQuery
from tpmdp.report.markup import Html, name, names, table, tag
from tpmdp.report.numbers import number, plural
from tpmdp.report.promise import PartyPromise, pair_promises, percent_up, person_promise
from tpmdp.study.record import SessionRecord

ROWS_MAX: Final = 60  # longer tables show the first ones
KEEP_IT: Final = "The answer must stay with its receivers. To publish it, all parties must be receivers."
_SEVERAL: Final = (
    "A person with several records at one party has less, too: with two records at most twice the epsilon, at "
    "1 + e^epsilon times the delta. A study can also protect all records of a party together."
)


def learns_section(record: SessionRecord, *, is_headed: bool = True) -> Html:
    """Who learns what: as in the threat model, for this study."""
    study, terms = record.study, record.joint_terms
    others = [party.name for party in study.parties if party.name not in study.receivers]
    most = plural(terms.colluders, "party", "parties")
    noise = "no noise" if lacks_noise(terms) else "the noise of all parties"
    rows: list[list[object]] = [[names(study.receivers), f"the answer with {noise} in it"]]
    if study.rounds > 1:
        rows.append(["all parties", f"the result of each of the {study.rounds} rounds, with {noise} in it"])
    if others:
        rows.append([names(others), "that the session is complete, and nothing of the answer"])
    if not lacks_noise(terms):
        text = (
            "the answer with the noise of the others in it, if a receiver is among them; otherwise nothing about data"
        )
        rows.append([f"up to {most} that work together", text])
    rows.append(
        [
            "all parties",
            "the study: names, keys, budgets, numbers of records, queries with their bounds, and the noise plan; who "
            "took part, and when. Each keeps a sealed proof of the state of every other party's ledger, which only "
            "that party can read",
        ]
    )
    metadata = "who sends how much to whom, and when; nothing about data"
    if study.uses_relay:
        text = f"{metadata}. Its operator need not be trusted with data, and can stop the session"
        rows.append(["the relay", f"public keys, hashes of the study's name and plan, {text}"])
    rows.append(["anybody on the network", metadata])
    heading = [tag("h2", "Who learns what")] if is_headed else []
    return tag("section", *heading, table(["who", "learns"], rows))


def promise_section(record: SessionRecord, promised: Sequence[PartyPromise], party: str = "") -> Html:
    """The promise in plain words, and what it leaves out; in numbers for `party`, if one reads it."""
    study, terms = record.study, record.joint_terms
    if lacks_noise(terms):
        text = "Nothing is promised: no noise is added, so a receiver may learn about a single record from the answer."
        return tag("section", tag("h2", "The promise in plain words"), tag("p", text))
    unit = "one record" if study.unit == "record" else "all records of one party"
    most = plural(terms.colluders, "party", "parties")
    words = [
        tag(
            "p",
            f"Think of somebody who wants to find out about {unit}, who knows all other data, and who has the help "
            f"of up to {most}: all that these hold, sent and received. From all of it they learn hardly anything about "
            f"{'that record' if study.unit == 'record' else 'those records'}, because the answer would have looked "
            "almost the same if it had said something else.",
        ),
        *_in_numbers(record, promised, party),
        tag(
            "p",
            f"epsilon: {unit} changes the probability of anything that they could see by a factor of at most e^epsilon "
            "(epsilon 1: 2.72 times). delta: a small probability by which that may be exceeded (1e-06: one in a "
            "million). Smaller is safer for both.",
        ),
    ]
    items = tag("ul", *(tag("li", text) for text in _not_promised(record)))
    heading = tag("h3", "What it does not promise")
    return tag("section", tag("h2", "The promise in plain words"), *words, heading, items)


def _in_numbers(record: SessionRecord, promised: Sequence[PartyPromise], party: str) -> Iterator[Html]:
    """The best guess about the reader's records; without one, about the party that is protected least.

    That is one of those whose ledgers were given, if any.
    """
    mine = {party} if party else {each.party for each in record.parties}
    limited = [each for each in promised if math.isfinite(each.offered) and (not mine or each.party in mine)]
    weakest = max(limited, key=lambda each: each.guess, default=None)
    if weakest is None:
        return
    whom: object = "your records" if party else name(weakest.party)
    rest = "." if party else ", the party that is protected least here" if len(limited) > 1 else ""
    rest = rest if party else f"{rest}. The table below has each party."
    yield tag(
        "p",
        "In numbers: suppose two values are as likely as each other. A blind guess between them is right 50 % of "
        f"the time. With the answer, the best guess is right at most {percent_up(weakest.guess)} of the time, for ",
        whom,
        rest,
    )


def _not_promised(record: SessionRecord) -> list[str]:
    study, terms = record.study, record.joint_terms
    drop = f" {study.tolerate}" if study.tolerate else ""
    texts = [
        *([KEEP_IT] if len(study.receivers) < len(study.parties) else []),
        f"If more than {plural(terms.colluders, 'party', 'parties')} work together, the promise does not hold. The "
        "table below says what is left with one party more.",
        "The author of the study chose the parties, and could have invented some: invented parties are one person who "
        "knows all their noise. Each party should know the others' keys: compare the ten words by "
        "telephone (the page and tpmdp fingerprint show them), or keep their keys in a file of your own.",
        "It counts on the other parties to add their noise, as this software does. Nobody can see whether a party did.",
        "A party can lie about its data. The answer is then wrong, and nobody can see it.",
        "What is true of many people stays visible: a study may show that a habit harms, and that says something about "
        "everybody who has it.",
        "The promise is for this session. Further sessions about the same records add up; each party's ledger counts "
        "them and refuses what goes over its limit.",
        f"It protects {'a record' if study.unit == 'record' else 'a party'}. A person with records at several parties "
        "has less, as the table below says.",
        *([_SEVERAL] if study.unit == "record" else []),
        "A party may be charged and get no answer: if another one cheats, or"
        + (f" if more than{drop} drop out" if study.tolerate else " drops out")
        + ", after all have agreed. What was charged stays charged.",
    ]
    if not study.computation.is_sum:
        texts.append(
            "It holds against parties that pool what they see, not against some that send wrong messages: a party that "
            "lies about its data, together with a receiver, can read records of others."
        )
    return texts


def coalitions_section(record: SessionRecord, promised: Sequence[PartyPromise], *, is_headed: bool = True) -> Html:
    """What each party offers and is promised, against whom."""
    study = record.study
    mine = {each.party for each in record.parties}
    squares = record.joint_terms.sigma.astype(np.float64) ** 2
    share = {
        record.joint_terms.spec.name(place): f"{100 * square / (squares.sum() or 1.0):.0f} %"
        for place, square in enumerate(squares.tolist())
    }
    shown = list(promised[:ROWS_MAX]) + [each for each in promised[ROWS_MAX:] if each.party in mine]
    rows = []
    for each in shown:
        who = names(each.coalition) if each.coalition else Html("nobody can attack")
        rows.append(
            [
                name(each.party),
                f"{study.party(each.party).records:,}",
                number(each.offered),
                number(each.delta),
                rounded_up(each.epsilon),
                percent_up(each.guess),
                _beyond(each.beyond),
                share[each.party],
                who,
            ]
        )
    headings = ["party", "records", "offered", "at delta", "real epsilon", "best guess", "with one more"]
    headings += ["share of noise", "against"]
    more = len(promised) - len(shown)
    return tag(
        "section",
        *([tag("h2", "Each party and its worst coalition")] if is_headed else []),
        table(headings, rows, numbers={1, 2, 3, 4, 5, 6, 7}, has_cards=True),
        *([tag("p", f"{more} more parties are in the record below.", class_="note")] if more > 0 else []),
        tag(
            "p",
            "offered: the epsilon in the study. real: what the session costs the party against the worst coalition "
            "that the threshold allows; smaller is safer. against: who would have to work together for that. "
            "best guess: how often the best guess is right where a blind one is right half the time. with one more: "
            "the epsilon at most if one party more works together than the threshold allows; it is not promised. share "
            "of noise: how much of the variance in the answer this party adds.",
            class_="note",
        ),
    )


def _beyond(epsilon: float | None) -> str:
    if epsilon is None:
        return ""
    return rounded_up(epsilon, 4) if math.isfinite(epsilon) else "no protection"


def person_section(record: SessionRecord, *, is_headed: bool = True) -> Iterator[Html]:
    """What a person with records at several parties is promised; nothing without noise."""
    study, terms = record.study, record.joint_terms
    if lacks_noise(terms):
        return
    holders = np.flatnonzero(terms.spec.sensitivity).tolist()
    mine = [study.index(each.party) for each in record.parties]
    if any(isinstance(query, VerticalQuery) for query in study.queries):
        where = "at every party, as all people of this study have them"
        people = [person_promise(terms, holders)] if 1 < len(holders) <= PLACES_MAX else []
    else:
        where = "at each of two parties, for each party with the other one that is worst; and at all parties"
        people = pair_promises(terms, mine or holders[:ROWS_MAX])
        if 2 < len(holders) <= PLACES_MAX:
            people.append(person_promise(terms, holders))
    heading = [tag("h2", "A person with records at several parties")] if is_headed else []
    several = Html(f"{tag('code', 'tpmdp plan study.toml --person a,b,c')} computes it for any parties.")
    if record.study.rounds > 1:
        several = Html("It is for all rounds together.")
    if not people:
        yield tag("section", *heading, tag("p", "Such a person has less protection. ", several))
        return
    rows = [
        [
            name(each.party),
            names(each.others),
            rounded_up(each.epsilon, 4),
            number(each.delta),
            percent_up(each.guess),
            names(each.coalition) if each.coalition else Html("nobody can attack"),
        ]
        for each in people
    ]
    unit = "one record" if study.unit == "record" else "any number of records"
    yield tag(
        "section",
        *heading,
        tag(
            "p",
            "The records of such a person move the answer together. So the person has less protection than with a "
            f"record at one party only. This is for {unit} {where}. ",
            several,
        ),
        table(
            ["party", "and", "epsilon", "at delta", "best guess", "against"], rows, numbers={2, 3, 4}, has_cards=True
        ),
        tag(
            "p",
            "against: who would have to work together for that. A party among them knows its own record of the person; "
            "the number is then about the other record.",
            class_="note",
        ),
    )
