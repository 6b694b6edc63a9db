"""Softmax regression on handwritten digits over 20 devices: what an epsilon of the run buys, where
single examples are hidden, with devices that are alike and with devices that hold few classes each.

Everything is public knowledge but the examples: pixels are from 0 to 16, so that features and their
norm are bounded; step, clip and rounds are chosen by hand. One chain is given out. Usage: digits.py
[EPSILON ...] [FILE.png], the latter for accuracy, calibration error and a reliability diagram."""

import sys
from pathlib import Path

import numpy as np

import flmc
from flmc.evaluation.predictive import class_numbers, class_probabilities, score_probabilities
from flmc.models import regressions
from flmc.views.figures import new_figure

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
DEALT = {"iid": "devices alike", "label": "few classes each"}
STEP_SIZE = 2e-3
"""Chosen by hand: near the posterior the curvature is far below its public bound."""


def score(model, test, epsilon):
    """The plan for a budget, and how good the predictions of one chain are."""
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
    scores = {}
    for how in DEALT:
        learn, test = data.split(20, how, seed=1).hold_out(0.2, seed=1)
        norm = np.sqrt(len(learn.feature_names))
        model = regressions.softmax(learn, prior_sd=0.5, intercept_sd=0.5, feature_norm=norm)
        for epsilon in epsilons:
            plan, found = score(model, test, epsilon)
            scores[how, epsilon] = found
            print(
                f"{how:7} {plan.run_cost.epsilon:9.3g} {plan.temperature:12.3g}"
                f" {found.accuracy:9.3f} {found.log_loss:9.3f} {found.ece:6.3f}"
            )
    print(
        "\nEpsilon of the run at delta 1e-5 for one example. A temperature above 1 is noise that"
        "\nthe sampler did not ask for: the samples are wider than the posterior. With 1437"
        "\nexamples to learn from, an epsilon of 1 leaves a rough classifier; about 8 costs little."
    )
    for picture in pictures:
        draw(scores, epsilons, Path(picture))


def draw(scores, epsilons, path: Path) -> None:
    """Accuracy and calibration error against epsilon, and the reliability at the largest one."""
    figure, axes = new_figure(columns=3)
    for how, words in DEALT.items():
        mine = [scores[how, epsilon] for epsilon in epsilons]
        axes[0].plot(epsilons, [each.accuracy for each in mine], "o-", label=words)
        axes[1].plot(epsilons, [each.ece for each in mine], "o-")
    for each, name in zip(axes[:2], ("accuracy", "calibration error (ECE)"), strict=True):
        each.set_xscale("log", base=2)
        each.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
        each.set_xlabel("epsilon of the run, one example")
        each.set_ylabel(name)
        each.set_ylim(bottom=0.0)
    axes[0].legend(loc="lower right")
    flmc.plot.reliability(scores["iid", max(epsilons)], axes=axes[2])
    axes[2].text(0.98, 0.05, f"devices alike,\nepsilon {max(epsilons):g}", ha="right")
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
