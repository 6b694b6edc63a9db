"""An audit with one run: its bound holds, it refutes what is grossly broken, and nothing else."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.cli import main
from flmc.evaluation.audit.one_run import (
    TransmitAll,
    audit_one_run,
    bound_from_guesses,
    chance_of_guesses,
    transmit_all,
)
from flmc.evaluation.audit.scene import Scene
from support import full, full_only

DEVICES = full(500, 300)
ROUNDS = full(200, 120)


def with_less_noise(factor: float) -> TransmitAll:
    """A receiver whose noise has a standard deviation that is smaller by a factor."""

    def quiet(scene: Scene, gradient: Array, rng: np.random.Generator) -> Array:
        power = scene.uplink.noise_power / factor**2
        silent = replace(scene, uplink=flmc.replace(scene.uplink, noise_power=power))
        return transmit_all(silent, gradient, rng)

    return quiet


def scene_of(scheme: str, neighbouring: str = "device") -> Scene:
    """Claims an epsilon of about 1 at delta 1e-5."""
    if scheme == "analog":
        return Scene(
            flmc.Analog(clip=1.0, example_clip=0.5), 0.004, 5, DEVICES, ROUNDS, neighbouring
        )
    return Scene(flmc.Digital(example_clip=10.0), 0.006, 5, DEVICES, ROUNDS, neighbouring)


@full_only
@pytest.mark.parametrize("neighbouring", ["device", "example"])
@pytest.mark.parametrize("scheme", ["digital", "analog"])
def test_the_right_mechanism_is_not_refuted(scheme: str, neighbouring: str) -> None:
    scene = scene_of(scheme, neighbouring)
    for seed in range(full(20, 3)):
        found = audit_one_run(scene, 1e-5, seed)
        assert not found.broken
        assert not found.complaint
        assert "not refuted" in str(found)


@pytest.mark.parametrize(("scheme", "factor"), [("analog", 30.0), ("digital", 100.0)])
def test_a_receiver_with_far_too_little_noise_is_refuted(scheme: str, factor: float) -> None:
    """All of 8 seeds were, with 10 times less noise for 500 analog devices; digital devices hide
    each other by their random bits, and take more."""
    for seed in range(full(8, 2)):
        found = audit_one_run(scene_of(scheme), 1e-5, seed, transmit=with_less_noise(factor))
        assert found.broken
        assert "is broken" in found.complaint
        assert "REFUTED" in str(found)


def test_few_devices_cannot_decide() -> None:
    found = audit_one_run(Scene(flmc.Digital(), 0.27, 5, 20, 4), 1e-5, 1)
    assert found.most == pytest.approx(0.88, abs=0.01)
    assert "cannot decide: 20 devices" in str(found)


def leakiest(epsilon: float, delta: float, count: int) -> Array:
    """Law of the number of right guesses where every coin is published apart, as openly as
    (epsilon, delta) allows: with probability delta for certain, else by randomised response."""
    p = 1 / (1 + math.exp(-epsilon))
    right = delta + (1 - delta) * p
    return np.array(
        [math.comb(count, k) * right**k * (1 - right) ** (count - k) for k in range(count + 1)]
    )


@settings(deadline=None, max_examples=full(200, 60))
@given(epsilon=st.floats(0.0, 4.0), delta=st.floats(1e-8, 0.2), count=st.integers(1, 30))
def test_the_chance_is_above_that_of_the_leakiest_product(
    epsilon: float, delta: float, count: int
) -> None:
    tails = leakiest(epsilon, delta, count)[::-1].cumsum()[::-1]
    for correct in range(count + 1):
        bound = chance_of_guesses(correct, count, epsilon, delta)
        assert bound >= tails[correct] * (1 - 1e-9)
        if correct:
            assert bound <= chance_of_guesses(correct - 1, count, epsilon, delta) + 1e-12


def test_the_chance_holds_for_coins_that_are_published_together() -> None:
    """All mechanisms with two coins and a few outputs, at random: those that are (epsilon,
    delta)-private with respect to each coin never exceed the bound, guessed as well as can be."""
    rng, tried = np.random.default_rng(3), 0
    for _ in range(full(4000, 500)):
        epsilon, delta = float(rng.uniform(0.1, 2.0)), float(rng.uniform(0.0, 0.3))
        laws = rng.dirichlet(np.full(4, rng.uniform(0.3, 3.0)), size=(2, 2))  # coin, coin, output
        pairs = [(laws[0], laws[1]), (laws[:, 0], laws[:, 1])]
        ways = [pair for one, two in pairs for pair in ((one, two), (two, one))]
        exceeds = [np.maximum(a - math.exp(epsilon) * b, 0.0).sum(axis=-1).max() for a, b in ways]
        if max(exceeds) > delta:
            delta = float(max(exceeds))  # what the mechanism really has
        tried += 1
        # Every assignment of guesses to outputs; each output may choose for itself.
        for correct in (1, 2):
            best = 0.0
            for output in range(4):
                best += max(
                    sum(
                        laws[a, b, output] / 4
                        for a, b in itertools.product((0, 1), repeat=2)
                        if (a == guess[0]) + (b == guess[1]) >= correct
                    )
                    for guess in itertools.product((0, 1), repeat=2)
                )
            assert best <= chance_of_guesses(correct, 2, epsilon, delta) + 1e-12
    assert tried


@pytest.mark.parametrize("delta", [1e-9, 1e-5])
def test_the_bound_of_epsilon_inverts_the_chance(delta: float) -> None:
    for correct in (60, 80, 95, 100):
        found = bound_from_guesses(correct, 100, delta, 0.999)
        if found > 0:
            assert chance_of_guesses(correct, 100, found, delta) <= 1e-3
            assert chance_of_guesses(correct, 100, found + 1e-3, delta) > 1e-3
    # All right and no delta: p^100 = 0.001.
    exact = math.log(1 / (0.001**-0.01 - 1))
    assert bound_from_guesses(100, 100, 1e-12, 0.999) == pytest.approx(exact, rel=1e-3)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--samples", "200", "--devices", "4", "--rounds", "20", "--burn-in", "10")
    assert main(["audit", *sizes, "--trials", "2000", "--one-run"]) == 0
    assert "coins guessed" in capsys.readouterr().out
