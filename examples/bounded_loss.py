"""At full power, digital keeps a finite privacy loss at any SNR; analog does not."""

from pathlib import Path

import numpy as np

import flmc
from flmc.views.figures import new_figure
from flmc.views.run_figures import draw_loss_against_snr

figure, [axes] = new_figure(columns=1, width=5.0, height=3.4)
draw_loss_against_snr(
    axes, flmc.Digital(), flmc.Analog(), dim=5, delta=1e-5, snr_db=np.arange(0.0, 61.0, 2.0)
)
axes.set_title("full power, h = 0.04, sigmoid a = 0.05, clip 30, dim 5", fontsize=9)
out = Path("out")
out.mkdir(exist_ok=True)
figure.savefig(out / "bounded_loss.png", dpi=150)
print(f"picture: {out / 'bounded_loss.png'}")
