"""Relations in a deployment: a device consents to that of its budget, and never adds up two."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest

import flmc
from deploy.federations import Kit, close, make_federation, make_plan
from deploy.test_consent import meet, reason
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.deploy.accounting import RunPrice, cost_of_run
from flmc.deploy.device.consent import Budget
from flmc.deploy.device.device_journal import Price, read_ledger
from flmc.wire.federation import Federation
from privacy.oracle import normal


def named(run: str, relation: str, unit: str = "device") -> Federation:
    """A federation of a plan with that relation; its run costs little."""
    limits = flmc.Limits(neighbouring=unit, relation=relation)
    uplink = flmc.Digital(example_norm=2.0) if unit == "example" else flmc.Digital()
    return make_federation(make_plan(uplink, limits, gain=0.01), run=run)


def test_a_device_joins_for_the_relation_of_its_budget_alone(tmp_path: Path) -> None:
    zeroed, replaced = named("zeroed", "zero_out"), named("replaced", "replace")
    why = reason(device := meet(Kit(tmp_path, zeroed), budget=Budget()))
    assert "the plan has relation 'zero_out'" in why
    assert "'replace'" in why
    close(device)
    device = meet(Kit(tmp_path, zeroed), budget=Budget(relation="zero_out"))
    assert device.refusal is None
    cost = cost_of_run(zeroed, 1e-5)
    assert cost == cost_of_run(zeroed, 1e-5, "device", 1, "zero_out")
    assert cost < cost_of_run(replaced, 1e-5)
    assert device.journal.spent("device") == (cost, 1e-5)
    close(device)
    # The journal remembers, also where the budget is without a limit.
    for budget in (Budget(), Budget(epsilon=math.inf)):
        why = reason(device := meet(Kit(tmp_path, replaced), budget=budget))
        assert "'zeroed' was joined for relation 'zero_out'" in why
        assert "do not add up" in why
        close(device)
    (journal,) = tmp_path.rglob("journal.txt")
    ledger = read_ledger(journal.parent)
    assert [row.price.relation for row in ledger.rows] == ["zero_out"]


def test_prices_of_two_relations_have_no_sum() -> None:
    one = Price("device", 1.0, 0.5, 1e-5)
    other = Price("device", 0.6, None, 1e-5, "zero_out")
    assert Price.from_entry(one.to_entry()) == one
    assert "relation" not in one.to_entry()
    assert Price.from_entry(other.to_entry()) == other
    assert Price("device", 1.0, None, 1e-5).epsilon("example") == 1.0
    # The gradient of an example put to zero is no device put to zero.
    assert other.epsilon("example") >= 1e300


def test_who_is_there_is_not_hidden() -> None:
    with pytest.raises(InvalidSetting, match="shows which devices are there"):
        Budget(relation="add_remove")
    assert Budget(neighbouring="example", relation="add_remove").share == 1e-5
    federation = named("one", "add_remove", "example")
    assert (
        0 < cost_of_run(federation, 1e-5) < cost_of_run(federation, 1e-5, "example", 1, "replace")
    )
    with pytest.raises(UnknownPrivacy, match="shows which devices are there"):
        cost_of_run(federation, 1e-5, "device")
    price = RunPrice.of(federation, 1e-5, "example", 1, "add_remove")
    assert "one example of one device is added or removed" in str(price.listing())


@pytest.mark.parametrize("bits", [6, 12])
@pytest.mark.parametrize("unit", ["device", "example"])
def test_rounded_symbols_cost_what_their_steps_say(bits: int, unit: str) -> None:
    """Two values a distance apart are at most that distance, rounded up, apart in steps."""
    uplink = flmc.Analog(clip=3.0, example_clip=0.7, snr_db=60.0)
    limits = flmc.Limits(neighbouring=unit, relation="zero_out")
    plan = replace(make_plan(gain=0.1, num_rounds=9, num_burn_in=0), uplink=uplink, limits=limits)
    federation = Federation("test", plan, 2, grid_bits=bits)
    move = 0.1 * (3.0 if unit == "device" else 0.7) * 2**bits
    steps = math.floor(move) if unit == "device" else math.ceil(move)
    mu = math.sqrt(9 * plan.dim) * steps / 2**bits
    stated = cost_of_run(federation, 1e-5)
    assert stated >= normal.epsilon_of(1e-5, mu) * (1 - 1e-9)
    assert stated <= normal.epsilon_of(1e-5, mu + 2 * math.sqrt(9 * plan.dim) / 2**bits)
