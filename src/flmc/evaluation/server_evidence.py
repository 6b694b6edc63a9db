r"""Evidence of a server that has no data: what its own chain says about itself.

Theta moves by minus the step times the estimate, so the thetas of consecutive rounds hold every
estimate :math:`e_t = (\theta_t - \theta_{t+1})/\eta`. With the devices' mean symbols
:math:`\bar s_k`,

.. math:: e_t = \sum_k \bar s_k(\theta_t) + n_t, \qquad
          \operatorname{Var} n_t = N_0/A^2 + \sum_k (1 - \bar s_k^2) \text{ for bits},

and the plan knows all but the last sum. The server fits a straight line to the estimates as a
function of theta; the residuals are :math:`n_t`. Their variance shows whether the noise is as
planned and, for bits, how large mean symbols are: where they are near 1 the link is flat. The slope
of the line tells how fast the chain returns to its mean, which a publicly known curvature predicts.

None of this shows how far clipping moves the mean: the chain settles where the symbols of all
devices add up to 0, and to the server that looks as if their gradients did. A *report*
(:mod:`flmc.uplink.report`) shows the difference; without one, the finding may be that the error of
the mean is not known. ``docs/sampling.md`` has the proofs, and measured rates of wrong findings."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.planning.plans import Plan
from flmc.planning.plans.release import draws_with_memory
from flmc.privacy.root_finding import largest_argument
from flmc.uplink.csi import bit_noise
from flmc.uplink.report import FINENESS, question, scale_of
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

LARGEST_SHIFT, LARGEST_MISFIT = 0.25, 0.25
"""Limits within which a chain counts as sampling the posterior: ``LARGEST_SHIFT`` is the distance
of its mean from the posterior's in standard deviations, ``LARGEST_MISFIT`` the relative error of
its variance."""
_ERRORS = 3.5
"""Number of standard errors above which a deviation brings a warning: chance exceeds it 2 times in
10,000, on one side."""
_ROUNDS_PER_TERM = 5
"""Smallest number of rounds for each coefficient of the linear function of theta that is fitted to
the server's gradient estimates; with fewer, the fit would follow the noise, and none is made."""
_POINTS = 1001
"""Number of gradient values at which the mean bit of a link, as a function of the gradient, is
tabulated."""
_ONE_BEYOND = 1.0 / FINENESS
"""Smallest contribution to ``Reported.beyond`` of a device that loses more of its gradient in every
round than it can report."""


class Rounds(NamedTuple):
    """Consecutive rounds as the server saw them.

    Attributes
    ----------
    theta
        Theta before each round, (round, dim).
    estimate
        The server's estimate of the sum of all symbols, (round, dim).
    noise
        Largest variance that the noise of an estimate may have by the plan, (round, dim): that of
        the channel and of bits that are +1 and -1 with equal probability.
    bits
        The part of ``noise`` that such bits contribute, (round, dim).
    complete
        Whether every device was active in every round.
    """

    theta: Array
    estimate: Array
    noise: Array
    bits: Array
    complete: bool

    @property
    def of_parameters(self) -> Rounds:
        """A copy of these rounds without the last entry of theta, which is the devices' report."""
        theta, estimate, noise, bits = (each[:, :-1] for each in self[:4])
        return Rounds(theta, estimate, noise, bits, self.complete)


def seen_rounds(
    plan: Plan, thetas: Array, num_active: Array | None = None, gains: Array | None = None
) -> Rounds:
    """Rounds as the server saw them, from theta before each round and after the last one, (round +
    1, dim). The numbers of active devices (round) and the gains (round, 1 or dim) are by default
    all devices and the planned gain. Rounds in which no device was active are left out."""
    rounds, dim = len(thetas) - 1, thetas.shape[1]
    active = np.full(rounds, float(plan.num_devices)) if num_active is None else num_active
    gain = np.broadcast_to(plan.planned_gain[:1] if gains is None else gains, (rounds, dim))
    some = active > 0
    # The server multiplies the received signal by K/K_a, so variances are multiplied by its square.
    factor = np.square(plan.num_devices / active[some])[:, None]
    bits = factor * bit_noise(plan.uplink, plan.num_devices, plan.scheduler) * active[some][:, None]
    noise = factor * plan.uplink.noise_power / np.square(gain[some]) + bits
    estimate = (thetas[:-1] - thetas[1:])[some] / plan.step_size
    return Rounds(
        thetas[:-1][some],
        estimate,
        noise,
        np.broadcast_to(bits, noise.shape),
        bool((active == plan.num_devices).all()),
    )


@dataclass(frozen=True)
class Line:
    """Linear function of theta that was fitted to a server's gradient estimates, and the variance
    of the estimates about it."""

    noise: Array
    """Variance of the server's gradient estimates about the fitted linear function of theta, over
    the largest variance that the plan expects of their noise, (dim)."""
    noise_error: float
    """Standard error of one entry of ``noise``."""
    response: float
    """Share of its distance from the mean that the chain covers in a round: the step size times the
    slope of the fitted function, averaged over entries (each entry of the estimate as a function of
    the same entry of theta)."""
    response_error: float
    """Standard error of ``response``."""
    pull: float
    """The step size times the slopes of the fitted function, averaged over directions with the
    mean square of the estimates along each as weight."""

    @classmethod
    def through(cls, rounds: Rounds, step_size: float) -> Line | None:
        """Fit of a linear function of theta to the estimates in ``rounds``, by weighted least
        squares; None with fewer than 5 rounds for each of its dim + 1 coefficients."""
        count, dim = rounds.theta.shape
        if count < _ROUNDS_PER_TERM * (dim + 1):
            return None
        terms = np.column_stack([np.ones(count), rounds.theta - rounds.theta.mean(axis=0)])
        left, matrix = np.empty(dim), np.empty((dim, dim))
        for i in range(dim):
            # Rounds are weighted by the inverse of their noise, which varies with gains and active
            # devices.
            weight = 1.0 / np.sqrt(rounds.noise[:, i])
            weighted, values = terms * weight[:, None], rounds.estimate[:, i] * weight
            solution = np.linalg.lstsq(weighted, values, rcond=None)[0]
            left[i] = np.square(values - weighted @ solution).sum() / (count - dim - 1)
            matrix[i] = solution[1:]
        # Variance of an estimated slope: the variance of the noise, divided by the number of rounds
        # and by the part of theta's variance in this entry that the other entries do not explain,
        # which is 1 over the diagonal element of the precision.
        precision = np.linalg.pinv(np.atleast_2d(np.cov(rounds.theta.T)))
        variances = rounds.noise.mean(axis=0) * left * np.diag(precision) / count
        error = step_size * math.sqrt(float(variances.sum())) / dim
        response = step_size * float(np.diag(matrix).mean())
        squares = rounds.estimate.T @ rounds.estimate
        pull = step_size * float(np.einsum("ij,ji->", matrix, squares) / np.trace(squares))
        return cls(left, math.sqrt(2.0 / (count - dim - 1)), response, error, pull)


@dataclass(frozen=True)
class Saturation:
    """How far the bits of a digital uplink are from fair ones (+1 and -1 with equal probability):
    bits that are not fair are less random, so that the noise of the estimates has less variance."""

    square: Array
    """Mean over devices of the squared mean bit, (dim): 0 for fair bits, 1 for bits that never
    change."""
    square_error: float
    """Standard error of one entry of ``square``."""
    shift: float
    """Distance of the chain's mean from the posterior's, in standard deviations, that is typical if
    all devices have mean bits of the size that ``square`` shows, with random signs. It is computed
    for the smallest size that the standard error allows."""
    slope: Array
    """The link's slope at a mean bit of the size that ``square`` shows, over its slope at 0, (dim),
    for the smallest size that the standard error allows."""

    @classmethod
    def of(cls, plan: Plan, rounds: Rounds, line: Line) -> Saturation | None:
        """Saturation of the bits in ``rounds``. None for symbols that are not bits, and where
        devices were absent or estimate their channel, because both add noise of their own."""
        uplink = plan.uplink
        if not rounds.complete or not uplink.transmits_like(Digital) or uplink.estimated:
            return None
        share = (rounds.bits / rounds.noise).mean(axis=0)
        square, error = (1.0 - line.noise) / share, line.noise_error / float(share.min())
        # The mean of ``square`` over entries has a smaller standard error than each entry, and so
        # may give a larger lower bound.
        together = square.mean() - _ERRORS * error / math.sqrt(len(square))
        low = np.clip(np.maximum(square - _ERRORS * error, together), 0.0, 1.0)
        sd, devices = rounds.theta.std(axis=0), plan.num_devices
        symbol, gradient, slope = _link_curve(uplink)
        at = np.sqrt(np.minimum(low, symbol[-1] ** 2))
        rest = np.interp(at, symbol, gradient) - at / uplink.slope
        # The sum of K remainders with random signs grows with the root of K.
        shift = math.sqrt(devices) * float(np.linalg.norm(rest * sd))
        left = np.interp(at, symbol, slope)
        return cls(np.clip(square, 0.0, 1.0), error, shift, left)


def _link_curve(uplink: Uplink) -> tuple[Array, Array, Array]:
    """The link's curve up to the clip, as three arrays (point): mean bits rising from 0, the
    gradients that have them, and the link's slope at these gradients over that at 0."""
    gradient = np.linspace(0.0, uplink.clip, _POINTS)
    symbol = uplink.mean_symbol(gradient)
    return symbol, gradient, np.gradient(symbol, gradient) / uplink.slope


@dataclass(frozen=True)
class Reported:
    """Numbers that follow from the remainders which devices reported over the air (what clipping
    and the link take from their gradients): errors of the chain's mean and variance, by Stein's
    identity."""

    shift: float
    """Distance of the chain's mean from the posterior's, in standard deviations of the chain, that
    the reported remainders cause."""
    shift_error: float
    """Standard error of ``shift`` in the direction in which it is largest."""
    lost: float
    """Amount by which the remainders raise the variance ratio (variance of the draws over the
    posterior's), as the reports show it."""
    lost_error: float
    """Standard error of ``lost``."""
    beyond: float
    """Mean over rounds of a sum over devices: the size of each remainder that was too large to be
    reported, as a share of the largest size that this report can state. A device whose remainder is
    too large in every round adds between 1/4 and 1."""
    beyond_error: float
    """Standard error of ``beyond``."""
    typical_shift: float
    """Distance of the chain's mean from the posterior's, in standard deviations, that is typical
    for the smallest value of ``beyond`` within its standard error, if the remainders of all devices
    have the same size and random signs and lie in the entry of theta with the smallest spread."""

    @classmethod
    def of(cls, plan: Plan, rounds: Rounds) -> Reported | None:
        """Evidence from the devices' reports, which are the last entry of theta in ``rounds``; None
        where some entry of the remainder, or the size of too large ones, was reported in fewer than
        two rounds."""
        scale, theta = scale_of(plan.uplink), rounds.theta[:, :-1]
        asked, dim = question(theta), theta.shape[1]
        value, noise = rounds.estimate[:, -1] / scale.peak, rounds.noise[:, -1] / scale.peak**2
        if min(np.count_nonzero(asked == i) for i in range(dim + 1)) < 2:
            return None
        means, variances = np.empty(dim + 1), np.empty(dim + 1)
        lost, lost_variance = 0.0, 0.0
        for i in range(dim + 1):
            these, weight = value[asked == i], 1.0 / noise[asked == i]
            means[i] = (weight @ these) / weight.sum()
            variances[i] = 1.0 / weight.sum()
            if i < dim:
                away = theta[asked == i, i] - theta[:, i].mean()
                lost += scale.reach / dim * float(np.mean((these - means[i]) * away))
                lost_variance += float(np.mean(np.square(away) / weight)) / len(these)
        covariance = np.atleast_2d(np.cov(theta.T))
        bias = scale.reach * means[:dim]
        spread = np.diag(scale.reach * np.sqrt(variances[:dim]))
        error = math.sqrt(float(np.linalg.eigvalsh(spread @ covariance @ spread)[-1]))
        chance = float(np.trace(spread @ covariance @ spread))
        shift = math.sqrt(max(0.0, float(bias @ covariance @ bias) - chance))
        narrowest = float(theta.std(axis=0).min())
        surely = float(means[-1] - _ERRORS * math.sqrt(variances[-1]))
        return cls(
            shift,
            error,
            lost,
            scale.reach * math.sqrt(lost_variance) / dim,
            float(means[-1]),
            math.sqrt(float(variances[-1])),
            # K remainders of equal size whose sizes add up to S have a sum of squares whose root is
            # S over the root of K.
            max(0.0, surely) / math.sqrt(plan.num_devices) * FINENESS * scale.reach * narrowest,
        )


@dataclass(frozen=True)
class ServerEvidence:
    """Evidence of a server without data on whether its chain samples the posterior;
    :func:`server_evidence` makes it."""

    plan: Plan
    line: Line
    """Linear function of theta that was fitted to the server's gradient estimates."""
    variance_ratio: float | None
    """Variance of the draws over the posterior's, computed as if clipping and the link took nothing
    from the gradients; None for a link without slope."""
    variance_error: float
    """Standard error of ``variance_ratio``."""
    saturation: Saturation | None
    """How far the devices' bits are from fair ones (+1 and -1 with equal probability); None where
    the noise of the estimates does not show it."""
    reported: Reported | None
    """Errors of mean and variance that follow from the devices' reports of what clipping and the
    link take from their gradients; None in a run without reports."""

    @property
    def planned_response(self) -> float | None:
        """Smallest share of its distance from the mean that the chain should cover in a round,
        computed from the effective draws that the plan expects; None where the plan expects
        none."""
        draws, kept = self.plan.effective_draws, self.plan.num_rounds - self.plan.num_burn_in
        if draws is None or not 1.0 < draws < kept:
            return None

        # The number of effective draws falls with the correlation r of successive positions. Solved
        # for r, the chain should cover 1 - r of its distance from the mean in a round.
        def excess(memory: float) -> float:
            return draws / draws_with_memory(memory, kept, midpoints=self.plan.midpoints) - 1.0

        lowest = -1.0 if self.plan.midpoints else 0.0
        return 1.0 - largest_argument(excess, lowest, 1.0)

    def findings(self) -> list[Finding]:
        """Warnings that the chain does not sample the posterior; if there are none, one finding
        that says whether the chain was shown to sample it, or that this is not known."""
        wrong = [*self._wrong_width(), *self._saturated(), *self._weak(), *self._shifted()]
        return wrong or [self._judgement()]

    def _wrong_width(self) -> list[Finding]:
        """A list with at most one finding: the measured noise, bits and reports show that the
        variance of the draws is larger or, where there are reports, smaller than the
        posterior's."""
        ratio, error = self._ratio
        # Clipping and the link can only make the draws wider: without reports the ratio is a lower
        # bound.
        narrow = self.reported is not None and ratio + _ERRORS * error < 1 - LARGEST_MISFIT
        if not ratio - _ERRORS * error > 1 + LARGEST_MISFIT and not narrow:
            return []
        text = (
            f"the variance of the draws is {ratio:.3g} times the posterior's, as the noise of the"
            " received signal shows; " + ("use less gain or a larger step" if narrow else _CURE)
        )
        numbers = {"variance_ratio": ratio, "standard_error": error}
        return [
            _finding("measured-variance", "warning", text, f"variance ratio {ratio:.3g}", numbers)
        ]

    @property
    def _ratio(self) -> tuple[float, float]:
        """Variance of the draws over the posterior's, and its standard error. As far as reports or
        the noise of bits show it, the ratio includes the increase by clipping and the link; both
        numbers are NaN for a link without slope."""
        if self.variance_ratio is None:
            return math.nan, math.nan
        if self.reported is not None:
            # Lost gradients raise the variance of midpoints by the same share as that of positions.
            read = 1.0 - self.line.pull / 2.0 if self.plan.midpoints else 1.0
            error = math.hypot(self.variance_error, read * self.reported.lost_error)
            return self.variance_ratio + read * self.reported.lost, error
        left = 1.0 if self.saturation is None else float(np.mean(self.saturation.slope))
        left = max(left, 1e-3)
        return self.variance_ratio / left, self.variance_error / left

    def _saturated(self) -> list[Finding]:
        """A list with at most one finding: bits are so far from fair ones (+1 and -1 with equal
        probability) that the chain's mean is likely off. Empty where devices report: their reports
        are judged instead."""
        seen = self.saturation
        if seen is None or self.reported is not None or not seen.shift > LARGEST_SHIFT:
            return []
        square = float(seen.square.max())
        text = (
            f"bits are saturated: the noise of the received signal misses {100 * square:.0f} % of"
            " that of fair bits, so devices pull against each other where the link is flat, and the"
            f" mean is typically off by {seen.shift:.2g} standard deviations or more; {_CURE}"
        )
        numbers = {"mean_square_bit": square, "typical_shift": seen.shift}
        return [_finding("saturated-bits", "warning", text, "bits are saturated", numbers)]

    def _weak(self) -> list[Finding]:
        """A list with at most one finding: the chain returns to its mean more slowly than the
        curvature in the plan allows, so that clipping or the link take part of the gradients."""
        planned, line = self.planned_response, self.line
        if planned is None:
            return []
        if not line.response + _ERRORS * line.response_error < planned * (1 - LARGEST_MISFIT / 2):
            return []
        share = max(line.response, 0.0) / planned
        text = (
            f"the chain returns to its mean at {100 * share:.0f} % of the least rate that the"
            " curvature in the plan allows: clipping or the link take away part of the gradients;"
            " draws are too wide and, where devices are not alike, in the wrong place;"
            f" {_CURE}"
        )
        numbers = {"response": line.response, "planned_response": planned}
        return [_finding("weak-response", "warning", text, "weak response", numbers)]

    def _shifted(self) -> list[Finding]:
        """A list with at most one finding: the devices' reports show, or make likely, that the
        chain's mean is off."""
        told = self.reported
        if told is None:
            return []
        if not told.shift - _ERRORS * told.shift_error > LARGEST_SHIFT:
            return self._beyond(told)
        text = (
            f"the mean is off by about {told.shift:.2g} standard deviations, as devices' reports"
            f" of what clipping and the link take away add up to; {_CURE}"
        )
        numbers = {"mean_shift": told.shift, "standard_error": told.shift_error}
        return [
            _finding("reported-shift", "warning", text, f"mean off by {told.shift:.2g} sd", numbers)
        ]

    def _beyond(self, told: Reported) -> list[Finding]:
        """A list with at most one finding: so many devices lose more of their gradients to clipping
        and the link than a report can state that the chain's mean is likely off. ``told`` is what
        they did report."""
        if not told.typical_shift > LARGEST_SHIFT:
            return []
        text = (
            "devices lose more of their gradients to clipping and the link than they can report:"
            f" the mean is typically off by {told.typical_shift:.2g} standard deviations or more;"
            f" {_CURE}"
        )
        numbers = {"beyond_reach": told.beyond, "typical_shift": told.typical_shift}
        return [_finding("reported-loss", "warning", text, "gradients are lost", numbers)]

    def _judgement(self) -> Finding:
        """The finding on a chain without warnings: reports show that it samples the posterior, or
        that is not known."""
        ratio, error = self._ratio
        fits = abs(ratio - 1.0) + _SURE * error < LARGEST_MISFIT
        numbers = {"variance_ratio": ratio, "standard_error": error}
        told = self.reported
        if told is not None:
            largest = told.shift + _SURE * told.shift_error
            numbers |= {"largest_shift": largest, "beyond_reach": told.beyond}
            in_reach = told.beyond + _SURE * told.beyond_error < _ONE_BEYOND
            if fits and in_reach and largest < LARGEST_SHIFT:
                return _finding(
                    "judged-by-reports", "note", _RIGHT.format(largest, ratio), "", numbers
                )
            why = (
                "too few rounds to tell from the devices' reports"
                if in_reach
                else "devices may lose more to clipping and the link than they can report"
            )
            return _unknown(why, numbers)
        return _unknown(
            "clipped or saturated gradients of devices that are not alike do not show in their sum;"
            " let devices report what is lost (a model NAME+report), or judge with data",
            numbers,
        )


_CURE = "use a larger clip or a flatter link, or deal the data so that devices are alike"
_RIGHT = "the mean is within {:.2g} standard deviations, and the variance ratio {:.3g}"
_SURE = 2.5
"""Number of standard errors that are added to a deviation before it is compared with its limit,
when a chain is to be declared to sample the posterior."""


def _finding(
    code: str, severity: Grade, text: str, short: str, numbers: dict[str, float]
) -> Finding:
    """A :class:`Finding` with these fields and the default light, *sampling*: it concerns whether
    the chain samples the posterior."""
    return Finding(code, severity, text, short, numbers)


def _unknown(why: str, numbers: dict[str, float]) -> Finding:
    """The finding, for the reason ``why``, that a server without data does not know whether its
    chain samples the posterior."""
    text = f"not known whether the chain samples the posterior: {why}"
    return _finding("not-judged", "unknown", text, "not known without data", numbers)


def server_evidence(
    plan: Plan,
    thetas: Array,
    num_active: Array | None = None,
    gains: Array | None = None,
    *,
    reports: bool = False,
) -> ServerEvidence | None:
    """Evidence on whether a chain samples the posterior, from theta after consecutive kept rounds,
    (round, dim).

    ``num_active`` (round) and ``gains`` (round, 1 or dim) belong to the same rounds; by default
    they are all devices and the planned gain. With ``reports`` the last entry of theta is the
    devices' report. None if there are too few rounds to fit a linear function of theta."""
    later = (None if each is None else each[1:] for each in (num_active, gains))
    rounds = seen_rounds(plan, thetas, *later)
    told = Reported.of(plan, rounds) if reports else None
    if reports:
        rounds = rounds.of_parameters
    line = Line.through(rounds, plan.step_size)
    if line is None:
        return None
    ratio, error = None, math.nan
    if plan.slope is not None:
        # A stationary chain has 2 Cov(e, theta) = step E[e e^T] with the estimate e, and for the
        # posterior Cov(sum of gradients, theta) is the identity (Stein): half the step times the
        # mean square of the estimate, over the slope, is the variance ratio.
        mean_square = float(np.square(rounds.estimate).mean())
        ratio = plan.step_size * mean_square / (2.0 * plan.slope)
        error = ratio * line.noise_error / math.sqrt(rounds.theta.shape[1])
        if plan.midpoints:
            # A midpoint is half a move away from the positions beside it: the covariance of
            # midpoints is less than that of positions by a quarter of the mean square of a move, so
            # the variance ratio is multiplied by 1 - pull/2.
            error = math.hypot(error * (1.0 - line.pull / 2.0), ratio * line.response_error / 2.0)
            ratio *= 1.0 - line.pull / 2.0
    saturation = Saturation.of(plan, rounds, line)
    return ServerEvidence(plan, line, ratio, error, saturation, told)


def judge_without_data(
    plan: Plan,
    thetas: Array,
    num_active: Array | None = None,
    gains: Array | None = None,
    *,
    reports: bool = False,
) -> list[Finding]:
    """Findings of a server without data on its chain: warnings, or one note that the chain was
    shown to sample the posterior, or one finding that this is not known.

    ``thetas`` (round, dim) are theta after consecutive kept rounds, of which ``num_active`` (round)
    and ``gains`` (round, 1 or dim) are known; None: all devices, the planned gain. With ``reports``
    the last entry of theta is the devices' report."""
    evidence = server_evidence(plan, thetas, num_active, gains, reports=reports)
    if evidence is None:
        return [_unknown(f"{len(thetas)} rounds are too few for {plan.dim} entries", {})]
    return evidence.findings()
