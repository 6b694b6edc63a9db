"""Chains on quadratic posteriors, from well known to unknown curvatures: which law of the curvature
gives answers that hold? The tables of ``docs/answer.md``, section 4.

The first table has one entry and laws that are computed here, with nothing of the answer's code:
the exact likelihood of the curvature, times a prior of the likelihood's share D of it that is D to
a power. The second has answers of 1 to 20 entries: as they are, with the law of a covariance matrix
everywhere, and with public bounds of the curvature."""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.evaluation.answer import Answer, answer_of
from flmc.evaluation.transcript import Transcript
from flmc.planning import answer_law
from flmc.planning.step_size import Curvature

Z90, OWN_SCORE = 1.6448536, 4.1254
"""Half the length of a standard normal law's 90 % interval, and its expected interval score."""


class Chains(NamedTuple):
    """Transcripts of chains about quadratic posteriors, with the truth of every data set and the
    posterior's curvature along each entry; ``prior`` is the precision of the prior."""

    seen: Transcript
    truth: Array
    curvature: Array
    prior: float


def chains(
    curvature: Array, step: float, rounds: int, heat: float, reach: float, sets: int, seed: int,
    burn_in: int = 0,
) -> Chains:  # fmt: skip
    """Chains with steps of ``step`` over the largest curvature, at the temperature ``heat``; the
    prior is ``reach`` times as wide as the posterior in its widest direction."""
    rng, dim = np.random.default_rng(seed), len(curvature)
    prior = curvature.min() / reach**2
    data, eta = curvature - prior, step / curvature.max()
    noise = 2 * heat / eta
    truth, theta = rng.standard_normal((2, sets, dim)) / np.sqrt(prior)
    mode = data * (truth + rng.standard_normal((sets, dim)) / np.sqrt(data)) / curvature
    path = np.empty((sets, 1, burn_in + rounds + 1, dim))
    for s in range(burn_in + rounds + 1):
        path[:, 0, s] = theta
        gradient = curvature * (theta - mode) + np.sqrt(noise) * rng.standard_normal((sets, dim))
        theta = theta - eta * gradient
    count = burn_in + rounds
    seen = Transcript(
        path, np.full(count, eta), np.full((1, count, dim), noise), np.zeros((1, count, 1)), rounds,
        bounded=True,
    )  # fmt: skip
    return Chains(seen, truth, curvature, prior)


def judged(made: Chains, low: Array, high: Array) -> str:
    """Share of truths inside intervals, and their score over that of exact ones."""
    inside = (low < made.truth) & (made.truth < high)
    missed = np.maximum(low - made.truth, 0) + np.maximum(made.truth - high, 0)
    score = (high - low + 20 * missed).mean(axis=0) * np.sqrt(made.curvature) / OWN_SCORE
    return f"{100 * inside.mean():.0f} % {score.mean():.1f}"


def powers(made: Chains, power: float) -> str:
    """One entry: 90 % intervals with the exact likelihood of the curvature, and a prior of the
    likelihood's share of it with this power."""
    x, step = made.seen.positions[:, 0, :, 0], made.seen.step_sizes[0]
    gradient, x = (x[:, :-1] - x[:, 1:]) / step, x[:, :-1]
    noise, rounds, prior = made.seen.channel_noise[0, 0, 0], x.shape[1], made.prior
    mean, away = x.mean(axis=1), x - x.mean(axis=1, keepdims=True)
    seen, precision = gradient.mean(axis=1), np.square(away).sum(axis=1) / noise
    fitted = (away * gradient).sum(axis=1) / noise / precision
    least = 0.01 * prior
    top = np.maximum(fitted, 0) + 6 / np.sqrt(precision) + least
    data = least * (top[:, None] / least) ** ((np.arange(400) + 0.5) / 400)
    spread = data + noise / rounds + np.square(data) / prior
    log_law = (1 - power) * np.log(data) - np.log(spread) / 2
    log_law -= precision[:, None] * np.square(data + prior - fitted[:, None]) / 2
    log_law -= np.square(seen[:, None] - (prior + data) * mean[:, None]) / spread / 2
    law = np.exp(log_law - log_law.max(axis=1, keepdims=True))
    law /= law.sum(axis=1, keepdims=True)
    gain = data / (data + noise / rounds)
    variance = 1 / (prior + gain * data)
    centre = mean[:, None] - variance * (
        (prior * mean)[:, None] + gain * (seen - prior * mean)[:, None]
    )
    sd, ends = np.sqrt(variance), []
    for level in (0.05, 0.95):
        low, high = (centre - 9 * sd).min(axis=1), (centre + 9 * sd).max(axis=1)
        for _ in range(60):
            middle = (low + high) / 2
            below = (law * ndtr((middle[:, None] - centre) / sd)).sum(axis=1) < level
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        ends.append(low[:, None])
    return judged(made, *ends)


def answers(made: Chains, public: Curvature | None = None, known: float | None = None) -> Answer:
    """Answers of the chains; ``known`` replaces the degrees of freedom from which on a curvature
    counts as well known."""
    kept = answer_law.WELL_KNOWN
    try:
        answer_law.WELL_KNOWN = kept if known is None else known
        answer = answer_of(made.seen, lambda theta: made.prior * theta, public=public)
        _ = answer.covariance
    finally:
        answer_law.WELL_KNOWN = kept
    return answer


def of_answers(made: Chains, answer: Answer) -> str:
    """Coverage and score of an answer's 90 % intervals, the coverage of its joint 90 % regions, and
    the share that says that it does not know a curvature."""
    low, high = np.moveaxis(answer.intervals(0.9), -1, 0)
    draws = np.concatenate([made.truth[:, None], answer.draws(400)], axis=1) - answer.mean[:, None]
    distance = np.square(draws @ np.linalg.cholesky(np.linalg.inv(answer.covariance))).sum(axis=2)
    joint = ((distance[:, 1:] < distance[:, :1]).mean(axis=1) < 0.9).mean()
    doubts = [
        any(each.code == "curvature-unknown" for each in answer.findings_of(e))
        for e in range(len(made.truth))
    ]
    return f"{judged(made, low, high)} {100 * joint:.0f} % {100 * np.mean(doubts):.0f} %"


def main() -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=400, help="data sets of a setting")
    sets = parser.parse_args().sets
    print("| one entry | degrees | flat | power -1/2 | uniform in the logarithm |\n|" + 5 * "---|")
    for heat, reach in ((1.0, 5.0), (1.0, 50.0), (100.0, 5.0)):
        for step in (1e-5, 1e-3, 0.01, 0.03, 0.1):
            made = chains(np.ones(1), step, 300, heat, reach, sets, 1)
            name = f"| step {step:g}, T {heat:g}, prior {reach:g} sd | {300 * step:.2g} | "
            print(name + " | ".join(powers(made, a) for a in (0.0, 0.5, 1.0)) + " |")
    print("\n| answers | degrees | as they are | covariance matrix | public within 2 |")
    print("|" + 5 * "---|")
    flat, three, five, many = np.ones(1), np.ones(3), np.ones(5), np.ones(20)
    for name, curvature, step, rounds, heat, reach, burn_in in (
        ("1 entry", flat, 1e-5, 300, 1e4, 50.0, 0),
        ("1 entry", flat, 0.01, 300, 1.0, 5.0, 0),
        ("1 entry", flat, 0.06, 300, 1.0, 5.0, 0),
        ("3 entries", three, 0.06, 300, 1.0, 20.0, 0),
        ("5 entries", five, 1e-5, 300, 1e4, 20.0, 0),
        ("5 entries", five, 0.1, 300, 1.0, 20.0, 0),
        ("5 entries", five, 0.3, 300, 1.0, 20.0, 0),
        ("20 entries", many, 0.3, 600, 1.0, 20.0, 0),
        ("5 entries, condition 30", np.geomspace(1, 1 / 30, 5), 0.4, 100, 1.0, 6.0, 200),
        ("5 entries, condition 100", np.geomspace(1, 0.01, 5), 0.4, 100, 1.0, 3.5, 200),
        ("5 entries, condition 100", np.geomspace(1, 0.01, 5), 0.4, 800, 1.0, 3.5, 200),
    ):
        made = chains(curvature, step, rounds, heat, reach, sets, 2, burn_in)
        q = step * curvature.min() / curvature.max()
        public = Curvature(2 * curvature.max(), curvature.min() / 2, public=True)
        laws = (answers(made), answers(made, known=-np.inf), answers(made, public))
        row = " | ".join(of_answers(made, each) for each in laws)
        told = f"{name}, step {step:g}, T {heat:g}, {rounds} rounds after {burn_in}"
        print(f"| {told} | {(rounds + burn_in) * q / (1 - q / 2):.2g} | {row} |", flush=True)


if __name__ == "__main__":
    main()
