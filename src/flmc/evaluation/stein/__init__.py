"""Stein's evidence: whether draws can come from a posterior of which only the gradient is known."""

from flmc.evaluation.stein.evidence import Evidence, examine

__all__ = ["Evidence", "examine"]
