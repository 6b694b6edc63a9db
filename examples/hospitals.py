"""Logistic regression over eight hospitals, each with a file of its own: breast cancer data,
label-skewed, one random bit an entry over a noisy channel at 25 dB, in two stages.

The pilot samples in the model's own coordinates, where the posterior is nine times as wide in one
direction as in another. The second stage works in the coordinates of the pilot's draws, within the
same budget. A simulation: features are standardised by their own mean and spread. Usage:
hospitals.py [ROUNDS [PILOT_ROUNDS]]."""

import csv
import sys
import tempfile
import time
from pathlib import Path

import jax.numpy as jnp

import flmc


def log_prior(w):
    return -0.5 * jnp.sum(w["slope"] ** 2) - 0.5 * (w["intercept"] / 5) ** 2


def log_likelihood(w, row):  # of one example
    return -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ w["slope"] + w["intercept"]))


def main(place: Path, rounds: int = 120_000, pilot_rounds: int = 60_000) -> None:
    write_hospitals(place)
    data = flmc.data.read(str(place / "*.csv"), target="diagnosis", standardise="data")
    print(data, "\n")
    start = {"slope": jnp.zeros(30), "intercept": 0.0}
    model = flmc.Model.from_log_density(log_prior, log_likelihood, data, start)
    plan = flmc.plan_two_stages(
        model,
        flmc.Digital(link=flmc.Linear(), clip=4, snr_db=25),
        flmc.Limits(privacy="off"),
        num_rounds=rounds,
        pilot_rounds=pilot_rounds,
        public_smoothness=100,  # where the posterior is; at the start the curvature is 1900
        public_convexity=1,
    )
    began = time.perf_counter()
    result = flmc.run_two_stages(plan, model, seed=7, chains=4, thin=10)
    seconds = time.perf_counter() - began
    print(result, "\n")
    print(result.main.summary())
    worth = result.main.diagnostics.entries.ess_bulk
    print(f"\n{worth:.0f} effective draws in {seconds:.1f} s, {worth / seconds:.0f} a second")


def write_hospitals(place: Path) -> None:
    """Eight files from scikit-learn's set, with classes shared out unevenly."""
    dealt = flmc.data.read("sklearn:breast_cancer").split(8, "dirichlet:0.5", seed=1)
    header = [name.replace(" ", "_") for name in dealt.feature_names]
    for number in range(8):
        own = dealt.device_of == number
        with (place / f"hospital_{number}.csv").open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow([*header, "diagnosis"])
            for features, target in zip(dealt.features[own], dealt.targets[own], strict=True):
                writer.writerow([*features, dealt.classes[int(target > 0)]])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        main(Path(directory), *map(int, sys.argv[1:]))
