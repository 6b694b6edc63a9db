"""Schedules that are public and random: delta is averaged at a fixed epsilon, exactly."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import binom, norm

import flmc
from flmc.base.errors import InvalidSetting
from flmc.deploy.accounting import cost_of_run
from flmc.planning.privacy_cost import exposure_of
from flmc.privacy.event import Event
from flmc.privacy.scheduled_event import ScheduledEvent
from flmc.privacy.transmissions import binomial_counts
from flmc.uplink.fadings import NakagamiFading, RayleighFading, RicianFading
from flmc.wire.federation import Federation
from support import full

RUN = 300
MODEL = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def averaged(once: Event, rounds: int, chance: float, epsilon: float) -> float:
    """Mean of the deltas of all numbers of rounds, each composed by itself."""
    counts = np.arange(1, rounds + 1)
    mass = binom.pmf(counts, rounds, chance)
    some = mass > 1e-12
    each = [
        share * once.repeated(int(count)).delta(epsilon)
        for count, share in zip(counts[some], mass[some], strict=True)
    ]
    return math.fsum(each)


def test_delta_is_the_mean_over_schedules_by_brute_force() -> None:
    """Four rounds of one certain bit: all 16 schedules and the joint density by quadrature."""
    gain, chance, epsilon = 0.7, 0.3, 0.8
    y = np.linspace(-12.0, 12.0, 4001)
    truth = 0.0
    for schedule in itertools.product((0, 1), repeat=4):
        sent = sum(schedule)
        share = chance**sent * (1 - chance) ** (4 - sent)
        # A sum of the heard rounds tells all: two normals 2 A apart for each, in the sum of noise.
        root = math.sqrt(sent) if sent else 1.0
        first, second = (norm.pdf(y, sign * gain * root) for sign in (1, -1))
        if sent:
            above = np.maximum(first - math.exp(epsilon) * second, 0)
            truth += share * float(np.trapezoid(above, y))
    event = ScheduledEvent(
        flmc.Digital(link=flmc.Sign()).event_of_rounds(np.array([[gain]]), 1), 4, chance
    )
    # The trapezoidal rule errs by the square of its step where the maximum has a kink.
    assert event.delta(epsilon) == pytest.approx(truth, rel=1e-4)
    assert event.delta(epsilon) < event.always.delta(epsilon)


@pytest.mark.parametrize("gain", [0.005, 0.27386])
def test_bits_of_rounds_by_chance_are_composed_as_they_are_averaged(gain: float) -> None:
    once = flmc.Digital().event_of_rounds(np.array([[gain]]), 5)
    rounds = full(RUN, quick=60)
    event = ScheduledEvent(once, rounds, 0.25)
    epsilon = event.epsilon(1e-5)
    truth = averaged(once, rounds, 0.25, epsilon)
    # Both are upper bounds, on grids of their own, which add some 1e-4 of the variance and so up to
    # 1e-3 of delta.
    assert truth * (1 - 1e-3) <= event.delta(epsilon) <= 1e-5 * (1 + 1e-9)
    assert truth >= 0.995e-5


def test_other_events_are_averaged_too() -> None:
    for uplink, neighbouring in (
        (flmc.Analog(), "device"),
        (flmc.Digital(link=flmc.Sign()), "device"),
        (flmc.Digital(example_norm=6.0), "example"),
        (flmc.Digital(example_clip=3.0), "example"),
    ):
        once = uplink.event_of_rounds(np.array([[0.002]]), 5, neighbouring)
        event = ScheduledEvent(once, 40, 0.25)
        epsilon = event.epsilon(1e-3)
        if epsilon == 0:
            epsilon = 0.01
        # Both are upper bounds, on grids of their own, which add up to 1e-3.
        truth = averaged(once, 40, 0.25, epsilon)
        assert truth * (1 - 1e-3) <= event.delta(epsilon) <= truth * 1.01
        assert event.delta(epsilon) < event.always.delta(epsilon)
        assert event.repeated(3).epsilon(1e-3) >= event.epsilon(1e-3)


def test_numbers_of_rounds_are_bounded_from_above() -> None:
    for rounds, chance in ((1, 0.5), (300, 0.25), (5000, 0.01), (40, 0.999)):
        counts, beyond = binomial_counts(rounds, chance)
        numbers, shares = (np.array(each) for each in zip(*counts, strict=True))
        assert math.isclose(shares.sum() + beyond, 1.0, rel_tol=1e-8)
        for least in (1, int(rounds * chance), rounds):
            above = shares[numbers >= least].sum() + beyond
            assert above >= binom.sf(least - 1, rounds, chance) * (1 - 1e-12)


def test_what_a_random_schedule_costs() -> None:
    """Worst and averaged, of the paper's run and at a small gain: 142 and 52.4, 0.91 and 0.433."""
    uplink, sizes = flmc.Digital(), (RUN, 20, 5)
    small = uplink.event_of_rounds(np.ones((1, 1)), 5, times=RUN).allowed_gain(0.91, 1e-5)
    for gain, worst, mean in ((0.27386, 142.06, 52.38), (small, 0.91, 0.4330)):
        caps, policy = np.array([[gain]]), flmc.RandomDevices(5)
        assert exposure_of(uplink, caps, policy, *sizes).run.epsilon(1e-5) == pytest.approx(
            worst, rel=1e-4
        )
        run = exposure_of(uplink, caps, policy, *sizes, average=True).run
        assert run.epsilon(1e-5) == pytest.approx(mean, rel=1e-3)
    by_channel = flmc.replace(uplink, fading=flmc.RayleighFading(0.04))
    run = exposure_of(
        by_channel, np.array([[small]]), flmc.ThresholdDevices(0.02), *sizes, average=True
    ).run
    assert run.epsilon(1e-5) == pytest.approx(0.7948, rel=1e-3)


def test_a_plan_averages_and_a_device_does_not() -> None:
    limits = flmc.Limits(epsilon=5.0, scope="run")
    plan = flmc.plan(
        MODEL,
        flmc.Digital(),
        limits,
        scheduler=flmc.RandomDevices(5),
        step_size=1e-3,
        forecast=False,
    )
    assert plan.run_cost is not None
    assert 4.99 < plan.run_cost.epsilon <= 5.0
    assert plan.to_document()["privacy"]["run"]["schedule"] == "averaged"
    assert "averaged over the schedule: a device transmits in 75" in str(plan)
    assert cost_of_run(Federation.of("demo", plan), 1e-5) > 10.0
    # Several chains share the schedule.
    two = plan.release(2).cost
    assert two is not None
    assert two.epsilon > 1.3 * plan.run_cost.epsilon


class Biased(flmc.RandomDevices):
    """A subclass that always draws the first devices."""

    def draw(self, rng, rounds, fading):  # type: ignore[no-untyped-def]
        active = np.zeros((len(rounds), fading.shape[1]))
        active[:, : self.count] = 1.0
        return active


def test_where_the_law_is_not_known_the_worst_counts() -> None:
    sizes = (RUN, 20, 5)
    caps = np.array([[0.1]])
    for uplink, policy in (
        (flmc.Digital(), Biased(5)),
        (flmc.Digital(fading=flmc.JakesFading()), flmc.ThresholdDevices(0.02)),
        (flmc.Digital(fading=flmc.RayleighFading()), flmc.PredecessorDevices(25.0)),
        (flmc.Digital(csi_error=0.1, fading=flmc.RayleighFading()), flmc.RandomDevices(5)),
    ):
        exposure = exposure_of(uplink, caps, policy, *sizes, average=True)
        assert exposure.schedule == "worst"
        assert not isinstance(exposure.run, ScheduledEvent)


@pytest.mark.parametrize("law", [RayleighFading(), RicianFading(), NakagamiFading()])
def test_tails_of_fadings_are_those_of_their_draws(law: flmc.Fading) -> None:
    drawn = law.draw_checked(np.random.default_rng(5), range(20_000), 4, 1)[..., 0]
    tail = law.exceedance(0.03)
    assert tail is not None
    error = 5 * math.sqrt(tail * (1 - tail) / drawn.size)  # five standard errors of a share
    assert np.mean(drawn >= 0.03) == pytest.approx(tail, abs=error)
    strongest = flmc.StrongestDevices(1).chance(4, law)
    assert strongest == 0.25


def test_a_trace_is_charged_with_the_schedule_that_it_gives(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """The cap of a threshold plan is that of a device alone; few rounds use it."""
    rounds, devices = 200, 4
    paths = 0.04 * np.sqrt(np.random.default_rng(0).standard_exponential((rounds, devices)))
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_devices=devices))
    uplink = flmc.Digital(fading=flmc.TraceFading(paths))
    policy = flmc.ThresholdDevices(0.015)
    plan = flmc.plan(model, uplink, num_rounds=rounds, num_burn_in=100, scheduler=policy)
    cost, exposure = plan.run_cost, plan.exposure
    assert cost is not None
    assert exposure is not None
    assert exposure.schedule == "known"
    assert exposure.num_rounds == (paths >= 0.015).sum(axis=0).max()
    capped = exposure_of(uplink, plan.gain, policy, rounds, devices, 5).run.epsilon(1e-5)
    assert cost.epsilon < capped / 2.5
    # A second source: the ledger of the run, round by round and device by device.
    flmc.run(plan, model, seed=3, chains=1, engine="numpy", out=tmp_path / "run")
    curve = flmc.spent(flmc.load(tmp_path / "run"), plan)
    assert curve.epsilon <= cost.epsilon * (1 + 1e-9)
    assert curve.epsilon > 0.95 * cost.epsilon
    text = " ".join(str(plan).split())
    assert "transmit power decides in" in text
    assert "the devices and gains that the given path gains lead to" in text
    with pytest.raises(InvalidSetting, match="begins anew"):
        flmc.plan_two_stages(model, uplink, num_rounds=rounds, scheduler=policy)
