r"""A report of what clipping and the link take away: one more entry that every device transmits.

Device k sends symbols whose mean, over the slope :math:`\kappa`, is :math:`m_k`, not its gradient
:math:`g_k`. A chain rests where the :math:`m_k` cancel, not where the gradients do: at its mean the
gradient of the posterior is :math:`E\sum_k r_k` with the *remainders* :math:`r_k = g_k - m_k`, and
the server sees nothing of it. So theta gets one more entry, whose "gradient" tells the server one
number about :math:`r_k` in every round. Which number, follows from the bits of theta, which
everybody knows: in half of the rounds one entry of :math:`r_k`, up to the reach E of a report; in
the others how large :math:`r_k` is where it is beyond E, up to 4 E, and 0 where it is not.

The report is bounded and sent like any other entry: a plan of m + 1 entries accounts for it. The
entry of theta that belongs to it walks freely, :math:`\theta \leftarrow \theta - \eta\,(\text{sum
of reports} + \text{noise})`, and is no parameter of the model."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.uplink.uplink import Uplink

SUFFIX = "+report"
"""End of the name of a model whose devices report, as in ``linear+report``."""
FINENESS = 4.0
"""Factor by which a remainder moves the mean symbol of the report more than a small gradient of the
same size moves its own symbol. The largest size of a remainder that can be reported is this factor
times ``Scale.reach``."""
_POINTS = 4001
"""Number of gradient entries, from 0 to the clip, at which the mean symbol is tabulated, to find
the gradient entry that has a given mean symbol."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""Multiplier of the hash of theta: an odd number with well mixed bits, 2**64 over the golden
ratio."""


class Scale(NamedTuple):
    """Scale on which devices report the remainder, which clipping and the link take away from their
    gradients: a report of 1, the largest, stands for a remainder of ``reach`` and is sent with the
    mean symbol ``peak``; ``slope`` is that of the mean symbol at a gradient of 0."""

    peak: float
    """Mean symbol of a gradient entry at the clip, with which the largest report, 1, is sent."""
    reach: float
    """Size of an entry of the remainder that a report of 1 stands for; larger entries are reported
    as 1."""
    slope: float
    """Factor by which the mean symbol scales a small gradient, over an uplink that does not bound
    the gradients of single examples."""


def scale_of(uplink: Uplink) -> Scale:
    """Scale on which the devices of an uplink send reports of what clipping and the link take away.
    Raises ``InvalidSetting`` if single examples are bounded, for which a report's privacy is not
    proven; if devices use batches, because a report is about all examples; or if the norm is
    clipped, because the report would use up a part of the gradient's norm."""
    if uplink.example_clip is not None or uplink.example_norm is not None:
        raise InvalidSetting(
            "a report of what clipping takes away can turn over with one example, which the"
            " accounting of example_clip and example_norm does not allow for: leave them out, or"
            " run without a report"
        )
    if uplink.batched:
        raise InvalidSetting(
            "a report is of the gradient of all examples, and batch_share asks for a part of them:"
            " leave it out, or run without a report"
        )
    if uplink.clips_norm:
        raise InvalidSetting(
            "a report needs clipping='entry', got 'norm': it would share the norm with the gradient"
        )
    slope, (peak,) = uplink.slope, uplink.mean_symbol(np.array([uplink.clip]))
    return Scale(float(peak), float(peak) / slope / FINENESS, slope)


def question(theta: Array) -> IntArray:
    """Number (...) that says what devices report at theta (..., m): 0 to m - 1 for that entry of
    the remainder or, in half of the rounds, m for the largest size of an entry, if it is beyond
    what the report of an entry can say."""
    # Multiplication wraps around at 2^64, as it should: this is a hash of the bits of theta, the
    # same on every machine.
    mixed = np.zeros(theta.shape[:-1], dtype=np.uint64)
    for bits in np.moveaxis(np.ascontiguousarray(theta, dtype="<f8").view("<u8"), -1, 0):
        mixed = (mixed ^ bits ^ (bits >> np.uint64(32))) * _MIX
    dim = theta.shape[-1]
    drawn = (mixed >> np.uint64(33)) % np.uint64(2 * dim)
    return np.asarray(np.minimum(drawn, np.uint64(dim)), dtype=np.intp)


def with_report(gradient: Array, theta: Array, uplink: Uplink) -> Array:
    """Local gradients (..., device, m + 1), made from local gradients (..., device, m) at theta
    (..., m). The last entry is the report: a gradient entry whose mean symbol tells the server one
    number about what clipping and the link take away from the gradient at this theta."""
    scale, asked = scale_of(uplink), question(theta)[..., None]
    dim = theta.shape[-1]
    with np.errstate(invalid="ignore"):
        share = (gradient - uplink.mean_symbol(gradient) / scale.slope) / scale.reach
    largest = np.abs(share).max(axis=-1)
    beyond = np.where(largest > 1.0, largest / FINENESS, 0.0)
    entry = np.minimum(asked, dim - 1)[..., None]
    chosen = np.take_along_axis(share, np.broadcast_to(entry, (*share.shape[:-1], 1)), -1)[..., 0]
    report = np.clip(np.nan_to_num(np.where(asked == dim, beyond, chosen)), -1.0, 1.0)
    value = np.sign(report) * np.interp(np.abs(report), *_inverse(uplink))
    return np.concatenate([gradient, value[..., None]], axis=-1)


@lru_cache(maxsize=8)
def _inverse(uplink: Uplink) -> tuple[Array, Array]:
    """Table to find the gradient entry as which a report is sent, the one whose mean symbol is
    proportional to the report: mean symbols over the largest one, (row), rising from 0 to 1, and
    the gradient entries that have them, (row)."""
    gradient = np.linspace(0.0, uplink.clip, _POINTS)
    symbol = uplink.mean_symbol(gradient)
    return np.asarray(symbol / symbol[-1]), gradient


class ReportingModel(Model):
    """A model with one more entry of theta, in whose place every device reports what clipping and
    the link take away from its gradient; for plans and simulations of deployments with a report.

    Parameters
    ----------
    model
        The model whose gradients devices compute.
    uplink
        The uplink of the plan.
    """

    def __init__(self, model: Model, uplink: Uplink) -> None:
        scale_of(uplink)
        self.model, self.uplink = model, uplink
        self.dim, self.num_devices = model.dim + 1, model.num_devices
        self.num_experiments, self.public = model.num_experiments, model.public
        self.smoothness, self.convexity = model.smoothness, model.convexity
        self.made_from_data = model.made_from_data

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Local gradients of the model with the report as the last entry, (experiment, chain,
        device, dim), at theta (experiment, chain, dim), whose last entry does not matter."""
        inner = theta[..., :-1]
        return with_report(self.model.gradient(inner, experiments), inner, self.uplink)
