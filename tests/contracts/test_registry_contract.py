"""One registry feeds options, help, messages and tests; every entry is complete."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flmc
from contracts.registered import build, model
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.settings.registered import FADINGS, LINKS, MODELS, PAPERS, REGISTRIES, SCHEDULERS
from flmc.settings.registry import Entry, Registry
from flmc.settings.schema import Settings

ENTRIES = [(registry, entry) for registry in REGISTRIES.values() for entry in registry]


@pytest.mark.parametrize(
    ("registry", "entry"), ENTRIES, ids=[f"{r.setting} {e.name}" for r, e in ENTRIES]
)
def test_entries_are_complete(registry: Registry, entry: Entry) -> None:
    assert entry.help
    assert not entry.help.endswith(".")
    assert entry.name.isidentifier()
    assert callable(entry.maker)
    for parameter in entry.parameters:
        assert parameter.help
    if registry.setting in ("link", "fading", "scheduling", "scheme"):
        build(entry)


def test_help_lists_every_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    plan_help = " ".join(capsys.readouterr().out.split())
    assert main(["reproduce", "--help"]) == 0
    reproduce_help = capsys.readouterr().out
    for registry in REGISTRIES.values():
        for entry in registry:
            assert entry.name in (reproduce_help if registry is PAPERS else plan_help)
            if registry.kind is not None:
                assert entry.help.split()[0] in plan_help


def test_every_registry_but_papers_has_its_setting() -> None:
    assert {r.setting for r in REGISTRIES.values()} - {"paper"} <= set(Settings.model_fields)


@pytest.mark.parametrize("registry", REGISTRIES.values(), ids=lambda r: r.setting)
def test_messages_name_what_is_known(registry: Registry) -> None:
    with pytest.raises(InvalidSetting) as error:
        registry.build("nonsense")
    for name in registry.names:
        assert name in str(error.value)


def test_parameters_are_read_from_the_name() -> None:
    assert LINKS.build("sigmoid:0.2") == flmc.Sigmoid(0.2)
    assert LINKS.build("sigmoid") == flmc.Sigmoid()
    assert FADINGS.build("rayleigh:0.3") == flmc.RayleighFading(0.3)
    assert SCHEDULERS.build("random:3") == flmc.RandomDevices(3)
    with pytest.raises(InvalidSetting, match="must be written random:COUNT: count is missing"):
        SCHEDULERS.build("random")
    with pytest.raises(InvalidSetting, match="needs a number as its scale, got 'much'"):
        FADINGS.build("rayleigh:much")
    with pytest.raises(InvalidSetting, match="takes 1 parameters, got 2"):
        FADINGS.build("rayleigh:1,2")


def test_defaults_of_the_registry_are_those_of_the_classes() -> None:
    for registry in (LINKS, FADINGS):
        for entry in registry:
            if all(parameter.default is not None for parameter in entry.parameters):
                assert build(entry) == entry.maker(), entry.name


def test_synthetic_examples_are_dealt_once() -> None:
    sizes = flmc.data.split_evenly(103, 10)
    assert len(sizes) == 10
    assert sum(sizes) == 103
    assert min(sizes) >= 0


@pytest.mark.parametrize("name", MODELS.names)
def test_models_keep_the_contract(name: str) -> None:
    """Gradients of all devices at once, whose sum vanishes at the posterior mean."""
    problem = model(2)
    theta = np.broadcast_to(problem.posterior.mean[:, None], (2, 3, problem.dim))
    gradient = problem.gradient(theta)
    assert gradient.shape == (2, 3, problem.num_devices, problem.dim)
    scale = np.abs(gradient).max()
    np.testing.assert_allclose(gradient.sum(axis=2), 0.0, atol=1e-10 * scale)
    part = problem.gradient(theta[1:], slice(1, 2))
    np.testing.assert_allclose(part, gradient[1:], rtol=1e-12, atol=1e-12 * scale)


def test_schedulers_on_the_command_line(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--devices", "6", "--dim", "2", "--samples", "90", "--rounds", "30", "--burn-in", "10"]
    assert main(["run", *small, "--scheduling", "random:2", "--chains", "2"]) == 0
    assert "2 of 6" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", *small, "--scheduling", "random:9"]) == 2
    assert "must not exceed the devices, 6; got 9" in capsys.readouterr().err


def test_a_withdrawn_setting_is_refused_with_what_to_write(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["plan", "--split", "even"]) == 2
    assert "--split was withdrawn: synthetic examples are dealt evenly" in capsys.readouterr().err
    file = tmp_path / "old.toml"
    file.write_text('split = "even"\n')
    assert main(["plan", "--config", str(file)]) == 2
    assert "'split' was withdrawn: synthetic examples" in capsys.readouterr().err
