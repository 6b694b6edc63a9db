"""Advice about plans: what is predicted and found wrong, cures, suggestions, inverse questions,
requirements.

Advice makes plans and judges them; it decides nothing by itself. What decides lives in
:mod:`flmc.planning.decision`."""
