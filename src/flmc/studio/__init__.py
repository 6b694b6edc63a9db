"""The studio: a local web page with sliders for the settings and live charts of their
consequences.

Pages show what :mod:`flmc.planning`, :mod:`flmc.runs` and :mod:`flmc.papers` compute, drawn
from the rows and charts of :mod:`flmc.views`. Nothing here computes a result, and nothing is
loaded from another host. The command ``flmc studio`` starts it; it needs the extra ``studio``
(NiceGUI).
"""
