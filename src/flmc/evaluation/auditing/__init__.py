"""The audit: an attack on our own uplink, whose lower bound on epsilon stands beside the
accountant's upper bound."""

from flmc.evaluation.auditing.attack import audit
from flmc.evaluation.auditing.bounds import lower_bound
from flmc.evaluation.auditing.report import Audit
from flmc.evaluation.auditing.scene import Scene, Transmit, canary, log_ratio, transmit

__all__ = ["Audit", "Scene", "Transmit", "audit", "canary", "log_ratio", "lower_bound", "transmit"]
