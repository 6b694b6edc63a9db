"""Softmax regression on handwritten digits over 20 devices: what an epsilon of the run buys, where
single examples are hidden.

Everything is public knowledge but the examples: pixels are from 0 to 16, so that features and their
norm are bounded; step, clip and rounds are chosen by hand. One chain is given out. Usage: digits.py
[EPSILON ...] [FILE.png], the latter for the reliability diagram."""

import sys
from pathlib import Path

import numpy as np

import flmc
from flmc.evaluation.predictive import class_numbers, class_probabilities, score_probabilities
from flmc.models import regressions

EPSILONS = (1.0, 3.0, 8.0)
STEP_SIZE = 2e-3
"""Chosen by hand: near the posterior the curvature is far below its public bound."""


def predictions(learn, test, epsilon):
    norm = np.sqrt(len(learn.feature_names))
    model = regressions.softmax(learn, prior_sd=0.5, intercept_sd=0.5, feature_norm=norm)
    uplink = flmc.Analog(
        clip=60.0, clipping="norm", example_norm=1.0, example_shrink=0.5, snr_db=30
    )
    limits = flmc.Limits(epsilon=epsilon, scope="run", neighbouring="example")
    plan = flmc.plan(
        model,
        uplink,
        limits,
        num_rounds=400,
        num_burn_in=200,
        step_size=STEP_SIZE,
        forecast=False,
    )
    result = flmc.run(plan, model, seed=1, chains=1)
    found = class_probabilities(model, result.draws[:, ::10], test)
    return plan, score_probabilities(found, class_numbers(test))


def main() -> None:
    raw = flmc.data.read("sklearn:digits")
    data = raw.standardised(dict.fromkeys(raw.feature_names, (8.0, 8.0)))
    pictures = [word for word in sys.argv[1:] if word.endswith(".png")]
    epsilons = [float(word) for word in sys.argv[1:] if word not in pictures] or EPSILONS
    print("devices   epsilon  temperature  accuracy  log loss    ECE")
    last = None
    for how in ("iid", "label") if len(epsilons) > 1 else ("iid",):
        learn, test = data.split(20, how, seed=1).hold_out(0.2, seed=1)
        for epsilon in epsilons:
            plan, last = predictions(learn, test, epsilon)
            print(
                f"{how:7} {plan.run_cost.epsilon:9.3g} {plan.temperature:12.3g}"
                f" {last.accuracy:9.3f} {last.log_loss:9.3f} {last.ece:6.3f}"
            )
    print(
        "\nEpsilon of the run at delta 1e-5 for one example. A temperature above 1 is noise that"
        "\nthe sampler did not ask for: the samples are wider than the posterior. With 1437"
        "\nexamples to learn from, an epsilon of 1 leaves a rough classifier; about 8 costs little."
    )
    for picture in pictures:
        flmc.plot.reliability(last).savefig(Path(picture), dpi=120)


if __name__ == "__main__":
    main()
