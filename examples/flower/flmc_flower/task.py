"""What devices, air and server of the example compute; nothing here knows of Flower.

The round itself is that of ``flmc.sampling.roles``. This file says which data a device has, which
plan everybody follows, and how a device's bits are packed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

import flmc
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.privacy.safe_noise.entropy import Entropy
from flmc.privacy.safe_noise.noise_grid import NoiseGrid
from flmc.sampling.roles import Update, air_on_grid, device_on_grid, server
from flmc.uplink.example_clipping import typical_shrink

Array = npt.NDArray[np.float64]
Packed = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Settings:
    """What everybody must know before round 1; all of it is public.

    Attributes
    ----------
    num_devices, num_samples, dim
        Devices, examples of all devices together, and entries of theta.
    num_rounds, num_burn_in, num_fast
        Rounds in all, those that are not kept, and those among them with a larger step.
    relative_step
        Step times slope times curvature: successive kept rounds are correlated by 1 minus this.
    example_clip
        Largest magnitude of an entry of one example's gradient.
    epsilon, run_delta
        Privacy budget of the whole run, for one example that is replaced.
    data_seed
        Seed of the synthetic data.
    """

    num_devices: int = 10
    num_samples: int = 60_000
    dim: int = 5
    num_rounds: int = 380
    num_burn_in: int = 160
    num_fast: int = 110
    relative_step: float = 0.1
    example_clip: float = 4.5
    epsilon: float = 3.0
    run_delta: float = 1e-5
    data_seed: int = 1

    @classmethod
    def from_run_config(cls, config: Mapping[str, object]) -> Settings:
        """Settings from Flower's run configuration, whose keys have hyphens.

        Parameters
        ----------
        config
            ``context.run_config``; a key that is no setting is refused.
        """
        given = {key.replace("-", "_"): value for key, value in config.items()}
        kinds = cls()
        known = {each.name: type(getattr(kinds, each.name)) for each in fields(cls)}
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise InvalidSetting(f"settings must be among {', '.join(known)}; got {unknown}")
        return cls(**{name: known[name](value) for name, value in given.items()})


@lru_cache(maxsize=4)
def make_plan(settings: Settings) -> flmc.Plan:
    """The plan that server and devices follow, from public knowledge alone.

    A device's gradient has a standard deviation of about the root of its number of examples where
    features and residuals are standard normal; the clip is three of them. The curvature of the
    posterior is then about the number of examples.

    Parameters
    ----------
    settings
        What is public.
    """
    count = settings.num_samples
    uplink = flmc.Digital(
        link=flmc.Linear(0.95),
        clip=3.0 * (count / settings.num_devices) ** 0.5,
        fading=flmc.ConstantFading(1.0),  # there is no radio: what is sent is what arrives
        snr_db=20.0,
        example_clip=settings.example_clip,
        example_shrink=typical_shrink(settings.example_clip, None, settings.dim),
    )
    return flmc.plan(
        _sizes_only(settings),
        uplink,
        flmc.Limits(
            epsilon=settings.epsilon,
            scope="run",
            run_delta=settings.run_delta,
            neighbouring="example",
        ),
        step_size=settings.relative_step / (uplink.slope * count),
        start="zero",
        num_rounds=settings.num_rounds,
        num_burn_in=settings.num_burn_in,
        num_fast=settings.num_fast,
        burn_in_step_factor=max(1.0, 0.5 / settings.relative_step),
        public_smoothness=1.05 * count,
        public_convexity=0.95 * count,
        forecast=False,
    )


def _sizes_only(settings: Settings) -> flmc.LinearGaussian:
    """A model of the right sizes whose examples are zeros: the plan must not see real ones."""
    devices, dim = settings.num_devices, settings.dim
    return flmc.LinearGaussian(
        flmc.LinearData(np.zeros((devices, dim)), np.zeros(devices), (1,) * devices)
    )


def draw_data(settings: Settings) -> flmc.LinearData:
    """Synthetic examples of all devices, in device order.

    Parameters
    ----------
    settings
        Sizes and seed.
    """
    return flmc.data.draw_linear(
        settings.data_seed,
        num_samples=settings.num_samples,
        dim=settings.dim,
        num_devices=settings.num_devices,
    )


@lru_cache(maxsize=32)  # a process of Flower's engine plays several devices, in many rounds
def local_model(settings: Settings, partition: int) -> flmc.LinearGaussian:
    """Model of one device: its own examples, and its share of the prior.

    The data are synthetic; read your own file here. The local cost has 1/K of the prior, so that
    the costs of all K devices add up to the negative log posterior.

    Parameters
    ----------
    settings
        Sizes and seed.
    partition
        Number of the device, from 0.
    """
    if not 0 <= partition < settings.num_devices:
        raise InvalidSetting(
            f"a partition must be from 0 to {settings.num_devices - 1}, got {partition}; start as"
            " many SuperNodes as num-devices says"
        )
    data = draw_data(settings)
    end = sum(data.device_sizes[: partition + 1])
    own = slice(end - data.device_sizes[partition], end)
    return flmc.LinearGaussian(
        flmc.LinearData(data.features[own], data.targets[own], (data.device_sizes[partition],)),
        prior_precision=1.0 / settings.num_devices,
    )


def answer(theta: Array, partition: int, settings: Settings, entropy: Entropy) -> Packed:
    """What a device answers to a broadcast: one random bit for each entry of its gradient, packed.

    Parameters
    ----------
    theta
        Where the chain stands, (dim).
    partition, settings
        Which device, and what is public.
    entropy
        Source of the random bits; ``SystemEntropy()`` outside of tests.

    Returns
    -------
    Packed
        Eight bits a byte, 1 for the symbol +1; the last byte is filled with 0.
    """
    if theta.shape != (settings.dim,) or not np.isfinite(theta).all():
        raise InvalidSetting(f"theta must be {settings.dim} finite numbers, got {theta}")
    plan = make_plan(settings)
    model = local_model(settings, partition)
    gradient = plan.uplink.local_gradients(model, theta[None, None])[0, 0]
    steps = device_on_grid(gradient, plan.uplink, _grid(plan), plan.gain[0], entropy)
    return pack(steps[0])


def pack(symbols: npt.NDArray[np.generic]) -> Packed:
    """Bytes of symbols: a bit of 1 for a positive symbol, of 0 for a negative one.

    Parameters
    ----------
    symbols
        Numbers of which the sign counts, (dim).
    """
    return np.packbits(np.asarray(symbols) > 0)


def unpack(packed: npt.NDArray[np.generic], dim: int) -> Array:
    """Symbols -1 and +1 of a device's answer, (dim).

    Parameters
    ----------
    packed, dim
        The bytes, and how many symbols they must be.

    Raises
    ------
    RunFailed
        If the answer has another length or type, or bits beyond the last symbol.
    """
    if packed.dtype != np.uint8 or packed.shape != (-(-dim // 8),):
        raise RunFailed(
            f"an answer must be {-(-dim // 8)} bytes, got {packed.shape} of {packed.dtype}"
        )
    bits = np.unpackbits(packed.astype(np.uint8))
    if bits[dim:].any():
        raise RunFailed("bits of an answer beyond the last symbol must be 0")
    return np.where(bits[:dim] > 0, 1.0, -1.0)


def aggregate(
    theta: Array,
    answers: Sequence[npt.NDArray[np.generic]],
    round_number: int,
    settings: Settings,
    entropy: Entropy,
) -> Update:
    """What the server makes of a round: it plays the air in software, and then steps.

    Symbols and noise are added in whole steps of the noise grid, and the noise has exactly the law
    that is accounted. The sum does not depend on the order of the answers.

    Parameters
    ----------
    theta
        Where the chain stands, (dim).
    answers
        Packed bits of all devices, in any order.
    round_number
        Which round, from 1.
    settings
        What is public.
    entropy
        Source of the noise; ``SystemEntropy()`` outside of tests.

    Raises
    ------
    RunFailed
        If a device did not answer: the noise is calibrated for the bits of all.
    """
    plan = make_plan(settings)
    if len(answers) != plan.num_devices:
        raise RunFailed(
            f"round {round_number} must have {plan.num_devices} answers, got {len(answers)}"
        )
    symbols = np.stack([unpack(each, plan.dim) for each in answers])
    grid, gain, peak = _grid(plan), plan.gain[0], plan.uplink.peak
    received = air_on_grid(grid.symbol_steps(symbols, gain, peak), grid, entropy)
    step = float(plan.step_sizes[round_number - 1])
    arrives = grid.gain(gain, peak)
    return server(theta, grid.values(received), step, arrives, plan.num_devices, plan.num_devices)


def _grid(plan: flmc.Plan) -> NoiseGrid:
    """The noise grid of a plan."""
    return NoiseGrid(plan.uplink.noise_power)
