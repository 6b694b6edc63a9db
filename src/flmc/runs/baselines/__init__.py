"""Baselines: what other methods deliver with the same model, channel, rounds and budget as a plan.

``methods`` says what each of them is, as a plan of its own; ``scoring`` how their predictions are
judged; ``comparing`` runs them side by side, and ``table`` holds what came out."""

from flmc.runs.baselines.comparing import compare_baselines
from flmc.runs.baselines.table import BaselineComparison, MethodScores

__all__ = ["BaselineComparison", "MethodScores", "compare_baselines"]
