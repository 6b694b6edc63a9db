"""What the server of a federation knows: from its own record, with who answered in every round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import flmc
from deploy.federations import DATA, DIM, Kit, Network, close, make_federation, make_plan
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.cli.schemas import ANSWERS
from flmc.deploy.configuration import read_server
from flmc.deploy.role import Role
from flmc.deploy.server.federation_result import result_of_record, result_with_model
from flmc.deploy.server.server_prior import prior_of
from flmc.evaluation.answer import Answer, answer_of
from flmc.evaluation.transcript import Transcript
from flmc.planning.plans import Plan
from flmc.uplink.report import ReportingModel
from flmc.wire.transport import Message

ROUNDS, BURN_IN = 120, 30
NORMAL = flmc.Normal()


def long_plan(**given: Any) -> Plan:
    """A plan with rounds enough for an answer."""
    loud = flmc.Analog(clip=30.0, snr_db=40.0)
    off = flmc.Limits(privacy="off")
    sizes = {"num_rounds": ROUNDS, "num_burn_in": BURN_IN, "step_size": 3e-3}
    return make_plan(loud, off, **{**sizes, **given})


def run_with_absences(kit: Kit, **server: Any) -> Array:
    """Run a federation in which the last device's answers are lost in every third round; returns
    theta before and after every round, (round + 1, dim)."""
    network, made, air = Network(kit.clock), kit.server(**server), kit.air()
    asked = iter(range(10**6))

    def carries(role: Role, message: Message) -> bool:
        ours = role.identity == "device-3" and "/uplink/" in message.topic
        return not (ours and next(asked) % 3 == 0)

    network.carries = carries
    network.connect(made, air, *(kit.device(k) for k in range(kit.federation.plan.num_devices)))
    network.run()
    thetas = np.stack(made.record.thetas)
    close(made)
    return thetas


def by_hand(plan: Plan, thetas: Array, ledger: list[str]) -> Answer:
    """The answer from what the ledger says of every round: K_a devices, and the gain."""
    rounds = [json.loads(line) for line in ledger]
    active = plan.num_devices - np.array([len(each["silent"]) for each in rounds])
    gain = np.array([each.get("arrived", each["gain"]) for each in rounds])
    assert 0.2 < (active < plan.num_devices).mean() < 0.5
    noise = np.square(plan.num_devices / active[:, None] / gain) * plan.uplink.noise_power
    # The estimate of the first round, from the start on, is not used.
    return answer_of(
        Transcript(
            thetas[1:][None, None],
            plan.step_sizes[1:],
            np.broadcast_to(noise[1:], (len(rounds) - 1, DIM))[None],
            np.zeros((1, len(rounds) - 1, 1)),
            plan.num_rounds - plan.num_burn_in,
            False,
        ),
        lambda theta: theta,
        public=plan.public_curvature,
    )


def test_the_answer_of_a_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the result, of the record, of the command, and with all data: the one computed by hand,
    and near the exact posterior."""
    plan = long_plan()
    thetas = run_with_absences(Kit(tmp_path, make_federation(plan)))
    place = tmp_path / "record"
    record = flmc.load(place)
    np.testing.assert_array_equal(record.arrays["positions"][0, 0], thetas)
    halves = (thetas[BURN_IN:-1] + thetas[BURN_IN + 1 :]) / 2
    np.testing.assert_array_equal(record.draws[0], halves)
    wanted, model = by_hand(plan, thetas, record.ledger), flmc.LinearGaussian(DATA)
    kept, before = thetas[BURN_IN + 1 :], thetas[: BURN_IN + 1]
    every = (
        result_of_record(place).posterior(),
        record.posterior(NORMAL),
        record.posterior(model),
        result_with_model(plan, model, kept, 1.0, record.ledger, before).posterior(),
    )
    for answer in every:
        np.testing.assert_allclose(answer.mean, wanted.mean, rtol=1e-9)
        np.testing.assert_allclose(answer.covariance, wanted.covariance, rtol=1e-9)
    exact = every[2].exact
    assert exact is not None
    # Five standard deviations of the answer: a linear model, of which nothing is clipped.
    assert (np.abs(wanted.mean[0] - exact.mean[0]) < 5 * wanted.sd[0]).all()
    assert "what the server knows after one chain" in str(result_of_record(place))
    assert main(["answer", str(place), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(ANSWERS["answer"].schema()).validate(printed)
    np.testing.assert_allclose(printed["posterior"]["mean"], wanted.mean[0], rtol=1e-9)


def test_reports_are_no_parameters(tmp_path: Path) -> None:
    """The entry that adds up devices' reports takes no part in the answer."""
    uplink = flmc.Analog(clip=30.0, snr_db=40.0)
    reporting = ReportingModel(flmc.LinearGaussian(DATA), uplink)
    plan = flmc.plan(reporting, uplink, flmc.Limits(privacy="off"), num_rounds=ROUNDS,
                     num_burn_in=BURN_IN, step_size=3e-3, public_smoothness=120.0, start="zero",
                     burn_in_step_factor=1.0, forecast=False)  # fmt: skip
    kit = Kit(tmp_path, make_federation(plan, model="linear+report"))
    thetas = run_with_absences(kit)
    record = flmc.load(tmp_path / "record")
    assert record.arrays["positions"].shape == (1, 1, ROUNDS + 1, DIM)
    wanted = by_hand(plan, thetas[:, :-1], record.ledger)
    answer = result_of_record(tmp_path / "record").posterior()
    np.testing.assert_allclose(answer.mean, wanted.mean, rtol=1e-9)
    np.testing.assert_allclose(record.posterior(NORMAL).mean, wanted.mean, rtol=1e-9)


def test_a_prior_is_stated_or_missed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A model of a user's own: its prior is in the configuration, or there is no answer."""
    federation = make_federation(long_plan(), model="my_models:own")
    answers = {}
    for name, prior in (("none", None), ("stated", flmc.Normal(0.5, np.array([1.0, 2.0, 3.0])))):
        kit = Kit(tmp_path / name, federation)
        kit.folder.mkdir()
        run_with_absences(kit, prior=prior)
        answers[name] = kit.folder / "record"
    none = result_of_record(answers["none"])
    assert "the draws of the chain stand: an answer needs the prior" in str(none)
    with pytest.raises(InvalidSetting, match=r"\[prior\] with mean and sd"):
        none.posterior()
    assert main(["answer", str(answers["none"])]) == 2
    assert "[prior] with mean and sd" in capsys.readouterr().err
    record = flmc.load(answers["stated"])
    mine = record.posterior(flmc.Normal(0.5, np.array([1.0, 2.0, 3.0])))
    stated = result_of_record(answers["stated"]).posterior()
    np.testing.assert_array_equal(stated.mean, mine.mean)
    assert not np.allclose(record.posterior(NORMAL).mean, mine.mean, rtol=1e-9)
    with pytest.raises(InvalidSetting, match="one for each of 3 entries"):
        prior_of(federation, flmc.Normal(np.zeros(2)))
    with pytest.raises(InvalidSetting, match="the model 'linear' has its own"):
        prior_of(make_federation(), NORMAL)


def test_a_prior_in_the_configuration(tmp_path: Path) -> None:
    plan = long_plan()
    (tmp_path / "plan.json").write_text(json.dumps(plan.to_document()))
    path = tmp_path / "server.toml"
    head = 'run = "test"\nplan = "plan.json"\nmodel = "my_models:own"\n'
    for text, mean, sd in (
        ("[prior]\nsd = 2\n", 0.0, 2.0),
        ("[prior]\nmean = [1, 2, 3]\nsd = [1.0, 2.0, 5]\n", [1.0, 2.0, 3.0], [1.0, 2.0, 5.0]),
    ):
        path.write_text(head + text)
        prior = read_server(path, "mqtt://localhost", None).prior
        assert prior is not None
        assert np.asarray(prior.mean).tolist() == mean
        assert np.asarray(prior.sd).tolist() == sd
    path.write_text(head)
    assert read_server(path, "mqtt://localhost", None).prior is None
    for text, words in (
        ("[prior]\nmean = 1.0\n", "sd must be a number, or a list of numbers, got None"),
        ('[prior]\nsd = "wide"\n', "sd must be a number, or a list of numbers, got 'wide'"),
        ("[prior]\nsd = -1.0\n", "prior sd must be positive"),
        ("[prior]\nsd = 1.0\nwidth = 3\n", "there is no setting 'width'"),
    ):
        path.write_text(head + text)
        with pytest.raises(InvalidSetting, match=words):
            read_server(path, "mqtt://localhost", None)


def test_a_record_of_a_simulation_needs_its_model(tmp_path: Path) -> None:
    model = flmc.LinearGaussian(DATA)
    flmc.run(long_plan(), model, out=tmp_path / "record")
    with pytest.raises(InvalidSetting, match="give the model"):
        flmc.load(tmp_path / "record").posterior(NORMAL)
