"""A privacy statement belongs to the class that decides what is transmitted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import UnknownPrivacy
from flmc.models.model import Model
from flmc.privacy.event import Event
from flmc.uplink.quantised import Quantised
from flmc.uplink.symbol_format import SymbolFormat

Sent = Iterable[tuple[float, int]]


class Unclipped:
    """Mixin that takes gradients of examples as they are."""

    def local_gradients(
        self, model: Model, theta: Array, experiments: slice = slice(None)
    ) -> Array:
        return model.gradient(theta, experiments)


class UnclippedAnalog(Unclipped, flmc.Analog):
    pass


class UnclippedDigital(Unclipped, flmc.Digital):
    pass


class Doubled(flmc.Analog):
    def clipped(self, gradient: Array) -> Array:
        return 2.0 * super().clipped(gradient)


class Stated(UnclippedAnalog):
    """States what it reveals itself: as much as a whole device."""

    def privacy_event(self, transmissions: Sent, neighbouring: str = "device") -> Event:  # type: ignore[override]  # of `replace` alone
        return flmc.Analog(clip=self.clip).privacy_event(transmissions, "device")


class Loosened(Stated):
    """Changes what is sent below the class that states its privacy."""

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        return 3.0 * gradient


def _plan(uplink: flmc.Uplink, **limits: object) -> flmc.Plan:
    data = flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4)
    return flmc.plan(
        flmc.LinearGaussian(data),
        uplink,
        flmc.Limits(**{"neighbouring": "example", **limits}),  # type: ignore[arg-type]
        num_rounds=20,
        num_burn_in=10,
    )


@pytest.mark.parametrize("kind", [UnclippedAnalog, UnclippedDigital, Doubled, Loosened])
@pytest.mark.parametrize("neighbouring", ["device", "example"])
@pytest.mark.parametrize("bound", ["example_clip", "example_norm"])
def test_who_changes_what_is_sent_inherits_no_statement(
    kind: type[flmc.Uplink], neighbouring: str, bound: str
) -> None:
    uplink = kind(**{bound: 4.0})  # type: ignore[arg-type]
    with pytest.raises(UnknownPrivacy, match=r"privacy_event itself|nothing is proven"):
        uplink.event_of_rounds(np.ones((1, 1)), 5, neighbouring)
    with pytest.raises(UnknownPrivacy, match=r"decides? what is received"):
        uplink.privacy_event([(1.0, 5)], neighbouring)


@pytest.mark.parametrize("kind", [UnclippedAnalog, UnclippedDigital])
def test_a_plan_without_a_statement_prints_none_and_refuses_a_budget(
    kind: type[flmc.Uplink],
) -> None:
    plan = _plan(kind(example_clip=4.0))
    assert plan.unknown_privacy is not None
    assert plan.run_cost is None
    assert "none: no privacy guarantee is known" in " ".join(str(plan).split())
    with pytest.raises(UnknownPrivacy):
        _plan(kind(example_clip=4.0), epsilon=1.0, scope="run")


def test_a_statement_of_a_user_is_printed_as_theirs() -> None:
    uplink = Stated(example_clip=4.0)
    assert uplink.privacy_stated_by == f"{__name__}:Stated"
    text = " ".join(str(_plan(uplink)).split())
    assert f"as stated by {__name__}:Stated" in text
    assert "(tight)" not in text
    assert "(tight:" not in text


class Plain(flmc.Link):
    """States nothing but its probability, from which flmc finds the extremes."""

    def probability(self, g: Array) -> Array:
        return np.asarray(0.5 + np.arctan(g / 20.0) / np.pi)


class Monotone(Plain):
    monotone = True


class Reset(flmc.Sigmoid):
    """Its own probability takes the shape that is known of a sigmoid away."""

    def probability(self, g: Array) -> Array:
        return np.asarray(0.5 + np.arctan(g / 20.0) / np.pi)


class Narrow(Plain):
    def extremes(self, clip: float) -> tuple[float, float]:
        return 0.501, 0.499


@pytest.mark.parametrize(
    ("uplink", "by"),
    [
        (flmc.Digital(link=Plain()), None),
        (flmc.Digital(link=Reset()), None),
        (flmc.Digital(link=Monotone()), "Monotone"),
        (flmc.Digital(link=Narrow()), "Narrow"),
        (flmc.Digital(link=Monotone(), csi_error=0.1), "Monotone"),
    ],
)
def test_facts_of_a_users_link_are_theirs(uplink: flmc.Uplink, by: str | None) -> None:
    """What flmc does not prove of a link, the statement does not claim as its own."""
    assert uplink.privacy_stated_by == (by and f"{__name__}:{by}")


@pytest.mark.parametrize("name", ["peak", "power_limit"])
def test_who_states_the_loudest_symbol_states_the_privacy(name: str) -> None:
    """Wrong estimates let symbols arrive louder than planned, by a bound that these two decide."""
    own = type("Own", (flmc.Analog,), {name: property(lambda self: 1.0), "__module__": __name__})
    assert own(csi_error=0.1).privacy_stated_by == f"{__name__}:Own"


@pytest.mark.parametrize("uplink", [flmc.Analog(), flmc.Digital(), flmc.Ideal()])
def test_statements_of_flmc_are_its_own(uplink: flmc.Uplink) -> None:
    assert uplink.privacy_stated_by is None


def test_compiled_engines_leave_own_local_gradients_alone() -> None:
    assert flmc.Analog.standard_symbols
    assert not UnclippedAnalog.standard_symbols


@dataclass(frozen=True)
class HalfSilent(Quantised):
    """Half of all symbols are 0, at the clip too."""

    scheme: ClassVar[str] = "half silent"

    @property
    def symbol_format(self) -> SymbolFormat:
        return SymbolFormat((-1.0, 0.0, 1.0))

    def level_probabilities(self, gradient: Array) -> Array:
        x = np.asarray(gradient) / self.clip
        return np.stack([0.25 * (1 - x), 0.5 + 0 * x, 0.25 * (1 + x)], axis=-1)


@dataclass(frozen=True)
class Ternary(HalfSilent):
    """The sign with the probability of the share of the clip, else 0: at the clip it is certain."""

    scheme: ClassVar[str] = "ternary"

    def level_probabilities(self, gradient: Array) -> Array:
        x = np.asarray(gradient) / self.clip
        return np.stack([np.maximum(-x, 0), 1 - np.abs(x), np.maximum(x, 0)], axis=-1)


def _exact_delta(epsilon: float, gain: float) -> float:
    """Hockey-stick divergence of one entry of ``HalfSilent`` at the clip, by quadrature, in noise
    of variance 1."""
    y = np.linspace(-14.0 - gain, 14.0 + gain, 400_001)

    def density(mean: float) -> Array:
        return np.asarray(np.exp(-((y - mean) ** 2) / 2) / np.sqrt(2 * np.pi))

    high, low = (0.5 * density(0.0) + 0.5 * density(mean) for mean in (gain, -gain))
    return float(np.maximum(high - np.exp(epsilon) * low, 0.0).sum() * (y[1] - y[0]))


def test_a_bound_that_is_not_exact_is_printed_as_one() -> None:
    """Half of the symbols tell nothing, and the event knows only that levels are 2 apart: its
    epsilon is more than twice the true one here, and a plan has to say so."""
    uplink, gain = HalfSilent(), 0.7
    stated = uplink.privacy_event([(gain, 1)]).epsilon(0.01)
    assert _exact_delta(stated / 2, gain) < 0.01
    reason = uplink.looseness("device")
    assert reason is not None
    assert "probability 0.5" in reason
    text = " ".join(str(_plan(uplink, neighbouring="device")).split())
    assert f"upper bound epsilon may be far above the least: {reason}" in text
    assert "(tight: an upper bound" in text
    assert Ternary().looseness("device") is None
    assert Ternary(example_clip=1.0).looseness("example") is not None
    assert "far above the least" not in str(_plan(Ternary(), neighbouring="device"))


def test_one_example_accounted_like_a_device_is_said() -> None:
    class Unproven(Plain):
        within_extremes = True

    for link, loose in ((Unproven(), True), (flmc.Sigmoid(), False)):
        uplink = flmc.Digital(link=link, example_clip=1.0)
        assert (uplink.looseness("example") is not None) == loose
        assert uplink.looseness("device") is None
