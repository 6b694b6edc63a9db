"""Links and plans that the tests of the compiled engine share."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

import flmc
from flmc.base.arrays import Array
from flmc.sampling.compiled.arrangement import OWN, Arrangement
from flmc.sampling.compiled.devices import Devices, Form
from flmc.sampling.compiled.instructions import FLOAT, NUMBER, WIDTH, Code, Value, emitted
from flmc.sampling.compiled.link_curve import FittedLink


class Cauchy(flmc.Link):
    def __repr__(self) -> str:
        return "Cauchy"

    def probability(self, g: Array) -> Array:
        return 0.5 + np.arctan(g / 20.0) / np.pi


class Skewed(flmc.Link):
    """A link that is not odd, so that a polynomial of odd powers cannot follow it."""

    def __repr__(self) -> str:
        return "Skewed"

    def probability(self, g: Array) -> Array:
        return np.asarray(-np.expm1(-np.exp(g / 25.0 + np.log(np.log(2.0)))))


def thresholds(g: npt.NDArray[np.float32], curve: FittedLink) -> Array:
    """What words are compared with for gradients in [-1, 1], as the compiled kernel computes it."""
    padded = np.concatenate([g, np.zeros(-len(g) % WIDTH)]).astype(np.float32)
    results, link = np.empty_like(padded), np.array(curve, np.float32)
    count = len(curve) if isinstance(curve, tuple) else 0
    form = Form(Arrangement.of(OWN, 1), count, False, False, False)

    def body(code: Code, arguments: list[Value]) -> None:
        values, target, size, state, clipped, link, nodes, most = arguments
        at = {"state": state, "count": clipped, "link": link, "nodes": nodes}
        devices = Devices(code, form, at, most)
        with code.loop(size, step=WIDTH) as n:
            code.store(target, n, devices.threshold(code.load(values, n)))

    state, clipped = np.zeros(4 * WIDTH, np.uint32), np.zeros(WIDTH, np.uint32)
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 7, ctypes.c_float)
    function = kind(emitted(f"thresholds {form!r}", body, [NUMBER] * 7 + [FLOAT]))
    function(
        padded.ctypes.data, results.ctypes.data, len(padded), state.ctypes.data,
        clipped.ctypes.data, link.ctypes.data, len(link), 1.0,
    )  # fmt: skip
    return results[: len(g)].astype(np.float64)


def quiet_plan(model: flmc.Model, uplink: flmc.Uplink, **settings: object) -> flmc.Plan:
    """A plan so loud that the noise vanishes."""
    return flmc.plan(
        model,
        uplink,
        flmc.Limits(langevin="off"),
        gain=1e7,
        step_size=1e-4,
        forecast=False,
        start="zero",
        num_rounds=40,
        num_burn_in=10,
        **settings,  # type: ignore[arg-type]
    )


def engine_differences(
    plan: flmc.Plan,
    model: flmc.Model,
    seeds: int,
    engines: tuple[str, str] = ("numpy", "numba"),
) -> Array:
    """Mean and variance of theta in kept rounds by one engine, less those by another, (seed, 2,
    experiment, dim)."""
    found = []
    for engine in engines:
        runs = [flmc.run(plan, model, seed=seed, chains=8, engine=engine) for seed in range(seeds)]
        assert {run.engine for run in runs} == {engine}
        found.append([[run.mean, np.diagonal(run.covariance, 0, 1, 2)] for run in runs])
    return np.asarray(np.subtract(*map(np.array, found)))
