"""The audit: a simulated attack on flmc's own uplink, which tries to tell two neighbouring data
sets apart and so gives a lower bound on the privacy parameter epsilon, beside the accountant's
upper bound."""

from flmc.evaluation.audit.attack import Transmit, audit, log_ratio, transmit
from flmc.evaluation.audit.bounds import lower_bound
from flmc.evaluation.audit.one_run import OneRun, audit_one_run
from flmc.evaluation.audit.outcome import Audit
from flmc.evaluation.audit.resolution import Resolution, expected_resolution
from flmc.evaluation.audit.scene import Scene, canary, neighbour

__all__ = [
    "Audit",
    "OneRun",
    "Resolution",
    "Scene",
    "Transmit",
    "audit",
    "audit_one_run",
    "canary",
    "expected_resolution",
    "log_ratio",
    "lower_bound",
    "neighbour",
    "transmit",
]
