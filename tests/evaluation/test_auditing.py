"""Attacks on the uplink: broken mechanisms are caught, the real one is not refuted."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.cli import main
from flmc.evaluation import audit as auditing
from flmc.evaluation.audit import bounds
from flmc.evaluation.audit.attack import audit
from flmc.evaluation.audit.bounds import lower_bound
from flmc.evaluation.audit.scene import Scene
from flmc.privacy import gaussian
from flmc.sampling.roles import Transmission, air, device
from support import full, full_only, many_repetitions, repeated

SCENE = Scene(flmc.Digital(), 0.3, 5, 2, 1)


def without_noise(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    return auditing.transmit(
        replace(scene, uplink=flmc.replace(scene.uplink, noise_power=1e-12)), gradient, trials, rng
    )


def too_loud(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    return auditing.transmit(replace(scene, gain=1.2 * scene.gain), gradient, trials, rng)


def always_the_same(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    seed = int(rng.integers(2**60))
    once = replace(scene, num_rounds=1)
    parts = [
        auditing.transmit(once, g[None], trials, np.random.default_rng(seed)) for g in gradient
    ]
    return tuple(np.concatenate(each, axis=1) for each in zip(*parts, strict=True))  # type: ignore[return-value]


@full_only
@many_repetitions
@pytest.mark.parametrize(
    ("broken", "rounds", "trials"),
    [(without_noise, 1, 20_000), (too_loud, 1, 400_000), (always_the_same, 4, 20_000)],
    ids=["no noise", "gain 20 % too large", "the same numbers every round"],
)
def test_broken_mechanisms_are_caught(broken: Any, rounds: int, trials: int) -> None:
    """At least 95 % of the seeds, at delta 0.01."""
    seeds = repeated(40, 10, 4)
    scene = replace(SCENE, num_rounds=rounds)
    caught = sum(audit(scene, 0.01, trials, seed, transmit=broken).broken for seed in range(seeds))
    assert caught >= 0.95 * seeds


@many_repetitions
@full_only
@pytest.mark.parametrize(
    "uplink", [flmc.Digital(), flmc.Analog(clip=1.0), flmc.Digital(link=flmc.Sign())], ids=str
)
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_real_mechanism_is_not_refuted(uplink: flmc.Uplink, rounds: int) -> None:
    scene = Scene(uplink, 0.3, 5, 2, rounds)
    for seed in range(repeated(40, 10, 4)):
        found = audit(scene, 0.01, 50_000, seed)
        assert not found.broken
        # The attack finds most of what the accountant allows, as far as 50 000 trials can tell.
        assert found.lower > 0.6 * min(found.upper, 4.0)


def test_lower_bounds_hold() -> None:
    """For two normals at distance 1 the bound is below the true epsilon in nearly all of many
    attacks."""
    truth = gaussian.epsilon(0.01, 1.0)
    rng = np.random.default_rng(3)
    values = [
        lower_bound(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000), 0.01, confidence=0.99)
        for _ in range(full(300, 60))
    ]
    # At most 1 % may exceed the truth; of 300 attacks 9 or more would with a probability of 0.4 %.
    assert np.mean(np.array(values) > truth) < 0.03
    assert np.median(values) > 0.75 * truth


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog(clip=1.0)], ids=str)
def test_trials_go_through_the_round_as_if_each_had_its_own_gradients(uplink: flmc.Uplink) -> None:
    """What is transmitted is what the roles make of a full array of gradients, but for the rounding
    of the server, which divides by the gain."""
    scene, trials = Scene(uplink, 0.3, 5, 4, 3), 50
    gradient = auditing.canary(scene)
    received, known = auditing.transmit(scene, gradient, trials, np.random.default_rng(2))
    rng = np.random.default_rng(2)
    full_shape = (trials, 3, 4, 5)
    uniform = rng.random(full_shape) if uplink.randomised else None
    normal = rng.standard_normal((trials, 3, 5))
    local = np.empty(full_shape)
    local[:, :, 0] = gradient
    local[:, :, 1:] = uplink.clip * np.linspace(-1.0, 1.0, 15).reshape(3, 5)
    fading, gain = np.full((3, 4, 5), 0.04), np.full((3, 5), 0.3)
    sent = device(local, uniform, uplink, gain, fading)
    np.testing.assert_allclose(received, air(sent, fading, normal), rtol=1e-15)
    own = Transmission(sent.symbols[:, :, :1], sent.amplitude[:, :1])
    np.testing.assert_allclose(
        received - known, air(own, fading[:, :1], normal), rtol=0, atol=1e-12 * uplink.clip
    )


def test_what_follows_from_the_gradients_is_computed_once_for_many_trials() -> None:
    class Counted(flmc.Sigmoid):
        """A link that counts the entries it is asked about."""

        entries = 0

        def probability(self, g: Array) -> Array:
            Counted.entries += g.size
            return super().probability(g)

    scene = Scene(flmc.Digital(link=Counted(0.05)), 0.3, 5, 20, 4)
    asked = []
    for trials in (10, 1000):
        Counted.entries = 0
        auditing.transmit(scene, auditing.canary(scene), trials, np.random.default_rng(1))
        asked.append(Counted.entries)
    assert asked[0] == asked[1]


@pytest.mark.parametrize("hits", [0, 1, 37, 5000, 9999, 10_000])
def test_bounds_of_a_rate_are_those_of_clopper_and_pearson(hits: int) -> None:
    """At the bound, so many hits or more (or fewer) have just the allowed probability."""
    from scipy.stats import binom

    count, error = 10_000, 2.5e-4
    below = bounds._rate_below(hits, count, error)
    above = bounds._rate_above(hits, count, error)
    assert below <= hits / count <= above
    if hits > 0:
        assert binom.sf(hits - 1, count, below) == pytest.approx(error, rel=1e-8)
    if hits < count:
        assert binom.cdf(hits, count, above) == pytest.approx(error, rel=1e-8)


def test_audit_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["audit", "--trials", "5000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["num_rounds"] for each in document["audits"]] == [1, 4]
    assert all(each["lower"] < each["upper"] for each in document["audits"])
    # One round, and four of them.
    once, short = (each["risk"]["accuracy"] for each in document["audits"])
    assert 0.5 < once < short <= 1.0
    assert main(["audit", "--scheme", "ideal"]) == 2
    assert main(["audit", "--trials", "10"]) == 2
    capsys.readouterr()
    monkeypatch.setattr(
        auditing.audit,
        "__kwdefaults__",
        {**(auditing.audit.__kwdefaults__ or {}), "transmit": without_noise},
    )
    assert main(["audit", "--trials", "20000"]) == 1
    captured = capsys.readouterr()
    assert "REFUTED" in captured.out
    assert "is broken" in captured.err
