r"""An attack on our own uplink: an empirical lower bound on epsilon, beside the accountant's upper
bound.

One device transmits many times with each of two neighbouring data sets (the two *worlds*), chosen
as far apart as clipping allows, with the schedule and the gains of a run. The code is that of the
roles of a round: devices clip, quantise and invert their channel, the air adds up, the server
publishes. Random numbers are the audit's own: the compiled engine and the streams of a run are not
attacked. The adversary knows the other devices' symbols and everything that is public, adds up the
logarithms of the likelihood ratios, and guesses the first world where the sum is above a threshold.
The threshold is chosen on one part of the trials; on the rest, the rates of right alarms (TPR, in
the first world) and of false alarms (FPR, in the second) have Clopper-Pearson bounds, and

.. math:: \epsilon \ge \ln\frac{\text{TPR}_{\text{low}} - \delta}{\text{FPR}_{\text{high}}}

holds with the stated confidence for any (epsilon, delta)-private mechanism, in either direction.
A lower bound above the accountant's upper bound proves that something is broken; one below it
proves nothing. Even if the worlds can be told apart for certain, n trials prove no more than an
epsilon of about ln(n)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits
from flmc.base.progress import Progress
from flmc.evaluation.audit.bounds import CONFIDENCE, lower_bound
from flmc.evaluation.audit.likelihood_ratio import at_worst_centre
from flmc.evaluation.audit.outcome import Audit
from flmc.evaluation.audit.resolution import Resolution, expected_resolution
from flmc.evaluation.audit.scene import Rounds, Scene, canary, level_law, neighbour
from flmc.privacy.trade_off import TradeOff
from flmc.sampling.roles import Transmission, air, device, server

Transmit = Callable[[Scene, Array, int, np.random.Generator], tuple[Array, Array]]
"""A function that simulates transmissions. Its arguments are a scene, the gradients of the attacked
device (round, entry), a number of trials and a random number generator. It returns two arrays
(trial, round, entry): the received signal, and the other devices' part of it without noise."""


def transmit(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Simulate ``trials`` independent transmissions of the attacked device's ``gradient`` (round,
    entry), given before clipping, beside fixed gradients of all other devices. Returns two arrays
    (trial, round, entry): the received signal as the server's broadcasts reveal it, and the other
    devices' part of it without noise."""
    uplink = scene.uplink
    local = other_gradients(scene)
    local[:, scene.attacked] = gradient
    # Every trial has the same gradients, but its own random numbers: quantities that depend on the
    # gradients alone are computed once for all trials.
    uniform = rng.random((trials, *local.shape)) if uplink.randomised else None
    rounds = rounds_of(scene, rng)
    sent = device(local, uniform, uplink, rounds.gains, rounds.fading, rounds.active)
    noise = np.sqrt(uplink.noise_power) * rng.standard_normal((trials, scene.num_rounds, scene.dim))
    received = publish(scene, rounds, air(sent, rounds.fading, noise))
    # The other devices' part of the signal: all symbols, with the amplitude of the attacked device
    # set to 0. Indexing the other devices would copy their symbols.
    others = sent.amplitude.copy()
    others[..., scene.attacked, :] = 0.0
    known = air(Transmission(sent.symbols, others), rounds.fading, np.zeros_like(noise))
    return received, known


def other_gradients(scene: Scene) -> Array:
    """Gradients of all devices, (round, device, entry), the same in every trial, with 0 for the
    attacked device. The adversary is assumed to know the data of all other devices, so any values
    serve."""
    local = np.linspace(-1.0, 1.0, max(1, scene.num_devices - 1) * scene.dim)
    others = scene.uplink.clip * local.reshape(-1, scene.dim)
    gradients = np.zeros((scene.num_rounds, scene.num_devices, scene.dim))
    if scene.num_devices > 1:
        gradients[:, np.arange(scene.num_devices) != scene.attacked] = others
    return gradients


def rounds_of(scene: Scene, rng: np.random.Generator) -> Rounds:
    """The rounds to attack: those of the scene's run, or, without a run, rounds of one constant
    gain in which all devices transmit, over path gains drawn with ``rng``."""
    if scene.run is not None:
        return scene.run
    count = scene.num_rounds
    fading = scene.uplink.known_fading.draw_checked(rng, range(count), scene.num_devices, scene.dim)
    active = np.ones((count, scene.num_devices))
    return Rounds(scene.caps, scene.gains, fading, active, np.ones(count))


def publish(scene: Scene, rounds: Rounds, received: Array) -> Array:
    """The received signal (trial, round, entry) as anybody can reconstruct it from the server's
    broadcasts: in each round theta moves by a known multiple of the signal, so nothing is lost."""
    theta, seen = np.zeros((len(received), scene.dim)), np.empty_like(received)
    for index, num_active in enumerate(rounds.active.sum(axis=1)):
        update = server(
            theta,
            received[:, index],
            float(rounds.step_sizes[index]),
            rounds.gains[index],
            scene.num_devices,
            float(num_active),
        )
        theta = update.theta
        seen[:, index] = update.estimate * (rounds.gains[index] * num_active / scene.num_devices)
    return seen


def loudest_over_cap(scene: Scene) -> float:
    """Largest gain at which any device's symbols really arrive at the server, over the cap of the
    gain from which the accountant computed epsilon; above 1 the stated epsilon does not hold."""
    uplink, rounds = scene.uplink, rounds_of(scene, np.random.default_rng(0))
    local = other_gradients(scene)
    uniform = np.full(local.shape, 0.5) if uplink.randomised else None
    sent = device(local, uniform, uplink, rounds.gains, rounds.fading, rounds.active)
    arrives = (sent.amplitude * rounds.fading).max(axis=1)  # shape (round, entry)
    return float((arrives / rounds.caps).max())


def log_ratio(scene: Scene, own: Array, first: Array, second: Array | None = None) -> Array:
    r"""Log likelihood ratio of the two worlds, (trial): the logarithm of the likelihood of ``own``,
    what the attacked device contributed to the received signal (trial, round, entry), in the first
    world over that in the second. In the first world the device has the gradients ``first`` (round,
    entry), in the second ``second``; None: the opposite of ``first``.

    With :math:`u = 2 A y/N_0` an entry adds :math:`\ln\frac{p_1 e^u + 1 - p_1}{p_2 e^u + 1 - p_2}`
    for a bit that is +1 with probability :math:`p_1` or :math:`p_2`, and :math:`(s_1 - s_2)(u -
    A^2(s_1 + s_2)/N_0)/2` for an analog symbol :math:`s_1` or :math:`s_2`.
    """
    uplink, gains = scene.uplink, scene.gains
    u = 2.0 * gains * own / uplink.noise_power
    one, two = (uplink.clipped(each) for each in (first, -first if second is None else second))
    laws = [law for each in (one, two) if (law := level_law(uplink, each)) is not None]
    if laws and uplink.symbol_format.kind == "bits":
        # With the received value y, the gain A and the noise power N_0, a factor
        # exp(-(y + A)^2 / (2 N_0)) of the likelihoods in the two worlds has cancelled; exp(u)
        # itself could overflow.
        high, low = laws[0][..., 1], laws[1][..., 1]
        with np.errstate(divide="ignore"):
            terms = np.logaddexp(np.log(high) + u, np.log1p(-high)) - np.logaddexp(
                np.log(low) + u, np.log1p(-low)
            )
        return np.asarray(terms.sum(axis=(1, 2)))
    if laws:
        # A symbol of level s adds s u/2 - (A s)^2/(2 N_0) to the exponent of the likelihood, with
        # the gain A and the noise power N_0; the square of the received value has cancelled.
        levels = np.array(uplink.symbol_format.levels or ())
        power = np.square(gains)[..., None] * np.square(levels) / uplink.noise_power
        exponent = (u[..., None] * levels - power) / 2.0
        with np.errstate(divide="ignore"):
            sums = [np.logaddexp.reduce(exponent + np.log(law), axis=-1) for law in laws]
        return np.asarray((sums[0] - sums[1]).sum(axis=(1, 2)))
    middle = np.square(gains) * (one + two) / uplink.noise_power
    return np.asarray(((one - two) * (u - middle) / 2.0).sum(axis=(1, 2)))


_TRIALS_AT_ONCE = 20_000
"""Number of trials that are simulated in one batch where a trial has at most 100 symbols (rounds
times devices times entries); with more symbols, batches are smaller, so that memory stays
bounded."""


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
    """Attack a scene: transmit ``trials`` times in each of two worlds, which differ in the data of
    one device or example, and return a lower bound of epsilon at ``delta``, from how well the
    worlds can be told apart, beside the accountant's upper bound.

    Tests put a broken function in place of ``transmit``; ``tell`` is called before the attack
    starts, with the smallest understatement of epsilon that it will detect; ``at_once`` is the
    number of trials between reports of progress (None: as many as suit the memory).
    ``InvalidSetting`` for fewer than 1000 trials."""
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
    # The largest lower bound that so many trials can prove is that of statistics which tell the two
    # worlds apart in every trial.
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
        TradeOff.of(scene.event, delta),
    )


def draw_statistics(
    scene: Scene,
    trials: int,
    seed: int,
    transmit: Transmit = transmit,
    progress: Progress | None = None,
    at_once: int | None = None,
) -> tuple[Array, Array]:
    """Log likelihood ratios between the two neighbouring worlds that an attack tells apart, one for
    each simulated transmission: an array (trial) for the first world, and one for the second."""
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
