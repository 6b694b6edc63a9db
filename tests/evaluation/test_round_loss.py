"""The law of a round's loss against the accountant, which shares nothing with it."""

from __future__ import annotations

import pytest

import flmc
from flmc.evaluation.audit.likelihood_ratio import loss_of_round

UPLINKS = {
    "digital": flmc.Digital(),
    "analog": flmc.Analog(),
    "probit": flmc.Digital(link=flmc.Probit()),
    "fading": flmc.Digital(fading=flmc.RayleighFading()),
}


@pytest.mark.parametrize("name", UPLINKS)
def test_its_epsilon_is_that_of_the_accountant(model: flmc.LinearGaussian, name: str) -> None:
    plan = flmc.plan(model, UPLINKS[name], flmc.Limits(epsilon=2, delta=0.01))
    law = loss_of_round(plan)
    assert law is not None
    assert plan.round_cost is not None
    # The step of the law's grid, and the accountant's slack, are far below a per cent.
    assert law.epsilon(0.01) == pytest.approx(plan.round_cost.epsilon, rel=0.01)
    assert law.first.sum() == pytest.approx(1, abs=1e-9)


def test_nothing_is_told_where_nothing_is_known(model: flmc.LinearGaussian) -> None:
    assert loss_of_round(flmc.plan(model, flmc.Ideal())) is None
    unsure = flmc.Digital(csi_error=0.1)
    assert loss_of_round(flmc.plan(model, unsure, flmc.Limits(privacy="off"))) is None
