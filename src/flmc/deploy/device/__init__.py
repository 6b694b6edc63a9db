"""The device: its data, its journal, its budget, and how it answers a round.

A device trusts the air with its symbols, and nobody with its privacy."""
