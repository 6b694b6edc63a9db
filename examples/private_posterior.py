"""A posterior that one chain samples over the air, for a privacy of epsilon below 1 in all.

One example is replaced, the whole run counts with its burn-in, delta is 1e-5, and what is given out
is a single chain that is worth 50 independent draws. By the price of a draw (docs/privacy.md,
section 7) that takes some 315 000 examples over the analog uplink and 375 000 over the digital one
where the entries of an example's gradient are bounded, and 132 000 and 154 000 where its norm is;
with 5 per cent fewer no such plan fits. All settings come from public knowledge, the number of
examples and that features and residuals are about standard normal, and were fixed before any of
these data sets was drawn. The posterior is known exactly here, so one can see what privacy costs.
Twenty chains of each data set show what one chain may look like; a deployment runs one.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

import flmc
from flmc.uplink.example_clipping import typical_shift_variance, typical_shrink

DIM, DEVICES = 5, 100
EXAMPLE_CLIP, EXAMPLE_NORM = 4.5, 6.5
"""Bound of an entry of one example's gradient, and of its norm. Smaller ones are cheaper and shift
the mean more: by a variance of 0.6 per cent of the posterior's at these, of 1.1 per cent at 4."""
LIMITS = flmc.Limits(epsilon=1.0, scope="run", run_delta=1e-5, neighbouring="example")
BY_ENTRY = {
    "example_clip": EXAMPLE_CLIP,
    "example_shrink": typical_shrink(EXAMPLE_CLIP, None, DIM),
}
BY_NORM = {"example_norm": EXAMPLE_NORM, "example_shrink": typical_shrink(None, EXAMPLE_NORM, DIM)}


@dataclass(frozen=True)
class Setting:
    """What is fixed beforehand for one scheme."""

    uplink: flmc.Uplink
    num_samples: int
    relative_step: float
    """Step times slope times curvature: successive rounds have the correlation of 1 minus this."""
    num_burn_in: int
    num_fast: int
    num_kept: int

    def plan(self, model: flmc.Model, num_samples: int | None = None) -> flmc.Plan:
        """The plan, which looks at no data; the model gives its sizes only."""
        # Curvatures are within 2 per cent of the number of examples.
        count = self.num_samples if num_samples is None else num_samples
        low, high = 0.98 * count, 1.02 * count
        return flmc.plan(
            model,
            self.uplink,
            LIMITS,
            step_size=self.relative_step / (self.uplink.slope * low),
            start="zero",
            num_rounds=self.num_burn_in + self.num_kept,
            num_burn_in=self.num_burn_in,
            num_fast=self.num_fast,
            burn_in_step_factor=0.5 / self.relative_step,
            public_smoothness=high,
            public_convexity=low,
            # Numbers of examples and rounds were fixed for draws at positions.
            draw_at="positions",
            forecast=False,
        )


SETTINGS = {
    "analog": Setting(
        uplink=flmc.Analog(clip=1120.0, snr_db=20.0, **BY_ENTRY),
        num_samples=315_000,
        relative_step=0.05,
        num_burn_in=163,
        num_fast=11,
        num_kept=1932,
    ),
    "digital": Setting(
        # The clip is three standard deviations of a device's gradient; a straight link within it
        # does not shift the mean.
        uplink=flmc.Digital(link=flmc.Linear(0.95), clip=185.0, snr_db=0.0, **BY_ENTRY),
        num_samples=375_000,
        relative_step=0.02,
        num_burn_in=366,
        num_fast=80,
        num_kept=4901,
    ),
    "analog, norm": Setting(
        uplink=flmc.Analog(clip=545.0, snr_db=25.0, **BY_NORM),
        num_samples=132_000,
        relative_step=0.05,
        num_burn_in=163,
        num_fast=11,
        num_kept=1932,
    ),
    "digital, norm": Setting(
        # A bounded norm is accounted best for links whose slope falls: a quarter over the spread of
        # a device's gradient, so that it hardly bends.
        uplink=flmc.Digital(link=flmc.Sigmoid(0.0127), clip=314.0, snr_db=3.0, **BY_NORM),
        num_samples=154_000,
        relative_step=0.0139,
        num_burn_in=570,
        num_fast=115,
        num_kept=7075,
    ),
}


def draw(seed: int, num_samples: int) -> flmc.LinearGaussian:
    """A fresh data set."""
    data = flmc.data.draw_linear(seed=seed, num_samples=num_samples, dim=DIM, num_devices=DEVICES)
    return flmc.LinearGaussian(data)


def show(scheme: str, data_sets: int, chains: int) -> tuple[flmc.Plan, np.ndarray]:
    """Run one scheme on fresh data sets, and print what one chain of each delivers."""
    setting, rows = SETTINGS[scheme], []
    for seed in range(100, 100 + data_sets):
        model = draw(seed, setting.num_samples)
        plan = setting.plan(model)
        if not rows:
            print(f"{scheme}: {setting.num_samples} examples on {DEVICES} devices")
            print(f"  data dependent: {plan.data_dependent}, temperature {plan.temperature:.3f}")
            print(f"  one chain: {plan.effective_draws:.1f} effective draws, {plan.run_cost}")
        result = flmc.run(plan, model, seed=seed, chains=chains, keep_draws=False)
        one = result.one_chain
        rows.append([one.mean_error.mean, one.common_error.mean, one.variance_ratio.mean])
        print(
            f"  data set {seed}: squared mean error of one chain {100 * rows[-1][0]:.2f} %"
            f" of trace(Sigma), sd {100 * one.mean_error.sd:.2f} % over chains;"
            f" common to all chains {100 * rows[-1][1]:.2f} %; its variance ratio {rows[-1][2]:.3f}"
        )
    error, common, ratio = np.mean(rows, axis=0)
    uplink = setting.uplink
    expected = typical_shift_variance(uplink.example_clip, uplink.example_norm, DIM)
    print(
        f"  mean over data sets: squared mean error of one chain {100 * error:.2f} %,"
        f" of which bias is {100 * common:.2f} %"
        f" (expected {100 * expected:.2f} % by clipping); variance ratio {ratio:.3f}"
    )
    if chains > 1:
        every = plan.release(chains).cost
        print(f"  all {chains} chains of a data set, were they given out: {every}")
    return plan, np.array(rows)


def main(data_sets: int = 5, chains: int = 20) -> dict[str, tuple[flmc.Plan, np.ndarray]]:
    """All settings: plan, and (data set, number) of what one chain delivers."""
    return {scheme: show(scheme, data_sets, chains) for scheme in SETTINGS}


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
