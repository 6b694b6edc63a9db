"""A search over what the paper's text leaves open or may have misprinted: is there a combination
under which all claims hold?

The error of a scheme depends on its gain, step, slope and kind of clipping only. So the error is
measured once on a grid of gains for each of these, with common random numbers, and every
combination only computes gains and interpolates, experiment by experiment."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.evaluation.quality.metrics import squared_errors
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.claims import CLAIMS, Claim
from flmc.papers.qflmc.combinations import CHOICES, LOUDEST, Combination, combinations, gain_of
from flmc.planning.constraints import PAPER_STEP_SIZES
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.sampling.simulation import simulate
from flmc.uplink.links import Sigmoid
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink

TableKey = tuple[str, float, float, str]
"""Scheme, slope, factor of the step, and clipping: what an error depends on beside the gain."""


class ErrorTable:
    """Errors of every experiment on a grid of gains, for each scheme, slope, step and clipping.

    An error is measured when it is first asked for: combinations reach two thirds of the grid."""

    def __init__(self, model: LinearGaussian, seed: int, points: int, engine: str = "auto") -> None:
        self.model, self.seed, self.engine = model, seed, engine
        self.gains = {
            "digital": np.geomspace(0.004, LOUDEST["digital"], points),
            "analog": np.geomspace(1e-4, LOUDEST["analog"], points),
        }
        self._measured: dict[tuple[TableKey, int], Array] = {}

    def _log_errors(self, key: TableKey, index: int) -> Array:
        """Logarithm of the MSE of every experiment at one gain of the grid, (experiment)."""
        if (key, index) not in self._measured:
            gain = float(self.gains[key[0]][index])
            self._measured[key, index] = np.log(self._errors(key, gain))
        return self._measured[key, index]

    def _errors(self, key: TableKey, gain: float) -> Array:
        """MSE of every experiment at one gain, (experiment)."""
        scheme, slope, factor, clipping = key
        uplink: Uplink
        if scheme == "digital":
            uplink = Digital(link=Sigmoid(slope), snr_db=200.0, clipping=clipping)
        else:
            uplink = Analog(snr_db=200.0, clipping=clipping)
        step = PAPER_STEP_SIZES[scheme] * factor
        planned = plan(
            self.model, uplink, Limits(langevin="off"), step_size=step, gain=gain, forecast=False
        )
        return squared_errors(simulate(planned, self.model, self.seed, engine=self.engine).moments)

    def errors(self, key: TableKey, gain: Array) -> Array:
        """Errors at some gains, (gain, experiment): interpolated in logarithms, for each
        experiment.

        Parameters
        ----------
        key
            Which table.
        gain
            Gains, (gain); beyond the grid its ends count.
        """
        grid = np.log(self.gains[key[0]])
        place = np.interp(np.log(gain), grid, np.arange(len(grid)))
        low = np.minimum(place.astype(int), len(grid) - 2)
        share = place - low
        table = np.zeros((len(grid), self.model.num_experiments))
        # At a point of the grid its neighbour counts nothing, and is not measured.
        for index in {*low[share < 1].tolist(), *(low[share > 0] + 1).tolist()}:
            table[index] = self._log_errors(key, index)
        share = share[:, None]
        return np.asarray(np.exp((1 - share) * table[low] + share * table[low + 1]))


@dataclass(frozen=True)
class Found:
    """A combination and the claims that hold under it."""

    combination: Combination
    holds: tuple[str, ...]

    @property
    def changes(self) -> int:
        """How many settings differ from what is printed."""
        printed = [values[0] for values in CHOICES.values()]
        return sum(
            getattr(self.combination, f.name) != p
            for f, p in zip(fields(self.combination), printed, strict=True)
        )


Curve = tuple[Array, Array]


class Figures:
    """The three figures under a combination, from a table; combinations share a curve where they
    do not differ in what its scheme depends on, or where the same limits bind."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = table
        self._curves: dict[object, Curve] = {}
        self._of_gains: dict[object, Curve] = {}

    def of(self, combination: Combination) -> dict[str, dict[str, Curve]]:
        """The curves of the three figures under a combination, by number of the figure and name.

        Parameters
        ----------
        combination
            How the text is taken.
        """
        snr = [(x, x, readings.EPSILON_OF_SNR_FIGURE) for x in readings.SNR_DB]
        epsilons = [(x, readings.SNR_OF_EPSILON_FIGURES, x) for x in readings.EPSILONS]
        slopes = [(x, readings.SNR_OF_EPSILON_FIGURES, x) for x in readings.EPSILONS_OF_SLOPES]
        both = ("digital", "analog")
        return {
            "2": {scheme: self._curve("2", combination, scheme, 0.05, snr) for scheme in both},
            "3": {scheme: self._curve("3", combination, scheme, 0.05, epsilons) for scheme in both},
            "4": {
                f"a = {a:g}": self._curve("4", combination, "digital", a, slopes)
                for a in readings.SLOPES
            },
        }

    def _curve(
        self,
        figure: str,
        combination: Combination,
        scheme: str,
        slope: float,
        points: list[tuple[float, float, float]],
    ) -> Curve:
        digital = scheme == "digital"
        factor = combination.digital_step if digital else combination.analog_step
        # Without what the scheme does not depend on, so that combinations share the curve.
        own = (
            *(figure, scheme, slope, factor),
            *(combination.power, combination.accountant, combination.clipping),
            combination.limits_noise(scheme),
            "" if digital else combination.half,
        )
        if own not in self._curves:
            key = (scheme, slope if digital else 0.0, factor, combination.clipping)
            gains = tuple(
                gain_of(combination, scheme, slope, snr, epsilon) for _, snr, epsilon in points
            )
            same = (figure, key, gains)
            if same not in self._of_gains:
                self._of_gains[same] = (
                    np.array([x for x, _, _ in points]),
                    self._table.errors(key, np.array(gains)),
                )
            self._curves[own] = self._of_gains[same]
        return self._curves[own]


class _Judge:
    """Says which claims hold; one whose curves are those of before is not judged again."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, bool]] = {}

    def holding(self, figures: dict[str, dict[str, Curve]]) -> tuple[str, ...]:
        """Names of the claims that hold in the figures of a combination."""
        return tuple(
            name
            for name, claim in CLAIMS.items()
            if self._holds(name, claim, figures.get(claim.figure, {}))
        )

    def _holds(self, name: str, claim: Claim, curves: dict[str, Curve]) -> bool:
        key = (name, *(id(curves[curve]) for curve in claim.curves or curves))
        if key not in self._known:
            # Kept with the curves: an object that lives keeps its id, so the key stays unique.
            self._known[key] = (curves, claim.judge(curves).holds is True)
        return self._known[key][1]


def search(table: ErrorTable, progress: Progress | None = None) -> list[Found]:
    """Judge every combination; those with most claims first, fewest changes first among them.

    Parameters
    ----------
    table
        Errors that were measured.
    progress
        Called with the finished fraction now and then.
    """
    found = []
    everything = list(combinations())
    figures, judge = Figures(table), _Judge()
    for index, combination in enumerate(everything):
        found.append(Found(combination, judge.holding(figures.of(combination))))
        if progress is not None:
            progress((index + 1) / len(everything))
    return sorted(found, key=lambda f: (-len(f.holds), f.changes))
