"""The audit: an attack on our own uplink, whose lower bound on epsilon stands beside the
accountant's upper bound."""

from flmc.evaluation.auditing.attack import audit
from flmc.evaluation.auditing.bounds import lower_bound
from flmc.evaluation.auditing.neighbours import canary, neighbour
from flmc.evaluation.auditing.one_run import OneRun, audit_one_run
from flmc.evaluation.auditing.report import Audit
from flmc.evaluation.auditing.resolution import Resolution, expected_resolution
from flmc.evaluation.auditing.scene import Scene
from flmc.evaluation.auditing.transmission import Transmit, log_ratio, transmit

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
