"""Everything that is decided before round 1: limits, temperature, prediction, allocation, and the
plan itself.

Planning reads models and uplinks and computes what a plan costs. It starts no run and prints
nothing; runs are simulated in :mod:`flmc.sampling`."""
