"""Sweeps: a grid of settings, its points, where they run, and the table that they make."""
