"""The public names of ``flmc``, imported from the modules that define them.

``import flmc`` alone does not load this file; the first use of one of the names does."""

from __future__ import annotations

import flmc.data as data  # not "from flmc import data", which would ask this file for the name
from flmc.base import errors
from flmc.data.linear_data import LinearData
from flmc.evaluation.answer import Answer
from flmc.evaluation.diagnostics import Diagnostics, diagnose
from flmc.models import supports
from flmc.models.distributions import Gaussian, Normal
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.parameters import Parameter
from flmc.models.priors import CorrelatedNormal, FunctionPrior
from flmc.models.whitening import whiten
from flmc.planning.choice import choose_link
from flmc.planning.judgement import check_model
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.planning.server_update import MajorityVote, Momentum, ServerState, ServerUpdate
from flmc.planning.two_stage_plan import TwoStagePlan, plan_two_stages
from flmc.runs.citation import Citation, cite
from flmc.runs.comparison import Comparison, compare
from flmc.runs.execution import resume, run
from flmc.runs.ledger_cost import spent
from flmc.runs.records import Record, load
from flmc.runs.results import Result
from flmc.runs.sweeps.table import Sweep, sweep
from flmc.runs.two_stage_run import TwoStageResult, run_two_stages
from flmc.uplink.fading import Fading
from flmc.uplink.fadings import (
    ConstantFading,
    DistanceFading,
    FixedFading,
    GaussMarkovFading,
    JakesFading,
    NakagamiFading,
    RayleighFading,
    RicianFading,
    SelectiveFading,
    TappedDelayFading,
    TraceFading,
    TraceFile,
)
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid, Sign
from flmc.uplink.noise import NoiseLaw
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import (
    AllDevices,
    GivenDevices,
    PredecessorDevices,
    RandomDevices,
    StrongestDevices,
    ThresholdDevices,
)
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink, replace

__all__ = [
    "AllDevices",
    "Analog",
    "Answer",
    "Citation",
    "Comparison",
    "ConstantFading",
    "CorrelatedNormal",
    "Diagnostics",
    "Digital",
    "DistanceFading",
    "Fading",
    "FixedFading",
    "FunctionPrior",
    "GaussMarkovFading",
    "Gaussian",
    "GivenDevices",
    "Ideal",
    "JakesFading",
    "Limits",
    "Linear",
    "LinearData",
    "LinearGaussian",
    "Link",
    "MajorityVote",
    "Model",
    "Momentum",
    "NakagamiFading",
    "NoiseLaw",
    "Normal",
    "Parameter",
    "Plan",
    "PredecessorDevices",
    "Probit",
    "RandomDevices",
    "RayleighFading",
    "Record",
    "Result",
    "RicianFading",
    "Scheduler",
    "SelectiveFading",
    "ServerState",
    "ServerUpdate",
    "Sigmoid",
    "Sign",
    "StrongestDevices",
    "Sweep",
    "TappedDelayFading",
    "ThresholdDevices",
    "TraceFading",
    "TraceFile",
    "TwoStagePlan",
    "TwoStageResult",
    "Uplink",
    "check_model",
    "choose_link",
    "cite",
    "compare",
    "data",
    "diagnose",
    "errors",
    "load",
    "plan",
    "plan_two_stages",
    "replace",
    "resume",
    "run",
    "run_two_stages",
    "spent",
    "supports",
    "sweep",
    "whiten",
]
