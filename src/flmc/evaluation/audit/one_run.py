r"""An audit with a single run: every device is a canary, whose data set a coin decides, and an
adversary guesses the coins.

Device k takes one of two data sets by a fair coin :math:`S_k`; a run transmits once; the adversary
guesses all r coins from what is public. If what is public is (epsilon, delta)-private with respect
to the data of each single device, the number W of right guesses has, with :math:`p =
e^\epsilon/(1 + e^\epsilon)`,

.. math:: \Pr[W \ge v] \le \Pr[\text{Bin}(r, p) \ge v]
          + \frac{\delta}{1 + e^\epsilon} \sum_{j<r} \max_w \Pr[\text{Bin}(j, p) = w].

``docs/privacy.md`` has the proof (after Steinke, Nasr and Jagielski, 2023). Where the right-hand
side is at most one minus the confidence, the claim is refuted."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.tables import Listing, Row, format_up
from flmc.evaluation.audit.attack import publish, rounds_of
from flmc.evaluation.audit.bounds import CONFIDENCE
from flmc.evaluation.audit.likelihood_ratio import at_worst_centre
from flmc.evaluation.audit.scene import Scene, gradients_of_worlds
from flmc.sampling.roles import air, device

_LARGEST = 40.0
"""Upper end of the search for the largest refuted epsilon; no realistic number of devices refutes
an epsilon as large as that."""


@dataclass(frozen=True)
class OneRun:
    """Outcome of an audit with one run of ``num_rounds`` rounds: in each of ``num_canaries``
    devices a coin decides which of two data sets it has, and an adversary guesses ``correct`` of
    the coins. So epsilon at ``delta`` is at least ``lower`` with probability ``confidence``;
    ``upper`` is the accountant's bound, and ``most`` the lower bound that right guesses of all
    coins would give."""

    num_rounds: int
    num_canaries: int
    correct: int
    delta: float
    lower: float
    upper: float
    most: float
    confidence: float

    @property
    def broken(self) -> bool:
        """Whether the attack's lower bound of epsilon exceeds the accountant's upper bound."""
        return self.lower > self.upper

    @property
    def complaint(self) -> str:
        """A sentence that says that the mechanism or the accountant must be broken, with the two
        bounds of epsilon; empty if the lower bound does not exceed the upper one."""
        if not self.broken:
            return ""
        return (
            f"in one run of {self.num_rounds} rounds epsilon is at least {self.lower:.4g}, and the"
            f" accountant states {self.upper:.4g}: the mechanism or the accountant is broken"
        )

    def to_document(self) -> dict[str, Any]:
        """The fields of the audit by name, and ``broken``, as plain values for JSON; an infinite
        upper bound is null."""
        upper = None if math.isinf(self.upper) else self.upper
        return {**vars(self), "upper": upper, "broken": self.broken}

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self) -> Listing:
        """Guessed coins, lower and upper bound of epsilon, and verdict, as rows for printing."""
        verdict = Row("verdict", "not refuted", severity="good")
        if self.broken:
            text = "REFUTED: the mechanism leaks more than it states"
            verdict = Row("verdict", text, severity="bad")
        elif self.most <= self.upper:
            text = (
                f"cannot decide: {self.num_canaries} devices can refute an epsilon below"
                f" {self.most:.3g} only"
            )
            verdict = Row("verdict", text, severity="warning")
        return Listing(
            f"audit of one run over {self.num_rounds} rounds, delta {self.delta:g}",
            (
                Row("coins guessed", f"{self.correct} of {self.num_canaries}"),
                Row(
                    "epsilon is at least",
                    f"{self.lower:.4g} (with confidence {100 * self.confidence:g} %)",
                ),
                Row("epsilon is at most", f"{format_up(self.upper)} (accountant)"),
                verdict,
            ),
        )


TransmitAll = Callable[[Scene, Array, np.random.Generator], Array]
"""A function that simulates one transmission: from a scene, the gradients of all devices (round,
device, entry) and a random number generator it returns the received signal, (round, entry)."""


def transmit_all(scene: Scene, gradient: Array, rng: np.random.Generator) -> Array:
    """Simulate one transmission of all devices' gradients (round, device, entry), given before
    clipping, and return the signal that the server receives, (round, entry)."""
    uplink, rounds = scene.uplink, rounds_of(scene, rng)
    uniform = rng.random((1, *gradient.shape)) if uplink.randomised else None
    sent = device(gradient, uniform, uplink, rounds.gains, rounds.fading, rounds.active)
    noise = np.sqrt(uplink.noise_power) * rng.standard_normal((1, *rounds.gains.shape))
    return np.asarray(publish(scene, rounds, air(sent, rounds.fading, noise))[0])


def audit_one_run(
    scene: Scene,
    delta: float,
    seed: int,
    *,
    transmit: TransmitAll = transmit_all,
    confidence: float = CONFIDENCE,
) -> OneRun:
    """Attack a scene with a single transmission in which every device is a canary (a coin decides
    which of two data sets it has), and bound epsilon at ``delta`` from the number of coins guessed
    right; tests put a broken function in place of ``transmit``."""
    checks.between("delta", delta, 0.0, 1.0)
    scene = at_worst_centre(scene, delta)
    rng = np.random.default_rng(seed)
    shape = (scene.num_rounds, scene.num_devices, scene.dim)
    coins = rng.choice([-1.0, 1.0], size=scene.num_devices)
    # Each device has its own public pattern of signs: otherwise the devices' contributions to the
    # sum could not be separated.
    signs = rng.choice([-1.0, 1.0], size=shape)
    first, second = gradients_of_worlds(scene)
    local = np.where(coins[:, None] > 0, first, second) * signs
    received = transmit(scene, local, rng)
    correct = int((_guess(scene, received, first * signs, second * signs) == coins).sum())
    return OneRun(
        scene.num_rounds,
        scene.num_devices,
        correct,
        delta,
        bound_from_guesses(correct, scene.num_devices, delta, confidence),
        scene.event.epsilon(delta),
        bound_from_guesses(scene.num_devices, scene.num_devices, delta, confidence),
        confidence,
    )


def _guess(scene: Scene, received: Array, first: Array, second: Array) -> Array:
    """Guesses of all devices' coins, +1 or -1, (device). A coin decides which of two gradients a
    device has: ``first`` for +1, ``second`` for -1, (round, device, entry) each. A guess is the
    sign of the coin's best linear estimate from the signal ``received`` (round, entry), for all
    coins together."""
    # Ridge regression of the signal on all coins: the identity matrix in the normal equations is
    # there because a coin has variance 1; an entry is weighted by the noise of channel and random
    # symbols.
    uplink, rounds = scene.uplink, rounds_of(scene, np.random.default_rng(0))
    scale = rounds.gains[:, None] * rounds.active[..., None]
    one, two = (uplink.mean_symbol(each) for each in (first, second))
    variance = (uplink.symbol_variance(first) + uplink.symbol_variance(second)) / 2
    noise = (np.square(scale) * variance).sum(axis=1) + uplink.noise_power  # shape (round, entry)
    move = np.moveaxis(scale * (one - two) / 2, 1, -1).reshape(-1, scene.num_devices)
    rest = (received - (scale * (one + two) / 2).sum(axis=1)).ravel() / noise.ravel()
    normal = move.T @ (move / noise.reshape(-1, 1)) + np.eye(scene.num_devices)
    return np.where(np.linalg.solve(normal, move.T @ rest) > 0, 1.0, -1.0)


def bound_from_guesses(correct: int, count: int, delta: float, confidence: float) -> float:
    """Lower bound of epsilon at ``delta`` that holds with probability ``confidence``: the largest
    epsilon that ``correct`` right guesses of ``count`` coins refute; 0 if they refute none."""
    if chance_of_guesses(correct, count, 0.0, delta) > 1 - confidence:
        return 0.0
    low, high = 0.0, _LARGEST
    while high - low > 1e-6:
        middle = (low + high) / 2
        refuted = chance_of_guesses(correct, count, middle, delta) <= 1 - confidence
        low, high = (middle, high) if refuted else (low, middle)
    return low


def chance_of_guesses(correct: int, count: int, epsilon: float, delta: float) -> float:
    """Upper bound of the probability of at least ``correct`` right guesses of ``count`` coins, if
    the mechanism is (``epsilon``, ``delta``)-private."""
    # The second term of the bound in this module's docstring: a sum over j of the largest
    # probability of Bin(j, p), which is that of its mode.
    from scipy.special import bdtrc, gammaln

    p = 1.0 / (1.0 + math.exp(-epsilon))
    at_least = 1.0 if correct == 0 else float(bdtrc(correct - 1, count, p))
    trials = np.arange(count)
    mode = np.floor((trials + 1) * p).clip(0, trials)
    log_mass = gammaln(trials + 1) - gammaln(mode + 1) - gammaln(trials - mode + 1)
    log_mass += mode * math.log(p) + (trials - mode) * (-epsilon + math.log(p))
    return at_least + delta / (1.0 + math.exp(epsilon)) * float(np.exp(log_mass).sum())
