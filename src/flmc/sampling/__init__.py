"""Simulation of a run: the three roles of a round (device, air, server), the schedule, chains,
engines, and the loop over rounds.

Everything here is a function of a plan, a model and a seed. Files live in :mod:`flmc.runs`."""
