"""Everything that is decided before round 1: limits, temperature, prediction, allocation, and the
plan itself.

Planning reads models and uplinks and computes what a plan costs. It simulates nothing and prints
nothing; simulation lives in :mod:`flmc.sampling`."""
