"""A federated sampler over a noisy uplink, compared with the exact posterior. `make run` runs
this."""

from pathlib import Path

import flmc
from flmc.views.figures import new_figure
from flmc.views.posterior_figure import draw_posterior

data = flmc.data.draw_linear(seed=1, num_samples=1200, dim=5, num_devices=20)
model = flmc.LinearGaussian(data)
paper, calibrated = flmc.Limits(langevin="paper"), flmc.Limits()
cases = {
    "digital, the paper's limit": flmc.plan(model, flmc.Digital(), paper),
    "digital, calibrated": flmc.plan(model, flmc.Digital(), calibrated),
    "analog, calibrated": flmc.plan(model, flmc.Analog(), calibrated),
}

figure, panels = new_figure(columns=3)
for (name, plan), axes in zip(cases.items(), panels, strict=True):
    result = flmc.run(plan, model, seed=7, chains=200)
    print(f"\n--- {name} ---\n{plan}\n\n{result}")
    draw_posterior(axes, result, model.posterior)
    axes.set_title(
        f"{name}\nvariance {result.metrics.variance_ratio.mean:.3g} times the posterior's",
        fontsize=10,
    )
handles, labels = panels[0].get_legend_handles_labels()
figure.legend(
    handles, labels, loc="outside lower center", ncols=3, fontsize=8, markerscale=4, frameon=False
)

out = Path("out")
out.mkdir(exist_ok=True)
figure.savefig(out / "posterior.png", dpi=150)
print(f"\npicture: {out / 'posterior.png'}")
