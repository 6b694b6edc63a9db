"""How the fast engine's data lie in memory changes its speed and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from flmc.sampling.compiled.arrangement import (
    MOST_WRITTEN_OUT,
    OWN,
    ROWS,
    SHARED,
    TEAMS,
    Arrangement,
    Blocks,
    choose_arrangement,
    round_cost,
)
from flmc.sampling.compiled.numba_engine import NumbaEngine
from flmc.sampling.engine import Resources
from flmc.sampling.simulation import simulate
from sampling.problems import Cauchy, quiet_plan
from support import EVIDENCE, QUICK, many_repetitions

UPLINKS = {
    "bits": flmc.Digital(),
    "bits, table": flmc.Digital(link=Cauchy()),
    "bits, norm": flmc.Digital(clipping="norm", clip=20.0),
    "bits, fading": flmc.Digital(fading=flmc.RayleighFading()),
    "analog": flmc.Analog(),
    "analog, often clipped": flmc.Analog(clip=5.0),
    "analog, norm": flmc.Analog(clipping="norm", clip=20.0),
    "ideal": flmc.Ideal(),
}


def problem(dim: int, experiments: int = 3, devices: int = 7) -> flmc.LinearGaussian:
    return flmc.LinearGaussian(
        flmc.data.draw_linear_statistics(
            1, num_experiments=experiments, num_samples=40 * dim, dim=dim, num_devices=devices
        )
    )


def everything(
    kind: str, plan: flmc.Plan, model: flmc.Model, chains: int, cut: int | None = None
) -> list[np.ndarray]:
    """All numbers of a run, with its rounds cut in two if asked."""
    engine, resources = NumbaEngine(kind), Resources(threads=1 if cut is None else 2)
    found = engine.start(plan, model, 0, chains, keep_draws=True)
    for until in (plan.num_rounds,) if cut is None else (cut, plan.num_rounds):
        engine.advance(found, plan, model, 0, until, resources)
    moments = found.moments
    assert found.draws is not None
    return [
        np.array(found.position), moments.sums, moments.products, found.draws,
        np.array(found.num_clipped),
    ]  # fmt: skip


DIMS = (1, 5, 8, 9, 17, 50, 104)
"""Loops that are written out, up to 8; then a single tile, one that is partly filled, and several
that are full."""
# What an uplink does to a vector is one code, whatever tile the vector belongs to: every uplink is
# seen in both kinds of loops, and those that differ most in every kind of tile.
SEEN = [
    (name, dim)
    for name in UPLINKS
    for dim in DIMS
    if dim in (5, 17) or EVIDENCE or (name in ("bits", "analog, norm", "ideal") and not QUICK)
]


@many_repetitions
@pytest.mark.parametrize(("name", "dim"), SEEN)
def test_arrangements_give_the_same_bits(name: str, dim: int) -> None:
    """For 1, 3 and 11 chains, which fill no block, a part of one, and one and a part."""
    model = problem(dim)
    plan = flmc.plan(model, UPLINKS[name], forecast=False, num_rounds=137, num_burn_in=50)
    kinds = (SHARED,) if dim <= MOST_WRITTEN_OUT else (SHARED, TEAMS, ROWS)
    for chains in (1, 3, 11):
        expected = everything(OWN, plan, model, chains)
        for kind in kinds:
            # The second run stops inside a block of the streams and of normals.
            for found in (everything(kind, plan, model, chains, cut=cut) for cut in (None, 77)):
                for one, other in zip(found, expected, strict=True):
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("kind", [OWN, SHARED, TEAMS, ROWS])
@pytest.mark.parametrize("scheduler", [flmc.RandomDevices(3), flmc.ThresholdDevices(0.02)])
def test_arrangements_with_silent_devices(kind: str, scheduler: flmc.Scheduler) -> None:
    model = problem(12)
    uplink = flmc.Digital(fading=flmc.RayleighFading())
    plan = flmc.plan(
        model, uplink, scheduler=scheduler, forecast=False, num_rounds=140, num_burn_in=20
    )
    expected = everything(OWN, plan, model, 3)
    for one, other in zip(everything(kind, plan, model, 3, cut=33), expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_many_entries_against_numpy() -> None:
    """A run without noise of the fast engine and of NumPy's, for an uplink without bits."""
    model = problem(40, experiments=1)
    plan = quiet_plan(model, flmc.Analog(noise_power=1e-12, snr_db=380.0))
    slow = simulate(plan, model, 0, engine="numpy", keep_draws=True).draws
    for kind in (OWN, SHARED, TEAMS, ROWS):
        fast = simulate(plan, model, 0, engine=NumbaEngine(kind), keep_draws=True).draws
        assert slow is not None
        assert fast is not None
        # Single precision, over 40 rounds.
        np.testing.assert_allclose(fast, slow, atol=2e-6 * np.abs(slow).max())


def test_squares_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where products would be too many, the variances are those of the products."""
    model = problem(20)
    plan = flmc.plan(model, flmc.Digital(), forecast=False, num_rounds=40, num_burn_in=10)
    expected = simulate(plan, model, 0, engine="numba").moments
    monkeypatch.setattr("flmc.sampling.moments.MOST_ENTRIES", 10)
    found = simulate(plan, model, 0, engine="numba").moments
    assert not found.has_covariance
    np.testing.assert_allclose(found.variance, expected.variance, rtol=1e-12)


@given(
    kind=st.sampled_from([OWN, SHARED, TEAMS, ROWS]),
    dim=st.integers(1, 3000),
)
def test_room_for_every_number(kind: str, dim: int) -> None:
    if kind in (TEAMS, ROWS) and dim <= MOST_WRITTEN_OUT:
        return
    arrangement = Arrangement.of(kind, dim)
    vectors = -(-dim // 8) if kind == ROWS else dim
    if arrangement.entries:
        numbers = dim + dim * (dim + 1) // 2
    else:
        assert arrangement.tiles(dim) * arrangement.tile >= vectors
        assert arrangement.whole == (arrangement.tiles(dim) * arrangement.tile == vectors)
        numbers = vectors * (dim + 1)
    assert arrangement.device_size(dim) >= numbers * arrangement.unit


@given(
    kind=st.sampled_from([OWN, SHARED, TEAMS, ROWS]),
    first=st.integers(0, 500),
    count=st.integers(1, 300),
    num_chains=st.integers(1, 100),
)
def test_blocks_hold_every_chain_once(kind: str, first: int, count: int, num_chains: int) -> None:
    arrangement = Arrangement.of(kind, 20)
    blocks = Blocks.of(arrangement, first, first + count, num_chains)
    real = np.arange(8) < blocks.lanes[:, None]
    np.testing.assert_array_equal(blocks.chains[real], np.arange(first, first + count))
    assert blocks.lanes.max() <= arrangement.lanes
    if kind != OWN:  # lanes share a data set, and its blocks a unit
        assert (blocks.data_sets == blocks.data_sets[:, :1]).all()
        units = blocks.data_sets[blocks.first_of_unit, 0]
        np.testing.assert_array_equal(units[blocks.unit], blocks.data_sets[:, 0])
    else:
        np.testing.assert_array_equal(blocks.unit, np.arange(len(blocks.firsts)))


sizes = {"devices": st.integers(1, 10_000), "dim": st.integers(1, 600)}


@given(experiments=st.integers(1, 100_000), chains=st.integers(1, 10_000), **sizes)
def test_the_policy_takes_what_costs_least(
    devices: int, dim: int, experiments: int, chains: int
) -> None:
    chosen = choose_arrangement(devices, dim, experiments, chains)
    kinds = (OWN, SHARED) if dim <= MOST_WRITTEN_OUT else (OWN, SHARED, TEAMS, ROWS)
    costs = {kind: round_cost(kind, devices, dim, experiments, chains) for kind in kinds}
    assert costs[chosen] == min(costs.values())
    assert all(cost > 0 for cost in costs.values())


def test_the_policy_at_known_sizes() -> None:
    """The paper's experiment, many chains of a large problem, and one chain of it."""
    assert choose_arrangement(20, 5, 1000, 1) == OWN
    assert choose_arrangement(20, 50, 1, 64) == SHARED
    assert choose_arrangement(20, 500, 1, 64) == TEAMS
    assert choose_arrangement(20, 100, 1, 1) == ROWS
    assert choose_arrangement(20, 100, 50, 1) == ROWS
