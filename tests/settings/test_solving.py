"""Inverse questions: the value that is found meets the requirements, and less does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli import main
from flmc.planning.requirements import read_requirement
from flmc.planning.search import smallest
from flmc.settings.assembly import assemble
from flmc.settings.questions import AXES, Point, Unsolved, solve
from flmc.settings.schema import merge
from support import QUICK, against_sampling, full_only


def _meets(settings: dict[str, Any], *requirements: str) -> bool:
    plan = assemble(merge({}, settings)).plan()
    return not against_sampling(plan) and all(
        read_requirement(r).broken(plan) is None for r in requirements
    )


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
    assert not against_sampling(solution.plan)
    assert solution.plan.num_rounds == 400
    with pytest.raises(RunFailed):
        solve(merge({}, {**asked, "epsilon": 1e-4}), "snr_db", suggest=True)


@full_only
def test_what_is_handed_out_meets_the_requirements(capsys: pytest.CaptureFixture[str]) -> None:
    """The best value may not do; a suggestion is part of the answer; less may be what helps."""
    assert main(["plan", "--solve", "clip", "--rounds", "20", "--no-run"]) == 1
    error = capsys.readouterr().err
    assert "no value of clip from" in error
    assert "plans for values of clip" in error  # the table of what was tried
    assert main(["plan", "--solve", "clip", "--suggest", "--samples", "20000", "--json"]) == 0
    # The budget is for a round; the rest is green.
    told = [each["code"] for each in json.loads(capsys.readouterr().out)["plan"]["findings"]]
    assert told == ["round-budget"]
    assert main(["plan", "--solve", "snr_db", "--suggest", "--link", "auto", "--json"]) == 0
    captured = capsys.readouterr()
    told = [each["code"] for each in json.loads(captured.out)["plan"]["findings"]]
    assert told == ["round-budget"]
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


def test_a_failed_search_names_what_stands_in_the_way_everywhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No SNR cures a link that is far too steep and a clip that cuts off half of the gradients;
    that the burn-in, too, is short at the SNR that was given is not the reason."""
    steep = ["--link", "sigmoid:0.5", "--clip", "4", "--burn-in", "5", "--no-run"]
    assert main(["plan", "--solve", "snr_db", *steep]) == 1
    *table, line = capsys.readouterr().err.strip().splitlines()
    always = line.partition("at all of them: ")[2]
    assert "clipped: " in always
    assert any("plans for values of snr_db" in each for each in table)
    # The table names every cause of each value.
    with pytest.raises(Unsolved) as caught:
        solve(merge({}, {"link": "sigmoid:0.5", "clip": 4.0, "burn_in": 5}), "snr_db")
    for point in caught.value.curve:
        if point.plan is not None:
            assert any(each.startswith("clipped: ") for each in point.broken)


def test_an_answer_at_the_end_of_the_search_says_so() -> None:
    """The search goes down to the end of its reach, and the answer there is not called smallest."""
    solution = solve(merge({}, {"rounds": 2000}), "snr_db")
    assert not solution.at_end
    assert "is the smallest value" in solution.words
    assert smallest(lambda place: True, 25.0, AXES["snr_db"]) == pytest.approx(-35.0, abs=0.1)
    ended = replace(solution, value=-35.0, curve=(Point(-35.0, None, ()), Point(25.0, None, ())))
    assert ended.at_end
    assert "is where the search ends" in ended.words
    assert ended.to_document()["at_end"]
    inside = replace(ended, curve=(Point(-36.0, None, ("no",)), *ended.curve))
    assert not inside.at_end
    assert "is the smallest value" in inside.words
