"""The posteriors of posteriordb as models of flmc: data that nobody here wrote, dealt to devices.

Data and reference draws are read from ``../shared/data/posteriordb`` beside the repository, whose
README describes the models; nothing of them is kept here. Every posterior is written with
:meth:`flmc.Model.from_log_density`, as a practitioner would: features and target standardised, and
supports declared. Where standardising leaves a posterior that is long in some direction, it is
whitened by its Laplace approximation as well. Draws are compared in the parameters that posteriordb
names. Two data sets come without reference draws; NUTS of NumPyro samples their posteriors, from
densities that are written a second time in its own terms."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.models.log_density import LogDensityModel

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "posteriordb"
"""Where data and reference draws are looked for, beside the repository."""
KEPT = Path(tempfile.gettempdir()) / "flmc-references"
"""Where draws of NUTS are kept between calls."""
NUM_DEVICES = 8
DEALS = {"iid": "iid", "sorted": "label"}
"""Ways to deal examples to devices, and their names in flmc: at random, and sorted by target."""
_REFERENCE_DRAWS = 10_000
"""Draws behind the means and standard deviations of a reference, nearly independent."""

Parameters = dict[str, Any]


@dataclass(frozen=True)
class Reference:
    """What is known of a posterior: names (entry), mean and sd (entry), and their standard errors,
    that of the mean in sd and that of the variance relative to it, both (entry); and some draws,
    (draw, entry), for variances in other directions than the entries."""

    names: tuple[str, ...]
    mean: Array
    sd: Array
    mean_error: Array
    variance_error: Array
    draws: Array


@dataclass(frozen=True)
class Posterior:
    """A posterior: its data on one device, its densities, and how theta becomes its parameters."""

    name: str
    data: flmc.data.FederatedData
    log_prior: Callable[[Parameters], Any]
    log_likelihood: Callable[[Parameters, Any], Any]
    start: Parameters
    named: Callable[[Parameters], list[Array]]
    """Parameters of draws (..., own shape) to columns (...), in the order of the reference."""
    reference: Callable[[], Reference]
    whitened: bool = False
    """Whether its coordinates are those in which its Laplace approximation is round."""
    start_sd: float | None = None

    def model(self, deal: str) -> LogDensityModel:
        """The model, its examples dealt to eight devices."""
        made = flmc.Model.from_log_density(
            self.log_prior,
            self.log_likelihood,
            self.data.split(NUM_DEVICES, DEALS[deal], seed=1),
            self.start,
            start_sd=self.start_sd,
        )
        assert isinstance(made, LogDensityModel)
        return made.whitened() if self.whitened else made

    def pooled(self) -> LogDensityModel:
        """The model with all data on one device."""
        made = flmc.Model.from_log_density(
            self.log_prior, self.log_likelihood, self.data, self.start, start_sd=self.start_sd
        )
        assert isinstance(made, LogDensityModel)
        return made.whitened() if self.whitened else made

    def columns(self, model: LogDensityModel, draws: Array) -> Array:
        """Draws (chain, draw, dim) of the model, in the reference's parameters."""
        return np.stack(self.named(model.parameters(draws)), axis=-1)


def read_data(name: str) -> dict[str, Array]:
    """The data of posteriordb with this name."""
    values = json.loads((FOLDER / f"{name}.data.json").read_text())
    return {key: np.asarray(value, dtype=np.float64) for key, value in values.items()}


def _published(name: str) -> Callable[[], Reference]:
    """A function that reads the reference draws of a posterior."""

    def read() -> Reference:
        with np.load(FOLDER / f"{name}.reference.npz") as kept:
            draws, names = kept["draws"], tuple(map(str, kept["names"]))
            mean, sd = kept["mean"], kept["sd"]
        return _of_draws(names, draws, mean, sd, _REFERENCE_DRAWS)

    return read


def _of_draws(
    names: tuple[str, ...], draws: Array, mean: Array, sd: Array, independent: float
) -> Reference:
    """A reference from mean and sd of so many independent draws; ``draws`` (draw, entry), which may
    be some of them, give the fourth moment that the error of a variance needs."""
    fourth = np.mean(((draws - draws.mean(axis=0)) / draws.std(axis=0)) ** 4, axis=0)
    return Reference(
        names,
        mean,
        sd,
        np.full(len(mean), independent**-0.5),
        np.sqrt((fourth - 1.0) / independent),
        draws,
    )


def _positive(start: float | Array) -> flmc.Parameter:
    """A positive parameter."""
    return flmc.Parameter(start, flmc.supports.positive)


def _normal(x: Any, mean: Any, sd: Any) -> Any:
    """Log density of a normal law, up to a constant."""
    import jax.numpy as jnp

    return -0.5 * ((x - mean) / sd) ** 2 - jnp.log(sd)


def _cauchy(x: Any, scale: float) -> Any:
    """Log density of a Cauchy law about 0, up to a constant."""
    import jax.numpy as jnp

    return -jnp.log1p((x / scale) ** 2)


def _student(x: Any, freedom: float, centre: float, scale: float) -> Any:
    """Log density of Student's law, up to a constant."""
    import jax.numpy as jnp

    return -0.5 * (freedom + 1) * jnp.log1p(((x - centre) / scale) ** 2 / freedom)


def _regression(
    name: str,
    features: Array,
    target: Array,
    prior: Callable[[Any, Any, Any], Any] = lambda intercept, slopes, sigma: 0.0,
    *,
    intercept: bool = True,
    centred: bool = False,
    intercept_last: bool = False,
    at_fit: bool = False,
    whitened: bool = False,
) -> Posterior:
    """A normal regression, features (sample, feature) and target standardised.

    ``prior`` is the log prior of intercept, slopes and sigma of the data as they are. Without an
    intercept nothing is centred; ``centred`` says that the intercept is that of centred features
    already. Chains start about zero and the target's spread, or with ``at_fit`` about the fit by
    least squares, where features predict so well that zero is far away."""
    shift = features.mean(axis=0) if intercept else np.zeros(features.shape[1])
    scale, unit = features.std(axis=0), float(target.std())
    middle = float(target.mean()) if intercept else 0.0
    data = flmc.data.FederatedData(
        (features - shift) / scale, (target - middle) / unit, (len(target),)
    )

    def original(p: Parameters) -> tuple[Any, Any, Any]:
        """Intercept, slopes and sigma of the data as they are."""
        slopes = unit * p["slopes"] / scale
        constant = middle + unit * p["intercept"] if intercept else 0.0
        if not centred:
            constant = constant - slopes @ shift
        return constant, slopes, unit * p["sigma"]

    def log_prior(p: Parameters) -> Any:
        return prior(*original(p))

    def log_likelihood(p: Parameters, row: Any) -> Any:
        constant = p["intercept"] if intercept else 0.0
        return _normal(row["y"], constant + row["x"] @ p["slopes"], p["sigma"])

    def named(p: Parameters) -> list[Array]:
        slopes = unit * p["slopes"] / scale
        columns = [slopes[..., i] for i in range(features.shape[1])]
        if intercept:
            constant = middle + unit * p["intercept"] - (0.0 if centred else slopes @ shift)
            columns.insert(len(columns) if intercept_last else 0, constant)
        return [*columns, unit * p["sigma"]]

    slopes: Array = np.zeros(features.shape[1])
    sigma = 1.0
    if at_fit:
        slopes = np.asarray(np.linalg.lstsq(data.features, data.targets)[0], np.float64)
        sigma = float((data.targets - data.features @ slopes).std())
    start: Parameters = {"slopes": slopes, "sigma": _positive(sigma)}
    if intercept:
        start["intercept"] = 0.0
    return Posterior(
        name, data, log_prior, log_likelihood, start, named, _published(name), whitened
    )


def _kidscore(name: str, *columns: str) -> Posterior:
    d = read_data("kidiq")
    features = np.stack([d[column] for column in columns], axis=1)
    return _regression(name, features, d["kid_score"], lambda a, b, s: _cauchy(s, 2.5))


def _interaction() -> Posterior:
    d = read_data("kidiq_with_mom_work")
    school, iq = ((v - v.mean()) / (2 * v.std(ddof=1)) for v in (d["mom_hs"], d["mom_iq"]))
    features = np.stack([school, iq, school * iq], axis=1)
    return _regression("kidiq_with_mom_work-kidscore_interaction_z", features, d["kid_score"])


def _earnings(name: str, *columns: str) -> Posterior:
    d = read_data("earnings")
    return _regression(name, np.stack([d[column] for column in columns], axis=1), np.log(d["earn"]))


def _mesquite() -> Posterior:
    d = read_data("mesquite")
    area, height = d["diam1"] * d["diam2"], d["canopy_height"]
    shape, total = np.log(d["diam1"] / d["diam2"]), np.log(d["total_height"])
    features = np.stack([np.log(area * height), np.log(area), shape, total, d["group"]], axis=1)
    name = "mesquite-logmesquite_logvash"
    return _regression(name, features, np.log(d["weight"]), at_fit=True, whitened=True)


def _elections(year: str) -> Posterior:
    d = read_data(f"nes{year}")
    ages = [(d["age_discrete"] == age).astype(float) for age in (2, 3, 4)]
    first, last = (d["real_ideo"], d["race_adj"]), (d["educ1"], d["gender"], d["income"])
    return _regression(f"nes{year}-nes", np.stack([*first, *ages, *last], axis=1), d["partyid7"])


def _sblrc() -> Posterior:
    d = read_data("sblrc")

    def prior(_: Any, slopes: Any, sigma: Any) -> Any:
        return -0.5 * (slopes**2).sum() / 100 - 0.5 * sigma**2 / 100

    return _regression(
        "sblrc-blr", d["X"], d["y"], prior, intercept=False, at_fit=True, whitened=True
    )


def _autoregression() -> Posterior:
    d = read_data("arK")
    lags, y = int(d["K"]), d["y"]
    features = np.stack([y[lags - k - 1 : len(y) - k - 1] for k in range(lags)], axis=1)

    def prior(constant: Any, slopes: Any, sigma: Any) -> Any:
        return -0.5 * (constant**2 + (slopes**2).sum()) / 100 + _cauchy(sigma, 2.5)

    return _regression("arK-arK", features, y[lags:], prior, at_fit=True, whitened=True)


def _kilpisjarvi() -> Posterior:
    d = read_data("kilpisjarvi_mod")

    def prior(constant: Any, slopes: Any, sigma: Any) -> Any:
        return -0.5 * (
            ((constant - d["pmualpha"]) / d["psalpha"]) ** 2
            + ((slopes[0] - d["pmubeta"]) / d["psbeta"]) ** 2
        )

    return _regression("kilpisjarvi_mod-kilpisjarvi", d["x"][:, None], d["y"], prior)


def _diamonds() -> Posterior:
    d = read_data("diamonds")

    def prior(constant: Any, slopes: Any, sigma: Any) -> Any:
        return -0.5 * (slopes**2).sum() + _student(constant, 3, 8, 10) + _student(sigma, 3, 0, 10)

    return _regression(
        "diamonds-diamonds", d["X"][:, 1:], d["Y"], prior,
        centred=True, intercept_last=True, at_fit=True, whitened=True,
    )  # fmt: skip


def _mixture() -> Posterior:
    """Two normal components, the second mean above the first."""
    import jax.numpy as jnp

    y = read_data("low_dim_gauss_mix")["y"]
    data = flmc.data.FederatedData(np.zeros((len(y), 1)), y, (len(y),))

    def log_prior(p: Parameters) -> Any:
        share = jnp.log(p["theta"]) + jnp.log1p(-p["theta"])
        return -0.125 * ((p["mu"] ** 2).sum() + (p["sigma"] ** 2).sum()) + 4 * share

    def log_likelihood(p: Parameters, row: Any) -> Any:
        each = _normal(row["y"], p["mu"], p["sigma"])
        return jnp.logaddexp(jnp.log(p["theta"]) + each[0], jnp.log1p(-p["theta"]) + each[1])

    def named(p: Parameters) -> list[Array]:
        pairs = [p[name][..., i] for name in ("mu", "sigma") for i in range(2)]
        return [*pairs, p["theta"]]

    start = {
        # Two heaps, at about -2 and 2, are seen by eye.
        "mu": flmc.Parameter([-2.0, 2.0], flmc.supports.ordered),
        "sigma": _positive(np.ones(2)),
        "theta": flmc.Parameter(0.5, flmc.supports.unit_interval),
    }
    name = "low_dim_gauss_mix-low_dim_gauss_mix"
    reference = _published(name)
    return Posterior(name, data, log_prior, log_likelihood, start, named, reference, start_sd=0.1)


def _schools() -> Posterior:
    """Eight schools with standardised effects; mu in units of its prior's sd."""
    d = read_data("eight_schools")
    features = np.concatenate([np.eye(8), d["sigma"][:, None]], axis=1)
    data = flmc.data.FederatedData(features, d["y"], (8,))

    def log_prior(p: Parameters) -> Any:
        effects = -0.5 * ((p["effect"] ** 2).sum() + p["mu"] ** 2)
        return effects + _cauchy(p["tau"], 5.0)

    def log_likelihood(p: Parameters, row: Any) -> Any:
        own = 5.0 * p["mu"] + p["tau"] * (row["x"][:8] @ p["effect"])
        return _normal(row["y"], own, row["x"][8])

    def named(p: Parameters) -> list[Array]:
        mu, tau = 5.0 * p["mu"], p["tau"]
        return [*(mu + tau * p["effect"][..., j] for j in range(8)), mu, tau]

    start = {"effect": np.zeros(8), "mu": 0.0, "tau": _positive(math.e)}
    name = "eight_schools-eight_schools_noncentered"
    return Posterior(name, data, log_prior, log_likelihood, start, named, _published(name))


def _radon() -> Posterior:
    """Radon by county: intercepts of 85 counties about a mean, in standardised effects; slopes for
    floor and uranium."""
    import jax.numpy as jnp

    d = read_data("radon_mn")
    county = d["county_idx"] - 1
    features = np.stack([county, d["floor_measure"], d["log_uppm"]], axis=1)
    data = flmc.data.FederatedData(features, d["log_radon"], (len(county),))
    count = int(d["J"])

    def log_prior(p: Parameters) -> Any:
        normal = (p["effect"] ** 2).sum() + p["tau"] ** 2 + p["sigma"] ** 2
        return -0.5 * (normal + (p["mu"] ** 2 + (p["slopes"] ** 2).sum()) / 100)

    def log_likelihood(p: Parameters, row: Any) -> Any:
        effect = p["effect"][jnp.asarray(row["x"][0], int)]
        mean = p["mu"] + p["tau"] * effect + row["x"][1:] @ p["slopes"]
        return _normal(row["y"], mean, p["sigma"])

    def named(p: Parameters) -> list[Array]:
        own = [p["mu"] + p["tau"] * p["effect"][..., j] for j in range(count)]
        slopes = [p["slopes"][..., 0], p["slopes"][..., 1]]
        return [*own, p["mu"], *slopes, p["tau"], p["sigma"]]

    def sample() -> dict[str, Any]:
        import numpyro
        import numpyro.distributions as law

        index = county.astype(int)

        def model() -> None:
            mu = numpyro.sample("mu", law.Normal(0.0, 10.0))
            tau = numpyro.sample("tau", law.HalfNormal(1.0))
            sigma = numpyro.sample("sigma", law.HalfNormal(1.0))
            slopes = numpyro.sample("slopes", law.Normal(0.0, 10.0).expand([2]).to_event(1))
            effect = numpyro.sample("effect", law.Normal(0.0, 1.0).expand([count]).to_event(1))
            own = numpyro.deterministic("own", mu + tau * effect)
            mean = own[index] + slopes[0] * d["floor_measure"] + slopes[1] * d["log_uppm"]
            numpyro.sample("y", law.Normal(mean, sigma), obs=d["log_radon"])

        return {"model": model, "order": ("own", "mu", "slopes", "tau", "sigma")}

    start = {
        "effect": np.zeros(count), "mu": 1.0, "slopes": np.zeros(2),
        "tau": _positive(math.exp(-1.0)), "sigma": _positive(1.0),
    }  # fmt: skip
    name = "radon_mn-hierarchical"
    reference = _sampled(name, sample)
    return Posterior(name, data, log_prior, log_likelihood, start, named, reference, whitened=True)


def _wells() -> Posterior:
    """Logistic regression of switching the well on standardised distance, arsenic, education and
    membership."""
    import jax

    d = read_data("wells_data")
    raw = np.stack([d["dist"], d["arsenic"], d["educ"], d["assoc"]], axis=1)
    features = (raw - raw.mean(axis=0)) / raw.std(axis=0)
    data = flmc.data.FederatedData(features, d["switched"], (len(features),))

    def log_prior(p: Parameters) -> Any:
        return 0.0 * p["intercept"]

    def log_likelihood(p: Parameters, row: Any) -> Any:
        score = p["intercept"] + row["x"] @ p["slopes"]
        return row["y"] * score - jax.nn.softplus(score)

    def named(p: Parameters) -> list[Array]:
        return [p["intercept"], *(p["slopes"][..., j] for j in range(4))]

    def sample() -> dict[str, Any]:
        import numpyro
        import numpyro.distributions as law

        def model() -> None:
            flat = law.ImproperUniform(law.constraints.real, (), ())
            intercept = numpyro.sample("intercept", flat)
            slopes = numpyro.sample(
                "slopes", law.ImproperUniform(law.constraints.real_vector, (), (4,))
            )
            scores = intercept + features @ slopes
            numpyro.sample("y", law.Bernoulli(logits=scores), obs=d["switched"].astype(int))

        return {"model": model, "order": ("intercept", "slopes")}

    start = {"intercept": 0.0, "slopes": np.zeros(4)}
    name = "wells_data-logistic"
    return Posterior(name, data, log_prior, log_likelihood, start, named, _sampled(name, sample))


def _sampled(name: str, sample: Callable[[], dict[str, Any]]) -> Callable[[], Reference]:
    """A function that samples a posterior with NUTS, or reads what it sampled before."""

    def read() -> Reference:
        path = KEPT / f"{name}.npz"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            np.savez(path, draws=_nuts(**sample()))
        with np.load(path) as kept:
            draws = kept["draws"]
        from flmc.evaluation.chain_statistics import chain_statistics

        # By the entry that mixes worst.
        independent = float(chain_statistics(np.moveaxis(draws, 2, 0)).ess_bulk.min())
        flat = draws.reshape(-1, draws.shape[2])
        names = tuple(f"entry {i + 1}" for i in range(flat.shape[1]))
        return _of_draws(names, flat, flat.mean(axis=0), flat.std(axis=0), independent)

    return read


def _nuts(model: Callable[[], None], order: tuple[str, ...]) -> Array:
    """Draws of NUTS, (chain, draw, entry)."""
    import jax
    from numpyro.infer import MCMC, NUTS

    with jax.enable_x64():
        sampler = MCMC(
            NUTS(model), num_warmup=500, num_samples=2500, num_chains=4,
            chain_method="vectorized", progress_bar=False,
        )  # fmt: skip
        sampler.run(jax.random.PRNGKey(0))
        draws = sampler.get_samples(group_by_chain=True)
        columns = [np.asarray(draws[name]) for name in order]
    return np.concatenate([c[..., None] if c.ndim == 2 else c for c in columns], axis=2)


POSTERIORS: dict[str, Callable[[], Posterior]] = {
    "kidiq-kidscore_momiq": lambda: _kidscore("kidiq-kidscore_momiq", "mom_iq"),
    "kidiq-kidscore_momhsiq": lambda: _kidscore("kidiq-kidscore_momhsiq", "mom_hs", "mom_iq"),
    "kidiq_with_mom_work-kidscore_interaction_z": _interaction,
    "earnings-logearn_height": lambda: _earnings("earnings-logearn_height", "height"),
    "earnings-logearn_height_male": lambda: _earnings(
        "earnings-logearn_height_male", "height", "male"
    ),
    "mesquite-logmesquite_logvash": _mesquite,
    "nes1980-nes": lambda: _elections("1980"),
    "nes1988-nes": lambda: _elections("1988"),
    "sblrc-blr": _sblrc,
    "arK-arK": _autoregression,
    "kilpisjarvi_mod-kilpisjarvi": _kilpisjarvi,
    "diamonds-diamonds": _diamonds,
    "low_dim_gauss_mix-low_dim_gauss_mix": _mixture,
    "eight_schools-eight_schools_noncentered": _schools,
    "radon_mn-hierarchical": _radon,
    "wells_data-logistic": _wells,
}
"""Posteriors by their names, each made when it is called."""


@cache
def posterior(name: str) -> Posterior:
    """The posterior with this name, made once."""
    return POSTERIORS[name]()
