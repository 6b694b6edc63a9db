"""What the commands print: plans and results in words, for a reader who does not know the paper."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from flmc.diagnostics import diagnose
from flmc.errors import InvalidSetting, MissingExtra
from flmc.plan import Plan
from flmc.reproduce.study import Study
from flmc.run import Result
from flmc.spending import NEIGHBOURING
from flmc.sweep import Sweep
from flmc.table import format_grid, format_number

ADVERSARY = "an honest-but-curious server that sees every received signal and knows all other devices' symbols"
_CONSTRAINTS = {
    "power": "transmit power",
    "langevin": "noise that the sampler needs",
    "privacy": "privacy budget",
}


def print_plan(plan: Plan, what_if: Mapping[str, Plan], *, with_run: bool = True) -> None:
    """A plan on standard output."""
    Console().print(show_plan(plan, what_if, with_run=with_run))


def print_result(result: Result, record: Path | None) -> None:
    """Metrics on standard output, and where the record is."""
    console = Console()
    console.print(show_result(result))
    if record is not None:
        console.print(f"record: {record}")


def print_sweep(done: Sweep, out: Path, picture: Path | None) -> None:
    """The table of a sweep, as far as a screen holds it."""
    names = [
        *done.grid.axes,
        "gain_used",
        "binding",
        "temperature",
        "epsilon_run",
        "variance_ratio",
        "wasserstein2_squared",
        "effective_step_size",
        "rounds_needed",
    ]
    header = [name for name in names if any(row.get(name) is not None for row in done.rows)]
    rows = [[_cell(row.get(name)) for name in header] for row in done.rows[:_MOST_ROWS]]
    console = Console()
    console.print(format_grid(header, rows), soft_wrap=True)
    if len(done.rows) > _MOST_ROWS:
        console.print(f"... and {len(done.rows) - _MOST_ROWS} more")
    warned = sum(bool(row.get("warnings")) for row in done.rows)
    if warned:
        console.print(f"{warned} of {len(done.rows)} plans have warnings: see the column `warnings` of the table")
    if done.num_failed:
        first = next(row for row in done.rows if row["error"] is not None)
        console.print(f"{done.num_failed} of {len(done.rows)} points failed, the first with: {first['error']}")
    console.print(f"table: {out / 'table.csv'}" + (f", picture: {picture}" if picture is not None else ""))


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.5g}" if isinstance(value, float) else str(value)


_MOST_ROWS = 40


@contextmanager
def show_progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar with the time left on standard error, if that is a terminal and the work takes longer than a second."""
    console = Console(stderr=True)
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    task = bar.add_task(what, total=1.0)
    began = time.monotonic()

    def progress(fraction: float) -> None:
        if time.monotonic() - began > 1.0:
            bar.start()
        bar.update(task, completed=fraction)

    try:
        yield progress
    finally:
        bar.stop()


@contextmanager
def show_stages() -> Iterator[Callable[[str], Callable[[float], None]]]:
    """A bar with the time left for each stage of long work, on standard error, if that is a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:

        def stage(name: str) -> Callable[[float], None]:
            task = bar.add_task(name, total=1.0)
            return lambda fraction: bar.update(task, completed=fraction)

        yield stage


def print_study(study: Study, out: Path) -> None:
    """The verdicts, and where the rest is."""
    console = Console()
    if study.verdicts:
        table = Table(title=f"claims of the paper, {study.experiments} experiments", title_justify="left")
        for name in ("claim", *study.verdicts):
            table.add_column(name)
        for key, first in next(iter(study.verdicts.values())).items():
            cells = [verdicts[key].word for verdicts in study.verdicts.values()]
            table.add_row(first.claim, *cells)
        console.print(table)
    console.print(f"report: {out / 'report.html'}")


def show_plan(plan: Plan, what_if: Mapping[str, Plan], *, with_run: bool = True) -> RenderableType:
    """A plan: what limits the gain, what relaxing would bring, temperature, privacy."""
    parts: list[RenderableType] = [_limits(plan), Text(), _facts(plan, with_run)]
    if what_if:
        parts += [Text(), _what_if(plan, what_if, with_run)]
    parts += [Text(f"warning: {text}", style="yellow") for text in plan.warnings]
    return Group(*parts)


def _limits(plan: Plan) -> Table:
    uplink = plan.uplink
    radio = "" if math.isinf(uplink.snr_db) else f", {uplink.snr_db:g} dB"
    table = Table(
        title=f"{uplink.scheme} uplink, {plan.num_devices} devices, {plan.dim} entries{radio}", title_justify="left"
    )
    table.add_column("the gain is limited by")
    table.add_column("largest gain", justify="right")
    table.add_column("")
    for name, words in _CONSTRAINTS.items():
        mark = "<- decides" if plan.binding == name else ""
        table.add_row(words, format_number(getattr(plan.gain_limits, name)), mark)
    table.add_row(
        "gain used", format_number(plan.typical_gain), "given" if plan.binding == "given" else "", style="bold"
    )
    return table


def _facts(plan: Plan, with_run: bool) -> Table:
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    step = f"{format_number(plan.step_size)} (effective {format_number(plan.effective_step_size)})"
    allowed = getattr(plan.gain_limits, plan.binding, math.inf)
    if plan.binding != "langevin" and math.isclose(plan.gain_limits.langevin, allowed, rel_tol=1e-9):
        step += f"; so small because the {_CONSTRAINTS[plan.binding]} allows no more gain, and the noise must be right"
    table.add_row("step size", step)
    table.add_row("temperature", temperature_in_words(plan.temperature, sure=not plan.warnings))
    if plan.prediction is not None:
        p = plan.prediction
        table.add_row(
            "predicted",
            f"variance {p.variance_ratio:.4g} times the posterior's; mean off by"
            f" {_percent(p.relative_mean_error)} of trace(Sigma), squared; {_percent(p.clipped_fraction)} clipped",
        )
    needed = "unknown (no convexity given)" if plan.rounds_needed is None else f"about {plan.rounds_needed}"
    faster = plan.burn_in_step_factor
    early = "" if faster == 1 else f" (the first {plan.num_fast} with {faster:.3g} times the step)"
    table.add_row(
        "rounds", f"{plan.num_rounds}, of which {plan.num_burn_in} burn-in{early}; needed for burn-in: {needed}"
    )
    if plan.limits.allocation == "adaptive":
        table.add_row("allocation", _allocation_in_words(plan))
    for name, text in privacy_in_words(plan, with_run):
        table.add_row(name, text)
    return table


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %" if share == 0 or share >= 1e-6 else "less than 0.0001 %"


def _allocation_in_words(plan: Plan) -> str:
    low, high = float(plan.gain.min()), float(plan.gain.max())
    if high <= low * (1 + 1e-9):
        return "adaptive, but all rounds have the same gain: other limits leave nothing to allot"
    return f"adaptive: gains from {format_number(low)} to {format_number(high)}, the loudest where noise matters most"


def temperature_in_words(temperature: float | None, sure: bool = True) -> str:
    """What a temperature means; `sure` if nothing else speaks against it."""
    if temperature is None:
        return "unknown: the link has no slope"
    if temperature > 1.05:
        meaning = f"too hot: samples spread {temperature:.3g} times as wide in variance as the posterior"
    elif temperature < 0.95:
        meaning = "too cold: samples collapse towards the mode"
    else:
        meaning = "right: samples spread like the posterior" if sure else "the noise is right, but see the warnings"
    return f"{temperature:.4g}, {meaning}"


def privacy_in_words(plan: Plan, with_run: bool = True) -> list[tuple[str, str]]:
    """Privacy of a round and of the run, with all that a statement needs."""
    exposure, once = plan.exposure, plan.round_cost
    if exposure is None or once is None:
        return [("privacy", "none: the ideal uplink transmits exact gradients")]
    criteria = {
        "tight": "standard differential privacy",
        "tail": "probability of a larger loss at the worst pair",
        "paper": "the paper's bound",
    }
    rows = []
    limits = plan.limits
    if limits.epsilon is not None and limits.privacy != "off":
        what = (
            f"one round, delta {limits.delta:g}" if limits.scope == "round" else f"the run, delta {limits.run_delta:g}"
        )
        rows.append(("privacy budget", f"epsilon {limits.epsilon:g} for {what}"))
    if limits.scope == "round" or not with_run:  # the delta of a round says little about a run
        covered = "; nothing beyond what this delta allows anyway" if once.epsilon == 0 else ""
        rows.append(("privacy, one round", f"{once} ({limits.criterion}: {criteria[limits.criterion]}){covered}"))
    if with_run and plan.run_cost is not None:
        rows.append(("privacy, whole run", f"{plan.run_cost}, over {exposure.num_rounds} rounds of one chain (tight)"))
        if plan.run_cost.epsilon >= exposure.run.largest_loss * (1 - 1e-9):
            rows.append(("", "that is the bound without any noise: a delta this small cannot be resolved"))
        if plan.run_cost.epsilon > 20:
            rows.append(("", "such an epsilon for the whole run guarantees next to nothing"))
    rows += [("neighbouring", NEIGHBOURING[plan.limits.neighbouring]), ("adversary", ADVERSARY)]
    bound = exposure.round.largest_loss
    if math.isfinite(bound):
        rows.append(
            ("without noise", f"a round would cost epsilon {format_number(bound)}, so no SNR makes it cost more")
        )
    if plan.data_dependent:
        rows.append(
            (
                "data dependent",
                "yes: the step was computed from the devices' data. This is a simulation, not a privacy"
                " statement for a deployment; give public_smoothness and public_convexity, or a step",
            )
        )
    return rows


def _what_if(plan: Plan, what_if: Mapping[str, Plan], with_run: bool) -> Table:
    table = Table(title="what relaxing would bring", title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("if", no_wrap=True)
    columns = ["gain", "binds", "step", "temper-\nature", "burn-in\nneeded", "epsilon\nround"]
    columns += ["epsilon\nrun"] if with_run else []
    for name in columns:
        table.add_column(name, justify="right", no_wrap=True)
    for name, other in {"as planned": plan, **what_if}.items():
        costs = [other.round_cost, *([other.run_cost] if with_run else [])]
        numbers = [other.temperature, other.rounds_needed, *(None if cost is None else cost.epsilon for cost in costs)]
        cells = [_short(other.typical_gain), other.binding, _short(other.step_size), *map(_short, numbers)]
        table.add_row(name, *cells)
    return table


def _short(value: float | None) -> str:
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else str(value) if isinstance(value, int) else f"{value:.3g}"


def _agreement(result: Result) -> str:
    """Whether the chains agree, as far as that can be told."""
    try:
        return f"\nchains: {diagnose(result)}"
    except (InvalidSetting, MissingExtra):
        return ""


def show_result(result: Result) -> RenderableType:
    """Metrics of a run with their standard errors, beside what was predicted."""
    metrics, prediction = result.metrics, result.plan.prediction
    if metrics is None:
        return Text(f"{result}{_agreement(result)}")
    title = f"{len(result.mean)} data set(s), {result.num_chains} chain(s) each"
    title += f", {metrics.num_draws} draws a data set, {result.seconds:.1f} s CPU"
    table = Table(title=title, title_justify="left")
    table.add_column("against the exact posterior", no_wrap=True)
    table.add_column("measured", justify="right")
    table.add_column("expected", justify="right")
    # The variance about a mean of few draws is too small, and their mean is off, even for exact draws.
    few = 1 / metrics.independent_draws
    ratio, shift, source = 1 - few, few * metrics.posterior_trace, "exact draws"
    if prediction is not None:
        ratio, shift, source = ratio * prediction.variance_ratio, shift + prediction.mean_error_squared, "predicted"
    table.add_row("variance ratio", str(metrics.variance_ratio), f"{ratio:.3g} ({source})")
    table.add_row("  smallest over directions", str(metrics.variance_ratio_smallest), "")
    table.add_row("  largest over directions", str(metrics.variance_ratio_largest), "")
    table.add_row("squared mean error", str(metrics.mean_error_squared), f"{shift:.2g} ({source})")
    best = f"{metrics.wasserstein2_floor:.2g} (exact draws)"
    table.add_row("squared W2 distance", str(metrics.wasserstein2_squared), best)
    table.add_row("MSE", str(metrics.mse), f"{metrics.posterior_trace:.4g} (exact draws)")
    notes: list[RenderableType] = []
    if prediction is not None:
        off = abs(metrics.variance_ratio.mean - ratio)
        if off > 5 * metrics.variance_ratio.se + 0.1 * prediction.variance_ratio:
            text = "note: the variance ratio is far from what was predicted: a burn-in too short, or deep fades"
            notes.append(Text(text, style="yellow"))
    if result.num_undefined:
        notes.append(Text(f"warning: {result.num_undefined} gradient entries were not finite", style="yellow"))
    if metrics.independent_draws < 20:
        share = 100 / metrics.independent_draws
        notes.append(
            Text(
                f"note: with {metrics.independent_draws:.1f} independent draws a data set the variance ratio is about"
                f" {share:.0f} % lower than with many, as `expected` says; use more chains to judge it",
                style="yellow",
            )
        )
    return Group(table, *notes)
