"""What is attacked, the two neighbours, what they transmit, and what the adversary makes of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.planning.plans import Plan
from flmc.sampling.roles import Transmission, air, device
from flmc.uplink.power import finite_cap
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Scene:
    """What is attacked: an uplink with one gain for all rounds and entries, among some devices."""

    uplink: Uplink
    gain: float
    dim: int
    num_devices: int
    num_rounds: int

    @classmethod
    def of_plan(cls, plan: Plan, num_rounds: int) -> Scene:
        """A plan's uplink at the loudest cap of its gain; refused for neighbours that differ in an
        example."""
        if plan.limits.neighbouring != "device":
            raise InvalidSetting(
                "the audit attacks whole devices, and the plan's neighbouring is"
                f" {plan.limits.neighbouring!r}; make one with 'device'"
            )
        return cls(
            plan.uplink,
            float(finite_cap(plan.uplink, plan.gain).max()),
            plan.dim,
            plan.num_devices,
            num_rounds,
        )


def transmit(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Transmit over the real uplink, with ``gradient`` (round, entry) on the attacked device,
    number 0. Returns what is received (trial, round, entry), and the other devices' part of it
    without noise."""
    uplink = scene.uplink
    sizes = (scene.num_rounds, scene.num_devices, scene.dim)
    local = np.empty(sizes)
    local[:, 0] = gradient
    # The adversary knows the data of the other devices, so any fixed gradients will do for them.
    if scene.num_devices > 1:
        others = np.linspace(-1.0, 1.0, (scene.num_devices - 1) * scene.dim).reshape(-1, scene.dim)
        local[:, 1:] = uplink.clip * others
    # Every trial has the same gradients, but random numbers of its own: what follows from the
    # gradients alone is computed once for all trials.
    uniform = rng.random((trials, *sizes)) if uplink.random_bits else None
    fading = uplink.fading.draw_checked(rng, range(scene.num_rounds), scene.num_devices, scene.dim)
    sent = device(
        local, uniform, uplink, np.full((scene.num_rounds, scene.dim), scene.gain), fading
    )
    noise = np.sqrt(uplink.noise_power) * rng.standard_normal((trials, scene.num_rounds, scene.dim))
    received = air(sent, fading, noise)
    others_sent = Transmission(sent.symbols[..., 1:, :], sent.amplitude[..., 1:, :])
    known = air(others_sent, fading[:, 1:], np.zeros_like(noise))
    return received, known


Transmit = Callable[[Scene, Array, int, np.random.Generator], tuple[Array, Array]]


def canary(scene: Scene) -> Array:
    """The attacked device's gradients (round, entry) in one world; the other has the opposite.
    Their signs are the Thue-Morse sequence, over rounds and over entries, which repeats nowhere for
    long."""
    by_round, by_entry = (_thue_morse(count) for count in (scene.num_rounds, scene.dim))
    return np.asarray(scene.uplink.clip * by_round[:, None] * by_entry)


def _thue_morse(count: int) -> Array:
    """The Thue-Morse sequence: +1 for numbers whose binary digits have an even sum, else -1."""
    return np.array([(-1.0) ** number.bit_count() for number in range(count)])


def log_ratio(scene: Scene, own: Array, gradient: Array) -> Array:
    r"""Logarithm of the likelihood ratio of what was received, one world against the other,
    (trial).

    ``own`` (trial, round, entry) is what was received less the part of the other devices. With
    :math:`u = 2 A y/N_0` every entry adds, with the sign of the gradient, :math:`\ln\frac{p_+ e^u +
    1 - p_+}{p_- e^u + 1 - p_-}` for a bit that is +1 with probability :math:`p_\pm` at plus and
    minus the clip, and :math:`\ell u` for an analog symbol."""
    uplink, sign = scene.uplink, np.sign(gradient)
    u = 2.0 * scene.gain * own / uplink.noise_power
    if isinstance(uplink, Digital):
        # A common factor exp(-(y + A)^2 / (2 N_0)) has cancelled; exp(u) itself could overflow.
        high, low = uplink.link.extremes(uplink.clip)
        plus = np.logaddexp(_log(high) + u, _log(1 - high)) - np.logaddexp(
            _log(low) + u, _log(1 - low)
        )
        return np.asarray((sign * plus).sum(axis=(1, 2)))
    return np.asarray((sign * uplink.clip * u).sum(axis=(1, 2)))


def _log(value: float) -> float:
    """Natural logarithm, minus infinity for 0."""
    return math.log(value) if value > 0 else -math.inf
