"""Models of NumPyro, written as its documentation writes them: split into prior and examples, they
are the same densities; what cannot be split is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data import Examples, from_arrays
from flmc.evaluation.chain_statistics import chain_statistics
from flmc.models.log_density import LogDensityModel
from support import full_only

jax = pytest.importorskip("jax", reason="needs the extra jax")
numpyro = pytest.importorskip("numpyro", reason="needs the extra numpyro")
dist = pytest.importorskip("numpyro.distributions", reason="needs the extra numpyro")
jnp = jax.numpy

NUM = 24
RNG = np.random.default_rng(11)
X = RNG.standard_normal((NUM, 3))
GROUP = RNG.integers(0, 4, NUM)
COUNTS = RNG.poisson(2.0, NUM)
BINARY = (RNG.random(NUM) < 0.5).astype(int)
REAL = X @ [1.0, -0.5, 0.0] + RNG.standard_normal(NUM)
WALK = np.cumsum(RNG.standard_normal(NUM + 1)) * 0.3


def linear(x: Any, y: Any = None) -> None:
    intercept = numpyro.sample("intercept", dist.Normal(0.0, 2.0))
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([x.shape[1]]).to_event(1))
    sigma = numpyro.sample("sigma", dist.Exponential(1.0))
    mean = numpyro.deterministic("mean", intercept + x @ slopes)
    with numpyro.plate("N", x.shape[0]):
        numpyro.sample("obs", dist.Normal(mean, sigma), obs=y)


def logistic(x: Any, y: Any = None) -> None:
    """Without a plate, as many examples of NumPyro are."""
    coefs = numpyro.sample("coefs", dist.Normal(jnp.zeros(x.shape[1]), jnp.ones(x.shape[1])))
    numpyro.sample("y", dist.Bernoulli(logits=jnp.dot(x, coefs)), obs=y)


def poisson(x: Any, exposure: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.MultivariateNormal(jnp.zeros(3), jnp.eye(3)))
    with numpyro.plate("obs", len(exposure)):
        numpyro.sample("count", dist.Poisson(exposure * jnp.exp(x @ b)), obs=y)


def negative_binomial(x: Any, y: Any = None) -> None:
    b = numpyro.sample("b", dist.Normal(0, 1).expand([3]))
    shape = numpyro.sample("shape", dist.HalfNormal(5.0))
    with numpyro.plate("obs", len(x)):
        numpyro.sample("count", dist.NegativeBinomial2(jnp.exp(x @ b), shape), obs=y)


def hierarchical(x: Any, group: Any, num_groups: int, y: Any = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = numpyro.sample("tau", dist.HalfCauchy(5.0))
    with numpyro.plate("groups", num_groups):
        level = numpyro.sample("level", dist.Normal(mu, tau))
    sigma = numpyro.sample("sigma", dist.InverseGamma(2.0, 2.0))
    with numpyro.plate("data", group.shape[0]):
        numpyro.sample("obs", dist.Normal(level[group] + 0.3 * x[:, 0], sigma), obs=y)


def horseshoe(x: Any, y: Any = None) -> None:
    d = x.shape[1]
    lambdas = numpyro.sample("lambdas", dist.HalfCauchy(jnp.ones(d)))
    tau = numpyro.sample("tau", dist.HalfCauchy(jnp.ones(1)))
    unscaled = numpyro.sample("unscaled_betas", dist.Normal(0.0, jnp.ones(d)))
    betas = numpyro.deterministic("betas", tau * lambdas * unscaled)
    precision = numpyro.sample("prec_obs", dist.Gamma(3.0, 1.0))
    mean = jnp.sum(betas * x, axis=-1)
    numpyro.sample("y", dist.Normal(mean, 1.0 / jnp.sqrt(precision)), obs=y)


def robust(x: Any, y: Any = None) -> None:
    slope = numpyro.sample("slope", dist.StudentT(3.0, 0.0, 1.0).expand([3]))
    freedom = numpyro.sample("freedom", dist.Uniform(2.0, 30.0))
    scale = numpyro.sample("scale", dist.LogNormal(0.0, 1.0))
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.StudentT(freedom, x @ slope, scale), obs=y)


def mixture(y: Any) -> None:
    """Its components summed out, and in the order of their means."""
    weights = numpyro.sample("weights", dist.Dirichlet(jnp.array([4.0, 4.0])))
    means = numpyro.sample(
        "means",
        dist.TransformedDistribution(
            dist.Normal(0.0, 3.0).expand([2]).to_event(1), dist.transforms.OrderedTransform()
        ),
    )
    sigma = numpyro.sample("sigma", dist.HalfNormal(2.0))
    parts = dist.MixtureSameFamily(dist.Categorical(weights), dist.Normal(means, sigma))
    with numpyro.plate("data", len(y)):
        numpyro.sample("obs", parts, obs=y)


def categorical(group: Any) -> None:
    shares = numpyro.sample("shares", dist.Dirichlet(jnp.ones(4)))
    with numpyro.plate("N", group.shape[0]):
        numpyro.sample("group", dist.Categorical(shares), obs=group)


def correlated(x: Any) -> None:
    theta = numpyro.sample("theta", dist.HalfCauchy(jnp.ones(3)))
    factor = numpyro.sample("L_omega", dist.LKJCholesky(3, concentration=2.0))
    root = jnp.matmul(jnp.diag(jnp.sqrt(theta)), factor)
    with numpyro.plate("observations", len(x)):
        numpyro.sample("obs", dist.MultivariateNormal(jnp.zeros(3), scale_tril=root), obs=x)


def wishart(x: Any) -> None:
    matrix = numpyro.sample("precision", dist.Wishart(5.0, scale_matrix=jnp.eye(3)))
    with numpyro.plate("N", len(x)):
        numpyro.sample("x", dist.MultivariateNormal(precision_matrix=matrix), obs=x)


def autoregression(y: Any, before: Any) -> None:
    """A series whose examples are its steps."""
    alpha = numpyro.sample("alpha", dist.Uniform(-1.0, 1.0))
    constant = numpyro.sample("const", dist.Cauchy(0.0, 1.0))
    sigma = numpyro.sample("sigma", dist.TruncatedNormal(0.5, 1.0, low=0.1))
    with numpyro.plate("steps", len(y)):
        numpyro.sample("obs", dist.Normal(constant + alpha * before, sigma), obs=y)


def ordinal(x: Any, y: Any = None) -> None:
    slopes = numpyro.sample("slopes", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
    cuts = numpyro.sample("cuts", dist.ImproperUniform(dist.constraints.ordered_vector, (), (3,)))
    # A law for parameters alone is a part of the prior.
    numpyro.factor("cuts_prior", dist.Normal(0.0, 2.0).log_prob(cuts).sum())
    with numpyro.plate("N", len(x)):
        numpyro.sample("y", dist.OrderedLogistic(x @ slopes, cuts), obs=y)


def schools(y: Any, sigma: Any, school: Any, num: int) -> None:
    mu = numpyro.sample("mu", dist.Normal(0, 5))
    tau = numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("J", num):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
    with numpyro.plate("examples", len(y)):
        numpyro.sample("obs", dist.Normal(theta[school], sigma), obs=y)


def noncentred(*args: Any, **kwargs: Any) -> None:
    """The same after NumPyro's own change of variables."""
    from numpyro.infer.reparam import LocScaleReparam

    numpyro.handlers.reparam(schools, config={"theta": LocScaleReparam(0)})(*args, **kwargs)


SCHOOLS = {
    "y": np.array([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0]),
    "sigma": np.array([15.0, 10.0, 16.0, 11.0, 9.0, 11.0, 10.0, 18.0]),
    "school": np.arange(8),
}
QUICKLY = ("mixture",)
"""Models that quick runs test, too: the others differ in supports alone, which have tests of their
own."""
MODELS: dict[str, tuple[Callable[..., None], dict[str, Any], dict[str, Any]]] = {
    "linear regression": (linear, {"x": X, "y": REAL}, {}),
    "logistic regression": (logistic, {"x": X, "y": BINARY}, {}),
    "poisson": (poisson, {"x": X, "exposure": np.exp(X[:, 0]), "y": COUNTS}, {}),
    "negative binomial": (negative_binomial, {"x": X, "y": COUNTS}, {}),
    "hierarchical": (hierarchical, {"x": X, "group": GROUP, "y": REAL}, {"num_groups": 4}),
    "horseshoe": (horseshoe, {"x": X, "y": REAL}, {}),
    "robust": (robust, {"x": X, "y": REAL}, {}),
    "mixture": (mixture, {"y": REAL}, {}),
    "dirichlet and categorical": (categorical, {"group": GROUP}, {}),
    "LKJ": (correlated, {"x": X}, {}),
    "wishart": (wishart, {"x": X}, {}),
    "autoregression": (autoregression, {"y": WALK[1:], "before": WALK[:-1]}, {}),
    "ordinal": (ordinal, {"x": X, "y": GROUP}, {}),
    "eight schools": (schools, SCHOOLS, {"num": 8}),
    "eight schools, reparametrised": (noncentred, SCHOOLS, {"num": 8}),
}


def dealt(arrays: dict[str, Any], sizes: tuple[int, ...]) -> Examples:
    """Arrays cut into devices of these sizes."""
    ends = np.cumsum(sizes)
    return from_arrays(
        [
            {name: values[end - size : end] for name, values in arrays.items()}
            for end, size in zip(ends, sizes, strict=True)
        ]
    )


def made(name: str, smoothness: float | None = 1.0) -> LogDensityModel:
    model, arrays, fixed = MODELS[name]
    count = len(next(iter(arrays.values())))
    sizes = (1, 0, count // 2, count - 1 - count // 2)
    found = flmc.Model.from_numpyro(model, dealt(arrays, sizes), fixed=fixed, smoothness=smoothness)
    assert isinstance(found, LogDensityModel)
    return found


def single_precision(data: Any) -> Any:
    """The data as the JAX engine takes them: real numbers in single precision."""
    return jax.tree.map(
        lambda leaf: leaf.astype(np.float32) if leaf.dtype.kind == "f" else leaf, data
    )


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=[] if each in QUICKLY else full_only) for each in MODELS]
)
def test_prior_and_devices_add_up_to_the_log_joint(name: str) -> None:
    """Gradients of all devices add up to that of NumPyro's own log density with the Jacobian of the
    supports, and so do the costs, to the last constant."""
    federated = made(name)
    model, arrays, fixed = MODELS[name]
    layout = federated.layout
    assert layout is not None
    # In arbitrary order of arguments, the same point in NumPyro's terms.
    thetas = 0.7 * np.random.default_rng(5).standard_normal((1, 3, federated.dim))
    with jax.enable_x64():
        as_jax = {key: jnp.asarray(value) for key, value in arrays.items()}

        def cost(theta: Any) -> Any:
            log_density, _ = numpyro.infer.util.log_density(
                model, (), {**as_jax, **fixed}, layout.values(theta)
            )
            return -log_density - layout.log_jacobian(theta)

        whole, total = jax.jit(jax.value_and_grad(cost)), jax.jit(federated._costs.total)
        for theta, local in zip(thetas[0], federated.gradient(thetas)[0], strict=True):
            value, gradient = whole(theta)
            own = total(theta, federated._data)
            assert float(own) == pytest.approx(float(value), rel=1e-9)
            size = np.abs(local).sum(axis=0)
            np.testing.assert_allclose(local.sum(axis=0), gradient, atol=1e-9 * size.max())
            # The device without examples has its share of the prior alone.
            share = federated.prior_share(theta[None, None])[0, 0]
            np.testing.assert_allclose(local[1], share, rtol=1e-12, atol=1e-12)
    # The JAX engine evaluates the same density, in single precision: 1e-7 of sums of some ten
    # terms, whose special functions (digamma of counts) lose two digits more.
    costs = federated.traced()
    assert costs is not None
    gradients, data = jax.jit(costs.gradients), single_precision(costs.data(0))
    for theta, local in zip(thetas[0], federated.gradient(thetas)[0], strict=True):
        single = gradients(theta.astype(np.float32), data)
        assert single.dtype == np.float32
        np.testing.assert_allclose(single, local, atol=1e-4 * np.abs(local).max())


def test_names_are_those_of_sites_and_plates() -> None:
    arrays, fixed = MODELS["hierarchical"][1:]
    model = flmc.Model.from_numpyro(
        hierarchical,
        dealt(arrays, (20, 4)),
        fixed=fixed,
        coords={"groups": ["a", "b", "c", "d"]},
        start={"tau": 2.0},
        smoothness=1.0,
    )
    assert model.layout is not None
    assert model.layout.entries() == [
        "level[a]", "level[b]", "level[c]", "level[d]", "mu", "sigma", "tau",
    ]  # fmt: skip
    named = flmc.Model.from_numpyro(
        linear,
        dealt(MODELS["linear regression"][1], (24,)),
        dims={"slopes": ["feature"]},
        coords={"feature": ["age", "dose", "sex"]},
        smoothness=1.0,
    )
    assert named.layout is not None
    assert named.layout.entries()[-2:] == ["slopes[dose]", "slopes[sex]"]


def test_a_device_of_a_federation_has_its_share_of_the_prior() -> None:
    """Two models of one device each, which know that they are two, add up to the one of both."""
    arrays = MODELS["linear regression"][1]
    both = flmc.Model.from_numpyro(linear, dealt(arrays, (20, 4)), smoothness=1.0)
    theta = 0.3 * np.random.default_rng(1).standard_normal((1, 1, both.dim))
    each = [
        flmc.Model.from_numpyro(
            linear,
            from_arrays([{key: value[part] for key, value in arrays.items()}]),
            smoothness=1.0,
            prior_devices=2,
        ).gradient(theta)[0, 0, 0]
        for part in (slice(0, 20), slice(20, 24))
    ]
    np.testing.assert_allclose(both.gradient(theta)[0, 0], each, rtol=1e-9, atol=1e-9)
    with pytest.raises(InvalidSetting, match="prior_devices must be a whole number of at least 2"):
        flmc.Model.from_numpyro(linear, dealt(arrays, (20, 4)), smoothness=1.0, prior_devices=1)


def one_per_example(y: Any) -> None:
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    with numpyro.plate("N", len(y)):
        own = numpyro.sample("own_level", dist.Normal(0.0, scale))
        numpyro.sample("y", dist.Normal(own, 1.0), obs=y)


def centred_inside(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("seen", dist.Normal(slope * (x[:, 0] - x[:, 0].mean()), 1.0), obs=y)


def series(y: Any) -> None:
    alpha = numpyro.sample("alpha", dist.Normal(0.0, 1.0))
    numpyro.sample("steps", dist.Normal(alpha * y[:-1], 1.0), obs=y[1:])


def total(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    numpyro.sample("sum", dist.Normal(mean, 1.0), obs=y.sum())


def discrete(y: Any) -> None:
    with numpyro.plate("N", len(y)):
        which = numpyro.sample("which", dist.Bernoulli(0.5))
        numpyro.sample("y", dist.Normal(which, 1.0), obs=y)


def branching(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    if (y > 0).all():
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)
    else:
        numpyro.sample("y", dist.Normal(mean, 2.0), obs=y)


def unit_information(x: Any, y: Any) -> None:
    slope = numpyro.sample("slope", dist.Normal(0.0, 1.0 + jnp.square(x[:, 0]).sum()))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(slope * x[:, 0], 1.0), obs=y)


def moving_support(y: Any) -> None:
    low = numpyro.sample("low", dist.Normal(0.0, 1.0))
    high = numpyro.sample("high", dist.Uniform(low, low + 1.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(high, 1.0), obs=y)


def subsampled(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", 24, subsample_size=5) as some:
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y[some])


def optimised(y: Any) -> None:
    mean = numpyro.param("mean", 0.0)
    sd = numpyro.sample("sd", dist.HalfNormal(1.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(mean, sd), obs=y)


def fixed_plate(y: Any) -> None:
    mean = numpyro.sample("mean", dist.Normal(0.0, 1.0))
    with numpyro.plate("N", 24):
        numpyro.sample("y", dist.Normal(mean, 1.0), obs=y)


def turning(y: Any) -> None:
    angle = numpyro.sample("angle", dist.VonMises(0.0, 1.0))
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(angle, 1.0), obs=y)


def blind(y: Any) -> None:
    numpyro.sample("mean", dist.Normal(0.0, 1.0))


def certain(y: Any) -> None:
    with numpyro.plate("N", len(y)):
        numpyro.sample("y", dist.Normal(0.0, 1.0), obs=y)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (one_per_example, "latent site 'own_level' has one value for each example"),
        (centred_inside, "observed site 'seen' is no sum over examples"),
        (series, "'steps'"),
        (total, "observed site 'sum' is no sum over examples"),
        (discrete, "latent site 'which' is discrete"),
        (branching, "branches on values of the data"),
        (unit_information, "prior of the latent site 'slope' depends on the examples"),
        (moving_support, "support of 'high' depends on other sites"),
        (subsampled, "plate 'N' takes 5 of 24"),
        (optimised, "site 'mean' is of the type 'param'"),
        (fixed_plate, "observed site 'y' is no sum over examples"),
        (turning, "support of 'angle' is"),
        (blind, "observes nothing"),
        (certain, "no latent site"),
    ],
)
def test_what_cannot_be_split_is_refused_by_name(model: Callable[..., None], message: str) -> None:
    names = model.__code__.co_varnames[: model.__code__.co_argcount]
    data = dealt({name: {"x": X, "y": REAL}[name] for name in names}, (10, 14))
    with pytest.raises(InvalidSetting, match=message):
        flmc.Model.from_numpyro(model, data, smoothness=1.0)


def test_arguments_are_checked() -> None:
    data = dealt({"x": X, "z": REAL}, (24,))
    with pytest.raises(InvalidSetting, match=r"arguments x, z: TypeError: .*'z'"):
        flmc.Model.from_numpyro(linear, data)
    good = dealt({"x": X, "y": REAL}, (24,))
    with pytest.raises(InvalidSetting, match="start has 'slope', which is no latent site"):
        flmc.Model.from_numpyro(linear, good, start={"slope": 0.0})
    with pytest.raises(InvalidSetting, match="start of 'sigma' must be positive"):
        flmc.Model.from_numpyro(linear, good, start={"sigma": -1.0})
    with pytest.raises(InvalidSetting, match="dims of 'slopes' must name 1 axes"):
        flmc.Model.from_numpyro(linear, good, dims={"slopes": ["a", "b"]})


def nuts(model: Callable[..., None], arrays: dict[str, Array]) -> dict[str, Array]:
    """Draws of NumPyro's own sampler, (chain, draw, ...)."""
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64():
        sampler = MCMC(
            NUTS(model), num_warmup=500, num_samples=2000, num_chains=4,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        sampler.run(jax.random.PRNGKey(0), **{k: jnp.asarray(v) for k, v in arrays.items()})
        drawn = sampler.get_samples(group_by_chain=True)
        return {name: np.asarray(values) for name, values in drawn.items()}


@full_only
def test_a_mixture_is_sampled_as_nuts_samples_it() -> None:
    """Simplex, ordered and positive at once, not normal in theta. An uplink of 60 dB and small
    steps leave the discretisation, below 1 % of the variance, and the Monte Carlo error."""
    rng = np.random.default_rng(7)
    y = np.where(rng.random(120) < 0.35, -1.5, 1.0) + 0.7 * rng.standard_normal(120)
    plain = flmc.Model.from_numpyro(mixture, dealt({"y": y}, (30, 50, 40)))
    assert isinstance(plain, LogDensityModel)
    model = plain.whitened()
    uplink = flmc.Analog(clip=300.0, snr_db=60.0)
    plan = flmc.plan(
        model, uplink, flmc.Limits(privacy="off"), step_size=0.02, num_rounds=20000,
        num_burn_in=500, forecast=False,
    )  # fmt: skip
    result = flmc.run(plan, model, seed=3, chains=4)
    assert result.clipped_fraction == 0.0
    ours, theirs = result.parameters(), nuts(mixture, {"y": y})
    assert set(ours) == set(theirs) == {"weights", "means", "sigma"}
    np.testing.assert_allclose(ours["weights"].sum(axis=-1), 1.0)
    assert (np.diff(ours["means"], axis=-1) > 0).all()
    for name in ours:
        one, two = (each[name].reshape(*each[name].shape[:2], -1) for each in (ours, theirs))
        first, second = (chain_statistics(np.moveaxis(each, 2, 0)) for each in (one, two))
        spread = two.reshape(-1, two.shape[2]).std(axis=0)
        error = np.sqrt(1 / first.ess_bulk + 1 / second.ess_bulk)
        apart = (one.mean(axis=(0, 1)) - two.mean(axis=(0, 1))) / spread
        assert (np.abs(apart) < 5 * error).all(), (name, apart, error)
        # The standard error of a standard deviation is at most 1/sqrt(n) for tails as here, and
        # steps of 0.02 posterior variances widen it by a half percent.
        ratio = one.reshape(-1, one.shape[2]).std(axis=0) / spread
        assert (np.abs(ratio - 1) < 5 * error + 0.01).all(), (name, ratio, error)


# A plate over devices whose sites stay at home.

HOMES = [{"y": RNG.standard_normal(n), "x": RNG.standard_normal(n), "home": np.full(n, k)}
         for k, n in enumerate((3, 1, 6))]  # fmt: skip


def homes(y: Any, x: Any, home: Any, law: Callable[..., Any] | None = None) -> None:
    mu = numpyro.sample("mu", dist.Normal(0.0, 2.0))
    tau = numpyro.sample("tau", dist.HalfNormal(1.0))
    with numpyro.plate("homes", 3):
        level = numpyro.sample("level", dist.Normal(mu, tau) if law is None else law(mu, tau))
        spread = numpyro.sample("spread", dist.HalfNormal(1.0))
    with numpyro.plate("rows", len(y)):
        numpyro.sample("obs", dist.Normal(level[home] + x, spread[home]), obs=y)


def by_hand(**given: Any) -> Any:
    """The same model from log densities."""
    positive = flmc.supports.positive

    def normal(value: Any, mean: Any, sd: Any) -> Any:
        return -0.5 * ((value - mean) / sd) ** 2 - jnp.log(sd)

    return flmc.Model.from_log_density(
        lambda w: normal(w["mu"], 0.0, 2.0) - 0.5 * w["tau"] ** 2,
        lambda w, own, row: normal(row["y"], own["level"] + row["x"], own["spread"]),
        from_arrays(HOMES),
        {"mu": 0.0, "tau": flmc.Parameter(0.7, positive)},
        local={"level": 0.0, "spread": flmc.Parameter(0.7, positive)},
        log_local_prior=lambda w, own: (
            normal(own["level"], w["mu"], w["tau"]) - 0.5 * own["spread"] ** 2
        ),
        **given,
    )


@full_only
def test_a_plate_over_devices_stays_at_home() -> None:
    """The same gradients as of log densities that are written by hand."""
    model: Any = flmc.Model.from_numpyro(homes, from_arrays(HOMES), local="homes")
    expected = by_hand()
    assert model.layout.entries() == ["mu", "tau"]
    assert (model.dim, model.num_local) == (2, 2)
    thetas = np.random.default_rng(1).standard_normal((1, 3, 2))
    # Integrals at nodes about modes that searches from other starts find: within 1e-2.
    np.testing.assert_allclose(model.gradient(thetas), expected.gradient(thetas), atol=1e-2)
    draws = model.local_draws(thetas[0], seed=1)
    assert draws["level"].shape == draws["spread"].shape == (3, 3)
    assert (draws["spread"] > 0).all()


@full_only
def test_a_device_of_a_federation_has_its_entry() -> None:
    """The model of one device is its row of the model of all."""
    whole: Any = flmc.Model.from_numpyro(homes, from_arrays(HOMES), local="homes")
    thetas = np.random.default_rng(1).standard_normal((1, 3, 2))
    expected = whole.gradient(thetas)
    for number, rows in enumerate(HOMES):
        one = flmc.Model.from_numpyro(homes, from_arrays([rows]), local="homes", prior_devices=3)
        np.testing.assert_allclose(one.gradient(thetas)[:, :, 0], expected[:, :, number], rtol=1e-8)


def test_what_cannot_stay_at_home_is_refused() -> None:
    def uneven(mu: Any, tau: Any) -> Any:
        return dist.Normal(mu + jnp.arange(3.0), tau)

    def shared(y: Any, x: Any, home: Any) -> None:
        with numpyro.plate("homes", 3):
            level = numpyro.sample("level", dist.Normal(0.0, 1.0))
        top = numpyro.sample("top", dist.Normal(level.sum(), 1.0))
        with numpyro.plate("rows", len(y)):
            numpyro.sample("obs", dist.Normal(top + level[home], 1.0), obs=y)

    data = from_arrays(HOMES)
    with pytest.raises(InvalidSetting, match="no latent site is in one of the name 'houses'"):
        flmc.Model.from_numpyro(homes, data, local="houses")
    with pytest.raises(InvalidSetting, match="one entry for each of 2 devices, got 3"):
        flmc.Model.from_numpyro(homes, from_arrays(HOMES[:2]), local="homes")
    with pytest.raises(InvalidSetting, match=r"entries of 'level'.*have different laws"):
        flmc.Model.from_numpyro(homes, data, fixed={"law": uneven}, local="homes")
    with pytest.raises(InvalidSetting, match="'top' depends on sites of the plate 'homes'"):
        flmc.Model.from_numpyro(shared, data, local="homes")
    mixed = [{**HOMES[0], "home": np.array([0, 1, 0])}, *HOMES[1:]]
    with pytest.raises(InvalidSetting, match=r"rows of device 0 .*one entry of its own"):
        flmc.Model.from_numpyro(homes, from_arrays(mixed), local="homes")
    twice = [HOMES[0], {**HOMES[1], "home": np.array([0])}, HOMES[2]]
    with pytest.raises(InvalidSetting, match=r"rows of device 1 .*and so do those of 0"):
        flmc.Model.from_numpyro(homes, from_arrays(twice), local="homes")
