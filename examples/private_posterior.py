"""A posterior of 120 000 examples on 50 devices, sampled over the air, for a privacy of epsilon
below 1 in all.

One example is replaced, the whole run counts, delta is 1e-5. The settings were fixed before any of
these data sets was drawn; they come from public knowledge (number of examples, standard normal
features and residuals). The posterior is known exactly here, so one can see what privacy costs:
nearly nothing."""

import sys

import numpy as np

import flmc
from flmc.uplink.example_clipping import shrink_factor

uplink = flmc.Digital(
    link=flmc.Sigmoid(0.011),
    clip=700.0,
    snr_db=8.4,
    example_clip=4.0,
    example_shrink=shrink_factor(4.0),
)
limits = flmc.Limits(epsilon=1.0, scope="run", run_delta=1e-5, neighbouring="example")


def run(seed, chains):
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=seed, num_samples=120_000, dim=5, num_devices=50)
    )
    plan = flmc.plan(
        model,
        uplink,
        limits,
        step_size=7.58e-5,
        start="zero",
        num_rounds=190,
        num_burn_in=130,
        num_fast=40,
        burn_in_step_factor=8.0,
        public_smoothness=150_000.0,
        public_convexity=90_000.0,
        forecast=False,
    )
    return flmc.run(plan, model, seed=seed, chains=chains, keep_draws=False)


def main(data_sets=5, chains=40):
    ratios, errors = [], []
    for seed in range(100, 100 + data_sets):
        result = run(seed, chains)
        metrics = result.metrics
        ratios.append(metrics.variance_ratio.mean)
        errors.append(metrics.mean_error_squared.mean / metrics.posterior_trace)
        print(
            f"data set {seed}: variance ratio {ratios[-1]:.3f}, squared mean error"
            f" {100 * errors[-1]:.2f} % of trace"
        )
    epsilon = result.plan.run_cost.epsilon
    print(f"whole run, one example: epsilon {epsilon:.3f} at delta 1e-5")
    print(
        f"mean over data sets: variance ratio {np.mean(ratios):.3f}, squared mean error"
        f" {100 * np.mean(errors):.2f} %"
    )
    return epsilon, float(np.mean(ratios)), float(np.mean(errors))


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
