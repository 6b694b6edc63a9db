"""Distributions of the privacy loss on a grid, and the composition of many of them, as upper
bounds.

A loss grid says what one entry may reveal; the composition adds the losses of all entries. Which
pairs of distributions there are to tell apart is not known here."""
