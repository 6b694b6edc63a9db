"""What a reproduction computes once for several curves is what each would compute by itself."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from flmc.base.arrays import mean_over_entries, without_copied_entries
from flmc.cli.commands.studies import _few_full_collections
from flmc.papers.wflmc import gain_allocation
from flmc.papers.wflmc.base_case import NUM_RUNS, BaseCase, make_base_case
from flmc.papers.wflmc.experiment import Laboratory
from flmc.papers.wflmc.gain_allocation import Programs, solve
from flmc.papers.wflmc.study import Design, flmc_designs
from flmc.settings.schema import merge
from support import full_only


@pytest.fixture(scope="module")
def case() -> BaseCase:
    return make_base_case({}, None, 0, NUM_RUNS)


@full_only
@pytest.mark.parametrize("snr_db", [5.0, 40.0])
def test_plans_meet_the_study_s_channels(case: BaseCase, snr_db: float) -> None:
    laboratory = Laboratory(case, 3)
    for design in flmc_designs(case, {}):
        assert design.has_channel_of(case)
        planned = design.plan(case, snr_db)
        drawn, shared = laboratory.run_plan(planned), laboratory.run_plan(planned, snr_db)
        np.testing.assert_array_equal(drawn, shared)


def test_designs_of_another_channel_draw_their_own(case: BaseCase) -> None:
    design = flmc_designs(case, {})[0]
    for change in ({"fading": "rayleigh:0.2"}, {"csi_error": 0.1}, {"rounds": 80}):
        settings = design.settings.model_copy(update=change)
        assert not Design("own", settings).has_channel_of(case)
    assert not Design("own", merge({}, {}), own_rule=True).has_channel_of(case)
    assert not Design("own", design.settings, own_rule=True).has_channel_of(case)


def test_programs_do_not_depend_on_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    cost = (rng.random((11, 4, 20)) < 0.8) * rng.uniform(0.1, 0.3, (11, 1, 20))
    base, weight = rng.uniform(0.0, 1.0, (11, 8)), rng.uniform(0.2, 1.0, (11, 20))
    programs = Programs(base, weight, cost, 0.8)
    together = solve(programs)
    alone = np.concatenate([solve(programs.rows(np.array([run]))) for run in range(11)])
    # The gap at which the iteration ends is 1e-8, and objectives are of the size of 1.
    np.testing.assert_allclose(programs.objective(alone), programs.objective(together), rtol=1e-7)
    # Where a matrix is not positive because of rounding, the general solution takes its place.
    monkeypatch.setattr(gain_allocation, "dposv", lambda matrix, right: (matrix, right, 1))
    general = solve(programs)
    np.testing.assert_allclose(programs.objective(general), programs.objective(together), rtol=1e-7)


@pytest.mark.parametrize("dim", [1, 2, 5, 7, 8, 9, 40])
def test_means_over_shared_entries_have_the_usual_bits(dim: int) -> None:
    shared = np.random.default_rng(dim).random((50, 3, 1))
    copied = np.repeat(shared, dim, axis=-1)
    np.testing.assert_array_equal(mean_over_entries(shared, dim), copied.mean(axis=-1))
    np.testing.assert_array_equal(mean_over_entries(copied, dim), copied.mean(axis=-1))
    assert without_copied_entries(copied).shape == copied.shape
    view = np.broadcast_to(shared, (50, 3, 9))
    assert without_copied_entries(view).shape == (50, 3, 1)


def test_the_collector_is_left_as_it_was() -> None:
    before = gc.get_threshold()
    with _few_full_collections():
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] > before[2]
    assert gc.get_threshold() == before
