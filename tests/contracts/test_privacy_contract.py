"""Privacy is asked of the uplink and answered by the event. What is unknown is refused only where a
privacy statement is asked for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import flmc
from contracts.registered import model, schemes
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.privacy.event import CRITERIA, Event
from flmc.uplink.symbol_format import SymbolFormat


class Ternary(flmc.Uplink):
    """An uplink of a user's own, of which no privacy is known: -1, 0 or +1."""

    scheme: ClassVar[str] = "ternary"
    randomised: ClassVar[bool] = True

    @property
    def symbol_format(self) -> SymbolFormat:
        """Three levels."""
        return SymbolFormat((-1.0, 0.0, 1.0))

    @property
    def bit_variance(self) -> float:
        """Bound of the largest variance."""
        return 1.0

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol."""
        return 1.0

    @property
    def slope(self) -> float:
        """The mean symbol is g/clip."""
        return 1.0 / self.clip

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """The sign, with probability \\|g\\|/clip."""
        assert uniform is not None
        clipped = self.clipped(gradient)
        return np.sign(clipped) * (uniform < np.abs(clipped) / self.clip)

    def mean_symbol(self, gradient: Array) -> Array:
        """Expected symbol."""
        return self.clipped(gradient) / self.clip

    def symbol_variance(self, gradient: Array) -> Array:
        """\\|g\\|/clip - (g/clip)^2."""
        mean = self.mean_symbol(gradient)
        return np.abs(mean) - mean**2


@pytest.mark.parametrize("name", schemes())
def test_every_scheme_states_its_event_or_says_why_not(name: str) -> None:
    uplink = schemes()[name]
    if uplink.noise_is_exact:
        with pytest.raises(UnknownPrivacy, match="hides nothing"):
            uplink.privacy_event([(0.1, 5)])
        return
    event = uplink.privacy_event([(0.1, 5)])
    assert isinstance(event, Event)
    for criterion in CRITERIA:
        epsilon = event.epsilon(0.01, criterion, 20)
        assert 0 < epsilon < math.inf
        assert event.delta(epsilon * (1 + 1e-6), criterion, 20) <= 0.01 * (1 + 1e-6)
        gain = uplink.privacy_event([(1.0, 5)]).allowed_gain(1.0, 0.01, criterion, 20)
        spent = uplink.privacy_event([(gain, 5)]).delta(1.0, criterion, 20)
        assert spent <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize(
    "limits",
    [flmc.Limits(privacy="off"), flmc.Limits(epsilon=5, privacy="off"), flmc.Limits()],
    ids=["off", "off with epsilon", "no budget"],
)
def test_an_own_uplink_without_privacy_does_everything(limits: flmc.Limits, tmp_path: Path) -> None:
    problem = model()
    plan = flmc.plan(problem, Ternary(), limits, num_rounds=200, num_burn_in=50)
    assert "no privacy guarantee is known for the ternary uplink" in str(plan)
    assert plan.to_document()["privacy"] is None
    assert "not proven" in plan.to_document()["unknown_privacy"]
    result = flmc.run(plan, problem, seed=1, chains=3, out=tmp_path / "record")
    assert result.engine == "numpy"
    assert "variance ratio" in str(result)
    assert len(flmc.load(tmp_path / "record").ledger) == 200
    again = flmc.Plan.from_document(plan.to_document(), uplink=Ternary())
    assert again.digest == plan.digest
    uplinks = {"ternary": Ternary(), "digital": flmc.Digital()}
    table = flmc.compare(uplinks, problem, limits, chains=2, num_rounds=100, num_burn_in=50)
    assert "ternary" in str(table)


def test_an_own_uplink_is_refused_where_a_statement_is_asked_for(tmp_path: Path) -> None:
    problem = model()
    with pytest.raises(UnknownPrivacy, match=r"ternary uplink \(Ternary\): its worst-case pair"):
        flmc.plan(problem, Ternary(), flmc.Limits(epsilon=5))
    plan = flmc.plan(problem, Ternary(), flmc.Limits(privacy="off"))
    flmc.run(plan, problem, seed=1, out=tmp_path / "record")
    with pytest.raises(InvalidSetting, match="not proven"):
        flmc.spent(flmc.load(tmp_path / "record"), plan)


def test_a_subclass_that_transmits_in_its_own_way_loses_the_proof() -> None:
    class Louder(flmc.Digital):
        def symbols(self, gradient: Array, uniform: Array | None) -> Array:
            return 3.0 * super().symbols(gradient, uniform)

    with pytest.raises(UnknownPrivacy, match=r"Louder"):
        Louder().privacy_event([(1.0, 5)])


def test_an_own_event_is_believed() -> None:
    """A user who has a proof states her event, and planning takes it."""

    class Proven(Ternary):
        def privacy_event(
            self,
            transmissions: object,
            neighbouring: str = "device",
        ) -> Event:
            return flmc.Digital(clip=self.clip).privacy_event(transmissions, neighbouring)  # type: ignore[arg-type]

    plan = flmc.plan(model(), Proven(), flmc.Limits(epsilon=5))
    assert plan.round_cost is not None
    assert plan.round_cost.epsilon <= 5 * (1 + 1e-9)
