"""Supports: Jacobians against automatic differentiation, round trips, and what extreme free numbers
give, for every support that flmc has."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models import supports
from flmc.models.supports import Correlation, Interval, PositiveDefinite, Simplex, Support

jax = pytest.importorskip("jax", reason="needs the extra jax")

CASES: dict[str, tuple[Support, tuple[int, ...]]] = {
    "real": (supports.real, (2, 3)),
    "positive": (supports.positive, (3,)),
    "unit interval": (supports.unit_interval, ()),
    "interval": (Interval(2.0, 5.0), (2,)),
    "interval below 0": (Interval(-3.0, 0.0), (2,)),
    "above": (Interval(2.0), (2,)),
    "below": (Interval(high=-1.0), (2,)),
    "simplex": (supports.simplex, (4,)),
    "simplices": (supports.simplex, (2, 3)),
    "ordered": (supports.ordered, (4,)),
    "positive definite": (supports.positive_definite, (3, 3)),
    "cholesky": (supports.cholesky, (2, 3, 3)),
    "correlation": (supports.correlation, (4, 4)),
    "correlations": (supports.correlation, (2, 2, 2)),
    "correlation cholesky": (supports.correlation_cholesky, (4, 4)),
}
EVERY = pytest.mark.parametrize("case", CASES)


def determining(support: Support, value: Any) -> Any:
    """The entries of one value that determine the others."""
    if isinstance(support, Simplex):
        return value[..., :-1].ravel()
    if isinstance(support, PositiveDefinite | Correlation):
        below = -1 if isinstance(support, Correlation) else 0
        rows, columns = np.tril_indices(value.shape[-1], below)
        return value[..., rows, columns].ravel()
    return value.ravel()


def test_every_support_of_flmc_is_tested() -> None:
    offered = {each for each in vars(supports).values() if isinstance(each, Support)}
    assert offered <= {support for support, _ in CASES.values()}
    kinds = {each for each in vars(supports).values() if isinstance(each, type)}
    concrete = {each for each in kinds if issubclass(each, Support) and each is not Support}
    assert concrete == {type(support) for support, _ in CASES.values()}


@EVERY
def test_values_are_inside_and_go_back(case: str) -> None:
    support, shape = CASES[case]
    free = 2.0 * np.random.default_rng(1).standard_normal((50, *support.free_shape(shape)))
    values = support.constrain(free)
    assert values.shape == (50, *shape)
    assert all(support.contains(value) for value in values)
    # Repetitions and leading axes are handled one by one, but for the order of sums.
    for some, value in zip(free, values, strict=True):
        np.testing.assert_allclose(support.constrain(some), value, rtol=1e-13)
        # Rounding to 1e-16 of the largest entry, over differences of e^-6 at free numbers of 6.
        np.testing.assert_allclose(support.free(value), some, rtol=1e-9, atol=1e-9)


@EVERY
def test_the_jacobian_is_that_of_automatic_differentiation(case: str) -> None:
    support, shape = CASES[case]
    jacobian = jax.jit(jax.jacobian(lambda u: determining(support, support.constrain(u))))
    log_jacobian = jax.jit(support.log_jacobian)
    rng = np.random.default_rng(2)
    for _ in range(3):
        free = rng.standard_normal(support.free_shape(shape))
        with jax.enable_x64():
            derivative, stated = jacobian(free), float(log_jacobian(free))
        sign, expected = np.linalg.slogdet(np.reshape(derivative, (free.size, free.size)))
        assert sign != 0
        # Determinants of at most 12 rows lose a few digits of double precision.
        assert stated == pytest.approx(expected, abs=1e-10)
        assert float(support.log_jacobian(free)) == pytest.approx(stated, abs=1e-12)


@EVERY
def test_differences_agree_with_the_jacobian(case: str) -> None:
    """A second computation, without automatic differentiation: central differences."""
    support, shape = CASES[case]
    free = np.random.default_rng(3).standard_normal(support.free_shape(shape))
    step, columns = 1e-5, []
    for index in np.ndindex(*free.shape):
        moved = np.zeros_like(free)
        moved[index] = step
        high, low = (determining(support, support.constrain(free + s * moved)) for s in (1, -1))
        columns.append((high - low) / (2 * step))
    _, expected = np.linalg.slogdet(np.stack(columns, axis=1))
    # Errors of step^2 and of rounding over step, some 1e-10 each, times the condition.
    assert float(support.log_jacobian(free)) == pytest.approx(expected, abs=1e-6)


@functools.cache
def compiled(case: str) -> tuple[Any, Any]:
    """The value and the gradient of a density of a support's values, and the values, compiled once
    for each precision. The density takes logarithms of positive numbers."""
    support = CASES[case][0]

    def density(free: Any) -> Any:
        value = support.constrain(free)
        if isinstance(support, Interval):
            distances = [value - support.low, support.high - value]
            finite = [d for d, end in zip(distances, (support.low, support.high), strict=True)
                      if np.isfinite(end) and end == 0]  # fmt: skip
            total = sum(jax.numpy.log(each).sum() for each in finite)
        elif isinstance(support, Simplex):
            total = jax.numpy.log(value).sum()
        elif isinstance(support, PositiveDefinite | Correlation) and support.factor:
            total = jax.numpy.log(jax.numpy.diagonal(value, axis1=-2, axis2=-1)).sum()
        else:
            total = (value * 1e-3).sum()
        return total + support.log_jacobian(free)

    return jax.jit(jax.value_and_grad(density)), jax.jit(support.constrain)


@EVERY
@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("far", [-1000.0, -80.0, -30.0, 0.0, 30.0, 80.0, 1000.0])
def test_far_away_everything_is_finite(case: str, kind: Any, far: float) -> None:
    """Values stay inside where rounding can tell, and so do gradients of what densities take of
    them: logarithms of positive numbers, squares of others."""
    support, shape = CASES[case]
    density, constrain = compiled(case)
    free = np.full(support.free_shape(shape), far, kind)
    with jax.enable_x64():
        value, slope = density(free)
        traced = np.asarray(constrain(free))
    assert traced.dtype == slope.dtype == kind
    assert np.isfinite(traced).all()
    assert np.isfinite(value)
    assert np.isfinite(slope).all()
    if isinstance(support, Interval):
        assert ((traced > support.low) & (traced < support.high)).all()
    if isinstance(support, Simplex):
        assert (traced > 0).all()
    # The same in NumPy, but for rounding, which an exponential multiplies by its argument: up to 90
    # in single precision, 700 in double.
    rounding = np.finfo(kind).eps * (90 if kind == np.float32 else 700)
    np.testing.assert_allclose(support.constrain(free), traced, rtol=rounding, atol=1e-30)


def test_no_entry_of_a_simplex_is_treated_unlike_the_others() -> None:
    """Equal free numbers of length r in all directions give shares of the same spread: the law of
    standard normal free numbers does not change when entries are swapped."""
    contrasts = supports._contrasts(5)
    np.testing.assert_allclose(contrasts.T @ contrasts, np.eye(4), atol=1e-15)
    np.testing.assert_allclose(contrasts @ contrasts.T, np.eye(5) - 0.2, atol=1e-15)


def test_units_of_a_matrix_shift_one_free_number() -> None:
    rng = np.random.default_rng(4)
    root = rng.standard_normal((3, 3))
    matrix, units = root @ root.T, np.diag([1.0, 100.0, 1.0])
    before, after = (supports.positive_definite.free(each) for each in (matrix,
                     units @ matrix @ units))  # fmt: skip
    moved = np.flatnonzero(np.abs(after - before) > 1e-12)
    # In the order of rows: (0,0), (1,0), (1,1), (2,0), (2,1), (2,2).
    assert moved.tolist() != []
    assert after[2] - before[2] == pytest.approx(np.log(100.0))


@pytest.mark.parametrize(
    ("support", "start", "message"),
    [
        (supports.positive, 0.0, "start of 'w' must be positive, got 0"),
        (supports.positive, [1.0, -2.0], "start of 'w' must be positive"),
        (Interval(0.0, 1.0), 1.0, "must be between 0 and 1, got 1"),
        (Interval(2.0), 1.0, "must be above 2"),
        (Interval(high=2.0), 3.0, "must be below 2"),
        (supports.simplex, [0.5, 0.6], "positive with a sum of 1"),
        (supports.simplex, [1.0], "'w': a simplex needs 2 entries"),
        (supports.ordered, [1.0, 1.0], "increasing along the last axis"),
        (supports.ordered, 1.0, "'w': ordered entries need an axis"),
        (supports.positive_definite, [[1.0, 2.0], [2.0, 1.0]], "symmetric positive definite"),
        (supports.positive_definite, [[1.0, 2.0]], "a square matrix"),
        (supports.cholesky, [[1.0, 2.0], [0.0, 1.0]], "lower triangular"),
        (supports.correlation, [[2.0, 0.0], [0.0, 2.0]], "a diagonal of ones"),
        (supports.correlation_cholesky, [[1.0, 0.0], [1.0, 1.0]], "Cholesky factor"),
        (supports.correlation, [[1.0]], "2 rows at least"),
        (supports.real, np.nan, "start of 'w' must"),
        ("positive", 1.0, "must be one of flmc.supports"),
    ],
)
def test_what_is_refused(support: Any, start: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.Parameter(start, support).named("w")


@pytest.mark.parametrize("ends", [(1.0, 1.0), (2.0, 1.0), (-np.inf, np.inf), (np.nan, 1.0)])
def test_intervals_that_are_none(ends: tuple[float, float]) -> None:
    with pytest.raises(InvalidSetting, match="low < high"):
        Interval(*ends)


def numbers(array: Array) -> list[float]:
    return [float(each) for each in array.ravel()]


def test_precision_is_kept() -> None:
    for support, shape in CASES.values():
        free = np.zeros(support.free_shape(shape), np.float32)
        assert support.constrain(free).dtype == np.float32
        assert all(np.isfinite(numbers(support.constrain(free))))
