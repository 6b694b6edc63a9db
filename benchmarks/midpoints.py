"""Standard deviations of draws at midpoints against the reference draws of posteriordb: `make
midpoints` writes ``docs/evidence/midpoints.md``.

Every posterior is dealt to eight devices at random and planned for the analog uplink with
everything automatic, as in the verdicts. All parameters are compared, not the worst alone."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "evidence" / "midpoints.md"
CHAINS = 32
LIMIT, ERRORS = 0.03, 3.0
"""A standard deviation may be off by 3 %, and by three standard errors beyond that."""
WITHOUT_REFERENCE = ("radon_mn-hierarchical", "wells_data-logistic")
"""Posteriors that come without reference draws."""


class Spread(NamedTuple):
    """Standard deviations of a chain's draws over those of the reference.

    Attributes
    ----------
    posterior, draw_at
        Name of the posterior, and where draws are taken.
    relative_step
        Effective step times the largest curvature.
    rounds
        Number of rounds.
    smallest, largest
        Smallest and largest ratio over parameters.
    error
        Largest standard error of a ratio.
    beyond
        Largest number of standard errors by which a ratio is more than 3 % off.
    shift, shift_error
        Largest distance of a mean from the reference's, in standard deviations, and its error.
    doubts
        Codes of the plan's findings against its sampling.
    """

    posterior: str
    draw_at: str
    relative_step: float
    rounds: int
    smallest: float
    largest: float
    error: float
    beyond: float
    shift: float
    shift_error: float
    doubts: tuple[str, ...]

    @property
    def holds(self) -> bool:
        """Whether every standard deviation is within the limit and three standard errors."""
        return self.beyond <= ERRORS


def measure(name: str, draw_at: str, chains: int = CHAINS) -> Spread:
    """Plan and run one posterior, and compare its draws with the reference."""
    import flmc
    from judging import SNR_DB, planned
    from posteriors import posterior

    given = posterior(name)
    reference, model = given.reference(), given.model("iid")
    plan = planned(model, flmc.Analog(snr_db=SNR_DB), clip="auto", draw_at=draw_at)
    result = flmc.run(plan, model, seed=1, chains=chains)
    away = (given.columns(model, result.draws) - reference.mean) / reference.sd
    shift = away.mean(axis=(0, 1))
    # Chains are independent, so that the spread of their averages is the error of the whole.
    squares = np.square(away - shift).mean(axis=1)
    variance = squares.mean(axis=0)
    error = np.hypot(squares.std(axis=0, ddof=1) / chains**0.5, variance * reference.variance_error)
    sd = np.sqrt(variance)
    error /= 2 * sd
    mean_error = np.hypot(away.mean(axis=1).std(axis=0, ddof=1) / chains**0.5, reference.mean_error)
    worst = int(np.abs(shift).argmax())
    against = [each for each in plan.findings if each.light == "sampling"]
    return Spread(
        name,
        plan.draw_at,
        (plan.effective_step_size or 0.0) * (model.smoothness or 0.0),
        plan.num_rounds,
        float(sd.min()),
        float(sd.max()),
        float(error.max()),
        float(((np.abs(sd - 1) - LIMIT) / error).max()),
        float(shift[worst]),
        float(mean_error[worst]),
        tuple(each.code for each in against if each.severity not in ("note", "unknown")),
    )


_HEAD = """# Standard deviations at midpoints

`make midpoints` writes this page. The posteriors of posteriordb that come with reference draws, as
in [references](../references.md): dealt to eight devices at random, analog, 40 dB, everything
automatic, {chains} chains. *sd* are the smallest and the largest standard deviation of a parameter
over the reference's, with the largest standard error of one; it holds if every parameter is within
3 % and three standard errors. The mean is the worst, in standard deviations.
[Sampling](../sampling.md), section 3, derives why midpoints, and says where they fail.

| posterior | draws at | ηκL | rounds | sd | error | holds | mean |
|---|---|---|---|---|---|---|---|
"""


def page(rows: list[Spread], chains: int) -> str:
    """The page, in Markdown."""
    lines = []
    for row in rows:
        told = f"no: the plan warns ({', '.join(row.doubts)})" if row.doubts else "no"
        lines.append(
            f"| {row.posterior} | {row.draw_at} | {row.relative_step:.2f} | {row.rounds} |"
            f" {row.smallest:.3f} to {row.largest:.3f} | {row.error:.3f} |"
            f" {'yes' if row.holds else told} | {row.shift:+.3f} ± {row.shift_error:.3f} |"
        )
    return _HEAD.format(chains=chains) + "\n".join(lines) + "\n"


def main() -> None:
    """Measure all posteriors, or those whose names begin as given, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chains", type=int, default=CHAINS)
    parser.add_argument("--out", type=Path, default=PAGE)
    parser.add_argument("names", nargs="*", help="beginnings of posteriors' names")
    options = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    from posteriors import POSTERIORS

    names = [
        name
        for name in POSTERIORS
        if name not in WITHOUT_REFERENCE
        and (not options.names or name.startswith(tuple(options.names)))
    ]
    rows = []
    for name in names:
        for draw_at in ("midpoints", "positions"):
            rows.append(measure(name, draw_at, options.chains))
            print(rows[-1], file=sys.stderr, flush=True)
    options.out.write_text(page(rows, options.chains))


if __name__ == "__main__":
    main()
