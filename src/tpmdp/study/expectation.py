"""What a study would give and cost, before anything is run or charged."""

from __future__ import annotations

from dataclasses import replace

from tpmdp.protocol.terms import Terms
from tpmdp.queries.answer import Answer
from tpmdp.queries.base import BaseQuery, Query
from tpmdp.queries.preview import PreviewedError, preview
from tpmdp.queries.weighted_answers import likely_error
from tpmdp.study.cost import all_terms, joint_epsilon, trial_study
from tpmdp.study.expected import Expectation as Expectation
from tpmdp.study.expected import ExpectedQuery as ExpectedQuery
from tpmdp.study.model import Study


def expect(study: Study, terms: Terms | None = None) -> Expectation:
    """Plan the study, unless terms are given, and compute the errors and charges to expect.

    Errors are those of the last round, if there are several; charges are those of all rounds together.

    >>> parties = [{"name": "bank", "epsilon": 1, "records": 900}, {"name": "lab", "epsilon": 2, "records": 500}]
    >>> query = {"name": "old", "kind": "count", "column": "age", "at_least": 65}
    >>> expected = expect(Study.parse({"name": "demo", "delta": 1e-6, "threshold": 1, "receivers": ["bank"],
    ...                                "parties": parties, "queries": [query]}))
    >>> expected.queries[0].noise > 2, sorted(expected.charges)
    (True, ['bank', 'lab'])
    """
    terms = trial_terms(study) if terms is None else terms
    if study.rounds > 1:
        return _expect_rounds(study, terms)
    charges = {party.name: joint_epsilon(study, index, [terms]) for index, party in enumerate(study.parties)}
    return Expectation(_expected_queries(study, terms), charges)


def _expect_rounds(study: Study, first: Terms) -> Expectation:
    """As `expect`, at guessed points; names and settings of the queries are the study's own."""
    every = all_terms(study, first)
    last = _expected_queries(study.preview_rounds[-1], every[-1])
    own = {query.name: query for query in study.queries}
    queries = tuple(replace(each, query=own[each.query.name]) for each in last)
    charges = {party.name: joint_epsilon(study, index, every) for index, party in enumerate(study.parties)}
    return Expectation(queries, charges)


def _expected_queries(study: Study, terms: Terms) -> tuple[ExpectedQuery, ...]:
    queries = []
    for query, scale in zip(study.queries, study.computation.answer_scales, strict=True):
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
    return tuple(queries)


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
    return trial_study(study).terms()


def _apart(study: Study, query: BaseQuery, noise: float) -> float | None:
    count = len(study.queries)
    if count == 1 or not noise or study.part is not None:
        return None
    parties = tuple(replace(party, epsilon=party.epsilon / count, delta=party.delta / count) for party in study.parties)
    alone = replace(study, queries=(query,), parties=parties)
    return trial_terms(alone).standard_deviation * alone.weights.scale / noise
