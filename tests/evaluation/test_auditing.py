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
from flmc.evaluation import auditing
from flmc.evaluation.auditing import Scene, audit, lower_bound
from flmc.privacy import gaussian
from support import full

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


@pytest.mark.parametrize(
    ("broken", "rounds", "trials"),
    [(without_noise, 1, 20_000), (too_loud, 1, 400_000), (always_the_same, 4, 20_000)],
    ids=["no noise", "gain 20 % too large", "the same numbers every round"],
)
def test_broken_mechanisms_are_caught(broken: Any, rounds: int, trials: int) -> None:
    """At least 95 % of 40 seeds, at delta 0.01."""
    seeds = full(40, 4)
    scene = replace(SCENE, num_rounds=rounds)
    caught = sum(audit(scene, 0.01, trials, seed, transmit=broken).broken for seed in range(seeds))
    assert caught >= 0.95 * seeds


@pytest.mark.parametrize(
    "uplink", [flmc.Digital(), flmc.Analog(clip=1.0), flmc.Digital(link=flmc.Sign())], ids=str
)
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_real_mechanism_is_not_refuted(uplink: flmc.Uplink, rounds: int) -> None:
    scene = Scene(uplink, 0.3, 5, 2, rounds)
    for seed in range(full(40, 4)):
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


def test_audit_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["audit", "--trials", "5000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["num_rounds"] for each in document["audits"]] == [1, 4]
    assert all(each["lower"] < each["upper"] for each in document["audits"])
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
