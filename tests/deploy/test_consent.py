"""Whether a device takes part: its budget over all runs, its rules, and the journal it needs."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import (
    DATA,
    DEVICES,
    DIM,
    KEYS,
    MADE,
    Kit,
    answers_of,
    close,
    data_of,
    make_federation,
    make_plan,
)
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.base.tables import format_up
from flmc.deploy.accounting import accounted, cost_of_run
from flmc.deploy.configuration import read_device
from flmc.deploy.device import consent
from flmc.deploy.device.consent import Budget, Rules
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.device.local_model import local_gradient, read_model
from flmc.deploy.role_assembly import make_device
from flmc.settings.registered import MODELS
from flmc.wire.federation import Federation
from flmc.wire.presence import Presence
from support import full, full_only

FIVE = flmc.Limits(epsilon=5.0, scope="run", run_delta=1e-5)


def five(**given: Any) -> Federation:
    """A federation whose whole run costs epsilon 5 at delta 1e-5, as a device accounts one of ten
    runs with delta 1e-4."""
    return make_federation(make_plan(limits=FIVE, num_rounds=60, num_burn_in=20), **given)


def meet(kit: Kit, number: int = 1, **given: Any) -> DeviceRole:
    """A device that was asked for a round, and has answered it unless it refused."""
    device = kit.device(**given)
    device.connected(0.0)
    device.receive(kit.plan_message(), 0.0)
    device.receive(kit.announce(number), 0.0)
    if device.refusal is None:
        device.receive(kit.theta(number), 0.0)
    return device


def reason(device: DeviceRole) -> str:
    """Why a device refused; it has said so, is finished, and has joined nothing."""
    assert device.refusal is not None
    assert device.finished
    said = device.connected(0.0)
    found = Presence.from_bytes(said[0].message.payload)
    assert (found.state, found.why) == ("refused", device.refusal[:300])
    return device.refusal


def test_a_plan_beyond_the_budget_is_refused_with_both_numbers(tmp_path: Path) -> None:
    federation = five()
    cost = cost_of_run(federation, 1e-5)
    assert 4.5 < cost <= 5.0
    device = meet(Kit(tmp_path, federation), budget=Budget(epsilon=1.0))
    why = reason(device)
    assert f"may cost epsilon {format_up(cost)} at delta 1e-05" in why
    assert "lifetime budget of this device is 1" in why
    assert not device.journal.runs
    assert answers_of(device.receive(Kit(tmp_path, federation).theta(1), 0.0)) == []
    assert device.drops.counts["not-joined"] == 1
    device = meet(Kit(tmp_path / "rich", federation), budget=Budget(epsilon=5.0))
    assert device.refusal is None
    assert device.journal.spent("device") == (cost, 1e-5)


def test_whoever_says_nothing_has_a_budget(tmp_path: Path) -> None:
    """A device has no limit only if it says so."""
    dear = flmc.Limits(epsilon=12.0, scope="run", run_delta=1e-5)
    federation = make_federation(make_plan(limits=dear, num_rounds=200, num_burn_in=20))
    assert cost_of_run(federation, Budget().share) > Budget().epsilon == 10.0
    silent = meet(Kit(tmp_path / "silent", federation), budget=Rules(0).budget)
    assert "lifetime budget of this device is 10 for" in reason(silent)
    careless = meet(Kit(tmp_path / "careless", federation), budget=Budget(epsilon=math.inf))
    assert careless.refusal is None
    assert careless.journal.spent("device")[0] > 10.0  # recorded all the same


def test_runs_add_up_over_the_lifetime(tmp_path: Path) -> None:
    budget = Budget(epsilon=6.0)
    first = Kit(tmp_path, five(run="first"))
    device = meet(first, budget=budget)
    assert device.refusal is None
    close(device)
    again = meet(first, budget=budget)  # the same run is not charged again
    assert again.refusal is None
    assert len(again.journal.runs) == 1
    close(again)
    second = meet(Kit(tmp_path, five(run="second")), budget=budget)
    why = reason(second)
    assert "earlier runs" in why
    assert "is 6" in why
    assert list(second.journal.runs) == ["first"]
    close(second)
    richer = meet(Kit(tmp_path, five(run="second")), budget=Budget(epsilon=10.5))
    assert richer.refusal is None
    assert richer.numbers["epsilon_reserved"] == 2 * cost_of_run(five(), 1e-5)


def test_runs_are_counted_and_their_deltas_add_up(tmp_path: Path) -> None:
    one = Budget(epsilon=1000.0, delta=1e-4, runs=1)
    close(meet(Kit(tmp_path, make_federation(run="first")), budget=one))
    second = Kit(tmp_path, make_federation(run="second"))
    device = meet(second, budget=one)
    assert "budget is for 1 runs" in reason(device)
    close(device)
    # The first run took all of delta, whatever the configuration says now.
    device = meet(second, budget=Budget(epsilon=1000.0, delta=1e-4, runs=10))
    assert "delta 1e-05, earlier runs with 0.0001" in reason(device)
    close(device)
    device = meet(second, budget=Budget(epsilon=1000.0, delta=2e-4, runs=2))
    assert device.refusal is None


def test_what_a_run_costs_is_what_the_plan_says_at_the_same_delta() -> None:
    federation = five()
    run_cost = federation.plan.run_cost
    assert run_cost is not None
    assert cost_of_run(federation, 1e-5) == pytest.approx(run_cost.epsilon, rel=1e-9)
    gain = np.array([[0.1, 0.2]])
    assert (accounted(federation, gain) == gain).all()
    # One example of an analog uplink may move a symbol by a little more, because of the grid.
    uplink = flmc.Analog(example_clip=3.0)
    limits = flmc.Limits(neighbouring="example")
    analog = make_federation(make_plan(uplink, limits, gain=0.01))
    charged = accounted(analog, np.full((2, 3), 0.01))
    assert charged.shape == (2, 3)
    assert (charged > 0.01).all()
    assert (charged < 0.0101).all()


def test_what_a_budget_protects_is_the_devices_to_say(tmp_path: Path) -> None:
    """A plan may count the cost for one example, which is less than that for a device."""
    uplink, limits = flmc.Digital(example_clip=3.0), flmc.Limits(neighbouring="example")
    federation = make_federation(make_plan(uplink, limits, gain=0.1))
    whole = cost_of_run(federation, 1e-5, "device")
    one = cost_of_run(federation, 1e-5)
    assert one == cost_of_run(federation, 1e-5, "example")
    assert one < 0.5 * whole
    budget = Budget(epsilon=(one + whole) / 2)
    why = reason(meet(Kit(tmp_path / "device", federation), budget=budget))
    assert f"epsilon {format_up(whole)}" in why
    assert "for the data of one device; the plan protects one example only" in why
    example = Budget(epsilon=(one + whole) / 2, neighbouring="example")
    device = meet(Kit(tmp_path / "example", federation), budget=example)
    assert device.refusal is None
    assert device.journal.spent("example")[0] == one
    # Without a bound of one example nothing is known of it.
    why = reason(meet(Kit(tmp_path / "unbounded", make_federation()), budget=example))
    assert "example_clip" in why
    with pytest.raises(InvalidSetting, match="neighbouring"):
        Budget(neighbouring="row")


def test_after_a_switch_of_the_relation_old_runs_count_under_the_new_one(tmp_path: Path) -> None:
    """A run answered for one example costs a hundred times as much for the device."""
    uplink, limits = flmc.Digital(example_clip=0.05), flmc.Limits(neighbouring="example")
    plan = make_plan(uplink, limits, gain=0.3, num_rounds=60)
    first, second = (make_federation(plan, run=name) for name in ("first", "second"))
    one, whole = (cost_of_run(first, 1e-5, unit) for unit in ("example", "device"))
    assert 100 * one < whole
    example, budget = Budget(neighbouring="example"), Budget(epsilon=whole)
    device = meet(Kit(tmp_path, first), budget=example)
    assert device.journal.spent("example") == (one, 1e-5)
    assert device.journal.spent("device") == (whole, 1e-5)
    close(device)
    # A run that costs nothing to speak of is refused: what was spent counts for the device.
    little = make_federation(make_plan(gain=1e-4), run="little")
    assert cost_of_run(little, 1e-5) < 0.01
    device = meet(Kit(tmp_path, little), budget=budget)
    assert f"cost epsilon {format_up(whole)} for the data of one device" in reason(device)
    assert "set neighbouring back in [budget]" in reason(device)
    close(device)
    # The run itself goes on within a budget that holds it, and not within another.
    same = meet(Kit(tmp_path, first), budget=budget)
    assert same.refusal is None
    assert same.numbers["epsilon_reserved"] == whole
    close(same)
    same = meet(Kit(tmp_path, first), budget=Budget(epsilon=whole / 2))
    assert "'first' was joined for the data of one example" in reason(same)
    close(same)
    device = meet(Kit(tmp_path, second), budget=example)
    assert device.refusal is None
    assert device.journal.spent("example")[0] == 2 * one
    close(device)
    # From the device to one example nothing is understated, and old lines cost less.
    kit = Kit(tmp_path / "other", first)
    close(meet(kit, budget=Budget(epsilon=whole)))
    device = meet(Kit(tmp_path / "other", second), budget=example)
    assert device.refusal is None
    assert device.journal.spent("example")[0] == 2 * one


def test_a_journal_without_relations_is_not_charged_for_a_device(tmp_path: Path) -> None:
    """A line of an older flmc: its price may be that of one example."""
    journal = DeviceJournal(tmp_path / "device-0")
    journal._append(
        {"joined": "old", "digest": "ab" * 32, "epsilon": 0.05, "delta": 1e-5, "air": "00" * 8}
    )
    journal._append(
        {"run": "old", "round": 1, "binding": "00" * 32, "gain": [0.3], "sealed": "AAAA"}
    )
    journal.close()
    uplink, limits = flmc.Digital(example_clip=0.05), flmc.Limits(neighbouring="example")
    federation = make_federation(make_plan(uplink, limits, gain=0.1))
    device = meet(Kit(tmp_path, federation), budget=Budget(epsilon=1e9))
    assert "what the run 'old' cost is not known for the data of one device" in reason(device)
    close(device)
    device = meet(Kit(tmp_path, federation), budget=Budget(neighbouring="example"))
    assert device.refusal is None
    assert device.journal.spent("example")[0] == 0.05 + cost_of_run(federation, 1e-5, "example")


@pytest.mark.parametrize(
    "bad",
    [
        {"largest_theta": np.inf},
        {"largest_theta": np.nan},
        {"largest_theta": 0.0},
        {"largest_amplitude": np.nan},
        {"largest_amplitude": -1.0},
        {"device": -1},
    ],
    ids=str,
)
def test_rules_that_would_let_everything_pass_are_refused(bad: dict[str, Any]) -> None:
    """With an infinite bound an infinite theta would be answered."""
    with pytest.raises(InvalidSetting):
        Rules(**{"device": 0, **bad})


def test_without_a_budget_what_runs_cost_is_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = meet(Kit(tmp_path, five()))
    assert device.journal.spent("device") == (cost_of_run(five(), 1e-5), 1e-5)

    def unknown(*asked: object) -> float:
        raise UnknownPrivacy("nothing is proven for this uplink")

    monkeypatch.setattr(consent, "cost_of_run", unknown)
    poor = meet(Kit(tmp_path / "poor", five()), budget=Budget(epsilon=1e9))
    assert reason(poor) == "nothing is proven for this uplink"
    careless = meet(Kit(tmp_path / "careless", five()))
    assert careless.refusal is None
    close(careless)
    monkeypatch.undo()
    # What nothing is known of counts as very much, for every budget that is given later.
    later = meet(
        Kit(tmp_path / "careless", make_federation(run="next")), budget=Budget(epsilon=1e9)
    )
    assert "earlier runs" in reason(later)


def test_a_plan_from_the_devices_data_is_refused_unless_accepted(tmp_path: Path) -> None:
    plan = make_plan(step_size="auto", public_smoothness=None, public_convexity=None)
    assert plan.data_dependent
    kit = Kit(tmp_path, make_federation(plan))
    device = meet(kit)
    assert "computed from the devices' data" in reason(device)
    close(device)
    assert meet(kit, accept_data_dependent=True).refusal is None


def test_another_model_and_a_number_beyond_the_plan_are_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    gradient = kit.gradient(0)
    other = meet(kit, model="logistic")
    assert "'linear'" in reason(other)
    beyond = meet(Kit(tmp_path / "b"), number=1, gradient=gradient)
    assert beyond.refusal is None
    device = Kit(tmp_path / "c").device(DEVICES, gradient=gradient)
    device.connected(0.0)
    device.receive(kit.plan_message(), 0.0)
    assert "devices 0 to 3" in reason(device)


def test_without_its_journal_a_device_joins_at_round_1_only(tmp_path: Path) -> None:
    early, late = meet(Kit(tmp_path / "a"), 1), meet(Kit(tmp_path / "b"), 2)
    assert early.refusal is None
    assert "knows nothing of it" in reason(late)
    close(early)
    # With the journal that it joined with, it takes part again at any round.
    assert meet(Kit(tmp_path / "a"), 3).refusal is None
    # Another journal, even one that knows other runs, does not help.
    close(meet(Kit(tmp_path / "c", make_federation(run="other")), 1))
    assert "knows nothing of it" in reason(meet(Kit(tmp_path / "c"), 2))
    shutil.rmtree(tmp_path / "a")


def test_a_plan_that_changes_in_the_run_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    device = meet(kit)
    changed = Kit(tmp_path, make_federation(quorum=3))
    said = device.receive(changed.plan_message(), 0.0)
    assert "plan changed in the run" in reason(device)
    assert Presence.from_bytes(said[0].message.payload).state == "refused"
    close(device)
    # The same after a restart: the journal knows what was agreed to.
    device = meet(changed)
    assert "a plan that changes needs a new run" in reason(device)
    close(device)
    assert meet(kit).refusal is None


def test_another_version_is_refused_by_name_and_damage_is_dropped(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    device = kit.device()
    device.connected(0.0)
    text = kit.federation.to_bytes()
    for damaged in (b"", b"{}", text[:-1], text.replace(b'"quorum": 2', b'"quorum": 3')):
        assert device.receive(kit.message("plan", damaged), 0.0) == []
    assert device.drops.counts == {"malformed": 4}
    assert device.refusal is None
    other = kit.message("plan", text.replace(b'"wire": 1', b'"wire": 2', 1))
    device.receive(other, 0.0)
    assert "wire version 2" in reason(device)


def test_a_slot_that_is_too_short_is_refused_without_telling_how_long_it_took(
    tmp_path: Path,
) -> None:
    kit = Kit(tmp_path)

    def slow(theta: Array) -> Array:
        kit.clock.now += 0.0371
        return np.zeros(DIM)

    why = reason(meet(kit, gradient=slow))
    assert "slot of 50 ms" in why
    assert "37" not in why


@pytest.mark.parametrize(
    "bad",
    [{"epsilon": 0.0}, {"epsilon": math.nan}, {"delta": 0.0}, {"delta": 1.0}, {"runs": 0}],
    ids=str,
)
def test_budgets_out_of_bounds_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting):
        Budget(**bad)


def write_data(folder: Path, kind: str) -> list[Path]:
    """A file with the examples of each device."""
    paths = []
    for k in range(DEVICES):
        data, path = data_of(DATA, k), folder / f"data-{k}.npz"
        targets = data.targets if kind == "linear" else np.where(data.targets > 0, 1.0, -1.0)
        np.savez(path, X=data.features, Y=targets)
        paths.append(path)
    return paths


@pytest.mark.parametrize("bounded", [None, 2.0])
@pytest.mark.parametrize("kind", ["linear", pytest.param("logistic", marks=full_only)])
def test_local_gradients_add_up_to_that_of_all_data(
    kind: str, bounded: float | None, tmp_path: Path
) -> None:
    """Each device reads its own file, has its share of the prior, and clips its own examples."""
    rng, paths = np.random.default_rng(3), write_data(tmp_path, kind)
    uplink = flmc.Digital(example_clip=bounded)
    together = flmc.data.read(paths)
    every = MODELS[kind].maker(together.to_linear() if kind == "linear" else together)
    # Every model of JAX is compiled by itself, so that two of them must do.
    chosen = [0, 1, 2, 3] if kind == "linear" else [0, 3]
    parts = [
        local_gradient(read_model(kind, paths[k]), uplink, DEVICES, dim=every.dim) for k in chosen
    ]
    clipped = False
    for _ in range(full(20, 5)):
        theta = rng.normal(size=every.dim) * 2
        whole = uplink.local_gradients(every, theta[None, None])[0, 0]
        each = np.stack([part(theta) for part in parts])
        # Sums of some tens of numbers in another order.
        assert np.allclose(each, whole[chosen], rtol=1e-9, atol=1e-9)
        if kind == "linear":
            assert np.allclose(each.sum(axis=0), whole.sum(axis=0), rtol=1e-9, atol=1e-9)
        clipped |= not np.allclose(whole, every.gradient(theta[None, None])[0, 0])
    assert clipped == (bounded is not None)


def test_data_with_other_columns_are_refused(tmp_path: Path) -> None:
    """Every gradient would fail, and be answered with coin flips for the whole run."""
    data = data_of(DATA, 0)
    np.savez(tmp_path / "data.npz", X=np.c_[data.features, data.targets], Y=data.targets)
    (tmp_path / "air.pub").write_text(KEYS[1].hex())
    words = {"id": 0, "data": tmp_path / "data.npz", "air_key": tmp_path / "air.pub"}
    words |= {"journal": tmp_path / "journal"}
    device = make_device(read_device(None, "mqtt://127.0.0.1", None, **words), "test")
    MADE.append(device)
    kit = Kit(tmp_path)
    device.connected(0.0)
    device.receive(kit.plan_message(), 0.0)
    device.receive(kit.announce(1), 0.0)
    assert "for 3 entries" in reason(device)
    assert "has 4" in reason(device)
    assert not device.journal.runs
