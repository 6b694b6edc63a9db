"""Names of parameters in tables, messages, figures, JSON and ArviZ; what a model says of single
examples, against computations of NumPy and ArviZ."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.evaluation.inference_data import thin_for_examples
from flmc.evaluation.named_draws import sampled_names
from flmc.evaluation.stein import examine
from flmc.models.affine import Coordinates
from flmc.models.pointwise import Pointwise
from support import few, full_only

jax = pytest.importorskip("jax", reason="needs the extra jax")
pytest.importorskip("arviz_base", reason="needs the extra arviz")
stats = pytest.importorskip("arviz_stats", reason="needs arviz-stats")
jnp = jax.numpy

RNG = np.random.default_rng(5)
HALF_LOG_TAU = 0.5 * np.log(2 * np.pi)
SIZES = {"north": 20, "south": 12, "west": 8}
GROUP = RNG.integers(0, 3, 40)
STAY = np.array([1.0, 2.0, 0.5])[GROUP] + 0.7 * RNG.standard_normal(40)
WARDS = ("eyes", "heart", "bones")


def data() -> flmc.data.Examples:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame(
        {
            "hospital": np.repeat(list(SIZES), list(SIZES.values())),
            "ward": np.array(WARDS)[GROUP],
            "stay": STAY,
        }
    )
    return flmc.data.from_frames(frame, device_column="hospital", categories={"ward": list(WARDS)})


def log_prior(w: Any) -> Any:
    return -0.5 * jnp.sum(w["level"] ** 2) - w["sd"]


def log_likelihood(w: Any, row: Any) -> Any:
    away = (row["stay"] - w["level"][row["ward"]]) / w["sd"]
    return -0.5 * away**2 - jnp.log(w["sd"]) - HALF_LOG_TAU


def simulate(w: Any, row: Any, key: Any) -> Any:
    return w["level"][row["ward"]] + w["sd"] * jax.random.normal(key)


def declared() -> flmc.Model:
    examples = data()
    start = {
        "level": flmc.Parameter(np.zeros(3), axes={"ward": examples.labels["ward"]}),
        "sd": flmc.Parameter(1.0, flmc.supports.positive),
    }
    return flmc.Model.from_log_density(
        log_prior, log_likelihood, examples, start, observed="stay", simulate=simulate
    )


def imported() -> flmc.Model:
    numpyro = pytest.importorskip("numpyro", reason="needs the extra numpyro")
    dist = numpyro.distributions

    def model(ward: Any, stay: Any) -> None:
        sd = numpyro.sample("sd", dist.Exponential(1.0))
        with numpyro.plate("ward", 3):
            level = numpyro.sample("level", dist.Normal(0, 1))
        with numpyro.plate("patients", len(ward)):
            numpyro.sample("stay", dist.Normal(level[ward], sd), obs=stay)

    return flmc.Model.from_numpyro(model, data())


def logistic() -> flmc.Model:
    x = RNG.standard_normal((40, 2))
    y = np.where(RNG.random(40) < 0.5, -1.0, 1.0)
    data = flmc.data.FederatedData(
        x, y, tuple(SIZES.values()), ("age", "dose"), "cured", ("no", "yes"), tuple(SIZES)
    )
    model: flmc.Model = flmc.models.regressions.logistic(data)
    return model


def linear() -> flmc.Model:
    x = RNG.standard_normal((40, 2))
    return flmc.LinearGaussian(
        flmc.data.FederatedData(
            x, x.sum(axis=1) + RNG.standard_normal(40), tuple(SIZES.values()), ("age", "dose"),
            "stay", (), tuple(SIZES),
        ).to_linear()
    )  # fmt: skip


MODELS = {"declared": declared, "imported": imported, "logistic": logistic, "linear": linear}


def run(model: flmc.Model, chains: int = 4, kept: int = 300) -> flmc.Result:
    uplink = flmc.Analog(clip=60.0, snr_db=50)
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(model, uplink, limits, num_rounds=200 + kept, num_burn_in=200, start="zero")
    return flmc.run(plan, model, seed=1, chains=chains)


@pytest.mark.parametrize("name", few(MODELS, 1))
def test_arviz_compares_models(name: str) -> None:
    model = MODELS[name]()
    result = run(model)
    tree = result.to_arviz()
    assert set(tree.children) == {
        "posterior", "sample_stats", "observed_data", "posterior_predictive", "log_likelihood",
    }  # fmt: skip
    (observed,) = tree["observed_data"].data_vars
    assert observed == ("cured" if name == "logistic" else "stay")
    for group in ("observed_data", "posterior_predictive", "log_likelihood"):
        variable = tree[group][observed]
        assert variable.dims[-1] == "example"
        assert variable.sizes["example"] == 40
        assert variable.coords["device"].values.tolist() == list(
            np.repeat(list(SIZES), list(SIZES.values()))
        )
    stat = tree["sample_stats"]
    assert stat["round"].values[0].tolist() == list(range(201, 501))
    # An independent sum: the log density of theta and the data is the log likelihood of all
    # examples plus a function of theta, whose differences the gradient of the prior tells.
    draws = result.draws[:4]
    rest = stat["lp"].values - tree["log_likelihood"][observed].values.sum(axis=-1)
    between = 0.5 * (draws[:, :-1] + draws[:, 1:])
    if model.coordinates is None:
        slope = -model.num_devices * model.prior_share(between[None].reshape(1, -1, model.dim))
        ways = (draws[:, 1:] - draws[:, :-1]).reshape(-1, model.dim)
        change = (slope[0] * ways).sum(axis=1)
        # The rule of the midpoint errs with the third power of the way.
        np.testing.assert_allclose(
            np.diff(rest, axis=1).ravel(), change, atol=2.0 * np.abs(ways).max() ** 3
        )
    # loo runs, and is that of the pointwise log likelihoods; for 40 examples and some 3 parameters
    # its p is of that order.
    loo = stats.loo(tree)
    assert loo.n_data_points == 40
    assert 0.3 < loo.p < 10.0
    likelihood = tree["log_likelihood"][observed].values.reshape(-1, 40)
    whole = np.log(np.exp(likelihood).mean(axis=0)).sum()
    assert whole - 12.0 < loo.elpd < whole


@pytest.mark.parametrize("name", few(["declared", "imported"], 1))
def test_log_likelihoods_and_predictions_are_those_of_numpy(name: str) -> None:
    tree = run(MODELS[name]()).to_arviz(thin=3, seed=4)
    posterior, sd = tree["posterior"], tree["posterior"]["sd"].values[..., None]
    assert posterior["level"].coords["ward"].values.tolist() == list(WARDS)
    rows = tree["observed_data"]["stay"].values
    np.testing.assert_array_equal(rows, STAY)
    mean = posterior["level"].values[..., GROUP]
    expected = -0.5 * ((rows - mean) / sd) ** 2 - np.log(sd) - HALF_LOG_TAU
    np.testing.assert_allclose(tree["log_likelihood"]["stay"].values, expected, rtol=1e-9)
    # Predictions scatter about the level with sd: 4 chains of 100 draws of 40 examples, so that the
    # mean square is 1 to 5 sqrt(2/16000).
    unit = (tree["posterior_predictive"]["stay"].values - mean) / sd
    assert unit.shape == (4, 100, 40)
    assert abs(np.square(unit).mean() - 1.0) < 5 * np.sqrt(2 / unit.size)
    assert abs(unit.mean()) < 5 / np.sqrt(unit.size)


def test_densities_of_ready_regressions_have_all_constants() -> None:
    from scipy import stats as laws

    x = RNG.standard_normal((6, 2))
    counts = RNG.poisson(2.0, 6).astype(float)
    theta = RNG.standard_normal((3, 3)) / 3
    regressions = flmc.models.regressions
    poisson = regressions.poisson(flmc.data.FederatedData(x, counts, (6,)))
    score = theta[:, :1] + theta[:, 1:] @ x.T
    found = poisson.pointwise()
    assert found is not None
    np.testing.assert_allclose(
        found.log_likelihood(theta)["y"], laws.poisson.logpmf(counts, np.exp(score)), rtol=1e-9
    )
    unknown = regressions.linear_unknown_noise(flmc.data.FederatedData(x, counts, (6,)))
    found, four = unknown.pointwise(), RNG.standard_normal((3, 4)) / 3
    assert found is not None
    score = four[:, :1] + four[:, 2:] @ x.T
    np.testing.assert_allclose(
        found.log_likelihood(four)["y"],
        laws.norm.logpdf(counts, score, np.exp(four[:, 1:2])),
        rtol=1e-9,
    )
    for model in (poisson, unknown, logistic()):
        found = model.pointwise()
        assert found is not None
        assert found.simulate is not None
        drawn = found.simulate(np.zeros((500, model.dim)), 1)
        (values,) = drawn.values()
        # At theta = 0 laws are Poisson(1), N(0, 1), and a fair sign.
        mean = 1.0 if model is poisson else 0.0
        assert abs(values.mean() - mean) < 5 / np.sqrt(values.size)
        assert abs(values.var() - 1.0) < 5 * np.sqrt(3.0 / values.size)


def test_what_is_said_of_examples_is_bounded() -> None:
    many = Pointwise({}, ("a",) * 1000, lambda theta: {})
    assert thin_for_examples(np.zeros((4, 10_000, 2)), many) == 4
    assert thin_for_examples(np.zeros((4, 2500, 2)), many) == 1
    assert thin_for_examples(np.zeros((4, 10_000, 2)), None) == 1
    result = run(logistic(), kept=20)
    assert result.to_arviz(thin=5)["posterior"].sizes["draw"] == 4
    for thin in (0, 21):
        with pytest.raises(InvalidSetting, match="thin must be 1 to the 20 draws"):
            result.to_arviz(thin=thin)


def test_a_likelihood_that_is_not_named() -> None:
    start = {"level": np.zeros(3), "sd": flmc.Parameter(1.0, flmc.supports.positive)}
    model = flmc.Model.from_log_density(log_prior, log_likelihood, data(), start)
    tree = run(model, kept=20).to_arviz()
    assert list(tree["log_likelihood"].data_vars) == ["examples"]
    assert "observed_data" not in tree.children
    with pytest.raises(InvalidSetting, match="observed must name the array that the likelihood is"):
        flmc.Model.from_log_density(log_prior, log_likelihood, data(), start, observed="y")


def test_findings_and_tables_name_parameters() -> None:
    model = flmc.Model.from_gradient(
        lambda theta: np.stack([theta / 0.02] * 2, axis=1) / 2,
        prior=flmc.Normal(0, 10),
        dim=2,
        num_devices=2,
        smoothness=50.0,
        convexity=50.0,
        names=["age", "dose"],
    )
    draws = np.sqrt(0.02) * np.random.default_rng(1).standard_normal((8, 400, 2))
    draws[..., 1] *= 1.6
    (finding,) = examine(model, draws).findings()
    # Which part of theta is most significant, the entry or the direction, is up to chance.
    assert "in dose" in finding.message or "principal direction 1" in finding.message
    moved = examine(model, draws / [1.0, 1.6] + [0.0, 0.2])
    assert moved.shifted == "dose"
    assert "posterior sd in dose" in str([row.text for row in moved.rows])
    still = draws * [1.0, 0.0]
    assert "do not vary in dose" in examine(model, still).why_unknown
    result = run(model, kept=40)
    assert [row.label for row in result.listing("chain").rows if row.label in ("age", "dose")] == [
        "age", "dose",
    ]  # fmt: skip
    document = json.loads(json.dumps(result.to_document()))
    assert document["entries"] == ["age", "dose"]
    assert document["diagnostics"]["worst"] in ("age", "dose")
    assert document["evidence"]["shifted"] in ("age", "dose")
    for wrong in (["age"], "ab"):
        with pytest.raises(InvalidSetting, match="names must be 2 names"):
            flmc.Model.from_gradient(
                lambda theta: theta[:, None], prior=flmc.Normal(), dim=2, num_devices=1, names=wrong
            )


def test_chains_that_disagree_name_the_entry() -> None:
    from flmc.evaluation.diagnostics import judge_mixing

    draws = np.random.default_rng(1).standard_normal((1, 4, 200, 3))
    draws[:, :2, :, 1] += 5.0
    mixing = judge_mixing(draws, names=["a", "b", "c"])
    assert mixing is not None
    assert mixing.entries.worst == "b"
    (finding,) = mixing.findings()
    assert "R-hat" in finding.message
    assert "in b" in finding.message
    assert "in b, must be 1" in finding.short


def test_mixed_coordinates_are_not_called_parameters() -> None:
    # A name would be wrong where a coordinate of the sampler is a mixture of parameters.
    model = logistic()
    own = ["intercept", "slope[age]", "slope[dose]"]
    assert sampled_names(model) == own
    plain = Coordinates(np.zeros(3), np.array([1.0, 2.0, 3.0]))
    mixed = Coordinates(np.zeros(3), np.array([[1.0, 0, 0], [0.5, 1, 0], [0, 0, 1]]))
    assert sampled_names(flmc.whiten(model, scale=plain.scale)) == own
    assert sampled_names(flmc.whiten(model, scale=mixed.scale))[2] == "coordinate 3 of the sampler"


def test_a_printed_model() -> None:
    text = str(declared())
    assert "theta has 4 entries, on 3 devices" in text
    rows = {row.label: row.text for row in declared().listing().rows}
    assert rows["level"] == "(3) by ward: eyes, heart, bones"
    assert rows["sd"] == "a number, positive"
    assert rows["examples"] == "40: north 20, south 12, west 8"
    assert rows["arrays"] == "ward, stay"
    assert "not public" in rows["curvature"]
    many = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    assert "theta has 5 entries, on 20 devices" in str(many)
    assert ("examples", "1200") in [(row.label, row.text) for row in many.listing().rows]
    gradient = flmc.Model.from_gradient(
        lambda theta: theta[:, None], prior=flmc.Normal(), dim=1, num_devices=1
    )
    assert "theta has 1 entry, on 1 device" in str(gradient)


def test_a_numpyro_model_that_takes_other_arrays_is_told_so() -> None:
    numpyro = pytest.importorskip("numpyro", reason="needs the extra numpyro")

    def model(stay: Any) -> None:
        mean = numpyro.sample("mean", numpyro.distributions.Normal(0, 1))
        numpyro.sample("stay", numpyro.distributions.Normal(mean, 1), obs=stay)

    with pytest.raises(InvalidSetting, match=r"'ward'; it is called with every array of the data"):
        flmc.Model.from_numpyro(model, data())


@pytest.mark.parametrize("name", few(["logistic", "softmax", "mlp", "poisson"], 2))
def test_simulated_classes_have_the_probabilities_of_the_likelihood(name: str) -> None:
    rng = np.random.default_rng(7)
    x, y = rng.standard_normal((20, 2)), rng.integers(0, 3, 20).astype(float)
    if name == "logistic":
        y = np.where(y > 0, 1.0, -1.0)
    data = flmc.data.FederatedData(x, y, (12, 8))
    makers: dict[str, Any] = {
        "softmax": flmc.models.regressions.softmax,
        "logistic": flmc.models.regressions.logistic,
        "poisson": flmc.models.regressions.poisson,
        "mlp": lambda given: flmc.models.networks.mlp(given, (3,)),
    }
    model = makers[name](data)
    found = model.pointwise()
    assert found is not None
    assert found.simulate is not None
    count = 4000
    theta = np.repeat(0.5 * rng.standard_normal((1, model.dim)), count, axis=0)
    chance = np.exp(found.log_likelihood(theta[:1])["y"][0])
    share = (found.simulate(theta, 1)["y"] == y).mean(axis=0)
    # Twenty binomial shares, each within five standard errors; 1/count is for chances near 0.
    error = 5 * np.sqrt((chance * (1 - chance) + 1 / count) / count)
    assert (np.abs(share - chance) < error).all()


@full_only
def test_models_without_single_examples_give_arviz_their_draws() -> None:
    start = {"level": np.zeros(3), "sd": flmc.Parameter(1.0, flmc.supports.positive)}

    def whole(w: Any, device: Any) -> Any:
        return jax.vmap(lambda ward, stay: log_likelihood(w, {"ward": ward, "stay": stay}))(
            device["ward"], device["stay"]
        ).sum()

    model = flmc.Model.from_log_density(log_prior, whole, data(), start, likelihood_of="device")
    assert model.pointwise() is None
    tree = run(model, kept=20).to_arviz()
    assert set(tree.children) == {"posterior", "sample_stats"}
    with pytest.raises(InvalidSetting, match="observed and simulate are of single examples"):
        flmc.Model.from_log_density(
            log_prior, whole, data(), start, likelihood_of="device", observed="stay"
        )
    own = flmc.Model.from_log_density(
        lambda w: -0.5 * w["mean"] ** 2,
        lambda w, own, row: -0.5 * (row["stay"] - own["level"]) ** 2,
        data(),
        {"mean": 0.0},
        local={"level": 0.0},
        log_local_prior=lambda w, own: -0.5 * (own["level"] - w["mean"]) ** 2,
    )
    assert own.pointwise() is None
    assert "1 free entry on each device, which never leaves it" in str(own)
