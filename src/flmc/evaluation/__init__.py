"""Judgement of draws: metrics against a known posterior, Stein's evidence, diagnostics of chains,
the answer of a server, scores of predictions, and the audit of privacy.

All functions take chains, models, data and plans; results and files are in :mod:`flmc.runs`."""
