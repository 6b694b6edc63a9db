"""Charts: pictures as values, described once and drawn by every front end.

:mod:`flmc.views.charts.chart` defines the parts of a chart. Each other module describes one kind
of picture of a plan or a run, except :mod:`flmc.views.charts.drawing`, which draws any chart with
Matplotlib, for files. The studio draws the same values in a browser. Nothing here computes a
result."""
