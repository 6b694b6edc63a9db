"""From files to roles: keys, configurations, and a federation that is made from them."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from deploy.federations import (
    DATA,
    DEVICES,
    DIM,
    KEYS,
    MADE,
    ROUNDS,
    Clock,
    Network,
    data_of,
    make_plan,
)
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.deploy.configuration import read_air, read_device, read_server
from flmc.deploy.device.consent import Budget
from flmc.deploy.device.local_model import read_model
from flmc.deploy.role_assembly import make_air, make_device, make_server
from flmc.deploy.sealing import NotSealed, Opener, Seal, new_keys, read_key
from flmc.wire.messages import Received

BROKER = "mqtt://127.0.0.1"


def write_files(folder: Path, **plan: Any) -> None:
    """Plan, keys, data and configurations of a federation."""
    folder.mkdir(exist_ok=True)
    (folder / "plan.json").write_text(json.dumps(make_plan(**plan).to_document()))
    (folder / "federation.toml").write_text('run = "test"\nquorum = 2\ndeadline_ms = 1000\n')
    (folder / "air.key").write_text(KEYS[0].hex())
    (folder / "air.pub").write_text(base64.b64encode(KEYS[1]).decode())
    for role in ("air", "server"):
        (folder / f"{role}.toml").write_text('federation = "federation.toml"\n')
    for k in range(DEVICES):
        data = data_of(DATA, k)
        np.savez(folder / f"data-{k}.npz", X=data.features, Y=data.targets)
        text = f'id = {k}\ndata = "data-{k}.npz"\n[budget]\nepsilon = 20.0\nruns = 1\n'
        (folder / f"device-{k}.toml").write_text(text)


def test_a_federation_is_made_from_files(tmp_path: Path) -> None:
    write_files(tmp_path)
    server = make_server(read_server(tmp_path / "server.toml", BROKER, None))
    air = make_air(read_air(tmp_path / "air.toml", BROKER, None))
    devices = [
        make_device(read_device(tmp_path / f"device-{k}.toml", BROKER, None), "test")
        for k in range(DEVICES)
    ]
    MADE.extend([server, air, *devices])
    assert server.federation.digest == air.federation.digest
    assert devices[1].rules.budget == Budget(20.0, 1e-4, 1)
    network = Network(Clock())
    for device in devices:
        device._clock = network.clock
    network.connect(server, air, *devices)
    network.run()
    assert server.failure is None
    assert server.record.round == ROUNDS
    assert (tmp_path / "record" / "result.json").exists()
    assert (tmp_path / "device-3-journal" / "journal.txt").exists()
    heard = [m for _, m in network.said if m.topic.endswith("/y")]
    assert Received.from_bytes(heard[-1].payload, DEVICES, DIM).active.all()


def test_a_receiver_takes_the_place_of_the_software(tmp_path: Path) -> None:
    write_files(tmp_path)
    rng = np.random.default_rng(1)
    np.savez(tmp_path / "y.npz", noise=rng.normal(0, 1.1, 9999), y=np.zeros((ROUNDS, DIM)))
    receiver = 'federation = "federation.toml"\nreceiver = "y.npz"\n'
    (tmp_path / "air.toml").write_text(receiver + "alpha = 1e-8\n")
    air = make_air(read_air(tmp_path / "air.toml", BROKER, None))
    MADE.append(air)
    for bad in ("0.0", "0.5", "2.0"):
        (tmp_path / "air.toml").write_text(f'{receiver}alpha = {bad}\njournal = "{bad}"\n')
        with pytest.raises(InvalidSetting, match="alpha"):
            make_air(read_air(tmp_path / "air.toml", BROKER, None))


def test_a_chain_starts_where_the_plan_says(tmp_path: Path) -> None:
    write_files(tmp_path, start="prior")
    text = 'federation = "federation.toml"\nprior_mean = 1000.0\nprior_sd = 0.5\n'
    (tmp_path / "server.toml").write_text(text)
    server = make_server(read_server(tmp_path / "server.toml", BROKER, None))
    MADE.append(server)
    theta = server.record.theta
    assert (np.abs(theta - 1000.0) < 0.5 * 10).all()  # ten standard deviations
    assert len(set(theta.tolist())) == DIM


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("device", 'id = 0\ndata = "d.npz"\nlargest_tetha = 1.0\n', "largest_tetha"),
        ("device", 'id = 0\ndata = "d.npz"\n[budget]\nepsilom = 1.0\n', "epsilom"),
        ("device", 'id = -1\ndata = "d.npz"\n', "id must be a whole number"),
        ("device", 'id = 0\ndata = "d.npz"\nlargest_theta = inf\n', "largest_theta"),
        ("device", 'id = 0\ndata = "d.npz"\n[budget]\nepsilon = true\n', "epsilon"),
        ("device", 'id = 0\ndata = "d.npz"\n[budget]\nneighbouring = "row"\n', "neighbouring"),
        ("device", 'id = 0\ndata = "d.npz"\nrun = "a/b"\n', "run must be"),
        ("device", "id = 0\n", "data must be"),
        ("device", "id = \n", "TOML"),
        ("air", 'federation = "federation.toml"\nseed = 1\n', "seed"),
        ("server", 'federation = "nowhere.toml"\n', "cannot read"),
        ("server", 'run = "r"\nplan = "plan.json"\nquorum = 9\n', "quorum"),
        ("server", 'run = "r"\nplan = "plan.json"\npatience = 9\n', "patience"),
    ],
)
def test_configurations_name_what_is_wrong(
    tmp_path: Path, name: str, text: str, words: str
) -> None:
    write_files(tmp_path)
    path = tmp_path / "config.toml"
    path.write_text(text)
    read = {"device": read_device, "air": read_air, "server": read_server}[name]
    with pytest.raises(InvalidSetting, match=words):
        read(path, BROKER, None)


def test_options_take_the_place_of_what_a_file_says(tmp_path: Path) -> None:
    write_files(tmp_path)
    path = tmp_path / "device-2.toml"
    found = read_device(path, BROKER, None, id=1, epsilon=3.5, data=None)
    assert (found.rules.device, found.rules.budget.epsilon) == (1, 3.5)
    assert found.data == tmp_path / "data-2.npz"
    assert found.journal == tmp_path / "device-1-journal"


def test_a_device_may_leave_out_incomplete_examples(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_files(tmp_path)
    (tmp_path / "d.csv").write_text("a,b,y\n1,2,3\n,1,2\n2,?,1\n3,1,0\n")
    config = tmp_path / "config.toml"
    config.write_text('id = 0\ndata = "d.csv"\ntarget = "y"\n')
    found = read_device(config, BROKER, None)
    with pytest.raises(
        InvalidSetting, match=r"'a' of d must be a number, and is missing in line 3"
    ):
        read_model("linear", found.data, **found.reading)
    config.write_text(config.read_text() + 'missing = "drop"\n')
    found = read_device(config, BROKER, None)
    with caplog.at_level("WARNING", logger="flmc.deploy.device"):
        model = read_model("linear", found.data, **found.reading)
    assert model.num_examples is None or model.num_examples == 2
    assert model.layout is not None
    assert model.layout.entries() == ["theta[a]", "theta[b]"]
    # Only its own log learns how many there were.
    (record,) = caplog.records
    assert (record.event, record.detail) == ("missing-dropped", "2")  # type: ignore[attr-defined]
    config.write_text('id = 0\ndata = "d.csv"\ntarget = "y"\nmissing = "mean"\n')
    found = read_device(config, BROKER, None)
    with pytest.raises(InvalidSetting, match="missing must be one of refuse, drop; got 'mean'"):
        read_model("linear", found.data, **found.reading)


def test_keys_are_read_and_sealed_bytes_cannot_be_changed(tmp_path: Path) -> None:
    secret, public = new_keys()
    for text in (public.hex(), base64.b64encode(public).decode(), f" {public.hex()}\n"):
        (tmp_path / "key").write_text(text)
        assert read_key(tmp_path / "key") == public
    for text in ("", "00" * 31, "zz" * 32, base64.b64encode(bytes(33)).decode()):
        (tmp_path / "key").write_text(text)
        with pytest.raises(InvalidSetting, match="32 bytes"):
            read_key(tmp_path / "key")
    with pytest.raises(InvalidSetting, match="cannot read"):
        read_key(tmp_path / "nowhere")
    sealed = Seal(public).close(b"symbols")
    assert Opener(secret).open(sealed) == b"symbols"
    assert Seal(public).close(b"symbols") != sealed
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(NotSealed):
            Opener(secret).open(bytes(changed))
    for short in (b"", sealed[:47], sealed[:-1], sealed + b"\x00"):
        with pytest.raises(NotSealed):
            Opener(secret).open(short)


def test_missing_data_are_told_before_a_run_is_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["device", "--id", "0", "--data", str(tmp_path / "lost.csv")]
    assert main([*words, "--broker", "mqtt://127.0.0.1:9"]) == 2
    assert "lost.csv' with the device's data" in capsys.readouterr().err
