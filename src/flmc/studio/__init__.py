"""The studio: a local web interface with sliders for the settings and live charts of their
consequences.

Pages show results of :mod:`flmc.planning`, :mod:`flmc.runs` and :mod:`flmc.papers`, and federations
on separate machines, as the rows of :mod:`flmc.base.tables` and the charts of :mod:`flmc.views`. No
page has a computation of its own, and nothing is loaded from another host. The command ``flmc
studio`` starts the studio, which needs the extra ``studio`` (NiceGUI)."""
