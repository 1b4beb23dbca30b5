"""What a study would give and cost, before anything is run or charged."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

from tpmdp.ledger import promise, square_up
from tpmdp.protocol.terms import Terms
from tpmdp.queries.base import Answer, Query
from tpmdp.queries.joint import JointQuery
from tpmdp.study.model import Study


@dataclass(frozen=True)
class ExpectedQuery:
    """One query of a study: its place in the vector and its expected error bars, for plausible data.

    `apart` is how many times larger the noise would be if every query were a study of its own and the budgets were
    shared equally among them; None where the study has one query only.
    """

    query: Query | JointQuery
    entries: int
    sensitivity: tuple[float, float]  # least and largest of the parties with records
    noise: float  # standard error of an entry, in the query's own scale
    answers: tuple[Answer, ...]
    apart: float | None


@dataclass(frozen=True)
class Expectation:
    """A whole study: its queries, and what each party would be charged."""

    queries: tuple[ExpectedQuery, ...]
    charges: dict[str, float]  # epsilon at the party's own delta


def expect(study: Study) -> Expectation:
    """Plan the study and tell what would come of it.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 900}, {"name": "lab", "epsilon": 2, "records": 500}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> found = expect(Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                             "parties": parties, "queries": [query]}))
    >>> found.queries[0].noise > 2, sorted(found.charges)
    (True, ['bank', 'lab'])
    """
    terms = _terms(study)
    error = terms.standard_deviation
    found = []
    scales = study.scales if study.joint is None else [1.0]
    for query, scale in zip(study.queries, scales, strict=True):
        each = [_sensitivity(study, query, member.name, member.records) for member in study.members if member.records]
        span, noise = (min(each), max(each)), error / scale * study.weights.scale
        answers = tuple(_answers(study, query, noise))
        found.append(ExpectedQuery(query, query.dimension, span, noise, answers, _apart(study, query, noise)))
    names = [member.name for member in study.members]
    return Expectation(tuple(found), {name: _charge(terms, index) for index, name in enumerate(names)})


def _answers(study: Study, query: Query | JointQuery, noise: float) -> list[Answer]:
    """For plausible data."""
    if isinstance(query, JointQuery):
        return query.answers(query.typical(study.records), study.records, noise)
    return study.answers_of(query, query.typical(study.records), noise)


def _sensitivity(study: Study, query: Query | JointQuery, party: str, records: int) -> float:
    if isinstance(query, JointQuery):
        return query.sensitivity(study.unit, party, records)
    return query.sensitivity(study.unit, records)


def _terms(study: Study) -> Terms:
    """The terms, under keys that are nobody's."""
    keys = {member.name: hashlib.sha256(member.name.encode()).digest() for member in study.members}
    return study.with_keys(keys).terms()


def _charge(terms: Terms, index: int) -> float:
    mu, closeness = terms.charge(index)
    return promise(square_up(mu), closeness, float(terms.spec.delta[index]))


def _apart(study: Study, query: Query | JointQuery, joint_error: float) -> float | None:
    count = len(study.queries)
    if count == 1 or not joint_error:
        return None
    members = tuple(replace(one, epsilon=one.epsilon / count, delta=one.delta / count) for one in study.members)
    alone = replace(study, queries=(query,), members=members)
    return _terms(alone).standard_deviation * alone.weights.scale / joint_error
