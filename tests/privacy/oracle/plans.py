"""What plans and ledgers say that a run costs, beside the truth of the gains that they state.

The truth is that of the device that spends most: all its own gains, none of them rounded. Where a
statement charges more than any device sends, its looseness is reported under the reason's name."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import flmc
from privacy.oracle.battery import Case, know
from privacy.oracle.bits import Array
from privacy.oracle.verdicts import Verdict

DELTA = 1e-5
ROUNDS = 60
IMAGINED = "an imagined device, at least as loud as each"
CAPS = "caps of the gain, which power does not always reach"


@dataclass(frozen=True)
class Setting:
    """An uplink and a neighbouring relation, and the oracle's words for them.

    Attributes
    ----------
    name
        In words.
    uplink, neighbouring
        What the plan is made for.
    question
        The oracle's case, without gains.
    gain
        A gain at which 60 rounds cost an epsilon of about 1.
    step
        Step of the sampler, given so that no gain depends on it.
    faded_snr_db
        Signal-to-noise ratio at which, under Rayleigh fading, power limits some rounds.
    """

    name: str
    uplink: flmc.Uplink
    neighbouring: str
    question: Case
    gain: float
    step: float
    faded_snr_db: float


SETTINGS = (
    Setting(
        "digital, device",
        flmc.Digital(snr_db=60.0),
        "device",
        Case("device", (), DELTA, "sigmoid", 1.5),
        0.02,
        1e-3,
        10.0,
    ),
    Setting(
        "digital, example",
        flmc.Digital(link=flmc.Sigmoid(0.011), clip=700.0, example_clip=4.0, snr_db=60.0),
        "example",
        Case("example", (), DELTA, "sigmoid", 7.7, 0.088),
        0.4,
        1e-3,
        36.0,
    ),
    Setting(
        "analog, device",
        flmc.Analog(snr_db=60.0),
        "device",
        Case("analog", (), DELTA, shift=60.0),
        5e-4,
        1e-4,
        8.0,
    ),
    Setting(
        "analog, example",
        flmc.Analog(clip=700.0, example_clip=4.0, snr_db=60.0),
        "example",
        Case("analog", (), DELTA, shift=8.0),
        3e-3,
        1e-4,
        52.0,
    ),
)


VARIATIONS = ((1.0, 1e-5), (0.5, 1e-3), (0.8, 1e-7), (1.5, 1e-9), (2.5, 1e-4))
"""Factors of the gain, and deltas, with which settings are tried in the full check."""


def varied(settings: tuple[Setting, ...] = SETTINGS) -> tuple[Setting, ...]:
    """Every setting with other gains and deltas."""
    return tuple(
        replace(
            setting,
            gain=factor * setting.gain,
            question=replace(setting.question, delta=delta),
        )
        for setting in settings
        for factor, delta in VARIATIONS
    )


def _model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def _changing(setting: Setting, seed: int = 4) -> Array:
    """Gains that change over rounds by a factor of up to 8, (round, 1)."""
    rng = np.random.default_rng(seed)
    return setting.gain * np.exp(rng.uniform(-1.0, 1.0, (ROUNDS, 1)))


def _presence(num_devices: int, seed: int = 5) -> Array:
    """Devices that come and go: each is there for some rounds on end, (round, device)."""
    rng = np.random.default_rng(seed)
    first = rng.integers(0, ROUNDS // 2, num_devices)
    last = first + rng.integers(ROUNDS // 6, ROUNDS // 2, num_devices)
    rounds = np.arange(ROUNDS)[:, None]
    active = (rounds >= first) & (rounds < last)
    active[:, 0] |= ~active.any(axis=1)  # somebody is always there
    return active.astype(np.float64)


def _plan(
    setting: Setting, limits: dict[str, Any] | None = None, **given: Any
) -> tuple[Any, float]:
    """A plan of the paper's problem, and the processor time that it took."""
    asked: dict[str, Any] = {"run_delta": setting.question.delta, "langevin": "off"}
    asked["neighbouring"] = setting.neighbouring
    uplink = given.pop("uplink", setting.uplink)
    model = _model()
    begin = time.process_time()
    plan = flmc.plan(
        model,
        uplink,
        flmc.Limits(**(asked | (limits or {}))),
        num_rounds=ROUNDS,
        num_burn_in=20,
        step_size=setting.step,
        forecast=False,
        **given,
    )
    assert plan.run_cost is not None
    return plan, time.process_time() - begin


def _most_expensive(setting: Setting, sent: list[Array]) -> Any:
    """Truth of the device that spends most, of what each device sent.

    Devices whose sum of squared gains, which is all that counts where gains are small, is within
    5 % of the largest are compared, three at most."""
    power = {gains.tobytes(): float(np.square(gains).sum()) for gains in sent}
    candidates = sorted(sent, key=lambda gains: -power[gains.tobytes()])
    found = []
    for key, gains in {gains.tobytes(): gains for gains in candidates}.items():
        if power[key] < 0.95 * max(power.values()):
            break
        values, counts = np.unique(gains, return_counts=True)
        pairs = tuple((float(g), int(n)) for g, n in zip(values, counts, strict=True) if g > 0)
        found.append(know(replace(setting.question, gains=pairs)))
        if len(found) == 3:
            break
    return max(found, key=lambda truth: truth.epsilon)


def _verdict(
    setting: Setting, kind: str, value: float, cpu: float, sent: list[Array], structural: str = ""
) -> Verdict:
    truth = _most_expensive(setting, sent)
    group = f"plan: {kind}"
    return Verdict(
        group,
        setting.name,
        truth.epsilon,
        truth.error,
        value,
        cpu,
        truth.converged,
        structural=structural,
    )


def _of_devices(caps: Array, active: Array | None, dim: int) -> list[Array]:
    """Gains that each device sends, from caps (1 or round, 1 or dim) and who is active."""
    gains = np.broadcast_to(caps, (ROUNDS, dim))
    if active is None:
        return [gains.ravel()]
    return [gains[talks > 0].ravel() for talks in active.T]


def constant(setting: Setting) -> Iterator[Verdict]:
    """One gain in all rounds."""
    plan, cpu = _plan(setting, gain=setting.gain)
    sent = _of_devices(plan.gain, None, plan.dim)
    yield _verdict(setting, "one gain", plan.run_cost.epsilon, cpu, sent)


def budget(setting: Setting) -> Iterator[Verdict]:
    """The largest gain within a budget of the run: by how much less than the budget it costs."""
    plan, cpu = _plan(setting, {"epsilon": 2.0, "scope": "run"})
    sent = _of_devices(plan.gain, None, plan.dim)
    yield _verdict(setting, "budget of a run", plan.run_cost.epsilon, cpu, sent)


def adaptive(setting: Setting) -> Iterator[Verdict]:
    """A budget that is spent where noise matters most."""
    asked = {"epsilon": 3.0, "scope": "run", "allocation": "adaptive"}
    plan, cpu = _plan(setting, asked)
    sent = _of_devices(plan.gain, None, plan.dim)
    yield _verdict(setting, "adaptive", plan.run_cost.epsilon, cpu, sent)


def come_and_go(setting: Setting) -> Iterator[Verdict]:
    """Devices that come and go, with one gain and with gains that change."""
    active = _presence(_model().num_devices)
    for kind, gain, why in (
        ("come and go, one gain", setting.gain, ""),
        ("come and go, changing gains", _changing(setting), IMAGINED),
    ):
        plan, cpu = _plan(setting, gain=gain, active=active)
        sent = _of_devices(plan.gain, active, plan.dim)
        yield _verdict(setting, kind, plan.run_cost.epsilon, cpu, sent, why)


def changing(setting: Setting) -> Iterator[Verdict]:
    """Gains of every round and entry, all devices."""
    rng = np.random.default_rng(6)
    gain = setting.gain * np.exp(rng.uniform(-1.5, 1.5, (ROUNDS, 5)))
    plan, cpu = _plan(setting, gain=gain)
    sent = _of_devices(plan.gain, None, plan.dim)
    yield _verdict(setting, "changing gains", plan.run_cost.epsilon, cpu, sent)


def fading(setting: Setting) -> Iterator[Verdict]:
    """Rayleigh fading, with a cap for every round: against the caps, and against the gains that
    power allowed in the end."""
    from flmc.sampling.schedule import draw_schedule

    faded = {"fading": flmc.RayleighFading(0.04), "snr_db": setting.faded_snr_db}
    limited = flmc.replace(setting.uplink, **faded)
    plan, cpu = _plan(setting, uplink=limited, gain=_changing(setting))
    caps = _of_devices(plan.gain, None, plan.dim)
    yield _verdict(setting, "fading, caps", plan.run_cost.epsilon, cpu, caps)
    used = draw_schedule(plan, 3, range(1), 0).gain[0]
    epsilon = plan.run_cost.epsilon
    yield _verdict(setting, "fading, gains used", epsilon, cpu, [used.ravel()], CAPS)


def ledgers(setting: Setting) -> Iterator[Verdict]:
    """Recorded runs: the ledger's lines are what was sent."""
    model = _model()
    for kind, given in (
        ("ledger, one gain", {"gain": setting.gain}),
        (
            "ledger, come and go",
            {"gain": _changing(setting), "active": _presence(model.num_devices)},
        ),
        (
            "ledger, random devices",
            {"gain": _changing(setting), "scheduler": flmc.RandomDevices(7)},
        ),
    ):
        plan, _ = _plan(setting, **given)
        with tempfile.TemporaryDirectory() as out:
            flmc.run(plan, model, seed=2, engine="numpy", out=out)
            record = flmc.load(out)
            begin = time.process_time()
            stated = flmc.spent(record, plan, at=ROUNDS).epsilon
            cpu = time.process_time() - begin
            lines = [json.loads(line) for line in record.ledger]
        sent = []
        for device in range(plan.num_devices):
            own = [np.broadcast_to(x["gain"], plan.dim) for x in lines if device not in x["silent"]]
            sent.append(np.concatenate(own) if own else np.zeros(0))
        yield _verdict(setting, kind, stated, cpu, sent)


Scenario = Callable[[Setting], Iterator[Verdict]]
SCENARIOS: tuple[Scenario, ...] = (
    constant,
    budget,
    adaptive,
    changing,
    come_and_go,
    fading,
    ledgers,
)


def plan_verdicts(
    scenarios: tuple[Scenario, ...] = SCENARIOS, settings: tuple[Setting, ...] = SETTINGS
) -> list[Verdict]:
    """Verdicts of some kinds of plans and ledgers, for some settings."""
    return [v for scenario in scenarios for setting in settings for v in scenario(setting)]
