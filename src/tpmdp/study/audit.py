"""An audit: what a study's worst coalitions can tell of a record, measured on draws of the real code.

For every party, a coalition of as many parties as the plan withstands tries to tell neighbouring tables apart. How well
it can bounds epsilon from below, and that is compared with what the ledger is charged. Theory, "Audit".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tpmdp._util.arrays import FloatArray
from tpmdp._util.progress import Progress
from tpmdp.errors import InputError
from tpmdp.gaussian.calibration import calibrate
from tpmdp.gaussian.composition import compose_gaussian, epsilon_of
from tpmdp.gaussian.lower_bounds import (
    DRAWS_MAX,
    DRAWS_MIN,
    counted_bound,
    draws_for,
    excess_ratio,
    mu_bound,
    mu_estimate,
    ratio_shown,
)
from tpmdp.ledger import Charge, Totals
from tpmdp.queries.computation import MaskedSum
from tpmdp.spec import Party
from tpmdp.study.audit_entries import EntryFinding, entry_doubt, entry_finding, watch_entries
from tpmdp.study.audit_view import AuditedSession, Target, View, drawn_noise, sign_patterns
from tpmdp.study.cost import charge_of, trial_study
from tpmdp.study.model import Study
from tpmdp.study.neighbours import Neighbours, neighbours_of

DOUBT: Final = 1e-3  # the chance that the audit of a study without fault finds one
EXCESS: Final = 0.05  # of epsilon: the draws are enough to show it
EXCESS_MIN: Final = 1e-3
RELEASES_MAX: Final = 64
_WORK_MAX: Final = 5_000_000_000  # numbers drawn: minutes
_WORK_OF_A_CALL: Final = 250  # what drawing a vector costs besides, in numbers
_HONEST_MOST: Final = 25  # parties with noise of like size, of which one may lack it unnoticed by the excess alone
_BOUNDS: Final = 2  # on epsilon, for each party and pattern
_BEST_SHIFT: Final = 3.0  # in standard deviations: counts of draws then tell most


@dataclass(frozen=True)
class AuditedParty:
    """One party against its worst coalition. Every epsilon is that of all releases together, at the party's delta."""

    party: str
    coalition: tuple[str, ...]
    delta: float
    reached: float  # how far neighbouring tables moved the vector, as a share of the sensitivity
    promised: float
    charged: float
    estimated: float
    gaussian: float  # lower bound from the variance, if the noise is Gaussian
    counted: float  # lower bound from counts of draws, whatever the noise is

    @property
    def exceeds(self) -> bool:
        """Whether a bound shows more than is charged."""
        return max(self.gaussian, self.counted) > self.charged


@dataclass(frozen=True)
class Audit:
    """All parties of a study, audited; `skipped` are the others that have records, each with the reason."""

    study: Study
    releases: int
    draws: int
    excess: float  # of epsilon, as a share: for every party, an audit shows that much with chance 95 % or more
    parties: tuple[AuditedParty, ...]
    skipped: dict[str, str]
    entries: EntryFinding | None = None

    @property
    def exceeds(self) -> bool:
        """Whether some party is charged less than it loses, or some entry has less noise than planned."""
        return self.is_thin or any(each.exceeds for each in self.parties)

    @property
    def is_thin(self) -> bool:
        """Whether some entry of the vector has less noise than planned, beyond chance."""
        return self.entries is not None and self.entries.thin > 0


def audit_study(
    study: Study,
    releases: int = 1,
    excess: float | None = None,
    *,
    doubt: float = DOUBT,
    draws: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Audit:
    """Audit so many sessions of a study that take place one after another; nothing is charged or written.

    There are as many draws as show this excess of epsilon, as a share: if it is not given, 5 %, or what is missing if
    one of up to 25 honest parties adds no noise. `doubt` is the chance that the audit of a study without fault finds
    one. `seed` is that of the tables; noise has none.

    >>> study = (Study.new("flu", threshold=1, receivers="all", delta=1e-6).count("age", at_least=65)
    ...          .party("north", epsilon=1, records=100).party("south", epsilon=2, records=80).build())
    >>> result = audit_study(study, draws=2000)
    >>> [each.coalition for each in result.parties], result.exceeds
    ([('south',), ('north',)], False)
    """
    _check(study, releases, excess, seed=seed)
    rounds = [trial_study(study.with_session(1 + number)) for number in range(releases)]
    pairs = [pair for each in rounds for pair in zip(each.preview_rounds, each.preview_terms, strict=True)]
    totals = {
        party.name: _totals(party, [charge_of(terms, place) for _, terms in pairs])
        for place, party in enumerate(study.parties)
        if party.records
    }
    groups = {name: _group(study, name, each) for name, each in totals.items()}
    tables = neighbours_of(rounds[0], groups, seed)
    all_sessions = [AuditedSession.of(each, terms, tables) for each, terms in pairs]
    targets, skipped = [], {}
    for name, charged in totals.items():
        target = _target(study.party(name), charged, all_sessions, tables=tables[name], releases=releases)
        if reason := _not_audited(target):
            skipped[name] = reason
        else:
            targets.append(target)
    if not targets:
        return Audit(study, releases, 0, excess=0.0, parties=(), skipped=skipped)
    watches = watch_entries(pairs, [[each.views[place].coalition for each in targets] for place in range(len(pairs))])
    each_doubt = doubt / 2 / (_BOUNDS * len(targets) * len(sign_patterns(len(all_sessions))))
    thin_doubt = entry_doubt(watches, doubt / 2)
    count = _draws_for(targets, excess, each_doubt, thin_doubt=thin_doubt) if draws is None else draws
    noise = drawn_noise(targets, all_sessions, count, watches=watches, progress=progress)
    parties = tuple(_audited(target, each, each_doubt) for target, each in zip(targets, noise, strict=True))
    shown = max(_excess_shown(target, count, each_doubt) for target in targets)
    entries = entry_finding(watches, thin_doubt)
    return Audit(study, releases, count, excess=shown, parties=parties, skipped=skipped, entries=entries)


def _check(study: Study, releases: int, excess: float | None, *, seed: int) -> None:
    if not 1 <= releases <= RELEASES_MAX:
        raise InputError("releases", releases, f"must be from 1 to {RELEASES_MAX}", "2 show noise that is used again")
    if excess is not None and not EXCESS_MIN <= excess <= 1:
        raise InputError("excess", excess, f"must lie in [{EXCESS_MIN:g}, 1]", "0.05 is usual")
    if seed < 0:
        raise InputError("seed", seed, "must not be negative", "any whole number from 0 will do")
    if not isinstance(study.computation, MaskedSum):
        rule = "cannot be audited: a non-additive query is not a sum of what parties encode"
        raise InputError("query", study.queries[0].name, rule, "rely on the proof of its sensitivity (theory pages)")


def _totals(party: Party, charges: Iterable[Charge]) -> Totals:
    """What a party's ledger says after all sessions."""
    totals = Totals(0.0, 0.0, limit_epsilon=party.epsilon, limit_delta=party.delta)
    for charge in charges:
        totals = totals.with_charge(charge.mu, charge.closeness)
    return totals


def _group(study: Study, party: str, totals: Totals) -> int:
    """How many records differ between the tables on which draws are counted: enough to tell the tables apart.

    A release with loss mu for one record has k mu for k of them.
    """
    if study.unit == "party":
        return 1
    mu = math.sqrt(totals.mu_squared_total)
    return int(min(study.party(party).records, max(1.0, _BEST_SHIFT / mu if mu else math.inf)))


def _target(
    party: Party, charged: Totals, all_sessions: Sequence[AuditedSession], *, tables: Neighbours, releases: int
) -> Target:
    index = all_sessions[0].study.index(party.name)
    return Target(
        party.name,
        party.delta,
        promised=_promised(party.epsilon, party.delta, releases),
        charged=charged,
        group=tables.apart,
        views=tuple(View.of(session, tables, index) for session in all_sessions),
    )


def _not_audited(target: Target) -> str:
    """Why a party is not audited; empty if it is."""
    if not all(view.coalition for view in target.views):
        return "no coalition within its threshold learns anything"
    if not any(view.direction.any() for view in target.views):
        return "no change of its data moves the answer"
    return "nothing is promised, as its charge is infinite" if math.isinf(target.charged.epsilon) else ""


def _draws_for(targets: Sequence[Target], excess: float | None, doubt: float, *, thin_doubt: float) -> int:
    """As many as show the excess, and what one party lacks in one entry, unless that takes too long."""
    share = EXCESS if excess is None else excess
    ratio = min(excess_ratio(each.charged.epsilon, each.delta, each.mu, excess=share) for each in targets)
    needed = draws_for(ratio, doubt)
    if excess is None:
        honest = max(view.honest for each in targets for view in each.views)
        if 1 < honest <= _HONEST_MOST:
            needed = max(needed, draws_for(math.sqrt(honest / (honest - 1)), min(doubt, thin_doubt)))
    every = [view.terms for view in targets[0].views]
    work = sum(terms.count * (terms.grid.dimension + _WORK_OF_A_CALL) for terms in every)
    return min(max(DRAWS_MIN, min(needed, _WORK_MAX // work // 2 * 2)), DRAWS_MAX)


def _excess_shown(target: Target, draws: int, doubt: float) -> float:
    charged = target.charged.epsilon
    if not charged:
        return math.inf
    return max(0.0, _epsilon(target.mu * ratio_shown(draws, doubt), target.delta) / charged - 1.0)


def _audited(target: Target, noise: FloatArray, doubt: float) -> AuditedParty:
    """The bounds of one party; of several patterns the one that shows most counts."""
    cut, half = target.group_shift / 2, noise.shape[-1]
    above, below = (noise[:, 0] > cut).sum(axis=1), (noise[:, 1] + target.group_shift <= cut).sum(axis=1)
    counts = zip(above.tolist(), below.tolist(), strict=True)
    counted = max(counted_bound(*each, half, doubt=doubt) for each in counts) / target.group
    first = target.views[0]
    return AuditedParty(
        target.party,
        tuple(first.terms.spec.name(each) for each in first.coalition),
        target.delta,
        reached=target.reached,
        promised=target.promised,
        charged=target.charged.epsilon,
        estimated=_epsilon(max(map(mu_estimate, noise)), target.delta),
        gaussian=_epsilon(max(mu_bound(each, doubt) for each in noise), target.delta),
        counted=_epsilon(counted, target.delta),
    )


def _promised(epsilon: float, delta: float, releases: int) -> float:
    """What so many releases at a party's whole budget cost together."""
    if releases == 1 or math.isinf(epsilon):
        return epsilon
    return _epsilon(float(compose_gaussian([1.0 / calibrate(epsilon, delta)] * releases)), delta)


def _epsilon(mu: float, delta: float) -> float:
    return float(epsilon_of(mu, delta))
