"""What pages show are the functions of the package, not numbers of their own."""

from __future__ import annotations

import json

import pytest

import flmc
from flmc.settings.schema import merge
from flmc.studio.elements.cards import page_as_html
from flmc.studio.elements.echarts import to_options
from flmc.studio.work import computations
from flmc.studio.work.reproduction import parts_of_report
from flmc.views.charts.chart import DARK, LIGHT
from flmc.views.charts.plan_charts import limits_chart

SETTINGS = [
    {},
    {"scheme": "analog", "snr_db": "12"},
    {"fading": "rayleigh", "scheduling": "random:10"},
    {"neighbouring": "example", "example_clip": "1", "scope": "run"},
    {"link": "linear"},
    {"scheme": "ideal"},
    {"privacy": "off", "dim": "1"},
]


@pytest.mark.parametrize("given", SETTINGS, ids=str)
def test_every_answer_of_every_kind_of_settings(given: dict[str, str]) -> None:
    """Answers are plain, and charts of them are JSON for both themes."""
    settings = merge({}, given)
    plan = computations.whole_plan(settings)
    assert plan == computations.quick_plan(settings)
    json.dumps(computations.document(settings), allow_nan=False)
    computations.spending(settings)
    computations.round_losses(settings)
    law = computations.predicted_law(settings)
    assert (law is None) == (plan.prediction is None)
    if not plan.uplink.noise_is_exact:
        chart = limits_chart(plan)
        for theme in (LIGHT, DARK):
            json.dumps(to_options(chart, theme), allow_nan=False)


def test_a_page_as_one_file() -> None:
    plan = computations.whole_plan(merge({}, {}))
    text = page_as_html("<title>", ["flmc plan"], plan.listing(), [limits_chart(plan)], LIGHT)
    assert "&lt;title&gt;" in text
    assert text.count("<svg") == 1
    assert "<script" not in text


def test_reports_are_cut_at_their_pictures() -> None:
    text = "# Title\n\nWords.\n\n![one](a.png)\n\n![two](b.png)\n\nEnd.\n"
    assert parts_of_report(text) == [
        ("", "# Title\n\nWords."), ("a.png", "one"), ("b.png", "two"), ("", "End."),
    ]  # fmt: skip


def test_flmc_itself_does_not_load_the_studio() -> None:
    assert flmc.plan is not None
    import subprocess
    import sys

    code = "import flmc, sys; flmc.plan; assert 'nicegui' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
