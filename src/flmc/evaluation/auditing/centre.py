"""The worst place of a gradient for an example to move it from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from flmc.evaluation.auditing.loss_law import loss_law
from flmc.evaluation.auditing.neighbours import canary, example_reach, neighbour
from flmc.evaluation.auditing.scene import Scene
from flmc.uplink.schemes import Digital

_CENTRES = 49
"""Centres that are compared, over all that clipping allows."""


def at_worst_centre(scene: Scene, delta: float) -> Scene:
    """The scene with its gradients where one example reveals most, as far as one place for all
    entries can.

    Parameters
    ----------
    scene
        What is attacked. Where all that a device sends may differ, there is nothing to choose, nor
        where values themselves are sent.
    delta
        The delta at which epsilon is to be largest.
    """
    uplink = scene.uplink
    if scene.whole_device or not isinstance(uplink, Digital):
        return scene
    most = uplink.clip - min(uplink.clip, example_reach(scene))

    def revealed(centre: float) -> tuple[float, float]:
        there = replace(scene, centre=centre)
        law = loss_law(there, canary(there), neighbour(there))
        # Where epsilon is 0, the probability of telling the worlds apart decides.
        return law.epsilon(delta), float((law.above_first - law.above_second).max())

    # A centre and its mirror image have the same two worlds, in opposite order.
    return replace(scene, centre=float(max(np.linspace(-most, most, _CENTRES), key=revealed)))
