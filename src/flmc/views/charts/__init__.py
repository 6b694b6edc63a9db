"""Charts: descriptions of pictures as plain values, which several front ends draw.

:mod:`flmc.views.charts.chart` defines the parts of a chart, ``plan_charts`` and ``run_charts`` make
charts of plans and of runs, and ``drawing`` draws any chart with Matplotlib, for files. The studio
draws the same values in a browser. Nothing here computes a result."""
