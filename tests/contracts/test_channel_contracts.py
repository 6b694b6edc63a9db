"""Every registered fading and scheduler keeps its contract: shapes, values, honesty about
randomness, and the worst case that it declares."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

import flmc
from contracts.registered import DEVICES, DIM, fadings, schedulers
from flmc.base.arrays import Array
from flmc.sampling import schedule, simulation

BLOCK = range(128, 200)


@pytest.mark.parametrize("name", fadings())
def test_fading_is_positive_and_fits(name: str) -> None:
    drawn = fadings()[name].draw_checked(np.random.default_rng(1), BLOCK, DEVICES, DIM)
    assert drawn.shape == (len(BLOCK), DEVICES, DIM)
    assert (drawn > 0).all()


@pytest.mark.parametrize("name", fadings())
def test_fading_is_a_function_of_its_generator_and_rounds(name: str) -> None:
    draw = fadings()[name].draw_checked
    first, again, other = (
        draw(np.random.default_rng(seed), BLOCK, DEVICES, DIM) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    drawn = not fadings()[name].constant and name != "trace"
    assert np.array_equal(first, other) == (not drawn)
    if fadings()[name].constant:
        later = draw(np.random.default_rng(3), range(1000, 1072), DEVICES, DIM)
        assert np.array_equal(first, later)


def test_the_old_signature_of_fading_is_refused_with_the_new_one() -> None:
    with pytest.raises(flmc.errors.InvalidSetting, match=r"write draw\(self, rng, rounds, num_dev"):

        class Old(flmc.Fading):
            def draw(  # type: ignore[override]
                self, rng: np.random.Generator, num_rounds: int, num_devices: int, dim: int
            ) -> Array:
                return np.ones((num_rounds, num_devices, dim))


@pytest.mark.parametrize("name", [name for name, each in fadings().items() if each.independent])
def test_independent_rounds_know_neither_their_number_nor_each_other(name: str) -> None:
    fading, num_rounds = fadings()[name], 20_000
    rng = np.random.default_rng
    # The numbers of the rounds do not matter, only how many there are.
    first = fading.draw_checked(rng(1), range(num_rounds), DEVICES, DIM)
    later = fading.draw_checked(rng(1), range(1000, 1000 + num_rounds), DEVICES, DIM)
    np.testing.assert_array_equal(first, later)
    if not fading.constant:
        # The correlation of n independent pairs has the standard error 1/sqrt(n).
        level = np.log(first[:, :, 0])
        level = (level - level.mean(axis=0)) / level.std(axis=0)
        for lag in (1, 2, 127, 128):
            correlation = (level[lag:] * level[:-lag]).mean(axis=0)
            assert (np.abs(correlation) < 5 / np.sqrt(num_rounds - lag)).all()


@pytest.mark.parametrize("name", fadings())
def test_a_constant_fading_has_independent_rounds(name: str) -> None:
    assert fadings()[name].independent or not fadings()[name].constant


def test_a_fading_of_a_user_s_own_is_asked_for_a_whole_run() -> None:
    """What a class does not promise is not assumed, so that no memory is lost between blocks."""
    seen: list[range] = []

    class Trace(flmc.Fading):
        def draw(
            self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
        ) -> Array:
            seen.append(rounds)
            return 0.04 * (1 + np.asarray(rounds)[:, None, None] / 1000)

    class Promised(Trace):
        independent = True

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    blocks = [range(128), range(128, 256), range(256, 300)]
    for fading, asked in ((Trace(), [range(300)]), (Promised(), blocks)):
        plan = flmc.plan(model, flmc.Digital(fading=fading), num_rounds=300, num_burn_in=100)
        seen.clear()
        flmc.run(plan, model, chains=2, engine="numpy")
        assert seen == asked


@pytest.mark.parametrize("name", schedulers())
def test_schedulers_keep_their_word(name: str) -> None:
    scheduler = schedulers()[name]
    rng = np.random.default_rng(4)
    fading = 0.02 * rng.rayleigh(size=(500, DEVICES, DIM))
    active = scheduler.draw_checked(rng, range(500), fading)
    assert active.shape == (500, DEVICES)
    assert scheduler.by_channel or (active.sum(axis=1) >= 1).all()
    assert active.sum(axis=0).max() <= scheduler.most_rounds(500, DEVICES)
    assert scheduler.everyone == bool(active.all())
    again = scheduler.draw_checked(np.random.default_rng(5), range(500), fading)
    assert scheduler.random or np.array_equal(active, again)


@pytest.mark.parametrize("name", schedulers())
def test_a_device_is_charged_for_the_declared_worst_case(name: str) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    limits = flmc.Limits(epsilon=30, scope="run")
    plan = flmc.plan(model, flmc.Digital(), limits, scheduler=schedulers()[name])
    assert plan.exposure is not None
    assert plan.exposure.num_rounds == plan.scheduler.most_rounds(plan.num_rounds, plan.num_devices)
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 30 * (1 + 1e-9)


def test_random_devices_are_drawn_evenly() -> None:
    """Each device is active in n/K of the rounds: five standard errors of a proportion."""
    count, rounds = 2, 20_000
    active = flmc.RandomDevices(count).draw(
        np.random.default_rng(6), range(rounds), np.ones((rounds, DEVICES, 1))
    )
    assert (active.sum(axis=1) == count).all()
    share = count / DEVICES
    error = np.sqrt(share * (1 - share) / rounds)
    assert (np.abs(active.mean(axis=0) - share) < 5 * error).all()


def test_experiments_have_active_devices_of_their_own_and_the_ledger_counts_them() -> None:
    from flmc.runs.ledger import Ledger
    from flmc.sampling.schedule import draw_schedule, draw_transmitting

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_experiments=3))
    plan = flmc.plan(model, flmc.Digital(), scheduler=flmc.RandomDevices(2))
    schedule = draw_schedule(plan, 7, range(3), 1)
    assert schedule.active is not None
    assert schedule.active.shape == (3, 128, 20)
    assert not np.array_equal(schedule.active[0], schedule.active[1])
    one = draw_transmitting(plan, 7, 1, range(128, 256))
    every = draw_transmitting(plan, 7, 3, range(128, 256))
    assert one is not None
    assert every is not None
    assert np.array_equal(one, schedule.active[0])
    assert np.array_equal(every, schedule.active.max(axis=0))
    entries = Ledger(plan, 7, 1).entries(128, 130)
    silent = [k for k in range(20) if not one[0, k]]
    assert f'"silent":{str(silent).replace(" ", "")}' in entries[0]


class RoundRobin(flmc.Scheduler):
    """A policy of a user's own without randomness: every other device, in turn."""

    random: ClassVar[bool] = False
    declared: ClassVar[int] = 2

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """Even devices in even rounds, odd ones in odd rounds."""
        turn = np.asarray(rounds)[:, None] + np.arange(fading.shape[1])
        return np.asarray(turn % 2 == 0, dtype=np.float64)

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Half of them, rounded up."""
        return -(-num_rounds // self.declared)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_a_policy_without_randomness_is_asked_too(engine: str, tmp_path: Path) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_experiments=2))
    limits = flmc.Limits(epsilon=30, scope="run")
    plan = flmc.plan(
        model, flmc.Digital(), limits, num_rounds=200, num_burn_in=50, scheduler=RoundRobin()
    )
    given = RoundRobin().draw(np.random.default_rng(0), range(200), np.ones((200, 20, 1)))
    same = flmc.plan(model, flmc.Digital(), limits, num_rounds=200, num_burn_in=50, active=given)
    assert plan.run_cost is not None
    assert same.run_cost is not None
    assert plan.run_cost.epsilon == pytest.approx(same.run_cost.epsilon, rel=1e-6)
    first = flmc.run(plan, model, seed=3, chains=2, engine=engine, out=tmp_path / "record")
    # The gains of both plans may differ in their last bits, so the draws agree to rounding only
    # until a bit flips: compare the ledgers, and the number of clipped entries' denominator.
    assert (
        first.clipped_fraction
        == flmc.run(same, model, seed=3, chains=2, engine=engine).clipped_fraction
    )
    entries = [json.loads(entry) for entry in flmc.load(tmp_path / "record").ledger]
    assert entries[0]["silent"] == list(range(1, 20, 2))
    assert entries[1]["silent"] == list(range(0, 20, 2))


def test_a_policy_that_breaks_its_word_is_refused(tmp_path: Path) -> None:
    """A plan knows the schedule of a policy without randomness and refuses it; of a random policy
    only the run knows, which then leaves no record that would stand in the way."""

    class Talkative(RoundRobin):
        declared: ClassVar[int] = 10

    class AtRandom(Talkative):
        random: ClassVar[bool] = True

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    settings: dict[str, Any] = {"num_rounds": 60, "num_burn_in": 10}
    broken = "in 30 of 60 rounds, and its most_rounds declares 6 at most"
    with pytest.raises(flmc.errors.InvalidSetting, match=broken):
        flmc.plan(model, flmc.Digital(), **settings, scheduler=Talkative(), forecast=False)
    plan = flmc.plan(model, flmc.Digital(), **settings, scheduler=AtRandom())
    with pytest.raises(flmc.errors.RunFailed, match=broken):
        flmc.run(plan, model, out=tmp_path / "record")
    right = flmc.plan(model, flmc.Digital(), **settings, scheduler=RoundRobin())
    flmc.run(right, model, out=tmp_path / "record")


def test_a_refused_run_leaves_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the refusal comes after the record was begun: here memory does not suffice."""

    def too_much(what: str, size: float) -> None:
        raise flmc.errors.InvalidSetting(f"{what} take {size:g} bytes")

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=60, num_burn_in=10)
    with monkeypatch.context() as patched:
        patched.setattr(simulation, "fits", too_much)
        with pytest.raises(flmc.errors.InvalidSetting, match="bytes"):
            flmc.run(plan, model, out=tmp_path / "record")
    flmc.run(plan, model, out=tmp_path / "record")


def test_a_plan_says_how_devices_take_turns() -> None:
    """Every other device in turn; one device of four that is heard in the third of five rounds
    only; and a policy by channel, whose first drawn run the plan counts on."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    settings: dict[str, Any] = {"num_rounds": 5, "num_burn_in": 2, "step_size": 1e-4}
    plan = flmc.plan(model, flmc.Digital(), **settings, scheduler=RoundRobin(), forecast=False)
    assert plan.turns == (2, 3, 1, 5, True)
    given = np.ones((5, 4))
    given[[0, 1, 3, 4], 2] = 0.0
    plan = flmc.plan(model, flmc.Digital(), **settings, active=given)
    assert plan.turns == (1, 5, 2, 5, True)
    row = next(row for row in plan.listing().rows if row.label == "devices in a round")
    assert row.value.endswith("1 to 5 of 5 rounds, and is silent for 2 in a row at most")
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    drawn = flmc.plan(model, uplink, **settings, scheduler=flmc.StrongestDevices(1)).turns
    assert drawn is not None
    assert not drawn.exact
    assert drawn.num_rounds == 5
    assert drawn.fewest <= 5 / 4 <= drawn.most
    assert flmc.plan(model, flmc.Digital(), **settings).turns is None


class OldestFirst(flmc.Scheduler):
    """A policy with a memory: the ``count`` devices that have been silent longest."""

    random: ClassVar[bool] = False

    def __init__(self, count: int = 5) -> None:
        self.count = count

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for the devices whose age is largest, (round, device)."""
        waiting = list(range(fading.shape[1]))  # the one that has been silent longest comes first
        active = np.zeros((len(rounds), fading.shape[1]))
        for row in active:
            row[waiting[: self.count]] = 1.0
            waiting = waiting[self.count :] + waiting[: self.count]
        return active

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Whole turns, the last one begun."""
        return -(-num_rounds * self.count // num_devices)


class Sparing(flmc.ThresholdDevices):
    """A policy by channel with a memory: a device that transmitted rests for two rounds."""

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for rested devices with a strong channel, (round, device)."""
        strong = super().draw(rng, rounds, fading)
        for index in range(1, len(strong)):
            strong[index] *= 1.0 - strong[max(0, index - 2) : index].max(axis=0)
        return strong

    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """Every third round."""
        return -(-num_rounds // 3)


def test_the_oldest_first_policy_keeps_its_ages_over_blocks() -> None:
    """20 devices by turns of 3 come again within 7 rounds, in plan and schedule alike; a block
    of 128 rounds, which is no whole number of turns, would begin anew."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    count, rounds = 3, 300  # turns of 20/3 rounds: no block ends with one
    plan = flmc.plan(
        model, flmc.Digital(), num_rounds=rounds, num_burn_in=50, scheduler=OldestFirst(count)
    )
    planned = plan.scheduler.draw_planned(rounds, 20)
    blocks = [schedule.draw_schedule(plan, 7, range(1), block).active for block in range(3)]
    drawn = np.concatenate([each[0] for each in blocks if each is not None])
    assert planned is not None
    assert np.array_equal(drawn, planned)
    gaps = max(np.diff(np.flatnonzero(drawn[:, device])).max() for device in range(20))
    assert gaps == 7
    transmitting = schedule.draw_transmitting(plan, 7, 1, range(100, 260))
    assert transmitting is not None
    assert np.array_equal(transmitting, drawn[100:260])
    most = schedule.draw_activity(plan, 7, 1).most_rounds
    assert most == plan.scheduler.most_rounds(rounds, 20) == 45
    flmc.run(plan, model, seed=7, chains=2)  # its true most_rounds is not refused


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("policy", [OldestFirst(3), Sparing(0.03)], ids=["ages", "rests"])
def test_a_policy_with_a_memory_survives_cuts(
    engine: str, policy: flmc.Scheduler, tmp_path: Path
) -> None:
    """A run that is resumed within a block, or cut into groups of data sets, has the same devices
    active as one in one go, and the draws to the last bit."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_experiments=3, num_samples=200))
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    plan = flmc.plan(model, uplink, num_rounds=300, num_burn_in=50, scheduler=policy)
    whole = flmc.run(plan, model, seed=3, chains=2, engine=engine)
    calls = iter([False, False])
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            plan,
            model,
            seed=3,
            chains=2,
            engine=engine,
            out=tmp_path / "record",
            checkpoint_rounds=50,
            experiments_at_once=2,
            stop=lambda: next(calls, True),
        )
    resumed = flmc.resume(tmp_path / "record", plan, model)
    assert np.array_equal(whole.draws, resumed.draws)
    entries = [json.loads(entry) for entry in flmc.load(tmp_path / "record").ledger]
    active = [schedule.draw_schedule(plan, 3, range(3), block).active for block in range(3)]
    union = np.concatenate([each.max(axis=0) for each in active if each is not None])
    for entry, row in zip(entries, union, strict=True):
        silent = entry.get("silent", [])
        assert silent == np.flatnonzero(row == 0).tolist()
    if isinstance(policy, Sparing):
        for each in np.concatenate([a for a in active if a is not None], axis=1):
            assert (each[:-1] * each[1:]).sum() == (each[:-2] * each[2:]).sum() == 0


def test_a_subclass_with_its_own_draw_promises_nothing() -> None:
    assert flmc.ThresholdDevices(0.1).forgets
    assert flmc.RandomDevices(2).forgets
    assert not Sparing(0.1).forgets
    assert not OldestFirst().forgets


def test_given_and_scheduler_exclude_each_other() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    with pytest.raises(flmc.errors.InvalidSetting, match="give scheduler or active, not both"):
        flmc.plan(model, flmc.Digital(), scheduler=flmc.RandomDevices(2), active=np.ones((300, 20)))
    with pytest.raises(flmc.errors.InvalidSetting, match="must not exceed the devices, 20; got 21"):
        flmc.plan(model, flmc.Digital(), scheduler=flmc.RandomDevices(21))


def test_random_devices_sample_the_posterior_with_the_predicted_extra_noise() -> None:
    """With n of K devices of equal data the temperature takes n into account; what remains is the
    spread of the devices' gradients, which makes the variance larger, never smaller."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(
        model,
        flmc.Digital(),
        num_rounds=1600,
        num_burn_in=600,
        scheduler=flmc.RandomDevices(10),
    )
    assert plan.temperature == pytest.approx(1.0)
    result = flmc.run(plan, model, seed=1, chains=40, keep_draws=False)
    assert result.metrics is not None
    assert result.engine == "numba"
    assert result.metrics.variance_ratio.mean > 1 - 5 * result.metrics.variance_ratio.se
