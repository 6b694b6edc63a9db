"""Random and chosen cases of the battery."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from privacy.oracle.battery import ACCOUNTANTS, Case
from privacy.oracle.normal import epsilon_of

_SEED = 20


def _log(rng: np.random.Generator, low: float, high: float) -> float:
    """A number whose logarithm is uniform, rounded so that it can be read."""
    return float(f"{math.exp(rng.uniform(math.log(low), math.log(high))):.4g}")


def draw(accountant: str) -> Iterator[Case]:
    """Cases of an accountant, without end; those whose epsilon is far out of range by a rough
    estimate are left out."""
    rng = np.random.default_rng([_SEED, ACCOUNTANTS.index(accountant)])
    while True:
        case = (
            _tail(rng, accountant) if accountant in ("tail", "paper") else _event(rng, accountant)
        )
        if case.solves_gain or 5e-4 < _rough_epsilon(case) < 80:
            yield case


def _gains(rng: np.random.Generator, accountant: str) -> tuple[tuple[float, int], ...]:
    """One gain, or many: over rounds, in a range of up to a factor of 30."""
    number = round(_log(rng, 1, 1e8))
    if accountant == "gains" or (accountant == "analog" and rng.random() < 0.7):
        distinct = round(_log(rng, 2, 300))
    elif accountant in ("asymmetric", "example") and rng.random() < 0.25:
        distinct = round(_log(rng, 2, 40))
    else:
        return ((_log(rng, 1e-3, 10), number),)
    loudest = _log(rng, 1e-3, 3)
    softest = loudest / _log(rng, 1.2, 30)
    gains = np.sort(np.exp(rng.uniform(math.log(softest), math.log(loudest), distinct)))
    each = max(1, number // distinct)
    return tuple((float(gain), int(rng.integers(1, 2 * each + 1))) for gain in gains)


def _event(rng: np.random.Generator, accountant: str) -> Case:
    """A case that asks for an epsilon."""
    gains, delta = _gains(rng, accountant), _log(rng, 1e-12, 1e-2)
    link = str(rng.choice(["sigmoid", "sigmoid", "probit", "linear"]))
    reach = _log(rng, 0.01, 30)
    if link == "linear":
        reach = min(1.0, _log(rng, 0.01, 2))  # the ratio; 1 for many
    elif link == "probit":
        reach = min(reach, 8.0)
    if accountant == "analog":
        return Case(accountant, gains, delta, shift=_log(rng, 1e-3, 60))
    if accountant == "asymmetric":
        high, low = sorted(rng.beta(0.5, 0.5, 2).round(6).tolist())[::-1]
        return Case(accountant, gains, delta, high=min(high, 1 - 1e-6), low=max(low, 1e-6))
    if accountant == "example":
        shift = min(_log(rng, 3e-4, 2 * reach) if 2 * reach > 3e-4 else reach, 2 * reach)
        return Case(accountant, gains, delta, link, reach, shift)
    if link == "linear":
        reach = min(reach, 0.9999)  # 1 is the Gaussian mechanism, among the chosen ones
    return Case(accountant, gains, delta, link, reach)


def _tail(rng: np.random.Generator, accountant: str) -> Case:
    """A case that asks for a gain: one round of up to 1000 entries."""
    logit, number = _log(rng, 0.05, 6), round(_log(rng, 2, 1000))
    # A budget below the largest loss, so that not every gain keeps it; for some close to it, where
    # the gain that it allows is loud and losses are nearly discrete.
    if rng.random() < 0.4:
        logit, number = _log(rng, 0.2, 3), round(_log(rng, 2, 25))
        epsilon = float(f"{rng.uniform(0.4, 0.97) * number * logit:.4g}")
    else:
        share = rng.uniform(0.2, 0.9) * number * logit
        epsilon = min(_log(rng, 0.05, 20), float(f"{share:.4g}"))
    devices = int(rng.choice([2, 5, 20, 100]))
    delta = _log(rng, 1e-10, 1e-2)
    return Case(
        accountant, ((1.0, number),), delta, "sigmoid", logit, epsilon=epsilon, num_devices=devices
    )


def _rough_epsilon(case: Case) -> float:
    """Epsilon if the bits' means were sent, with a gain of at most 1."""
    if case.accountant == "analog":
        moved = case.shift
    elif case.accountant == "asymmetric":
        moved = 2 * (case.high - case.low)
    else:
        from privacy.oracle.places import Moved

        shift = case.shift or 2 * case.reach
        bits = Moved(case.link, case.reach, shift).at(np.float64(-shift / 2))  # type: ignore[arg-type]
        moved = 2 * float(bits.apart)
    most = math.inf if case.accountant == "analog" else 1.0
    mu = moved * math.sqrt(sum(count * min(gain, most) ** 2 for gain, count in case.gains))
    return epsilon_of(case.delta, mu)


def chosen() -> list[Case]:
    """Cases that were picked: limits, known values, and what was found to be loose or wrong."""
    found = [
        # The paper's run, and the same at a small delta.
        Case("device", ((0.27386, 1500),), 1e-5, reach=1.5),
        Case("device", ((0.27386, 1500),), 1e-12, reach=1.5),
        Case("device", ((0.27386, 5),), 1e-2, reach=1.5),
        # Certain bits: the Gaussian mechanism.
        Case("device", ((0.05, 300),), 1e-6, "linear", 1.0),
        Case("device", ((3.0, 2),), 1e-3, "linear", 1.0),
        # Many entries, small delta.
        Case("device", ((0.001, 100_000_000),), 1e-9, reach=0.05),
        Case("device", ((0.003, 10_000_000),), 1e-12, reach=0.2),
        # Nearly without noise, and one entry.
        Case("device", ((10.0, 20),), 1e-4, reach=0.5),
        Case("device", ((5.0, 3),), 1e-2, reach=1.5),
        Case("device", ((0.5, 1),), 1e-3, reach=3.0),
        # Tiny shifts, many entries.
        Case("example", ((0.5, 1_000_000),), 1e-5, "sigmoid", 2.0, 0.001),
        Case("example", ((0.5, 11_000_000),), 1e-5, "sigmoid", 2.0, 3e-4),
        Case("example", ((0.1054, 950),), 1e-5, "sigmoid", 7.7, 0.088),
        Case("example", ((0.1, 10_000),), 1e-5, "linear", 1.0, 0.002),
        Case("example", ((3.0, 30),), 1e-5, "linear", 1.0, 0.002),
        Case("example", ((0.3, 1000),), 1e-7, "probit", 8.0, 0.1),
        Case("example", ((0.2, 500),), 1e-5, "sigmoid", 30.0, 60.0),
        Case("asymmetric", ((0.3, 100),), 1e-7, high=0.8, low=0.1),
        Case("asymmetric", ((2.0, 8),), 1e-2, high=0.6, low=0.01),
        Case("asymmetric", ((0.2, 3000),), 1e-10, high=0.55, low=0.5),
    ]
    spread = tuple((float(g), 5) for g in np.geomspace(0.01, 0.2, 300))
    found += [
        Case("gains", spread, 1e-5, reach=1.0),
        Case("gains", tuple((g / 10, n) for g, n in spread), 1e-5, reach=3.0),
        Case("analog", spread, 1e-5, shift=0.5),
    ]
    for epsilon, delta in ((5.0, 0.01), (1.0, 1e-5), (6.5, 0.01)):
        for criterion in ("tail", "paper"):
            found.append(
                Case(criterion, ((1.0, 5),), delta, reach=1.5, epsilon=epsilon, num_devices=20)
            )
    return found
