"""The simulation: the three roles of a round, the schedule, chains, engines, and the loop over
rounds.

Everything here is a function of a plan, a model and a seed. Files live in :mod:`flmc.runs`."""
