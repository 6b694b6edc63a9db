"""R-hat and effective sizes in the result: against a reference, and what they say of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.evaluation import diagnostics
from flmc.evaluation.chain_statistics import chain_statistics
from flmc.evaluation.diagnostics import diagnose_draws, judge_mixing
from flmc.evaluation.stein import Evidence
from flmc.sampling.path import ChainPath
from support import full

RIGHT = Evidence(1.0, 0.01, 0.9, 1.1, 0.05, 0.02)


def memory(
    chains: int, draws: int, rho: float, *, start: Array | float = 0.0, dim: int = 2, seed: int = 0
) -> Array:
    """Autoregressions of variance 1, (1, chain, draw, dim), that begin off by ``start``."""
    rng = np.random.default_rng(seed)
    theta = rng.standard_normal((chains, dim)) + start
    found = np.empty((1, chains, draws, dim))
    for t in range(draws):
        theta = rho * theta + np.sqrt(1 - rho**2) * rng.standard_normal((chains, dim))
        found[0, :, t] = theta
    return found


@pytest.mark.parametrize("rho", [-0.5, 0.0, 0.9])
@pytest.mark.parametrize(("chains", "draws"), [(4, 200), (3, 57), (20, 100)])
def test_the_reference(rho: float, chains: int, draws: int) -> None:
    """arviz-stats has the same definitions; equal draws, as of a chain that stays, share a rank."""
    from arviz_stats import base

    array_stats: Any = base.array_stats  # type: ignore[attr-defined]

    start = np.asarray(np.arange(chains)[:, None] * 0.3)
    smooth = memory(chains, draws, rho, start=start)[0, :, :, 0]
    for sample in (smooth, np.round(smooth, 1)):
        axes = {"chain_axis": -2, "draw_axis": -1}
        theirs = (
            array_stats.rhat(sample, **axes),
            array_stats.ess(sample, method="bulk", **axes),
            array_stats.ess(sample, method="tail", prob=(0.05, 0.95), **axes),
        )
        ours = chain_statistics(np.stack([0.0 * sample, sample]))
        np.testing.assert_allclose([each[1] for each in ours], theirs, rtol=1e-9)
        assert np.isnan([each[0] for each in ours]).all()


def test_what_cannot_be_told() -> None:
    assert diagnostics.judge_mixing(None) is None
    assert diagnostics.judge_mixing(np.zeros((1, 2, 3, 1))) is None
    found = diagnostics.judge_mixing(np.ones((1, 4, 10, 2)))
    assert found is not None
    assert found.to_document()["r_hat"] is None
    assert not found.findings()
    assert "unknown" in str(found.rows[0].value)


@pytest.fixture(scope="module")
def result() -> flmc.Result:
    """A logistic regression of one's own, with what it predicts, after a short run."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(20, 50, 3))
    labels = np.where(features @ [1.0, -1.0, 0.5] + rng.logistic(size=(20, 50)) > 0, 1.0, -1.0)

    def gradient(theta: Array) -> Array:
        margin = labels * np.einsum("kne,ce->ckn", features, theta)
        return np.asarray(-np.einsum("ckn,kn,kne->cke", 1 / (1 + np.exp(margin)), labels, features))

    model = flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(0, 3),
        dim=3,
        num_devices=20,
        smoothness=350.0,
        convexity=80.0,
        predict=lambda theta: theta @ features[0, :5].T,
    )
    uplink = flmc.Digital(link=flmc.Sigmoid(0.2), clip=10.0)
    # A step so small that chains are still near their starts.
    plan = flmc.plan(model, uplink, num_rounds=400, num_burn_in=20, step_size=2e-5)
    return flmc.run(plan, model, chains=8)


def test_chains_that_have_not_mixed_are_told_before_anything_is_blamed(result: flmc.Result) -> None:
    """The cure is more rounds, not another clip or link."""
    assert result.evidence is not None
    assert result.evidence.warnings  # which alone would blame clip and link
    found = result.findings[len(result.plan.findings) :]
    assert [each.code for each in found] == ["unmixed", "draws-not-judged"]
    assert found[0].severity == "infeasible"
    assert found[0].numbers["r_hat"] > 1.4
    assert "use more rounds, or more burn-in" in found[0].message
    assert found[1].numbers["stein_ratio"] == result.evidence.stein_ratio
    assert not any("clip or link" in text for text in result.warnings)
    # The same evidence, with draws of chains that agree, is a warning.
    agreed = replace(
        result, path=ChainPath.of_draws(memory(8, full(2000, 1000), 0.5, dim=3)), predictions=None
    )
    assert any("clip or link" in text for text in agreed.warnings)


def test_the_document_and_the_rows(result: flmc.Result, tmp_path: Path) -> None:
    document = json.loads((result.save(tmp_path / "run") / "result.json").read_text())
    assert document["warnings"] == result.warnings
    assert [each["code"] for each in document["findings"]] == [
        each.code for each in result.findings
    ]
    assert result.diagnostics is not None
    assert document["diagnostics"]["r_hat"] == result.diagnostics.entries.r_hat
    predictions = document["diagnostics"]["predictions"]
    assert set(predictions) == {"r_hat", "ess_bulk", "ess_tail", "worst"}
    assert document["diagnostics"]["worst"] in document["entries"]
    text = str(result)
    assert "R-hat at most" in text
    assert "chains, predictions" in text
    without = replace(result, path=None, predictions=None)
    assert without.to_document()["diagnostics"] is None


def test_a_known_posterior_has_rows_and_notes_unless_chains_are_apart(
    model: flmc.LinearGaussian,
) -> None:
    for rounds, severity in ((60, "infeasible"), (700, "note")):
        plan = flmc.plan(
            model, flmc.Digital(), num_rounds=rounds, num_burn_in=rounds // 3, forecast=False
        )
        done = flmc.run(plan, model, chains=3, engine="numpy")
        assert "R-hat at most" in str(done)
        assert done.predictions is not None
        found = {each.code: each.severity for each in done.findings}
        assert found["unmixed"] == severity
        assert bool(done.warnings) == (severity == "infeasible")


def test_one_chain(result: flmc.Result) -> None:
    one = replace(
        result, path=ChainPath.of_draws(memory(1, 4000, 0.5)), predictions=None, evidence=RIGHT
    )
    (note,) = one.findings[len(one.plan.findings) :]
    assert (note.code, note.severity) == ("one-chain", "note")
    travels = memory(1, 1000, 0.5) + np.linspace(0, 9, 1000)[:, None]
    found = replace(one, path=ChainPath.of_draws(travels)).findings[len(one.plan.findings) :]
    assert [each.code for each in found] == ["unmixed"]


def test_few_effective_draws(result: flmc.Result) -> None:
    """An autoregression of memory 0.9 has one independent draw in 19."""
    for draws, grade in ((250, "note"), (50, "warning")):
        few = replace(
            result, path=ChainPath.of_draws(memory(4, draws, 0.9)), predictions=None, evidence=None
        )
        found = {each.code: each for each in few.findings}["few-effective-draws"]
        assert found.severity == grade
        assert "means are uncertain" in found.message


def test_predictions_may_agree_where_entries_do_not(result: flmc.Result) -> None:
    """Entries of which only the sum is known: chains stay apart in the difference."""
    sums = memory(4, 2000, 0.3, dim=1)[0]
    apart = 3.0 * np.arange(4)[None, :, None, None]
    chains = np.concatenate([sums[None] + apart, -apart + 0 * sums[None]], axis=3)
    chains[..., 1] += memory(4, 2000, 0.3, dim=1, seed=1)[..., 0]
    done = replace(result, path=ChainPath.of_draws(chains), predictions=sums, evidence=None)
    found = {each.code: each for each in done.findings}["unmixed"]
    assert found.severity == "warning"
    assert "what the model predicts does agree" in found.message


def test_many_short_chains_at_rest() -> None:
    """Ten draws with a third of their memory left at the end: R-hat cannot show it, all chains
    together can. If they begin three times too wide, or off, they are not at rest."""
    rest = diagnostics.judge_mixing(memory(800, 10, 0.88))
    assert rest is not None
    assert rest.entries.r_hat > 1.1
    assert rest.settled
    assert [each.code for each in rest.findings()] == ["short-chains"]
    wide = np.random.default_rng(1).normal(0, np.sqrt(2), (800, 2))
    for start in (wide, 1.0):
        moving = diagnostics.judge_mixing(memory(800, 10, 0.88, start=start))
        assert moving is not None
        assert not moving.settled
        assert moving.findings()[0].code == "unmixed"


def test_one_entry_that_is_stuck_is_not_outvoted() -> None:
    """Nine entries at rest do not vouch for one whose chains never leave their place, nor for one
    that still spreads from zero."""
    rng = np.random.default_rng(3)
    stuck = memory(200, 40, 0.5, dim=10)
    stuck[..., 4] += 20.0 * np.sign(rng.normal(size=(1, 200, 1)))
    spreading = memory(200, 40, 0.5, dim=10)
    spreading[..., 4] = 0.05 * np.cumsum(rng.normal(size=(1, 200, 40)), axis=2)
    for draws in (stuck, spreading):
        found = diagnostics.judge_mixing(draws)
        assert found is not None
        assert not found.settled
        assert found.findings()[0].code == "unmixed"


def test_an_entry_that_does_not_vary_silences_nothing() -> None:
    draws = memory(4, 50, 0.0, dim=5)
    draws[..., 1] = 3.0
    draws[0, :, :, 2] += 100.0 * np.arange(4)[:, None]
    found = diagnostics.judge_mixing(draws)
    assert found is not None
    assert [each.code for each in found.findings()] == ["unmixed"]
    frozen = np.repeat(np.array([0.0, 0.0, 1.0, 1.0])[None, :, None, None], 50, axis=2)
    apart = diagnostics.judge_mixing(frozen)
    assert apart is not None
    assert apart.entries.r_hat > 1e6


def test_what_is_looked_at_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """At most 20 entries and about 10,000 draws, but at least 4 of a chain."""
    assert diagnostics.thinned(np.zeros((2, 10, 9000, 3))).shape == (10, 1000, 3)
    assert diagnostics.thinned(np.zeros((1, 40_000, 9, 1))).shape == (40_000, 5, 1)
    seen = []

    def counted(draws: Array) -> flmc.Diagnostics:
        seen.append(draws.shape)
        return diagnose_draws(draws)

    monkeypatch.setattr(diagnostics, "diagnose_draws", counted)
    diagnostics.judge_mixing(memory(2, 40, 0.0, dim=500))
    assert seen == [(1, 2, 40, 20)]


def test_effective_draws_from_a_part_of_the_draws_say_so() -> None:
    """A number from every third draw is not that of all."""
    rng = np.random.default_rng(1)
    part = judge_mixing(rng.standard_normal((1, 50, 600, 2)))
    whole = judge_mixing(rng.standard_normal((1, 5, 600, 2)))
    assert part is not None
    assert whole is not None
    assert "; from 10000 of 30000 draws" in part.rows[0].value
    assert "from" not in whole.rows[0].value
