"""The studio: a local web page on which people move sliders and see what a channel gives them.

Pages show what :mod:`flmc.planning`, :mod:`flmc.runs` and :mod:`flmc.papers` compute, drawn from
the rows and charts of :mod:`flmc.views`. Nothing here computes a result, and nothing is loaded from
another host. The command ``flmc studio`` starts it; the extra ``studio`` (NiceGUI) is needed."""
