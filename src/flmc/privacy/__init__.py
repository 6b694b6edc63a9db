"""Differential privacy of what the server receives: one entry, one round, one run.

``event`` says what was transmitted, the other modules what it costs. Every epsilon and delta returned here is an upper
bound, every gain a lower one. ``docs/privacy.md`` derives all of it."""
