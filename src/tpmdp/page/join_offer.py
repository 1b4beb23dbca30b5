"""What an invitation offers, for the party that reads it: question, parties, cost, coalitions, error and promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tpmdp.ledger import OverspendError, left_text, rounded_up
from tpmdp.ledger.spending import NONE_LEFT
from tpmdp.page.join_choice import Words
from tpmdp.page.join_words import invitee_text
from tpmdp.page.pictures import ring
from tpmdp.protocol.terms import Terms
from tpmdp.report.check import (
    NOBODY,
    coalition_role,
    coalitions_text,
    cost_texts,
    ledger_text,
)
from tpmdp.report.coalitions import reason_text, worst_coalition
from tpmdp.report.html_asked import NOT_STATED, deadline_words, leaving_list, stated_rows
from tpmdp.report.html_promise import coalitions_section, learns_section, person_section, promise_section
from tpmdp.report.markup import Html, joined, name, names, table, tag
from tpmdp.report.numbers import number, plural, with_sign
from tpmdp.report.promise import PartyPromise, coalition_guess, percent_up, promises_of
from tpmdp.report.queries import assumed_text, error_text, no_noise_text
from tpmdp.report.questions import question_text, short_text
from tpmdp.study.model import Study
from tpmdp.study.party_check import PartyCheck
from tpmdp.study.record import SessionRecord

ROWS_MAX: Final = 60
_OFFERS: Final[dict[str, StudyOffer]] = {}  # of the studies shown last
_ASKED_SHOWN: Final = 6
_OFFERS_MAX: Final = 8
_COST_LABELS: Final = {True: "Charged epsilon", False: "Charged before: epsilon"}
_COMPARED: Final[dict[Words, str]] = {
    "": "not said yet: compare the ten words",
    "pinned": "their keys are those in your own file",
    "compared": "you have compared the ten words",
    "not compared": "you have not compared the ten words",
}


@dataclass(frozen=True, eq=False)
class StudyOffer:
    """What is computed once for a study and a party: it takes up to seconds for many parties."""

    record: SessionRecord
    party: str

    @classmethod
    def of(cls, study: Study, party: str) -> StudyOffer:
        """The offer; the same study is shown again after every change of the form."""
        key = f"{party}\n{study.toml()}"
        offer = _OFFERS.get(key)
        if offer is None:
            while len(_OFFERS) >= _OFFERS_MAX:
                _OFFERS.pop(next(iter(_OFFERS)), None)
            offer = _OFFERS[key] = cls(SessionRecord.of(study), party)
        return offer

    @cached_property
    def promised(self) -> list[PartyPromise]:
        """What each party is promised."""
        return promises_of(self.record.joint_terms, not self.record.study.computation.is_sum)

    @property
    def own(self) -> PartyPromise:
        """What this party is promised."""
        return self.promised[self.record.study.index(self.party)]

    @cached_property
    def promise_part(self) -> Html:
        """What is promised in plain words, and what is not; the tables can be unfolded."""
        record, promised = self.record, self.promised
        folded = {
            "learns": ("Who learns what", [learns_section(record, is_headed=False)]),
            "parties": ("Every party and its worst coalition", [coalitions_section(record, promised, is_headed=False)]),
            "person": ("A person with records at several parties", list(person_section(record, is_headed=False))),
        }
        parts = [tag("div", promise_section(record, promised, self.party), id="promise")]
        for key, (summary, sections) in folded.items():
            if sections:
                parts.append(tag("details", tag("summary", summary), *sections, id=f"{key}-details"))
        return joined(parts)


def is_over_limit(check: PartyCheck) -> bool:
    """Whether the session would cost more than the party's limit allows."""
    return any(isinstance(problem, OverspendError) for problem in check.problems)


def summary_part(offer: StudyOffer, check: PartyCheck, compared: Words) -> Html:
    """The invitation in a few lines, each with a link to what it says in full."""
    study, own = offer.record.study, offer.own
    about = "; ".join([study.purpose or f"purpose {NOT_STATED}", study.contact or f"contact {NOT_STATED}"])
    rows: list[tuple[str, str, object]] = [
        ("asked", "What is asked", joined([_asked(study), _rounds(study)])),
        ("asked", "What for, and whom to ask", tag("bdi", about)),
        ("whom", "With whom", _whom(study, offer.party)),
        ("cost", "What it costs you", _cost_summary(check)),
        ("collude", "Who could learn about a record of yours", _against(own, offer)),
        (
            "leaves",
            "What leaves the house",
            "sums with noise, the number of your records, your signature, network address and timing",
        ),
        (
            "words",
            "Are the others real?",
            _COMPARED[compared] if not offer.record.is_draft else "not all keys are known",
        ),
    ]
    cells = [cell for to, key, value in rows for cell in (tag("dt", tag("a", key, href=f"#{to}")), tag("dd", value))]
    return tag("div", tag("h2", "In short"), tag("dl", *cells), class_="panel", id="in-short")


def _asked(study: Study) -> Html:
    """The questions in a few words each."""
    more = f"; and {len(study.queries) - _ASKED_SHOWN} more" if len(study.queries) > _ASKED_SHOWN else ""
    texts = [tag("bdi", short_text(query)) for query in study.queries[:_ASKED_SHOWN]]
    return joined([joined(texts, "; "), more])


def _whom(study: Study, party: str) -> Html:
    """How many take part, and who gets the answer."""
    count = len(study.parties)
    if len(study.receivers) == count:
        return Html(f"all {count} parties, you included, get the answer")
    others = [each for each in study.receivers if each != party]
    you = "you" if party in study.receivers else ""
    listed = names(others, 4) if others else Html("")
    who = joined([you, " and " if you and others else "", listed])
    verb = " get" if len(study.receivers) > 1 or you else " gets"
    rest = "" if you else "; you get a receipt"
    return joined([f"{count} parties, you included; ", who, verb, " the answer", rest])


def _rounds(study: Study) -> str:
    return "" if study.rounds == 1 else f", in {study.rounds} rounds, of which all parties learn the result"


def _cost_summary(check: PartyCheck) -> Html | str:
    if check.cost is None:
        return "not known yet"
    text = f"epsilon {rounded_up(check.cost)}" if check.charged_now else "nothing new"
    if is_over_limit(check):
        return tag("strong", f"{text}: over your limit", class_="over")
    if check.after is None:
        return text
    return joined([f"{text}. ", ledger_text(check.after, check.counted, check.offered[0])])


def _against(own: PartyPromise, offer: StudyOffer) -> Html | str:
    study, terms = offer.record.study, offer.record.joint_terms
    if not study.party(own.party).records:
        return "you have no records in this study"
    if not own.coalition:
        return "nobody within the threshold"
    guess = f"; for your records, the best guess is right at most {percent_up(own.guess)} of the time (blind: 50 %)"
    return joined([_worst(terms, own.party, own.coalition), " at worst", guess])


def _worst(terms: Terms, party: str, members: Sequence[str]) -> Html:
    """A worst coalition, with those that are equally bad."""
    worst = worst_coalition(terms, party, members)
    if not worst.rest:
        return names(worst.members, 4)
    between = ", " if worst.rest.startswith("or ") else " with "
    return joined([names(worst.members, 4), between, worst.rest]) if worst.members else Html(worst.rest)


def question_part(offer: StudyOffer) -> Html:
    """Who asks what and what for, until when, with which kind of guarantee, and all that leaves the house."""
    study = offer.record.study
    rows = [[name(query.name), question_text(query)] for query in study.queries]
    stated: list[tuple[str, object]] = [
        *stated_rows(study),
        ("Deadline", deadline_words(study)),
        ("Kind of guarantee", offer.record.guarantee),
    ]
    cells = [cell for key, value in stated for cell in (tag("dt", key), tag("dd", value))]
    return joined(
        [
            tag("h2", "What is asked", id="asked"),
            tag("p", tag("strong", name(study.label))),
            table(["query", "question"], rows, has_cards=True),
            tag("dl", *cells),
            tag("h2", "What leaves the house", id="leaves"),
            leaving_list(study),
        ]
    )


def parties_part(study: Study, party: str) -> Html:
    """The parties with their budgets, and who receives."""
    rows = []
    for each in study.parties[:ROWS_MAX]:
        you = [" ", tag("strong", "(you)")] if each.name == party else []
        receives = "the answer" if each.name in study.receivers else "a receipt"
        key = "missing" if each.public_key is None else "given"
        who = joined([name(each.name), *you])
        rows.append([who, f"{each.records:,}", number(each.epsilon), number(each.delta), receives, key])
    more = len(study.parties) - len(rows)
    unit = "each record" if study.unit == "record" else "all records of a party at once"
    drop = f" {plural(study.tolerate, 'party', 'parties')} may drop out." if study.tolerate else ""
    many = plural(study.threshold, "party", "parties")
    headings = ["party", "records", "epsilon", "delta", "receives", "public key"]
    return joined(
        [
            tag("h2", "With whom", id="whom"),
            table(headings, rows, numbers={1, 2, 3}, has_cards=True),
            *([tag("p", f"{more} more parties are not shown.", class_="note")] if more > 0 else []),
            tag("p", f"Protected is {unit}, as long as no more than {many} pool what they see.{drop}"),
        ]
    )


def lead_part(offer: StudyOffer) -> Html:
    """Who adds up, in a study of sums."""
    if not offer.record.study.uses_relay:
        return Html("")
    spec = offer.record.joint_terms.spec
    lead = spec.name(offer.record.joint_terms.lead)
    who = [tag("strong", "You"), " add up"] if lead == offer.party else [tag("strong", name(lead)), " adds up"]
    learns = "You see" if lead == offer.party else "It sees"
    waits = " The others wait for you while you do: keep tpmdp page running until the answer is here."
    sees = f" what the others submit. {learns} masked numbers, and nothing else but the sum."
    return tag("p", *who, sees, waits if lead == offer.party else "")


# Cost and coalitions --------------------------------------------------------------------------------------------------


def cost_part(offer: StudyOffer, check: PartyCheck, *, is_over: bool = False) -> Html:
    """What it costs, what is left, who would have to collude, and the error to expect; `is_over`: it was decided."""
    study, heading = offer.record.study, tag("h2", "What it costs you", id="cost")
    if check.cost is None:
        return joined([heading, tag("p", "The cost cannot be known yet: see the problems below.", class_="empty")])
    parts: list[Html] = [heading]
    if check.expected is not None and (text := no_noise_text(study, check.expected)):
        parts.append(tag("p", text, class_="warning"))
    over = [problem for problem in check.problems if isinstance(problem, OverspendError)]
    label = f"{_COST_LABELS[check.charged_now]}, at delta {number(check.offered[1])}"
    parts += [
        tag("p", label, class_="label"),
        tag("p", rounded_up(check.cost), *([tag("span", " over your limit")] * bool(over)), class_=_big(over)),
        *(tag("p", invitee_text(problem), class_="problem") for problem in over),
        *_meaning(offer, check),
        *(tag("p", text) for text in cost_texts(check)),
    ]
    if not is_over:
        parts += [tag("p", text) for text in _consequences(check)]
        parts += [tag("p", f"{note[:1].upper()}{note[1:]}.", class_="note") for note in check.notes]
    parts += [tag("h2", "Who would have to collude against you", id="collude"), _coalitions(offer, check)]
    return joined([*parts, *_exactness(study, check)])


def _big(over: list[OverspendError]) -> str:
    return "big over" if over else "big"


def _meaning(offer: StudyOffer, check: PartyCheck) -> list[Html]:
    """What the number means for one person."""
    if not check.records_stated or not check.cost:
        return []
    whose = "a record of yours" if check.unit == "record" else "all your records together"
    return [
        tag(
            "p",
            f"epsilon says how much others could learn about {whose}; smaller is safer. At this cost, the best guess "
            "between two equally likely values is right at most ",
            tag("strong", f"{percent_up(offer.own.guess)} of the time"),
            "; a blind guess is right 50 % of the time.",
        )
    ]


def _consequences(check: PartyCheck) -> list[str]:
    """What follows for the party's ledger."""
    after, texts = check.after, []
    if after is None or check.cost is None or is_over_limit(check):
        return []
    if left_text(after.left, check.offered[0]) == NONE_LEFT:
        texts.append("You spend all of your limit: your ledger then refuses every further study on these records.")
    if check.ledger in ("new", "not given"):
        limit = f"{after.limit_epsilon:.12g}"
        texts.append(
            f"The limit {limit} comes from the study, so its author chose it. Your organisation should decide its own: "
            "once the ledger is there, tpmdp ledger limit FILE --epsilon E sets another."
        )
    return texts


def _coalitions(offer: StudyOffer, check: PartyCheck) -> Html:
    study, party = offer.record.study, offer.party
    if not check.records_stated:
        return tag("p", "You have no records in this study, so there is nothing to learn about yours.")
    if not check.coalitions:
        return tag("p", NOBODY[:1].upper() + NOBODY[1:])
    rows = [
        [
            _worst(offer.record.joint_terms, party, coalition.members),
            coalition_role(check, place),
            rounded_up(coalition.epsilon),
            percent_up(coalition_guess(offer.record.joint_terms, study.index(party), coalition)),
        ]
        for place, coalition in enumerate(check.coalitions)
    ]
    shown = table(["coalition", "what it is", "epsilon", "best guess"], rows, numbers={2, 3}, has_cards=True)
    text = "best guess: how often their best guess about your record is right (a blind one: half the time)."
    note = tag("p", f"{coalitions_text(check)} {text}", class_="note")
    within = [each for each in check.coalitions if each.is_within]
    why = reason_text(study, offer.record.joint_terms, party, members=within[-1].members) if within else ""
    reason = [tag("p", "Worst within the threshold: ", names(within[-1].members, 8), f". {why}")] if why else []
    parts: list[Html] = [shown, note, *reason, lead_part(offer)]
    if not within:
        return joined(parts)
    everybody = [each.name for each in study.parties]
    places = {each: place for place, each in enumerate(everybody)}
    picture = ring(
        everybody,
        [1.0] * len(everybody),
        {places[each] for each in study.receivers},
        party=places[party],
        coalition={places[each] for each in within[-1].members if each in places},
    )
    legend = "Blue: you. Orange, with lines: who colludes. Dashed outline: receives the answer."
    return tag("div", tag("div", *parts), tag("div", picture, tag("p", legend, class_="note")), class_="columns")


def _exactness(study: Study, check: PartyCheck) -> list[Html]:
    if check.expected is None:
        return []
    rows = [
        [name(answer.label), with_sign(error_text(error))]
        for each in check.expected.queries
        for answer, error in zip(each.answers, each.errors, strict=True)
    ]
    assumed = assumed_text(study, check.expected.queries)
    return [
        tag("h2", "How exact the answer will be", id="exact"),
        table(["answer", "95 % of the time within"], rows[:ROWS_MAX], numbers={1}, has_cards=True),
        *([tag("p", f"{len(rows) - ROWS_MAX} more are not shown.", class_="note")] * (len(rows) > ROWS_MAX)),
        *([tag("p", assumed, class_="note")] if assumed else []),
        *([tag("p", f"Assumed: {study.assumes}.", class_="note")] if study.assumes else []),
    ]
