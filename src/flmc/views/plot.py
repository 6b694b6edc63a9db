"""Figures of results, for notebooks: ``flmc.plot.trace(result)`` and others; they need the extra
``plot``.

Each function returns a Matplotlib figure, which a notebook shows and ``savefig`` writes."""

from flmc.views.draws_figures import draw_autocorrelation as autocorrelation
from flmc.views.draws_figures import draw_pairs as pair
from flmc.views.draws_figures import draw_ranks as rank
from flmc.views.draws_figures import draw_reliability as reliability
from flmc.views.draws_figures import draw_traces as trace

__all__ = ["autocorrelation", "pair", "rank", "reliability", "trace"]
