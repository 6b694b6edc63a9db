"""The command line: options, files, JSON, words, exit codes. Most run in process, some as real
processes."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flmc.cli import main
from flmc.cli.app import _COMMANDS, make_app
from flmc.settings.registered import FADINGS, LINKS, SCHEMES
from flmc.settings.schema import Settings
from support import full, full_only


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output, and standard error without lines of progress, which come where
    the engine has to be compiled first."""
    code = main(list(arguments))
    captured = capsys.readouterr()
    lines = captured.err.splitlines(keepends=True)
    told = (line for line in lines if not re.match(r"[a-z ]+: \d+ %", line))
    return code, captured.out, "".join(told)


def test_plan_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "plan", "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["schema_version"] == 1
    assert document["scheme"] == "digital"
    assert document["gain"] == pytest.approx(0.27386, abs=5e-6)
    assert set(document["limits"]) == {"power", "langevin", "privacy"}
    assert document["binding"] == "langevin"
    assert document["step_size"] == pytest.approx(1.5e-3)
    assert document["effective_step_size"] == pytest.approx(3.75e-5)
    assert document["temperature"] == pytest.approx(1.0)
    assert document["rounds_needed"] > 0
    assert document["data_dependent"] is True
    privacy = document["privacy"]
    assert privacy["criterion"] == "tight"
    assert "device" in privacy["neighbouring"]
    assert privacy["round"] == {"epsilon": pytest.approx(1.59, abs=0.005), "delta": 0.01}
    assert privacy["run"] == {
        "epsilon": pytest.approx(142.1, abs=0.05),
        "delta": 1e-5,
        "rounds": 300,
        "schedule": "worst",
    }


@pytest.mark.parametrize(
    ("options", "path", "value"),
    [
        (("--privacy", "paper"), ("limits", "privacy"), 0.19397),
        (("--privacy", "tail"), ("limits", "privacy"), 0.68168),
        (("--privacy", "tail", "--epsilon", "1"), ("limits", "privacy"), 0.135414),
        (("--scheme", "analog", "--privacy", "tail"), ("limits", "privacy"), 0.0119167),
        (("--scheme", "analog"), ("limits", "power"), 0.023710),
        (("--langevin", "paper"), ("limits", "langevin"), 0.064343),
        (("--langevin", "paper", "--scheme", "analog"), ("limits", "langevin"), 0.0080000),
        (("--langevin", "paper"), ("step_size",), 8.28e-3),
        (("--slope-parameter", "0.01", "--epsilon", "2"), ("limits", "privacy"), None),
        (("--gain", "0.1"), ("gain",), 0.1),
        (("--scheme", "ideal"), ("privacy",), None),
        (("--no-run",), ("privacy", "run"), None),
        (("--public-smoothness", "1400", "--public-convexity", "1000"), ("data_dependent",), False),
        (("--fading", "rayleigh:0.04"), ("uplink", "fading", "type"), "RayleighFading"),
        (("--link", "probit"), ("uplink", "link", "slope_parameter"), 0.03),
        (("--scope", "run", "--epsilon", "20"), ("binding",), "privacy"),
    ],
)
def test_options(
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    path: tuple[str, ...],
    value: object,
) -> None:
    code, out, _ = call(capsys, "plan", "--json", *options)
    assert code == 0
    found = json.loads(out)
    for key in path:
        found = found[key]
    assert found == (pytest.approx(value, rel=5e-5) if isinstance(value, float) else value)


def test_per_entry_gain(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = call(capsys, "plan", "--json", "--gain", "0.1,0.1,0.1,0.2,0.2")
    assert json.loads(out)["gain"] == [[0.1, 0.1, 0.1, 0.2, 0.2]]


def test_option_beats_file_beats_default(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "uplink.toml"
    file.write_text('scheme = "analog"\nsnr_db = 10\nchains = 3\n')
    _, out, _ = call(capsys, "plan", "--json", "--config", str(file), "--snr-db", "12")
    document = json.loads(out)
    assert document["scheme"] == "analog"
    assert document["uplink"]["snr_db"] == 12
    assert document["num_rounds"] == 300


def test_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "plan")
    assert code == 0
    text = " ".join(out.split())
    for words in (
        "noise that the sampler needs",
        "<- decides",
        "+ 3 dB",
        "epsilon x 2",
        "right: samples spread like the posterior",
        "all data of one device are replaced",
        "honest-but-curious server",
        "guarantees next to nothing",
        "not a privacy statement for a deployment",
    ):
        assert words in text, words
    _, hot, _ = call(capsys, "plan", "--langevin", "paper", "--no-run")
    assert "too hot" in hot
    assert "whole run" not in hot


def test_run_json_and_record(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out_dir = tmp_path / "record"
    arguments = (
        "run",
        "--json",
        "--chains",
        "10",
        "--rounds",
        "60",
        "--burn-in",
        "40",
        "--seed",
        "3",
        "--out",
        str(out_dir),
    )
    code, out, err = call(capsys, *arguments)
    assert (code, err) == (0, "")
    document = json.loads(out)
    for name in ("mse", "variance_ratio", "wasserstein2_squared", "mean_error_squared"):
        assert set(document["metrics"][name]) == {"mean", "se"}
    assert document["engine"] == "numba"
    assert document["seed"] == 3
    assert document["seconds"] > 0
    assert document["plan"]["scheme"] == "digital"
    names = [".lock", "draws.npz", "ledger.txt", "result.json", "run.json"]
    assert sorted(p.name for p in out_dir.iterdir()) == names
    code, out, err = call(capsys, *arguments)
    assert (code, out) == (2, "")
    assert "out must be a new or empty directory" in err


def test_run_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(
        capsys, "run", "--chains", "4", "--rounds", "60", "--burn-in", "40", "--experiments", "3"
    )
    assert (code, err) == (0, "")  # no progress bar where there is no terminal
    assert "squared W2 distance" in out
    assert "3 data set(s), 4 chain(s) each" in out
    _, alone, _ = call(capsys, "run", "--chains", "1", "--rounds", "60", "--burn-in", "40")
    assert "a shift of the mean counts as spread" in " ".join(alone.split())


def test_experiments_reach_the_check_value(capsys: pytest.CaptureFixture[str]) -> None:
    count = full(1000, 200)
    options = (
        "--langevin",
        "off",
        "--gain",
        "0.06",
        "--step-size",
        "8.28e-3",
        "--draw-at",
        "positions",  # as the check value is
        "--experiments",
        str(count),
    )
    _, out, _ = call(capsys, "run", "--json", *options)
    mse = json.loads(out)["metrics"]["mse"]
    assert abs(mse["mean"] - 0.279) < 5 * (mse["se"] ** 2 + 0.001**2) ** 0.5


BAD = [
    (("--noise-power", "-1"), "noise_power must be positive, got '-1'"),
    (("--clip", "0"), "clip must be positive, got '0'"),
    (("--clip", "nan"), "clip must be"),
    (("--snr-db", "nan"), "snr_db must be a finite number, got 'nan'"),
    (("--delta", "0"), "delta must be strictly between 0 and 1, got '0'"),
    (("--delta", "1"), "delta must be strictly between 0 and 1, got '1'"),
    (("--run-delta", "nan"), "run_delta must be strictly between 0 and 1"),
    (("--epsilon", "0"), "epsilon must be positive, got '0'"),
    (("--epsilon", "-2"), "epsilon must be positive, got '-2'"),
    (("--devices", "20", "--samples", "10"), "devices must not exceed samples = 10, got 20"),
    (("--devices", "1.5"), "devices must be a whole number, got '1.5'"),
    (("--fading", "0"), "fading must be positive, got 0.0"),
    (
        ("--fading", "rain"),
        f"fading must be one of {FADINGS.choices}; got 'rain'",
    ),
    (("--fading", "rayleigh:x"), "needs a number as its scale"),
    (("--burn-in", "300"), "burn_in must be below rounds = 300, got 300"),
    (
        ("--scheme", "quantum"),
        f"scheme must be one of {SCHEMES.choices}, got 'quantum'",
    ),
    (
        ("--link", "cubic"),
        f"link must be one of {LINKS.choices}; got 'cubic'",
    ),
    (("--link", "nowhere:Link"), "link 'nowhere:Link' cannot be loaded: ModuleNotFoundError"),
    (("--link", "sign"), "no slope at 0"),
    (("--link", "sign", "--slope-parameter", "3"), "takes none, got 3.0"),
    (("--model", "json:dumps"), "model 'json:dumps' cannot be made"),
    (("--privacy", "paper", "--devices", "1"), "not valid for one device"),
    (("--privacy", "tail", "--scope", "run"), "does not compose"),
    (("--gain", "3"), "gain must not exceed the power limit"),
    (("--step-size", "soon"), "step_size must be a number or one of 'auto', got 'soon'"),
    (("--seed", "-1"), "seed must be at least 0, got '-1'"),
    (("--config", "missing.toml"), "cannot read the config file 'missing.toml': No such file"),
    (("--unknown", "3"), "No such option: --unknown"),
    (
        ("--scheme", "analog", "--link", "probit"),
        "are for the digital scheme, not analog, got link = 'probit'",
    ),
    (("--model", "json:loads", "--dim", "3"), "come from the model that was given, got dim = 3"),
    (
        ("--fading", "no_such_law:3"),
        f"known are {FADINGS.choices}",
    ),
]


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(("options", "message"), BAD, ids=[" ".join(options) for options, _ in BAD])
def test_bad_input(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    command: str,
    options: tuple[str, ...],
    message: str,
) -> None:
    """One line with the bound and the value, exit code 2, nothing on standard output, nothing
    written."""
    monkeypatch.chdir(tmp_path)
    extra = ("--out", "record") if command == "run" else ()
    code, out, err = call(capsys, command, *options, *extra)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert err.startswith("flmc: ")
    assert message in err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"colour = 3\n", "unknown setting 'colour'; known are scheme, snr_db"),
        (b"snr_db = \n", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (b"devices = true\n", "devices must be a number or a word, got True"),
        (b"delta = 2.0\n", "delta must be strictly between 0 and 1, got 2.0"),
        (b"[link]\nname = 3\n", "link must be a word"),
    ],
)
def test_bad_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, content: bytes, message: str
) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    code, out, err = call(capsys, "plan", "--config", str(file))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err


def test_without_a_command_the_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys)
    assert (code, err) == (2, "")
    # Whatever the process was started with: words and code are the same in every one.
    assert out.startswith("Usage: flmc [OPTIONS]")
    assert call(capsys, "--version") == (0, "0.1.0\n", "")
    assert "|".join(SCHEMES.names) in call(capsys, "plan", "--help")[1]


def test_clips_at_which_the_loss_falls_on_the_grid(capsys: pytest.CaptureFixture[str]) -> None:
    for options in (
        ("--clip", "20"),
        ("--clip", "22"),
        ("--clip", "50"),
        ("--clip", "10", "--slope-parameter", "0.1"),
    ):
        code, out, _ = call(capsys, "plan", "--json", "--scope", "run", "--epsilon", "8", *options)
        assert code == 0
        assert json.loads(out)["privacy"]["run"]["epsilon"] == pytest.approx(8, rel=1e-5)


def test_tiny_deltas(capsys: pytest.CaptureFixture[str]) -> None:
    """Below what the transform resolves Chernoff's bound takes over; epsilon grows slowly and stays
    finite."""
    previous = 0.0
    for delta in ("1e-9", "1e-12", "1e-13", "1e-16", "1e-20", "1e-40"):
        code, out, err = call(
            capsys, "plan", "--json", "--gain", "0.1", "--delta", delta, "--run-delta", delta
        )
        assert (code, err) == (0, "")
        privacy = json.loads(out)["privacy"]
        assert previous < privacy["run"]["epsilon"] < 200
        previous = privacy["run"]["epsilon"]
    assert call(capsys, "plan", "--delta", "1e-300")[0] == 0


def test_a_failed_run_exits_with_one(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = call(capsys, "run", "--scheme", "ideal", "--step-size", "10", "--json")
    assert (code, out) == (1, "")
    assert "theta is not finite within rounds 1 to" in err
    # Where the engine is compiled first, a line says how far it is.
    assert len([line for line in err.splitlines() if line.startswith("flmc:")]) == 1


OWN = """
import numpy as np
import flmc

class Cauchy(flmc.Link):
    def probability(self, g):
        return 0.5 + np.arctan(g / 20.0) / np.pi

class Two(flmc.Fading):
    def draw(self, rng, rounds, num_devices, dim):
        return np.full((1, num_devices, 1), 0.05)

def model():
    data = flmc.data.draw_linear(seed=1, num_samples=60, dim=2, num_devices=4)
    return flmc.LinearGaussian(data)

def unknown(smoothness=61.0):
    held = model()
    return flmc.Model.from_gradient(
        lambda theta: held.gradient(theta[None])[0] - theta[:, None] / 4,
        prior=flmc.Normal(), dim=2, num_devices=4, smoothness=smoothness, convexity=0.5,
    )

def hasty():
    return unknown(0.6)
"""


def process(*arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "flmc", *arguments]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_model_of_the_users_own_is_checked_before_it_is_simulated(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    short = ("--scheme", "analog", "--rounds", "30", "--burn-in", "10")
    wrong = process("run", "--model", "mine:hasty", *short, "--out", "record", cwd=tmp_path)
    _, before, after = wrong.stdout.split("analog uplink")
    for part in (before, after):  # the plan's rows before the run, and those of its result
        assert " ".join(part.split()).count("give smoothness = 69") == 1
    assert "R-hat at most" in after
    found = json.loads((tmp_path / "record" / "result.json").read_text())
    assert [each["code"] for each in found["findings"]].count("smoothness-too-small") == 1
    planned = process("plan", "--model", "mine:unknown", *short, "--json", cwd=tmp_path)
    document = json.loads(planned.stdout)
    assert document["prediction"]["variance_ratio"] == pytest.approx(1.03, abs=0.05)
    codes = {each["code"] for each in document["findings"]}
    assert codes == {"round-budget", "burn-in", "few-draws", "pilot"}
    assert re.fullmatch(r"pilot: \d+ batches of gradients, \S+ s\n", planned.stderr)
    assert "pilot" not in process("plan", *short, cwd=tmp_path).stdout


def test_objects_of_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    options = ("--link", "mine:Cauchy", "--fading", "mine:Two", "--model", "mine:model", "--json")
    done = process(
        "run", *options, "--rounds", "30", "--burn-in", "10", "--chains", "2", cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["plan"]["uplink"]["link"]["type"] == "mine:Cauchy"
    assert document["plan"]["dim"] == 2
    wrong = process("plan", "--link", "mine:Two", cwd=tmp_path)
    assert wrong.returncode == 2
    assert "must give a flmc.Link, got Two" in wrong.stderr


def test_as_a_real_process(tmp_path: Path) -> None:
    assert process("version").stdout.strip() == "0.1.0"
    bad = process("plan", "--delta", "3")
    assert (bad.returncode, bad.stdout) == (2, "")
    assert "Traceback" not in bad.stderr
    help_text = process("plan", "--help").stdout
    for name in Settings.model_fields:
        assert "--" + name.replace("_", "-") in help_text


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--help"], {"numba", "matplotlib", "scipy.stats", "dp_accounting"}),
        (["plan", "--no-run"], {"numba", "matplotlib", "scipy.stats", "dp_accounting"}),
        (
            ["plan"],
            {"numba", "matplotlib", "scipy.stats", "scipy.special", "numpy.ma", "numpy.typing"},
        ),
        (["plan"], {"flmc.runs", "flmc.sampling", "flmc.evaluation", "flmc.papers"}),
        (
            ["plan", "--neighbouring", "example", "--example-clip", "3", "--scheme", "analog"],
            {"scipy.special", "flmc.runs"},
        ),
    ],
)
def test_imports(arguments: list[str], forbidden: set[str]) -> None:
    code = (
        f"import sys; from flmc.cli import main; main({arguments!r}); print('MODULES',"
        " sorted(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    loaded = out.partition("MODULES ")[2]
    for name in forbidden:
        assert f"'{name}'" not in loaded


@full_only
def test_progress_bar_on_a_terminal() -> None:
    """A run of more than a second shows a bar on standard error, if that is a terminal."""
    main_end, other_end = pty.openpty()
    command = [
        sys.executable,
        "-m",
        "flmc",
        "run",
        "--engine",
        "numpy",
        "--chains",
        "450",
        "--rounds",
        "3000",
        "--json",
    ]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=other_end, env=environment)
    os.close(other_end)
    shown = b""
    while True:
        try:
            part = os.read(main_end, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    out, _ = process.communicate(timeout=120)
    os.close(main_end)
    assert process.returncode == 0
    assert b"simulating" in shown
    assert json.loads(out)["num_chains"] == 450


def test_what_relaxing_would_bring_is_what_asking_for_it_brings(
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = call(capsys, "plan")[1].partition("what relaxing would bring")[2]
    for name, step in (("step / 2", "0.00075"), ("step x 2", "0.003")):
        needed = json.loads(call(capsys, "plan", "--step-size", step, "--json")[1])["rounds_needed"]
        row = next(line for line in table.splitlines() if line.strip().startswith(name))
        assert str(needed) in row.split()


def test_names_that_are_nearly_right(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for name, right in (("snr_bd", "snr_db"), ("burn-in", "burn_in")):
        (tmp_path / "settings.toml").write_text(f"{name} = 3\n")
        code, _, err = call(capsys, "plan", "--config", str(tmp_path / "settings.toml"))
        assert code == 2
        assert f"unknown setting '{name}'; is it {right}" in err


def test_an_unfinished_record_in_the_way(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for made, message in (('{"settings": {}}', "flmc resume "), ("{}", "flmc.resume(")):
        (tmp_path / "run.json").write_text(made)
        code, _, err = call(capsys, "run", "--out", str(tmp_path))
        assert code == 2
        assert f"to go on with the run in it: {message}" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--rounds", "6", "--burn-in", "3", "--chains", "1", "--engine", "numpy"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_json_has_its_version(
    arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the answer and in every file; the answers of other commands are held to their schemas,
    which have it."""
    code, answer, _ = call(capsys, *arguments, "--out", str(tmp_path / "out"), "--json")
    assert code == 0
    assert isinstance(json.loads(answer)["schema_version"], int)
    for path in (tmp_path / "out").glob("*.json"):
        assert isinstance(json.loads(path.read_text())["schema_version"], int), path.name


def test_a_finished_run_without_a_distance_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One chain is too few for the squared W2 distance: a dash, in place of a number."""
    out = str(tmp_path / "run")
    settings = ("--rounds", "6", "--burn-in", "3", "--chains", "1", "--engine", "numpy")
    assert call(capsys, "run", *settings, "--out", out)[0] == 0
    code, shown, _ = call(capsys, "resume", out)
    assert code == 0
    assert re.search(r"wasserstein2 squared +-$", shown, flags=re.MULTILINE)


@full_only
def test_norms_of_examples_from_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    """A bound of the norm costs less than one of the entries; both at once are refused; without it
    a plan's document is what it was."""
    common = ["plan", "--neighbouring", "example", "--samples", "20000", "--json"]
    norm = json.loads(call(capsys, *common, "--example-norm", "4")[1])
    entry = json.loads(call(capsys, *common, "--example-clip", "4")[1])
    assert norm["uplink"]["example_norm"] == 4.0
    assert "example_norm" not in entry["uplink"]
    assert norm["privacy"]["run"]["epsilon"] < entry["privacy"]["run"]["epsilon"]
    code, _, said = call(capsys, *common, "--example-norm", "4", "--example-clip", "4")
    assert code == 2
    assert "give one of them, got 4.0 and 4.0" in said
    code, _, said = call(capsys, "plan", "--example-norm", "4", "--data", "sufficient")
    assert code == 2
    assert "example_norm needs data = 'examples'" in said


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["plan", "--gain", "0.3", "--langevin", "off"], 0, ""),
        (["plan", "--step-size", "1e200"], 2, "step_size must lie between"),
        (["plan", "--samples", "99999999999999"], 2, "GB of memory"),
        (["plan", "--fading", "inf"], 2, "fading"),
        (["run", "--out", "n" * 300], 2, "File name too long"),
    ],
    ids=lambda value: value[1] if isinstance(value, list) else "",
)
def test_one_line_not_a_traceback(
    words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, _, error = call(capsys, *words)
    assert found == code
    assert said in error
    assert code == 0 or error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "[" * 2000 + "]" * 2000, "nested too deeply"),
        ("rounds = " + "9" * 5000, "not valid TOML"),
        ("rounds = 20\nburn_in = 5\n[sweep]\nfading = [inf]\n", "fading"),
    ],
    ids=["deep", "long", "infinite"],
)
def test_config_files_that_nobody_means(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "settings.toml"
    path.write_text(text)
    command = ["sweep", "--plan-only"] if "sweep" in text else ["plan"]
    code, _, error = call(capsys, *command, "--config", str(path))
    assert code == 2
    assert said in error


def test_a_defect_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*given: object, **named: object) -> None:
        raise KeyError("something of ours")

    monkeypatch.setattr("flmc.cli.commands.plans.assemble", broken)
    code, _, error = call(capsys, "plan")
    assert code == 70
    assert "a defect of flmc" in error
    assert error.count("\n") == 1
    with pytest.raises(KeyError):
        main(["plan", "--debug"])


@pytest.mark.parametrize("where", ["full", "closed", "gone", "ascii"])
def test_where_an_answer_cannot_be_printed(where: str) -> None:
    command = [sys.executable, "-m", "flmc", "plan"]
    environment = {**os.environ, "PYTHONIOENCODING": "ascii" if where == "ascii" else "utf-8"}
    if where == "full":
        with open("/dev/full", "wb") as target:  # a device that is always full
            done = subprocess.run(
                command, stdout=target, stderr=subprocess.PIPE, env=environment, check=False
            )
        assert (done.returncode, b"No space left" in done.stderr) == (1, True)
    elif where == "closed":
        script = " ".join([*map(str, command), ">&-"])
        done = subprocess.run(script, shell=True, stderr=subprocess.PIPE, check=False)
        assert (done.returncode, b"closed" in done.stderr) == (1, True)
    elif where == "gone":
        script = " ".join([*map(str, command), "| true"])
        done = subprocess.run(script, shell=True, stderr=subprocess.PIPE, check=False)
    else:
        done = subprocess.run(
            [*command[:-1], "run", "--rounds", "20", "--burn-in", "5"],
            capture_output=True,
            env=environment,
            check=False,
        )
        assert done.returncode == 0
        assert b"variance ratio" in done.stdout
    assert b"Traceback" not in done.stderr


def test_a_command_alone_is_the_same_as_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    for name in _COMMANDS:
        told = []
        for app in (make_app([name]), make_app()):
            app([name, "--help"], standalone_mode=False)
            told.append(capsys.readouterr().out)
        assert told[0] == told[1] != ""


def test_a_plan_of_more_examples_than_memory_holds(capsys: pytest.CaptureFixture[str]) -> None:
    """Ten thousand devices and entries: 8 GB of examples, which are not drawn."""
    sizes = ("--dim", "10000", "--devices", "10000", "--samples", "100000")
    code, out, _ = call(capsys, "plan", *sizes, "--json")
    assert code == 0
    findings = {each["code"]: each for each in json.loads(out)["findings"]}
    assert findings["no-prediction"]["severity"] == "unknown"
    assert findings["no-prediction"]["light"] == "sampling"


def test_parameters_behind_an_own_object_are_refused_in_words(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "--scheme", "ternary:Ternary:0.2"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "takes no parameters behind its name" in said
    assert "or 'ternary:Ternary' alone" in said


def test_a_record_that_never_began_is_told_from_a_wrong_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", str(tmp_path / "never")]) == 2
    assert "ended while it planned" in " ".join(capsys.readouterr().err.split())
    (tmp_path / "file").write_text("")
    assert main(["resume", str(tmp_path / "file")]) == 2
    assert "ended while it planned" not in " ".join(capsys.readouterr().err.split())


def test_a_missing_data_file_says_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["plan", "--data-file", "none.csv", "--target", "y", "--deal", "iid"]) == 2
    said = capsys.readouterr().err.replace("\n", "")
    assert "cannot read 'none.csv'" in said
    assert tmp_path.name in said
