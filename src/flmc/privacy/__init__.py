"""Differential privacy of what the server receives: events (what was done) and what they cost.

Events consist of plain numbers: probabilities, gains, counts. Which event an uplink implies is said
in :mod:`flmc.uplink`. Every epsilon and delta returned here is an upper bound, every gain a lower
one; ``docs/privacy.md`` derives all of it."""
