"""The experiment of the analog predecessor: 100 runs at each of 8 SNR, 3 allocations each."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array, one_blas_thread
from flmc.papers.wflmc.base_case import NUM_RUNS, SNR_DB, make_base_case
from flmc.papers.wflmc.experiment import Laboratory
from flmc.papers.wflmc.gain_allocation import Allocations, published_budget
from measuring.job import Job, need

SCHEMES = ("without DP", "static", "adaptive")


def _scenes(laboratory: Laboratory) -> list[tuple[Array, Array]]:
    """Gains and active devices of every SNR and scheme."""
    case = laboratory.case
    scenes: list[tuple[Array, Array]] = []
    budget = published_budget(case.settings.epsilon, case.settings.run_delta)
    for snr in SNR_DB:
        active = laboratory.channels.active(snr).astype(np.float64)
        allowed = Allocations.of(case, snr, laboratory.channels.fading, active)
        squared = (allowed.largest, allowed.static(budget), allowed.adaptive(budget))
        scenes += [(np.sqrt(each), active) for each in squared]
    return scenes


def peer(engine: str = "auto") -> Job:
    """The whole experiment: channels, allocations, sampling, distances."""
    case = make_base_case({}, None, 0, NUM_RUNS)

    @one_blas_thread()
    def turn() -> None:
        laboratory = Laboratory(case, 0, engine)
        for gain, active in _scenes(laboratory):
            laboratory.worst_distance(laboratory.run(gain, active))

    return Job(turn, {"runs": NUM_RUNS, "snr": len(SNR_DB), "schemes": len(SCHEMES)})


def peer_sampling(engine: str = "auto") -> Job:
    """The sampling alone, with gains and channels that are there."""
    if engine != "auto":
        need(engine)
    laboratory = Laboratory(make_base_case({}, None, 0, NUM_RUNS), 0, engine)
    scenes = _scenes(laboratory)

    def turn() -> None:
        for gain, active in scenes:
            laboratory.run(gain, active)

    return Job(turn, {"runs": NUM_RUNS, "snr": len(SNR_DB), "schemes": len(SCHEMES)})


JOBS = {"peer": peer, "peer sampling": peer_sampling}
