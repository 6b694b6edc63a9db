"""Federated Langevin Monte Carlo over a noisy uplink: plan it, simulate it, prove its privacy."""

from __future__ import annotations

from flmc import data, errors
from flmc.diagnostics import Diagnostics, diagnose
from flmc.fading import ConstantFading, Fading, FixedFading, RayleighFading
from flmc.limits import Limits
from flmc.linear import LinearData, LinearGaussian
from flmc.model import Gaussian, Model, Normal
from flmc.plan import Plan
from flmc.planning import plan
from flmc.quantise import Linear, Link, Probit, Sigmoid, Sign
from flmc.record import Record, load
from flmc.run import Comparison, Result, compare, resume, run
from flmc.spent import spent
from flmc.uplink import Analog, Digital, Ideal, Uplink, replace
from flmc.version import VERSION

__version__ = VERSION

__all__ = [
    "Analog",
    "Comparison",
    "ConstantFading",
    "Diagnostics",
    "Digital",
    "Fading",
    "FixedFading",
    "Gaussian",
    "Ideal",
    "Limits",
    "Linear",
    "LinearData",
    "LinearGaussian",
    "Link",
    "Model",
    "Normal",
    "Plan",
    "Probit",
    "RayleighFading",
    "Record",
    "Result",
    "Sigmoid",
    "Sign",
    "Uplink",
    "compare",
    "data",
    "diagnose",
    "errors",
    "load",
    "plan",
    "replace",
    "resume",
    "run",
    "spent",
]
