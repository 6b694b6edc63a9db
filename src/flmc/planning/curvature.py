"""Curvature of the negative log posterior that a plan is made with, and whether it is public."""

from __future__ import annotations

from dataclasses import dataclass

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model


@dataclass(frozen=True)
class Curvature:
    """Largest and smallest curvature of the negative log posterior, None where it is not known, and
    whether they are public knowledge."""

    smoothness: float | None
    convexity: float | None
    public: bool

    @classmethod
    def of(
        cls, model: Model, public_smoothness: float | None, public_convexity: float | None
    ) -> Curvature:
        """The model's curvature, or the public values in its place; public only if every value used
        is.

        Parameters
        ----------
        model
            Gives its own curvature, used where no public value is given.
        public_smoothness, public_convexity
            Values from public knowledge; a convexity needs a smoothness that is not below it.
        """
        if public_smoothness is None and public_convexity is None:
            return cls(model.smoothness, model.convexity, model.public)
        if public_smoothness is None:
            raise InvalidSetting("public_convexity must come with public_smoothness, got it alone")
        smoothness = checks.positive("public_smoothness", public_smoothness)
        convexity = (
            None
            if public_convexity is None
            else checks.positive("public_convexity", public_convexity)
        )
        if convexity is not None and convexity > smoothness:
            raise InvalidSetting(
                f"public_convexity must not exceed public_smoothness {smoothness:g}, got"
                f" {convexity:g}"
            )
        return cls(smoothness, convexity, True)
