"""Logistic regression over eight hospitals, each with a file of its own: breast cancer data,
label-skewed, one random bit an entry over a noisy channel at 25 dB.

A simulation: features are standardised by their own mean and spread, and the coordinates are those
of the posterior's own mode and curvature, so that no privacy is stated. Usage: hospitals.py
[ROUNDS]."""

import csv
import sys
import tempfile
from pathlib import Path

import jax.numpy as jnp

import flmc


def log_prior(w):
    return -0.5 * jnp.sum(w["slope"] ** 2) - 0.5 * (w["intercept"] / 5) ** 2


def log_likelihood(w, row):  # of one example
    return -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ w["slope"] + w["intercept"]))


def main(place: Path, rounds: int = 6000) -> None:
    write_hospitals(place)
    data = flmc.data.read(str(place / "*.csv"), target="diagnosis", standardise="data")
    print(data, "\n")
    start = {"slope": jnp.zeros(30), "intercept": 0.0}
    plain = flmc.Model.from_log_density(log_prior, log_likelihood, data, start)
    model = plain.whitened()
    uplink = flmc.Digital(link=flmc.Linear(), clip=1.5, snr_db=25)
    plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), num_rounds=rounds, num_burn_in=500)
    result = flmc.run(plan, model, seed=7, chains=4)
    print(result.summary())


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
