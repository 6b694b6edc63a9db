"""Differential privacy of what the server receives: what was done (events) and what it costs.

Events consist of plain numbers: probabilities, gains, counts. What an uplink does, and so which
event it implies, is said in :mod:`flmc.uplink`. Every epsilon and delta returned here is an upper
bound, every gain a lower one; ``docs/privacy.md`` derives all of it."""
