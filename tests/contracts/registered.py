"""Everything registered, as parameters of the contract tests: an incomplete addition fails them."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import flmc
from flmc.settings.registered import FADINGS, LINKS, SCHEDULERS, SCHEMES
from flmc.settings.registry import Entry
from support import QUICK

DEVICES, DIM, ROUNDS, BURN_IN = 4, 3, 140, 20
"""More rounds than a block of the random streams has."""
TRACE = Path(tempfile.mkdtemp(prefix="flmc-trace-")) / "trace.csv"
"""A measured channel, for 20 devices and for 4: the file is written when it is asked for."""
atexit.register(shutil.rmtree, TRACE.parent, ignore_errors=True)
REQUIRED: dict[str, Any] = {"count": 2, "path": str(TRACE), "threshold": 0.02, "snr_db": 25.0}
"""Values of parameters that have no default."""
np.savetxt(TRACE, np.random.default_rng(7).uniform(0.02, 0.08, (1000, DEVICES)), delimiter=",")


def build(entry: Entry) -> Any:
    """The thing with its defaults, and a value for what has none."""
    return entry.build(*(REQUIRED.get(p.name, p.default) for p in entry.parameters))


def links() -> dict[str, flmc.Link]:
    """Every link with its defaults."""
    return {entry.name: build(entry) for entry in LINKS}


def fadings() -> dict[str, flmc.Fading]:
    """Every fading with its defaults."""
    return {entry.name: build(entry) for entry in FADINGS}


def schedulers() -> dict[str, flmc.Scheduler]:
    """Every scheduler with its defaults."""
    return {entry.name: build(entry) for entry in SCHEDULERS}


def schemes() -> dict[str, flmc.Uplink]:
    """Every scheme with its defaults."""
    return {entry.name: build(entry) for entry in SCHEMES}


def plans() -> dict[str, dict[str, Any]]:
    """Arguments of a plan for everything registered that a plan can have, one thing at a time."""
    found: dict[str, dict[str, Any]] = {}
    for name, link in links().items():
        limits = flmc.Limits(langevin="paper") if link.jumps else flmc.Limits(epsilon=5)
        found[f"link {name}"] = {"uplink": flmc.Digital(link=link), "limits": limits}
    for name, fading in fadings().items():
        uplinks = [each for each in schemes().values() if not each.noise_is_exact]
        for scheme in uplinks[:1] if QUICK else uplinks:
            uplink = flmc.replace(scheme, fading=fading)
            found[f"fading {name} {scheme.scheme}"] = {
                "uplink": uplink,
                "limits": flmc.Limits(epsilon=5),
            }
    for name, scheduler in schedulers().items():
        found[f"scheduler {name}"] = {
            "uplink": flmc.Digital(fading=flmc.RayleighFading())
            if scheduler.by_channel
            else flmc.Digital(),
            "limits": flmc.Limits(epsilon=30, scope="run"),
            "scheduler": scheduler,
        }
    rayleigh = flmc.RayleighFading()
    for name, uplink in {
        "csi_error": flmc.Digital(fading=rayleigh, csi_error=0.05),
        "csi_error constant": flmc.Analog(csi_error=0.02),
        "average_snr_db": flmc.Digital(fading=rayleigh, average_snr_db=15.0),
    }.items():
        limits = flmc.Limits(epsilon=50, scope="run")
        found[f"uplink {name}"] = {"uplink": uplink, "limits": limits}
    for name, uplink in schemes().items():
        found[f"scheme {name}"] = {"uplink": uplink, "limits": flmc.Limits(privacy="off")}
    return found


def model(num_experiments: int = 1) -> flmc.LinearGaussian:
    """A small problem."""
    data = flmc.data.draw_linear(
        seed=5, num_samples=80, dim=DIM, num_devices=DEVICES, num_experiments=num_experiments
    )
    return flmc.LinearGaussian(data)


def plan(name: str, of: flmc.Model) -> flmc.Plan:
    """A plan of :func:`plans`."""
    return flmc.plan(of, **plans()[name], num_rounds=ROUNDS, num_burn_in=BURN_IN)
