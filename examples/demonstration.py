"""One federated run in words and a picture: 20 devices, one bit an entry and analog, against the
exact posterior. ``make run`` begins with this. The argument is the directory for the picture."""

import sys
import textwrap
from pathlib import Path

import flmc
from flmc.planning.plans.rows import CONSTRAINTS
from flmc.views.figures import new_figure
from flmc.views.run_figures import draw_posterior


def say(text: str) -> None:
    """Print a paragraph, wrapped."""
    print(textwrap.fill(text, 90), end="\n\n")


def tell(plan: flmc.Plan, result: flmc.Result) -> None:
    """What bound the gain, what came out, and what privacy it cost."""
    metrics = result.metrics
    off = 100 * metrics.mean_error_squared.mean / metrics.posterior_trace
    say(
        "The gain, the strength at which every device's signal arrives at the server, is"
        f" {plan.typical_gain:.3g}. Three things limit it: transmit power"
        f" ({plan.gain_limits.power:.3g}), the noise that the sampler needs"
        f" ({plan.gain_limits.langevin:.3g}) and the privacy budget"
        f" ({plan.gain_limits.privacy:.3g}). The {CONSTRAINTS[plan.binding]} decides."
    )
    say(
        f"The draws vary {metrics.variance_ratio.mean:.3g} times as much as the exact posterior (1"
        f" is right), and the square of their mean's error is {off:.2g} % of the posterior's"
        " variance."
    )
    say(
        "What the server receives in one round reveals at most epsilon ="
        f" {plan.round_cost.epsilon:.3g} of a device's data (at delta = {plan.round_cost.delta:g});"
        f" all {plan.num_rounds} rounds together {plan.run_cost.epsilon:.3g} (at delta ="
        f" {plan.run_cost.delta:g}). Smaller is more private; above about 20 next to nothing is"
        " guaranteed. (200 such chains were run, to see the law that each of them samples; the"
        " epsilon is that of one.)"
    )


def main(out: Path) -> None:
    """Run three uplinks on one problem, tell what happened, and draw the draws."""
    data = flmc.data.draw_linear(seed=1, num_samples=1200, dim=5, num_devices=20)
    model = flmc.LinearGaussian(data)
    say(
        "Twenty devices hold 60 examples each of a linear regression with 5 unknown numbers. In"
        " each of 300 rounds the server broadcasts its current guess; every device computes how its"
        " own data would change that guess (its gradient) and sends it over one shared radio"
        " channel, where all signals and the receiver's noise add up. The server takes a step"
        " against what it received. Because the sum is noisy the guess never settles: it wanders"
        " over the values that the data leave plausible. Those values are the draws from the"
        " posterior. The last 100 rounds are kept."
    )
    budget = flmc.Limits(epsilon=5, delta=0.01)
    cases = {
        "digital, noise limit as published": flmc.plan(
            model, flmc.Digital(), flmc.Limits(langevin="paper")
        ),
        "digital, calibrated": flmc.plan(model, flmc.Digital(), budget),
        "analog, calibrated": flmc.plan(model, flmc.Analog(), budget),
    }
    headings = {
        "digital, calibrated": "DIGITAL: every entry of the gradient becomes one random bit",
        "analog, calibrated": "ANALOG: every entry is sent as a value, scaled",
    }
    figure, panels = new_figure(columns=3)
    for (name, plan), axes in zip(cases.items(), panels, strict=True):
        result = flmc.run(plan, model, seed=7, chains=200)
        ratio = result.metrics.variance_ratio.mean
        if name in headings:
            print(f"{headings[name]}\n")
            tell(plan, result)
        else:
            print("DIGITAL, with the noise limit as it was published\n")
            say(
                f"That limit forgets the noise of the random bits: the draws vary {ratio:.3g} times"
                " as much as the posterior. flmc calibrates the noise instead, below."
            )
        draw_posterior(axes, result, model.posterior)
        axes.set_title(f"{name}\nvariance {ratio:.3g} times the posterior's", fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=3,
        fontsize=8,
        markerscale=4,
        frameon=False,
    )
    out.mkdir(parents=True, exist_ok=True)
    figure.savefig(out / "posterior.png", dpi=150, bbox_inches="tight", pad_inches=0.1)
    print(f"picture: {out / 'posterior.png'}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/demonstration"))
