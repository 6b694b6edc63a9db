"""What bits in noise reveal: pairs of bit probabilities that neighbours can make, their profiles,
and the tails of their loss.

The laws of losses that are made here are added up in :mod:`flmc.privacy.losses`."""
