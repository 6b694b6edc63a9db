r"""The study's rules that choose the gain of every round: static, with one cap for all rounds, and
adaptive, by a convex program that is solved for many runs at once.

Gains A are those at the receiver; the study writes :math:`a_s = A_s^2` in round s. Three limits
hold, by power, by Langevin noise and by privacy, where :math:`K_a` of K devices transmit:

.. math:: a_s \le \frac{P \min_k |h_k|^2}{\ell^2}, \qquad
          a_s \le \Big(\frac{K}{K_a}\Big)^2 \frac{\eta N_0}{2}, \qquad
          \sum_{s: k \text{ active}} \frac{2\ell^2 a_s}{N_0} \le R .

:math:`P = m P_0` is the largest energy of a device's m symbols in a round, :math:`h_k` a path gain,
:math:`\ell` the clip, :math:`\eta` the step size, :math:`N_0` the noise power, and R the privacy
budget of a device.

The adaptive allocation solves, over the shares :math:`y_s \in (0, 1]` of each round's largest gain,

.. math:: \min_y \max_{j \in \text{kept}} \Big\{ b_j + \sum_{s \le j} \rho^{2(j-s)}
          \frac{w_s}{y_s} \Big\} \quad\text{with}\quad \sum_s c_{ks}\, y_s \le 1
          \text{ for every device } k .

Here :math:`b_j` is the part of the error bound of round j that no gain changes, :math:`w_s` the
part from the noise of round s at its largest gain, :math:`\rho^2` the factor by which that part
shrinks in each later round, and :math:`c_{ks}` the share of device k's budget that round s takes at
its largest gain. With :math:`y_s = e^{-q_s}` bounds and costs are sums of exponentials, convex in
q, and shares of very different size become numbers of similar size. A primal-dual interior-point
method with slack variables finds the optimum. The programs of all runs have the same shape, so the
matrices of a Newton step are computed for several runs in one batched product; each is then
factorised by Cholesky's method. Where the optimum is not unique, a small multiple of
:math:`\sum_s w_s/y_s` in the objective selects the one with the largest shares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg.lapack import dposv
from scipy.optimize import brentq

from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import RunFailed
from flmc.papers.wflmc.base_case import BaseCase
from flmc.privacy import gaussian

_TIE = 1e-6
"""Weight, in the objective of the convex program, of a term that selects one of several equal
optima. It worsens the optimum by less than this share."""
_GAP = 1e-8
"""Tolerance of the interior-point iteration: it ends when the duality gap and all residuals of the
optimality conditions are smaller, in units of the objective without a privacy budget."""
_MOST_STEPS = 200
"""Largest number of Newton steps of the interior-point iteration; if they do not suffice, it has
failed to converge."""
_TO_THE_BOUNDARY = 0.995
"""Largest share of the distance to the boundary of the feasible set that a Newton step may go."""
_CENTRING = 0.1
"""Factor by which a Newton step of the interior-point iteration aims to reduce the duality gap."""
_AT_ONCE = 8
"""Number of convex programs (one for each run) that are solved together: their matrices fit into
the cache of a processor core; with more, the computation waits for memory."""


class Programs(NamedTuple):
    """Convex programs, one for each run, that choose the gain of every round. The unknowns are the
    shares of each round's largest gain; the largest error bound of a kept round is minimised, and
    no device may exceed its privacy budget.

    Attributes
    ----------
    base
        :math:`b_j`, the part of a kept round's error bound that does not depend on gains, (run,
        kept).
    weight
        :math:`w_s`, the part of the error bound from the noise of a round at the round's largest
        gain, (run, round); it is divided by the share.
    cost
        :math:`c_{ks}`, share of a device's privacy budget that a round takes at its largest gain, 0
        where the device is silent, (run, device, round).
    decay
        :math:`\\rho^2`, factor in (0, 1) by which the effect of a round's noise shrinks in each
        later round.
    """

    base: Array
    weight: Array
    cost: Array
    decay: float

    @property
    def memory(self) -> Array:
        r"""Factor :math:`\rho^{2(j-s)}`, with :math:`\rho^2` = ``decay``, by which the effect of
        the noise of round s has shrunk in the kept round j; 0 where s > j, (kept, round)."""
        num_rounds, num_kept = self.weight.shape[1], self.base.shape[1]
        ago = np.arange(num_rounds - num_kept, num_rounds)[:, None] - np.arange(num_rounds)
        return np.where(ago >= 0, self.decay ** np.maximum(ago, 0), 0.0)

    def objective(self, shares: Array) -> Array:
        """The largest of the error bounds of all kept rounds, (run), if each round uses the given
        share of its largest gain, (run, round)."""
        bounds = self.base + (self.weight / shares) @ self.memory.T
        return np.asarray(bounds.max(axis=1))

    def rows(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Programs:
        """The programs of some of the runs: ``chosen`` is a mask over all runs, (run), or holds the
        indices of the chosen runs."""
        return Programs(self.base[chosen], self.weight[chosen], self.cost[chosen], self.decay)


@one_blas_thread()
def solve(programs: Programs) -> Array:
    """Shares (of the largest squared gain of each round), (run, round), that minimise the largest
    error bound over kept rounds within the privacy budget; where the optimum is not unique, the
    largest such shares. ``RunFailed`` if the iteration does not converge."""
    shares = np.ones_like(programs.weight)
    # ``bound`` holds the indices of runs in which the largest gains would exceed a device's privacy
    # budget. In all other runs the largest gains, that is shares of 1, are optimal.
    bound = np.flatnonzero((programs.cost.sum(axis=2) > 1.0).any(axis=1))
    for first in range(0, len(bound), _AT_ONCE):
        some = bound[first : first + _AT_ONCE]
        shares[some] = _interior_point(programs.rows(some))
    return shares


class _Point(NamedTuple):
    """State of the interior-point iteration: an approximate solution of each run's program.

    Attributes
    ----------
    unknowns
        Minus the logarithm of each round's share (of its largest gain), and last the largest error
        bound, (run, round + 1).
    slack, multipliers
        Slack and Lagrange multiplier of each constraint, (run, constraint). The constraints are, in
        this order, the error bounds of kept rounds, the privacy budgets of devices, and that no
        share exceeds 1.
    """

    unknowns: Array
    slack: Array
    multipliers: Array

    @property
    def gap(self) -> Array:
        """Sum over all constraints of multiplier times slack, (run, 1): it is 0 at the optimum."""
        return np.asarray((self.multipliers * self.slack).sum(axis=1, keepdims=True))


def _interior_point(programs: Programs) -> Array:
    """Optimal shares (of each round's largest gain), (run, round), by the interior-point method,
    for programs in which the privacy budget is exceeded with all shares 1."""
    # Error bounds are divided by the objective without a privacy budget, so that the tolerance does
    # not depend on the data.
    unit = programs.objective(np.ones_like(programs.weight))[:, None]
    programs = programs._replace(base=programs.base / unit, weight=programs.weight / unit)
    tie = _TIE * programs.weight / programs.weight.sum(axis=1, keepdims=True)
    memory = programs.memory
    point = _start(programs)
    optima, left = np.empty_like(programs.weight), np.arange(len(programs.weight))
    error = np.zeros(0)
    for _ in range(_MOST_STEPS):
        rest = programs.rows(left)
        after, error = _step(point, rest, memory, tie[left])
        done = error < _GAP
        optima[left[done]] = point.unknowns[done, :-1]
        left, point = left[~done], _Point._make(part[~done] for part in after)
        if not left.size:
            shares = np.exp(-np.maximum(optima, 0.0))
            # The solution may exceed a privacy budget by the tolerance of the iteration; dividing
            # the shares by the used part of the budget keeps the budget exactly.
            used = np.einsum("rks,rs->rk", programs.cost, shares).max(axis=1, keepdims=True)
            return np.asarray(shares / np.maximum(used, 1.0))
    raise RunFailed(
        f"the adaptive allocation of {left.size} runs did not converge in {_MOST_STEPS} steps:"
        f" error {error.max():.2g}"
    )


def _start(programs: Programs) -> _Point:
    """The point at which the interior-point iteration starts: the same share (of the largest gain)
    in all rounds, such that the device that spends most spends 90 % of its privacy budget, and
    multipliers for which the gap (sum of multiplier times slack) is 1."""
    cost = programs.cost.sum(axis=2)
    share = 0.9 / cost.max(axis=1, keepdims=True)
    rounds = programs.weight.shape[1]
    constant = np.repeat(share, rounds, axis=1)
    bounds = programs.base + (programs.weight / constant) @ programs.memory.T
    level = 1.1 * bounds.max(axis=1, keepdims=True)
    slack = np.concatenate([level - bounds, 1.0 - share * cost, -np.log(constant)], axis=1)
    unknowns = np.concatenate([-np.log(constant), level], axis=1)
    return _Point(unknowns, slack, 1.0 / (slack.shape[1] * slack))


def _step(point: _Point, programs: Programs, memory: Array, tie: Array) -> tuple[_Point, Array]:
    """Two results: the point after one Newton step of the interior-point iteration, and the error
    of ``point`` itself, (run), which is the largest residual of its optimality conditions or, if
    larger, its gap. ``memory`` is that of ``programs``; ``tie`` (run, round) holds the small
    weights that select one of several equal optima."""
    unknowns, slack, prices = point
    rounds, kept = memory.shape[1], memory.shape[0]
    inverse = np.exp(unknowns[:, :-1])
    noise, used = programs.weight * inverse, programs.cost / inverse[:, None, :]
    values = np.concatenate(
        [
            programs.base + noise @ memory.T - unknowns[:, -1:],
            used.sum(axis=2) - 1.0,
            -unknowns[:, :-1],
        ],
        axis=1,
    )

    def of_bounds(weights: Array) -> Array:
        """Derivatives, with respect to q (minus the logarithms of the shares), of the weighted sum
        of the error bounds, (run, round). ``weights`` has one number for each constraint, (run,
        constraint)."""
        return np.asarray(noise * (weights[:, :kept] @ memory))

    def of_budgets(weights: Array) -> Array:
        """Minus the derivatives, with respect to q (minus the logarithms of the shares), of the
        weighted sum of the devices' privacy spending, (run, round). ``weights`` has one number for
        each constraint, (run, constraint)."""
        return np.asarray((weights[:, None, kept:-rounds] @ used)[:, 0])

    def transposed(weights: Array) -> Array:
        """Gradient of the weighted sum of all constraints with respect to the unknowns, (run, round
        + 1): the transposed Jacobian times ``weights`` (run, constraint)."""
        # With q, minus the logarithm of a share, the constraint that the share is at most 1 is
        # -q <= 0, whose derivative is -1.
        in_shares = of_bounds(weights) - of_budgets(weights) - weights[:, -rounds:]
        return np.concatenate([in_shares, -weights[:, :kept].sum(axis=1, keepdims=True)], axis=1)

    def derivative(direction: Array) -> Array:
        """Derivatives of all constraints, (run, constraint), along ``direction``, a direction in
        the space of the unknowns, (run, round + 1)."""
        in_shares = direction[:, :-1]
        bounds = (noise * in_shares) @ memory.T - direction[:, -1:]
        budgets = -(used @ in_shares[..., None])[..., 0]
        return np.concatenate([bounds, budgets, -in_shares], axis=1)

    pull = prices / slack
    # The product rows^T rows is the weighted sum of the outer products of the constraints'
    # gradients. Those of the constraints that shares are at most 1 are diagonal and are added
    # below.
    root = np.sqrt(pull[:, :-rounds, None])
    rows = np.empty((len(slack), root.shape[1], rounds + 1))
    rows[:, :kept, :-1] = root[:, :kept] * memory * noise[:, None, :]
    rows[:, :kept, -1] = -root[:, :kept, 0]
    rows[:, kept:, :-1] = -root[:, kept:] * used
    rows[:, kept:, -1] = 0.0
    matrix = np.swapaxes(rows, 1, 2) @ rows
    diagonal = tie * inverse + pull[:, -rounds:] + of_bounds(prices) + of_budgets(prices)
    matrix[:, np.arange(rounds), np.arange(rounds)] += diagonal
    objective = np.concatenate([tie * inverse, np.ones((len(slack), 1))], axis=1)
    dual, primal = objective + transposed(prices), values + slack
    # ``target`` is the product of multiplier and slack at which the step aims. It stays above a
    # tenth of the tolerance, because smaller products would drive multipliers and slacks to 0 and
    # infinity.
    target = np.maximum(_CENTRING * point.gap, 0.1 * _GAP) / slack.shape[1]
    centring = (prices * slack - target) / slack
    towards = transposed(centring - pull * primal) - dual
    direction = _solve_positive(matrix, towards)
    change_of_slack = -primal - derivative(direction)
    change_of_prices = -centring - pull * change_of_slack
    far = np.minimum(_step_length(slack, change_of_slack), _step_length(prices, change_of_prices))
    error = np.maximum(np.abs(dual).max(axis=1), np.abs(primal).max(axis=1))
    return _Point(
        unknowns + far * direction,
        slack + far * change_of_slack,
        prices + far * change_of_prices,
    ), np.maximum(error, point.gap[:, 0])


def _solve_positive(matrices: Array, right: Array) -> Array:
    """Solutions (run, unknown) of linear equations, one system for each run, with positive definite
    ``matrices`` (run, unknown, unknown) and right-hand sides ``right`` (run, unknown)."""
    solutions = np.empty_like(right)
    for index, (matrix, each) in enumerate(zip(matrices, right, strict=True)):
        _, solutions[index], failed = dposv(matrix, each)
        if failed:  # Near the optimum, rounding can make a matrix slightly indefinite.
            solutions[index] = np.linalg.solve(matrix, each)
    return solutions


def _step_length(values: Array, change: Array) -> Array:
    """Factor f, at most 1, for which values + f change stays positive, (run, 1): 0.995 times the
    largest such factor. ``values`` (run, constraint) are positive."""
    with np.errstate(divide="ignore"):
        far = np.where(change < 0, -values / change, np.inf)
    return np.asarray(np.minimum(1.0, _TO_THE_BOUNDARY * far.min(axis=1, keepdims=True)))


def published_budget(epsilon: float, delta: float) -> float:
    r"""The study's bound R on a device's privacy spending over a run, as published:
    :math:`(\sqrt{\epsilon + c^2} - c)^2` with :math:`\sqrt\pi\, c\, e^{c^2} = 1/\delta`."""
    # The equation for c is solved in logarithms, because 1/delta and exp(c^2) may overflow.
    wanted = -math.log(delta) - 0.5 * math.log(math.pi)
    c = brentq(lambda c: math.log(c) + c * c - wanted, 1e-300, 10.0 + math.sqrt(abs(wanted)))
    return float((math.sqrt(epsilon + c * c) - c) ** 2)


def exact_budget(epsilon: float, delta: float) -> float:
    r"""The bound R on a device's privacy spending over a run by the exact analysis of the Gaussian
    mechanism: :math:`\mu^2/2` at the largest :math:`\mu` with :math:`\delta(\epsilon; \mu) \le
    \delta`, where :math:`\mu` is the shift of the mean in standard deviations of the noise."""
    low, high = 0.0, 1.0
    while gaussian.delta(epsilon, high) <= delta:
        low, high = high, 2.0 * high
    # Bisection between ``low``, which keeps the budget, and ``high``, which does not; ``low`` is
    # used for the result.
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian.delta(epsilon, middle) <= delta else (low, middle)
    return 0.5 * low * low


@dataclass(frozen=True)
class Allocations:
    """Largest squared gains at the receiver that all runs may use at one SNR without a privacy
    budget. The methods ``static`` and ``adaptive`` are the study's two rules, which choose squared
    gains up to these within a privacy budget.

    Attributes
    ----------
    case
        Settings and data of the study.
    largest
        Largest squared gains that power and Langevin noise allow, (run, round).
    active
        1 for devices that transmit, else 0, (run, round, device).
    """

    case: BaseCase
    largest: Array
    active: Array

    @classmethod
    def of(cls, case: BaseCase, snr_db: float, fading: Array, active: Array) -> Allocations:
        """Allocations under the limits of power and Langevin noise, for path gains ``fading`` (run,
        round, device) and active devices ``active`` (run, round, device), 1 or 0. The SNR in dB is
        the largest energy of a device's symbols in a round over the energy of the noise in the
        round."""
        settings = case.settings
        energy = 10.0 ** (snr_db / 10.0) * settings.noise_power * settings.dim
        weakest = np.where(active > 0, fading, np.inf).min(axis=2)
        power = energy * np.square(weakest / settings.clip)
        count = active.sum(axis=2)
        langevin = np.square(settings.devices / count) * case.step_size * settings.noise_power / 2.0
        return cls(case, np.minimum(power, langevin), active)

    @classmethod
    def noiseless(cls, case: BaseCase) -> Allocations:
        """Allocations without fading and power limit: all devices transmit, and only Langevin noise
        limits the gain. It is the same for all runs, so the axis of runs has length 1."""
        settings = case.settings
        largest = np.full((1, settings.rounds), case.step_size * settings.noise_power / 2.0)
        return cls(case, largest, np.ones((1, settings.rounds, settings.devices)))

    def static(self, budget: float) -> Array:
        """Squared gains (run, round) of the static rule: each round has its largest squared gain,
        but at most a cap that is the same for all rounds of a run. If every round had the cap, the
        device that transmits most often would spend exactly its privacy budget R = ``budget``."""
        settings = self.case.settings
        most = self.active.sum(axis=1).max(axis=1, keepdims=True)
        cap = settings.noise_power * budget / (2.0 * settings.clip**2 * most)
        return np.asarray(np.minimum(self.largest, cap))

    def adaptive(self, budget: float) -> Array:
        """Squared gains (run, round) of the adaptive rule: they minimise the study's bound of the
        sampling error, largest over kept rounds, such that no device spends more than its privacy
        budget R = ``budget``."""
        return np.asarray(self.largest * solve(self.programs(budget)))

    def programs(self, budget: float) -> Programs:
        r"""The convex programs of the adaptive allocation, one for each run.

        The bound of a kept round j is :math:`\rho^{2j} W_0 + c \sum_{s \le j} \rho^{2(j-s)} [\eta^4
        L^3 m/3 + \eta^3 L^2 m + 4 \eta^2 \ell^2 (K - K_a)^2 + \eta^2 N_0 K^2/(K_a^2 a_s) - 2\eta]`
        with :math:`\rho = (1+\gamma)/2`, :math:`c = (2+2\gamma)/(1-\gamma)` and :math:`\gamma = 1 -
        \eta\mu`. Here :math:`W_0` is the squared 2-Wasserstein distance of the prior from the
        posterior, :math:`\eta` the step size, :math:`\mu` and L the smallest and largest curvature,
        m the dimension, :math:`\ell` the clip, :math:`K_a` of K devices transmit, :math:`N_0` is
        the noise power, and :math:`a_s` the squared gain of round s. The study takes the positive
        part of the last difference; the Langevin limit keeps it from being negative, so that it is
        not needed here."""
        case, settings = self.case, self.case.settings
        step, smoothness, dim = case.step_size, case.model.smoothness, settings.dim
        contraction = 1.0 - step * case.model.convexity
        decay = np.square((1.0 + contraction) / 2.0)
        factor = (2.0 + 2.0 * contraction) / (1.0 - contraction)
        count = self.active.sum(axis=2)
        # ``fixed`` and ``silent`` are the terms of the error bound that do not depend on the gain:
        # discretisation error, and the missing gradients of silent devices.
        fixed = step**4 * smoothness**3 * dim / 3.0 + step**3 * smoothness**2 * dim - 2.0 * step
        silent = 4.0 * np.square(step * settings.clip * (settings.devices - count))
        noise = np.square(step * settings.devices / count) * settings.noise_power
        # ``cost`` is the share of a device's privacy budget R that a round takes at its largest
        # gain A: 2 ell^2 A^2/(N_0 R), with the clip ell and the noise power N_0.
        cost = 2.0 * settings.clip**2 * self.largest / (settings.noise_power * budget)
        programs = Programs(
            np.zeros((len(count), case.num_kept)),
            factor * noise / self.largest,
            np.swapaxes(self.active * cost[:, :, None], 1, 2),
            float(decay),
        )
        kept = np.arange(case.num_burn_in + 1, settings.rounds + 1)
        base = decay**kept * _start_distance(case) + factor * (fixed + silent) @ programs.memory.T
        return programs._replace(base=base)


def _start_distance(case: BaseCase) -> float:
    r"""Squared W2 distance between the standard normal prior and the posterior with mean m and
    covariance :math:`\Sigma`: :math:`\|m\|^2 + \operatorname{tr}(\Sigma + I - 2 \Sigma^{1/2})`."""
    posterior = case.model.posterior
    values = np.linalg.eigvalsh(posterior.covariance[0])
    return float(np.square(posterior.mean[0]).sum() + (values + 1.0 - 2.0 * np.sqrt(values)).sum())
