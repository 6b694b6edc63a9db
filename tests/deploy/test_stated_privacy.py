"""What a deployment states about privacy is never below the truth, for random deployments.

The truth shares no code with the accounting: two neighbouring gradients go through the device's own
clipping, through single precision and onto the grid, and epsilon is that of the whole numbers of
steps by which they differ, under noise of 2^bits steps. The pair is built to differ as much as
rounding allows. Each pair is a lower bound, so that a statement below it is wrong."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import make_plan
from evidence import State
from flmc.base.arrays import Array, IntArray
from flmc.deploy.accounting import cost_of_run
from flmc.planning.plans import Plan
from flmc.wire.federation import Federation
from privacy.oracle import normal
from privacy.oracle.bits import one_order
from privacy.oracle.places import Moved
from privacy.oracle.truth import true_epsilon
from support import full_only, many_repetitions, repeated

SLOPE = 0.05
MOST_STEPS = 2**18
"""Steps at which an analog federation's largest symbol may arrive."""


@dataclass(frozen=True)
class Deployment:
    """A deployment, the relation that its statement is about, and its delta."""

    federation: Federation
    neighbouring: str
    delta: float

    @property
    def stated(self) -> float:
        """Epsilon that the deployment states for the whole run."""
        return cost_of_run(self.federation, self.delta, self.neighbouring)

    @property
    def gains(self) -> Array:
        """Gain of every round, (round, 1 or dim)."""
        plan = self.federation.plan
        return np.broadcast_to(plan.gain, (plan.num_rounds, plan.gain.shape[1]))

    def __str__(self) -> str:
        plan, uplink = self.federation.plan, self.federation.plan.uplink
        bound = uplink.example_norm or uplink.example_clip
        return (
            f"{uplink.scheme}, {uplink.clipping}, {self.neighbouring}, {plan.dim} entries,"
            f" {self.federation.grid_bits} bits, clip {uplink.clip:.4g}, example {bound}"
            f" {'(norm)' if uplink.example_norm else ''}, gains {plan.gain.shape}"
        )


@cache
def _small(num_rounds: int) -> Plan:
    """A plan whose uplink, gain and number of entries are replaced: a model of 2000 entries takes
    seconds."""
    return make_plan(gain=0.1, num_rounds=num_rounds, num_burn_in=0)


def deployed(
    uplink: flmc.Uplink, gain: Array, rounds: int, dim: int, bits: int, delta: float, hidden: str
) -> Deployment:
    """A deployment with gains (1 or round, 1 or dim)."""
    limits = flmc.Limits(neighbouring=hidden)
    plan = replace(_small(rounds), uplink=uplink, gain=gain, dim=dim, limits=limits)
    return Deployment(Federation("test", plan, 2, grid_bits=bits), hidden, delta)


def draw(seed: int, *, analog: bool) -> Deployment:
    """A random deployment; every eight in a row have both relations, clips of entries and of norms,
    and bounds of an example's entries and of its norm."""
    rng = np.random.default_rng([7, analog, seed])
    while True:
        hidden = ("device", "example")[seed % 2]
        clipping, by_norm = ("entry", "norm")[seed // 2 % 2], bool(seed // 4 % 2)
        dim, bits = int(2000 ** rng.uniform(0, 1)), int(rng.integers(6, 25))
        rounds, power = int(60 ** rng.uniform(0, 1)), float(10 ** rng.uniform(-2, 2))
        clip = float(10 ** rng.uniform(-1, 3.5)) if analog else float(rng.uniform(5, 60))
        bound = clip * float(10 ** rng.uniform(-3, 0.5))
        examples = {"example_norm" if by_norm else "example_clip": bound}
        settings: dict[str, Any] = {"clip": clip, "clipping": clipping}
        settings |= {"noise_power": power, "snr_db": 120.0}
        settings |= examples if hidden == "example" else {}
        kind = flmc.Analog if analog else partial(flmc.Digital, link=flmc.Sigmoid(SLOPE))
        uplink: flmc.Uplink = kind(**settings)
        gain = _gains(rng, rounds, dim if analog else 1)
        mu = 10 ** rng.uniform(-1, 0.6)
        unit = np.broadcast_to(gain, (rounds, gain.shape[1]))
        # Roughly, of a run at a gain of 1 for the loudest entry.
        one = clip if hidden == "device" else min(bound, clip)
        width = 1 if (clipping == "norm" and analog) or (by_norm and hidden == "example") else dim
        move = 2 * one if analog else 2 * math.tanh(SLOPE * one / 2)
        gain = gain * mu * math.sqrt(power / (width * np.square(unit.max(axis=1)).sum())) / move
        if not analog:
            gain = np.minimum(gain, 3 * math.sqrt(power))
        steps = gain * uplink.peak * 2**bits / math.sqrt(power)
        if steps.min() < 1.01 or steps.max() > (MOST_STEPS if analog else 2**30):
            continue
        delta = float(10 ** rng.uniform(-8, -3))
        return deployed(uplink, gain, rounds, dim, bits, delta, hidden)


def _gains(rng: np.random.Generator, rounds: int, dim: int) -> Array:
    """Gains with a largest one of 1: constant, or changing over rounds, entries or both."""
    # Few rounds where all gains differ: each of them is searched for its own pair.
    many = rounds if rounds * dim < 5000 else 1
    shape = [(1, 1), (1, 1), (rounds, 1), (1, dim), (many, dim)][rng.integers(5)]
    gains = rng.uniform(0.3, 1.0, size=shape) if shape != (1, 1) else np.ones(shape)
    return np.asarray(gains / gains.max())


def true_analog(case: Deployment) -> float:
    """Epsilon of the worst pair that was found, round by round: a server may ask for each round at
    another theta, so that every round has its own pair."""
    gains = case.gains
    squares = 0.0
    distinct, counts = np.unique(gains, axis=0, return_counts=True)
    for gain, count in zip(distinct, counts, strict=True):
        squares += int(count) * largest_move(case, np.broadcast_to(gain, case.federation.plan.dim))
    mu = math.sqrt(squares) / 2**case.federation.grid_bits
    return normal.epsilon_of(case.delta, mu) if mu else 0.0


def largest_move(case: Deployment, gain: Array) -> int:
    """Largest squared distance, in steps, of two neighbouring gradients' symbols in a round with
    gains (dim)."""
    peak = peak_steps(case, gain)
    best, most = None, -1
    for pair in pairs(case, peak):
        moved = int(np.square(np.subtract(*rounded(case, pair, peak))).sum())
        best, most = (pair, moved) if moved > most else (best, most)
    assert best is not None
    refuse_strangers(case, best)
    # The same by the package's own channel.
    federation, uplink = case.federation, case.federation.plan.uplink
    sent = uplink.symbols(best[:, None, :], None).astype(np.float32).astype(np.float64)
    steps = federation.grid.symbol_steps(sent, gain, uplink.peak)[:, 0]
    assert most == int(np.square(steps[0] - steps[1]).sum())
    return most


def peak_steps(case: Deployment, gain: Array) -> Array:
    """Steps of the largest symbol at each gain, rounded down."""
    uplink = case.federation.plan.uplink
    step = math.sqrt(uplink.noise_power) / 2**case.federation.grid_bits
    return np.asarray(np.floor(gain * uplink.peak / step * (1 - 1e-12)))


def rounded(case: Deployment, pair: Array, peak: Array) -> Array:
    """Symbols of two gradients (2, dim) in steps: clipped, in single precision, to the nearest."""
    uplink = case.federation.plan.uplink
    size = np.linalg.norm(pair, axis=1, keepdims=True)
    inside = pair * np.minimum(1.0, uplink.clip / size) if uplink.clips_norm else pair
    sent = np.clip(inside, -uplink.clip, uplink.clip).astype(np.float32).astype(np.float64)
    return np.asarray(np.rint(np.clip(sent * (peak / uplink.clip), -peak, peak)))


def refuse_strangers(case: Deployment, pair: Array) -> None:
    """Fail if two gradients are not those of neighbouring data; a whole device's may be any."""
    uplink, apart = case.federation.plan.uplink, np.abs(pair[0] - pair[1])
    if case.neighbouring == "device":
        return
    if uplink.example_norm is not None:
        assert np.linalg.norm(apart) <= 2 * uplink.example_norm
    else:
        assert uplink.example_clip is not None
        assert apart.max() <= 2 * uplink.example_clip


def pairs(case: Deployment, peak: Array) -> Iterator[Array]:
    """Pairs of gradients, (2, dim), built so that rounding drives them apart, where the largest
    symbols lie at ``peak`` steps, (dim).

    Two symbols just beyond -(a + 1/2) and b + 1/2 steps are a + b + 1 apart, and a + b + 2 after
    rounding; two that lie on either side of 1/2 are one step apart. A bound of the norm is spent on
    the loudest entries: on one of them, on more, on all."""
    plan, uplink = case.federation.plan, case.federation.plan.uplink
    width = uplink.clip / peak  # of a step, in the unit of gradients
    order = np.argsort(width, kind="stable")
    for ends in (np.ones(plan.dim), np.eye(plan.dim)[order[0]]):
        if case.neighbouring == "device":
            yield np.stack([ends, -ends]) * uplink.clip
    if case.neighbouring == "device" and uplink.clips_norm:
        for number in np.unique(np.geomspace(1, plan.dim, 16).astype(int)):
            steps = spend(width, order[:number], uplink.clip**2, peak, 0.5)
            place = np.where(steps > 0, steps - 0.5 + little(steps), 0.0) * width
            yield np.stack([place, -place])
    if case.neighbouring == "device":
        return
    bound = uplink.example_norm or uplink.example_clip or math.inf
    # An entry moves from one end to the other, or by as many steps as the example's bound.
    most = np.minimum(2 * peak, np.floor(2 * bound / width - 1e-3) + 1)
    allowed = 4 * bound**2 if uplink.example_norm else math.inf
    if uplink.clips_norm:
        allowed = min(allowed, 4 * uplink.clip**2)
    for number in np.unique(np.geomspace(1, plan.dim, 16).astype(int)):
        for flips in (np.arange(0), order):
            least = np.zeros(plan.dim)
            least[flips] = 1
            steps = np.maximum(spend(width, order[:number], allowed, most, 1.0), least)
            yield from around_zero(uplink, width, steps, order)


def little(steps: Array) -> Array:
    """Share of a step by which a symbol lies beyond the middle between two steps, so that single
    precision does not move it back."""
    return np.maximum(1e-6, (steps + 2) * 2.0**-23)


def spend(width: Array, chosen: IntArray, allowed: float, most: Array, offset: float) -> Array:
    """Whole numbers k of steps, (dim), up to ``most``, whose cost, the sum of the squares of
    (k - offset) steps and a little more, is at most ``allowed``; 0 but for the chosen entries.

    They are as equal as can be, as much as is allowed."""

    def cost(steps: Array) -> Array:
        known = np.maximum(steps - offset, 0.0) + 2 * little(steps)
        return np.where(steps > 0, np.square(known * width[chosen]), 0.0)

    allowed *= 1 - 1e-9
    top = most[chosen]
    low, high = 0.0, float(top.max())
    while high > low:  # the largest equal number, by bisection
        middle = math.floor((low + high + 1) / 2)
        fits = cost(np.minimum(middle, top)).sum() <= allowed
        low, high = (middle, high) if fits else (low, middle - 1)
    steps = np.minimum(low, top)
    more = np.minimum(low + 1, top)
    left = allowed - cost(steps).sum()
    steps = np.where(np.cumsum(cost(more) - cost(steps)) <= left, more, steps)
    spent = np.zeros(len(width))
    spent[chosen] = steps
    return spent


def around_zero(
    uplink: flmc.Uplink, width: Array, steps: Array, order: IntArray
) -> Iterator[Array]:
    """The pair whose symbols are so many steps apart after rounding, around 0; where the norm is
    clipped, with as many entries that differ by one step as the ball has room for."""
    far = steps >= 2
    above = np.ceil(steps / 2) - 0.5 + little(steps)
    below = -(np.floor(steps / 2) - 0.5 + little(steps))
    pair = np.where(far, np.stack([below, above]), 0.0)
    pair[:, ::2] = -pair[::-1, ::2]  # both are about as long
    pair = pair * width
    near = order[steps[order] == 1]
    if uplink.clips_norm:
        room = uplink.clip**2 - np.square(pair).sum(axis=1).max()
        near = near[np.cumsum(np.square(0.5001 * width[near])) <= room]
    pair[:, near] = np.array([[0.5 - 1e-6], [0.5 + 1e-6]]) * width[near]
    if not uplink.clips_norm or np.linalg.norm(pair, axis=1).max() <= uplink.clip:
        yield pair


def true_digital(case: Deployment) -> float:
    """Epsilon of bits that arrive at whole numbers of steps, by the oracle: the largest of some
    fixed neighbours, in which one entry or all of them move as far as they can, from either end or
    across 0."""
    federation, plan, uplink = case.federation, case.federation.plan, case.federation.plan.uplink
    fine = 2**federation.grid_bits
    values, counts = np.unique(peak_steps(case, case.gains), return_counts=True)
    best = 0.0
    for many in {1, plan.dim}:
        sent = [(float(v) / fine, int(n) * many) for v, n in zip(values, counts, strict=True)]
        part = 1 / math.sqrt(many)  # of what is bounded by its norm
        reach = SLOPE * uplink.clip * (part if uplink.clips_norm else 1.0)
        bound = SLOPE * (uplink.example_norm or uplink.example_clip or uplink.clip)
        shift = min(2 * bound * (part if uplink.example_norm else 1.0), 2 * reach)
        for place in {-reach, -shift / 2}:
            bits = Moved("sigmoid", reach, shift).at(np.float64(place))  # type: ignore[arg-type]
            # Where the bits hardly differ, delta alone allows an epsilon of 0.
            if sum(n * bits.apart * min(1.0, 0.8 * gain) for gain, n in sent) > case.delta:
                found = true_epsilon(partial(one_order, bits), sent, case.delta)
                best = max(best, found.epsilon - found.error)
    return best


@full_only
@many_repetitions
@pytest.mark.parametrize(
    ("scheme", "count"),
    [("analog", repeated(150, 40, 16)), ("digital", repeated(50, 8, 4))],
    ids=["analog", "digital"],
)
def test_deployments_state_at_least_the_truth(scheme: str, count: int, evidence: State) -> None:
    """About a third of the analog ones were understated when rounding was not counted where a norm
    is bounded."""
    true = true_analog if scheme == "analog" else true_digital
    for seed in range(count):
        case = draw(seed, analog=scheme == "analog")
        truth = true(case)
        assert case.stated >= truth, f"{case}: {case.stated} stated, {truth} true (seed {seed})"
    tried = f"random {scheme} deployments on grids of 6 to 24 bits"
    evidence("privacy", tried, count, "0 understated")


ONE = 0.2682
"""Distance of the means, in standard deviations, that costs epsilon 1 at delta 1e-5, roughly."""


@pytest.mark.parametrize(
    ("bits", "least", "most"), [(8, 1.8, 1.02), (12, 1.04, 1.03), (20, 1.0, 1.001)]
)
def test_rounding_of_norms_is_counted_and_no_more(bits: int, least: float, most: float) -> None:
    """100 entries whose norm is clipped, 100 rounds: without rounding they would cost about epsilon
    1. The statement is above the worst pair, and close to it: a share ``most`` of it at most, where
    rounding cannot bring the symbols exactly to the middle between steps in all entries."""
    gain = np.full((1, 1), ONE / (2 * 30 * 10))
    uplink = flmc.Analog(clip=30.0, clipping="norm", snr_db=120.0)
    case = deployed(uplink, gain, 100, 100, bits, 1e-5, "device")
    truth = true_analog(case)
    assert least * normal.epsilon_of(1e-5, ONE) <= truth <= case.stated <= truth * most * (1 + 1e-6)


@pytest.mark.parametrize(("dim", "clip"), [(650, 1400.0), (300, 8000.0)])
@pytest.mark.parametrize("clipping", ["entry", "norm"])
def test_rounding_of_a_small_example_is_counted(dim: int, clip: float, clipping: str) -> None:
    """An example moves a norm by so few steps that rounding in all entries counts; the grids are
    those that the federation chooses. What is stated beyond the truth is the half step that is left
    for the sums behind a gradient, in every entry."""
    uplink = flmc.Analog(clip=clip, clipping=clipping, example_norm=1.0, snr_db=120.0)
    gain = np.full((1, 1), ONE / (2 * 10))
    plan = deployed(uplink, gain, 100, dim, 6, 1e-5, "example").federation.plan
    case = Deployment(Federation.of("test", plan), "example", 1e-5)
    truth = true_analog(case)
    assert 1.1 * normal.epsilon_of(1e-5, ONE) <= truth <= case.stated <= 1.3 * truth


def test_an_example_beyond_the_clip_of_entries_still_shares_its_norm() -> None:
    """The clip bounds each of many entries, and the example their norm: rounding counts, although
    one entry can move from end to end."""
    uplink = flmc.Analog(clip=1.0, example_norm=1.5, snr_db=120.0)
    case = deployed(uplink, np.full((1, 1), 0.02), 4, 400, 8, 1e-5, "example")
    plain = normal.epsilon_of(1e-5, 2 * 1.5 * 0.02 * 2)
    truth = true_analog(case)
    assert plain < truth <= case.stated


@pytest.mark.parametrize("clipping", ["entry", "norm"])
def test_symbols_that_arrive_louder_are_rounded_as_they_arrive(clipping: str) -> None:
    """With wrong channel estimates symbols arrive with up to (A + a)/rho, and are rounded there."""
    error = 0.1
    uplink = flmc.Analog(
        clip=2.0,
        clipping=clipping,
        example_norm=0.02,
        snr_db=-20.0,
        csi_error=error,
        fading=flmc.ConstantFading(1.0),
    )
    dim, rounds, delta = 60, 3, 1e-5
    case = deployed(uplink, np.full((1, 1), 0.05), rounds, dim, 9, delta, "example")
    together = dim if clipping == "norm" else 1
    extra = math.sqrt(together * 0.01) / 2.0 * error * math.sqrt(math.log(1e12))
    arrives = (0.05 + extra) / math.sqrt(1 - error**2)
    squares = rounds * largest_move(case, np.full(dim, arrives))
    left = delta - rounds * dim * 1e-12
    assert case.stated >= normal.epsilon_of(left, math.sqrt(squares) / 2**9) > 0.0
