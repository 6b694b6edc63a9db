r"""Forecast of what a plan's chain samples, from the gradients of any model whose data are at hand.

The chain's stationary law is taken for normal, :math:`N(m, C)`, and its first two moments are
matched (a Gaussian closure). At :math:`\theta = m + L z`, with :math:`C = L L^\top` and standard
normal z, let :math:`D(\theta)` be the expected estimate of the summed gradient that the server
receives, bounds of examples, clip, link and errors of the channel estimates included, and
:math:`V(\theta)` its variance in each entry. By Stein's identity :math:`J = E[D z^\top] L^{-1}` is
the mean Jacobian of D, and

.. math:: E[D(\theta)] = 0, \qquad
          C = (I - \eta J) C (I - \eta J)^\top + \eta^2 \operatorname{diag} E[V(\theta)] .

The posterior is treated in the same way, with the exact gradient G and a vanishing step:
:math:`E[G] = 0` and :math:`C^{-1} = E[G z^\top] L^{-1}`, which is the normal law closest to it in
Kullback-Leibler divergence. Both laws use the same nodes z, so that what a normal law cannot
describe cancels to first order where they are compared. For quadratic costs, entries clipped or
not, all of this agrees with :mod:`flmc.planning.prediction`, which integrates over each gradient
entry instead and needs no nodes. ``docs/sampling.md`` derives both."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.randomness import Purpose, generator
from flmc.models.batches import batch_covariance
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.answer_law import Response
from flmc.planning.pilot import MOST_DIRECTIONS, Pilot, places_at_once
from flmc.planning.plans import Plan
from flmc.planning.prediction import (
    Prediction,
    compare_laws,
    midpoint_covariance,
    predict_law,
    slowest_memory,
    solve_stationary,
)
from flmc.uplink.csi import arrival_of


def _hermite(count: int) -> tuple[Array, Array]:
    """Nodes and weights of the Gauss-Hermite rule for means over a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return nodes, weights / weights.sum()


_FEWEST_NODES = 128
"""Smallest number of values of theta (nodes) at which gradients are evaluated for their mean over a
normal law; twice the number of entries of theta is taken where that is more."""
_SHARES = (1.0, 0.5)
"""Shares of Newton's step with which the search for a normal law is tried in turn, until it
converges: half steps help where the posterior is far from normal, or a link nearly flat."""
_MOST_ITERATIONS = 60
"""Largest number of iterations of the search for a normal law, of the chain or of the posterior; a
search that has not converged then fails."""
_BATCH_NODES, _BATCH_WEIGHTS = _hermite(16)
"""Nodes and weights of the Gauss-Hermite rule by which symbols are averaged over the noise that
batches of examples bring into a gradient entry, which is taken for normal."""
_NUM_STARTS = 8
"""Number of draws from the prior from which chains without noise are followed to their mean."""
_NUM_NOISY, _CARRIED_OFF = 32, 8.0
"""Number of chains that are followed with noise through the burn-in, and the distance from the
mean, in standard deviations of the chain times the root of dim, beyond which noise has carried a
chain off."""
_ARRIVED = 0.25
"""Distance of a chain from its stationary mean, in standard deviations of the chain, up to which it
counts as arrived."""
_MOST_MOVES = 4000
"""Largest number of moves, of one or several rounds, for which chains are followed from their
starts. A chain that has not arrived by then is taken to approach its mean at the rate of the
slowest direction."""
_MOST_TO_FOLLOW = 5e8
"""Largest number of multiplications for following the chains of a linear regression, about a
second's work; chains that would take more are not followed."""
_NEWTON_STEPS = 8
"""Number of Newton steps, with the mean Jacobian of the gradient estimates, in the search for the
theta at which chains without noise come to rest."""
_STABLE = 0.25
"""Largest product of curvature, step and number of rounds up to which several rounds of a followed
chain are computed in one move."""
_TOLERANCE = 1e-4
"""Change of a chain's forecast law in one iteration, in standard deviations of the law, below which
the search for the stationary law ends."""


@dataclass(frozen=True)
class Law:
    """A normal law of theta: mean (dim) and covariance (dim, dim)."""

    mean: Array
    covariance: Array

    @classmethod
    def of(cls, posterior: Gaussian) -> Law:
        """Law with the mean and covariance of a known ``posterior``, for its first data set."""
        return cls(np.asarray(posterior.mean[0]), np.asarray(posterior.covariance[0]))

    @property
    def root(self) -> Array:
        """Lower triangular L with covariance L L^T, (dim, dim)."""
        return np.asarray(np.linalg.cholesky(self.covariance))

    @property
    def places(self) -> Array:
        """Values of theta, (place, dim), whose sample mean and covariance are exactly those of this
        normal law."""
        return np.asarray(self.mean + _nodes(len(self.mean)) @ self.root.T)

    def distance(self, mean: Array) -> float:
        """Distance of ``mean`` (dim) from this normal law's mean, in standard deviations along the
        direction in which it is largest."""
        away = mean - self.mean
        return math.sqrt(max(0.0, float(away @ np.linalg.solve(self.covariance, away))))


def _nodes(dim: int) -> Array:
    """Points z (node, dim) that stand for a standard normal law. They come in pairs z and -z and
    have exactly the identity for second moments, so that their mean of any quadratic function is
    exact."""
    count = max(_FEWEST_NODES // 2, dim)
    half = generator(0, Purpose.CHECK, 1).standard_normal((count, dim))
    # The random points are replaced by their polar factor (times a number): of all sets of points
    # whose second moments are exactly the identity, the closest to them.
    left, _, right = np.linalg.svd(half, full_matrices=False)
    half = left @ right * math.sqrt(count)
    return np.concatenate([half, -half])


def noise_of(plan: Plan) -> Array:
    """Variance of the channel's noise in each entry of the server's gradient estimate, averaged
    over kept rounds, (dim): the noise power over the squared gain."""
    return np.asarray(plan.uplink.noise_power * np.mean(plan.planned_gain**-2.0, axis=0))


class Reception:
    """The server's estimate of the summed gradient at any theta, on average over bits, channels,
    schedules and batches of examples: called with theta (place, dim), it returns the expected
    estimate and its variance, both (place, dim). The spread of a device's gradient over batches is
    computed at one theta only, ``near`` (dim)."""

    def __init__(self, plan: Plan, model: Model, near: Array) -> None:
        self._plan, self._model = plan, model
        self._near, self._batches = near, np.zeros((0, model.dim, model.dim))
        if plan.uplink.batched:
            rng, uplink = generator(0, Purpose.CHECK, 7), plan.uplink
            rule = uplink.example_rule
            self._batches = batch_covariance(model, uplink.batch_share, rule, near, rng)
        expected = plan.expected
        active = np.maximum(expected.num_active, 1.0)
        # the factor K/K_a by which the server scales what it receives
        share = plan.num_devices / active
        noise = np.square(share) * plan.uplink.noise_power / np.square(expected.gain)
        self._noise = np.asarray(noise.mean(axis=0))
        if model.local_variance is not None and plan.uplink.slope is not None:
            # The variance of the gradients that the devices' local parameters cause; the link
            # scales gradients by its slope, so variances by the slope's square.
            self._noise = self._noise + plan.uplink.slope**2 * model.local_variance
        self._share = float(share.mean())
        arrival = arrival_of(plan.uplink, plan.num_devices, plan.scheduler)
        ones = np.ones(plan.num_devices)
        self._factor: Array = ones if arrival is None else arrival.mean
        self._square: Array = ones if arrival is None else arrival.mean_square
        self._weights = None if plan.scheduler.everyone else _weights(plan)

    def __call__(self, theta: Array) -> tuple[Array, Array]:
        """Expected estimate of the summed gradient, and the variance of the estimate, at each theta
        (place, dim), both (place, dim)."""
        size = places_at_once(self._model)
        parts = [self._few(theta[first : first + size]) for first in range(0, len(theta), size)]
        drift, variance = (np.concatenate(each) for each in zip(*parts, strict=True))
        return drift, variance

    def _few(self, theta: Array) -> tuple[Array, Array]:
        """Expected estimate of the summed gradient, and the variance of the estimate, both (place,
        dim), at theta (place, dim) that are few enough to be held in memory together."""
        uplink = self._plan.uplink
        local = uplink.local_gradients(self._model, theta[None], slice(0, 1))[0]
        symbol, spread = self._symbols(local)
        factor, square = self._factor[:, None], self._square[:, None]
        # With inexact channel estimates the amplitude of a received symbol is random, which turns a
        # part of the mean symbol into noise.
        scatter = square * spread + (square - factor**2) * symbol**2
        variance = self._share * scatter.sum(axis=1) + self._noise
        symbol = factor * symbol
        if self._weights is None:
            return symbol.sum(axis=1), variance
        mean, deviation = self._weights
        if deviation is None:
            # A round draws K_a of K devices without replacement. This adds to the estimate's
            # variance (K^2/K_a - K) times the variance of the mean symbol over devices.
            spread = symbol.var(axis=1, ddof=1) if len(mean) > 1 else np.zeros_like(variance)
            return symbol.sum(axis=1), variance + len(mean) * (self._share - 1.0) * spread
        # ``deviation`` (round, device) says who is heard more or less than on average in single
        # rounds. This is treated as noise that is independent from round to round, which overstates
        # its effect where devices take turns.
        drift = np.einsum("k,pkd->pd", mean, symbol)
        return drift, variance + np.square(np.tensordot(symbol, deviation, (1, 1))).mean(axis=2)

    def _symbols(self, local: Array) -> tuple[Array, Array]:
        """Mean and variance of the devices' symbols, over bits and batches, both (place, device,
        dim), for the local gradients ``local`` from all examples."""
        uplink = self._plan.uplink
        if not uplink.batched or uplink.clips_norm:
            sent = uplink.clipped(local)
            own = self._spread**2 * (uplink.slope**2 if uplink.batched else 0.0)
            return uplink.mean_symbol(sent), uplink.symbol_variance(sent) + own
        mean, square, inner = np.zeros_like(local), np.zeros_like(local), np.zeros_like(local)
        for node, weight in zip(_BATCH_NODES, _BATCH_WEIGHTS, strict=True):
            sent = uplink.clipped(local + node * self._spread)
            symbol = uplink.mean_symbol(sent)
            mean += weight * symbol
            square += weight * symbol**2
            inner += weight * uplink.symbol_variance(sent)
        return mean, inner + square - mean**2

    @property
    def _spread(self) -> Array | float:
        """Standard deviation of each entry of each device's gradient over random batches of its
        examples, (device, dim); 0 where devices use all their examples."""
        if not self._plan.uplink.batched:
            return 0.0
        return np.sqrt(np.diagonal(self._batches, axis1=1, axis2=2))

    @cached_property
    def correlated(self) -> Array:
        """Covariances between entries of the server's estimate that batches cause, (dim, dim),
        because all entries of a gradient come from the same examples. The diagonal is zero: the
        variances are part of what a call of this object returns."""
        uplink, dim = self._plan.uplink, self._model.dim
        if not uplink.batched:
            return np.zeros((dim, dim))
        if uplink.clips_norm:
            slopes: Array = np.full((self._model.num_devices, dim), uplink.slope)
        else:
            # Stein's identity: the mean slope of a symbol is the mean of symbol times noise, over
            # the noise's standard deviation.
            local = uplink.local_gradients(self._model, self._near[None, None], slice(0, 1))[0, 0]
            spread = np.maximum(self._spread, 1e-300)
            slopes = sum(
                weight * node * uplink.mean_symbol(uplink.clipped(local + node * spread)) / spread
                for node, weight in zip(_BATCH_NODES, _BATCH_WEIGHTS, strict=True)
            )
        pulled = self._square[:, None] * slopes
        whole = np.einsum("ki,kij,kj->ij", pulled, self._batches, slopes) * self._share
        return np.asarray(whole - np.diag(np.diag(whole)))


def _weights(plan: Plan) -> tuple[Array, Array | None]:
    """Mean weight of every device in the server's estimate over the kept rounds, (device), and the
    deviations from this mean in single rounds, (round, device), of some 256 rounds if there are
    many. In a round an active device has the weight K/K_a, a silent one 0. Where devices are drawn
    with equal chances, the means are 1 and None takes the place of the deviations."""
    if plan.scheduler.random and plan.uplink.fading.alike:
        return np.ones(plan.num_devices), None
    active = plan.planned_active
    assert active is not None  # the scheduler's array exists, because not all devices transmit
    kept = active[-(plan.num_rounds - plan.num_burn_in) :]
    kept = kept[kept.sum(axis=1) > 0]
    weight = plan.num_devices * kept / kept.sum(axis=1, keepdims=True)
    mean = weight.mean(axis=0)
    return mean, (weight - mean)[:: max(1, len(weight) // 256)]


def posterior_law(pilot: Pilot) -> Law | None:
    """Normal law closest (in Kullback-Leibler divergence) to the posterior of the first data set,
    searched from the mode that the ``pilot`` found; None where the search fails."""
    dim = len(pilot.theta)
    if not pilot.arrived or dim > MOST_DIRECTIONS:
        return None
    curve = pilot.curves[-1]
    if len(curve.basis) < dim:
        return None
    start = _inverse(curve.basis.T @ curve.matrix @ curve.basis)
    if start is None:
        return None
    for share in _SHARES:
        law = _closest(pilot, Law(pilot.theta, start), _nodes(dim), share)
        if law is not None:
            return law
    return None


def _closest(pilot: Pilot, law: Law, nodes: Array, share: float) -> Law | None:
    """Normal law closest to the posterior, by Newton's method for its mean and precision, from the
    first guess ``law``, with ``share`` of each step; None where the method fails."""
    for _ in range(_MOST_ITERATIONS):
        gradient = pilot.summed(law.mean + nodes @ law.root.T)
        if not np.isfinite(gradient).all():
            return None
        # By Stein's identity the mean Jacobian of the posterior's gradient is the precision of the
        # closest normal law. The covariance times the mean gradient is Newton's step of its mean.
        precision = share * _mean_jacobian(gradient, nodes, law)
        if share < 1.0:
            precision = precision + (1.0 - share) * np.linalg.inv(law.covariance)
        inverse = _inverse(precision)
        if inverse is None:
            return None
        shift = share * (inverse @ gradient.mean(axis=0))
        new = Law(law.mean - _bounded(shift, law), inverse)
        done, law = _close(new, law), new
        if done:
            return law
    return None


@dataclass(frozen=True)
class Forecast:
    """Forecast of a plan's chain: its stationary law, the mean Jacobian J of the received gradient
    under that law, (dim, dim), and the posterior's law, with which it is compared; the share of
    clipped gradient entries, the plan's step, and how chains get to the law (None where they were
    not followed)."""

    chain: Law
    jacobian: Array
    posterior: Law
    clipped_fraction: float
    step_size: float
    travel: Travel | None
    noise: Array
    """Variance of an entry of the server's estimate, averaged over the chain's law, (dim)."""
    midpoints: bool
    """Whether draws are taken half way between the chain's successive positions."""
    bend: float
    """Part of the mean estimate that is not linear in theta, which the law leaves out: its variance
    over the chain's law, as a multiple of ``noise``, in the direction in which that is largest."""

    @property
    def response(self) -> Response:
        """Curvature and noise that the server sees in its estimates, from which its answer is
        predicted; not yet divided by the link's slope."""
        chain, posterior = self.chain.covariance, self.posterior.covariance
        return Response(self.jacobian, chain, self.noise, posterior)

    @property
    def prediction(self) -> Prediction:
        """Prediction that compares the law of the draws with the posterior's."""
        covariance = self.chain.covariance[None]
        if self.midpoints:
            covariance = midpoint_covariance(covariance, self.jacobian[None], self.step_size)
        return compare_laws(
            self.chain.mean[None],
            covariance,
            self.posterior.mean[None],
            self.posterior.covariance[None],
            clipped_fraction=self.clipped_fraction,
            memory=slowest_memory(self.jacobian[None], self.step_size),
            travel=self.travel,
        )


def forecast(plan: Plan, model: Model, posterior: Law) -> Forecast | None:
    """The stationary law of a plan's chain for the first data set, searched from the posterior's
    law; None where the search finds no such law: the step is too large, or nearly every gradient is
    clipped."""
    for share in _SHARES:
        found = _search(plan, model, posterior, share)
        if found is not None:
            return found
    return None


def _search(plan: Plan, model: Model, posterior: Law, share: float) -> Forecast | None:
    """Stationary law of a plan's chain for the first data set, searched from the posterior's with
    ``share`` of each step; None where the search fails."""
    nodes, law = _nodes(model.dim), posterior
    receive = Reception(plan, model, posterior.mean)
    for _ in range(_MOST_ITERATIONS):
        away = nodes @ law.root.T
        drift, variance = receive(law.mean + away)
        if not np.isfinite(drift).all():
            return None
        jacobian = _mean_jacobian(drift, nodes, law)
        try:
            # A Newton step solves E[D] = 0, the first equation of the module, for the mean; the
            # second equation gives the covariance for these J and E[V].
            shift = np.linalg.solve(jacobian, drift.mean(axis=0))
        except np.linalg.LinAlgError:
            return None
        noise = np.square(plan.step_size) * (np.diag(variance.mean(axis=0)) + receive.correlated)
        covariance = solve_stationary((plan.step_size * jacobian)[None], noise[None])
        if covariance is None or np.linalg.eigvalsh(covariance[0])[0] <= 0:
            return None
        spread = share * covariance[0] + (1.0 - share) * law.covariance
        new = Law(law.mean - share * _bounded(shift, law), spread)
        done, law = _close(new, law), new
        if done:
            clipped = _clipped_share(plan, model, law.mean + nodes @ law.root.T)
            with np.errstate(all="ignore"):
                travel = follow_starts(plan, model, law, jacobian)
            heard = variance.mean(axis=0)
            bend = _bend(drift, away @ jacobian.T, heard)
            return Forecast(
                law,
                jacobian,
                posterior,
                clipped,
                plan.step_size,
                travel,
                heard,
                plan.midpoints,
                bend,
            )
    return None


class Travel(NamedTuple):
    """How chains get from their starts to their stationary law, for the worst start. The numbers
    come from chains that are followed without noise, corrected by chains with noise where noise
    carries these away in the burn-in, or brings them to their law sooner."""

    rounds_to_arrive: int
    """Rounds until a chain is within a quarter of a standard deviation of its stationary mean."""
    left_shift: float
    """Error that the start leaves in the mean of the kept rounds, in standard deviations of the
    chain; where noise carries a chain away in the burn-in, its distance from the mean after it, in
    the same unit."""
    left_variance: float
    """Excess that the start leaves in the variance of the kept rounds, over the stationary
    variance."""


def follow_linear(plan: Plan, model: LinearGaussian) -> Travel | None:
    """Travel of the chains of a linear regression, on its first data set, from their starts to the
    predicted stationary law: when they arrive, and what their starts leave in the kept rounds. None
    where no such law is predicted, or where following the chains would take more than
    ``_MOST_TO_FOLLOW`` products."""
    # Each move evaluates a gradient of every device for each of the chains that are followed.
    moves = min(_MOST_MOVES, plan.num_rounds)
    if moves * _NUM_NOISY * plan.num_devices * plan.dim**2 > _MOST_TO_FOLLOW:
        return None
    predicted = predict_law(model, plan.uplink, plan.step_size, noise_of(plan))
    if predicted is None:
        return None
    first = Law.of(predicted)
    with np.errstate(all="ignore"):
        drift = Reception(plan, model, first.mean)(first.places)[0]
        jacobian = _mean_jacobian(drift, _nodes(plan.dim), first)
        return follow_starts(plan, model, first, jacobian)


def follow_starts(plan: Plan, model: Model, law: Law, jacobian: Array) -> Travel | None:
    """Travel of chains from eight draws of the prior, or from zero where chains start there, moved
    by the expected gradient estimates without noise. Chains count as arrived after the burn-in,
    though those without noise take longer, if 32 chains with noise are then spread like the
    stationary ``law``. None where gradients become infinite or nan. ``jacobian`` (dim, dim) is the
    mean Jacobian of the estimates."""
    receive = Reception(plan, model, law.mean)
    theta = np.zeros((1, model.dim))
    if plan.start == "prior":
        rng = generator(0, Purpose.CHECK, 2)
        theta = np.stack([model.prior.draw(rng, model.dim) for _ in range(_NUM_STARTS)])
    whiten: Array = np.asarray(np.linalg.inv(law.root), dtype=np.float64)
    # Without noise, chains come to rest where the expected estimate vanishes: near the law's mean,
    # and exactly there only if the chain's true law is symmetric.
    rest = law.mean
    for _ in range(_NEWTON_STEPS):
        rest = rest - _bounded(np.linalg.solve(jacobian, receive(rest[None])[0][0]), law)
    eigenvalues = plan.step_size * np.linalg.eigvals(jacobian)
    slowest = max(1e-300, float(eigenvalues.real.min()))
    # Several rounds are computed in one move as long as this move stays small in the direction of
    # largest curvature.
    together = max(1, int(_STABLE / max(float(np.abs(eigenvalues).max()), 1e-300)))
    kept, done = plan.num_rounds - plan.num_burn_in, 0
    sums, squares = np.zeros(theta.shape), np.zeros(len(theta))
    distance = np.linalg.norm((theta - rest) @ whiten.T, axis=1)
    for move in _moves(plan, plan.num_rounds, together):
        if not np.isfinite(distance).all():
            return None
        if distance.max() <= _ARRIVED:
            break
        inside = max(0, move.end - max(done, plan.num_burn_in))
        sums = sums + inside * (theta - rest) @ whiten.T
        squares = squares + inside * distance**2
        theta = theta - move.rounds * move.step * receive(theta)[0]
        distance = np.linalg.norm((theta - rest) @ whiten.T, axis=1)
        done = move.end
    # After the followed rounds the distance is taken to shrink like a geometric series, at the rate
    # of the slowest direction.
    rounds = done + math.ceil(math.log(max(float(distance.max()) / _ARRIVED, 1.0)) / slowest)
    memory = math.exp(-slowest * max(0, plan.num_burn_in - done))
    tail = distance * memory * min(1.0 / slowest, max(0, plan.num_rounds - done))
    tails = np.square(distance * memory) * min(0.5 / slowest, max(0, plan.num_rounds - done))
    shift = float((np.linalg.norm(sums, axis=1) + tail).max()) / kept
    after = _after_burn_in(plan, model, receive, together)
    variance = float((squares + tails).max()) / kept
    farthest = float(np.linalg.norm((after - rest) @ whiten.T, axis=1).max())
    if not farthest <= _CARRIED_OFF * math.sqrt(model.dim):
        carried = farthest if math.isfinite(farthest) else math.inf
        return Travel(rounds, max(shift, carried), variance)
    # Larger first steps leave the chains with too large a variance after the burn-in. The excess
    # then shrinks twice as fast as distances do, hence 0.5/slowest below.
    away = (after - law.mean) @ whiten.T
    widest = float(np.linalg.eigvalsh(away.T @ away / len(away))[-1])
    # By chance alone the widest direction of n draws with d entries has about the variance (1 +
    # sqrt(d/n))^2.
    excess = max(0.0, widest - (1.0 + math.sqrt(model.dim / len(away))) ** 2)
    heat = excess * min(0.5 / slowest, kept) / kept
    if rounds > plan.num_burn_in and _like_the_law(np.square(away).sum(axis=1), model.dim):
        # Where a cost is flat far from the mode, noise brings chains back sooner than the expected
        # gradient does.
        return Travel(plan.num_burn_in, 0.0, heat)
    return Travel(rounds, shift, max(variance, heat))


class _Move(NamedTuple):
    """Several rounds of a followed chain that are computed in one move: their number, the sampler's
    step in each of them, and the number of rounds that have passed after them."""

    rounds: int
    step: float
    end: int


def _moves(plan: Plan, last: int, together: int) -> Iterator[_Move]:
    """The first ``last`` rounds of a plan in moves that take several rounds at once: ``together``
    rounds at the plan's step, fewer where the first steps are larger; only the first 4000 moves."""
    done = 0
    for _ in range(_MOST_MOVES):
        if done >= last:
            return
        fast = done < plan.num_fast
        factor = plan.burn_in_step_factor if fast else 1.0
        count = min(max(1, int(together / factor)), (plan.num_fast if fast else last) - done)
        done += count
        yield _Move(count, factor * plan.step_size, done)


def _after_burn_in(plan: Plan, model: Model, receive: Reception, together: int) -> Array:
    """Values of theta after the burn-in, (chain, dim), of 32 chains with noise, computed in moves
    of ``together`` rounds."""
    rng = generator(0, Purpose.CHECK, 3)
    theta = np.zeros((_NUM_NOISY, model.dim))
    if plan.start == "prior":
        theta = np.stack([model.prior.draw(rng, model.dim) for _ in range(_NUM_NOISY)])
    for move in _moves(plan, plan.num_burn_in, together):
        drift, variance = receive(theta)
        noise = np.sqrt(move.rounds * variance) * rng.standard_normal(theta.shape)
        theta = theta - move.step * (move.rounds * drift + noise)
    return theta


def _like_the_law(squared: Array, dim: int) -> bool:
    """Whether chains are spread like draws from a stationary law in ``dim`` dimensions, by their
    ``squared`` distances (chain) from its mean, in its standard deviations. The sum and the largest
    of these may exceed what chance explains by a quarter."""
    # By Laurent and Massart a chi-squared variable of d degrees of freedom exceeds d + 2 sqrt(d t)
    # + 2 t with a probability of at most exp(-t); this is 1e-3 for the sum, and for the largest.
    count = len(squared)

    def bound(freedom: int, chance: float) -> float:
        t = -math.log(chance)
        return freedom + 2.0 * math.sqrt(freedom * t) + 2.0 * t

    usual = float(squared.sum()) <= 1.25 * bound(count * dim, 1e-3)
    return usual and float(squared.max()) <= 1.25 * bound(dim, 1e-3 / count)


def _clipped_share(plan: Plan, model: Model, places: Array) -> float:
    """Share of the devices' gradient entries (of whole gradients where their norm is clipped) that
    the clip cuts when theta is one of ``places`` (place, dim)."""
    uplink = plan.uplink
    some = places[: max(1, min(len(places), places_at_once(model)))]
    local = uplink.drawn_gradients(model, some)
    if uplink.clips_norm:
        return float((np.linalg.norm(local, axis=2) > uplink.clip).mean())
    return float((np.abs(local) > uplink.clip).mean())


def _mean_jacobian(values: Array, nodes: Array, law: Law) -> Array:
    """Mean Jacobian E[df/dtheta], (dim, dim), of a function f under a normal ``law`` of theta, by
    Stein's identity. ``nodes`` (node, dim) are the points z that :func:`_nodes` returns for the
    standard normal law, and ``values`` (node, dim) those of f at the law's mean plus its root times
    z."""
    return np.asarray(np.linalg.solve(law.root.T, nodes.T @ values / len(nodes)).T)


def _bend(values: Array, linear: Array, noise: Array) -> float:
    """Variance of the part of ``values`` that is not linear in theta (their difference from
    ``linear``, both (place, dim)) in the direction in which it is largest, where entries are
    measured in the standard deviations of their noise; ``noise`` (dim) is its variance."""
    rest = (values - values.mean(axis=0) - linear) / np.sqrt(noise)
    return float(np.linalg.norm(rest, ord=2) ** 2 / len(rest))


def _inverse(hessian: Array) -> Array | None:
    """Inverse of the symmetric part of a matrix; None unless this is finite and safely positive
    definite: scaled to a unit diagonal, its eigenvalues must be at least 1e-9."""
    matrix = (hessian + hessian.T) / 2
    diagonal = np.diag(matrix)
    if not np.isfinite(matrix).all() or not (diagonal > 0).all():
        return None
    # The matrix is scaled to a unit diagonal, so that entries in unlike units do not spoil the
    # inverse.
    scale = 1.0 / np.sqrt(diagonal)
    scaled = matrix * np.outer(scale, scale)
    if np.linalg.eigvalsh(scaled)[0] < 1e-9:
        return None
    return np.asarray(np.linalg.inv(scaled) * np.outer(scale, scale))


def _bounded(shift: Array, law: Law) -> Array:
    """The step ``shift`` (dim) of a search for a law's mean, shortened to two standard deviations
    of the present ``law`` if it is longer: with longer steps Newton's method may never come back
    where a link is nearly flat."""
    length = law.distance(law.mean + shift)
    return shift if length <= 2.0 else shift * (2.0 / length)


def _close(new: Law, old: Law) -> bool:
    """Whether the means and covariances of two laws differ by less than 1e-4 (``_TOLERANCE``) in
    every direction, in units of the old law's standard deviations and variances."""
    root = old.root
    scaled = np.linalg.solve(root, np.linalg.solve(root, new.covariance).T)
    change = np.abs(scaled - np.eye(len(root))).max()
    return bool(change < _TOLERANCE and old.distance(new.mean) < _TOLERANCE)
