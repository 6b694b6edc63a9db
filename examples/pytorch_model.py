"""A PyTorch module over twenty devices: torch.func gives the gradients of all devices and chains at
once, flmc plans and samples; then the same model once more from log densities, by JAX.

flmc does not depend on PyTorch: install it yourself, a CPU build is enough. Usage:
pytorch_model.py [ROUNDS]."""

import sys

import jax.numpy as jnp
import numpy as np
import torch
from torch.func import functional_call, grad, vmap

import flmc

DEVICES, EXAMPLES, FEATURES = 20, 40, 3

rng = np.random.default_rng(3)
x = rng.standard_normal((DEVICES, EXAMPLES, FEATURES))
y = np.where(x @ [1.0, -1.0, 0.5] + 0.3 + rng.logistic(size=(DEVICES, EXAMPLES)) > 0, 1.0, -1.0)

# Double precision throughout: Langevin steps are small beside theta.
module = torch.nn.Linear(FEATURES, 1).double()
# In alphabetical order, as JAX has the entries of a dictionary.
shapes = {name: tuple(part.shape) for name, part in sorted(module.named_parameters())}
features, labels = torch.tensor(x), torch.tensor(y)
torch.set_num_threads(1)  # sums in one order: a run can be repeated to the last bit


def parameters(theta):
    """The module's parameters from one flat theta, in the order of ``shapes``."""
    parts = torch.split(theta, [int(np.prod(shape)) for shape in shapes.values()])
    return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


def cost(theta, own_features, own_labels):
    """Negative log likelihood of one device: the SUM over its examples, without the prior."""
    score = functional_call(module, parameters(theta), (own_features,))[:, 0]
    return torch.nn.functional.softplus(-own_labels * score).sum()


over_devices = vmap(grad(cost), in_dims=(None, 0, 0))
over_chains = vmap(over_devices, in_dims=(0, None, None))


def gradient(theta):
    """From (chain, entry) to (chain, device, entry). ``theta`` is read-only, so it is copied."""
    return over_chains(torch.tensor(theta), features, labels).numpy()


def with_torch():
    # From public knowledge: a logistic curvature is at most 1/4, and features have variance 1.
    model = flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(0.0, 1.0),
        dim=FEATURES + 1,
        num_devices=DEVICES,
        smoothness=0.3 * DEVICES * EXAMPLES,
        convexity=0.08 * DEVICES * EXAMPLES,
    )
    model.layout = tuple(shapes.items())  # names for the summary
    return model


def with_jax():
    def log_prior(w):
        return -0.5 * jnp.sum(w["weight"] ** 2) - 0.5 * jnp.sum(w["bias"] ** 2)

    def log_likelihood(w, row):  # of one example
        return -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ w["weight"][0] + w["bias"][0]))

    data = flmc.data.FederatedData(x.reshape(-1, FEATURES), y.ravel(), (EXAMPLES,) * DEVICES)
    start = {name: np.zeros(shape) for name, shape in shapes.items()}
    return flmc.Model.from_log_density(log_prior, log_likelihood, data, start)


def main(rounds: int = 8000) -> None:
    model = with_torch()
    uplink = flmc.Digital(link=flmc.Linear(), clip=8.0, snr_db=25)
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(model, uplink, limits, num_rounds=rounds, num_burn_in=rounds // 8)
    for finding in flmc.check_model(model, plan):
        print("*", finding.message)
    models = (model, with_jax())
    places = np.random.default_rng(1).standard_normal((1, 50, model.dim))
    mine, other = (each.gradient(places) for each in models)
    print(
        f"local gradients differ by {np.abs(mine - other).max():.1g} of {np.abs(other).max():.3g}"
    )
    results = [flmc.run(plan, each, seed=7, chains=4) for each in models]
    print(results[0].summary())
    # The same plan and seed. What arrives at the server are bits, so the draws are equal, even to
    # the last digit unless rounding turned a bit somewhere.
    mine, other = (result.draws for result in results)
    sd = other.std(axis=(0, 1))
    moved = np.abs(mine.mean(axis=(0, 1)) - other.mean(axis=(0, 1))) / sd
    wider = np.abs(mine.std(axis=(0, 1)) / sd - 1)
    print(f"JAX's means differ by {moved.max():.1g} sd, its sds by {wider.max():.1g}")
    print(f"seconds: {results[0].seconds:.1f} with torch, {results[1].seconds:.1f} with JAX")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
