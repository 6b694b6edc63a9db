"""How often the intervals of answers hold: `make coverage` writes ``docs/coverage.md``.

Settings were listed beforehand; each has 400 fresh data sets, fewer where that would take more than
ten minutes, and one chain a data set.

The truth of every data set is drawn from the prior, so that calibrated intervals hold it as often
as they say, whatever the posterior."""

from __future__ import annotations

import argparse
import datetime
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import flmc
from flmc.base.arrays import Array
from flmc.base.special import ndtri
from flmc.evaluation.answer import Answer

LEVELS = (0.5, 0.8, 0.9, 0.95)
SCORED = 0.9
"""Level of the intervals whose score is compared with a benchmark."""
OFF = flmc.Limits(privacy="off")


class Regressions(flmc.Model):
    """Regressions of many data sets at once: normal, logistic or Poisson targets, features with
    standard deviations ``scale``, coefficients from N(0, ``prior_sd``²), examples dealt evenly or,
    with ``unlike``, sorted by target."""

    def __init__(
        self,
        family: str,
        sets: int,
        num_samples: int,
        scale: Array,
        num_devices: int = 20,
        prior_sd: float = 1.0,
        unlike: bool = False,
        seed: int = 1,
    ) -> None:
        rng = np.random.default_rng(seed)
        self.family, self.dim, self.num_devices = family, len(scale), num_devices
        self.num_experiments = sets
        self.prior = flmc.Normal(sd=prior_sd)
        self.truth = prior_sd * rng.standard_normal((sets, self.dim))
        x = rng.standard_normal((sets, num_samples, self.dim)) * scale
        score = np.einsum("eni,ei->en", x, self.truth)
        if family == "linear":
            y = score + rng.standard_normal(score.shape)
        elif family == "logistic":
            y = (rng.random(score.shape) < 1 / (1 + np.exp(-score))).astype(float)
        else:
            y = rng.poisson(np.exp(score)).astype(float)
        if unlike:
            order = np.argsort(y, axis=1)
            x, y = np.take_along_axis(x, order[..., None], 1), np.take_along_axis(y, order, 1)
        each = num_samples // num_devices
        self.x = x.reshape(sets, num_devices, each, self.dim)
        self.y = y.reshape(sets, num_devices, each)
        weight = {"linear": 1.0, "logistic": 0.25, "poisson": 1.5}[family]
        self.smoothness = weight * num_samples * float(np.square(scale).max()) * 1.15 + 1
        self.convexity = 1.0 / prior_sd**2

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        return self._gradient(theta, experiments, None)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        return self._gradient(theta, experiments, example_norm)

    def _gradient(self, theta: Array, experiments: slice, norm: float | None) -> Array:
        x, y = self.x[experiments], self.y[experiments]
        out = np.empty((*theta.shape[:2], self.num_devices, self.dim))
        for c in range(theta.shape[1]):
            score = (x @ theta[:, None, c, :, None])[..., 0]
            residual = self._mean(score) - y
            if norm is not None:
                length = np.abs(residual) * self._lengths[experiments]
                residual = residual * np.minimum(1.0, norm / np.maximum(length, 1e-300))
            out[:, c] = (residual[:, :, None] @ x)[:, :, 0]
        return np.asarray(out + self.prior_share(theta)[:, :, None])

    @property
    def _lengths(self) -> Array:
        if not hasattr(self, "_kept_lengths"):
            self._kept_lengths = np.sqrt(np.square(self.x).sum(-1))
        return np.asarray(self._kept_lengths)

    def _mean(self, score: Array) -> Array:
        if self.family == "linear":
            return score
        if self.family == "logistic":
            return np.asarray(1 / (1 + np.exp(-score)))
        return np.asarray(np.exp(np.minimum(score, 20.0)))


@dataclass(frozen=True)
class Cell:
    """One setting: model, uplink, limits and rounds, by the words of the table."""

    name: str
    model: Callable[[int], Regressions]
    uplink: flmc.Uplink
    limits: flmc.Limits = OFF
    rounds: int = 300
    burn_in: int = 100
    q: float = 0.3
    """Step times slope times the largest curvature of the model."""
    most_sets: int = 400
    settings: dict[str, Any] = field(default_factory=dict)


def linear(n: int = 1200, dim: int = 5, condition: float = 1.0, unlike: bool = False) -> Any:
    scale = np.geomspace(1.0, condition**-0.5, dim)
    return lambda sets: Regressions("linear", sets, n, scale, unlike=unlike)


def other(family: str, n: int, dim: int, sd: float) -> Any:
    return lambda sets: Regressions(family, sets, n, np.ones(dim), prior_sd=sd)


def analog(snr_db: float = 40.0, clip: float = 30.0, **more: Any) -> flmc.Uplink:
    return flmc.Analog(clip=clip, snr_db=snr_db, **more)


def digital(slope: float = 0.05, clip: float = 30.0, snr_db: float = 25.0, **more: Any) -> Any:
    return flmc.Digital(link=flmc.Sigmoid(slope), clip=clip, snr_db=snr_db, **more)


def private(epsilon: float) -> flmc.Limits:
    return flmc.Limits(
        epsilon=epsilon, delta=1e-5, run_delta=1e-5, scope="run", neighbouring="example",
        langevin="off",
    )  # fmt: skip


LOUD = flmc.Limits(privacy="off", langevin="off")
RAYLEIGH: dict[str, Any] = {"scheduler": flmc.ThresholdDevices(0.1)}
FADED = flmc.RayleighFading(0.2)
STRONG: dict[str, Any] = {"snr_db": 200.0, "fading": flmc.ConstantFading(1.0)}


def cells() -> list[Cell]:
    """The settings, in the order of the table."""
    hot: dict[str, Any] = {"limits": LOUD}
    cool: dict[str, Any] = {}
    out: list[Cell] = [
        Cell(f"linear, 5 entries, {kind}, {s} rounds", linear(), up, rounds=s, **more)
        for s in (300, 1000, 3000)
        for kind, up, more in (
            ("analog", analog(), cool),
            ("digital", digital(), {"q": 0.2, "limits": LOUD}),
        )
    ]
    out += [
        Cell(f"linear, 20 entries, {kind}, {s} rounds", linear(dim=20), up, rounds=s, **more)
        for s in (600, 3000)
        for kind, up, more in (("analog", analog(), cool), ("digital", digital(), hot))
    ]
    out += [
        Cell(f"linear, condition {c}, analog, {s} rounds", linear(condition=c), analog(),
             rounds=s, burn_in=200, q=0.4)
        for c in (30, 100) for s in (300, 1000, 3000)
    ]  # fmt: skip
    out += [
        Cell("linear, Rayleigh, threshold, analog", linear(), analog(30, fading=FADED),
             rounds=600, burn_in=200, settings=RAYLEIGH),
        Cell("linear, Rayleigh, threshold, digital", linear(), digital(fading=FADED),
             rounds=1000, burn_in=200, limits=LOUD, settings=RAYLEIGH),
        Cell("linear, 10 of 20 devices, analog", linear(), analog(), rounds=600, burn_in=200,
             settings={"scheduler": flmc.RandomDevices(10)}),
        Cell("linear, 10 of 20 devices, digital", linear(), digital(), rounds=1000, burn_in=200,
             limits=LOUD, q=0.2, settings={"scheduler": flmc.RandomDevices(10)}),
        Cell("linear, sorted devices, analog", linear(unlike=True), analog(50, 300.0), rounds=600),
        Cell("linear, sorted devices, linear link", linear(unlike=True),
             flmc.Digital(link=flmc.Linear(1.0), clip=300.0, snr_db=25), rounds=2000, limits=LOUD,
             q=0.05),
        Cell("linear, sorted devices, sigmoid, clip 30", linear(unlike=True), digital(),
             rounds=1000, limits=LOUD),
        Cell("linear, wrong channel estimates, analog", linear(),
             analog(30, fading=FADED, csi_error=0.2), rounds=600, burn_in=200, settings=RAYLEIGH),
    ]  # fmt: skip
    out += [
        Cell(f"linear, epsilon {e}, {n} examples, analog, norm 6.5", linear(n),
             flmc.Analog(clip=1e9, example_norm=6.5, **STRONG), private(e), 1000, 100,
             most_sets=400 if n < 10_000 else 100)
        for e in (1, 3) for n in (1000, 3000, 10_000)
    ]  # fmt: skip
    out += [
        Cell(f"linear, epsilon {e}, 10000 examples, digital, norm 6.5", linear(10_000),
             flmc.Digital(link=flmc.Sigmoid(0.02), clip=100.0, example_norm=6.5, **STRONG),
             private(e), 2000, 200, most_sets=60)
        for e in (1, 3)
    ]  # fmt: skip
    out += [
        Cell(f"{family}, {d} entries, {n} examples, {kind}", other(family, n, d, sd), up,
             rounds=s, q=q, limits=limits)
        for family, d, n, sd, kind, up, s, q, limits in (
            ("logistic", 4, 2000, 1.0, "analog", analog(50), 500, 0.3, OFF),
            ("logistic", 4, 2000, 1.0, "digital", digital(0.1), 1000, 0.3, LOUD),
            ("logistic", 4, 10_000, 1.0, "analog", analog(50, 100.0), 500, 0.3, OFF),
            ("logistic", 2, 500, 1.0, "analog", analog(50), 1000, 0.3, OFF),
            ("poisson", 3, 2000, 0.4, "analog", analog(60, 100.0), 500, 0.3, OFF),
            ("poisson", 3, 2000, 0.4, "digital", digital(0.05, 60.0), 1000, 0.3, LOUD),
            ("poisson", 1, 500, 0.4, "analog", analog(60, 100.0), 500, 0.3, OFF),
        )
    ]  # fmt: skip
    out.append(
        Cell("logistic, epsilon 1, 10000 examples, analog, norm 2.2",
             other("logistic", 10_000, 4, 1.0), flmc.Analog(clip=1e9, example_norm=2.2, **STRONG),
             private(1), 1000, 100, most_sets=100)
    )  # fmt: skip
    return out


@dataclass(frozen=True)
class Row:
    """What one setting showed. ``held`` and ``joint`` are shares of truths inside intervals at
    ``LEVELS``, and inside regions of all entries, each with its standard error over data sets."""

    cell: Cell
    sets: int
    held: tuple[tuple[float, float], ...]
    joint: tuple[tuple[float, float], ...]
    width: float
    doubted: float
    """Share of the data sets in which the answer says that it may not hold."""
    wide: float
    """Share of them in which it says that it is wide."""
    temperature: float
    score: float
    """Mean interval score of 90 % intervals over that of the benchmark, one query of the
    gradient."""
    sure: tuple[float, float]
    """Share of truths inside the 90 % intervals of answers without a doubt, and its standard
    error; not a number where all are doubted."""
    seconds: float

    def off(self, tests: int) -> list[str]:
        """Levels at which intervals or regions do not hold as often as they say, at the level 1 %
        over all ``tests`` comparisons together (Bonferroni)."""
        z = float(ndtri(np.array([1 - 0.01 / (2 * tests)]))[0])
        shares = [
            (f"{level:g}", level, *each) for level, each in zip(LEVELS, self.held, strict=True)
        ]
        shares += [
            (f"joint {level:g}", level, *each)
            for level, each in zip(LEVELS, self.joint, strict=True)
        ]
        # A share of 1 has no error of its own: that of the stated share is the least that counts.
        return [
            name
            for name, level, share, se in shares
            if abs(share - level) > z * max(se, math.sqrt(level * (1 - level) / self.sets / 20))
        ]


def measure(cell: Cell, most: int) -> Row:
    """Run a setting on fresh data sets, one chain each."""
    began, sets = time.process_time(), min(most, cell.most_sets)
    model = cell.model(sets)
    assert model.smoothness is not None
    plan = flmc.plan(
        model, cell.uplink, cell.limits, num_rounds=cell.rounds, num_burn_in=cell.burn_in,
        step_size=cell.q / (cell.uplink.slope * model.smoothness), **cell.settings,
    )  # fmt: skip
    answer = flmc.run(plan, model, seed=11).posterior()
    inside = [_inside(answer, model.truth, level) for level in LEVELS]
    rank = _rank(answer, model.truth)
    findings = [answer.findings_of(e) for e in range(sets)]
    doubted, wide = (
        float(np.mean([any(f.light == light for f in each) for each in findings]))
        for light in ("sampling", "use")
    )
    sure = np.array([not any(f.light == "sampling" for f in each) for each in findings])
    return Row(
        cell, sets, tuple(_share(each) for each in inside),
        tuple(_share(rank < level) for level in LEVELS), float(np.median(answer.width)),
        doubted, wide, plan.temperature or math.nan,
        _score(answer, model.truth) / _benchmark_score(model, plan),
        _share(inside[LEVELS.index(SCORED)][sure]) if sure.any() else (math.nan, math.nan),
        time.process_time() - began,
    )  # fmt: skip


def _score(answer: Answer, truth: Array) -> float:
    """Mean interval score (width + 2/alpha times what is missed by) over data sets and entries."""
    low, high = np.moveaxis(answer.intervals(SCORED), -1, 0)
    missed = np.maximum(low - truth, 0.0) + np.maximum(truth - high, 0.0)
    return float((high - low + 2 / (1 - SCORED) * missed).mean())


def _benchmark_score(model: Regressions, plan: flmc.Plan) -> float:
    """Expected score of a calibrated answer from one Gaussian query of the gradient at the mode,
    with a known curvature, and with the noise that all rounds together leave: the same budget,
    power, clip and noise. Its precision is L + D (D + V/S)^-1 D for the prior's precision L, the
    likelihood's curvature D as clipped examples show it, the variance V of the noise of a round,
    and S rounds."""
    norm, dim, prior = plan.uplink.example_norm, plan.dim, 1 / float(np.square(model.prior.sd))
    assert plan.temperature is not None
    assert plan.effective_step_size is not None
    noise = 2 * plan.temperature / plan.effective_step_size / plan.num_rounds
    ends = []
    for sign in (1.0, -1.0):
        theta = model.truth[:, None] + sign * 1e-4 * np.eye(dim)
        shown = model.gradient(theta) if norm is None else model.norm_clipped_gradient(theta, norm)
        ends.append(shown.sum(axis=2))
    data = (ends[0] - ends[1]) / 2e-4 - prior * np.eye(dim)
    data = (data + np.swapaxes(data, 1, 2)) / 2
    informed = data @ np.linalg.solve(data + noise * np.eye(dim), data)
    covariance = np.linalg.inv(prior * np.eye(dim) + informed)
    sd = np.sqrt(np.einsum("eii->ei", covariance))
    # The score of a standard normal law's own interval: 2 z + 2/alpha 2 (phi(z) - z (1 - Phi(z))).
    z = float(ndtri(np.array([(1 + SCORED) / 2]))[0])
    density = math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    own = 2 * z + 4 / (1 - SCORED) * (density - z * (1 - SCORED) / 2)
    return float(sd.mean()) * own


def _share(inside: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Share of what is inside, and its standard error over data sets."""
    each = inside.reshape(len(inside), -1).mean(axis=1)
    return float(each.mean()), float(each.std() / math.sqrt(len(each)))


def _inside(answer: Answer, truth: Array, level: float) -> npt.NDArray[np.bool_]:
    """Whether every interval holds its truth, (data set, dim)."""
    low, high = np.moveaxis(answer.intervals(level), -1, 0)
    return np.asarray((low < truth) & (truth < high))


def _rank(answer: Answer, truth: Array, draws: int = 1000) -> Array:
    """Share of the draws of each data set that are nearer to the answer's mean than the truth is,
    in the metric of its covariance: uniform, if the joint law is right."""
    away = np.concatenate([truth[:, None], answer.draws(draws)], axis=1) - answer.mean[:, None]
    root = np.linalg.cholesky(np.linalg.inv(answer.covariance))
    distance = np.square(away @ root).sum(axis=2)
    return np.asarray((distance[:, 1:] < distance[:, :1]).mean(axis=1))


ROOT = Path(__file__).resolve().parents[1]
HEADER = (
    "| setting | data sets | 50 % | 80 % | 90 % | 95 % | joint 50 % | joint 90 % | width | T |"
    " score | doubted | wide | off |"
)


def line(row: Row, tests: int) -> str:
    """A line of the table."""
    held = [f"{100 * share:.1f} ± {100 * se:.1f}" for share, se in row.held]
    joint = [f"{100 * share:.0f}" for share, _ in (row.joint[0], row.joint[2])]
    numbers = [*held, *joint, f"{row.width:.3f}", f"{row.temperature:.3g}"]
    numbers.append(f"{row.score:.2f}")
    shares = [f"{100 * share:.0f} %" for share in (row.doubted, row.wide)]
    off = ", ".join(row.off(tests)) or "none"
    return " | ".join(["| " + row.cell.name, str(row.sets), *numbers, *shares, off + " |"])


def page(rows: list[Row], seconds: float) -> str:
    """The page with all rows."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    ).stdout.strip()
    tests = len(rows) * 2 * len(LEVELS)
    off = [row for row in rows if row.off(tests)]
    unsaid = [row for row in off if row.doubted < 0.5]
    return "\n".join(
        [
            "# Intervals of answers against the truth",
            "",
            f"Made on {datetime.datetime.now(datetime.UTC).date().isoformat()} by `make coverage`,"
            f" with the sources of commit {commit.strip()}: {seconds / 60:.0f} minutes on"
            f" {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}.",
            "",
            "Each setting was listed before it was run. The truth of every data set is drawn from"
            " the prior, one chain is run, and `Result.posterior()` states intervals of every entry"
            " and regions of all entries together (draws of the answer that are nearer to its mean"
            " than the truth). A calibrated answer holds the truth as often as it says. *Width* is"
            " the median standard deviation over that of the exact posterior, by the answer's own"
            " estimate, T the temperature of the chain, *score* the mean interval score of 90 %"
            " intervals (width + 20 times what they miss by) over the expected one of a benchmark:"
            " one Gaussian query of the gradient at the mode with the budget, power, clip and noise"
            " of all rounds together, and a known curvature. *Doubted* is the share of data sets in"
            " which the answer says that it may not hold, *wide* that in which it says that it is"
            " more than twice as wide. *Off* names the levels at which it does not hold as often as"
            f" it says, at the level 1 % over all {tests} comparisons together.",
            "",
            f"Of {len(rows)} settings {len(off)} are off at some level, {len(unsaid)} of them"
            " without a doubt in at least half of the data sets.",
            "",
            HEADER,
            "|" + "---|" * (HEADER.count("|") - 1),
            *(line(row, tests) for row in rows),
            "",
        ]
    )


def main() -> None:
    """Measure the settings that were asked for; print their lines, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400, help="data sets of a setting")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    parser.add_argument("--out", type=Path, help="page to write")
    arguments = parser.parse_args()
    began, rows = time.monotonic(), []
    chosen = [cell for cell in cells() if arguments.only in cell.name]
    print(HEADER)
    for cell in chosen:
        rows.append(measure(cell, arguments.sets))
        print(
            line(rows[-1], len(chosen) * 2 * len(LEVELS)), f"{rows[-1].seconds:.0f} s", flush=True
        )
    if arguments.out:
        arguments.out.write_text(page(rows, time.monotonic() - began))


if __name__ == "__main__":
    main()
