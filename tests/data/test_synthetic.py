"""Synthetic data sets: their law, and that each is the same whatever is asked."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

import flmc
from support import full


def test_sufficient_statistics_have_the_law_of_examples() -> None:
    """Means and covariances of the statistics, from the moments of the Wishart law, five standard
    errors."""
    count, dim, sizes, theta = full(20_000, 4_000), 3, (7, 2, 40), np.array([0.5, -1.0, 0.2])
    source = flmc.data.draw_linear_statistics(
        1,
        num_experiments=count,
        num_samples=49,
        dim=dim,
        num_devices=3,
        device_sizes=sizes,
        theta=theta,
        noise_variance=0.3,
        kind="sufficient",
    )
    gram, moment = (np.asarray(array) for array in vars(source.rows(range(count))).values())
    residual = moment - gram @ theta
    for device, n in enumerate(sizes):
        g, r = gram[:, device], residual[:, device]
        np.testing.assert_allclose(g, np.swapaxes(g, 1, 2))
        for i in range(dim):
            for j in range(dim):
                variance = n * (1 + (i == j))  # of a Wishart entry
                expected = n * float(i == j)
                assert abs(g[:, i, j].mean() - expected) < 5 * np.sqrt(variance / count)
                squares = (g[:, i, j] - expected) ** 2
                assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(count)
            assert abs(r[:, i].mean()) < 5 * r[:, i].std() / np.sqrt(count)
            # E[r^2 | G] = sigma^2 G_ii
            excess = r[:, i] ** 2 - 0.3 * g[:, i, i]
            assert abs(excess.mean()) < 5 * excess.std() / np.sqrt(count)
    assert (np.linalg.matrix_rank(gram[:20, 1]) == 2).all()
    plain = flmc.data.draw_linear_statistics(
        2,
        num_experiments=count,
        num_samples=49,
        dim=dim,
        num_devices=3,
        device_sizes=sizes,
        theta=theta,
        noise_variance=0.3,
    ).rows(range(count))
    for ours, theirs in (
        (np.linalg.det(gram[:, 0]), np.linalg.det(plain.gram[:, 0])),
        (moment[:, 1, 0], plain.moment[:, 1, 0]),
    ):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-6


@pytest.mark.parametrize("kind", flmc.data.KINDS)
def test_data_sets_do_not_depend_on_which_are_asked(kind: str) -> None:
    source = flmc.data.draw_linear_statistics(
        4, num_experiments=200, num_samples=30, num_devices=3, kind=kind
    )
    whole, part = source.rows(range(200)), source.rows(range(60, 131))
    np.testing.assert_array_equal(whole.gram[60:131], part.gram)
    np.testing.assert_array_equal(whole.moment[60:131], part.moment)
