"""What was spent, from the ledger of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import RunFailed
from flmc.cli import main


def test_a_run_stops_before_it_overspends(tmp_path: Path) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    limits = flmc.Limits(epsilon=20.0, scope="run", langevin="off")
    plan = flmc.plan(model, flmc.Digital(), limits, gain=0.2, step_size=1e-3, forecast=False)
    rounds = plan.affordable_rounds
    assert 0 < rounds < 300
    assert plan.uplink.privacy_event([(0.2, 5 * rounds)]).epsilon(1e-5) <= 20.0
    assert plan.uplink.privacy_event([(0.2, 5 * (rounds + 1))]).epsilon(1e-5) > 20.0
    with pytest.raises(
        RunFailed, match=f"stopped after round {rounds} of 300: the next would overspend"
    ):
        flmc.run(plan, model, out=tmp_path / "run")
    assert len(flmc.load(tmp_path / "run").ledger) == rounds


def test_ledger_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert (
        main(["run", "--rounds", "40", "--burn-in", "10", "--chains", "2", "--json", "--out", out])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert main(["ledger", out, "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)
    spent = [epsilon for _, epsilon in curve["curve"]]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(result["plan"]["privacy"]["run"]["epsilon"], rel=1e-9)
    assert curve["transmitted"] == [40] * 20
    # Every device transmitted in every round, at the cap: the plan's event.
    assert curve["risk"] == result["plan"]["privacy"]["risk"]
    assert curve["devices"] == [spent[-1]] * 20
    assert main(["ledger", out]) == 0
    shown = capsys.readouterr().out
    assert "epsilon" in shown
    assert "which of two data sets a device has" in " ".join(shown.split())
    assert (tmp_path / "run" / "ledger.png").stat().st_size > 5_000
    assert main(["ledger", str(tmp_path)]) == 2


def test_what_was_spent_up_to_a_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    settings = ["--rounds", "40", "--burn-in", "10", "--chains", "3", "--scheduling", "random:10"]
    assert main(["run", *settings, "--json", "--out", out]) == 0
    capsys.readouterr()
    assert main(["ledger", out, "--at", "15", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["at"], document["num_chains"]) == (1, 15, 3)
    # A second source: the ledger's own lines, and the event of the device that talked most.
    lines = [json.loads(line) for line in flmc.load(out).ledger[:15]]
    talked = [sum(device not in line["silent"] for line in lines) for device in range(20)]
    assert document["transmitted"] == talked
    gain = lines[0]["gain"][0]
    worst = flmc.Digital().privacy_event([(gain, 5 * max(talked))]).epsilon(1e-5)
    assert document["epsilon_so_far"] == pytest.approx(worst, rel=1e-9)
    assert document["curve"] == [[15, document["epsilon_so_far"]]]
    # The statement itself is of all 40 rounds, whichever round was asked for.
    assert main(["ledger", out, "--json"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert document["epsilon"] == whole["epsilon"] == whole["epsilon_so_far"] > 1.5 * worst
    assert main(["ledger", out, "--at", "15"]) == 0
    text = capsys.readouterr().out
    assert "valid if the round to stop at was fixed beforehand" in text
    assert "the ledger of one chain: the 3 chains of the run" in text
    assert "picture" not in text
    for wrong, message in (("0", "at least 1, got 0"), ("41", "at most 40, got 41")):
        assert main(["ledger", out, "--at", wrong]) == 2
        assert message in capsys.readouterr().err


def test_what_is_not_bounded_is_null(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    settings = ["--scheme", "ideal", "--rounds", "6", "--burn-in", "3", "--chains", "1"]
    assert main(["run", *settings, "--json", "--out", out]) == 0
    capsys.readouterr()
    assert main(["ledger", out, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] is None


def test_a_damaged_ledger_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        main(
            [
                "run",
                "--rounds",
                "40",
                "--burn-in",
                "10",
                "--chains",
                "2",
                "--json",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    capsys.readouterr()
    whole = (out / "ledger.txt").read_bytes()
    for damaged, message in (
        (whole.replace(b'"round":3,', b'"round":7,'), "damaged behind round 2"),
        (b"\n".join(whole.split(b"\n")[:11]) + b"\n", "ends with round 11"),
    ):
        (out / "ledger.txt").write_bytes(damaged)
        assert main(["ledger", str(out)]) == 1
        assert message in capsys.readouterr().err


def test_what_a_run_from_python_has_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dimension is the model's, whatever the settings' default."""
    own = flmc.Model.from_gradient(
        lambda theta: np.repeat(theta[:, None], 4, axis=1),
        prior=flmc.Normal(0, 1),
        dim=12,
        num_devices=4,
        smoothness=9.0,
        convexity=1.0,
    )
    plan = flmc.plan(own, flmc.Digital(), num_rounds=20, num_burn_in=10)
    flmc.run(plan, own, out=tmp_path / "run")
    assert plan.run_cost is not None
    found = flmc.spent(flmc.load(tmp_path / "run"), plan)
    assert found.points[-1][1] == pytest.approx(plan.run_cost.epsilon, rel=1e-9)
    assert main(["ledger", str(tmp_path / "run")]) == 2
    assert "flmc.spent(flmc.load(DIR), plan)" in capsys.readouterr().err


def test_the_ledger_of_a_model_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twelve.py").write_text(
        "import flmc, numpy as np\nmodel = flmc.Model.from_gradient(lambda t: np.repeat(t[:, None],"
        " 4, axis=1), prior=flmc.Normal(0, 1), dim=12, num_devices=4, smoothness=9.0,"
        " convexity=1.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = [
        "--model",
        "twelve:model",
        "--rounds",
        "20",
        "--burn-in",
        "10",
        "--chains",
        "2",
        "--json",
    ]
    assert main(["run", *asked, "--out", "run"]) == 0
    stated = json.loads(capsys.readouterr().out)["plan"]["privacy"]["run"]["epsilon"]
    assert main(["ledger", "run", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["devices"]) == pytest.approx(stated, rel=1e-9)


def test_each_device_has_spent_its_own() -> None:
    from flmc.runs.ledger_cost import spent_curve

    entries = [
        json.dumps({"round": r + 1, "gain": [0.2], "silent": [0] if r % 2 else []})
        for r in range(20)
    ]
    curve = spent_curve(entries, flmc.Digital(), flmc.Limits(), 3, 5)
    assert curve.transmitted == [10, 20, 20]
    assert curve.devices[0] == pytest.approx(
        flmc.Digital().privacy_event([(0.2, 50)]).epsilon(1e-5)
    )
    assert curve.devices[1] == curve.devices[2] == curve.points[-1][1] > curve.devices[0]


def test_a_ledger_says_which_chains_it_covers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One of a hundred chains spends the budget; a hundred on the same data cost their
    composition. Where the plan looked at the data, the ledger says so."""
    out = str(tmp_path / "run")
    settings = ["--rounds", "40", "--burn-in", "10", "--epsilon", "20", "--scope", "run"]
    assert main(["run", *settings, "--chains", "100", "--json", "--out", out]) == 0
    result = json.loads(capsys.readouterr().out)
    assert main(["ledger", out, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    gain = json.loads(flmc.load(out).ledger[0])["gain"][0]
    every = flmc.Digital().privacy_event([(gain, 5 * 40 * 100)]).epsilon(1e-5)
    assert document["epsilon"] <= 20 * (1 + 1e-9) < every / 10
    assert (document["chains_covered"], document["num_chains"]) == (1, 100)
    assert document["epsilon_all_chains"] == pytest.approx(every, rel=1e-9)
    assert document["data_dependent"] is True
    assert result["coverage"] == {
        "chains_covered": 1,
        "epsilon": pytest.approx(document["epsilon"], rel=1e-9),
        "epsilon_all_chains": pytest.approx(every, rel=1e-9),
        "delta": 1e-5,
        "data_dependent": True,
        "stated_by": None,
    }
    assert main(["ledger", out]) == 0
    said = capsys.readouterr().out
    assert "if all of them were given out" in said
    assert "data dependent: yes" in said


def test_a_ledger_of_a_public_plan_says_so(tmp_path: Path) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(
        model,
        flmc.Digital(),
        num_rounds=6,
        num_burn_in=2,
        public_smoothness=20.0,
        public_convexity=2.0,
    )
    flmc.run(plan, model, chains=2, out=tmp_path / "run")
    curve = flmc.spent(flmc.load(tmp_path / "run"), plan)
    assert curve.data_dependent is False
    assert "data dependent: no" in str(curve)
    cost = plan.release(2).cost
    assert cost is not None
    assert curve.epsilon_all_chains == pytest.approx(cost.epsilon, rel=1e-9)


def test_a_run_that_was_stopped_costs_the_whole_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who stops after looking chooses the round by the data: the default is the planned run."""
    out = tmp_path / "run"
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=40, num_burn_in=10)
    flmc.run(plan, model, engine="numpy", chains=1, out=out)
    whole = (out / "ledger.txt").read_bytes().splitlines(keepends=True)
    stopped = flmc.load(out)
    finished = flmc.spent(stopped, plan)
    object.__setattr__(stopped, "result", None)
    object.__setattr__(stopped, "ledger", stopped.ledger[: len(whole) // 4])
    object.__setattr__(stopped, "round", len(whole) // 4)
    curve = flmc.spent(stopped, plan)
    assert plan.run_cost is not None
    assert (curve.at, curve.planned, curve.unfinished) == (10, 40, 40)
    assert curve.epsilon == pytest.approx(plan.run_cost.epsilon, rel=1e-9)
    assert curve.epsilon == pytest.approx(finished.epsilon, rel=1e-9)
    gain = float(plan.gain[0, 0])
    alone = flmc.Digital().privacy_event([(gain, 5 * 10)]).epsilon(1e-5)
    assert curve.epsilon_so_far == pytest.approx(alone, rel=1e-9)
    assert curve.epsilon > 2 * curve.epsilon_so_far
    assert "valid if the round to stop at was fixed beforehand" in str(curve)
    assert "fixed beforehand;" not in str(finished)


def test_no_risk_is_stated_of_devices_in_different_rounds(tmp_path: Path) -> None:
    """One device in a loud round, the others in 39 quiet ones: these spend more epsilon at the
    run's delta, and that one is told apart in 95 % of the cases, where their curve says 68 %."""
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=1, num_samples=200, num_devices=4, dim=1)
    )
    gain, active = np.full((40, 1), 0.08), np.ones((40, 4))
    gain[0], active[0, 1:], active[1:, 0] = 4.0, 0.0, 0.0
    uplink = flmc.Digital(link=flmc.Sigmoid(0.1), clip=30.0, snr_db=40)
    limits = flmc.Limits(privacy="off", langevin="off")
    given: dict[str, Any] = {"num_rounds": 40, "num_burn_in": 2, "gain": gain}
    for name, who in (("turns", active), ("all", np.ones((40, 4)))):
        plan = flmc.plan(model, uplink, limits, scheduler=flmc.GivenDevices(who), **given)
        flmc.run(plan, model, engine="numpy", out=tmp_path / name)
        risk = flmc.spent(flmc.load(tmp_path / name), plan).risk
        assert plan.run_risk is not None
        assert plan.run_risk.accuracy > 0.95
        if name == "turns":
            assert risk is None
        else:
            assert risk is not None
            assert risk.accuracy == pytest.approx(plan.run_risk.accuracy, rel=1e-6)
