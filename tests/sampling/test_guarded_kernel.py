"""What compiled code must not do with memory, and what it must take from models and channels."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.local_costs import Quadratic
from flmc.sampling import moments
from flmc.sampling.compiled.arrangement import OWN, ROWS, SHARED, choose_arrangement
from flmc.sampling.compiled.numba_engine import NumbaEngine
from flmc.sampling.engine import Resources
from flmc.sampling.simulation import simulate
from sampling.problems import quiet_plan
from sampling.test_arrangements import problem

QUIET = {"noise_power": 1e-12, "snr_db": 380.0}


class OwnCosts(flmc.Model):
    """Quadratic costs as a user may give them."""

    smoothness, convexity = 500.0, 1.0

    def __init__(self, hessian: Array, offset: Array) -> None:
        self.hessian, self.offset, self.prior = hessian, offset, flmc.Normal(0.0, 1.0)

    num_experiments = property(lambda self: self.hessian.shape[0])
    num_devices = property(lambda self: self.hessian.shape[1])
    dim = property(lambda self: self.hessian.shape[2])

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        product = np.einsum("ekij,ecj->ecki", self.hessian[experiments], theta)
        return np.asarray(product - self.offset[experiments][:, None])

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic:
        return Quadratic(self.hessian[experiments], self.offset[experiments])


def own_costs(dim: int, kind: str = "f8") -> OwnCosts:
    rng = np.random.default_rng(0)
    root = rng.normal(size=(3, 4, dim, dim))
    hessian = root @ np.swapaxes(root, 2, 3) / dim + np.eye(dim)
    return OwnCosts(hessian.astype(kind), rng.normal(size=(3, 4, dim)).astype(kind))


def kinds(dim: int) -> tuple[str, ...]:
    return (OWN, SHARED) if dim <= 8 else (OWN, SHARED, ROWS)


@pytest.mark.parametrize("dim", [5, 12])
@pytest.mark.parametrize(("experiments", "chains"), [(3, 1), (9, 1), (1, 8)])
def test_symbols_that_arrive_turned_round(dim: int, experiments: int, chains: int) -> None:
    """With bad estimates of the channel the factor of a symbol may be negative; then the symbol
    counts, whatever the other lanes of its block do."""
    model = problem(dim, experiments)
    uplink = flmc.Analog(fading=flmc.RayleighFading(0.04), csi_error=0.8, **QUIET)  # type: ignore[arg-type]
    plan = quiet_plan(model, uplink, scheduler=flmc.ThresholdDevices(0.02))
    slow = simulate(plan, model, 0, chains, engine="numpy", keep_draws=True)
    assert slow.draws is not None
    for kind in kinds(dim):
        for at_once in (None, 1):
            fast = simulate(
                plan, model, 0, chains, engine=NumbaEngine(kind), keep_draws=True,
                resources=Resources(threads=1, experiments_at_once=at_once),
            )  # fmt: skip
            assert fast.draws is not None
            atol = 4e-6 * float(np.abs(slow.draws).max())
            np.testing.assert_allclose(fast.draws, slow.draws, atol=atol)
            assert fast.num_clipped == slow.num_clipped


@pytest.mark.parametrize("dim", [2, 5, 8])
@pytest.mark.parametrize("kind", [OWN, SHARED])
def test_squares_alone_of_few_entries(kind: str, dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As for very many chains of a data set; cut in two, so that squares are added to squares."""
    model = problem(dim)
    plan = flmc.plan(model, flmc.Digital(), forecast=False, num_rounds=40, num_burn_in=10)
    expected = simulate(plan, model, 0, 9, engine=NumbaEngine(kind)).moments
    monkeypatch.setattr(moments, "MOST_PRODUCTS", 10)
    engine = NumbaEngine(kind)
    chains = engine.start(plan, model, 0, 9, keep_draws=False)
    for until in (23, 40):
        engine.advance(chains, plan, model, 0, until)
    assert chains.moments.products.shape == (3, 9, dim)
    np.testing.assert_array_equal(chains.moments.products, np.diagonal(expected.products, 0, 2, 3))


@pytest.mark.parametrize("dim", [5, 12])
def test_costs_in_single_precision(dim: int) -> None:
    model = own_costs(dim, "f4")
    plan = quiet_plan(model, flmc.Analog(**QUIET))  # type: ignore[arg-type]
    slow = simulate(plan, model, 0, engine="numpy", keep_draws=True).draws
    assert slow is not None
    for kind in kinds(dim):
        fast = simulate(plan, model, 0, engine=NumbaEngine(kind), keep_draws=True).draws
        assert fast is not None
        np.testing.assert_allclose(fast, slow, atol=3e-5 * float(np.abs(slow).max()))


@pytest.mark.parametrize("dim", [5, 12])
def test_hessians_that_are_not_symmetric(dim: int) -> None:
    """Rounding is taken, anything else is refused: the kernel reads half of a matrix."""
    model = own_costs(dim)
    plan = quiet_plan(model, flmc.Analog(**QUIET))  # type: ignore[arg-type]
    model.hessian[:, :, 0, 1] *= 1 + 1e-12
    simulate(plan, model, 0, engine="numba")
    model.hessian[:, 2, 0, 1] += 0.1
    with pytest.raises(InvalidSetting, match="device 2 is not symmetric"):
        simulate(plan, model, 0, engine="numba")


def test_rounds_that_a_plan_does_not_have() -> None:
    model = problem(12)
    uplink = flmc.Digital(fading=flmc.RayleighFading())
    plan = flmc.plan(model, uplink, forecast=False, num_rounds=40, num_burn_in=10)
    engine = NumbaEngine()
    chains = engine.start(plan, model, 0, 3, keep_draws=True)
    with pytest.raises(ValueError, match="40 rounds"):
        engine.advance(chains, plan, model, 0, 100)


def test_arrangements_that_there_are_not() -> None:
    with pytest.raises(InvalidSetting, match="arrangement"):
        NumbaEngine("Own")


def test_blocks_of_large_data_sets() -> None:
    """Only one of these data sets is in memory at once: eight together would be one eight times."""
    assert choose_arrangement(100, 201, 8, 1) == ROWS
    assert choose_arrangement(1000, 500, 1000, 1) == ROWS
