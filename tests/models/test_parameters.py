"""Declared parameters: densities in the user's terms, draws, tables and ArviZ in them, too."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation import named_draws
from flmc.evaluation.inference_data import to_arviz
from flmc.models.log_density import LogDensityModel
from flmc.models.parameters import Layout, NamedParameter
from flmc.models.single_device import local_models
from support import full

jax = pytest.importorskip("jax", reason="needs the extra jax")
jnp = jax.numpy

RNG = np.random.default_rng(3)
SEEN = [{"y": RNG.normal(1.0, 2.0, 40)}, {"y": RNG.normal(1.0, 2.0, 20)}]
LAYOUT = Layout(
    (
        NamedParameter("level", (2,), axes=(("site", ("north", "south")),)),
        NamedParameter("spread", (), flmc.supports.positive),
        NamedParameter("share", (3,), flmc.supports.simplex),
    )
)


def log_prior(w: Any) -> Any:
    """A normal mean and an exponential standard deviation."""
    return -0.5 * (w["mean"] / 3.0) ** 2 - w["sd"]


def log_likelihood(w: Any, row: Any) -> Any:
    return -0.5 * ((row["y"] - w["mean"]) / w["sd"]) ** 2 - jnp.log(w["sd"])


START = {"mean": 0.0, "sd": flmc.Parameter(1.5, flmc.supports.positive)}


def made(**more: Any) -> LogDensityModel:
    data = flmc.data.from_arrays(SEEN)
    model = flmc.Model.from_log_density(log_prior, log_likelihood, data, START, **more)
    assert isinstance(model, LogDensityModel)
    return model


@pytest.fixture(scope="module")
def model() -> LogDensityModel:
    return made()


def by_hand(theta: Array, y: Array, share: float) -> Array:
    """Gradient of a device's cost in (mean, log sd), with this share of the prior."""
    mean, sd = theta[0], np.exp(theta[1])
    away = (y - mean) / sd
    likelihood = np.array([-away.sum() / sd, (1 - away**2).sum()])
    # The exponential law of sd, times the Jacobian sd: its logarithm is log sd - sd.
    return likelihood + share * np.array([mean / 9.0, sd - 1.0])


def test_the_jacobian_is_shared_by_all_devices_once(model: LogDensityModel) -> None:
    theta = np.array([0.7, 0.3])
    local = model.gradient(theta[None, None])[0, 0]
    for device, own in zip(local, SEEN, strict=True):
        np.testing.assert_allclose(device, by_hand(theta, own["y"], 0.5), rtol=1e-10)
    # Models of single devices have the whole prior, the Jacobian with it.
    for alone, own in zip(local_models(model), SEEN, strict=True):
        np.testing.assert_allclose(
            alone.gradient(theta[None, None])[0, 0, 0], by_hand(theta, own["y"], 1.0), rtol=1e-10
        )
    # In other coordinates, too.
    scale = np.array([[0.3, 0.0], [0.1, 0.2]])
    white = model.whitened(scale=scale, centre=theta, smoothness=1.0)
    whole = local.sum(axis=0) @ scale
    np.testing.assert_allclose(white.gradient(np.zeros((1, 1, 2)))[0, 0].sum(axis=0), whole)
    assert white.parameters(theta)["sd"] == pytest.approx(np.exp(0.3))


def test_one_device_of_a_federation_has_its_share() -> None:
    data = flmc.data.from_arrays(SEEN[:1])
    one = flmc.Model.from_log_density(log_prior, log_likelihood, data, START, prior_devices=7)
    theta = np.array([0.7, 0.3])
    found = one.gradient(theta[None, None])[0, 0, 0]
    np.testing.assert_allclose(found, by_hand(theta, SEEN[0]["y"], 1 / 7), rtol=1e-10)


def test_a_federation_asks_who_shares_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Jacobian of a device's own model would count once for every device."""
    from flmc.deploy.device.local_model import read_model

    data = flmc.data.from_arrays(SEEN[:1])
    for given, refused in ((None, True), (7, False)):
        own = flmc.Model.from_log_density(
            log_prior, log_likelihood, data, START, smoothness=1.0, prior_devices=given
        )
        registry = SimpleNamespace(names=(), build=lambda name, own=own: own)
        monkeypatch.setattr("flmc.deploy.device.local_model.MODELS", registry)
        if refused:
            with pytest.raises(InvalidSetting, match="prior_devices"):
                read_model("mine:model", Path())
        else:
            assert read_model("mine:model", Path()) is own


def test_draws_tables_and_answers_are_in_the_user_s_terms(model: LogDensityModel) -> None:
    """Against the posterior by brute force on a grid."""
    uplink = flmc.Analog(clip=200.0, snr_db=80.0)
    off = flmc.Limits(privacy="off")
    plan = flmc.plan(
        model.whitened(), uplink, off, num_rounds=full(12000, 4000), num_burn_in=300,
        step_size=0.05, forecast=False,
    )  # fmt: skip
    result = flmc.run(plan, model.whitened(), seed=2, chains=4)
    mean, sd = np.meshgrid(np.linspace(-1, 3, 301), np.linspace(1.2, 3.2, 301), indexing="ij")
    y = np.concatenate([each["y"] for each in SEEN])
    log = -(mean**2) / 18 - sd - len(y) * np.log(sd)
    log -= 0.5 * (np.square(y).sum() - 2 * mean * y.sum() + len(y) * mean**2) / sd**2
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    table = {row[0]: [float(cell) for cell in row[1:]] for row in result.summary().rows}
    frame, drawn = result.to_dataframe(), result.parameters()
    assert list(frame.columns) == ["chain", "draw", "mean", "sd"]
    answer = result.posterior()
    shown = {row[0]: [float(cell) for cell in row[1:]] for row in answer.summary().rows}
    assert answer.summary().header == ("entry", "mean", "sd", "5 %", "95 %")
    assert (answer.parameters(500)["sd"] > 0).all()
    for name, values in (("mean", mean), ("sd", sd)):
        centre = float((weight * values).sum())
        spread = float(np.sqrt((weight * (values - centre) ** 2).sum()))
        # Five standard errors, from the effective draws in the table.
        error = 5 * spread / np.sqrt(table[name][5])
        assert abs(drawn[name].mean() - centre) < error
        # Steps of 0.05 posterior variances widen a standard deviation by a percent or two.
        assert drawn[name].std() == pytest.approx(spread, rel=0.02 + error / spread)
        assert table[name][0] == pytest.approx(drawn[name].mean(), rel=1e-3)
        assert np.array_equal(frame[name], drawn[name].ravel())
        # The answer takes the posterior for normal in theta, which costs some percent here.
        assert abs(shown[name][0] - centre) < 0.25 * spread
        assert shown[name][1] == pytest.approx(spread, rel=0.25)


def test_arviz_has_names_and_labels() -> None:
    pytest.importorskip("arviz_base", reason="needs the extra arviz")
    theta = RNG.standard_normal((2, 10, LAYOUT.dim))
    posterior = to_arviz(theta, LAYOUT)["posterior"]
    assert posterior["level"].dims == ("chain", "draw", "site")
    assert posterior["level"].sel(site="south").values.tolist() == theta[:, :, 1].tolist()
    np.testing.assert_allclose(posterior["spread"].values, np.exp(theta[:, :, 2]))
    assert posterior["share"].shape == (2, 10, 3)
    np.testing.assert_allclose(posterior["share"].sum(axis=-1), 1.0)


def test_theta_has_other_entries_than_values() -> None:
    assert LAYOUT.dim == 5
    assert LAYOUT.free_entries() == [
        "level[north]", "level[south]", "free(spread)", "free(share)[0]", "free(share)[1]",
    ]  # fmt: skip
    assert LAYOUT.entries()[2:] == ["spread", "share[0]", "share[1]", "share[2]"]
    theta = RNG.standard_normal(5)
    values = LAYOUT.values(theta)
    np.testing.assert_allclose(LAYOUT.theta(values), theta, rtol=1e-12)
    names, columns = named_draws.by_entry(theta[None, None], LAYOUT)
    assert (names, columns.shape) == (LAYOUT.entries(), (1, 1, 6))
    with pytest.raises(InvalidSetting, match="the names are of 5 entries, and theta has 4"):
        named_draws.by_parameter(np.zeros((1, 1, 4)), LAYOUT)


def test_what_is_refused() -> None:
    data = flmc.data.from_arrays(SEEN)

    def build(start: Any) -> flmc.Model:
        return flmc.Model.from_log_density(log_prior, log_likelihood, data, start)

    with pytest.raises(InvalidSetting, match="start of 'sd' must be positive, got -1"):
        build({**START, "sd": flmc.Parameter(-1.0, flmc.supports.positive)})
    with pytest.raises(InvalidSetting, match=r"axes of 'mean' must have .* \(\), got \(2,\)"):
        build({**START, "mean": flmc.Parameter(0.0, axes={"site": ["a", "b"]})})
    other = NamedParameter("slope", (2,), axes=(("site", ("east", "west")),))
    with pytest.raises(InvalidSetting, match="axis 'site' of 'slope' has other labels"):
        Layout((*LAYOUT.parameters, other))
    with pytest.raises(InvalidSetting, match="several parameters with the name 'level'"):
        Layout((*LAYOUT.parameters, NamedParameter("level", ())))
