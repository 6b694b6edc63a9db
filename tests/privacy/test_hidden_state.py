"""What a device carries hidden from round to round, as local parameters, costs no privacy: two
rounds whose bits depend on a hidden state, integrated over all that the server may receive."""

from __future__ import annotations

import numpy as np
import pytest

from flmc.base.arrays import Array
from flmc.privacy.bit_event import BitEvent

HIGH, GAIN = 0.9, 0.8
Y = np.linspace(-8.0, 8.0, 801)
"""Received values, in standard deviations of the noise; mass beyond is 1e-12."""
STATES = 3


def densities(law: Array, first: Array, second: Array) -> Array:
    """Joint densities of two received values, (y, y), where the device's hidden state has a ``law``
    (state), the first bit is +1 with the probability ``first`` (state), and the second with
    ``second`` (state, sign of the first value): the server's next theta follows from what it has
    received, and the device answers there."""
    up, down = (np.exp(-0.5 * (Y - s * GAIN) ** 2) / np.sqrt(2 * np.pi) for s in (1, -1))
    sign = (Y > 0).astype(int)
    total = np.zeros((len(Y), len(Y)))
    for state, weight in enumerate(law):
        one = first[state] * up + (1 - first[state]) * down
        high = second[state][sign][:, None]
        total += weight * one[:, None] * (high * up + (1 - high) * down)
    return total


def divergence(worlds: list[Array], epsilon: float) -> float:
    """Hockey-stick divergence of the first of two worlds from the second, over the grid."""
    left, right = worlds
    step = Y[1] - Y[0]
    return float(np.maximum(left - np.exp(epsilon) * right, 0.0).sum() * step**2)


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 1.5])
def test_a_hidden_state_costs_nothing(epsilon: float) -> None:
    """Laws of the state, and bits at each state, at the ends of what the link allows or anywhere
    between, at random; at most the delta of two bits of the worst pair, which is attained where the
    state is ignored."""
    event = BitEvent(HIGH, 1 - HIGH, 1.0, ((GAIN, 2),))
    stated = event.tight_delta(epsilon)
    rng = np.random.default_rng(0)
    found = []
    for trial in range(60):
        worlds = []
        for _ in range(2):
            law = rng.dirichlet(np.full(STATES, 0.5))
            share = rng.random((STATES, 3))
            share = np.round(share) if trial % 2 else share
            bits = 1 - HIGH + (2 * HIGH - 1) * share
            worlds.append(densities(law, bits[:, 0], bits[:, 1:]))
        found.append(divergence(worlds, epsilon))
    # A sum over a grid of a 50th of the noise's deviation, of densities with one kink: 1e-4.
    assert max(found) <= stated + 1e-4
    law = np.full(STATES, 1 / STATES)
    worst = [densities(law, np.full(STATES, p), np.full((STATES, 2), p)) for p in (HIGH, 1 - HIGH)]
    assert divergence(worst, epsilon) == pytest.approx(stated, abs=2e-4)
    # The states do speak: two worlds differ by more than the grid's error.
    assert max(found) > 0.02
