"""The first ten minutes of a researcher: plan, run, a link, a fading and a model of your own."""

import numpy as np

import flmc

# 1. A problem whose posterior is known, and an uplink.
data = flmc.data.draw_linear(seed=1, num_samples=1200, dim=5, num_devices=20)
model = flmc.LinearGaussian(data)
uplink = flmc.Digital(
    link=flmc.Sigmoid(0.05), clip=30.0, fading=flmc.ConstantFading(0.04), snr_db=25
)

# 2. Plan: which gain, what binds, what privacy, in one round and in the whole run?
limits = flmc.Limits(epsilon=5, delta=0.01)
plan = flmc.plan(model, uplink, limits, num_rounds=300, num_burn_in=200)
print(plan)

# 3. Run, and compare with the exact posterior.
result = flmc.run(plan, model, seed=7, chains=200)
print(f"\n{result}\ndraws: {result.draws.shape}, variance ratio {result.metrics.variance_ratio}")


# 4. A quantiser of your own: one method; slope, variance and worst case are derived, monotonicity
# is checked.
class Cauchy(flmc.Link):
    def __init__(self, scale):
        self.scale = scale

    def probability(self, g):
        return 0.5 + np.arctan(g / self.scale) / np.pi


# 5. A channel of your own: one method.
class Nakagami(flmc.Fading):
    def draw(self, rng, rounds, num_devices, dim):
        return 0.04 * np.sqrt(rng.gamma(2.0, 0.5, (len(rounds), num_devices, 1)))


# 6. A model of your own: the gradient of each device's negative log likelihood. Here logistic
# regression.
rng = np.random.default_rng(3)
features = rng.normal(size=(20, 50, 3))  # device, example, entry
labels = np.where(features @ [1.0, -1.0, 0.5] + rng.logistic(size=(20, 50)) > 0, 1.0, -1.0)


def gradient(theta):
    margin = labels * np.einsum("kne,ce->ckn", features, theta)
    return -np.einsum("ckn,kn,kne->cke", 1 / (1 + np.exp(margin)), labels, features, optimize=True)


own = flmc.Model.from_gradient(
    gradient, prior=flmc.Normal(0, 1), dim=3, num_devices=20, smoothness=350.0
)
# Gradients are smaller here: finer bits, and so larger steps.
fitting = flmc.replace(uplink, link=flmc.Sigmoid(0.2), clip=10.0)
schemes = {
    "sigmoid": fitting,
    "Cauchy": flmc.replace(fitting, link=Cauchy(5.0)),
    "Nakagami": flmc.replace(fitting, fading=Nakagami()),
    "ideal": flmc.Ideal(),
}
table = flmc.compare(
    schemes, own, limits, seed=7, chains=10, num_rounds=2000, num_burn_in=300, keep_draws=True
)
print(f"\n{table}")
for name in schemes:
    sd = np.sqrt(np.diag(table.results[name].covariance[0]))
    print(f"{name:10s} posterior mean {table.results[name].mean[0].round(3)}, sd {sd.round(3)}")
    print(f"{'':10s} {flmc.diagnose(table.results[name])}")  # do the chains agree?
