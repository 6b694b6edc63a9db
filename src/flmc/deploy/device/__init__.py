"""The device: its data, journal and budget, and its answers to the rounds.

A device trusts the air with its symbols, and nobody with its privacy.
"""
