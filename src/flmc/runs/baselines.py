r"""Baselines: other methods to compare a plan with. Each baseline is itself a plan, made from the
plan that it is compared with, and has the same number of rounds.

The step sizes follow three rules, which look at no held-out examples:

* Descent (analog FedSGD, DP-FedSGD) takes the textbook step of stochastic gradients with averaging,
  :math:`\min(\max(1/L, e), R/\sqrt{n\,m\,v})`: L is the smoothness, e the plan's effective step
  (which may be larger where the bound L is loose), R the distance from start to optimum that the
  prior expects, n the rounds, m the entries and v the variance of the server's estimate.
* The majority vote moves every entry by the same amount: :math:`2 R/(\sqrt m\,b)`, so that the
  rounds of burn-in b (all rounds if there is none), all of them to one side, carry an entry twice
  as far as the prior expects.
* Langevin sampling with exact gradients takes :math:`\max(s, e)`, with s the automatic step of
  :func:`flmc.plan` for an exact gradient, 0.2 of the largest stable step. A device that samples
  alone takes the automatic step for its own data.

Point estimates start at zero, samplers where the plan says. A point estimate is the mean of the
iterates of the rounds that the plan keeps."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.models.single_device import local_models
from flmc.planning.limits import Limits
from flmc.planning.planner import plan as make_plan
from flmc.planning.plans import Plan
from flmc.planning.server_update import LANGEVIN, MajorityVote, ServerUpdate
from flmc.uplink.fadings import ConstantFading
from flmc.uplink.links import Sign
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink

_NO_CHANNEL_DB = 390.0
"""SNR in dB, so large that the power limit of the gain never binds. It is for DP-FedSGD, where the
privacy budget alone decides the noise."""


@dataclass(frozen=True)
class Baseline:
    """One method to compare with. ``plans`` makes the plan and the model of each of its runs,
    ``samples`` says whether its draws or only their mean are scored, and ``private`` whether its
    epsilon may be stated."""

    name: str
    """Name in tables and JSON."""
    plans: Callable[[], Iterator[tuple[Plan, Model]]]
    """Function that yields a plan and a model for every run of the baseline: one pair, or one for
    each device in posteriors of single devices."""
    channel: str
    """The channel between devices and server, in words."""
    samples: bool
    """Whether the draws are scored; False: a point estimate, the mean of the kept rounds."""
    private: bool = True
    """Whether the epsilon of the baseline's plan is a valid privacy statement for the baseline;
    False: no epsilon is shown, for the reason in ``no_statement``."""
    no_statement: str = ""
    """Why a baseline with ``private=False`` has no privacy statement."""


def baselines_of(plan: Plan, model: Model) -> tuple[Baseline, ...]:
    """The five baselines of a plan, in the order of the comparison's table: FedSGD, majority vote,
    DP-FedSGD, noiseless Langevin sampling and posteriors of single devices. The plan of a baseline
    is made only when the baseline is run."""

    def one(made: Callable[[Plan, Model], Plan]) -> Callable[[], Iterator[tuple[Plan, Model]]]:
        return lambda: iter([(made(plan, model), model)])

    return (
        Baseline("FedSGD", one(analog_descent), "analog", samples=False),
        Baseline("majority vote", one(majority_vote), "one bit", samples=False),
        Baseline("DP-FedSGD", one(private_descent), "noiseless", samples=False),
        Baseline(
            "noiseless LMC",
            one(noiseless_sampler),
            "none",
            samples=True,
            private=False,
            no_statement="the server sees exact gradients",
        ),
        Baseline(
            "local posteriors",
            lambda: _local_samplers(plan, model),
            "none",
            samples=True,
            private=False,
            no_statement="nothing is sent; a released chain has no statement",
        ),
    )


def analog_descent(plan: Plan, model: Model) -> Plan:
    """Plan of FedSGD: clipped gradients, transmitted by an analog uplink over the channel of
    ``plan``.

    The gain is the largest that the power limit and the privacy budget of ``plan`` allow. The third
    limit of a gain, which leaves a Langevin sampler enough channel noise, is off, because descent
    needs no noise."""
    _check_channel(plan)
    limits = replace(plan.limits, langevin="off", allocation="static")
    return _descent(plan, model, Analog(**_radio(plan.uplink)), limits)


def majority_vote(plan: Plan, model: Model) -> Plan:
    """Plan of the majority vote: signs of gradients as bits over the plan's channel, and a server
    that steps against the sign of what it receives.

    The gain is the largest that the power limit and the privacy budget of ``plan`` allow."""
    _check_channel(plan)
    limits = replace(plan.limits, langevin="off", allocation="static")
    uplink = Digital(**_radio(plan.uplink), link=Sign())
    typical = distance(model) / math.sqrt(model.dim)
    step = 2.0 * typical / (plan.num_burn_in or plan.num_rounds)
    made = _plan(plan, model, uplink, limits, step, MajorityVote())
    return replace(made, data_dependent=made.data_dependent or plan.data_dependent)


def private_descent(plan: Plan, model: Model) -> Plan:
    """Plan of DP-FedSGD: clipped gradients, and Gaussian noise for the plan's epsilon of the run.

    The noise is added once to the sum of all gradients, as a channel would add it, or secure
    aggregation with a share of the noise from each device. The plan has an analog uplink without
    fading and power limit, whose gain is the largest that the privacy budget allows: relative to
    the gradients, the noise in the sum has the standard deviation 1/gain. ``InvalidSetting`` for a
    plan without a finite epsilon of the run."""
    cost = plan.run_cost
    if cost is None or not 0.0 < cost.epsilon < math.inf:
        stated = "none" if cost is None else f"{cost.epsilon:g}"
        raise InvalidSetting(
            f"DP-FedSGD needs a plan with a finite positive epsilon of the run, got {stated}"
        )
    limits = Limits(
        epsilon=cost.epsilon,
        scope="run",
        delta=plan.limits.delta,
        run_delta=cost.delta,
        neighbouring=plan.limits.neighbouring,
        relation=plan.limits.relation,
        langevin="off",
    )
    changed = {
        "fading": ConstantFading(1.0),
        "snr_db": _NO_CHANNEL_DB,
        "average_snr_db": None,
        "noise_power": 1.0,
        "csi_error": 0.0,
    }
    return _descent(plan, model, Analog(**{**_radio(plan.uplink), **changed}), limits)


def noiseless_sampler(plan: Plan, model: Model) -> Plan:
    r"""Plan of Langevin sampling with exact gradients, over an uplink without clip and channel,
    that adds noise of standard deviation :math:`\sqrt{2\eta}` in each round, with the step size
    :math:`\eta`. The step is the effective one of ``plan``, or the automatic one where that is
    larger."""
    same = {**_rounds(plan), "draw_at": plan.draw_at, "forecast": False}
    asked = make_plan(model, Ideal(), **same)
    faster = plan.effective_step_size
    if faster is None or faster <= asked.step_size:
        return asked
    return make_plan(model, Ideal(), **same, step_size=faster)


def _local_samplers(plan: Plan, model: Model) -> Iterator[tuple[Plan, Model]]:
    """Yield a plan and a model for each device: the model has the data of this device alone, and
    the plan samples its posterior with exact gradients and the automatic step for its curvature."""
    for own in local_models(model):
        same = {**_rounds(plan), "draw_at": plan.draw_at, "forecast": False}
        yield make_plan(own, Ideal(), **same), own


def distance(model: Model) -> float:
    """Root mean square Euclidean distance between zero, where descent starts, and an optimum that
    is a draw from the model's prior."""
    square = np.square(model.prior.sd) + np.square(model.prior.mean)
    return float(np.sqrt(np.broadcast_to(square, (model.dim,)).sum()))


def estimate_variance(plan: Plan) -> float:
    r"""Variance of an entry of the server's estimate of the summed gradient in a kept round, for
    uplinks whose symbols are not random: :math:`\overline{(K/K_a)^2 N_0/A^2}` over the squared
    slope. The bar is the mean over kept rounds, K the number of devices, :math:`K_a` that of active
    ones, :math:`N_0` the noise power, A the gain, and the slope the factor by which the estimate
    scales a gradient. ``InvalidSetting`` for an uplink without a slope."""
    temperature, slope = plan.temperature, plan.slope
    if temperature is None or slope is None:
        raise InvalidSetting("the variance of an estimate needs an uplink with a slope")
    # The temperature is defined as T = step_size * V / (2 * slope), with the variance V of an entry
    # of the estimate. V follows from it, and is divided by slope**2 because the estimate is the
    # slope times the sum of gradients.
    return 2.0 * slope * temperature / plan.step_size / slope**2


def _descent(plan: Plan, model: Model, uplink: Uplink, limits: Limits) -> Plan:
    """Plan of stochastic gradient descent with averaging. Its effective step is the larger of the
    effective step of ``plan`` and 1/smoothness of the model, but at most ``distance(model) /
    sqrt(rounds * dim * variance)``, with the variance of an entry of the server's estimate.
    ``InvalidSetting`` if neither ``plan`` has an effective step nor the model a smoothness."""
    made = _plan(plan, model, uplink, limits, step=1.0)
    steps = [] if plan.effective_step_size is None else [plan.effective_step_size]
    steps += [] if model.smoothness is None else [1.0 / model.smoothness]
    if not steps:
        raise InvalidSetting("a step of descent needs the smoothness of the model, got none")
    noise = math.sqrt(plan.num_rounds * model.dim * estimate_variance(made))
    effective = min(max(steps), distance(model) / noise)
    # The estimate is the slope times the sum of gradients, so the step is divided by the slope. The
    # step depends on private data if the model's curvature or the step of ``plan`` does.
    return replace(
        made,
        step_size=effective / (made.slope or 1.0),
        data_dependent=plan.data_dependent or not model.public,
    )


def _plan(
    plan: Plan,
    model: Model,
    uplink: Uplink,
    limits: Limits,
    step: float,
    update: ServerUpdate = LANGEVIN,
) -> Plan:
    """Plan of a point estimate over ``uplink``, with the step size ``step`` and the server's
    ``update``. It starts at zero, and has the rounds and the scheduler of ``plan``."""
    return make_plan(
        model,
        uplink,
        limits,
        **{**_rounds(plan), "start": "zero"},
        scheduler=plan.scheduler,
        step_size=step,
        burn_in_step_factor=1.0,
        draw_at="positions",  # a point estimate averages the points of descent
        update=update,
        forecast=False,
    )


def _rounds(plan: Plan) -> dict[str, Any]:
    """Number of rounds, burn-in and start of a plan, by the names of these arguments of
    :func:`flmc.plan`."""
    return {
        "num_rounds": plan.num_rounds,
        "num_burn_in": plan.num_burn_in,
        "start": plan.start,
    }


def _radio(uplink: Uplink) -> dict[str, Any]:
    """Values of the fields that all uplinks have, by name: clipping, channel, and bounds of single
    examples' gradients."""
    return {field.name: getattr(uplink, field.name) for field in fields(Uplink)}


def _check_channel(plan: Plan) -> None:
    """Raise ``InvalidSetting`` for a plan with an ideal uplink, which transmits exact gradients and
    has no channel over which baselines could be run."""
    if plan.uplink.noise_is_exact:
        raise InvalidSetting("the plan's uplink is ideal: there is no channel to compare on")
