"""Stein's evidence: whether draws can come from a posterior of which only the gradient is known."""

from flmc.evaluation.stein.evidence import Evidence
from flmc.evaluation.stein.examination import examine

__all__ = ["Evidence", "examine"]
