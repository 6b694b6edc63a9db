"""The base case of the study, which is the settings (sizes, channel, clip, privacy budget) and the
data that all its curves share; and functions that read its data and its published curves from
files."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.data.dealing import split_evenly
from flmc.data.linear_data import LinearData, LinearStatistics
from flmc.data.synthetic import draw_linear
from flmc.data.table_files import check_is_file, read_npz
from flmc.models.linear import LinearGaussian
from flmc.papers.request import change_base_case
from flmc.settings.schema import Settings

NUM_RUNS = 100
"""Number of runs in an experiment. The study measures the distance from the posterior of the cloud
that their thetas form in one round."""
SNR_DB = (5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0)
"""SNRs in dB of the points of the published curves."""
PUBLISHED = {
    "scheme": "analog",
    "devices": 30,
    "clip": 30.0,
    "clipping": "norm",
    "fading": "rayleigh:0.1",
    "scope": "run",
    "epsilon": 15.0,
    "run_delta": 0.01,
    "rounds": 100,
    "burn_in": 50,
}
"""The settings of the published study, by name, that differ from flmc's defaults."""
CHANGEABLE = (
    *("devices", "dim", "samples", "clip", "fading", "noise_power", "epsilon", "run_delta"),
    *("rounds", "burn_in", "step_size", "link", "slope_parameter"),
)
"""Names of the settings of the base case that a user may change. ``link`` and ``slope_parameter``
belong to the digital scheme."""
STEP_SHARE = 0.2
r"""The study's step size as a share of :math:`2/(\mu + L)`, with the smallest and largest curvature
:math:`\mu` and L of the negative log posterior."""


@dataclass(frozen=True)
class BaseCase:
    """Settings and data that all curves of the study have in common.

    Attributes
    ----------
    settings
        Sizes, channel, clip and privacy budget.
    model
        Linear regression on the study's single data set, which is repeated as one data set for each
        run.
    source
        Text that says where the data come from: a file, or a random draw.
    """

    settings: Settings
    model: LinearGaussian
    source: str

    @cached_property
    def step_size(self) -> float:
        r"""Step size of the sampler: the one in the settings, or if that is automatic,
        :math:`0.2 \cdot 2/(\mu + L)` with the smallest and largest curvature :math:`\mu` and L of
        the negative log posterior."""
        if self.settings.step_size != "auto":
            return self.settings.step_size
        return STEP_SHARE * 2.0 / (self.model.convexity + self.model.smoothness)

    @property
    def num_burn_in(self) -> int:
        """Number of burn-in rounds, at the beginning of a run; ``InvalidSetting`` if the setting is
        ``auto``."""
        if self.settings.burn_in == "auto":
            raise InvalidSetting("burn_in of the study must be a number of rounds, got 'auto'")
        return self.settings.burn_in

    @property
    def num_kept(self) -> int:
        """Number of rounds after burn-in; the study's error is the largest distance from the
        posterior over them."""
        return self.settings.rounds - self.num_burn_in


def make_base_case(
    changes: Mapping[str, str], data_file: Path | None, seed: int, num_runs: int
) -> BaseCase:
    """The study's base case, with the settings in ``changes`` replaced (values by name, as the user
    wrote them). The data come from ``data_file``, or, if it is None, are drawn with ``seed`` from
    the law of the published data; they are repeated for ``num_runs`` runs."""
    settings = change_base_case("wflmc", PUBLISHED, changes, CHANGEABLE)
    if data_file is None:
        data = draw_linear(
            seed, num_samples=settings.samples, dim=settings.dim, num_devices=settings.devices
        )
        source = f"data drawn with seed {seed} from the law of the published set"
    else:
        for name in ("dim", "samples"):
            if name in changes:
                raise InvalidSetting(f"{name} comes from the data file; leave --set {name} out")
        data = read_data(data_file, settings.devices)
        sizes = {"dim": data.features.shape[1], "samples": len(data.targets)}
        settings = settings.model_copy(update=sizes)
        source = f"the data of {data_file.name}"
    if settings.burn_in != "auto" and settings.burn_in >= settings.rounds:
        raise InvalidSetting(
            f"burn_in must be below rounds = {settings.rounds}, got {settings.burn_in}"
        )
    one = data.to_statistics()
    repeated = LinearStatistics(
        np.repeat(one.gram, num_runs, axis=0), np.repeat(one.moment, num_runs, axis=0)
    )
    return BaseCase(settings, LinearGaussian(repeated), source)


def read_data(path: Path, num_devices: int) -> LinearData:
    """Data of the study from an npz file with arrays X (sample, dim) and Y (sample), divided among
    the devices in contiguous blocks of samples of equal size. ``InvalidSetting`` if the file has
    another form."""
    try:
        check_is_file(path)
        arrays = read_npz(path, repr(str(path)))
        features, targets = arrays["X"], arrays["Y"]
    except InvalidSetting:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidSetting(
            f"the data file must be an npz with arrays X and Y, got {str(path)!r}: {error}"
        ) from error
    if targets.ndim != 1:
        raise InvalidSetting(f"Y must be (sample), got the shape {targets.shape}")
    return LinearData(features, targets, split_evenly(len(targets), num_devices))


FILE_NAME = "wflmc_snr.csv"
"""Name of the file with the published curves (squared W2 distance against SNR), which is expected
in the directory of the data file."""
CURVES = {
    "without DP": "Without DP",
    "static": "Equal Power Allocation",
    "adaptive": "Optimized Power Allocation",
    "noiseless with DP": "Noiseless LMC With DP",
    "noiseless without DP": "Noiseless LMC Without DP",
}
"""Name of each curve in the study's publication, by the name that flmc gives it."""

Published = Mapping[str, Mapping[float, float]]
"""Published squared W2 distances, by the name that flmc gives the curve, then by SNR in dB."""


def read_published(data_file: Path) -> Published | None:
    """The published curves, from the file ``FILE_NAME`` in the directory of ``data_file``; None if
    that file does not exist, ``InvalidSetting`` if it is no table with the columns curve, x, y."""
    path = data_file.parent / FILE_NAME
    if not path.exists():
        return None
    try:
        with path.open(newline="") as stream:
            rows = [
                (row["curve"], float(row["x"]), float(row["y"])) for row in csv.DictReader(stream)
            ]
    except (OSError, KeyError, ValueError, csv.Error) as error:
        raise InvalidSetting(
            f"{str(path)!r} must be a table with columns curve, x, y: {error}"
        ) from error
    return {
        ours: {x: y for curve, x, y in rows if curve == printed} for ours, printed in CURVES.items()
    }
