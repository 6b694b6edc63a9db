r"""Gain allocations of the study: static, and adaptive by a convex program for many runs at once.

Gains are those at the receiver, A; the study writes :math:`a_s = A_s^2`. Three limits hold in every
round with :math:`K_a` of K devices:

.. math:: a_s \le \frac{P \min_k |h_k|^2}{\ell^2}, \qquad
          a_s \le \Big(\frac{K}{K_a}\Big)^2 \frac{\eta N_0}{2}, \qquad
          \sum_{s: k \text{ active}} \frac{2\ell^2 a_s}{N_0} \le R .

The energy P of a block is :math:`m P_0`.

The adaptive allocation solves, over the shares :math:`y_s \in (0, 1]` of each round's largest gain,

.. math:: \min_y \max_{j \in \text{kept}} \Big\{ b_j + \sum_{s \le j} \rho^{2(j-s)}
          \frac{w_s}{y_s} \Big\} \quad\text{with}\quad \sum_s c_{ks}\, y_s \le 1
          \text{ for every device } k .

With :math:`y_s = e^{-q_s}` bounds and costs are sums of exponentials, convex in q, and shares of
very different size are numbers of similar size. A primal-dual interior-point method with slacks
finds the optimum. The runs have programs of the same shape, so that a Newton step of several of
them is one batched product and a Cholesky factorisation each. Where the optimum is not unique, the
largest shares are wanted: a small multiple of :math:`\sum_s w_s/y_s` in the objective chooses
them."""

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
"""Weight of the term that chooses among equal optima: it worsens the optimum by less than this
share."""
_GAP = 1e-8
"""Duality gap and largest residual of the optimality equations at which the iteration ends, in
units of the objective without a budget."""
_MOST_STEPS = 200
"""Largest number of Newton steps, beyond which the iteration counts as not converging."""
_TO_THE_BOUNDARY = 0.995
"""Largest share of the distance to the boundary that a step covers."""
_CENTRING = 0.1
"""Factor by which a Newton step tries to shrink the gap."""
_AT_ONCE = 8
"""Number of programs that are iterated together: their matrices fit into the cache of a core. With
more, a step waits for memory, and for the pages of newly allocated arrays."""


class Programs(NamedTuple):
    """Convex programs that choose the gains of all rounds, one for each run, all of the same shape;
    the module's docstring has the formula.

    Attributes
    ----------
    base
        :math:`b_j`, the part of a kept round's error bound that no gain changes, (run, kept).
    weight
        :math:`w_s`, what the noise of a round adds to the error bound at its largest gain, (run,
        round).
    cost
        :math:`c_{ks}`, share of the budget of a device that a round takes at its largest gain, 0
        where the device is silent, (run, device, round).
    decay
        :math:`\\rho^2`, factor in (0, 1) by which the noise of a round shrinks in each later one.
    """

    base: Array
    weight: Array
    cost: Array
    decay: float

    @property
    def memory(self) -> Array:
        r"""What is left in each kept round j of the noise of round s, :math:`\rho^{2(j-s)}` with
        the squared factor :math:`\rho^2` = ``decay`` of a round; 0 where s > j, (kept, round)."""
        num_rounds, num_kept = self.weight.shape[1], self.base.shape[1]
        ago = np.arange(num_rounds - num_kept, num_rounds)[:, None] - np.arange(num_rounds)
        return np.where(ago >= 0, self.decay ** np.maximum(ago, 0), 0.0)

    def objective(self, shares: Array) -> Array:
        """The largest of the error bounds of all kept rounds, (run), if each round uses the given
        share of its largest gain, (run, round)."""
        bounds = self.base + (self.weight / shares) @ self.memory.T
        return np.asarray(bounds.max(axis=1))

    def rows(self, chosen: npt.NDArray[np.bool_] | npt.NDArray[np.intp]) -> Programs:
        """The programs of some runs, by a mask or their numbers."""
        return Programs(self.base[chosen], self.weight[chosen], self.cost[chosen], self.decay)


@one_blas_thread()
def solve(programs: Programs) -> Array:
    """Shares of each round's largest gain, (run, round), that minimise the largest error bound over
    kept rounds; the largest such shares where the optimum is not unique. Raises ``RunFailed`` if
    the iteration does not converge."""
    shares = np.ones_like(programs.weight)
    # Runs in which the privacy budget binds; in the others the largest gains are optimal.
    bound = np.flatnonzero((programs.cost.sum(axis=2) > 1.0).any(axis=1))
    for first in range(0, len(bound), _AT_ONCE):
        some = bound[first : first + _AT_ONCE]
        shares[some] = _interior_point(programs.rows(some))
    return shares


class _Point(NamedTuple):
    """State of the interior-point iteration: an approximate solution for each run.

    Attributes
    ----------
    unknowns
        Minus the logarithms of the shares (of each round's largest gain), and the largest error
        bound, (run, round + 1).
    slack, multipliers
        Slack and price of each constraint, (run, constraint): error bounds of kept rounds, privacy
        budgets of devices, shares of at most 1.
    """

    unknowns: Array
    slack: Array
    multipliers: Array

    @property
    def gap(self) -> Array:
        """Sum over all constraints of price times slack, (run, 1): it is 0 at the optimum."""
        return np.asarray((self.multipliers * self.slack).sum(axis=1, keepdims=True))


def _interior_point(programs: Programs) -> Array:
    """Optimal shares (run, round) of programs in which the privacy budget binds, by the
    interior-point iteration."""
    # The objective without a budget is the unit, so that tolerances do not depend on the data.
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
            # The iteration ends within a tolerance; dividing by the used budget makes it hold to
            # the last digit.
            used = np.einsum("rks,rs->rk", programs.cost, shares).max(axis=1, keepdims=True)
            return np.asarray(shares / np.maximum(used, 1.0))
    raise RunFailed(
        f"the adaptive allocation of {left.size} runs did not converge in {_MOST_STEPS} steps:"
        f" error {error.max():.2g}"
    )


def _start(programs: Programs) -> _Point:
    """The point at which the iteration starts: the same share in all rounds, which spends most of
    the privacy budget, and prices for which the gap (sum of price times slack) is 1."""
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
    """The point after one Newton step, and how far ``point`` itself is from satisfying the
    optimality conditions, (run). ``memory`` is that of the programs, and ``tie`` (run, round) the
    small weights that select among equal optima."""
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
        """Sum of the derivatives of the error bounds in q (minus the logarithms of the shares),
        each times its weight, (run, round)."""
        return np.asarray(noise * (weights[:, :kept] @ memory))

    def of_budgets(weights: Array) -> Array:
        """Minus the sum of the derivatives of the devices' budgets in q (minus the logarithms of
        the shares), each times its weight, (run, round)."""
        return np.asarray((weights[:, None, kept:-rounds] @ used)[:, 0])

    def transposed(weights: Array) -> Array:
        """Sum of the gradients of all constraints in the unknowns, each times its weight, (run,
        round + 1)."""
        # The constraints share <= 1 are -q <= 0, with q minus the logarithm of the share: each has
        # the derivative -1 with respect to its own q.
        in_shares = of_bounds(weights) - of_budgets(weights) - weights[:, -rounds:]
        return np.concatenate([in_shares, -weights[:, :kept].sum(axis=1, keepdims=True)], axis=1)

    def derivative(direction: Array) -> Array:
        """Directional derivatives of all constraints, (run, constraint), along a direction of the
        unknowns, (run, round + 1)."""
        in_shares = direction[:, :-1]
        bounds = (noise * in_shares) @ memory.T - direction[:, -1:]
        budgets = -(used @ in_shares[..., None])[..., 0]
        return np.concatenate([bounds, budgets, -in_shares], axis=1)

    pull = prices / slack
    # rows^T rows is the weighted sum of the outer products of the constraints' gradients; those of
    # the shares are diagonal and are added below.
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
    # The product of price and slack at which a step aims, not far below that of the final gap:
    # smaller ones would drive prices and slacks to 0 and infinity.
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
    """Solutions (run, unknown) of equations with positive definite matrices (run, unknown,
    unknown)."""
    solutions = np.empty_like(right)
    for index, (matrix, each) in enumerate(zip(matrices, right, strict=True)):
        _, solutions[index], failed = dposv(matrix, each)
        if failed:  # near the optimum, rounding can make a matrix slightly indefinite
            solutions[index] = np.linalg.solve(matrix, each)
    return solutions


def _step_length(values: Array, change: Array) -> Array:
    """Factor of ``change``, at most 1 and nearly the largest possible, with which positive
    ``values`` stay positive when it is added, (run, 1)."""
    with np.errstate(divide="ignore"):
        far = np.where(change < 0, -values / change, np.inf)
    return np.asarray(np.minimum(1.0, _TO_THE_BOUNDARY * far.min(axis=1, keepdims=True)))


def published_budget(epsilon: float, delta: float) -> float:
    r"""The study's bound R on a device's privacy spending over a run, as published:
    :math:`(\sqrt{\epsilon + c^2} - c)^2` with :math:`\sqrt\pi\, c\, e^{c^2} = 1/\delta`."""
    # Computed in logarithms, because 1/delta and exp(c^2) may overflow.
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
    # Bisection, whose lower end is returned because it is allowed.
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian.delta(epsilon, middle) <= delta else (low, middle)
    return 0.5 * low * low


@dataclass(frozen=True)
class Allocations:
    """Largest squared gains at the receiver for all runs at one SNR, and the study's rules that
    allocate gains below them.

    Attributes
    ----------
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
        round, device); the SNR in dB is the energy of a block of symbols over that of its noise."""
        settings = case.settings
        energy = 10.0 ** (snr_db / 10.0) * settings.noise_power * settings.dim
        weakest = np.where(active > 0, fading, np.inf).min(axis=2)
        power = energy * np.square(weakest / settings.clip)
        count = active.sum(axis=2)
        langevin = np.square(settings.devices / count) * case.step_size * settings.noise_power / 2.0
        return cls(case, np.minimum(power, langevin), active)

    @classmethod
    def noiseless(cls, case: BaseCase) -> Allocations:
        """Allocations without a channel: all devices transmit and only Langevin noise limits the
        gain, so that one run stands for all."""
        settings = case.settings
        largest = np.full((1, settings.rounds), case.step_size * settings.noise_power / 2.0)
        return cls(case, largest, np.ones((1, settings.rounds, settings.devices)))

    def static(self, budget: float) -> Array:
        """Squared gains (run, round) of the static rule: each round has its largest gain, but at
        most a cap that is the same for all rounds of a run. With every round at the cap, the device
        that transmits most often would spend exactly its privacy budget R."""
        settings = self.case.settings
        most = self.active.sum(axis=1).max(axis=1, keepdims=True)
        cap = settings.noise_power * budget / (2.0 * settings.clip**2 * most)
        return np.asarray(np.minimum(self.largest, cap))

    def adaptive(self, budget: float) -> Array:
        """Squared gains (run, round) of the adaptive rule: they minimise the largest error bound
        over kept rounds, and no device spends more than its privacy budget R."""
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
        # The terms of the error bound that no gain changes: discretisation, and the gradients of
        # silent devices.
        fixed = step**4 * smoothness**3 * dim / 3.0 + step**3 * smoothness**2 * dim - 2.0 * step
        silent = 4.0 * np.square(step * settings.clip * (settings.devices - count))
        noise = np.square(step * settings.devices / count) * settings.noise_power
        # The share of the privacy budget R of a device that a round takes at its largest gain A:
        # the quotient of 2 ell^2 A^2/N_0, with the clip ell and the noise power N_0, and R.
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
