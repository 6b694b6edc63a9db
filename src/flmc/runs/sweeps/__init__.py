"""Sweeps: the grid of settings, its points, the workers that run them, and the resulting table."""
