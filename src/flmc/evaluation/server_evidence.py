r"""Evidence of a server that has no data: what its own chain says about itself.

Theta moves by minus the step times the estimate, so the thetas of consecutive rounds hold every
estimate :math:`e_t = (\theta_t - \theta_{t+1})/\eta`. With the devices' mean symbols
:math:`\bar s_k`,

.. math:: e_t = \sum_k \bar s_k(\theta_t) + n_t, \qquad
          \operatorname{Var} n_t = N_0/A^2 + \sum_k (1 - \bar s_k^2) \text{ for bits},

and the plan knows all but the last sum. What a straight line of the estimates over theta leaves is
:math:`n_t`. Its variance says whether the noise is the planned one, and for bits how large mean
symbols are: where they are near 1 the link is flat. The slope of the line is how fast the chain
forgets, which a public curvature foretells.

None of this shows how far clipping moves the mean: a chain rests where the symbols of all devices
cancel, and there they look as they do where the gradients cancel. A *report*
(:mod:`flmc.uplink.report`) tells the two apart; without one the finding may be that it is not
known. ``docs/sampling.md`` has the proofs and a confusion table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.base.special import variance_of_mean
from flmc.planning.plans import Plan
from flmc.privacy.root_finding import largest_argument
from flmc.uplink.csi import bit_noise
from flmc.uplink.report import FINENESS, question, scale_of
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

LARGEST_SHIFT, LARGEST_MISFIT = 0.25, 0.25
"""Limits within which a chain is right: distance of its mean from the posterior's in standard
deviations, and relative error of its variance."""
_ERRORS = 3.5
"""Number of standard errors beyond which a deviation is taken for real: chance exceeds it 2 times
in 10,000, on one side."""
_ROUNDS_PER_TERM = 5
"""Smallest number of rounds for each term of the straight line that is fitted to the server's
gradient estimates, so that the line does not follow the noise."""
_POINTS = 1001
"""Number of gradient values at which the mean bit of a link, as a function of the gradient, is
tabulated."""
_ONE_BEYOND = 1.0 / FINENESS
"""Part of ``Reported.beyond`` that a single device adds at least if its remainder is always too
large to be reported."""


class Rounds(NamedTuple):
    """Consecutive rounds as the server saw them.

    Attributes
    ----------
    theta
        Where the chain stood before each round, (round, dim).
    estimate
        The server's estimate of the sum of all symbols, (round, dim).
    noise
        Largest variance of the estimates that the plan allows for, (round, dim).
    bits
        Part of that variance which fair bits would have, (round, dim).
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
    """Rounds as the server saw them, from the thetas before each round and after the last one,
    (round + 1, dim), with the numbers of active devices (round) and the gains (round, 1 or dim);
    the planned ones by default. Rounds in which nobody was active are left out."""
    rounds, dim = len(thetas) - 1, thetas.shape[1]
    active = np.full(rounds, float(plan.num_devices)) if num_active is None else num_active
    gain = np.broadcast_to(plan.planned_gain[:1] if gains is None else gains, (rounds, dim))
    some = active > 0
    # The server scales what it receives by K/K_a, so variances by the square of that.
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
    """Straight line that was fitted to a server's estimates as a function of theta, and the
    variance of the estimates about it."""

    noise: Array
    """Variance of the server's gradient estimates about the line that was fitted to them as a
    function of theta, over the largest variance that the plan allows for, (dim)."""
    noise_error: float
    """Standard error of one entry of ``noise``."""
    response: float
    """Share of its distance from the mean that the chain covers in a round: the step size times the
    slope of the line that was fitted to the gradient estimates, averaged over entries."""
    response_error: float
    """Standard error of ``response``."""

    @classmethod
    def through(cls, rounds: Rounds, step_size: float) -> Line | None:
        """Fit the line by weighted least squares; None with fewer than 5 rounds for each of its
        terms."""
        count, dim = rounds.theta.shape
        if count < _ROUNDS_PER_TERM * (dim + 1):
            return None
        terms = np.column_stack([np.ones(count), rounds.theta - rounds.theta.mean(axis=0)])
        left, slopes = np.empty(dim), np.empty(dim)
        for i in range(dim):
            # Rounds are weighted by their noise, which differs where gains or devices do.
            weight = 1.0 / np.sqrt(rounds.noise[:, i])
            weighted, values = terms * weight[:, None], rounds.estimate[:, i] * weight
            solution = np.linalg.lstsq(weighted, values, rcond=None)[0]
            left[i] = np.square(values - weighted @ solution).sum() / (count - dim - 1)
            slopes[i] = solution[1 + i]
        # The slope in one entry has the variance of the noise over that part of theta's variance in
        # this entry which the other entries do not explain.
        precision = np.linalg.pinv(np.atleast_2d(np.cov(rounds.theta.T)))
        variances = rounds.noise.mean(axis=0) * left * np.diag(precision) / count
        error = step_size * math.sqrt(float(variances.sum())) / dim
        return cls(
            left, math.sqrt(2.0 / (count - dim - 1)), step_size * float(slopes.mean()), error
        )


@dataclass(frozen=True)
class Saturation:
    """Saturation of a digital uplink's bits: how far they are from fair (random) ones, seen by how
    much variance is missing in the noise of the estimates."""

    square: Array
    """Mean square of the devices' mean bits, (dim): 0 for fair bits, 1 for bits that never
    change."""
    square_error: float
    """Standard error of one entry of ``square``."""
    shift: float
    """Distance of the chain's mean from the posterior's in standard deviations if every device has
    a mean bit of this size with a random sign, for the smallest size that the standard error
    allows."""
    slope: Array
    """Share of the link's slope that is left at a mean bit of this size, (dim), for the smallest
    size that the standard error allows."""

    @classmethod
    def of(cls, plan: Plan, rounds: Rounds, line: Line) -> Saturation | None:
        """Saturation of the bits; None for symbols that are no bits, and where devices were absent
        or estimate their channel, because both add noise of their own."""
        uplink = plan.uplink
        if not rounds.complete or not uplink.transmits_like(Digital) or uplink.estimated:
            return None
        share = (rounds.bits / rounds.noise).mean(axis=0)
        square, error = (1.0 - line.noise) / share, line.noise_error / float(share.min())
        # The mean over all entries is known better than each entry: its standard error is smaller.
        together = square.mean() - _ERRORS * error / math.sqrt(len(square))
        low = np.clip(np.maximum(square - _ERRORS * error, together), 0.0, 1.0)
        sd, devices = rounds.theta.std(axis=0), plan.num_devices
        symbol, gradient, slope = _link_curve(uplink)
        at = np.sqrt(np.minimum(low, symbol[-1] ** 2))
        rest = np.interp(at, symbol, gradient) - at / uplink.slope
        # A sum of K remainders with random signs grows with the root of K.
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
    """Distance of the chain's mean from the posterior's, in standard deviations of the chain."""
    shift_error: float
    """Standard error of ``shift`` in the direction in which it is largest."""
    lost: float
    """Relative excess of the variance ratio that the remainders cause."""
    lost_error: float
    """Standard error of ``lost``."""
    beyond: float
    """Average over rounds of a sum over devices: the sizes of remainders that were too large to be
    reported. A device whose remainder is always too large adds 1/4 to 1."""
    beyond_error: float
    """Standard error of ``beyond``."""
    typical_shift: float
    """Distance of the mean, in standard deviations, that ``beyond`` suggests for its smallest value
    that the standard error allows, if all devices have the same size of remainder, in the narrowest
    entry and with random signs."""

    @classmethod
    def of(cls, plan: Plan, rounds: Rounds) -> Reported | None:
        """Evidence from the devices' reports, in rounds whose last entry is the report; None where
        an entry was reported in fewer than two rounds."""
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
            # K equal sizes with the sum S have the root of the sum of squares S over the root of K.
            max(0.0, surely) / math.sqrt(plan.num_devices) * FINENESS * scale.reach * narrowest,
        )


@dataclass(frozen=True)
class ServerEvidence:
    """Evidence that a server without data has about its chain; :func:`server_evidence` makes it."""

    plan: Plan
    line: Line
    """Straight line fitted to the server's estimates as a function of theta."""
    variance_ratio: float | None
    """Variance of the draws over the posterior's if nothing of the gradients is lost; None for a
    link without slope."""
    variance_error: float
    """Standard error of ``variance_ratio``."""
    saturation: Saturation | None
    """How far the devices' bits are from fair ones; None where the noise of the estimates does not
    show it."""
    reported: Reported | None
    """Remainders that devices reported; None in a run without reports."""

    @property
    def planned_response(self) -> float | None:
        """Smallest share of its distance from the mean that the chain should cover in a round, by
        the curvature that the plan knows; None where the plan knows no curvature."""
        draws, kept = self.plan.effective_draws, self.plan.num_rounds - self.plan.num_burn_in
        if draws is None or not 1.0 < draws < kept:
            return None

        # The effective draws that the plan states are 1/w(r, n) for n kept rounds with the memory
        # r: solved for r, the chain should cover 1 - r of its distance in a round.
        def excess(memory: float) -> float:
            return draws * float(variance_of_mean(np.array(memory), kept)) - 1.0

        return 1.0 - largest_argument(excess, 0.0, 1.0)

    def findings(self) -> list[Finding]:
        """Warnings that the chain is wrong; without any, one finding that says whether it was shown
        to be right, or that this is not known."""
        wrong = [*self._wrong_width(), *self._saturated(), *self._weak(), *self._shifted()]
        return wrong or [self._judgement()]

    def _wrong_width(self) -> list[Finding]:
        """A list with at most one finding: the measured noise, bits and reports show that the draws
        are too wide or, with reports, too narrow."""
        ratio, error = self._ratio
        # Remainders can only widen the draws: without reports of them the ratio is a lower bound.
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
        """Variance ratio of the draws, with the part that clipping and the link cause as far as
        that is known, and its standard error; NaN for a link without slope."""
        if self.variance_ratio is None:
            return math.nan, math.nan
        if self.reported is not None:
            error = math.hypot(self.variance_error, self.reported.lost_error)
            return self.variance_ratio + self.reported.lost, error
        left = 1.0 if self.saturation is None else float(np.mean(self.saturation.slope))
        left = max(left, 1e-3)
        return self.variance_ratio / left, self.variance_error / left

    def _saturated(self) -> list[Finding]:
        """A list with at most one finding: bits so far from fair (random) ones that the chain's
        mean is likely moved."""
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
        """A list with at most one finding: the chain forgets more slowly than the known curvature
        allows, so that part of the gradients is lost."""
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
        """A list with at most one finding: the devices' reports say that the mean is off."""
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
        and the link than they can report that the chain's mean is likely moved."""
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
        """The finding on a chain that nothing speaks against: it was shown to be right, or that is
        not known."""
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
"""Number of standard errors within which a quantity is assumed to lie when a chain is found to be
right."""


def _finding(
    code: str, severity: Grade, text: str, short: str, numbers: dict[str, float]
) -> Finding:
    """A finding on whether the chain samples the posterior."""
    return Finding(code, severity, text, short, numbers)


def _unknown(why: str, numbers: dict[str, float]) -> Finding:
    """The finding that a server without data does not know whether its chain is right."""
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
    """Evidence from the thetas after consecutive kept rounds, (round, dim).

    ``num_active`` (round) and ``gains`` (round, 1 or dim) are those of the same rounds, by default
    the planned ones; ``reports`` says that the last entry of theta is the devices' report. None
    with too few rounds for a straight line."""
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
        # A chain at rest has 2 Cov(e, theta) = step E[e e^T], and Cov(sum of gradients, theta) is
        # the identity for the posterior (Stein): half the step times the mean square, over the
        # slope, is the variance ratio.
        mean_square = float(np.square(rounds.estimate).mean())
        ratio = plan.step_size * mean_square / (2.0 * plan.slope)
        error = ratio * line.noise_error / math.sqrt(rounds.theta.shape[1])
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
    """Findings on a chain by a server without data, from the arguments of :func:`server_evidence`:
    warnings, or one note that the chain was shown to be right, or one finding that it is not
    known."""
    evidence = server_evidence(plan, thetas, num_active, gains, reports=reports)
    if evidence is None:
        return [_unknown(f"{len(thetas)} rounds are too few for {plan.dim} entries", {})]
    return evidence.findings()
