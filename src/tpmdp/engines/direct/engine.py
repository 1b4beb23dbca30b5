"""All parties of a session on one machine: every party in its own process, over loopback."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from tpmdp._util.arrays import IntArray
from tpmdp._util.clock import now_s
from tpmdp.engines.contract import Outcome
from tpmdp.engines.direct.job import Parameters, job_class
from tpmdp.engines.direct.record import DirectError
from tpmdp.engines.direct.worker_process import WORKER, WorkerProcess
from tpmdp.errors import TpmdpError
from tpmdp.protocol.masks import Mask, from_words
from tpmdp.protocol.terms import Terms

_HOST: Final = "127.0.0.1"
Watch = Callable[[Sequence[WorkerProcess]], None]


class DirectEngine:
    """Functions other than sums too, by the engine of this name."""

    def __init__(
        self,
        name: str,
        function: str,
        parameters: Parameters | None = None,
        *,
        module: str = WORKER,
        on_go: Watch | None = None,
    ) -> None:
        self.name, self._function, self._parameters = name, function, parameters
        self._module, self._on_go = module, on_go
        self.seconds = 0.0  # from the start signal to the last party done, for benchmarks

    def run(
        self, terms: Terms, identities: Sequence[Ed25519PrivateKey], vectors: Sequence[Mask], deadline_s: float = 60.0
    ) -> Outcome:
        """The function of vectors that already contain their noise, as those of a sum do."""
        values = [from_words(vector, terms.grid.word) for vector in vectors]
        return self._run(terms, identities, values, noises=None, deadline_s=deadline_s)

    def run_function(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        values: Sequence[IntArray],
        noises: Sequence[IntArray],
        deadline_s: float = 60.0,
    ) -> Outcome:
        """The function of the values plus every party's noise, which is added on shares."""
        return self._run(terms, identities, values, noises=noises, deadline_s=deadline_s)

    def _run(
        self,
        terms: Terms,
        identities: Sequence[Ed25519PrivateKey],
        values: Sequence[IntArray],
        noises: Sequence[IntArray] | None,
        deadline_s: float,
    ) -> Outcome:
        sizes = [len(each) for each in values]
        kind, noise_apart = job_class(self.name), noises is not None
        job = kind.of(terms, self._function, self._parameters, sizes=sizes, noise_apart=noise_apart)
        job.digest()  # refuses a missing library and parameters that do not travel
        every = [None] * terms.count if noises is None else list(noises)
        for index in range(terms.count):
            job.check(index, values[index], every[index])
        deadline = now_s() + deadline_s
        with ExitStack() as stack:
            workers = []
            for index in range(terms.count):
                worker = WorkerProcess(self._module)
                stack.callback(worker.stop)
                worker.give(job, index, identities[index], bind=(_HOST, 0), deadline=deadline)
                workers.append(worker)
            addresses = [(_HOST, worker.port()) for worker in workers]
            began = time.monotonic()
            for worker, own, noise in zip(workers, values, every, strict=True):
                worker.go(addresses)
                worker.put_in(own, noise)
                worker.say("open", "done")  # all in one call: nobody could run this session again
            if self._on_go is not None:
                self._on_go(workers)
            results = _results(workers)
            self.seconds = time.monotonic() - began
        sums = {index: result for index, (result, _) in enumerate(results) if result is not None}
        receipts = frozenset(range(terms.count)) - set(sums)
        sent = tuple(sent for _, sent in results)
        return Outcome(sums, receipts=receipts, bytes_sent=sent, guarantee=job.guarantee())


def _results(workers: Sequence[WorkerProcess]) -> list[tuple[IntArray | None, int]]:
    """Each party's result and bytes sent. After a failure, the error of the party that failed by itself is raised."""
    results: list[tuple[IntArray | None, int]] = []
    errors: list[TpmdpError] = []
    for worker in workers:
        try:
            worker.connected()
            worker.opening()
            results.append(worker.outcome())
        except TpmdpError as error:
            errors.append(error)
    if errors:
        own = (error for error in errors if not isinstance(error, DirectError) or error.culprit is None)
        raise next(own, errors[0])
    for worker in workers:
        with suppress(TpmdpError):  # all have what they need
            worker.end()
    return results
