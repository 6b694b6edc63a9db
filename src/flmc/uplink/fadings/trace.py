"""Path gains that were measured or computed elsewhere: an array, or a file of one.

A file is CSV (a line for each round, a column for each device, amplitudes, below an optional line
of names) or npz with ``h``, complex or real, (round, device) or (round, device, entry). Decibels
are refused. A trace is never repeated: one that is shorter than the run is refused."""

from __future__ import annotations

import hashlib
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, ComplexArray
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.data.table_files import check_is_file, read_npz
from flmc.uplink.fading import Fading

_MOST_BYTES = 4_000_000_000
"""Largest size of a trace's file, in bytes, because it is read into memory as a whole; a larger
file is refused."""
_CONVERT = "decibels become amplitudes by 10**(dB/20)"


class Trace(Fading):
    """Base class of path gains that were measured or computed for each round; a run with more
    rounds than the trace is refused."""

    gains: Any
    """Path gains of every round of the trace, (round, device, 1 or dim)."""
    given = True

    @property
    def mean_square(self) -> float:
        """Mean of the squares of all path gains of the trace."""
        return float(np.mean(np.square(np.abs(self.gains))))

    @property
    def findings(self) -> tuple[Finding, ...]:
        """A warning if the root mean square of the trace's path gains is above 1, as if paths
        amplified; a note if only some path gains are above 1; else nothing."""
        gains = np.abs(self.gains)
        root, share = float(np.sqrt(self.mean_square)), float((gains > 1).mean())
        if not share:
            return ()
        numbers = {"root_mean_square": root, "share": share, "largest": float(gains.max())}
        if root > 1:
            text = (
                f"the path gains of the trace are {root:.3g} in root mean square"
                f" ({20 * np.log10(root):+.3g} dB): a path that amplifies; they must be amplitudes,"
                f" received over sent, where {_CONVERT} and a path loss has a minus sign"
            )
            short = f"the trace amplifies by {20 * np.log10(root):.3g} dB"
            return (Finding("path-gain-above-1", "warning", text, short, numbers),)
        text = (
            f"{100 * share:.2g} % of the trace's path gains are above 1 (0 dB), up to"
            f" {numbers['largest']:.3g}: as in a trace that was scaled to a mean square of 1; then"
            " snr_db is that at the receiver"
        )
        return (Finding("path-gain-above-1", "note", text, numbers=numbers),)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds of the trace, (round, device, 1 or dim)."""
        return _rows(np.abs(self.gains), rounds, num_devices, dim)


@dataclass(frozen=True)
class TraceFading(Trace):
    """Path gains of every round, given as an array.

    Attributes
    ----------
    gains
        Positive path gains, (round, device) or (round, device, dim); of complex ones the magnitude
        counts, because each device knows its channel and inverts it. At least as many rounds as the
        run.
    """

    gains: Array | ComplexArray

    def __post_init__(self) -> None:
        object.__setattr__(self, "gains", _checked(self.gains, "the trace"))


@dataclass(frozen=True)
class TraceFile(Trace):
    """Path gains of every round, from a file.

    Attributes
    ----------
    path
        A ``.csv`` file, a line for each round and a column for each device, amplitudes, below an
        optional line of names, where a column named ``round`` is left out; or an
        ``.npz`` file with ``h``, complex or real, (round, device) or (round, device, entry). The
        arrays ``round_time``, ``carrier_hz`` and ``normalisation`` may stand beside it, and only
        the last is used: path gains are multiplied with it.
    sha256
        Digest of the file, which a plan keeps: another file of the same name is refused. If it is
        empty, the digest of the file as it is takes its place.
    """

    path: str
    sha256: str = ""

    def __post_init__(self) -> None:
        data = _read(self.path)
        digest = hashlib.sha256(data).hexdigest()
        if self.sha256 and self.sha256 != digest:
            raise InvalidSetting(
                f"the trace {self.path!r} was changed: its digest is {digest[:12]}, and the plan"
                f" was made with {self.sha256[:12]}"
            )
        object.__setattr__(self, "sha256", digest)
        # The path gains are no field of the dataclass, so that a plan stores the file's digest and
        # not its numbers.
        gains = _checked(_parsed(self.path, data), f"the trace {self.path!r}")
        object.__setattr__(self, "_gains", gains)

    @property
    def gains(self) -> Array:
        """Path gains of the file, (round, device, 1 or entry)."""
        gains: Array = vars(self)["_gains"]
        return gains

    def without_files(self) -> TraceFading:
        """The same path gains, held as an array, which needs no file."""
        return TraceFading(self.gains)


def _checked(given: object, what: str) -> Array:
    """Magnitudes of a trace, (round, device, 1 or dim); ``InvalidSetting`` unless all are positive
    numbers. ``what`` names the trace in messages."""
    array = np.asarray(given)
    if array.dtype.kind not in "fciu":
        raise InvalidSetting(f"{what} must hold numbers, got {array.dtype}")
    if array.dtype.kind != "c" and (array < 0).any():
        place = tuple(np.argwhere(array < 0)[0])
        raise InvalidSetting(
            f"{what} must hold amplitudes, received over sent, above 0; got {array[place]:g} in"
            f" round {place[0] + 1}: {_CONVERT}, and of signed numbers the magnitude counts"
        )
    gains: Array = np.abs(array).astype(np.float64)
    if gains.ndim == 2:
        gains = gains[:, :, None]
    if gains.ndim != 3 or not gains.size:
        raise InvalidSetting(
            f"{what} must be (round, device) or (round, device, entry), got shape {array.shape}"
        )
    bad = ~(np.isfinite(gains) & (gains > 0))
    if bad.any():
        place = np.argwhere(bad)[0]
        raise InvalidSetting(
            f"{what} must hold positive path gains (a device cannot invert a dead channel), got"
            f" {gains[tuple(place)]:g} in round {place[0] + 1}, device {place[1] + 1}"
        )
    checks.finite_array("the trace", gains)
    return gains


def _rows(gains: Array, rounds: range, num_devices: int, dim: int) -> Array:
    """Path gains of some rounds, (round, device, 1 or dim); ``InvalidSetting`` if the trace has too
    few rounds, another number of devices, or neither 1 nor ``dim`` entries."""
    if rounds.stop > len(gains):
        raise InvalidSetting(
            f"the trace must be at least as long as the run: it has {len(gains)} rounds, and"
            f" {rounds.stop} are needed; it is never repeated"
        )
    if gains.shape[1] != num_devices or gains.shape[2] not in (1, dim):
        entries = "" if gains.shape[2] == 1 else f" and {gains.shape[2]} entries"
        raise InvalidSetting(
            f"the trace must be of {num_devices} devices and {dim} entries or all alike, got"
            f" {gains.shape[1]} devices{entries}"
        )
    return gains[rounds.start : rounds.stop]


def _read(path: str) -> bytes:
    """The bytes of a trace's file, at most ``_MOST_BYTES``."""
    try:
        # The path may come from another person's plan: it must name a regular file, not a device or
        # a pipe, from which reading might never end.
        check_is_file(Path(path))
        if Path(path).stat().st_size > _MOST_BYTES:
            raise InvalidSetting(f"the trace {path!r} must have at most {_MOST_BYTES / 1e9:g} GB")
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidSetting(f"cannot read the trace {path!r}: {error.strerror}") from error


def _parsed(path: str, data: bytes) -> object:
    """The array in the bytes of a trace's file: from CSV or npz, as the file name's suffix says."""
    suffix = Path(path).suffix.lower()
    try:
        if suffix == ".npz":
            arrays = read_npz(io.BytesIO(data), f"the trace {path!r}")
            return arrays["h"] * arrays.get("normalisation", 1.0)
        if suffix == ".csv":
            return _from_csv(path, data.decode("utf-8-sig").splitlines())
    except InvalidSetting:
        raise
    except Exception as error:  # the file may hold anything, and NumPy may raise anything
        raise InvalidSetting(
            f"the trace {path!r} cannot be read: {type(error).__name__}: {error}"
        ) from error
    raise InvalidSetting(f"a trace must be a .csv or .npz file, got {path!r}")


def _from_csv(path: str, lines: list[str]) -> Array:
    """Numbers of a CSV trace, (round, device). A first line without any number is a header: a
    column that it names ``round`` is left out, and one whose name says decibels is refused."""
    lines = [line for line in lines if line.split("#")[0].strip()]
    names = (
        [name.strip().strip("\"'") for name in lines[0].split("#")[0].split(",")] if lines else []
    )
    if not names or any(checks.is_number(name) for name in names):
        return np.loadtxt(lines, delimiter=",", ndmin=2, comments="#")
    in_decibels = [name for name in names if re.search(r"(?i)(?<![a-z])dbm?(?![a-z])", name)]
    if in_decibels:
        raise InvalidSetting(
            f"the trace {path!r} must hold amplitudes, and its column {in_decibels[0]!r} says"
            f" decibels: {_CONVERT}"
        )
    used = [index for index, name in enumerate(names) if name.lower() != "round"]
    numbers = np.loadtxt(lines[1:], delimiter=",", ndmin=2, comments="#")
    if numbers.shape[1] != len(names):
        raise InvalidSetting(
            f"the trace {path!r} names {len(names)} columns and has {numbers.shape[1]}"
        )
    return numbers[:, used]
