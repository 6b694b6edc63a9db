"""Runs that are stopped after looking: what the best stopping rule makes of a stated epsilon."""

from __future__ import annotations

import json

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import norm

import flmc
from flmc.privacy import gaussian
from flmc.runs.ledger_cost import spent_curve
from support import full

Floats = npt.NDArray[np.float64]


def best_delta(stated: Floats, rate: float, steps_per_round: float) -> float:
    r"""Delta under the best stopping rule, if a run that stops after round t states ``stated[t]``
    (round 0 included), by dynamic programming.

    The privacy loss is a walk with increments :math:`N(r^2/2, r^2)`, r being ``rate``, of which a
    round has ``steps_per_round`` grid points per standard deviation. A run that stops at the loss
    l after round t adds :math:`(1 - e^{\epsilon_t - l})_+` to delta. From the last round backwards
    the best rule stops where that is more than what going on is worth."""
    rounds = len(stated) - 1
    reach = 9.0 * rate * np.sqrt(rounds)
    step = rate / steps_per_round
    loss = step * np.arange(-np.ceil(reach / step), np.ceil(reach / step) + 1)
    width = int(np.ceil(8 * rate / step))
    jump = step * np.arange(-width, width + 1)
    edges = (np.append(jump, jump[-1] + step) - step / 2 - rate**2 / 2) / rate
    weight = np.diff(norm.cdf(edges))
    weight /= weight.sum()
    value = np.maximum(-np.expm1(stated[-1] - loss), 0.0)
    for now in range(rounds - 1, -1, -1):
        padded = np.pad(value, width, mode="edge")
        value = np.convolve(padded, weight[::-1], mode="valid")
        if now:
            value = np.maximum(value, -np.expm1(stated[now] - loss))
    return float(np.interp(0.0, loss, value))


def ledger_of(rounds: int, until: int, gain: float) -> tuple[float, float]:
    """Epsilon that the ledger of an analog run of one entry states by default after round ``until``
    of ``rounds``, and that of the rounds so far."""
    entries = [json.dumps({"round": t + 1, "gain": [gain], "silent": []}) for t in range(rounds)]
    curve = spent_curve(
        entries[:until],
        flmc.Analog(clip=1.0),
        flmc.Limits(run_delta=1e-5),
        1,
        1,
        ahead=entries[until:],
        last_only=True,
    )
    return curve.epsilon, curve.epsilon_so_far


@pytest.mark.parametrize(
    ("rounds", "epsilon", "delta", "factor"),
    [(300, 1.0, 1e-5, 11.8), (300, 1.0, 1e-2, 3.1)],
)
def test_the_rounds_so_far_are_no_bound_for_who_stops_after_looking(
    rounds: int, epsilon: float, delta: float, factor: float
) -> None:
    event = gaussian.GaussianEvent(1.0, 1.0, ((1.0, 1),))
    rate = event.allowed_gain(epsilon, delta) / np.sqrt(rounds)
    so_far = np.array([gaussian.epsilon(delta, rate * np.sqrt(t)) for t in range(rounds + 1)])
    fine = full(20, quick=10)
    # The grid rounds jumps: halving its step moves the answer by 0.4 % here.
    assert best_delta(so_far, rate, fine) == pytest.approx(factor * delta, rel=0.02)
    # The whole run's epsilon, stated at every stop: what remains is its own delta.
    whole = np.full(rounds + 1, so_far[-1])
    assert best_delta(whole, rate, fine) == pytest.approx(delta, rel=0.02)


def test_the_ledger_states_no_less_than_the_best_stopping_rule_finds() -> None:
    """The default statement of a ledger, whenever the run stops, against dynamic programming."""
    rounds = 40
    unit = gaussian.GaussianEvent(2.0, 1.0, ((1.0, rounds),))
    gain = unit.allowed_gain(1.0, 1e-5)
    stated = [ledger_of(rounds, until, gain) for until in range(1, rounds + 1)]
    default, so_far = (np.array([each[0], *each]) for each in zip(*stated, strict=True))
    # The grid adds to the variance of a jump a twelfth of its step squared: 1/1200, and with it
    # less than 2 % of delta.
    assert best_delta(default, 2.0 * gain, 10.0) <= 1e-5 * 1.02
    assert best_delta(so_far, 2.0 * gain, 10.0) > 5e-5
