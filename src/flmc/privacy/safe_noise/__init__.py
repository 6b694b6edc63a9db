"""Noise and random bits for a channel made of software, safe against the low-order digits of
floating-point numbers: random numbers come from a source of entropy, symbols and noise are whole
numbers of steps of a public grid, and the law of the noise is exactly that of a normal variable
rounded to the grid.

Symbols and rounds are in ``uplink`` and ``sampling``. The proof is section 10 of
docs/privacy.md."""
