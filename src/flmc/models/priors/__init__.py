"""Priors beyond independent normal entries: correlated ones, and any that two functions describe.

:meth:`flmc.Model.from_gradient` takes them. Each device adds 1/K of the prior's gradient to its
own, and chains start from draws of the prior."""

from flmc.models.priors.correlated_normal import CorrelatedNormal
from flmc.models.priors.function_prior import FunctionPrior

__all__ = ["CorrelatedNormal", "FunctionPrior"]
