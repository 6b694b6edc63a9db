"""Inverse questions: the value that is found meets the requirements, and less does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli import main
from flmc.planning.requirements import read_requirement
from flmc.settings.assembly import assemble
from flmc.settings.questions import solve
from flmc.settings.schema import merge
from support import QUICK


def _meets(settings: dict[str, Any], *requirements: str) -> bool:
    plan = assemble(merge({}, settings)).plan()
    against = [each for each in plan.findings if each.severity != "note"]
    return not against and all(read_requirement(r).broken(plan) is None for r in requirements)


@pytest.mark.parametrize(
    ("name", "asked", "less"),
    [
        ("snr_db", {"rounds": 2000}, lambda v: v - 1.0),
        ("rounds", {"snr_db": 12.0}, lambda v: int(0.9 * v)),
        ("epsilon", {"scope": "run", "rounds": 1000}, lambda v: 0.9 * v),
        ("devices", {"samples": 4000, "clip": 40.0, "rounds": 1000}, lambda v: int(0.9 * v)),
    ],
)
def test_the_smallest_value(name: str, asked: dict[str, Any], less: Any) -> None:
    solution = solve(merge({}, asked), name)
    found = {**asked, "burn_in": "auto", name: type(asked.get(name, 1.0))(solution.value)}
    if name in ("rounds", "devices"):
        found[name] = int(solution.value)
    assert _meets(found)
    if solution.value > 1:  # one device may do
        assert not _meets({**found, name: less(solution.value)})
    assert solution.plan.digest == assemble(solution.settings).plan().digest
    # The curve is in order, and says which values do.
    values = [point.value for point in solution.curve]
    assert values == sorted(values)
    assert {bool(point.broken) for point in solution.curve} == {True, False} or values[0] == 1


def test_a_requirement_on_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    """The largest epsilon is asked for the run, while the budget is for a round: rounds are what
    is to be found. The estimate that guides the search is replaced by the accountant at the end."""
    wanted = "run.epsilon<=300"
    command = ["plan", "--solve", "snr_db", "--rounds", "600", "--require", wanted, "--json"]
    assert main(command) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema_version"] == 1
    assert answer["solved"]["name"] == "snr_db"
    assert answer["plan"]["privacy"]["run"]["epsilon"] <= 300
    assert main([*command[:5], "--require", "run.epsilon<=1", "--rounds", "600"]) == 1
    assert "meets the requirements" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["clip", "slope_parameter"])
def test_the_best_value(name: str) -> None:
    """A clip that cuts a fifth of the gradients, and a slope that is far too steep, are cured."""
    asked = {"clip": 8.0} if name == "clip" else {"slope_parameter": 0.4}
    assert not _meets(dict(asked))
    solution = solve(merge({}, {**asked, "rounds": 1000}), name)
    assert _meets({"rounds": 1000, "burn_in": "auto", name: solution.value})


def test_what_cannot_be_solved_for() -> None:
    with pytest.raises(InvalidSetting, match="solve must be one of snr_db"):
        solve(merge({}, {}), "seed")
    with pytest.raises(RunFailed, match="no value of snr_db"):
        solve(merge({}, {"scope": "run", "epsilon": 0.1}), "snr_db")


def test_solving_with_suggestions() -> None:
    """Everything that is left open is suggested anew for every SNR."""
    asked = {"epsilon": 3.0, "rounds": 400, "scheme": "analog"}
    solution = solve(merge({}, asked), "snr_db", suggest=True)
    assert not solution.plan.warnings
    assert solution.plan.num_rounds == 400
    with pytest.raises(RunFailed):
        solve(merge({}, {**asked, "epsilon": 1e-4}), "snr_db", suggest=True)


def test_what_is_handed_out_meets_the_requirements(capsys: pytest.CaptureFixture[str]) -> None:
    """The best value may not do; a suggestion is part of the answer; less may be what helps."""
    assert main(["plan", "--solve", "clip", "--rounds", "20", "--no-run"]) == 1
    assert "no value of clip meets the requirements" in capsys.readouterr().err
    assert main(["plan", "--solve", "clip", "--suggest", "--samples", "20000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["warnings"] == []
    assert main(["plan", "--solve", "snr_db", "--suggest", "--link", "auto", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["plan"]["warnings"] == []
    assert "options" in captured.err  # those that were suggested
    if not QUICK:  # data are drawn for a dozen numbers of examples
        assert solve(merge({}, {"samples": 60_000}), "samples").value < 2000


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("epsilon", {"privacy": "off"}),
        ("snr_db", {"scheme": "ideal"}),
        ("slope_parameter", {"scheme": "analog"}),
        ("devices", {"model": "mine:model"}),
    ],
)
def test_what_has_no_effect_is_not_solved_for(name: str, asked: dict[str, Any]) -> None:
    with pytest.raises(InvalidSetting, match="has no effect"):
        solve(merge({}, asked), name)
