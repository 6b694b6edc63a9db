"""Plans say what they drop, what their gain is, and when a step is unstable."""

from __future__ import annotations

import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.settings.construction import make_uplink
from flmc.settings.schema import Settings


def _model(experiments: int = 1) -> flmc.LinearGaussian:
    data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4, num_experiments=experiments)
    return flmc.LinearGaussian(data)


def test_the_ideal_uplink_refuses_policies_by_channel() -> None:
    with pytest.raises(InvalidSetting, match="has no channel"):
        flmc.plan(
            _model(),
            flmc.Ideal(),
            num_rounds=20,
            num_burn_in=10,
            scheduler=flmc.ThresholdDevices(0.03),
        )


def test_the_ideal_scheme_refuses_a_fading() -> None:
    with pytest.raises(InvalidSetting, match="ideal has none, got fading = 'rayleigh'"):
        make_uplink(Settings.model_validate({"scheme": "ideal", "fading": "rayleigh"}))


def test_a_gain_below_the_limit_that_decides_is_explained() -> None:
    uplink = flmc.Digital(fading=flmc.RayleighFading(), snr_db=10)
    plan = flmc.plan(_model(), uplink, num_rounds=60, num_burn_in=30)
    assert plan.binding == "power"
    assert plan.typical_gain < 0.99 * plan.gain_limits.power
    (gain,) = [row for row in plan.listing().rows if row.label == "gain"]
    assert "over rounds: in deep fades" in gain.text


@pytest.mark.parametrize(("relative", "told"), [(1.9, False), (57.0, True)])
def test_a_step_is_unstable_above_two_over_the_smoothness(relative: float, told: bool) -> None:
    model = _model()
    assert model.smoothness is not None
    step = relative / model.smoothness
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=20, num_burn_in=10, step_size=step)
    assert ("unstable-step" in {each.code for each in plan.findings}) is told


def test_draws_by_chain_name_their_axes() -> None:
    model = _model(experiments=2)
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=14, num_burn_in=10)
    result = flmc.run(plan, model, chains=3, engine="numpy")
    assert result.draws_by_chain.shape == (2, 3, 4, 5)
    assert (result.draws_by_chain[1, 0] == result.draws[3]).all()
    bare = flmc.run(plan, model, chains=3, engine="numpy", keep_draws=False)
    with pytest.raises(InvalidSetting, match="keep_draws"):
        _ = bare.draws_by_chain
