"""What a study would give and cost, before anything is run or charged."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from tpmdp.ledger import promise, square_up
from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery, Query
from tpmdp.queries.preview import PreviewedError, preview
from tpmdp.queries.weighted_answers import likely_error
from tpmdp.study.expected import Expectation as Expectation
from tpmdp.study.expected import ExpectedQuery as ExpectedQuery
from tpmdp.study.model import Study


def expect(study: Study, terms: Terms | None = None) -> Expectation:
    """Plan the study, unless terms are given, and compute the errors and charges to expect.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 900}, {"name": "lab", "epsilon": 2, "records": 500}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> expected = expect(Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                                "parties": parties, "queries": [query]}))
    >>> expected.queries[0].noise > 2, sorted(expected.charges)
    (True, ['bank', 'lab'])
    """
    terms = trial_terms(study) if terms is None else terms
    queries = []
    for query, scale in zip(study.queries, study.computation.scales, strict=True):
        holders = [party for party in study.parties if party.records]
        sensitivities = [query.sensitivity_of(study.unit, party.name, party.records) for party in holders]
        noise = terms.standard_deviation / scale * study.weights.scale
        answers, errors = _previewed(study, query, noise)
        expected = ExpectedQuery(
            query,
            entries=query.dimension,
            sensitivity=(min(sensitivities), max(sensitivities)),
            noise=noise,
            answers=answers,
            apart=_apart(study, query, noise),
            errors=errors,
        )
        queries.append(expected)
    charges = {party.name: _charge(terms, index) for index, party in enumerate(study.parties)}
    return Expectation(tuple(queries), charges)


def _previewed(study: Study, query: BaseQuery, noise: float) -> tuple[tuple[Answer, ...], tuple[PreviewedError, ...]]:
    """The answers to likely data, with the error that runs would have."""
    likely = study.typical.scenarios()[0]
    answers = study.answers_of(query, query.guess(study.records, likely), noise)
    error = None
    if isinstance(query, Query) and not study.weights.are_equal:
        error = likely_error(query, noise, study.weights, share=study.spread)
    bars = [answer.standard_error for answer in answers]
    errors = preview(query, study.records, noise, guesses=study.typical, bars=bars, error=error)
    shown = []
    for answer, each in zip(answers, errors, strict=True):
        if each.likely is not None and not answer.is_drowned and each.likely != answer.standard_error:
            answer = replace(answer, standard_error=each.likely, limits=None)
        shown.append(answer)
    return tuple(shown), tuple(errors)


def trial_terms(study: Study) -> Terms:
    """The terms of a study as they would be, under keys that nobody has."""
    keys = {party.name: hashlib.sha256(party.name.encode()).digest() for party in study.parties}
    return study.with_keys(keys).terms()


def _charge(terms: Terms, index: int) -> float:
    mu, closeness = terms.charge(index)
    return promise(square_up(mu), closeness, float(terms.spec.delta[index]))


def _apart(study: Study, query: BaseQuery, noise: float) -> float | None:
    count = len(study.queries)
    if count == 1 or not noise:
        return None
    parties = tuple(replace(party, epsilon=party.epsilon / count, delta=party.delta / count) for party in study.parties)
    alone = replace(study, queries=(query,), parties=parties)
    return trial_terms(alone).standard_deviation * alone.weights.scale / noise
