"""How good and how private the draws are: metrics, Stein's evidence, diagnostics of chains, the
check of a model, and the audit.

Functions of chains, models and plans alone; results and files live in :mod:`flmc.runs`."""
