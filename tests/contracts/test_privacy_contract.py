"""Privacy is asked of the uplink and answered by the event, whose delta is never below the truth by
quadrature, for everything registered. What is unknown is refused only where a privacy statement is
asked for."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

import flmc
from contracts.privacy_truth import understated
from contracts.registered import links, model, schemes
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.privacy.bit_pairs import MovedBit
from flmc.privacy.event import Event
from flmc.uplink.noise import NoiseLaw
from flmc.uplink.quantised import Quantised
from flmc.uplink.symbol_format import SymbolFormat
from support import full_only


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


def with_every_link() -> dict[str, flmc.Uplink]:
    """Every scheme; one that has a link, with every link, and with a gentler one of its family."""
    found: dict[str, flmc.Uplink] = {}
    for name, uplink in schemes().items():
        if uplink.link is None:
            found[name] = uplink
            continue
        for link_name, each in links().items():
            link = each.bound_to(uplink.clip)
            found[f"{name} {link_name}"] = flmc.replace(uplink, link=link)
            slope = None if link.jumps else 0.3 * link.slope(uplink.clip)
            gentler = slope and link.with_slope(slope, uplink.clip)
            if gentler:
                found[f"{name} gentle {link_name}"] = flmc.replace(uplink, link=gentler)
    return found


LONG = {each for each in with_every_link() if each.startswith("digital ")} - {"digital sigmoid"}


@pytest.mark.parametrize(
    "name",
    [
        # Links share the code of the accountant, and gentler ones are the same with another slope:
        # few of them in a quick run.
        pytest.param(each, marks=full_only if each in LONG else ())
        for each in with_every_link()
    ],
)
def test_no_delta_is_below_the_truth(name: str) -> None:
    """The oracle knows the symbols alone. A scheme without privacy says so, and refuses."""
    uplink = with_every_link()[name]
    if uplink.noise_is_exact:
        for neighbouring in ("device", "example"):
            with pytest.raises(UnknownPrivacy, match="hides nothing"):
                uplink.privacy_event([(0.1, 5)], neighbouring)
        return
    assert not list(understated(uplink))


ONE_SIDED = ("add_remove", "zero_out")


@pytest.mark.parametrize("relation", ONE_SIDED)
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=full_only if each in LONG else ()) for each in with_every_link()],
)
def test_no_delta_of_another_relation_is_below_the_truth(name: str, relation: str) -> None:
    """A unit that is absent or put to zero, at both levels; both orders of the data sets."""
    uplink = with_every_link()[name]
    if uplink.noise_is_exact:
        with pytest.raises(UnknownPrivacy, match="hides nothing"):
            uplink.event_of_rounds(np.ones((1, 1)), 5, "device", relation=relation)
        return
    assert not list(understated(uplink, relation))


Sent = Iterable[tuple[float, int]]


class Softer(flmc.Digital):
    """States the event of gains that are 0.1 % smaller."""

    def privacy_event(self, transmissions: Sent, neighbouring: str = "device") -> Event:  # type: ignore[override]  # of `replace` alone
        softer = [(0.999 * gain, count) for gain, count in transmissions]
        return super().privacy_event(softer, neighbouring)


class OneSided(flmc.Analog):
    """Forgets that a value moves by twice the bound."""

    def privacy_event(self, transmissions: Sent, neighbouring: str = "device") -> Event:  # type: ignore[override]  # of `replace` alone
        halved = [(gain / 2, count) for gain, count in transmissions]
        return super().privacy_event(halved, neighbouring)


class FewerEntries(flmc.Analog):
    """Counts one entry of a run too few."""

    def privacy_event(self, transmissions: Sent, neighbouring: str = "device") -> Event:  # type: ignore[override]  # of `replace` alone
        fewer = [(gain, max(1, count - 1)) for gain, count in transmissions]
        return super().privacy_event(fewer, neighbouring)


@dataclasses.dataclass(frozen=True)
class Blunt(flmc.Sigmoid):
    """States that a move changes its bits by 0.1 % less than it does."""

    def moved(self, x: Array, shift: float) -> MovedBit:
        low, gap, miss, slope = super().moved(x, shift)
        return MovedBit(low, 0.999 * gap, miss + 0.001 * gap, slope)


class Levels(flmc.Analog):
    """A scheme of four levels, which states the event of values that are rounded by nobody."""

    randomised: ClassVar[bool] = True

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        assert uniform is not None
        step = 2 * self.clip / 3
        place = (self.clipped(gradient) + self.clip) / step
        return np.minimum(np.floor(place + uniform), 3.0) * step - self.clip

    def transmits_like(self, kind: type[flmc.Uplink]) -> bool:
        return True

    # Without statements of its own a class that changes the symbols has none.
    privacy_event = flmc.Analog.privacy_event
    shared_event = flmc.Analog.shared_event


@pytest.mark.parametrize(
    ("wrong", "where"),
    [
        (Softer, "device"),
        (OneSided, "example"),
        (FewerEntries, "3 x 4 entries"),
        (lambda: flmc.Digital(link=Blunt()), "example"),
        (Levels, "example"),
    ],
    ids=["softer", "one-sided", "fewer entries", "blunt link", "levels"],
)
def test_a_wrong_statement_is_caught(wrong: Callable[[], flmc.Uplink], where: str) -> None:
    assert any(where in words for words in understated(wrong()))


class FairZero(flmc.Digital):
    """States the event of a device put to zero for one that is silent."""

    def privacy_event(
        self, transmissions: Sent, neighbouring: str = "device", relation: str = "replace"
    ) -> Event:
        return super().privacy_event(transmissions, neighbouring, "zero_out")


class HalfExample(flmc.Analog):
    """Counts half of what an example adds."""

    def privacy_event(
        self, transmissions: Sent, neighbouring: str = "device", relation: str = "replace"
    ) -> Event:
        event = super().privacy_event(transmissions, neighbouring, relation)
        return event.scaled(0.5) if neighbouring == "example" else event


@pytest.mark.parametrize(
    ("wrong", "relation", "where"),
    [(FairZero, "add_remove", "device"), (HalfExample, "zero_out", "example")],
)
def test_a_wrong_statement_of_another_relation_is_caught(
    wrong: Callable[[], flmc.Uplink], relation: str, where: str
) -> None:
    assert any(where in words for words in understated(wrong(), relation))


@pytest.mark.parametrize("relation", ONE_SIDED)
def test_a_class_that_states_replace_alone_is_refused_by_name(relation: str) -> None:
    with pytest.raises(UnknownPrivacy, match=f"privacy_event of Softer.*{relation}"):
        Softer().event_of_rounds(np.ones((1, 1)), 5, relation=relation)


def test_examples_that_come_and_go_need_all_examples_in_every_round() -> None:
    uplink = flmc.Analog(example_norm=2.0, batch_share=0.5)
    rounds = np.ones((1, 1))
    with pytest.raises(UnknownPrivacy, match=r"needs batch_share 1, got 0\.5.*zero_out"):
        uplink.event_of_rounds(rounds, 5, "example", relation="add_remove")
    for each in (uplink, flmc.Digital(example_norm=2.0, batch_share=0.5)):
        with pytest.raises(UnknownPrivacy, match="needs batch_share 1"):
            each.privacy_event([(1.0, 5)], "example", "add_remove")
        with pytest.raises(UnknownPrivacy, match="needs batch_share 1"):
            each.shared_event(((1.0, 5),), 5, "example", "add_remove")
        with pytest.raises(InvalidSetting, match="relation must be one of"):
            each.privacy_event([(1.0, 5)], "example", "swap")
    kept = uplink.event_of_rounds(rounds, 5, "example", relation="zero_out")
    assert kept.mu == uplink.event_of_rounds(rounds, 5, "example").mu / 2


class Even(NoiseLaw):
    """Between the roots of 3 and minus that."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.sqrt(3.0) * (2.0 * rng.random(shape) - 1.0))


def test_silence_is_not_hidden_by_bits_alone() -> None:
    uplink = flmc.Digital(noise_law=Even())
    with pytest.raises(UnknownPrivacy, match="needs normal noise"):
        uplink.event_of_rounds(np.ones((1, 1)), 5, relation="add_remove")


class FourLevels(Quantised):
    """Four even levels, rounded at random; its privacy is the bound that every such scheme has."""

    scheme: ClassVar[str] = "four"

    @property
    def symbol_format(self) -> SymbolFormat:
        return SymbolFormat((-1.0, -1 / 3, 1 / 3, 1.0))

    @property
    def slope(self) -> float:
        return 1.0 / self.clip

    def level_probabilities(self, gradient: Array) -> Array:
        place = 1.5 * (np.clip(gradient, -self.clip, self.clip) / self.clip + 1.0)
        return np.maximum(0.0, 1.0 - np.abs(place[..., None] - np.arange(4.0)))


@full_only
@pytest.mark.parametrize("relation", ["replace", *ONE_SIDED])
def test_levels_without_a_proof_of_their_own_are_not_understated(relation: str) -> None:
    assert not list(understated(FourLevels(), relation))


@pytest.mark.parametrize(("share", "caught"), [(1 - 3e-6, True), (1 - 3e-7, False)])
def test_a_delta_is_caught_from_a_millionth_on(share: float, caught: bool) -> None:
    """The bar is where it is said to be: neither finer than the oracle nor coarser."""

    class Rounded(flmc.Analog):
        def privacy_event(self, transmissions: Sent, neighbouring: str = "device") -> Event:  # type: ignore[override]  # of `replace` alone
            event = super().privacy_event(transmissions, neighbouring)
            exact = event.tight_delta
            object.__setattr__(event, "tight_delta", lambda epsilon: share * exact(epsilon))
            return event

    assert any(understated(Rounded())) is caught


@pytest.mark.parametrize("name", with_every_link())
def test_every_scheme_answers_its_criteria_and_refuses_the_others(name: str) -> None:
    """`tail` and `paper` are asked of events that have them."""
    uplink = with_every_link()[name]
    if uplink.noise_is_exact:
        return
    event = uplink.privacy_event([(0.1, 5)])
    assert isinstance(event, Event)
    assert "tight" in event.criteria
    for criterion in event.criteria:
        epsilon = event.epsilon(0.01, criterion, 20)
        assert 0 < epsilon < math.inf
        assert event.delta(epsilon * (1 + 1e-6), criterion, 20) <= 0.01 * (1 + 1e-6)
        gain = uplink.privacy_event([(1.0, 5)]).allowed_gain(1.0, 0.01, criterion, 20)
        spent = uplink.privacy_event([(gain, 5)]).delta(1.0, criterion, 20)
        assert spent <= 0.01 * (1 + 1e-9)
    one = flmc.replace(uplink, example_clip=1.0).privacy_event([(0.1, 5)], "example")
    for criterion in {"tail", "paper"} - set(one.criteria):
        with pytest.raises(InvalidSetting, match="needs privacy 'tight'"):
            one.delta(1.0, criterion, 20)


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
        def privacy_event(  # type: ignore[override]  # of `replace` alone
            self,
            transmissions: object,
            neighbouring: str = "device",
        ) -> Event:
            return flmc.Digital(clip=self.clip).privacy_event(transmissions, neighbouring)  # type: ignore[arg-type]

    plan = flmc.plan(model(), Proven(), flmc.Limits(epsilon=5))
    assert plan.round_cost is not None
    assert plan.round_cost.epsilon <= 5 * (1 + 1e-9)
