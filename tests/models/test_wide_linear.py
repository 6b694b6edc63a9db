"""Linear regression held as examples: its gradients, and examples that are drawn when needed."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from flmc.data.synthetic import DrawnExamples
from flmc.models.wide_linear import WideLinear

SIZES = (7, 0, 12, 12)
DATA = flmc.data.draw_linear(3, num_samples=sum(SIZES), dim=9, device_sizes=SIZES)
THETA = np.random.default_rng(1).standard_normal((1, 5, 9))


def test_the_summed_gradient_is_the_sum() -> None:
    model = WideLinear(DATA, noise_variance=0.7)
    np.testing.assert_allclose(
        model.summed_gradient(THETA[0]), model.gradient(THETA)[0].sum(axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("bound", [0.3, 2.0, 1e6])
def test_examples_are_bounded_as_in_the_model_of_statistics(bound: float) -> None:
    wide, narrow = (kind(DATA, noise_variance=0.7) for kind in (WideLinear, flmc.LinearGaussian))
    for name in ("clipped_gradient", "norm_clipped_gradient"):
        np.testing.assert_allclose(
            getattr(wide, name)(THETA, bound), getattr(narrow, name)(THETA, bound), atol=1e-9
        )


def test_an_example_that_overflows_counts_for_nothing_or_is_bounded() -> None:
    features = np.array([[1e200, 1.0], [1.0, 1.0]])
    model = WideLinear(flmc.LinearData(features / 1e60, np.zeros(2), (1, 1)))
    far = np.full((1, 1, 2), 1e300)
    with np.errstate(all="ignore"):
        share = model.prior_share(far)[:, :, None]
        entries = model.clipped_gradient(far, 1.0) - share
        whole = model.norm_clipped_gradient(far, 1.0) - share
    assert np.abs(entries).max() <= 1.0
    assert np.linalg.norm(whole, axis=-1).max() <= 1.0 + 1e-12


@pytest.mark.parametrize(("count", "dim"), [(40, 60), (300, 20), (50, 50)])
def test_no_data_set_is_above_the_bound_of_its_curvature(count: int, dim: int) -> None:
    """The bound holds but for 1e-9, and is not twice what the data have."""
    for seed in range(20):
        source = DrawnExamples(seed, 1, (count,), dim)
        features = source.draw().features[0]
        top = float(np.linalg.eigvalsh(features.T @ features)[-1])
        assert top <= source.largest_curvature
        assert source.largest_curvature < 4 * top


def test_what_is_drawn_later_is_what_would_have_been_drawn() -> None:
    later = WideLinear(DrawnExamples(3, 2, SIZES, 9))
    now = WideLinear(
        flmc.data.draw_linear(
            3, num_experiments=2, num_samples=sum(SIZES), dim=9, device_sizes=SIZES
        )
    )
    assert later.undrawn
    assert not now.undrawn
    assert later.smoothness > now.smoothness
    flmc.plan(later, flmc.Digital(), num_rounds=20, num_burn_in=10)
    assert later.undrawn, "a plan needs no examples"
    theta = np.concatenate([THETA, -THETA])
    np.testing.assert_array_equal(later.gradient(theta), now.gradient(theta))
    assert not later.undrawn


@pytest.mark.parametrize("sizes", [(4, 4), (1, 7), (20, 20)], ids=["few", "uneven", "many"])
def test_steps_by_products_of_examples_are_the_steps(sizes: tuple[int, ...]) -> None:
    data = flmc.data.draw_linear(3, num_samples=sum(sizes), dim=9, device_sizes=sizes)
    model = WideLinear(data, noise_variance=0.7, prior_precision=2.0)
    noise = np.random.default_rng(2).standard_normal((6, *THETA[0].shape))
    theta = THETA[0]
    for each in noise:
        theta = theta - 0.02 * model.gradient(theta[None])[0].sum(axis=1) + each
    np.testing.assert_allclose(model.after_steps(THETA[0], 0.02, noise), theta, atol=1e-11)
