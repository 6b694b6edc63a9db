"""What the pinned results are of: small runs that touch every engine, scheme, link, fading and
allocation.

``python tests/contracts/pinned_runs.py`` writes ``pins.json`` anew. Do that only together with a
line in the changelog that says why results changed.

Only the public interface and the command line are used, so that a change of the inside cannot
change the question."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import platform
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import flmc
from flmc.cli import main

PINS = Path(__file__).parent / "pins.json"
TABLE_DIGITS = 12
"""Numbers of tables (sweep, reproduction) are pinned to so many digits: the order of a sum may
change the last ones."""


def machine() -> dict[str, str]:
    """All that may change the last bit of a result."""
    import llvmlite.binding
    import numba

    features = llvmlite.binding.get_host_cpu_features().flatten()
    return {
        "processor": llvmlite.binding.get_host_cpu_name(),
        "features": hashlib.sha256(features.encode()).hexdigest()[:16],
        "processors": str(os.cpu_count()),
        "python": ".".join(platform.python_version_tuple()[:2]),
        "numpy": np.__version__,
        "numba": numba.__version__,
    }


class Cauchy(flmc.Link):
    """A link of a user's own."""

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def probability(
        self, g: np.ndarray[Any, np.dtype[np.float64]]
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Half plus an arc tangent."""
        return np.asarray(0.5 + np.arctan(g / self.scale) / np.pi)


Cauchy.__module__ = (
    "own"  # part of the plan's digest, and not to depend on how this file is imported
)


def _linear(**settings: Any) -> flmc.LinearGaussian:
    shape = {"num_samples": 200, "dim": 3, "num_devices": 4, "num_experiments": 2, **settings}
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=11, **shape))


def _logistic() -> flmc.Model:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(4, 50, 3))
    labels = np.where(features @ [1.0, -1.0, 0.5] + rng.logistic(size=(4, 50)) > 0, 1.0, -1.0)

    def gradient(
        theta: np.ndarray[Any, np.dtype[np.float64]],
    ) -> np.ndarray[Any, np.dtype[np.float64]]:
        margin = labels * np.einsum("kne,ce->ckn", features, theta)
        return np.asarray(-np.einsum("ckn,kn,kne->cke", 1 / (1 + np.exp(margin)), labels, features))

    return flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(0, 1), dim=3, num_devices=4, smoothness=100.0, convexity=1.0
    )


_COME_AND_GO = (np.arange(150)[:, None] + np.arange(4)) % 4 > 0
_GAINS = np.array([[0.02, 0.03], [0.05, 0.04], [0.03, 0.03], [0.06, 0.02]])

Case = Callable[[], tuple[flmc.Plan, flmc.Model]]


def _case(
    uplink: flmc.Uplink,
    limits: flmc.Limits | None = None,
    model: flmc.Model | None = None,
    **settings: Any,
) -> Case:
    def make() -> tuple[flmc.Plan, flmc.Model]:
        chosen = _linear() if model is None else model
        shape = {"num_rounds": 150, "num_burn_in": 60, "draw_at": "positions", **settings}
        return flmc.plan(chosen, uplink, limits, **shape), chosen

    return make


_ROUND = flmc.Limits(epsilon=5)
_RUN = flmc.Limits(epsilon=30, scope="run")
CASES: dict[str, Case] = {
    "digital sigmoid": _case(flmc.Digital(), _ROUND),
    "digital probit": _case(
        flmc.Digital(link=flmc.Probit(0.03)), flmc.Limits(epsilon=3, privacy="tail")
    ),
    "digital linear": _case(flmc.Digital(link=flmc.Linear(0.9), clip=40.0), _RUN),
    "digital sign": _case(flmc.Digital(link=flmc.Sign()), flmc.Limits(langevin="paper")),
    "digital own link": _case(flmc.Digital(link=Cauchy(15.0)), _ROUND),
    "analog": _case(flmc.Analog(), _ROUND),
    "analog paper": _case(
        flmc.Analog(snr_db=12), flmc.Limits(epsilon=2, privacy="paper", langevin="paper")
    ),
    "digital paper": _case(
        flmc.Digital(), flmc.Limits(epsilon=5, privacy="paper", langevin="paper")
    ),
    "ideal": _case(flmc.Ideal()),
    "rayleigh": _case(flmc.Digital(fading=flmc.RayleighFading(0.2)), _ROUND),
    "rayleigh analog": _case(flmc.Analog(fading=flmc.RayleighFading(0.2)), _ROUND),
    "fixed fading": _case(
        flmc.Digital(fading=flmc.FixedFading(_GAINS)),
        _ROUND,
        _linear(dim=2, num_experiments=1),
        start="zero",
    ),
    "come and go": _case(flmc.Digital(), _RUN, active=_COME_AND_GO),
    "adaptive": _case(flmc.Digital(), flmc.Limits(epsilon=20, scope="run", allocation="adaptive")),
    "adaptive analog": _case(
        flmc.Analog(), flmc.Limits(epsilon=20, scope="run", allocation="adaptive")
    ),
    "example clip": _case(
        flmc.Digital(example_clip=4.0, example_shrink=0.965),
        flmc.Limits(epsilon=4, scope="run", neighbouring="example"),
        public_smoothness=300.0,
        public_convexity=100.0,
    ),
    "given gain": _case(
        flmc.Digital(), flmc.Limits(), gain=0.2, step_size=3e-3, burn_in_step_factor=2.0
    ),
    "own model": _case(flmc.Digital(link=flmc.Sigmoid(0.2), clip=10.0), _ROUND, _logistic()),
    "unbounded channel": _case(flmc.Analog(), flmc.Limits(langevin="off"), step_size=1e-4),
    "midpoints, digital": _case(flmc.Digital(), _ROUND, draw_at="midpoints"),
    "midpoints, analog": _case(flmc.Analog(), _ROUND, draw_at="midpoints"),
    "midpoints, rayleigh": _case(
        flmc.Analog(fading=flmc.RayleighFading(0.2)), _ROUND, draw_at="midpoints"
    ),
    "midpoints, come and go": _case(flmc.Digital(), _RUN, active=_COME_AND_GO, draw_at="midpoints"),
    "midpoints, own model": _case(
        flmc.Digital(link=flmc.Sigmoid(0.2), clip=10.0), _ROUND, _logistic(), draw_at="midpoints"
    ),
}
"""Plans and models by name. Draws are at positions, as when most pins were made, unless the name
says otherwise; pins that were added later have their own ``machine``."""


def sha256(data: bytes) -> str:
    """Digest of bytes."""
    return hashlib.sha256(data).hexdigest()


def plan_document(plan: flmc.Plan) -> dict[str, Any]:
    """A plan in plain values. Sentences are free to change, the answer has
    tests of its own, and a shift of the mean that is not
    there is predicted to the tolerance of an iteration only."""
    document = plan.to_document()
    for name in ("warnings", "findings", "verdict", "answer"):
        document.pop(name, None)
    for name in ("mean_shift", "distance_squared"):
        (document["prediction"] or {}).pop(name, None)
    return document


def pin_run(name: str, engine: str) -> dict[str, Any] | None:
    """One run: digests of draws and ledger, and the numbers; None where the engine does not
    apply."""
    plan, model = CASES[name]()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "record"
        try:
            result = flmc.run(plan, model, seed=7, chains=5, engine=engine, out=out)
        except flmc.errors.InvalidSetting as error:
            if "does not apply" in str(error):
                return None
            raise
        ledger = (out / "ledger.txt").read_bytes()
    document = result.to_document()
    evidence = document["evidence"]
    if evidence is not None:
        del evidence["why_unknown"]  # sentences are free to change
        # The pins are from a version that wrote the Stein ratio under two names.
        evidence["variance_ratio"] = evidence["stein_ratio"]
        evidence["variance_ratio_se"] = evidence["stein_ratio_se"]
    return {
        "draws": sha256(np.ascontiguousarray(result.draws).tobytes()),
        "ledger": sha256(ledger),
        "mean": result.mean.tolist(),
        "covariance": result.covariance.tolist(),
        "effective_draws": None if result.metrics is None else result.metrics.independent_draws,
        "metrics": document["metrics"],
        "evidence": evidence,
        "clipped_fraction": document["clipped_fraction"],
        "num_undefined": document["num_undefined"],
    }


SWEEP = """
chains = 3
rounds = 120
burn_in = 60
samples = 200
draw_at = "positions"
devices = 4
dim = 2
fading = 0.2

[sweep]
snr_db = [10, 20]
scheme = ["digital", "analog", "ideal"]
"""


def pin_sweep() -> list[dict[str, Any]]:
    """The table of a small sweep."""
    with tempfile.TemporaryDirectory() as place:
        config, out = Path(place) / "grid.toml", Path(place) / "out"
        config.write_text(SWEEP)
        assert (
            main(["sweep", "--config", str(config), "--out", str(out), "--workers", "1", "--json"])
            == 0
        )
        return read_table(out / "table.csv", leave_out=("warnings",))


SMALL = ("--experiments", "20", "--seed", "3")


def pin_reproduction(figure: str = "all") -> dict[str, list[dict[str, Any]]]:
    """All tables of a reproduction at 20 experiments, or those of one figure."""
    names = ("points", "claims", "beyond") if figure == "all" else ("points", "claims")
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "out"
        assert main(["reproduce", "--figure", figure, *SMALL, "--out", str(out), "--json"]) == 0
        return {name: read_table(out / f"{name}.csv") for name in names}


def read_table(path: Path, leave_out: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Rows of a CSV file with its numbers rounded to ``TABLE_DIGITS``."""
    with path.open(newline="") as stream:
        return [
            {k: _rounded(v) for k, v in row.items() if k not in leave_out}
            for row in csv.DictReader(stream)
        ]


def _rounded(text: str) -> Any:
    if not re.fullmatch(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?", text):
        return text
    return float(f"{float(text):.{TABLE_DIGITS}g}")


def everything() -> dict[str, Any]:
    """All pins."""
    runs: dict[str, Any] = {}
    for name, make in CASES.items():
        plan, _ = make()
        engines = {engine: pin_run(name, engine) for engine in ("numpy", "numba")}
        runs[name] = {"plan": plan_document(plan), "digest": plan.digest, "engines": engines}
    return {
        "machine": machine(),
        "runs": runs,
        "sweep": pin_sweep(),
        "reproduction": pin_reproduction(),
    }


if __name__ == "__main__":
    parts = everything()
    lines = [
        f"{json.dumps(name)}: {json.dumps(part, allow_nan=False)}" for name, part in parts.items()
    ]
    PINS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
