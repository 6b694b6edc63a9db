"""Digests of the plans of random settings, for :mod:`system.test_threads`, which runs this file in
processes with different numbers of threads: ``FIRST LAST`` on the command line, JSON on standard
output."""

from __future__ import annotations

import json
import random
import sys
from typing import Any

from flmc.base.errors import FlmcError
from flmc.settings.assembly import assemble
from flmc.settings.schema import merge


def draw_settings(seed: int) -> dict[str, Any]:
    """Settings whose plans take all ways: schemes, links, budgets, examples, schedulers."""
    pick = random.Random(seed).choice
    found: dict[str, Any] = {
        "scheme": pick(["digital", "digital", "analog", "ideal"]),
        "snr_db": pick([5, 15, 25, 40]),
        "epsilon": pick([0.5, 1, 5, 50]),
        "scope": pick(["round", "run"]),
        "devices": pick([1, 7, 20, 100]),
        "dim": pick([1, 2, 5, 17, 40]),
        "samples": pick([300, 1200, 5000]),
        "rounds": pick([50, 300, 1000]),
        "burn_in": pick([20, 45, "auto"]),
        "seed": pick(range(5)),
    }
    if found["scheme"] == "ideal":
        return found
    found["fading"] = pick([0.04, "rayleigh:0.04"])
    found["scheduling"] = pick(["all", "all", "random:1"])
    found["clip"] = pick([10.0, 30.0, 200.0])
    if found["scheme"] == "digital":
        found["link"] = pick(["sigmoid", "probit", "linear", "sigmoid:0.01", "linear:0.5", "auto"])
        found["privacy"] = pick(["tight", "tight", "tail", "off"])
    if pick([True, False, False]):
        found |= {"neighbouring": "example", pick(["example_clip", "example_norm"]): 4.0}
    if found["scope"] == "run":
        found["allocation"] = pick(["static", "adaptive"])
    if found["scope"] == "run" or "neighbouring" in found:
        found["privacy"] = "tight"
    return found


def digest_of(seed: int) -> str:
    """Digest of a plan, or why there is none."""
    try:
        return str(assemble(merge({}, draw_settings(seed))).plan().digest)
    except FlmcError as error:
        return f"refused: {error}"


if __name__ == "__main__":
    sys.stdout.write(json.dumps([digest_of(seed) for seed in range(*map(int, sys.argv[1:]))]))
