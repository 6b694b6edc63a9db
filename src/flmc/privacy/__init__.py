"""Differential privacy of what the server receives: events (what was done) and what they cost.

Every :class:`~flmc.privacy.event.Event` computes epsilon, delta and the largest gain within a
budget. ``GaussianEvent`` is for analog values, ``BitEvent`` for one-bit symbols,
``ShiftedBitEvent`` and ``SharedShiftEvent`` for bits of a gradient that one example moves by a
bounded amount, ``UncertainGainEvent`` for gains that channel estimates leave uncertain;
``composed_loss`` and ``bit_tails`` hold the numerics, and ``trade_off`` says what an attacker
achieves. ``safe_noise`` makes noise for a channel in software that is safe in floating point.

Events consist of plain numbers: probabilities, gains, counts. :mod:`flmc.uplink` decides which
event an uplink implies. Every epsilon and delta returned here is an upper bound, every gain a lower
one; ``docs/privacy.md`` has the proofs."""
