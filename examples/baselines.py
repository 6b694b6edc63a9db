"""What a private posterior over a shared channel is worth beside other methods: handwritten digits
on ten devices, against the number of examples and against epsilon, over several splits and chains.

Softmax regression; everything is public knowledge but the examples. The baselines and the rules of
their steps are those of `flmc compare --baselines`. Usage: baselines.py [SIZES] [EPSILONS] [SEEDS]
[FILE.png], for example `baselines.py 100,300 2 4 picture.png`: SEEDS is how many splits, each with
a run of its own."""

import sys
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import flmc
from flmc.base.errors import InvalidSetting
from flmc.evaluation.predictive import class_numbers, class_probabilities, score_probabilities
from flmc.models import regressions
from flmc.runs.baselines import analog_descent

SIZES, EPSILONS, SEEDS = (100, 300, 1000), (0.5, 1.0, 2.0, 4.0), 4
NUM_DEVICES, NUM_TEST = 10, 500
STEP_SIZE = 2e-3
"""Chosen by hand for 1000 examples: near the posterior the curvature is far below its public
bound. Fewer examples bend the posterior less, so that the step may be larger."""
BUDGETED = ("flmc", "FedSGD", "majority vote", "DP-FedSGD", "local posteriors")
COOLED = "flmc, cooled"
SCORES = ("accuracy", "log_loss", "ece")
WORDS = {"accuracy": "accuracy", "log_loss": "log loss (nats)", "ece": "calibration error (ECE)"}


def shuffled(seed):
    """Digits in random order, with pixels from 0 to 16 as features from -1 to 1."""
    raw = flmc.data.read("sklearn:digits")
    data = raw.standardised(dict.fromkeys(raw.feature_names, (8.0, 8.0)))
    return data.split(1, "iid", seed=seed)


def part(data, chosen):
    return replace(
        data,
        features=data.features[chosen],
        targets=data.targets[chosen],
        device_sizes=(chosen.stop - chosen.start,),
    )


def planned(data, size, epsilon):
    """The model of the first examples after those of the test, and the sampler's plan for one
    budget of the run; without a budget (None) examples are not clipped either."""
    learn = part(data, slice(NUM_TEST, NUM_TEST + size)).split(NUM_DEVICES, "iid", seed=1)
    norm = np.sqrt(len(learn.feature_names))
    model = regressions.softmax(learn, prior_sd=0.5, intercept_sd=0.5, feature_norm=norm)
    bounds = {"example_norm": 1.0, "example_shrink": 0.5}
    uplink = flmc.Analog(
        clip=60.0, clipping="norm", snr_db=30, **({} if epsilon is None else bounds)
    )
    limits = flmc.Limits(privacy="off")
    step = STEP_SIZE * min(4.0, 1000 / size)
    if epsilon is None:
        step /= 2.0  # the same effective step
    else:
        limits = flmc.Limits(epsilon=epsilon, scope="run", neighbouring="example")
    settings = {"num_rounds": 400, "num_burn_in": 200, "forecast": False}
    plan = flmc.plan(model, uplink, limits, step_size=step, **settings)
    # A sampler that is to carry the noise of a budget may be no bolder than descent is.
    smaller = analog_descent(plan, model).step_size
    if smaller < step:
        plan = flmc.plan(model, uplink, limits, step_size=smaller, **settings)
    return model, plan


def compared(data, size, epsilon, seed, only=None):
    """Scores of all methods for one budget of the run: name of the method, then of the score. Of
    the sampler there are two readings: the draws of its chain, and the same, cooled. Its answer is
    printed, or why there is none."""
    test = part(data, slice(0, NUM_TEST))
    model, plan = planned(data, size, epsilon)
    found = flmc.compare(plan, model, baselines=True, test=test, only=only, seed=seed, chains=1)
    scores = {
        each.name: {name: each.scores[name].mean for name in SCORES} for each in found.methods
    }
    if epsilon is None:
        return scores
    result = found["flmc"].result
    try:
        print(result.posterior())
    except InvalidSetting as error:
        print(f"{size} examples, epsilon {epsilon:g}, seed {seed}: no answer: {error}")
    draws = cooled(result.draws[0], plan.temperature)
    scored = score_probabilities(class_probabilities(model, draws, test), class_numbers(test))
    scores[COOLED] = {name: getattr(scored, name) for name in SCORES}
    return scores


def cooled(draws, temperature):
    """Draws of a chain (round, dim) whose deviations from their mean are divided by the root of the
    temperature, and to which the error of the mean is added: sums of the deviations over stretches
    of 40 rounds, with random weights."""
    stretch, rng = 40, np.random.default_rng(1)
    mean = draws.mean(axis=0)
    away = draws - mean
    weight = rng.standard_normal((len(draws), len(draws) + stretch - 1))
    weight = np.stack([np.convolve(each, np.ones(stretch), "valid") for each in weight])
    error = (weight - weight.mean(axis=1, keepdims=True)) @ away / np.sqrt(stretch) / len(draws)
    return mean + away / np.sqrt(max(temperature, 1.0)) + error


def measure(sizes, epsilons, seed):
    """Scores by method, of every size at the middle epsilon and of every epsilon at the largest
    size, and without a budget; methods without privacy do not depend on epsilon."""
    data, middle = shuffled(seed), epsilons[len(epsilons) // 2]
    free = ("flmc", "FedSGD", "noiseless LMC")
    unlimited = {size: compared(data, size, None, seed, free) for size in sizes}
    # The reference without noise takes the step that a plan without a budget has.
    by_size = {
        size: compared(data, size, middle, seed, BUDGETED)
        | {"noiseless LMC": without["noiseless LMC"]}
        for size, without in unlimited.items()
    }
    private = [name for name in BUDGETED if name != "local posteriors"]
    by_epsilon = {
        epsilon: by_size[sizes[-1]]
        if epsilon == middle
        else compared(data, sizes[-1], epsilon, seed, private)
        for epsilon in epsilons
    }
    return by_size, by_epsilon, unlimited


def over_seeds(each):
    """Mean over seeds, and its standard error, of every score: a dictionary by value, method and
    score, from a list of such dictionaries."""
    count = len(each)

    def estimate(numbers):
        error = np.std(numbers, ddof=1) / np.sqrt(count) if count > 1 else np.nan
        return float(np.mean(numbers)), float(error)

    return {
        value: {
            method: {
                score: estimate([one[value][method][score] for one in each]) for score in SCORES
            }
            for method in methods
        }
        for value, methods in each[0].items()
    }


def print_table(title, found, word):
    print(f"\n{title}")
    print(f"{word:>8}  {'method':18} {'accuracy':>14} {'log loss':>14} {'ECE':>14}")
    for value, methods in found.items():
        for name, scores in methods.items():
            cells = [f"{mean:.3f} ± {error:.3f}" for mean, error in scores.values()]
            print(f"{value:8g}  {name:18} " + " ".join(f"{cell:>14}" for cell in cells))


def draw(by_size, by_epsilon, middle, path):
    """Three scores against the number of examples (above) and against epsilon (below)."""
    figure, axes = plt.subplots(2, 3, figsize=(11, 6.4), layout="constrained")
    names = list(by_size[max(by_size)])
    looks = dict(zip(names, zip("osv^DXP", plt.cm.tab10(range(7)), strict=False), strict=False))
    rows = ((by_size, "training examples"), (by_epsilon, "epsilon of the run (one example)"))
    for row, (found, label) in zip(axes, rows, strict=True):
        for axis, score in zip(row, SCORES, strict=True):
            for name, (marker, colour) in looks.items():
                points = [
                    (value, methods[name][score][0])
                    for value, methods in found.items()
                    if name in methods
                ]
                free = name in ("local posteriors", "noiseless LMC")
                style = {"color": colour, "label": name}
                if free and found is by_epsilon:
                    axis.axhline(points[0][1], linestyle="--", **style)
                else:
                    # Where the budget decides, FedSGD and DP-FedSGD are the same: both are to be
                    # seen.
                    size = 11 if name == "FedSGD" else 5
                    fill = "none" if name == "FedSGD" else "full"
                    axis.plot(
                        *zip(*points, strict=True),
                        marker=marker,
                        markersize=size,
                        fillstyle=fill,
                        **style,
                    )
            axis.set(xscale="log", xlabel=label, ylabel=WORDS[score])
            axis.set_xticks(list(found), [f"{value:g}" for value in found])
            axis.minorticks_off()
            axis.set_ylim(0.0, 1.0 if score == "accuracy" else None)
    axes[0, 0].set_title(f"epsilon {middle:g}", loc="left", fontsize=10)
    axes[1, 0].set_title(f"{max(by_size)} training examples", loc="left", fontsize=10)
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=len(labels), frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    pictures = [word for word in sys.argv[1:] if word.endswith(".png")]
    words = [word for word in sys.argv[1:] if word not in pictures]
    sizes = tuple(int(n) for n in words[0].split(",")) if words else SIZES
    epsilons = tuple(float(e) for e in words[1].split(",")) if len(words) > 1 else EPSILONS
    seeds = int(words[2]) if len(words) > 2 else SEEDS
    middle = epsilons[len(epsilons) // 2]
    each = zip(*(measure(sizes, epsilons, seed) for seed in range(1, seeds + 1)), strict=True)
    by_size, by_epsilon, unlimited = (over_seeds(found) for found in each)
    print_table(f"against training examples, epsilon {middle:g}", by_size, "examples")
    print_table(f"against epsilon, {sizes[-1]} training examples", by_epsilon, "epsilon")
    print_table("against training examples, without a budget", unlimited, "examples")
    for picture in pictures:
        draw(by_size, by_epsilon, middle, Path(picture))


if __name__ == "__main__":
    main()
