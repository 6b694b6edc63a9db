"""Settings drawn at random, that nobody chose: do answers hold, or say beforehand that they may
not?

Model, sizes, channel, privacy and step are drawn from a seed; each setting has some data sets of
its own, whose truth is drawn from the prior. Printed are the settings whose 90 % intervals hold
less often than they say although the answer has no doubt, at the level 1 % over all settings
together."""

from __future__ import annotations

import argparse
import math
from typing import Any

import numpy as np

import flmc
from flmc.base.errors import FlmcError
from flmc.base.special import ndtri
from interval_coverage import FADED, LOUD, OFF, STRONG, Cell, Regressions, Row, measure, private


def draw(seed: int, sets: int) -> Cell:
    """A setting, by its seed."""
    rng = np.random.default_rng([7, seed])
    family = str(rng.choice(["linear", "logistic", "poisson"], p=[0.5, 0.25, 0.25]))
    digital = bool(rng.random() < 0.5)
    dim = int(rng.choice([1, 2, 3, 5, 8, 12, 20] if family == "linear" else [1, 2, 3, 5]))
    devices = int(rng.choice([5, 10, 20]))
    samples = devices * int(np.ceil(10 ** rng.uniform(2.5, 3.7) / devices))
    condition = float(rng.choice([1, 3, 10, 30])) if family == "linear" and dim > 1 else 1.0
    unlike = family == "linear" and bool(rng.random() < 0.2)
    rounds = int(10 ** rng.uniform(2.1, 3.1)) + 6 * dim
    burn_in = int(rounds * rng.uniform(0.1, 0.4))
    q = float(10 ** rng.uniform(-1.7, -0.3))
    snr = float(rng.uniform(10, 50))
    epsilon = rng.choice([0.0, 1.0, 3.0], p=[0.6, 0.2, 0.2])
    prior_sd = {"linear": 1.0, "logistic": 1.0, "poisson": 0.4}[family]
    scale = np.geomspace(1.0, condition**-0.5, dim)
    # Entries of a device's gradient: about the root of its examples, far from the mode times some.
    clip = float(10 ** rng.uniform(0.3, 1.3)) * math.sqrt(samples / devices)
    more: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    limits = LOUD if digital or rng.random() < 0.5 else OFF
    if epsilon:
        norm = 2.5 * math.sqrt(dim) + 0.5 if family == "linear" else 1.1 * math.sqrt(dim)
        more, limits, clip = {"example_norm": norm, **STRONG}, private(float(epsilon)), 1e9
    else:
        more = {"snr_db": snr}
        if rng.random() < 0.3:
            more["fading"] = FADED
            settings["scheduler"] = flmc.ThresholdDevices(0.1)
        elif rng.random() < 0.2:
            settings["scheduler"] = flmc.RandomDevices(max(2, devices // 2))
    uplink: flmc.Uplink
    if digital:
        reach = min(clip, 4.0 * math.sqrt(samples / devices))
        uplink = flmc.Digital(link=flmc.Sigmoid(2.0 / reach), clip=reach, **more)
    else:
        uplink = flmc.Analog(clip=clip, **more)
    name = (
        f"{seed}: {family}, {dim} entries, {samples} on {devices}{' sorted' if unlike else ''},"
        f" condition {condition:g}, {'digital' if digital else 'analog'}, epsilon {epsilon:g},"
        f" {rounds} rounds, q {q:.2g}, {snr:.0f} dB"
        f"{' faded' if 'fading' in more else ''}{' some' if 'scheduler' in settings else ''}"
    )

    def model(count: int) -> Regressions:
        return Regressions(family, count, samples, scale, devices, prior_sd, unlike, seed=seed)

    return Cell(name, model, uplink, limits, rounds, burn_in, q, sets, settings)


def line(row: Row) -> str:
    """What a setting showed, in a line."""
    (held, error), (sure, _) = row.held[2], row.sure
    return (
        f"{row.cell.name}: hold {100 * held:.1f} ± {100 * error:.1f}, without doubt"
        f" {100 * sure:.1f}, joint 90 % {100 * row.joint[2][0]:.0f}, width {row.width:.2f}, T"
        f" {row.temperature:.3g}, score {row.score:.2f}, doubted {100 * row.doubted:.0f} %, wide"
        f" {100 * row.wide:.0f} %, {row.seconds:.0f} s"
    )


def _error(row: Row, dim: int) -> float:
    """Standard error that the share of truths inside would have if it were as stated: that of
    independent entries, times how much entries of a data set go together."""
    share, error = row.sure
    independent = max(1.0, row.sets * (1 - row.doubted)) * dim
    together = error**2 * independent / max(share * (1 - share), 1e-3)
    return math.sqrt(0.9 * 0.1 * max(1.0, together) / independent)


def main() -> None:
    """Measure settings drawn from seeds, and print those that miss unsaid at the end."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0, help="seed of the first setting")
    parser.add_argument("--count", type=int, default=60, help="number of settings")
    parser.add_argument("--sets", type=int, default=80, help="data sets of each")
    arguments = parser.parse_args()
    missed = []
    for seed in range(arguments.first, arguments.first + arguments.count):
        cell = draw(seed, arguments.sets)
        try:
            row = measure(cell, arguments.sets)
        except FlmcError as error:
            print(f"{cell.name}: refused: {error}", flush=True)
            continue
        print(line(row), flush=True)
        # One-sided, Bonferroni's correction for all settings.
        z = float(ndtri(np.array([1 - 0.01 / arguments.count]))[0])
        if row.sure[0] < 0.9 - z * _error(row, cell.model(1).dim):
            missed.append(row)
    print(f"\nmissed without a doubt: {len(missed)}")
    for row in missed:
        print(line(row))


if __name__ == "__main__":
    main()
