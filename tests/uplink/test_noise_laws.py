"""Laws of the receiver's noise: what is declared, refused and measured."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.documents import to_document
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.cli import main
from flmc.privacy.event import Event
from flmc.uplink.noise import NoiseLaw, why_not_drawn


class Bursts(NoiseLaw):
    """One number in fifty is seven times as wide; the variance of all is 1."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        both = rng.standard_normal((*shape, 2))
        rare = np.abs(both[..., 1]) > 2.3263478740408408  # with a probability of 0.02
        return np.asarray(both[..., 0] * np.where(rare, 7.0, 1.0) / np.sqrt(0.98 + 0.02 * 49))


class Uniform(NoiseLaw):
    """Between the roots of 3 and minus that."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.sqrt(3.0) * (2.0 * rng.random(shape) - 1.0))


class Loud(NoiseLaw):
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return 3.0 * rng.standard_normal(shape)


@dataclass(frozen=True)
class BurstyAnalog(flmc.Analog):
    noise_law: NoiseLaw = field(default=Bursts(), kw_only=True)


@dataclass(frozen=True)
class Stated(flmc.Analog):
    """Its statement is for the noise that it has by default."""

    def privacy_event(  # type: ignore[override]  # of `replace` alone
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        return flmc.Analog(clip=self.clip).privacy_event(transmissions, neighbouring)


def _run(uplink: flmc.Uplink, chains: int = 20, **settings: Any) -> flmc.Result:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=200, num_devices=4))
    plan = flmc.plan(model, uplink, num_rounds=400, num_burn_in=100, step_size=1e-3)
    return flmc.run(plan, model, chains=chains, engine="numpy", **settings)


def test_another_law_has_no_privacy_statement() -> None:
    with pytest.raises(UnknownPrivacy, match="noise_law"):
        BurstyAnalog().event_of_rounds(np.ones((1, 1)), 5)


@dataclass(frozen=True)
class Scaled(NoiseLaw):
    """Normal noise of another standard deviation and mean."""

    scale: float = 1.0
    mean: float = 0.0

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return self.mean + self.scale * rng.standard_normal(shape)


@dataclass(frozen=True)
class Student(NoiseLaw):
    """Student's law with variance 1, which has no fourth moment up to four degrees of freedom."""

    freedom: float

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(rng.standard_t(self.freedom, shape) * np.sqrt(1.0 - 2.0 / self.freedom))


class Known(Student):
    unit_variance = True


class Lasting(NoiseLaw):
    """One burst in a hundred lasts ten rounds; the variance is 1."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        hit = np.repeat(rng.random(-(-shape[0] // 10)) < 0.01, 10)[: shape[0], None]
        return np.asarray(np.where(hit, 10.0, 1.0) * rng.standard_normal(shape) / np.sqrt(1.99))


def test_a_law_without_unit_variance_is_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"variance 1.*got .* variance (8\.9|9)"):
        flmc.Analog(noise_law=Loud())
    with pytest.raises(InvalidSetting, match="must be a flmc"):
        flmc.Analog(noise_law=Loud)  # type: ignore[arg-type]


# The standard error of the variance of 100,000 normal numbers is sqrt(2/1e5) = 0.0045, that of
# their mean 0.0032: a bound of five is passed by these by ten or more.
@pytest.mark.parametrize("law", [Scaled(1.1), Scaled(0.95), Scaled(mean=0.05)])
def test_a_small_deviation_is_refused_too(law: NoiseLaw) -> None:
    with pytest.raises(InvalidSetting, match="scale them or"):
        flmc.Analog(noise_law=law)


@pytest.mark.parametrize("law", [Scaled(), Student(5.0), Bursts()])
def test_laws_with_unit_variance_pass(law: NoiseLaw) -> None:
    assert flmc.Analog(noise_law=law).noise_law == law


def test_a_variance_that_no_sample_shows_may_be_stated() -> None:
    """With 2.2 degrees of freedom a third of the variance is in numbers too rare for a sample."""
    with pytest.raises(InvalidSetting, match="state unit_variance = True"):
        flmc.Analog(noise_law=Student(2.2))
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    for law, stated in ((Known(2.2), True), (Bursts(), False)):
        plan = flmc.plan(model, flmc.Analog(noise_law=law), num_rounds=20, num_burn_in=10)
        (finding,) = [each for each in plan.findings if each.code == "noise-law"]
        assert ("Known states that it is 1" in finding.message) == stated

    class Boastful(Scaled):
        unit_variance = True

    with pytest.raises(InvalidSetting, match=r"variance 1\.21"):
        flmc.Analog(noise_law=Boastful(1.1))


def test_a_law_with_a_memory_is_refused_for_it() -> None:
    """Its numbers depend on how many rounds are drawn at once, and so would those of a run."""
    with pytest.raises(InvalidSetting, match="must not depend on earlier rounds"):
        flmc.Analog(noise_law=Lasting())


class Sticky(NoiseLaw):
    """Bursts that last, with their state in the object: drawn at once or one by one alike."""

    def __init__(self, stay: float) -> None:
        self.stay, self.bad = stay, False

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        drawn = np.empty(shape)
        for round_ in range(shape[0]):
            self.bad = bool(rng.random() < (self.stay if self.bad else 1.0 - self.stay))
            drawn[round_] = rng.standard_normal(shape[1:]) * (3.0 if self.bad else 1.0)
        return np.asarray(drawn / np.sqrt(5.0))


class Echo(NoiseLaw):
    """Each round has half of the round before it in the same draw."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        drawn = rng.standard_normal(shape)
        for round_ in range(1, shape[0]):
            drawn[round_] = 0.5 * drawn[round_ - 1] + np.sqrt(0.75) * drawn[round_]
        return drawn


@pytest.mark.parametrize("stay", [0.9, 0.97])
def test_a_memory_in_the_object_is_refused(stay: float) -> None:
    with pytest.raises(InvalidSetting, match="keep nothing in the object"):
        flmc.Analog(noise_law=Sticky(stay))


def test_correlated_rounds_are_refused() -> None:
    with pytest.raises(InvalidSetting, match=r"rounds have the rank correlation 0\."):
        flmc.Analog(noise_law=Echo())


class Signs(NoiseLaw):
    """Plus or minus one: all sizes are equal."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        return np.asarray(np.where(rng.random(shape) < 0.5, -1.0, 1.0))


@pytest.mark.parametrize("law", [Signs(), Student(2.5), Uniform(), Bursts()])
def test_laws_without_a_memory_pass(law: NoiseLaw) -> None:
    law._check_memory()


def test_a_law_that_is_no_field_is_refused() -> None:
    """The inherited field would win, and the noise would be normal without a word."""
    with pytest.raises(TypeError, match="must be a field"):

        class Silent(flmc.Analog):
            noise_law = Bursts()

    with pytest.raises(TypeError, match="must be a field"):

        class AlsoSilent(flmc.Analog):
            noise_law: ClassVar[NoiseLaw] = Bursts()  # type: ignore[misc]


def test_a_statement_is_for_the_noise_of_its_class() -> None:
    limits = flmc.Limits(epsilon=5.0)
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    rounds: dict[str, Any] = {"num_rounds": 6, "num_burn_in": 2, "step_size": 1e-3}
    assert flmc.plan(model, Stated(), limits, **rounds).exposure is not None
    for uplink in (Stated(noise_law=Bursts()), flmc.Analog(noise_law=Bursts())):
        assert flmc.plan(model, uplink, **rounds).exposure is None
        with pytest.raises(InvalidSetting, match="noise_law"):
            flmc.plan(model, uplink, limits, **rounds)


def test_normal_noise_is_normal_in_another_process() -> None:
    uplink = pickle.loads(pickle.dumps(flmc.Analog()))
    assert why_not_drawn(uplink.noise_law) is None
    assert "noise_law" not in to_document(uplink)


def test_bursts_are_not_known_before_a_run_and_told_after_it() -> None:
    result = _run(BurstyAnalog())
    assert "noise-law" in {each.code for each in result.plan.findings}
    assert result.coverage is None
    (tails,) = [each for each in result.findings if each.code == "tails"]
    assert tails.numbers["excess_kurtosis"] > 0.3


def test_normal_noise_has_no_finding_about_tails() -> None:
    codes = {each.code for each in _run(flmc.Analog()).findings}
    assert not codes & {"tails", "noise-law", "tails-judged", "tails-unknown"}
    assert _run(flmc.Analog(), keep_draws=False).tail_draws is None


def test_tails_are_looked_at_whether_draws_are_kept_or_not(tmp_path: Path) -> None:
    """The 6000 draws of these chains are few enough to be judged all, kept or not."""
    kept = _run(BurstyAnalog())
    recorded: dict[str, Any] = {"out": tmp_path / "record", "checkpoint_rounds": 50}
    for settings in ({}, recorded):
        result = _run(BurstyAnalog(), keep_draws=False, **settings)
        assert result.chains is None
        (tails,) = [each for each in result.findings if each.code == "tails"]
        assert [tails] == [each for each in kept.findings if each.code == "tails"]
    assert "draws" not in flmc.load(tmp_path / "record").arrays
    assert not list((tmp_path / "record").glob("path-*"))


def test_a_sweep_looks_at_tails_too() -> None:
    settings: dict[str, Any] = {"samples": 200, "devices": 4, "rounds": 400, "burn_in": 100}
    settings |= {"step_size": 1e-3, "chains": 20, "privacy": "off"}
    settings["noise_law"] = f"{__name__}:Bursts"
    done = flmc.sweep(settings, vary={"scheme": ["analog"]}, workers=1)
    (row,) = done.rows
    assert "tails" in row["findings_of_run"].split("; ")


def test_what_was_found_of_tails_is_always_said() -> None:
    """Uniform noise averages out over some fifty rounds; two chains show nothing either way."""
    right = _run(flmc.Analog(noise_law=Uniform()), keep_draws=False)
    (judged,) = [each for each in right.findings if each.code.startswith("tails")]
    assert (judged.code, judged.severity) == ("tails-judged", "note")
    assert abs(judged.numbers["excess_kurtosis"]) < 0.3
    few = _run(flmc.Analog(noise_law=Uniform()), chains=1)
    (unknown,) = [each for each in few.findings if each.code.startswith("tails")]
    assert (unknown.code, unknown.severity) == ("tails-unknown", "unknown")
    assert "effective draws" in unknown.message


def test_compiled_engines_refuse_a_law_that_they_cannot_draw() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(model, BurstyAnalog(), num_rounds=20, num_burn_in=10)
    with pytest.raises(InvalidSetting, match="normal noise"):
        flmc.run(plan, model, engine="numba")


def test_an_audit_names_the_noise_and_gives_no_advice_about_privacy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was told to switch privacy off, which it had."""
    (tmp_path / "uniform_of_audit.py").write_text(
        "import flmc\n\nclass Uniform(flmc.NoiseLaw):\n"
        "    def draw(self, rng, shape):\n        return rng.uniform(-3**0.5, 3**0.5, shape)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    law = ["--noise-law", "uniform_of_audit:Uniform", "--privacy", "off"]
    assert main(["audit", *law, "--trials", "1000"]) == 2
    said = capsys.readouterr().err
    assert "the audit cannot attack this uplink" in said
    assert "noise_law is Uniform" in said
    assert "switch privacy off" not in said
