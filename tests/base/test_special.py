"""Special functions against SciPy's."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from flmc.base.special import expit, log_ndtr, median, ndtr, ndtr_once, ndtri


@given(st.floats(-35, 35))
def test_normal_distribution_function(x: float) -> None:
    assert float(ndtr(np.array(x))) == pytest.approx(float(scipy.special.ndtr(x)), rel=1e-13)


def test_large_arrays() -> None:
    x = np.linspace(-35, 35, 100_001)
    np.testing.assert_allclose(ndtr(x), [float(ndtr(value)) for value in x], rtol=1e-13)


def test_large_arrays_that_come_once() -> None:
    """By the C library and by SciPy, beyond the size from which that pays."""
    for size in (30_000, 1_000_001):
        x = np.linspace(-35, 35, size)
        np.testing.assert_allclose(ndtr_once(x), scipy.special.ndtr(x), rtol=1e-13)


@given(st.lists(st.floats(allow_nan=True), min_size=1))
def test_median_is_that_of_numpy_to_the_bit(values: list[float]) -> None:
    with np.errstate(all="ignore"):
        assert np.array_equal(median(np.array(values)), np.median(values), equal_nan=True)
    assert median(np.array([[3.0, 1.0], [2.0, 10.0]])) == 2.5


@given(st.floats(-1e4, 10))
def test_its_logarithm(x: float) -> None:
    assert log_ndtr(x) == pytest.approx(float(scipy.special.log_ndtr(x)), rel=1e-11, abs=1e-300)


@given(st.floats(-2000, 2000))
def test_logistic_function(x: float) -> None:
    assert float(expit(np.array(x))) == pytest.approx(
        float(scipy.special.expit(x)), rel=1e-14, abs=1e-300
    )


def test_the_normal_quantile() -> None:
    p = np.concatenate([np.geomspace(1e-12, 0.5, 40), 1 - np.geomspace(1e-9, 0.5, 40)])
    np.testing.assert_allclose(ndtri(p), scipy.special.ndtri(p), rtol=1e-9, atol=1e-12)
