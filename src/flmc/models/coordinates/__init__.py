"""Coordinates in which a model is sampled: the affine map, models seen through it, and where a map
comes from."""

from flmc.models.coordinates.affine import Coordinates

__all__ = ["Coordinates"]
