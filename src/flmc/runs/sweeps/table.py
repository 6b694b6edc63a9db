"""The table of a sweep over combinations of settings, on the screen and as files, and
``flmc.sweep``, which makes one."""

from __future__ import annotations

import importlib.util
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.base.progress import Progress
from flmc.base.tables import Grid, Row, format_up
from flmc.evaluation.data_sets import PAIRED_IN_WORDS, PairedDifference
from flmc.planning.fairness import QUANTITIES
from flmc.runs.files.durable_files import write_atomically, write_table
from flmc.runs.sweeps.reservations import reservations_in_words, reservations_of

_SHOWN = (
    "gain_used",
    "binding",
    "temperature",
    "temperature_of_runs",
    "epsilon_run",
    "effective_draws",
    "variance_ratio",
    "wasserstein2_squared",
    "one_chain_mean_error",
    "r_hat",
    "ess_bulk",
    "stein_ratio",
    "mean_shift",
    "accuracy",
    "log_loss",
    "effective_step_size",
    "rounds_needed",
    "rounds_to_arrive",
    "verdict",
)
"""Columns of a sweep's table that the screen shows, where a point has a value, beside the settings
that vary."""
_SHOWN_OF_PLANS = (
    "gain_used",
    "binding",
    "temperature",
    "temperature_of_runs",
    "epsilon_round",
    "epsilon_run",
    "effective_draws",
    "predicted_variance_ratio",
    "predicted_mean_shift",
    "rounds_needed",
    "rounds_to_arrive",
    "verdict",
    "headline",
)
"""Columns that the screen shows, where a point has a value, of a sweep whose points were planned
and not run."""
_MOST_ROWS = 40
PROVENANCE = "provenance"
"""Key of a row under which a worker enters which flmc, libraries and processor computed the row. In
the file of a finished point it has only the digest of these facts."""
DATA_SETS = "data_sets"
"""Key under which a row has the values of single data sets: arrays (experiment) by name of the
metric. They are left out of the main table, and written to a file of their own."""


PAIRED_SHOWN = ("variance_ratio", "wasserstein2_squared", "one_chain_mean_error")
"""Metrics whose paired differences the screen shows."""


def _cell(name: str, row: Mapping[str, Any], heavy: Collection[str] = ()) -> str:
    """Text of the value ``name`` in a row; an epsilon is rounded up, so that it stays an upper
    bound. If ``heavy`` has the name, the metric is shown by its median, with quartiles in brackets;
    any other measurement has its standard error, or a question mark where the error is not
    known."""
    value = row.get(name)
    if value is not None and name in heavy and row.get(f"{name}_median") is not None:
        low, high = (row[f"{name}_{end}"] for end in ("q25", "q75"))
        return f"{row[f'{name}_median']:.4g} [{low:.3g}, {high:.3g}]"
    if isinstance(value, float) and row.get("chains") is not None and f"{name}_se" in row:
        error = row[f"{name}_se"]
        return f"{value:.4g} ± " + ("?" if error is None else f"{error:.2g}")
    if isinstance(value, float):
        return format_up(value) if name.startswith("epsilon_") else f"{value:.5g}"
    return "-" if value is None else str(value)


@dataclass(frozen=True)
class Sweep:
    """All points of a sweep's grid with their rows, in the order of the grid. Made by
    :func:`flmc.sweep`.

    Attributes
    ----------
    axes
        Settings that vary, by name, each with its values.
    rows
        A dict for each point: the settings that vary, the columns of its plan, the measurements,
        and ``error``, which is None for a point that is done.
    num_distinct
        Number of points that were computed: points whose settings have the same effect are computed
        once.
    plan_only
        Whether the points were planned and not run.
    base
        Settings that were given for all points.
    paired
        A dict for each metric of each point whose method is compared with the first on the same
        data sets: ``against``, the first method, ``metric``, and mean, median and errors of the
        differences; empty for one data set.
    equal
        Quantity in which methods were made equal; None: each point was planned by itself.
    methods
        Name of the varying setting whose values are compared as methods; None: no methods are
        compared.
    provenance
        Software and processors that computed the points: versions of flmc and libraries, digest of
        flmc's sources, and processor, by the digest of all that. Points that an earlier version
        computed have none.
    """

    axes: dict[str, list[Any]]
    rows: list[dict[str, Any]]
    num_distinct: int
    plan_only: bool = False
    base: dict[str, Any] = field(default_factory=dict)
    paired: list[dict[str, Any]] = field(default_factory=list)
    equal: str | None = None
    methods: str | None = None
    provenance: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __str__(self) -> str:
        return "\n\n".join(str(grid) for grid in self.grids())

    def grids(self) -> tuple[Grid, ...]:
        """The tables for the screen: the main columns, and paired differences where there are
        some."""
        pairs = self.pairs()
        return (self.table(),) if pairs is None else (self.table(), pairs)

    def pairs(self) -> Grid | None:
        """A table of the paired differences of the main metrics, a row for each point that is
        compared with the first method, at most 40; None where nothing is paired."""
        if not self.paired:
            return None
        cells: dict[tuple[str, ...], dict[str, str]] = {}
        for each in self.paired:
            place = tuple(_cell(name, each) for name in self.axes)
            if each["metric"] in PAIRED_SHOWN:
                cells.setdefault(place, {})[each["metric"]] = _difference(each)
        names = [name for name in PAIRED_SHOWN if any(name in each for each in cells.values())]
        rows = tuple((*place, *(each.get(n, "-") for n in names)) for place, each in cells.items())
        first = self.paired[0]
        title = (
            f"less {self.methods} {first['against']}, on the same {first['data_sets']} data sets"
        )
        notes = [Row("errors", PAIRED_IN_WORDS)]
        if len(rows) > _MOST_ROWS:
            notes.insert(0, Row("", f"... and {len(rows) - _MOST_ROWS} more"))
        return Grid((*self.axes, *names), rows[:_MOST_ROWS], title, tuple(notes))

    @property
    def data_sets(self) -> list[dict[str, Any]]:
        """A row for each data set of each point: the settings that vary, the number of the data
        set from 0, and its values of the metrics; empty for one data set."""
        return [
            {
                **{name: row[name] for name in self.axes},
                "data_set": index,
                **{name: values[index] for name, values in row[DATA_SETS].items()},
            }
            for row in self.rows
            if row.get(DATA_SETS)
            for index in range(len(next(iter(row[DATA_SETS].values()))))
        ]

    def write(self, out: Path) -> None:
        """Write the tables as files; equal rows give equal bytes.

        Parameters
        ----------
        out
            Directory of ``table.csv`` and, where there are paired differences, ``paired.csv``;
            where pyarrow is installed also of ``table.parquet`` and, for several data sets,
            ``data_sets.parquet``.
        """
        _write_csv(out / "table.csv", self.rows)
        parquet = {"table": self.rows, "data_sets": self.data_sets}
        if self.paired:
            _write_csv(out / "paired.csv", self.paired)
        else:  # remove the file of an earlier sweep in this directory
            (out / "paired.csv").unlink(missing_ok=True)
        for name, rows in parquet.items():
            _write_parquet(out / f"{name}.parquet", rows)

    @property
    def missing_tables(self) -> str:
        """A sentence that names the tables that are not written because pyarrow is not installed;
        empty if pyarrow is installed."""
        if importlib.util.find_spec("pyarrow") is not None:
            return ""
        names = "table.parquet"
        names += " and data_sets.parquet, the values of single data sets" if self.data_sets else ""
        return f"not written for want of pyarrow: {names} (pip install 'flmc[sweep]')"

    @property
    def _shown(self) -> list[str]:
        """Names of the columns that the screen shows where a point has a value."""
        return [*self.axes, *(_SHOWN_OF_PLANS if self.plan_only else _SHOWN)]

    @property
    def heavy_metrics(self) -> list[str]:
        """Metrics on the screen that have heavy tails over the data sets at some point. All points
        show the median of such a metric, because medians and means in one column could not be
        compared."""
        named = {each for r in self.rows for each in (r.get("heavy_tails") or "").split("; ")}
        return [name for name in self._shown if name in named]

    def table(self) -> Grid:
        """A table of the main columns, a row for each of the first 40 points, with notes below."""
        # The column of the squared W2 distance is shown even if all its cells are dashes, because a
        # note below the table explains the dashes.
        known = {name for row in self.rows for name, value in row.items() if value is not None}
        if "wasserstein2_floor" in known:
            known.add("wasserstein2_squared")
        header = [name for name in dict.fromkeys(self._shown) if name in known]
        heavy = self.heavy_metrics
        cells = tuple(
            tuple(_cell(name, row, heavy) for name in header) for row in self.rows[:_MOST_ROWS]
        )
        return Grid(tuple(header), cells, notes=tuple(self._notes()))

    def _notes(self) -> Iterator[Row]:
        """Notes below the table: numbers of points that are not shown and of points that equal
        others, how methods were made equal, which columns are medians, chains that epsilon covers,
        warnings and failures."""
        count = len(self.rows)
        if count > _MOST_ROWS:
            yield Row("", f"... and {count - _MOST_ROWS} more")
        if self.num_distinct < count:
            yield Row("", f"{self.num_distinct} of {count} points differ: each was computed once")
        if self.equal is not None:
            definition = QUANTITIES[self.equal].definition
            yield Row(f"equal {self.equal}", f"{definition}; equal_by says what was changed")
            if self.bounded_energies:
                text = f"of {self.bounded_energies} the energy is an upper bound, not what it takes"
                yield Row("", text, severity="warning")
        for name in self.heavy_metrics:
            some = sum(name in (row.get("heavy_tails") or "").split("; ") for row in self.rows)
            text = (
                f"medians [middle half of data sets] at all points, because {some} of {count} have"
                f" heavy tails (a mean outside the middle half); the table has {name}_median_low"
                f" and {name}_median_high, a 95 % interval of the median, if there are 6 data sets"
            )
            yield Row(name, text)
        cells = (_cell(name, row, self.heavy_metrics) for row in self.rows for name in self._shown)
        if any(" ± " in cell for cell in cells):
            text = "standard error; ? where it is not known, and the value may be chance alone"
            yield Row("±", text)
        tested = [row for row in self.rows if row.get("held_out")]
        if tested:
            # Imported here, because it loads the models, which few tables need.
            from flmc.runs.scores import note_on_test_set

            accuracies = [row["accuracy"] for row in tested if row.get("accuracy") is not None]
            fewest = min(row["held_out"] for row in tested)
            yield Row("", note_on_test_set(fewest, accuracies))
        noted = [row["notes"] for row in self.rows if row.get("notes")]
        if noted:
            text = f"{len(noted)} of {count} points have notes (column `notes`), the first:"
            yield Row("", f"{text} {noted[0]}", severity="warning")
        chains = {row["chains"] for row in self.rows if row.get("chains_covered") is not None}
        if chains and max(chains) > 1:
            text = (
                "epsilon_run covers one chain; all chains of a point, if they were given out, would"
                " cost epsilon_all_chains. one_chain_mean_error is what one chain delivers, as a"
                " share of trace(Sigma); the other measured columns are of all chains together"
            )
            yield Row("", text)
        followed = sum(row.get("rounds_to_arrive") is not None for row in self.rows)
        if followed:
            text = (
                "burn-in by the rule for any start; rounds_to_arrive, that of chains followed from"
                f" likely starts, is what {followed} of {count} points are judged and warned by"
            )
            yield Row("rounds_needed", text)
        for text in self.reservations:
            yield Row("privacy", text, severity="warning")
        warned = sum(bool(row.get("warnings")) for row in self.rows)
        if warned:
            text = (
                f"{warned} of {count} plans have warnings: see the column `warnings` of the table"
            )
            yield Row("", text, severity="warning")
        if self.num_failed:
            first = next(row for row in self.rows if row["error"] is not None)
            text = f"{self.num_failed} of {count} points failed, the first with: {first['error']}"
            yield Row("", text, severity="bad")

    @property
    def reservations(self) -> list[str]:
        """Sentences about what limits the epsilons of the table: that a user's own class states
        them, or that plans were computed from the devices' data. Empty where nothing limits
        them."""
        return reservations_in_words(reservations_of(self.rows))

    @property
    def bounded_energies(self) -> str:
        """In a comparison at equal energy, the methods whose energy is only an upper bound, in
        words; empty if there are no such methods, if all are such, or if methods are not equal in
        energy."""
        bounds = {
            row[self.methods]: row["energy_is_bound"]
            for row in self.rows
            if self.methods is not None and row.get("energy_is_bound") is not None
        }
        if self.equal != "energy" or len(set(bounds.values())) < 2:
            return ""
        names = [str(name) for name, is_bound in bounds.items() if is_bound]
        return f"{self.methods} {' and '.join(names)}"

    @property
    def num_failed(self) -> int:
        """Number of points that failed, whose rows have an ``error``."""
        return sum(row["error"] is not None for row in self.rows)

    def to_document(self) -> dict[str, Any]:
        """The table in plain values, for JSON: rows of all points, paired differences, provenance,
        and the numbers of failed and of distinct points."""
        return {
            "schema_version": ANSWER_VERSION,
            "plan_only": self.plan_only,
            "rows": [_without_data_sets(row) for row in self.rows],
            "equal": self.equal,
            "methods": self.methods,
            "paired": self.paired,
            "provenance": self.provenance,
            "failed": self.num_failed,
            "distinct": self.num_distinct,
        }

    def to_pandas(self) -> Any:
        """The rows as a DataFrame of pandas, which must be installed.

        Raises
        ------
        MissingExtra
            If pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra(
                "to_pandas needs pandas, which is not installed: pip install pandas"
            ) from error
        return pandas.DataFrame(
            [_without_data_sets(row) for row in self.rows], columns=columns_of(self.rows)
        )


def columns_of(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Names of all columns of some rows, in the order in which they first appear, with ``error``
    last and without the values of single data sets."""
    names = dict.fromkeys(name for row in rows for name in row if name != DATA_SETS)
    last = ["error"] if "error" in names else []
    names.pop("error", None)
    return [*names, *last]


def _without_data_sets(row: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of ``row`` without its values of single data sets, which the main table leaves out."""
    return {name: value for name, value in row.items() if name != DATA_SETS}


def _difference(each: Mapping[str, Any]) -> str:
    """Text of a paired difference, a row of ``Sweep.paired``: mean and standard error, or the
    median with its interval where tails are heavy."""
    unknown: dict[str, Any] = dict.fromkeys(PairedDifference._fields, math.nan)
    known = {name: each[name] for name in unknown if each[name] is not None}
    return str(PairedDifference(**{**unknown, **known}))


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, in which None is empty."""
    names = columns_of(rows)
    filled = [{name: row.get(name) for name in names} for row in rows]
    write_table(path, [{k: "" if v is None else v for k, v in row.items()} for row in filled])


def _write_parquet(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a Parquet file where pyarrow is installed; without rows, or without pyarrow,
    the file of an earlier sweep is removed."""
    if not rows or importlib.util.find_spec("pyarrow") is None:
        path.unlink(missing_ok=True)
        return
    import pyarrow
    import pyarrow.parquet

    columns = {name: _column([row.get(name) for row in rows]) for name in columns_of(rows)}
    table = pyarrow.table(columns)
    write_atomically(path, lambda stream: pyarrow.parquet.write_table(table, stream))


def _column(values: list[Any]) -> list[Any]:
    """The values of one column converted to a single type, as Parquet needs it: a column that mixes
    numbers and words becomes text."""
    # Parquet's whole numbers have 64 bits; a larger one, a seed perhaps, becomes a float.
    values = [float(v) if isinstance(v, int) and abs(v) >= 2**63 else v for v in values]
    kinds = {type(v) for v in values if v is not None}
    if kinds <= {int, float} or (len(kinds) <= 1 and not kinds & {list, tuple, dict}):
        return [float(v) if kinds == {int, float} and v is not None else v for v in values]
    return [None if v is None else str(v) for v in values]


def sweep(
    settings: Mapping[str, Any] | str | Path,
    *,
    vary: Mapping[str, Iterable[Any] | Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    plan_only: bool = False,
    equal: str | None = None,
    across: str | None = None,
    hold_out: float | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Plan and run every point of a grid of settings, each on one thread, and return a table.

    Parameters
    ----------
    settings
        Settings that all points share, by the names of the command line (``snr_db``, ``rounds``);
        or the path of a TOML file with them, which may have a table ``[sweep]``.
    vary
        Settings that vary, by name: each a list of values, or a range ``{"start", "stop", "count",
        "spacing"}``. They are added to those of a table ``[sweep]``, and override them.
    out
        Directory where the table and finished points are kept, so that a second call computes only
        what is missing; None: nothing is written.
    workers
        Number of processes. None: that of the processors, or 1 (this process) for ``plan_only``,
        where a point takes milliseconds.
    plan_only
        Whether to plan only: the table then has the columns of plans, and nothing is simulated.
    equal
        Quantity in which methods are made equal before they are run: ``step``, ``privacy``,
        ``energy`` or ``airtime``, defined in :data:`flmc.planning.fairness.QUANTITIES`; methods are
        the points that differ in the setting ``across`` alone. None: each point is planned by
        itself.
    across
        The varying setting whose values are methods, compared on the same data sets. None: the
        scheme if it varies, else the first varying setting whose values are words.
    hold_out
        Share of every device's examples that is held out and predicted: accuracy or squared error,
        and log loss; None: none is.
    progress
        Called with the finished fraction now and then.

    Returns
    -------
    Sweep
        ``rows`` has a dict for each point, ``print`` shows the main columns. A point that failed is
        a row with its ``error``.

    Raises
    ------
    InvalidSetting
        If a setting is unknown, out of bounds or given twice, or nothing varies.
    RunFailed
        If ``out`` cannot be written.

    Examples
    --------
    >>> planned = flmc.sweep(
    ...     {"devices": 4, "samples": 80}, vary={"snr_db": [0, 30]}, plan_only=True
    ... )
    >>> [row["binding"] for row in planned.rows]
    ['power', 'langevin']
    >>> small = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "engine": "numpy"}
    >>> done = flmc.sweep(small, vary={"scheme": ["digital", "analog"]}, workers=1)
    >>> [row["scheme"] for row in done.rows], done.num_failed
    (['digital', 'analog'], 0)
    """
    # Imported here, because it loads pydantic, which `import flmc` does without.
    from flmc.runs.sweeps.grid import read_grid
    from flmc.runs.sweeps.grid_run import run_grid
    from flmc.runs.sweeps.workers import on_this_machine
    from flmc.settings.schema import read_file

    if isinstance(settings, Mapping):
        document = dict(settings)
    elif isinstance(settings, (str, Path)):
        document = read_file(Path(settings))
    else:
        raise InvalidSetting(
            f"settings must be a mapping, or the path of a TOML file; got {type(settings).__name__}"
        )
    if vary is not None:
        document["sweep"] = {**document.get("sweep", {}), **_axes(vary)}
    if workers is None:
        workers = 1 if plan_only else os.cpu_count() or 1
    work = on_this_machine(checks.at_least("workers", workers, 1), plan_only=plan_only)
    place = None if out is None else Path(out)
    asked = {"equal": equal, "across": across, "hold_out": hold_out}
    document |= {name: value for name, value in asked.items() if value is not None}
    return run_grid(read_grid(document, {}), place, work, progress, plan_only=plan_only)


def _axes(vary: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that vary, by name, as a TOML file would give them: tuples, Python ranges and
    arrays become lists. A range by ``start``, ``stop`` and ``count`` stays as it is."""
    if not isinstance(vary, Mapping):
        raise InvalidSetting(
            f"vary must be a dict of lists or ranges by setting, got {type(vary).__name__}"
        )
    axes: dict[str, Any] = {}
    for name, values in vary.items():
        if hasattr(values, "tolist"):  # an array of NumPy or of a similar library
            axes[name] = values.tolist()
        elif isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            axes[name] = values
        else:
            axes[name] = [each.item() if hasattr(each, "item") else each for each in values]
    return axes
