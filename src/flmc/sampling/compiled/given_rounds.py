"""What the kernel needs of some rounds: factors of symbols and noise, and who transmits."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.planning.plans import Plan
from flmc.sampling.schedule import Schedule

Floats = npt.NDArray[np.float32]


class GivenRounds(NamedTuple):
    """What the kernel needs of some rounds.

    Attributes
    ----------
    pull
        Factor of the sum of symbols, (round).
    noise
        Factor of the standard normals, (round, dim, 1 or chain).
    active
        Who transmits, (round, device).
    all_active
        Whether everybody does, (round).
    talks
        Factor of every symbol, (round, device, chain), with pull and who transmits in it, where
        data sets have devices of their own active; else empty.
    """

    pull: Floats
    noise: Floats
    active: npt.NDArray[np.bool_]
    all_active: npt.NDArray[np.bool_]
    talks: Floats

    @classmethod
    def of(
        cls, plan: Plan, schedule: Schedule, rows: npt.NDArray[np.intp], unit: float, several: bool
    ) -> GivenRounds:
        r"""What the kernel needs of a schedule.

        The update of a chain is :math:`x \leftarrow x - p \sum_k s_k - n z` with pull :math:`p =
        \eta K/K_a` (times the clip where symbols are gradients in units of it) and noise :math:`n =
        \eta (K/K_a) \sqrt{N_0}/A`.

        Parameters
        ----------
        plan
            What is run.
        schedule
            The rounds of some data sets.
        rows
            The data set of the schedule for every chain.
        unit
            What symbols are measured in: the clip, or 1 for bits.
        several
            Whether the run has several data sets.
        """
        count = schedule.num_active
        if schedule.active is None or len(schedule.active) == 1:
            count = count[:1]
        # A round in which nobody transmits is skipped.
        share = schedule.step_sizes * plan.num_devices
        share = np.divide(share, count, out=np.zeros(count.shape), where=count > 0)
        factor = _chosen(share, rows)
        noise = (
            factor[:, :, None] * math.sqrt(plan.uplink.noise_power) / _chosen(schedule.gain, rows)
        )
        shape = (factor.shape[1], plan.num_devices)
        active = np.ones(shape, np.bool_) if schedule.active is None else schedule.active[0] > 0
        talks = np.empty((*shape, 0), np.float32)
        # By the experiments of the run, not of this call: the kernel rounds in another order.
        if (several and plan.scheduler.random) or len(count) > 1 or schedule.arriving is not None:
            factors = _factors(schedule, rows, plan.num_devices)
            factors *= (unit * factor)[:, :, None]
            talks = factors.transpose(1, 2, 0).astype(np.float32, order="C")
            factor, active = np.ones_like(factor) / unit, np.zeros(shape, np.bool_)
        everyone = schedule.active is None and not talks.size
        return cls(
            (factor[0] * unit).astype(np.float32),
            noise.transpose(1, 2, 0).astype(np.float32, order="C"),
            active,
            np.ones(len(active), np.bool_) if everyone else np.asarray(active.all(axis=1)),
            talks,
        )


def _chosen(values: Array, rows: npt.NDArray[np.intp]) -> Array:
    """The values of the data set of every chain; one data set may stand for all."""
    if len(rows) == len(values) == 1:
        return values
    return values[np.minimum(rows, len(values) - 1)]


def _factors(schedule: Schedule, rows: npt.NDArray[np.intp], num_devices: int) -> Array:
    """Factor of every device's symbols at the receiver, (chain, round, device), in an array of its
    own: 0 for a silent one, 1 for another, or what its estimate of the channel makes of that."""
    if schedule.active is None:
        factors = np.ones((len(rows), len(schedule), num_devices))
    else:
        factors = schedule.active[np.minimum(rows, len(schedule.active) - 1)]
    if schedule.arriving is not None:
        # Entries share a path gain, or the engine would have refused.
        met, known = schedule.arriving[..., 0], schedule.fading[..., 0]
        factors *= (met / known)[np.minimum(rows, len(met) - 1)]
    return factors


def entries_share_gain(plan: Plan) -> bool:
    """Whether all entries of a round have the same path gain.

    Parameters
    ----------
    plan
        What is to be run.
    """
    rng = np.random.default_rng(0)
    # As many rounds as the run has: a law of a user's own may need them.
    rounds = range(1 if plan.uplink.fading.independent else plan.num_rounds)
    drawn = plan.uplink.fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    return plan.dim == 1 or drawn.strides[-1] == 0
