"""Every registered link is a probability, never decreases, and what it says of itself is true."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

import flmc
from contracts.registered import links
from flmc.privacy.bit_event import BitEvent

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


SCALES = (1e-3, 0.1, 1.0)
"""Shares of the clip at which a link's shape is looked at: it may bend in any of them."""


@pytest.mark.parametrize("name", links())
def test_what_a_link_says_of_itself_is_seen_in_its_numbers(name: str) -> None:
    """A probability is right to 5e-16 and a difference of two to 1e-15, so the second difference of
    their logarithms, whose weights are 1, -2 and 1, to 4e-15 over the smallest of them."""
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    for scale in SCALES:
        g = scale * CLIP * np.linspace(-1.0, 1.0, 401)
        values = link.probability(g)
        if link.monotone:
            assert (np.diff(values) >= -1e-15).all()
        if link.odd:
            np.testing.assert_allclose(link.probability(-g), 1.0 - values, atol=2e-15)
        if link.log_concave:
            density = np.diff(values)
            assert (density > 0).all()
            bend = np.diff(np.log(density), 2)
            assert (bend <= 4e-15 / density.min()).all()
    assert link.accounts_moves <= (link.monotone and link.odd and link.log_concave)


@pytest.mark.parametrize("name", links())
def test_moves_are_those_of_the_probability(name: str) -> None:
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    if not link.accounts_moves:
        event = flmc.Digital(link=link, clip=CLIP, example_clip=1.0).privacy_event
        assert isinstance(event([(0.2, 5)], "example"), BitEvent)
        return
    g, shift = np.linspace(-CLIP, CLIP - 2.0, 201), 2.0
    moved, low, high = link.moved(g, shift), link.probability(g), link.probability(g + shift)
    np.testing.assert_allclose(moved.low, low, atol=1e-15)
    np.testing.assert_allclose(moved.gap, high - low, atol=1e-15)
    np.testing.assert_allclose(moved.miss, 1.0 - high, atol=1e-15)


@pytest.mark.parametrize("name", links())
def test_a_family_of_slopes_has_the_slopes_that_are_asked_for(name: str) -> None:
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    for slope in (1e-4, 0.02, 3.0):
        other = link.with_slope(slope, CLIP)
        if other is not None:
            assert type(other) is type(link)
            assert other.slope(CLIP) == pytest.approx(slope, rel=1e-12)
            flmc.Digital(link=other, clip=CLIP)


@pytest.mark.parametrize("name", links())
def test_the_curve_is_the_mean_bit(name: str) -> None:
    link = flmc.Digital(link=links()[name], clip=CLIP).link
    curve, g = link.curve(CLIP), np.linspace(-CLIP, CLIP, 401)
    if curve is not None:
        library = np if hasattr(np, curve.function) else scipy.special
        mean = curve.height * getattr(library, curve.function)(curve.factor * g)
        np.testing.assert_allclose(mean, link.mean(g, CLIP), rtol=1e-12, atol=1e-15)


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
