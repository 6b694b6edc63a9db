"""Verdicts against the truth: `make verdicts` writes ``docs/verdicts.md``.

Random regressions with plans of many kinds, good and bad, against exact posteriors. The posteriors
of posteriordb are those of ``references.py``."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from judged_rows import (
    confusion,
    false_goods,
    gather,
    in_a_line,
    in_full,
    in_paragraphs,
    made_on,
    summary,
    table,
)  # fmt: skip

CHAINS = 24
"""Independent chains of each plan."""
NUM_REGRESSIONS = 200


def regression_rows(seed: int, chains: int = CHAINS) -> list[dict[str, Any]]:
    """One random regression; no row where its plan is refused."""
    import flmc
    from judging import judge
    from random_regressions import draw

    case = draw(seed)
    name = f"{case.kind} {seed}"
    try:
        row = judge(name, case.deal, case.scheme, case.model, case.plan, case.compare, chains)
    except flmc.errors.InvalidSetting as error:
        return [{"case": name, "deal": case.deal, "scheme": case.scheme, "refused": str(error)}]
    return [in_full(row)]


def page(rows: list[dict[str, Any]]) -> str:
    """The page ``docs/verdicts.md``."""
    refused = sum("refused" in row for row in rows)
    lines = [
        "# Verdicts against the truth",
        "",
        made_on("make verdicts", rows),
        "",
        "A verdict that calls a plan GOOD must be earned. These tables hold the verdicts of plans,"
        " of runs and of a server without data against the truth. A chain is *wrong* if the mean"
        " of some parameter is off by more than 0.25 posterior standard deviations, or its variance"
        " by more than 25 %, in both cases plus three standard errors; a variance is judged on the"
        " scale of its logarithm as well, on which lost chains cannot hide behind the error that"
        " they make. A *false GOOD* is a wrong chain that was called GOOD; a warning is *unearned*"
        " if the chain is right. A chain counts as right where it is not shown to be wrong, so"
        " where errors are large both counts are kind to the planner's GOODs and hard on its"
        " warnings. A chain that is right may still have what was warned of: effective draws are"
        " those of one chain in the parameter that has fewest, and the worst direction is found"
        " with one half of chains and reference and measured with the other. Where that shows"
        " nothing of a variance that was warned of, it is measured in the direction of theta in"
        " which the plan predicts it, against a sampler with exact gradients and a tenth of the"
        " step. [References](references.md) has the posteriors of posteriordb.",
        "",
        "## Random regressions",
        "",
        f"{len(rows)} random regressions, linear and logistic, with 5 or 12 devices that are"
        " alike or not, 100 to 1000 examples, conditioning from 1 to about a hundred, both"
        " schemes, all links, clips by rule, too small and too large, examples clipped or not,"
        " 25 or 40 dB, rounds by rule or too few; seeds are fixed. The mix of cases was made"
        f" easier twice after 24 and 15 rows, so that more can be good. {refused} plans were"
        f" refused. {CHAINS} chains of each are compared with the exact"
        " posterior.",
        "",
        summary(rows),
        "",
        *confusion(rows),
        "",
    ]
    for title, chosen in (
        ("False GOODs of the plan", false_goods(rows)),
        ("False GOODs of the run", false_goods(rows, "run")),
    ):
        if chosen:
            lines += [f"{title}:", "", *table(chosen), ""]
    return in_paragraphs(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regressions", type=int, default=NUM_REGRESSIONS)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="lines of JSON: rows made before, and new ones"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page")
    options = parser.parse_args()
    jobs = [(regression_rows, (seed,)) for seed in range(options.regressions)]
    rows = gather(jobs, options.workers, options.rows)
    if options.out is not None:
        options.out.write_text(page(rows))
    print(summary(rows))
    for row in false_goods(rows):
        print("false GOOD:", in_a_line(row))


if __name__ == "__main__":
    main()
