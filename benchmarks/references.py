"""Draws against reference draws: `make references` writes ``docs/references.md``.

The posteriors of posteriordb, dealt to eight devices at random and sorted by target, digital and
analog, and two hierarchies with a group on each device, planned with everything automatic and run.
Beside the verdicts of plan, run and server stand the errors of the draws, and what an effective
draw costs, there and with NUTS on the pooled data."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from judged_rows import (
    Job,
    confusion,
    false_goods,
    gather,
    in_a_line,
    in_full,
    in_paragraphs,
    made_on,
    number,
    said,
    summary,
    table,
)  # fmt: skip

CHAINS = 8
"""Independent chains of each plan."""
SCHEMES = ("digital", "analog")


def _uplink(scheme: str) -> tuple[Any, dict[str, Any]]:
    """The uplink of a scheme, and what its plan leaves to the planner."""
    import flmc
    from judging import SNR_DB

    if scheme == "digital":
        return flmc.Digital(snr_db=SNR_DB), {"clip": "auto", "link": "auto"}
    return flmc.Analog(snr_db=SNR_DB), {"clip": "auto"}


def _judged(
    case: str, deal: str, scheme: str, model: Any, compare: Any, chains: int
) -> dict[str, Any]:
    """A row of one model; a refused plan is a row too."""
    import flmc
    from judging import judge, planned

    uplink, settings = _uplink(scheme)
    try:
        row = judge(
            case, deal, scheme, model, lambda: planned(model, uplink, **settings), compare, chains
        )
    except flmc.errors.InvalidSetting as error:
        return {"case": case, "deal": deal, "scheme": scheme, "refused": str(error)}
    return in_full(row)


def posterior_rows(name: str, deal: str, scheme: str, chains: int = CHAINS) -> list[dict[str, Any]]:
    """The row of one posterior, dealt in one way to eight devices, with one scheme."""
    from judging import Distance
    from posteriors import posterior

    given = posterior(name)
    reference = given.reference()
    model = given.model(deal)

    def compare(draws: Any) -> Distance:
        return Distance.measured(
            given.columns(model, draws),
            reference.mean,
            reference.sd,
            reference.mean_error,
            reference.variance_error,
            reference.draws,
        )

    return [_judged(name, deal, scheme, model, compare, chains)]


def hierarchy_rows(
    name: str, where: str, scheme: str, chains: int = CHAINS
) -> list[dict[str, Any]]:
    """The row of one hierarchy with a group on each device, whose levels are ``local`` or travel
    (``all``), with one scheme."""
    from hierarchies import LOCAL_DRAWS, hierarchy
    from judging import Distance, fewest_draws
    from posteriors import posterior

    given = hierarchy(name)
    reference = posterior(name).reference()
    model = given.model(local=where == "local")

    def compare(draws: Any) -> Distance:
        # Local parameters are drawn for some draws of theta; how many draws the run is worth is
        # that of theta, of which all are at hand.
        draws_of_all = LOCAL_DRAWS // model.num_devices
        thin = max(1, draws.shape[1] // draws_of_all) if model.num_local else 1
        distance = Distance.measured(
            given.named(model, draws[:, ::thin]),
            reference.mean,
            reference.sd,
            reference.mean_error,
            reference.variance_error,
            reference.draws,
        )
        travelling = given.travelling(model, draws)
        return replace(distance, draws=fewest_draws(travelling) / len(draws))

    return [_judged(name, where, scheme, model, compare, chains)]


def nuts_rows(name: str) -> list[dict[str, Any]]:
    """What NUTS costs on one posterior, with all data in one place."""
    from nuts import timed
    from posteriors import posterior

    made = timed(posterior(name))
    return [{"case": name, "cpu": made.cpu, "draws": made.draws, "nuts": asdict(made.distance)}]


def holds(row: dict[str, Any]) -> bool:
    """Whether draws are within both bars, and not wrong: the error that lost chains make of a mean
    hides it from its bar."""
    d = row["distance"]
    return bool(d["mean_holds"] and d["sd_holds"] and not d["wrong"])


def misses(rows: Iterable[dict[str, Any]], who: str) -> list[dict[str, Any]]:
    """Rows that ``who``, the plan or the run, called good, and that are beyond a bar."""
    return [row for row in rows if row.get(who) == "good" and not holds(row)]


def _rate(row: dict[str, Any] | None) -> str:
    """Effective draws of all chains for a processor second of their run; a dash where draws are
    wrong or were not made."""
    if row is None or "refused" in row or row["distance"]["wrong"]:
        return "-"
    draws = row["chains"] * row["distance"]["draws"] / row["run_cpu"]
    return f"{draws:.0f}" if draws >= 10 else f"{draws:.1f}"


def _bars(d: dict[str, Any]) -> str:
    """Worst mean and worst standard deviation with their errors, and which bar they miss."""
    if not math.isfinite(d["mean"] * d["variance"]):
        return "beyond numbers | | wrong"
    sd = math.sqrt(d["variance"])
    missed = [name for name in ("mean", "sd") if not d[f"{name}_holds"]]
    told = f"{' and '.join(missed)} beyond" if missed else "within"
    return (
        f"{d['mean']:+.2f} ± {d['mean_error']:.2f} | {sd:.2f} ± {d['variance_error'] / 2 / sd:.2f}"
        f" | {'wrong' if d['wrong'] else told}"
    )


def bars_table(rows: list[dict[str, Any]]) -> list[str]:
    """Verdicts, and draws against the bars."""
    lines = [
        "| posterior | deal | scheme | plan | run | worst mean, sd | worst sd ratio | bars |"
        " R-hat | rounds |",
        "|" + "---|" * 10,
    ]
    for row in rows:
        if "refused" in row:
            refused = f"refused: {row['refused']}"
            lines.append(
                f"| {row['case']} | {row['deal']} | {row['scheme']} | {refused} | | | | | | |"
            )
            continue
        d = row["distance"]
        lines.append(
            f"| {row['case']} | {row['deal']} | {row['scheme']} | {said(row, 'plan')} |"
            f" {said(row, 'run')} | {_bars(d)} | {d['r_hat']:.3f} | {row['num_rounds']} |"
        )
    return lines


def cost_table(rows: list[dict[str, Any]], nuts: dict[str, dict[str, Any]]) -> list[str]:
    """Effective draws for a processor second, beside those of NUTS."""
    found = {(row["case"], row["deal"], row["scheme"]): row for row in rows}
    pairs = [(deal, scheme) for deal in ("iid", "sorted") for scheme in SCHEMES]
    lines = [
        "| posterior | "
        + " | ".join(f"{scheme}, {deal}" for deal, scheme in pairs)
        + " | NUTS | its seconds | its worst mean, sd | its worst sd ratio | bars |",
        "|" + "---|" * (len(pairs) + 6),
    ]
    for name in dict.fromkeys(row["case"] for row in rows):
        ours = " | ".join(_rate(found.get((name, *pair))) for pair in pairs)
        theirs = nuts.get(name)
        rival = "- | - | - | - | -"
        if theirs is not None:
            rival = f"{theirs['draws'] / theirs['cpu']:.0f} | {theirs['cpu']:.2f} |"
            rival += f" {_bars(theirs['nuts'])}"
        lines.append(f"| {name} | {ours} | {rival} |")
    return lines


def symbol_bytes(row: dict[str, Any]) -> tuple[float, float]:
    """Bytes of one chain: the symbols that one device sends, a bit or a 32-bit number an entry, and
    the theta that it receives, in 64-bit numbers. Headers are not counted."""
    entries = row["num_rounds"] * row["dim"]
    return entries * (1 / 8 if row["scheme"] == "digital" else 4.0), entries * 8.0


def hierarchies_table(rows: list[dict[str, Any]], nuts: dict[str, dict[str, Any]]) -> list[str]:
    """Hierarchies with a group on each device: verdicts, errors, bytes and cost."""
    lines = [
        "| posterior | levels | scheme | entries | plan | run | worst mean, sd | worst sd ratio |"
        " bars | R-hat | rounds | kB up | kB down | seconds of the run | draws a second | NUTS |",
        "|" + "---|" * 16,
    ]
    for row in rows:
        levels = "at home" if row["deal"] == "local" else "travel"
        if "refused" in row:
            refused = f"refused: {row['refused']}"
            lines.append(
                f"| {row['case']} | {levels} | {row['scheme']} | | {refused} |" + " |" * 11
            )
            continue
        d, (up, down) = row["distance"], symbol_bytes(row)
        theirs = nuts.get(row["case"])
        rival = "-" if theirs is None else f"{theirs['draws'] / theirs['cpu']:.0f}"
        lines.append(
            f"| {row['case']} | {levels} | {row['scheme']} | {row['dim']} | {said(row, 'plan')} |"
            f" {said(row, 'run')} | {_bars(d)} | {d['r_hat']:.3f} | {row['num_rounds']} |"
            f" {up / 1000:.1f} | {down / 1000:.0f} | {row['run_cpu']:.1f} | {_rate(row)} |"
            f" {rival} |"
        )
    return lines


def bars_summary(rows: list[dict[str, Any]]) -> str:
    """How many of the plans and runs that are called good are within the bars, and which not."""
    sentences = []
    for who in ("plan", "run"):
        good = [row for row in rows if row.get(who) == "good"]
        beyond = misses(rows, who)
        named = "; ".join(f"{row['case']}, {row['deal']}, {row['scheme']}" for row in beyond)
        sentences.append(
            f"Of {len(good)} {who}s called GOOD {len(good) - len(beyond)} are within both bars"
            + (f"; beyond one are {named}." if beyond else ".")
        )
    largest = max(
        (row["distance"]["mean_error"] for row in rows if row.get("plan") == "good"), default=None
    )
    return " ".join(sentences) + (
        f" The standard error of a worst mean is at most {number(largest)} sd where the plan is"
        " called GOOD: a bias of the bar and three such errors can hide."
    )


def _not_made(missing: Sequence[tuple[str | None, ...]]) -> list[str]:
    """Lines that name the rows (posterior, deal, scheme) that were not made; none where all
    were."""
    if not missing:
        return []
    by_name: dict[str, list[str]] = {}
    for name, *how in missing:
        by_name.setdefault(str(name), []).append(" ".join(filter(None, how)) or "NUTS")
    told = "; ".join(f"{name} ({', '.join(each)})" for name, each in by_name.items())
    return [f"Not measured, for lack of time, are {len(missing)} rows: {told}.", ""]


def page(rows: list[dict[str, Any]], missing: Sequence[tuple[str | None, ...]] = ()) -> str:
    """The page ``docs/references.md``; ``missing`` names rows that were not made."""
    from judging import MEAN_BAR, MOST_ROUNDS, SD_BAR, SNR_DB
    from nuts import CHAINS as NUTS_CHAINS
    from nuts import DRAWS, WARM_UP

    nuts = {row["case"]: row for row in rows if "nuts" in row}
    grouped = [row for row in rows if row.get("deal") in ("local", "all")]
    dealt = [row for row in rows if row.get("deal") in ("iid", "sorted")]
    lines = [
        "# Draws against reference draws",
        "",
        made_on("make references", rows),
        "",
        "Data and reference draws are those of posteriordb; two posteriors without reference draws"
        " (radon by county, wells) were sampled by NUTS of NumPyro, from densities that are written"
        " a second time. Models are written with `flmc.Model.from_log_density` in unconstrained"
        " coordinates, with features and target standardised; mesquite, sblrc, arK and diamonds,"
        " whose features are nearly collinear or predict nearly everything, and radon with its 90"
        " entries are whitened by their Laplace approximation as well. Examples are dealt to eight"
        " devices, at random (iid) and sorted by target. Plans have automatic clip, link, step and"
        f" rounds, no privacy budget, and {SNR_DB:g} dB; where the automatic rounds exceed"
        f" {MOST_ROUNDS}, that many are planned. {CHAINS} chains are run.",
        "",
        *_not_made(missing),
        "Draws of a plan or run that is called GOOD shall be within two *bars*: the worst mean of a"
        f" parameter within {MEAN_BAR:g} standard deviations of the reference, and the worst"
        f" standard deviation within {100 * SD_BAR:.0f} % of the reference's, each plus three"
        " Monte-Carlo standard errors. The planner does not know them: its verdict allows a mean"
        " 0.25 sd off and a variance 25 % off, and a draw is *wrong* only beyond these"
        " ([verdicts](verdicts.md) has the words, and random regressions).",
        "",
        "## Posteriors on eight devices",
        "",
        bars_summary(dealt),
        "",
        *bars_table(dealt),
        "",
        "## What an effective draw costs",
        "",
        "Effective draws for a processor second, by the parameter that has fewest: of all chains"
        " over the processor time of `flmc.run`, burn-in and the evidence of its verdict counted;"
        " and of NUTS (NumPyro), on the log density that the federated model has, in the same"
        f" coordinates: {NUTS_CHAINS} chains one after the other, {WARM_UP} steps of warm-up, which"
        f" are counted, and {DRAWS} draws each, in double precision. Both on one and the same"
        " machine, which did other work as well, by `time.process_time`, without compilation;"
        " planning is not counted either. The JAX engine of flmc computes in single precision. A"
        " dash stands where draws are wrong or were not made.",
        "",
        "What this compares: NUTS has all data in one place and exact gradients. A run of flmc"
        " simulates eight devices that send bits or clipped numbers over a noisy channel, and its"
        " processor time is not what limits a federation, but rounds. So the column of NUTS says"
        " what the federation and the channel cost where data may be pooled, and there NUTS is"
        " what to use. Its draws are held to the bars as well: they show that the density is that"
        " of the reference.",
        "",
        *cost_table(dealt, nuts),
        "",
        "## Hierarchies with a group on each device",
        "",
        "Radon with each of 85 counties on a device, and the eight schools. *At home*: the levels"
        " of counties or schools are local parameters, which are drawn given theta after the run;"
        " *travel*: they are entries of theta. Both are NumPyro models in coordinates of their"
        " Laplace approximation. Bytes are those of one chain and one device: the symbols that it"
        " sends (a bit, or a 32-bit number an entry) and the theta that it receives (64-bit"
        " numbers), without headers. Seconds and effective draws are as above; with levels at home"
        " draws are those of the parameters that travel. NUTS is that of all parameters, pooled.",
        "",
        bars_summary(grouped),
        "",
        *hierarchies_table(grouped, nuts),
        "",
        "## Verdicts",
        "",
        "The verdicts of plans, of runs and of a server without data, for the posteriors on eight"
        " devices. Means and variances are those of the worst parameter, as posteriordb names them;"
        " predictions are those of the worst direction of theta, so at least as large.",
        "",
        summary(dealt),
        "",
        *confusion(dealt),
        "",
        *table(dealt),
        "",
    ]
    return in_paragraphs(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", nargs="*", default=[], help="beginnings of posteriors' names")
    parser.add_argument(
        "--workers", type=int, default=os.cpu_count() or 1, help="0: only the rows made before"
    )
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="lines of JSON: rows made before, and new ones"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page")
    options = parser.parse_args()
    from hierarchies import HIERARCHIES
    from posteriors import DEALS, POSTERIORS

    def chosen(names: Any) -> list[str]:
        return [n for n in names if not options.names or n.startswith(tuple(options.names))]

    jobs: list[Job] = [(nuts_rows, (name,)) for name in chosen(POSTERIORS)]
    # Analog plans are cheap, and so come before all digital ones.
    for scheme in reversed(SCHEMES):
        for name in chosen(HIERARCHIES):
            jobs += [(hierarchy_rows, (name, where, scheme)) for where in ("local", "all")]
        for name in chosen(POSTERIORS):
            jobs += [(posterior_rows, (name, deal, scheme)) for deal in DEALS]
    order = {name: place for place, name in enumerate(POSTERIORS)}
    rows = gather(jobs, options.workers, options.rows)
    rows.sort(key=lambda row: (order[row["case"]], row.get("deal", ""), row.get("scheme", "")))
    made = {(row["case"], row.get("deal"), row.get("scheme")) for row in rows}
    wanted = ((name, *how, None, None)[:3] for _, (name, *how) in jobs)
    missing = [each for each in wanted if each not in made]
    if options.out is not None:
        options.out.write_text(page(rows, missing))
    judged = [row for row in rows if "nuts" not in row]
    print(bars_summary(judged))
    for row in false_goods(judged):
        print("false GOOD:", in_a_line(row))


if __name__ == "__main__":
    main()
