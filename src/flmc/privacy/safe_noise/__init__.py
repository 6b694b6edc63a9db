"""Noise and random bits for a channel made of software, safe against the low-order digits of
floating-point numbers: random numbers come from a source of entropy, symbols and noise are whole
numbers of steps of a public grid, and the law of the noise is exactly that of a normal variable
rounded to the grid.

:mod:`flmc.uplink` puts symbols on the grid, :mod:`flmc.sampling` runs rounds with it. The proof
that this is safe is section 10 of docs/privacy.md."""
