"""What a private posterior takes, over the air: intervals that hold, and draws of a chain.

One example is replaced, the whole run counts with its burn-in, delta is 1e-5, and what is given out
is one chain, or what the server computes from it. All settings come from public knowledge, the
number of examples and that features and residuals are about standard normal, and were fixed before
any of these data sets was drawn. The posterior is known exactly here, so one can see what privacy
costs.

*Intervals* (``ANSWERS``) that are 1.05, 1.2, 1.5 or 2 times as wide as the exact posterior's take
some thousands of examples, or hundreds. The settings are those that ``flmc plan --aim answer
--suggest --require "mean_width<=1.2"`` proposes, from public sizes alone, for the smallest number
of examples (in steps of 20) for which it proposes any, with 6000 rounds over the digital uplink, or
20 000 for widths below 1.5. Their coverage and width are measured on fresh data sets, with one
chain each.

A *chain that is worth 50 draws* (``SETTINGS``) takes, at epsilon 1, some 315 000 examples over the
analog uplink and 375 000 over the digital one where the entries of an example's gradient are
bounded, and 132 000 and 154 000 where its norm is (docs/privacy.md, section 7); with 5 per cent
fewer no such plan fits. Twenty chains of each data set show what one chain may look like; a
deployment runs one.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

import flmc
from flmc.base.special import ndtr
from flmc.planning.public_model import PublicModel
from flmc.privacy.gaussian import GaussianEvent
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


class Regressions(flmc.LinearGaussian):
    """Linear regressions of many data sets, whose clipped gradients are computed for all at once;
    the devices have equally many examples."""

    def __init__(self, data: flmc.LinearData) -> None:
        super().__init__(data)
        shape = (self.num_experiments, self.num_devices, -1)
        self.features = data.features.reshape(*shape, self.dim)
        self.targets = data.targets.reshape(shape)
        self.lengths = np.linalg.norm(self.features, axis=-1)

    def norm_clipped_gradient(
        self, theta: np.ndarray, example_norm: float, experiments: slice = slice(None)
    ) -> np.ndarray:
        """As :meth:`flmc.Model.norm_clipped_gradient`, for one chain a data set."""
        features, limit = self.features[experiments], example_norm / self.lengths[experiments]
        residual = (features @ theta[:, 0, None, :, None])[..., 0] - self.targets[experiments]
        np.clip(residual, -limit, limit, out=residual)
        total = (residual[:, :, None] @ features)[:, :, 0]
        return total[:, None] + self.prior_share(theta)[:, :, None]


@dataclass(frozen=True)
class AnswerSetting:
    """What is fixed beforehand for an answer, as the planner proposes it."""

    scheme: str
    epsilon: float
    wanted: float
    """Width over the exact posterior's that was asked for."""
    num_samples: int
    example_norm: float
    clip: float
    num_rounds: int
    slope_parameter: float = 0.0

    @property
    def uplink(self) -> flmc.Uplink:
        shrink = typical_shrink(None, self.example_norm, DIM)
        if self.scheme == "analog":
            return flmc.Analog(
                clip=self.clip,
                snr_db=25,
                example_norm=self.example_norm,
                example_shrink=shrink,
            )
        return flmc.Digital(
            link=flmc.Sigmoid(self.slope_parameter),
            clip=self.clip,
            snr_db=25,
            example_norm=self.example_norm,
            example_shrink=shrink,
        )

    def plan(self, model: flmc.Model) -> flmc.Plan:
        """The plan, which looks at no data; the model gives its sizes only."""
        public = PublicModel(self.num_samples, ANSWER_DEVICES, DIM)
        return flmc.plan(
            model,
            self.uplink,
            replace(LIMITS, epsilon=self.epsilon),
            start="zero",
            num_rounds=self.num_rounds,
            public_smoothness=public.smoothness,
            public_convexity=public.convexity,
            aim="answer",
            forecast=False,
        )

    @property
    def bound(self) -> float:
        """Width of the answer to a single query of the whole gradient at this privacy and norm: its
        mean has 1 + 4 C^2/(N rho^2 mu^2) times the posterior's variance, and the rounds of a run
        at the same norm tell no more of it."""
        mu = GaussianEvent(1.0, 1.0, ((1.0, 1),)).allowed_gain(self.epsilon, LIMITS.run_delta)
        shrink = self.uplink.example_shrink
        return math.sqrt(1 + (2 * self.example_norm / (shrink * mu)) ** 2 / self.num_samples)


class Measured(NamedTuple):
    """What answers deliver on fresh data sets, with one chain each."""

    setting: AnswerSetting
    data_sets: int
    width: float
    """Median of the root of the total variance, over the exact posterior's."""
    error: float
    """Root of the mean square distance from the truth, in exact posterior standard deviations."""
    held: float
    """Probability with which intervals of 90 % hold, and its standard error."""
    held_error: float
    epsilon: float

    @property
    def row(self) -> str:
        """Row of a table in Markdown."""
        each = self.setting
        slope = f"sigmoid {each.slope_parameter:.3g}" if each.slope_parameter else "-"
        cells = (
            each.scheme, f"{each.epsilon:g}", f"{each.wanted:g}", f"{each.num_samples}",
            f"{each.example_norm:.3g}", slope, f"{each.num_rounds}", f"{self.width:.3g}",
            f"{self.width / each.bound:.3g}", f"{self.error:.3g}",
            f"{100 * self.held:.1f} ± {100 * self.held_error:.1f} %", f"{self.data_sets}",
            f"{self.epsilon:.3f}",
        )  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEADER = (
    "| uplink | epsilon | width, asked | examples | norm | link | rounds | width | over the bound"
    " | error | 90 % intervals hold | data sets | epsilon, run |\n|" + "---|" * 13
)
ANSWER_DEVICES = 20
MOST_WORK = 1.5e9
"""Largest number of gradients of single examples that a row may take: rows with many examples and
rounds have fewer data sets."""
ANSWERS = (
    AnswerSetting("analog", 1.0, 2, 820, 5.027, 76.84, 744),
    AnswerSetting("analog", 1.0, 1.5, 1_900, 5.556, 117.0, 338),
    AnswerSetting("analog", 1.0, 1.2, 5_560, 6.085, 200.1, 968),
    AnswerSetting("analog", 1.0, 1.05, 27_220, 6.614, 442.7, 1_637),
    AnswerSetting("digital", 1.0, 2, 880, 5.027, 79.6, 6_000, 0.02111),
    AnswerSetting("digital", 1.0, 1.5, 2_060, 5.556, 121.8, 6_000, 0.01379),
    AnswerSetting("digital", 1.0, 1.2, 6_300, 6.085, 213.0, 20_000, 0.007888),
    AnswerSetting("digital", 1.0, 1.05, 36_060, 6.614, 509.5, 20_000, 0.003297),
    AnswerSetting("analog", 3.0, 2, 180, 5.027, 18.0, 200),
    AnswerSetting("analog", 3.0, 1.5, 340, 5.556, 49.48, 440),
    AnswerSetting("analog", 3.0, 1.2, 920, 6.085, 40.69, 338),
    AnswerSetting("analog", 3.0, 1.05, 4_000, 6.614, 169.7, 1_259),
    AnswerSetting("digital", 3.0, 2, 180, 5.027, 36.0, 6_000, 0.04667),
    AnswerSetting("digital", 3.0, 1.5, 360, 5.556, 50.91, 6_000, 0.033),
    AnswerSetting("digital", 3.0, 1.2, 960, 6.085, 41.57, 20_000, 0.02021),
    AnswerSetting("digital", 3.0, 1.05, 5_100, 6.614, 191.6, 20_000, 0.008767),
)
"""The smallest numbers of examples, for four widths, two epsilons and two uplinks."""


def measure(setting: AnswerSetting, data_sets: int) -> Measured:
    """Run one setting on fresh data sets."""
    work = setting.num_samples * setting.num_rounds
    sets = max(min(6, data_sets), min(data_sets, int(MOST_WORK / work)))
    data = flmc.data.draw_linear(
        seed=1000,
        num_samples=setting.num_samples,
        dim=DIM,
        num_devices=ANSWER_DEVICES,
        num_experiments=sets,
    )
    model = Regressions(data)
    plan = setting.plan(model)
    answer = flmc.run(plan, model, seed=1000).posterior()
    exact = model.posterior
    width = np.sqrt(
        np.trace(answer.covariance, axis1=1, axis2=2) / np.trace(exact.covariance, axis1=1, axis2=2)
    )
    sd = np.sqrt(np.einsum("eii->ei", exact.covariance))
    # The truth is a draw from the exact posterior: how often an interval holds it is known without
    # drawing it.
    ends = (answer.intervals(0.9) - exact.mean[..., None]) / sd[..., None]
    held = (ndtr(ends[..., 1]) - ndtr(ends[..., 0])).mean(axis=1)
    off = np.square((answer.mean - exact.mean) / sd).mean()
    assert plan.run_cost is not None
    return Measured(
        setting,
        sets,
        float(np.median(width)),
        math.sqrt(1 + off),
        float(held.mean()),
        float(held.std(ddof=1) / math.sqrt(sets)),
        plan.run_cost.epsilon,
    )


def show_answers(data_sets: int) -> list[Measured]:
    """Measure all settings of answers, and print a table."""
    print(f"\nintervals that hold, {ANSWER_DEVICES} devices, {DIM} entries, delta 1e-5")
    print(HEADER)
    rows = []
    for setting in ANSWERS:
        rows.append(measure(setting, data_sets))
        print(rows[-1].row, flush=True)
    return rows


def main(
    data_sets: int = 5, chains: int = 20, answers: int = 100
) -> dict[str, tuple[flmc.Plan, np.ndarray]]:
    """All settings: plan, and (data set, number) of what one chain delivers; before them, a table
    of what ``answers`` fresh data sets tell of intervals, unless that is 0."""
    if answers:
        show_answers(answers)
    return {scheme: show(scheme, data_sets, chains) for scheme in SETTINGS}


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:]))
