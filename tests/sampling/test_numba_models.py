"""Models, data and links of users in the numba engine, and the edge of single precision."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.models.local_costs import Quadratic
from flmc.sampling.compiled.link_curve import WORD_SCALE, fit
from flmc.sampling.engine_choice import choose_engine
from flmc.sampling.simulation import simulate
from sampling.problems import Cauchy, quiet_plan, thresholds
from support import full


class Own(flmc.Model):
    """A quadratic model of a user's."""

    dim, num_devices = 2, 3

    def __init__(self, offset: Array, scale: float = 1.0) -> None:
        self.cost = Quadratic(scale * np.tile(np.eye(2), (1, 3, 1, 1)), offset)
        self.smoothness = self.convexity = 3.0 * scale

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        hessian, offset = self.quadratic(experiments)
        return np.asarray(np.einsum("ekij,ecj->ecki", hessian, theta) - offset[:, None])

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic:
        return Quadratic(*(array[experiments] for array in self.cost))


def test_models_of_a_user() -> None:
    uplink = flmc.Digital(link=Cauchy())
    good = Own(np.ones((1, 3, 2)))
    plan = flmc.plan(good, uplink, num_rounds=20, num_burn_in=10)
    assert flmc.run(plan, good).engine == "numba"
    # A NaN must not reach a table's index; arrays that do not fit must not be read beyond their
    # end.
    bad = Own(np.full((1, 3, 2), np.nan))
    with pytest.raises(RunFailed, match="is not finite"):
        flmc.run(plan, bad, engine="numba")
    with pytest.raises(InvalidSetting, match="needs a quadratic model, with a Hessian"):
        flmc.run(plan, Own(np.ones((1, 2, 2))), engine="numba")
    with pytest.raises(InvalidSetting, match="must fit"):
        flmc.data.LinearStatistics(np.ones((1, 1, 5, 5)), np.ones((1, 20, 5)))

    class Robust(Own):
        def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
            return np.tanh(super().gradient(theta, experiments))

    assert flmc.run(plan, Robust(np.ones((1, 3, 2)))).engine == "numpy"


def test_far_from_the_prior() -> None:
    """Single precision is spent on deviations from the mode, even where the posterior is not
    declared."""
    model = Own(
        np.full((1, 3, 2), 1e11), scale=1e6
    )  # the mode is at 1e5, the standard deviation 6e-4
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=3000, num_burn_in=2000)
    result = flmc.run(plan, model, chains=64, engine="numba")
    assert result.engine == "numba"
    # At 1e5 single precision resolves 8e-3, ten times the standard deviation: positions that were
    # no deviations would miss by far more than 20 %.
    assert np.trace(result.covariance[0]) == pytest.approx(2 / 3e6, rel=0.2)


def test_links_of_a_user_are_their_own() -> None:
    class Shifted(flmc.Sigmoid):
        def probability(self, g: Array) -> Array:
            return super().probability(g + 4.0)

    class SoftSign(flmc.Sign):
        def probability(self, g: Array) -> Array:
            return 0.5 + 0.4 * np.tanh(g / 10.0)

    for link in (Shifted(0.05), SoftSign()):
        curve = fit(link, 30.0)
        assert curve is not None
        value = 0.5 + 0.5 * thresholds(np.array([0.1], np.float32), curve)[0] / WORD_SCALE
        assert value == pytest.approx(float(link.probability(np.array(3.0))), abs=1e-6)

    class Halved(flmc.Digital):
        def clipped(self, gradient: Array) -> Array:
            return super().clipped(gradient) / 2

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(model, Halved(), flmc.Limits(privacy="off"), num_rounds=4, num_burn_in=1)
    assert choose_engine("auto", plan, model).name == "numpy"


def test_ideal_with_silent_devices(small: flmc.LinearGaussian) -> None:
    active = np.ones((60, 4))
    active[:, 0] = 0
    plan = flmc.plan(small, flmc.Ideal(), num_rounds=60, num_burn_in=20, active=active)
    plain, compiled = (
        flmc.run(plan, small, chains=full(400, 100), engine=name) for name in ("numpy", "numba")
    )
    assert compiled.clipped_fraction == 0
    # Five standard errors, where each chain counts as one draw; 1.5 is more than sqrt(2), for the
    # difference of two means.
    spread = np.sqrt(np.diagonal(plain.covariance, axis1=1, axis2=2) / full(400, 100))
    assert (np.abs(plain.mean - compiled.mean) < 5 * 1.5 * spread).all()


def test_devices_without_curvature_are_heard_by_chains_that_are_far() -> None:
    model = Own(np.zeros((1, 3, 2)))
    model.cost = Quadratic(
        np.array([1000.0, 1000.0, 0.0])[None, :, None, None] * np.eye(2),
        np.array([1e6, -1e6, 0.5])[None, :, None] * np.ones(2),
    )
    plan = flmc.plan(
        model,
        flmc.Analog(clip=1.0, snr_db=300.0),
        flmc.Limits(langevin="off"),
        gain=1e7,
        step_size=1e-2,
        forecast=False,
        start="zero",
        num_rounds=40,
        num_burn_in=1,
    )
    plain, compiled = (flmc.run(plan, model, engine=name).draws for name in ("numpy", "numba"))
    np.testing.assert_allclose(compiled, plain, atol=1e-5)


def test_numbers_beyond_single_precision() -> None:
    plan = flmc.plan(
        Own(np.ones((1, 3, 2))),
        flmc.Analog(clip=1e-12),
        num_rounds=5,
        num_burn_in=1,
        forecast=False,
    )
    with pytest.raises(RunFailed, match="too large against the clip"):
        flmc.run(plan, Own(np.ones((1, 3, 2)), scale=1e6), engine="numba")
    flat = Own(np.ones((1, 3, 2)))
    flat.smoothness, flat.convexity = 1e3, 1e-12
    assert choose_engine("auto", plan, flat).name == "numpy"


def test_whole_numbers_as_data() -> None:
    model = Own(np.ones((1, 3, 2)))
    plan = quiet_plan(model, flmc.Analog(clip=1000.0, snr_db=300.0))
    other = Own(np.ones((1, 3, 2)))
    other.cost = Quadratic(model.cost.hessian.astype(np.uint8), model.cost.offset.astype(np.uint8))
    first, second = (flmc.run(plan, m, engine="numba").draws for m in (model, other))
    np.testing.assert_array_equal(first, second)


def test_a_plan_of_another_model_is_refused() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=400, num_devices=200))
    few = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=400, num_devices=2))
    plan = flmc.plan(few, flmc.Analog(), num_rounds=5, num_burn_in=1, forecast=False)
    with pytest.raises(InvalidSetting, match="needs a quadratic model"):
        simulate(plan, model, 0, engine="numba")


def test_large_problems_are_not_left_to_numpy() -> None:
    """The engine says how it puts chains together: by what was measured."""
    for devices, dim, words in ((20, 200, "32 chains of a data set"), (2000, 20, "8 chains")):
        source = flmc.data.draw_linear_statistics(
            0, num_experiments=1, num_samples=devices * dim, dim=dim, num_devices=devices,
            kind="sufficient",
        )  # fmt: skip
        model = flmc.LinearGaussian(source)
        plan = flmc.plan(model, flmc.Digital(), forecast=False, num_rounds=2, num_burn_in=1)
        engine = choose_engine("auto", plan, model)
        assert engine.name == "numba"
        assert words in engine.blocking(plan, model, 64)
        assert engine.blocking(plan, model, 1) == "one chain at a time"


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_first_chain_that_fails_is_told(threads: int) -> None:
    """The first chain that fails is named, whichever thread meets a failure first."""
    steep = np.isin(np.arange(2000), [1990, 701, 702, 1200])
    model = Many(np.where(steep, 50.0, 1.0))
    plan = flmc.plan(
        model, flmc.Ideal(), num_rounds=100, num_burn_in=50, step_size=0.1, start="zero"
    )
    with pytest.raises(RunFailed, match="data set 701, chain 0"):
        flmc.run(plan, model, engine="numba", threads=threads)


class Many(Own):
    """Data sets of different curvature."""

    def __init__(self, curvature: Array) -> None:
        super().__init__(np.ones((1, 3, 2)))
        self.num_experiments = len(curvature)
        hessian = curvature[:, None, None, None] * np.tile(np.eye(2), (1, 3, 1, 1))
        self.cost = Quadratic(hessian, np.ones((len(curvature), 3, 2)))


class _Doubled:
    """A base that changes symbols before an uplink does."""

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        return np.asarray(2.0 * np.sign(gradient))


class _Mixed(_Doubled, flmc.Digital):
    pass


class _Same(flmc.Digital):
    pass


def test_symbols_of_a_mixin_are_not_taken_for_the_standard_ones() -> None:
    assert _Same.standard_symbols
    assert not _Mixed.standard_symbols
