"""Audits of runs: their schedule and gains, one example, and what an audit can see, stated
beforehand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.cli import main
from flmc.evaluation.audit import attack
from flmc.evaluation.audit.attack import audit, transmit
from flmc.evaluation.audit.bounds import lower_bound
from flmc.evaluation.audit.likelihood_ratio import at_worst_centre, loss_law
from flmc.evaluation.audit.resolution import expected_resolution
from flmc.evaluation.audit.scene import Scene, canary, neighbour
from flmc.sampling import schedule
from flmc.sampling.roles import Transmission, device
from flmc.uplink.power import realised_gain
from support import few, full, full_only

MODEL = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=200, num_devices=4))
SIZES = ("--samples", "200", "--devices", "4", "--rounds", "20", "--burn-in", "10")


def plan(uplink: flmc.Uplink, limits: flmc.Limits | None = None, **more: Any) -> flmc.Plan:
    given = {"num_rounds": 300, "num_burn_in": 100, **more}
    return flmc.plan(MODEL, uplink, limits or flmc.Limits(), **given)


@pytest.mark.parametrize("louder", ["schedule", "device"])
def test_a_gain_above_its_cap_is_seen(
    louder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By 1 %, which no number of trials would show: in the schedule of the run, or where a device
    inverts its channel."""
    if louder == "schedule":
        monkeypatch.setattr(schedule, "realised_gain", lambda *a: 1.01 * realised_gain(*a))
    else:

        def louder_device(*given: Any) -> Transmission:
            sent = device(*given)
            return sent._replace(amplitude=1.01 * sent.amplitude)

        monkeypatch.setattr(attack, "device", louder_device)
    found = audit(Scene.of_plan(plan(flmc.Digital()), 2), 0.01, 2000, 1)
    assert found.loudest == pytest.approx(1.01)
    assert found.too_loud
    assert found.broken
    assert found.lower < found.upper
    assert "1.01 times their cap" in str(found)
    assert main(["audit", *SIZES, "--trials", "2000"]) == 1
    assert "times the cap of the gain" in capsys.readouterr().err


@pytest.mark.parametrize(
    "uplink",
    [flmc.Digital(), flmc.Digital(fading=flmc.RayleighFading(0.04)), flmc.Analog(clip=5.0)],
    ids=["constant", "rayleigh", "analog"],
)
def test_the_gains_are_those_of_the_run(uplink: flmc.Uplink) -> None:
    """Every attacked round is one of the run's, and none of the block is louder."""
    planned = plan(uplink)
    drawn = schedule.draw_schedule(planned, 5, range(1), 0)
    scene = Scene.of_plan(planned, 3, seed=5)
    assert scene.run is not None
    loudest = np.sort(drawn.gain[0].max(axis=1))[::-1][:3]
    np.testing.assert_allclose(np.sort(scene.gains.max(axis=1))[::-1], loudest)
    assert (scene.gains <= scene.caps * (1 + 1e-12)).all()
    for gain, fading in zip(scene.gains, scene.run.fading, strict=True):
        assert any(
            np.array_equal(gain, one) and np.array_equal(fading, path)
            for one, path in zip(drawn.gain[0], drawn.fading[0], strict=True)
        )
    assert not audit(scene, 0.01, 5000, 1).broken


def test_changing_gains_are_attacked_where_they_are_loud_and_stated_as_they_are() -> None:
    limits = flmc.Limits(epsilon=20.0, scope="run", allocation="adaptive")
    planned = plan(flmc.Digital(), limits)
    assert len(planned.gain) == planned.num_rounds
    scene = Scene.of_plan(planned, 4)
    assert scene.caps.max() == planned.gain.max()
    sent = [(float(value), 1) for value in scene.caps.ravel()]
    assert scene.event.epsilon(0.01) == pytest.approx(
        planned.uplink.privacy_event(sent).epsilon(0.01), rel=1e-3
    )


def test_the_attacked_device_transmits() -> None:
    """Devices that come and go: one that is silent would make any audit pass."""
    active = np.zeros((300, 4))
    active[:, 1] = 1.0
    active[7, 2] = active[250:, 3] = 1.0
    planned = plan(flmc.Digital(), active=active)
    scene = Scene.of_plan(planned, 4)
    assert scene.attacked == 1
    assert scene.run is not None
    assert (scene.run.active[:, 1] == 1.0).all()
    found = audit(scene, 0.01, 20_000, 1)
    assert not found.broken
    assert found.lower > 0.8 * found.most
    once = np.zeros((300, 4))
    once[:, 0], once[20, 0] = 0.0, 1.0
    once[:, 1] = 1.0
    once[20, 1] = 0.0
    assert Scene.of_plan(plan(flmc.Digital(), active=once), 400).num_rounds == 299


def example_scene(uplink: flmc.Uplink, gain: float = 0.5, rounds: int = 4) -> Scene:
    return Scene(uplink, gain, 5, 3, rounds, "example")


EXAMPLE = (
    (flmc.Digital(example_clip=10.0, clip=30.0), 0.5),
    (flmc.Analog(example_clip=1.0, clip=4.0), 0.1),
    (flmc.Digital(example_norm=40.0, clip=30.0), 0.3),
    (flmc.Analog(example_norm=2.0, clip=4.0), 0.1),
)


def quiet(scene: Scene, gradient: Array, trials: int, rng: np.random.Generator) -> Any:
    """A receiver with a quarter of the noise's deviation."""
    silent = replace(
        scene, uplink=flmc.replace(scene.uplink, noise_power=scene.uplink.noise_power / 16)
    )
    return transmit(silent, gradient, trials, rng)


def forgets_to_clip_examples(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> Any:
    """Examples keep gradients of twice their clip."""
    name = "example_clip" if scene.uplink.example_norm is None else "example_norm"
    loose = flmc.replace(scene.uplink, **{name: 2 * scene.uplink.example_bound})
    is_first = np.allclose(gradient, canary(scene))
    world = replace(scene, uplink=loose)
    return transmit(scene, (canary if is_first else neighbour)(world), trials, rng)


@pytest.mark.parametrize(
    ("uplink", "gain"),
    few(EXAMPLE, 2),
    ids=few(["digital", "analog", "digital norm", "analog norm"], 2),
)
def test_one_example_is_attacked(uplink: flmc.Uplink, gain: float) -> None:
    scene, trials = example_scene(uplink, gain), full(50_000, 10_000)
    for seed in range(full(4, 1)):
        found = audit(scene, 0.01, trials, seed)
        assert found.neighbouring == "example"
        assert not found.broken
        # The attack finds most of what is stated; the digital statement is above every fixed pair.
        assert found.lower > 0.6 * found.upper
        assert audit(scene, 0.01, trials, seed, transmit=quiet).broken
        assert audit(scene, 0.01, trials, seed, transmit=forgets_to_clip_examples).broken


def test_the_worlds_of_an_example_differ_by_one_example() -> None:
    scene = replace(example_scene(flmc.Digital(example_clip=2.0)), centre=7.0)
    first, second = canary(scene), neighbour(scene)
    np.testing.assert_allclose(np.abs(first - second), 4.0)
    np.testing.assert_allclose(np.abs(first + second), 14.0)
    by_norm = replace(scene, uplink=flmc.Digital(example_norm=2.0))
    apart = canary(by_norm) - neighbour(by_norm)
    np.testing.assert_allclose(np.linalg.norm(apart, axis=1), 4.0)
    whole = replace(scene, uplink=flmc.Digital(example_clip=50.0))
    assert whole.whole_device
    np.testing.assert_array_equal(canary(whole), -neighbour(whole))


@pytest.mark.parametrize(("gain", "rounds", "delta"), [(6.0, 1, 1e-3), (0.3, 4, 0.01)])
def test_the_worst_centre_is_the_worst_of_all(gain: float, rounds: int, delta: float) -> None:
    """By an event of the bits at every centre, which the search does not use."""
    from flmc.privacy.bit_event import BitEvent

    uplink = flmc.Digital(link=flmc.Sigmoid(0.2), example_clip=2.0, clip=10.0)
    scene = Scene(uplink, gain, 1, 2, rounds, "example")
    found = at_worst_centre(scene, delta).centre

    def epsilon(centre: float) -> float:
        high, low = uplink.link.probability(np.array([centre + 2.0, centre - 2.0]))
        return BitEvent(float(high), float(low), 1.0, ((gain, rounds),)).epsilon(delta)

    others = max(epsilon(centre) for centre in np.linspace(-8.0, 8.0, 33))
    # 49 centres are tried; epsilon is smooth between them.
    assert epsilon(found) > 0.98 * others


def test_a_device_that_forgets_to_clip_is_seen() -> None:
    def unclipped(scene: Scene, gradient: Array, trials: int, rng: np.random.Generator) -> Any:
        loose = flmc.replace(scene.uplink, clip=1e6)
        return transmit(replace(scene, uplink=loose), gradient, trials, rng)

    scene = Scene(flmc.Analog(clip=1.0), 0.2, 5, 2, 2)
    assert audit(scene, 0.01, 20_000, 1, transmit=unclipped).broken
    assert not audit(scene, 0.01, 20_000, 1).broken


@full_only
@pytest.mark.parametrize(
    "scene",
    [
        Scene(flmc.Digital(), 0.27, 5, 2, 1),
        Scene(flmc.Digital(), 0.27, 5, 2, 4),
        Scene(flmc.Analog(clip=1.0), 0.2, 5, 1, 2),
        Scene(flmc.Digital(example_clip=10.0), 0.3, 5, 2, 4, "example"),
    ],
    ids=["round", "four", "analog", "example"],
)
def test_the_stated_resolution_is_what_is_seen(scene: Scene) -> None:
    """At the stated factor of the gain 95 % are seen; 5 standard errors of a binomial allow."""
    trials, seeds = 10_000, full(60, 12)
    scene = at_worst_centre(scene, 0.01)
    claimed = scene.event.epsilon(0.01)
    stated = expected_resolution(scene, 0.01, trials, claimed)
    assert stated.epsilon_factor > 1

    def seen(factor: float) -> float:
        def louder(scene: Scene, gradient: Array, trials: int, rng: np.random.Generator) -> Any:
            return transmit(scene.louder(factor), gradient, trials, rng)

        worlds = [attack.draw_statistics(scene, trials, seed, louder) for seed in range(seeds)]
        lower = [lower_bound(*each, 0.01, threshold=stated.threshold) for each in worlds]
        return sum(each > claimed for each in lower) / seeds

    assert seen(stated.gain_factor) > 0.95 - 5 * math.sqrt(0.95 * 0.05 / seeds)
    # Half of that is seen less often than not, so the statement is not idle.
    assert seen(1 + (stated.gain_factor - 1) / 2) < 0.5


def test_the_resolution_of_more_trials_is_finer() -> None:
    scene = Scene(flmc.Digital(), 0.27, 5, 2, 1)
    factors = [
        expected_resolution(scene, 0.01, trials, scene.event.epsilon(0.01)).epsilon_factor
        for trials in (5000, 50_000, 500_000)
    ]
    assert factors == sorted(factors, reverse=True)
    assert factors[-1] < 1.1
    unbounded = expected_resolution(scene, 0.01, 5000, math.inf)
    assert math.isnan(unbounded.epsilon_factor)
    assert "no louder gains will be seen" in str(unbounded)
    assert unbounded.to_document()["epsilon_factor"] is None


@settings(deadline=None, max_examples=full(40, 12))
@given(
    gain=st.floats(0.05, 2.0),
    rounds=st.integers(1, 10),
    parameter=st.floats(0.01, 0.2),
    analog=st.booleans(),
)
def test_the_law_of_the_loss_agrees_with_the_accountant(
    gain: float, rounds: int, parameter: float, analog: bool
) -> None:
    uplink = (
        flmc.Analog(clip=1.0) if analog else flmc.Digital(link=flmc.Sigmoid(parameter), clip=20.0)
    )
    scene = Scene(uplink, gain, 5, 2, rounds)
    law = loss_law(scene, canary(scene), neighbour(scene))
    # The step of the grid and what the accountant rounds up.
    assert law.epsilon(0.01) == pytest.approx(scene.event.epsilon(0.01), rel=0.01, abs=0.01)


def test_the_command_states_its_resolution_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *SIZES, "--trials", "20000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("before the attack on 1 round: an epsilon understated by more than")
    assert "will be seen with 95 %" in lines[0]
    example = ("--neighbouring", "example", "--example-clip", "5")
    assert main(["audit", *SIZES, *example, "--trials", "2000", "--json"]) == 0
    for each in json.loads(capsys.readouterr().out)["audits"]:
        assert each["neighbouring"] == "example"
        assert each["loudest"] <= 1 + 1e-9
        assert {"epsilon_factor", "gain_factor", "seen_with", "powers"} == set(each["resolution"])
