r"""An attack on our own uplink: an empirical lower bound on epsilon, beside the accountant's upper
bound.

Two worst-case neighbours transmit many times, with the schedule and the gains of a run, through the
roles of a round: devices clip, quantise and invert their channel, the air adds up, the server
publishes. Random numbers are the audit's own: the compiled engine and the streams of a run are not
attacked. The adversary knows the other devices' symbols and everything that is public, and adds up
the logarithms of the likelihood ratios. The threshold of the attack is chosen on one part of the
trials; on the rest, the rates of right and false alarms have Clopper-Pearson bounds, and

.. math:: \epsilon \ge \ln\frac{\text{TPR}_{\text{low}} - \delta}{\text{FPR}_{\text{high}}}

holds with the stated confidence for any (epsilon, delta)-private mechanism, in either direction.
Above the accountant's bound it proves that something is broken; below, it proves nothing. Even if
the worlds can be told apart for certain, n trials prove no more than an epsilon of about ln(n)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits
from flmc.base.progress import Progress
from flmc.evaluation.auditing.bounds import CONFIDENCE, lower_bound
from flmc.evaluation.auditing.centre import at_worst_centre
from flmc.evaluation.auditing.neighbours import canary, neighbour
from flmc.evaluation.auditing.report import Audit
from flmc.evaluation.auditing.resolution import Resolution, expected_resolution
from flmc.evaluation.auditing.scene import Scene
from flmc.evaluation.auditing.transmission import Transmit, log_ratio, loudest_over_cap, transmit

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
    tell: Callable[[Resolution], None] | None = None,
    at_once: int | None = None,
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
    tell
        Called with the resolution before the attack starts.
    at_once
        Trials after which progress is told; None: as many as suit the memory.

    Returns
    -------
    Audit
        Both bounds, the resolution, and how loud the run is beside its caps.

    Raises
    ------
    InvalidSetting
        If delta or trials are out of their bounds.
    UnknownPrivacy
        If the uplink has no privacy statement to attack.
    """
    checks.between("delta", delta, 0.0, 1.0)
    if checks.at_least("trials", trials, 1) < 1000:
        raise InvalidSetting(
            f"trials must be at least 1000 for any bound worth its name, got {trials}"
        )
    fits("the trials", 16.0 * trials)
    upper = scene.event.epsilon(delta)
    scene = at_worst_centre(scene, delta)
    expected = expected_resolution(scene, delta, trials, upper, confidence)
    if tell is not None:
        tell(expected)
    first, second = draw_statistics(scene, trials, seed, transmit, progress, at_once)
    # Worlds that never overlap give the largest bound that so many trials can prove.
    apart = lower_bound(np.ones(trials), np.zeros(trials), delta, confidence, 0.5)
    return Audit(
        scene.num_rounds,
        delta,
        trials,
        lower_bound(first, second, delta, confidence, expected.threshold),
        upper,
        confidence,
        apart,
        scene.neighbouring,
        loudest_over_cap(scene),
        expected,
    )


def draw_statistics(
    scene: Scene,
    trials: int,
    seed: int,
    transmit: Transmit = transmit,
    progress: Progress | None = None,
    at_once: int | None = None,
) -> tuple[Array, Array]:
    """Logarithms of the likelihood ratios of many transmissions, (trial), in both worlds.

    Parameters
    ----------
    scene, trials, seed
        What is attacked, transmissions in each world, and the seed of their random numbers.
    transmit, progress
        What transmits, and who is told of the finished fraction.
    at_once
        Trials after which progress is told; None: as many as suit the memory.
    """
    worlds = canary(scene), neighbour(scene)
    at_once = at_once or max(
        1, _TRIALS_AT_ONCE // max(1, scene.num_rounds * scene.num_devices * scene.dim // 100)
    )
    statistics: list[list[Array]] = [[], []]
    done = 0
    while done < trials:
        count = min(at_once, trials - done)
        for world, gradient in enumerate(worlds):
            rng = np.random.default_rng([seed, world, done])
            received, known = transmit(scene, gradient, count, rng)
            statistics[world].append(log_ratio(scene, received - known, *worlds))
        done += count
        if progress is not None:
            progress(done / trials)
    first, second = (np.concatenate(parts) for parts in statistics)
    return first, second
