"""R-hat and effective sample sizes: of chains whose memory is known, and of chains that have not
met."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.sampling.path import ChainPath


@pytest.fixture(scope="module")
def result() -> flmc.Result:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(
        model, flmc.Digital(), num_rounds=1200, num_burn_in=200, start="zero", forecast=False
    )
    return flmc.run(plan, model, chains=8, engine="numpy")


def test_effective_sizes_of_a_chain_of_known_memory(result: flmc.Result) -> None:
    """An autoregression of memory rho: n (1 - rho)/(1 + rho) independent draws."""
    rng, rho = np.random.default_rng(0), 0.8
    noise = rng.standard_normal((3, 4, 5000, 2)) * np.sqrt(1 - rho**2)
    chains = np.zeros_like(noise)
    for t in range(1, 5000):
        chains[:, :, t] = rho * chains[:, :, t - 1] + noise[:, :, t]
    found = flmc.diagnose(replace(result, path=ChainPath.of_draws(chains[:, :, 100:])))
    assert found.r_hat.shape == found.ess_bulk.shape == found.ess_tail.shape == (3, 2)
    # Six estimates; each is off by some per cent, because the autocorrelations are estimated.
    np.testing.assert_allclose(found.ess_bulk, 4 * 4900 * (1 - rho) / (1 + rho), rtol=0.2)
    assert found.agreed
    assert "R-hat at most 1.00" in str(found)


def test_chains_that_have_not_met(result: flmc.Result) -> None:
    """One of eight chains elsewhere; and all of them on their way: split R-hat sees both."""
    assert result.chains is not None
    apart = result.chains.copy()
    apart[:, 0] += 1.0
    assert not flmc.diagnose(replace(result, path=ChainPath.of_draws(apart))).agreed
    moving = result.chains + np.linspace(0, 0.3, result.chains.shape[2])[:, None]
    assert "more burn-in" in str(flmc.diagnose(replace(result, path=ChainPath.of_draws(moving))))


def test_a_real_run_and_its_record(result: flmc.Result, tmp_path: Path) -> None:
    """The memory of the Langevin equation along entry i, as predicted for the metrics, is what is
    found."""
    found = flmc.diagnose(result)
    assert result.metrics is not None
    # Two estimates of one kind of number: the bulk size estimates autocorrelations of ranks, off by
    # up to 20 % (above), and the metric weights entries by their variance.
    assert found.ess_bulk.mean() == pytest.approx(result.metrics.independent_draws, rel=0.3)
    again = flmc.diagnose(flmc.load(result.save(tmp_path / "run")))
    np.testing.assert_array_equal(found.r_hat, again.r_hat)


def test_what_cannot_be_diagnosed(result: flmc.Result) -> None:
    with pytest.raises(InvalidSetting, match="keep_draws=True"):
        flmc.diagnose(replace(result, path=None))
    assert result.chains is not None
    with pytest.raises(InvalidSetting, match="at least 4 kept rounds, got 3"):
        flmc.diagnose(replace(result, path=ChainPath.of_draws(result.chains[:, :, :3])))
