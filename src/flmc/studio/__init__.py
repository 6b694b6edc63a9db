"""The studio: a local web interface with sliders for the settings and live charts of their
consequences.

Pages show the results of :mod:`flmc.planning`, :mod:`flmc.runs` and :mod:`flmc.papers`, and
federations on separate machines, as rows of :mod:`flmc.base.tables` and charts of
:mod:`flmc.views`. The pages compute nothing by themselves, and the browser loads nothing from
another host. The command ``flmc studio`` starts the studio, which needs the extra ``studio``
(NiceGUI)."""
