"""The figure of the privacy loss of a round against the SNR."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flmc.base.arrays import Array
from flmc.uplink.power import planned_power_limit
from flmc.uplink.replacing import replace
from flmc.uplink.schemes import Analog, Digital
from flmc.views.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_loss_against_snr(
    axes: Axes, digital: Digital, analog: Analog, dim: int, delta: float, snr_db: Array
) -> None:
    """Draw epsilon of one round at full transmit power against the SNR: bounded for digital, not
    for analog.

    Parameters
    ----------
    axes
        Where to draw.
    digital, analog
        The uplinks to compare; their own ``snr_db`` is not used.
    dim
        Entries of theta that are sent in the round.
    delta
        Delta at which epsilon is stated.
    snr_db
        Values of the SNR in dB, (point).

    Examples
    --------
    >>> from flmc.views.figures import new_figure
    >>> from flmc.views.loss_figure import draw_loss_against_snr
    >>> figure, (axes,) = new_figure(columns=1)
    >>> snr_db = np.array([0.0, 10.0, 20.0])
    >>> draw_loss_against_snr(axes, flmc.Digital(), flmc.Analog(), 5, 0.01, snr_db)
    >>> digital, analog, bound = axes.lines
    >>> bool((digital.get_ydata() <= bound.get_ydata()[0]).all())
    True
    """
    for uplink, colour in ((digital, COLOURS[0]), (analog, COLOURS[1])):
        epsilon = []
        for value in snr_db:
            loud = replace(uplink, snr_db=float(value))
            event = loud.privacy_event([(planned_power_limit(loud, 2, dim), dim)])
            epsilon.append(event.epsilon(delta))
        axes.semilogy(snr_db, epsilon, color=colour, label=uplink.scheme)
    bound = digital.privacy_event([(1.0, dim)]).largest_loss
    axes.axhline(bound, color=COLOURS[0], linestyle=":", label=f"digital bound {bound:g}")
    axes.set_xlabel("SNR at the transmitter [dB]")
    axes.set_ylabel(f"epsilon of one round at delta = {delta:g}")
    axes.legend(frameon=False)
