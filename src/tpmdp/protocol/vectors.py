"""What a party contributes to an attempt: its vector on the grid, with the noise that the plan for the group has."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tpmdp._util.arrays import IntArray
from tpmdp.errors import InputError
from tpmdp.noise.discrete_gaussian import discrete_gaussian
from tpmdp.noise.source import NoiseSource, system_source, unexpanded_source
from tpmdp.protocol.masks import Mask, to_words
from tpmdp.protocol.terms import Terms

Vector = Callable[[int, frozenset[int]], Mask]  # of an attempt among these parties


def noise_source(terms: Terms) -> NoiseSource:
    """Secure random bits of the kind the guarantee needs."""
    return unexpanded_source() if terms.guarantee == "statistical" else system_source()


def noisy_vector(
    terms: Terms, index: int, encoded: IntArray, source: NoiseSource, members: Iterable[int] | None = None
) -> Mask:
    """The party's vector with its share of the noise of a group, or of all; refuses a seeded source.

    >>> import numpy as np
    >>> from tpmdp import Spec
    >>> from tpmdp.noise.source import seeded_source
    >>> from tpmdp.planning.grid_plan import plan_on_grid
    >>> plan = plan_on_grid(Spec(epsilon=[1.0, 2.0], delta=1e-6, threshold=1), bound=1.0)
    >>> terms = Terms.of("demo", plan, 1.0, roster=(bytes(32), bytes(31) + b"1"))
    >>> noisy_vector(terms, 0, np.array([0]), source=seeded_source(1))
    Traceback (most recent call last):
        ...
    tpmdp.errors.InputError: noise source = seeded must be secure for a release: use system_source()
    """
    if not source.secure:
        raise InputError("noise source", "seeded", "must be secure for a release", "use system_source()")
    group = sorted(range(terms.count) if members is None else members)
    sigma = int(terms.among(group).sigma[group.index(index)])
    return to_words(encoded + discrete_gaussian(sigma, terms.grid.dimension, source), terms.grid.word)


def attempt_vectors(terms: Terms, index: int, first: Mask, plain: IntArray | None) -> Vector:
    """The vectors of a party without a ledger: the first among all parties, later ones drawn for their group.

    `plain` is the contribution without noise. Without it there is no later one where parties may drop out.
    """
    drawn: dict[int, Mask] = {}

    def vector(attempt: int, members: frozenset[int]) -> Mask:
        if not terms.tolerate or (attempt == 1 and len(members) == terms.count):
            return first
        if plain is None:
            raise InputError("plain", "(none)", "is needed for an attempt without some parties", "give it")
        if attempt not in drawn:
            drawn[attempt] = noisy_vector(terms, index, plain, source=noise_source(terms), members=members)
        return drawn[attempt]

    return vector
