r"""The conjecture `by entry`: a rule by which the authors' program may have computed gains.

It is no sound privacy rule: every entry gets :math:`\epsilon/m`, and delta is spent anew in each of
them. The forms are closed: the loss of one entry is a monotone function of what is received.
"""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import NormalDist

import numpy as np

from flmc.planning.plans import Plan
from flmc.privacy.root_finding import largest_gain
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

_below = NormalDist().cdf


def entry_gain(uplink: Uplink, epsilon: float, delta: float, dim: int) -> float:
    r"""Largest gain that the conjecture's privacy rule allows; other limits do not count.

    Digital: the largest A with :math:`\Pr(|\text{loss of one entry}| > \epsilon/m) \le \delta` for
    the exact worst-case pair. Analog: :math:`A = \sqrt{N_0 x/(2 m \ell^2)}` as printed, with the
    half in T, where :math:`T(x) = 1 - \delta` has :math:`\epsilon/m` in place of :math:`\epsilon`;
    m stays in the root.

    Parameters
    ----------
    uplink
        A digital or an analog one; its signal-to-noise ratio does not matter.
    epsilon, delta
        Privacy budget of a round, as the paper states it.
    dim
        Entries m of theta.

    Returns
    -------
    float
        The gain; infinite if every gain is allowed.

    Examples
    --------
    >>> from flmc.papers.qflmc.by_entry import entry_gain
    >>> f"{entry_gain(flmc.Digital(), 5.0, 0.01, dim=5):.5g}"
    '0.34057'
    >>> f"{entry_gain(flmc.Analog(), 5.0, 0.01, dim=5):.5g}"
    '0.0028435'
    """
    share = epsilon / dim
    if isinstance(uplink, Digital):
        high = float(uplink.link.probability(np.array([uplink.clip]))[0])
        scale = math.sqrt(uplink.noise_power)
        return scale * largest_gain(lambda gain: exceedance(gain, high, share), delta, 0.1)
    # The printed formula at epsilon/m: only its T depends on epsilon, and all m entries stay.
    return uplink.privacy_event([(1.0, dim)]).allowed_gain(share, delta, "tail")


def exceedance(gain: float, high: float, epsilon: float) -> float:
    r"""Probability that the loss of one entry exceeds epsilon in magnitude.

    What is received, :math:`y`, is :math:`\pm A` plus unit noise. The loss
    :math:`\ln\frac{p e^{2Ay} + q}{q e^{2Ay} + p}` increases with :math:`y`, and is odd. So it is
    epsilon where :math:`e^{2Ay} = (p e^\epsilon - q)/(p - q e^\epsilon)`, which is called t below.

    Parameters
    ----------
    gain
        Gain A in standard deviations of the noise; may be infinite.
    high
        Probability p of +1 under one data set; under its neighbour it is q = 1 - p.
    epsilon
        Epsilon of the entry, positive.

    Returns
    -------
    float
        The probability; 0 from the largest loss, ln(p/q), on.
    """
    low = 1.0 - high
    if low == 0.0 or epsilon < math.log(high / low):
        if math.isinf(gain):
            return 1.0
        grown = math.exp(epsilon)
        reached = math.log((high * grown - low) / (high - low * grown)) / (2 * gain)
        # Both tails, |y| > reached; a mixture of N(A, 1) and N(-A, 1) has the same in either order.
        return _below(gain - reached) + _below(-gain - reached)
    return 0.0


def limited(planned: Plan, gain: float) -> Plan:
    """A plan without a privacy limit, with the conjecture's gain in the place of that limit.

    The plan's own limits stay without a budget: the conjecture is not a privacy statement.

    Parameters
    ----------
    planned
        The plan under power and Langevin noise.
    gain
        Largest gain that the conjecture allows.
    """
    limits = replace(planned.gain_limits, privacy=gain)
    return replace(
        planned,
        gain=np.minimum(planned.gain, gain),
        gain_limits=limits,
        binding=limits.binding,
    )
