"""Epsilon over the rounds of a plan against plans of so many rounds."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.planning.privacy_curve import privacy_over_rounds, rounds_to_show


@pytest.mark.parametrize(
    "uplink", [flmc.Digital(), flmc.Analog()], ids=lambda uplink: str(uplink.scheme)
)
def test_first_rounds_cost_what_a_shorter_run_costs(
    model: flmc.LinearGaussian, uplink: flmc.Uplink
) -> None:
    plan = flmc.plan(model, uplink)
    gain = float(plan.gain.max())
    for count, epsilon in privacy_over_rounds(plan, (1, 40, 300)):
        shorter = flmc.plan(model, uplink, num_rounds=count, num_burn_in=0, gain=gain)
        assert shorter.run_cost is not None
        assert epsilon == pytest.approx(shorter.run_cost.epsilon, rel=1e-9)


def test_gains_that_change_over_rounds(model: flmc.LinearGaussian) -> None:
    """Quiet rounds first: the curve of the whole run ends at the plan's own cost."""
    gain = np.geomspace(0.01, 0.2, 300)[:, None]
    plan = flmc.plan(model, flmc.Analog(), gain=0.001 * gain)
    curve = list(privacy_over_rounds(plan, rounds_to_show(300)))
    epsilons = [epsilon for _, epsilon in curve]
    assert plan.run_cost is not None
    assert epsilons == sorted(epsilons)
    assert epsilons[-1] == plan.run_cost.epsilon


def test_nothing_is_told_where_nothing_is_known(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Ideal())
    assert list(privacy_over_rounds(plan, (1, 300))) == []


def test_counts_are_whole_and_end_at_the_last_round() -> None:
    assert rounds_to_show(1) == (1,)
    assert rounds_to_show(2) == (1, 2)
    assert rounds_to_show(100_000)[-1] == 100_000
