"""The job of a study on shares: which engine computes which function, with what."""

from __future__ import annotations

from tpmdp.engines.direct.job import DirectJob, job_class
from tpmdp.protocol.terms import Terms
from tpmdp.queries.computation import SharedFunction
from tpmdp.study.model import Study


def check_installed(study: Study) -> None:
    """Refuse a study whose engine is not installed here; sums need nothing."""
    if study.engine_used:
        job_class(study.engine_used).check_installed()


def shared_job(study: Study, terms: Terms, attempt: int = 0) -> DirectJob:
    """What the connected parties of a session compute; refuses what its engine cannot.

    With an attempt, they keep their shares for a sum through a relay.
    """
    computation, parties = study.computation, study.party_records
    assert isinstance(computation, SharedFunction)
    query, engine = computation.query, computation.engine_of(study.setting)
    parameters, sizes = query.parameters(parties, terms.grid), query.sizes(parties)
    return job_class(engine).of(terms, query.functions[engine], parameters, sizes=sizes, attempt=attempt)
