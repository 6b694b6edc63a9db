"""Processor time and memory of the accountants' hardest cases, each in a process of its own.

Memory is the largest resident size, in megabytes above that of a process that only imports flmc. A
case may take 6 GB of address space and two minutes; what takes more is reported as such."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from privacy.oracle.asking import answers
from privacy.oracle.battery import Case

SPREAD = tuple((float(gain), 5) for gain in np.geomspace(0.01, 0.3, 300))
CASES = {
    "example, linear ratio 1, clip 1000, example clip 1, gain 3": Case(
        "example", ((3.0, 1500),), 1e-5, "linear", 1.0, 0.002
    ),
    "the same with ratio 0.999": Case("example", ((3.0, 1500),), 1e-5, "linear", 0.999, 0.001998),
    "device, gain for epsilon 1, n = 1e8": Case(
        "device", ((1.0, 100_000_000),), 1e-5, reach=1.5, epsilon=1.0
    ),
    "device, epsilon, n = 1e8": Case("device", ((2e-4, 100_000_000),), 1e-5, reach=1.5),
    "example, slope x shift 3e-4, n = 1e7": Case(
        "example", ((0.5, 10_000_000),), 1e-5, "sigmoid", 2.0, 3e-4
    ),
    "example, gain for epsilon 1, n = 950": Case(
        "example", ((1.0, 950),), 1e-5, "sigmoid", 7.7, 0.088, epsilon=1.0
    ),
    "asymmetric, 300 gains": Case("asymmetric", SPREAD, 1e-5, high=0.8, low=0.1),
    "asymmetric, gain for epsilon 1, n = 1500": Case(
        "asymmetric", ((1.0, 1500),), 1e-5, high=0.8, low=0.1, epsilon=1.0
    ),
    "device, 300 gains": Case("gains", SPREAD, 1e-5, reach=1.5),
    "example, 300 gains": Case("example", SPREAD, 1e-5, "sigmoid", 7.7, 0.088),
    "tail, gain for epsilon 5, n = 1000": Case(
        "tail", ((1.0, 1000),), 1e-6, reach=1.5, epsilon=5.0
    ),
}
"""Cases by their names; gains in standard deviations of the noise."""


def main() -> None:
    print(f"{'case':60} {'answer':>10} {'CPU s':>7} {'MB':>6}")
    for name, case in CASES.items():
        (answer,) = answers([case])
        said = f"{answer.value:10.5g}" if not answer.failure else f"{'none':>10}"
        why = f"  {answer.failure}" if answer.failure else ""
        print(f"{name:60} {said} {answer.cpu:7.2f} {answer.peak:6.0f}{why}", flush=True)


if __name__ == "__main__":
    main()
