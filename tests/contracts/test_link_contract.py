"""Every registered link is a probability, never decreases, and states its slope and extremes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from contracts.registered import links

CLIP = 30.0


@pytest.mark.parametrize("name", links())
def test_a_monotone_probability(name: str) -> None:
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    g = np.linspace(-CLIP, CLIP, 4001)
    values = link.probability(g)
    assert ((values >= 0) & (values <= 1)).all()
    assert (np.diff(values) >= -1e-15).all()  # one rounding of a number below 1
    assert (values[-1], values[0]) == link.extremes(CLIP)
    np.testing.assert_allclose(link.mean(g, CLIP), 2 * values - 1)


@pytest.mark.parametrize("name", links())
def test_the_slope_is_that_of_the_mean_bit(name: str) -> None:
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    if link.jumps:
        with pytest.raises(flmc.errors.InvalidSetting, match="has no slope"):
            link.slope(CLIP)
        return
    h = 1e-4
    low, high = link.mean(np.array([-h, h]), CLIP)
    assert link.slope(CLIP) == pytest.approx((high - low) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("name", links())
@given(seed=st.integers(0, 2**32))
def test_bits_are_bits(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    uplink = flmc.Digital(link=links()[name], clip=CLIP)
    gradient = rng.normal(scale=20, size=(5, 3))
    gradient[0, 0] = np.nan
    assert set(np.unique(uplink.symbols(gradient, rng.random((5, 3))))) <= {-1.0, 1.0}


@pytest.mark.parametrize("name", links())
def test_the_event_is_that_of_the_extremes(name: str) -> None:
    uplink = flmc.Digital(link=links()[name], clip=CLIP)
    event = uplink.privacy_event([(0.2, 5)])
    assert 0 <= event.delta(1.0) <= 1
    assert event.epsilon(0.01) <= event.largest_loss
    loud = uplink.privacy_event([(0.4, 5)])
    assert event.epsilon(0.01) <= loud.epsilon(0.01)
