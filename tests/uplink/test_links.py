"""Links: what is derived from `probability`, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.link import Link, quantise


class Cauchy(Link):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def probability(self, g: Array) -> Array:
        return np.asarray(0.5 + np.arctan(g / self.scale) / np.pi)


LINKS = [flmc.Sigmoid(0.05), flmc.Probit(0.03), flmc.Linear(0.9).bound_to(30.0), Cauchy(20.0)]
SMOOTH = [*LINKS, flmc.Sign()]


@pytest.mark.parametrize("link", SMOOTH, ids=lambda link: type(link).__name__)
def test_bits_have_the_promised_probability(link: Link) -> None:
    """Contract of every link: bits are -1 or +1 and their mean is 2 Phi(g) - 1, within 5 standard
    errors."""
    rng = np.random.default_rng(1)
    gradient = np.array([-30.0, -7.0, -1.0, 0.0, 2.0, 11.0, 30.0])
    bits = quantise(
        link.bounded_probability(np.broadcast_to(gradient, (100_000, 7)), 30.0),
        rng.random((100_000, 7)),
    )
    assert set(np.unique(bits)) <= {-1.0, 1.0}
    se = np.sqrt((1 - link.mean(gradient, 30.0) ** 2) / 100_000)
    assert (np.abs(bits.mean(axis=0) - link.mean(gradient, 30.0)) <= 5 * se + 1e-12).all()


@pytest.mark.parametrize(
    ("link", "slope"),
    [
        (flmc.Sigmoid(0.05), 0.025),
        (flmc.Probit(0.03), 0.06 / np.sqrt(2 * np.pi)),
        (flmc.Linear(0.9), 0.03),
        (Cauchy(20.0), 2 / (20 * np.pi)),
    ],
)
def test_slope(link: Link, slope: float) -> None:
    assert link.bound_to(30.0).slope(30.0) == pytest.approx(slope, rel=1e-8)
    derived = Link.slope(link.bound_to(30.0), 30.0)
    assert derived == pytest.approx(slope, rel=1e-8)


@pytest.mark.parametrize("link", LINKS, ids=lambda link: type(link).__name__)
def test_variance_and_extremes(link: Link) -> None:
    uplink = flmc.Digital(link=link)
    gradient = np.linspace(-40, 40, 17)
    np.testing.assert_allclose(
        uplink.symbol_variance(gradient), 1 - uplink.mean_symbol(gradient) ** 2
    )
    high, low = uplink.link.extremes(30.0)
    assert high == pytest.approx(1 - low)
    assert uplink.mean_symbol(np.array([1e9]))[0] == pytest.approx(2 * high - 1)


def test_sign_is_deterministic_and_refused_for_calibration(model: flmc.LinearGaussian) -> None:
    uplink = flmc.Digital(link=flmc.Sign())
    np.testing.assert_array_equal(
        uplink.symbols(np.array([-0.1, 3.0]), np.array([0.0, 0.999])), [-1.0, 1.0]
    )
    with pytest.raises(InvalidSetting, match="no slope"):
        flmc.plan(model, uplink)
    plan = flmc.plan(model, uplink, flmc.Limits(langevin="paper"))
    assert plan.temperature is None
    assert np.isfinite(flmc.run(plan, model, seed=1).draws).all()


def test_an_infinitely_steep_link_has_no_slope() -> None:
    class Steep(Link):
        def probability(self, g: Array) -> Array:
            return np.asarray(0.5 + 0.5 * np.sign(g) * np.abs(g / 30.0) ** 0.8)

    with pytest.raises(InvalidSetting, match="no slope"):
        _ = flmc.Digital(link=Steep()).slope


class _Shifted(Link):
    def __init__(self, values: str) -> None:
        self.values = values

    def probability(self, g: Array) -> Array:
        table: dict[str, Array] = {
            "falls": 0.5 - 0.01 * g,
            "above one": 0.5 + g,
            "flat": np.full_like(g, 0.5),
            "scalar": np.float64(0.5),  # type: ignore[dict-item]
            "low": 0.3 + 0.005 * g,
            "nan": np.full_like(g, np.nan),
        }
        return table[self.values]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ("falls", "never decrease"),
        ("above one", r"\[0, 1\]"),
        ("flat", "must rise from below 1/2"),
        ("low", "must rise from below 1/2"),
        ("scalar", "one probability per entry"),
        ("nan", r"\[0, 1\]"),
    ],
)
def test_wrong_links_are_refused(values: str, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.Digital(link=_Shifted(values))


def test_a_link_that_is_flat_at_zero_is_refused_for_calibration(model: flmc.LinearGaussian) -> None:
    class DeadZone(Link):
        def probability(self, g: Array) -> Array:
            return np.asarray(np.clip(0.5 + 0.01 * np.sign(g) * np.maximum(np.abs(g) - 5, 0), 0, 1))

    with pytest.raises(InvalidSetting, match="must rise at 0"):
        flmc.plan(model, flmc.Digital(link=DeadZone()))


def test_linear_link_takes_the_uplinks_clip() -> None:
    uplink = flmc.Digital(link=flmc.Linear(1.0), clip=10.0)
    assert uplink.slope == 0.1
    assert flmc.replace(uplink, clip=20.0).slope == 0.05
    with pytest.raises(InvalidSetting, match="from the uplink"):
        flmc.Linear(1.0).probability(np.zeros(1))


@given(st.floats(1e-4, 1.0), st.floats(0.1, 1e3), st.floats(-1e4, 1e4))
def test_sigmoid_is_symmetric_and_bounded(a: float, clip: float, g: float) -> None:
    uplink = flmc.Digital(link=flmc.Sigmoid(a), clip=clip)
    up, down = uplink.mean_symbol(np.array([g, -g]))
    assert up == pytest.approx(-down, abs=1e-12)
    high, low = uplink.link.extremes(clip)
    assert abs(up) <= high - low + 1e-12


class Sneaky(Link):
    """A sigmoid at the points of the check; certain, or undefined, between them."""

    def __init__(self, middle: float) -> None:
        self.middle = middle

    def probability(self, g: Array) -> Array:
        hidden = (np.abs(g) > 0.001) & (np.abs(g) < 0.029)
        return np.where(
            hidden, np.where(g > 0, self.middle, 1 - self.middle), 1 / (1 + np.exp(-0.05 * g))
        )


@pytest.mark.parametrize("middle", [1.0, float("nan")])
def test_a_link_cannot_say_more_between_the_points_of_the_check(middle: float) -> None:
    """Whatever it returns, a device uses a probability between those at the clip."""
    uplink = flmc.Digital(link=Sneaky(middle))
    high, low = uplink.link.extremes(30.0)
    used = uplink.link.bounded_probability(np.array([0.01, -0.01, 0.02]), 30.0)
    assert ((used >= low) & (used <= high)).all()
    bits = uplink.symbols(np.full(10_000, 0.01), np.random.default_rng(0).random(10_000))
    assert set(np.unique(bits)) == {-1.0, 1.0}
