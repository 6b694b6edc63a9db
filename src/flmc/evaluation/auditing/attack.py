r"""An attack on our own uplink: an empirical lower bound on epsilon, beside the accountant's upper
bound.

Two worst-case neighbours transmit many times. In one world a device's gradients are at the clip,
with signs that change over rounds and entries without any period (so that random numbers which
repeat would show); in the other world they are the opposite. Both go through the package's own
roles of a round, with random numbers of the audit's own: the compiled engine and the streams of a
run are not attacked. The adversary knows the other devices' symbols and everything that is public,
and adds up the logarithms of the likelihood ratios. The threshold of the attack is chosen on one
part of the trials; on the rest, the rates of right and false alarms have Clopper-Pearson bounds,
and

.. math:: \epsilon \ge \ln\frac{\text{TPR}_{\text{low}} - \delta}{\text{FPR}_{\text{high}}}

holds with the stated confidence for any (epsilon, delta)-private mechanism, in either direction.
Above the accountant's bound it proves that something is broken; below, it proves nothing. Even if
the worlds can be told apart for certain, n trials prove no more than an epsilon of about ln(n)."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.progress import Progress
from flmc.evaluation.auditing.bounds import CONFIDENCE, lower_bound
from flmc.evaluation.auditing.report import Audit
from flmc.evaluation.auditing.scene import Scene, Transmit, canary, log_ratio, transmit

_TRIALS_AT_ONCE = 20_000


def audit(
    scene: Scene,
    delta: float,
    trials: int,
    seed: int,
    *,
    transmit: Transmit = transmit,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> Audit:
    """Attack a scene: transmit in both worlds, and bound epsilon from how well they can be told
    apart.

    Parameters
    ----------
    scene, delta
        What is attacked, and the delta in (0, 1) at which epsilon is bounded.
    trials, seed
        Transmissions in each world, at least 1000, and the seed of their random numbers.
    transmit
        What transmits; tests put a broken one in its place.
    confidence, progress
        Probability with which the bound holds, and who is told of the finished fraction.
    """
    checks.between("delta", delta, 0.0, 1.0)
    if checks.at_least("trials", trials, 1) < 1000:
        raise InvalidSetting(
            f"trials must be at least 1000 for any bound worth its name, got {trials}"
        )
    checks.fits("the trials", 16.0 * trials)
    sent = [(scene.gain, scene.dim * scene.num_rounds)]
    upper = scene.uplink.privacy_event(sent).epsilon(delta)
    gradient = canary(scene)
    at_once = max(
        1, _TRIALS_AT_ONCE // max(1, scene.num_rounds * scene.num_devices * scene.dim // 100)
    )
    statistics: list[list[Array]] = [[], []]
    done = 0
    while done < trials:
        count = min(at_once, trials - done)
        for world, sign in enumerate((1.0, -1.0)):
            rng = np.random.default_rng([seed, world, done])
            received, known = transmit(scene, sign * gradient, count, rng)
            statistics[world].append(log_ratio(scene, received - known, gradient))
        done += count
        if progress is not None:
            progress(done / trials)
    first, second = (np.concatenate(parts) for parts in statistics)
    lower = lower_bound(first, second, delta, confidence)
    # Worlds that never overlap give the largest bound that so many trials can prove.
    apart = lower_bound(np.ones(trials), np.zeros(trials), delta, confidence)
    return Audit(scene.num_rounds, delta, trials, lower, upper, confidence, apart)
