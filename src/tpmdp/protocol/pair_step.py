"""A step before the sum: some parties, the holders, compute together, and each keeps a share of what comes out.

The shares of one attempt add up to the result; a share alone, or with those of all but one holder, tells nothing of it.
The step makes no message of its own but PAIRED: the holders connect to each other for it. Three rules make it safe:

- A holder computes once for an attempt, and says PAIRED when its share is on its disk. Nobody submits before all
  holders have. So if one has submitted, all can.
- A holder that was cut off in the middle begins a new attempt. Nobody else does, so none begins once one has submitted.
- A holder submits to one attempt of a session only. Otherwise one that changes its data between two attempts could see
  two results with the same noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tpmdp.protocol.masks import Mask


class PairStep(Protocol):
    """What one party does in this step. Whatever it does is durable when the call returns."""

    @property
    def holders(self) -> frozenset[int]:
        """The parties that compute together."""

    def compute(self, attempt: int, is_news: Callable[[], bool]) -> bool:
        """At a holder: compute and store the share for this attempt, unless it is stored.

        False if it gave up while it waited for the others, because there was news: they may be in a new attempt.
        """

    def share(self, attempt: int) -> Mask:
        """At a holder: the stored share, its vector with noise. Refuses a second attempt of the session."""
