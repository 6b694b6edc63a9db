"""The published curves: squared W2 against SNR, from a file beside the data."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

from flmc.base.errors import InvalidSetting

FILE_NAME = "wflmc_snr.csv"
"""The file, beside the data file."""
CURVES = {
    "without DP": "Without DP",
    "static": "Equal Power Allocation",
    "adaptive": "Optimized Power Allocation",
    "noiseless with DP": "Noiseless LMC With DP",
    "noiseless without DP": "Noiseless LMC Without DP",
}
"""Names of the curves here, and in print."""

Published = Mapping[str, Mapping[float, float]]
"""Squared W2 by curve, as it is called here, and SNR in dB."""


def read_published(data_file: Path) -> Published | None:
    """The published curves that lie beside a data file; None if they do not.

    Parameters
    ----------
    data_file
        The data of the study.

    Raises
    ------
    InvalidSetting
        If there is such a file, and it is not a table with curve, x and y.
    """
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
