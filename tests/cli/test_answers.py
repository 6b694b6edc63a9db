"""`flmc answer` and `flmc run --answer`: what the server knows after a run, from its record or at
its end, and when it is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.evaluation.answer import answer_of
from flmc.evaluation.shown_answer import ShownAnswer
from flmc.evaluation.transcript import Transcript
from flmc.views.plot import intervals

SIZES = ["--devices", "4", "--dim", "3", "--samples", "80", "--engine", "numpy"]
LOUD = [*SIZES, "--scheme", "analog", "--snr-db", "45", "--privacy", "off"]
KNOWS = "what the server knows after one chain"
RUN = ["run", *LOUD, "--rounds", "400", "--burn-in", "100"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record of three chains."""
    out = tmp_path_factory.mktemp("answers") / "record"
    assert main([*RUN, "--chains", "3", "--out", str(out)]) == 0
    return out


def same_model() -> flmc.LinearGaussian:
    """The model that the settings of ``RUN`` describe."""
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=0, dim=3, num_samples=80, num_devices=4))


def printed(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    capsys.readouterr()
    assert main(list(words)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def test_a_record_has_the_answer_of_its_run(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the first chain, or of all; to the last bit, as computed in Python."""
    record, model = flmc.load(place), same_model()
    for words, answer in (
        ([], record.posterior(model, by_chain=True)),
        (["--all-chains"], record.posterior(model)),
    ):
        given = ["answer", str(place), "--interval", "0.8", *words, "--json"]
        document = json.loads(printed(capsys, *given))
        assert document["posterior"]["mean"] == pytest.approx(answer.mean[0], rel=1e-9)
        ends = document["posterior"]["ends"]
        np.testing.assert_allclose(ends, answer.intervals(0.8)[0], rtol=1e-9)
        held = answer.held(0.8)
        assert held is not None
        assert document["held"]["mean"] == pytest.approx(held.mean(), rel=1e-9)
        assert document["held"]["answers"] == (1 if words else 3)
        assert document["num_chains"] == (3 if words else 1)
    shown = printed(capsys, "answer", str(place))
    assert "after one chain, 3" in shown
    assert "mean over 3 chains, each by itself" in " ".join(shown.split())


def test_draws_and_a_picture_are_written(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    text, arrays, picture = (tmp_path / name for name in ("a.csv", "a.npz", "a.png"))
    words = ["answer", str(place), "--draws", "7"]
    printed(capsys, *words, "--out", str(text), "--plot", str(picture))
    printed(capsys, *words, "--out", str(arrays))
    lines = text.read_text().splitlines()
    assert (len(lines), lines[0]) == (8, "theta[0],theta[1],theta[2]")
    kept = np.load(arrays)
    np.testing.assert_array_equal(np.loadtxt(text, delimiter=",", skiprows=1), kept["draws"])
    assert list(kept["entries"]) == lines[0].split(",")
    assert kept["covariance"].shape == (3, 3)
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_picture_has_every_entry() -> None:
    """In columns of at most 40, each interval at its place; exact ones where these are known."""
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    rng = np.random.default_rng(0)
    theta = rng.standard_normal((1, 1, 401, 50))
    noise = np.ones((1, 400, 50))
    seen = Transcript(theta, np.ones(400), noise, np.zeros((1, 400, 1)), 400, True)
    answer = answer_of(seen, np.zeros_like)
    exact = flmc.Gaussian(np.zeros(50), np.eye(50))
    for each, sets in ((answer, 1), (replace(answer, exact=exact), 2)):
        figure = intervals(each, 0.5)
        assert [len(axis.get_yticks()) for axis in figure.axes] == [25, 25]
        lines = [len(axis.collections) for axis in figure.axes]
        assert lines == [sets, sets]
        drawn = figure.axes[1].collections[0].get_segments()  # type: ignore[attr-defined]
        np.testing.assert_allclose([line[:, 0] for line in drawn], answer.intervals(0.5)[0, 25:])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--interval", "1.5"], "--interval must lie strictly between 0 and 1"),
        (["--draws", "5"], "--draws needs --out"),
        (["--draws", "0", "--out", "a.csv"], "--draws must be a whole number of at least 1"),
        (["--out", "a.txt"], "--out must end in .npz or .csv"),
        (["--out", "nowhere/a.csv"], "in a directory that exists"),
        (["--plot", "a.pdf"], "--plot must end in .png"),
    ],
)
def test_what_is_asked_wrongly_is_refused(
    words: list[str], message: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in printed(capsys, "answer", str(place), *words, code=2)


def test_records_that_do_not_tell_are_refused(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    thin, ours = str(tmp_path / "thin"), str(tmp_path / "ours")
    assert main([*RUN, "--chains", "1", "--thin", "2", "--out", thin]) == 0
    assert "kept one in 2: run with thin 1" in printed(capsys, "answer", thin, code=2)
    plan = flmc.plan(same_model(), flmc.Analog(clip=30), num_rounds=40, num_burn_in=10)
    result = flmc.run(plan, same_model(), out=ours)
    assert "flmc.load(DIR).posterior(model)" in printed(capsys, "answer", ours, code=2)
    again = flmc.load(ours).posterior(same_model())
    np.testing.assert_array_equal(again.mean, result.posterior().mean)
    with pytest.raises(InvalidSetting, match="has another plan"):
        flmc.load(place).posterior(same_model(), plan)
    other = flmc.LinearGaussian(flmc.data.draw_linear(seed=0, dim=4, num_samples=80, num_devices=4))
    with pytest.raises(InvalidSetting, match="dim 3, and the model has 1, 4 and 4"):
        flmc.load(place).posterior(other)
    flmc.run(plan, same_model(), keep_draws=False, out=tmp_path / "none")
    with pytest.raises(InvalidSetting, match="this run kept none"):
        flmc.load(tmp_path / "none").posterior(same_model())
    first = replace(flmc.load(place), asked={})
    with pytest.raises(InvalidSetting, match="has version 1"):
        first.posterior(same_model())


def test_code_and_data_of_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is imported only if it is trusted, and what was changed since is refused."""
    monkeypatch.chdir(tmp_path)
    data = flmc.data.draw_linear(seed=1, dim=2, num_samples=60, num_devices=4)
    header = "left,right,y,device\n"
    rows = np.column_stack([data.features, data.targets, np.repeat(np.arange(4), 15)])
    Path("data.csv").write_text(header + "\n".join(",".join(map(str, row)) for row in rows))
    (tmp_path / "fading_for_answers.py").write_text("import flmc\nown = flmc.ConstantFading(0.5)\n")
    words = ["--data-file", "data.csv", "--target", "y", "--device-column", "device"]
    given = ["--scheme", "analog", "--fading", "fading_for_answers:own", "--engine", "numpy"]
    length = ["--rounds", "60", "--burn-in", "10", "--chains", "1"]
    assert main(["run", *words, *given, *length, "--out", "record"]) == 0
    assert "names code of its own" in printed(capsys, "answer", "record", code=2)
    document = json.loads(printed(capsys, "answer", "record", "--trust-code", "--json"))
    assert document["posterior"]["entries"] == ["theta[left]", "theta[right]"]
    Path("data.csv").write_text(Path("data.csv").read_text() + "1,1,1,0\n")
    said = printed(capsys, "answer", "record", "--trust-code", code=2)
    assert "'data.csv' was changed since the run" in said


def test_a_run_says_what_the_server_knows(capsys: pytest.CaptureFixture[str]) -> None:
    """With the answer, without it, and with the reason for which there is none."""
    calm = [*RUN, "--chains", "2"]
    answers = {mode: printed(capsys, *calm, "--answer", mode) for mode in ("aware", "auto")}
    assert "what the server knows after one chain" in " ".join(answers["auto"].split())
    assert "theta[2]" in answers["auto"]
    assert len({" ".join(each.split()).partition(KNOWS)[2] for each in answers.values()}) == 1
    without = printed(capsys, *calm, "--answer", "chain")
    assert KNOWS not in " ".join(without.split())
    assert "answer" not in json.loads(printed(capsys, *calm, "--answer", "chain", "--json"))
    # Draws that were kept for the answer alone are not judged.
    document = json.loads(printed(capsys, *calm, "--json"))
    assert document["diagnostics"] is None
    assert document["answer"]["why"] == ""
    # So few rounds with so small a step do not arrive, and do not tell the curvature: an answer is
    # wrong for the first reason, and only wide for the second.
    short = ["run", *LOUD, "--rounds", "40", "--burn-in", "10", "--step-size", "1e-5"]
    said = " ".join(printed(capsys, *short, "--chains", "2").split())
    _, _, why = said.partition("the draws of the chain stand: ")
    assert "rounds of burn-in needed, 10 planned" in why
    document = json.loads(printed(capsys, *short, "--chains", "2", "--json"))
    assert document["answer"]["posterior"] is None
    assert "rounds of burn-in needed, 10 planned" in document["answer"]["why"]
    asked = " ".join(printed(capsys, *short, "--chains", "2", "--answer", "aware").split())
    assert "warning the rounds do not tell the curvature" in asked


def test_an_answer_that_cannot_be_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ["--answer", "aware", "--out", str(tmp_path / "record")]
    assert "thin must be 1, got 2" in printed(capsys, *RUN, "--thin", "2", *out, code=2)
    momentum = ["--update", "momentum:0.5", "--step-size", "1e-3"]
    said = printed(capsys, *RUN, *momentum, *out, code=2)
    assert "Momentum is another" in said
    assert not (tmp_path / "record").exists()
    stand = " ".join(printed(capsys, *RUN, *momentum, "--chains", "1").split())
    assert "the draws of the chain stand: an answer needs Langevin's update" in stand
    assert "answer must be one of 'auto', 'aware', 'chain'" in printed(
        capsys, *RUN, "--answer", "both", code=2
    )


def test_print_follows_the_same_rule() -> None:
    model = same_model()
    plan = flmc.plan(model, flmc.Analog(clip=30, snr_db=45), flmc.Limits(privacy="off"))
    result = flmc.run(plan, model, chains=2)
    assert "what the server knows after one chain" in str(result.listing("aware"))
    assert "what the server knows" not in str(result.listing("chain"))
    none = flmc.run(plan, model, keep_draws=False)
    assert "the draws of the chain stand" in str(none)
    with pytest.raises(InvalidSetting, match="keep_draws=True"):
        none.listing("aware")


def test_many_chains_are_counted_within_bounds() -> None:
    """At most 1000 answers and some million numbers: all data sets first, then chains of each."""

    class Known:
        """An answer without doubts."""

        doubts = ()

    for shape, some in (
        ((3, 20, 300, 5), (3, 20)),
        ((5000, 4, 300, 5), (1000, 1)),
        ((10, 400, 300, 5), (10, 100)),
        ((2, 50, 30_000, 10), (2, 6)),
    ):
        shown = ShownAnswer.of(lambda **words: Known(), "auto", shape)  # type: ignore[arg-type]
        several = shown.find_several
        assert several is not None
        keywords = several.keywords  # type: ignore[attr-defined]
        assert (keywords["sets"], keywords["chains"]) == some
