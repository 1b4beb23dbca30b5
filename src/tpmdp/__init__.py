"""tpmdp: Threshold Personalized Multi-party Differential Privacy.

>>> import tpmdp
>>> spec = tpmdp.Spec(epsilon=[0.5, 1.0, 2.0], delta=1e-6, threshold=1, receivers="all")
>>> plan = tpmdp.plan(spec)
>>> plan.certificate().check(spec).gap <= 1e-12
True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tpmdp._version import __version__ as __version__

if TYPE_CHECKING:
    from tpmdp.data.source import read_table
    from tpmdp.errors import (
        CertificateError,
        DeadlineError,
        FileError,
        InputError,
        MissingDependencyError,
        NoNoiseWarning,
        SolverError,
        TpmdpError,
    )
    from tpmdp.gaussian.calibration import calibrate, delta_at, epsilon_at, mu_at
    from tpmdp.ledger import Ledger, LedgerError, OverspendError
    from tpmdp.planning.certificate import Certificate, Verdict
    from tpmdp.planning.coalition import WorstCoalitions, worst_coalitions
    from tpmdp.planning.plan import Plan, Protection, plan
    from tpmdp.planning.weights import Weights
    from tpmdp.queries.answer import Answer
    from tpmdp.queries.base import Query
    from tpmdp.queries.custom import load_queries
    from tpmdp.report.plot import Picture, plot
    from tpmdp.spec import Party, Spec
    from tpmdp.study.builder import StudyBuilder
    from tpmdp.study.events import SessionEvent
    from tpmdp.study.expectation import Expectation, expect
    from tpmdp.study.identity import read_key
    from tpmdp.study.join import join
    from tpmdp.study.model import Study
    from tpmdp.study.party_check import PartyCheck
    from tpmdp.study.release import PartyRelease, Release
    from tpmdp.study.run import run
    from tpmdp.study.status import PartyStatus, StudyStatus, study_status
    from tpmdp.study.sweep import Sweep

_HOME = {
    "gaussian.calibration": ("calibrate", "delta_at", "epsilon_at", "mu_at"),
    "errors": (
        "CertificateError",
        "DeadlineError",
        "FileError",
        "InputError",
        "MissingDependencyError",
        "NoNoiseWarning",
        "SolverError",
        "TpmdpError",
    ),
    "data.source": ("read_table",),
    "study.builder": ("StudyBuilder",),
    "study.events": ("SessionEvent",),
    "study.expectation": ("Expectation", "expect"),
    "study.identity": ("read_key",),
    "ledger": ("Ledger", "LedgerError", "OverspendError"),
    "study.join": ("join",),
    "planning.certificate": ("Certificate", "Verdict"),
    "planning.coalition": ("WorstCoalitions", "worst_coalitions"),
    "planning.plan": ("Plan", "Protection", "plan"),
    "planning.weights": ("Weights",),
    "queries.answer": ("Answer",),
    "queries.base": ("Query",),
    "queries.custom": ("load_queries",),
    "report.plot": ("Picture", "plot"),
    "study.party_check": ("PartyCheck",),
    "study.release": ("PartyRelease", "Release"),
    "study.run": ("run",),
    "study.status": ("PartyStatus", "StudyStatus", "study_status"),
    "spec": ("Party", "Spec"),
    "study.model": ("Study",),
    "study.sweep": ("Sweep",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "Answer",
    "Certificate",
    "CertificateError",
    "DeadlineError",
    "Expectation",
    "FileError",
    "InputError",
    "Ledger",
    "LedgerError",
    "MissingDependencyError",
    "NoNoiseWarning",
    "OverspendError",
    "Party",
    "PartyCheck",
    "PartyRelease",
    "PartyStatus",
    "Picture",
    "Plan",
    "Protection",
    "Query",
    "Release",
    "SessionEvent",
    "SolverError",
    "Spec",
    "Study",
    "StudyBuilder",
    "StudyStatus",
    "Sweep",
    "TpmdpError",
    "Verdict",
    "Weights",
    "WorstCoalitions",
    "calibrate",
    "delta_at",
    "epsilon_at",
    "expect",
    "join",
    "load_queries",
    "mu_at",
    "plan",
    "plot",
    "read_key",
    "read_table",
    "run",
    "study_status",
    "worst_coalitions",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use, so that `import tpmdp` stays light (PEP 562)."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'tpmdp' has no attribute {name!r}")
    value = getattr(import_module(f"tpmdp.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
