"""Simulation of a run: the three roles of a round (device, air, server), the schedule of gains and
active devices, the state of the chains, the engines that advance them, and the loop over rounds.

Every result is a function of a plan, a model and a seed. Files of a run are written by
:mod:`flmc.runs`."""
