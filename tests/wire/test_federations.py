"""Federations and topics: what a digest covers, what is refused by name, and the choice of grid."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from deploy.federations import DEVICES, ROUNDS, make_federation, make_plan
from flmc.base.errors import InvalidSetting
from flmc.uplink.fadings.trace import TraceFile
from flmc.wire.federation import Federation, OtherVersion
from flmc.wire.topics import (
    RIGHTS,
    UPLINK,
    WIRE_VERSION,
    Topic,
    check_run,
    device_name,
    device_number,
)
from flmc.wire.transport import matches
from support import full

FEDERATION = make_federation()


def changed_document(**changes: Any) -> bytes:
    """The federation's payload with some values replaced."""
    return json.dumps({**FEDERATION.to_document(), **changes}).encode()


def test_a_federation_is_read_again() -> None:
    found = Federation.from_bytes(FEDERATION.to_bytes())
    assert found.digest == FEDERATION.digest
    assert found.to_document() == FEDERATION.to_document()
    assert len(found.digest) == 32


TRACE = np.full((ROUNDS, DEVICES), 0.04)


@pytest.mark.parametrize(
    "other",
    [
        {"run": "test2"},
        {"quorum": 3},
        {"slot_ms": 51},
        {"deadline_ms": 1001},
        {"grid_bits": 19},
        {"model": "logistic"},
        {"plan": {"gain": 0.1 * (1 + 1e-15)}},
        {"plan": {"gain": np.full((ROUNDS, 1), 0.1).cumsum(axis=0) / 10}},
        {"plan": {"num_rounds": ROUNDS + 1}},
        {"plan": {"num_burn_in": 3}},
        {"plan": {"step_size": 1.1e-3}},
        {"plan": {"start": "prior"}},
        {"plan": {"uplink": flmc.Digital(clip=29.0)}},
        {"plan": {"uplink": flmc.Digital(noise_power=1.01)}},
        {"plan": {"uplink": flmc.Digital(snr_db=25.5)}},
        {"plan": {"uplink": flmc.Digital(link=flmc.Sigmoid(0.06))}},
        {"plan": {"uplink": flmc.Digital(fading=flmc.ConstantFading(0.05))}},
        {"plan": {"uplink": flmc.Digital(fading=flmc.RayleighFading())}},
        {"plan": {"uplink": flmc.Digital(fading=flmc.TraceFading(TRACE))}},
        {"plan": {"uplink": flmc.Digital(csi_error=0.1)}},
        {"plan": {"uplink": flmc.Digital(modulation="complex")}},
        {"plan": {"uplink": flmc.Analog(), "gain": 0.01}},
        {"plan": {"scheduler": flmc.RandomDevices(3)}},
        {"plan": {"scheduler": flmc.ThresholdDevices(0.03)}},
        {"plan": {"limits": flmc.Limits(epsilon=3.0, privacy="off")}},
    ],
    ids=lambda other: str(other)[:50],
)
def test_the_digest_covers_what_roles_must_agree_on(other: dict[str, Any]) -> None:
    usual = make_federation(make_plan(gain=0.1))
    given = dict(other)
    if "plan" in given:
        given["plan"] = make_plan(**{"gain": 0.1, **given["plan"]})
    made = make_federation(**{"plan": make_plan(gain=0.1), **given})
    assert made.digest != usual.digest
    assert make_federation(make_plan(gain=0.1)).digest == usual.digest
    theta = np.zeros(3)
    assert made.binding(1, theta) != usual.binding(1, theta)


def test_a_binding_is_of_the_round_and_of_every_bit_of_theta() -> None:
    theta = np.zeros(3)
    bound = FEDERATION.binding(1, theta)
    assert bound == FEDERATION.binding(1, theta.copy())
    assert bound != FEDERATION.binding(2, theta)
    assert bound != FEDERATION.binding(1, -theta)  # minus zero has another sign bit
    assert bound != FEDERATION.binding(1, np.array([0.0, 5e-324, 0.0]))


def test_another_wire_version_is_refused_by_name() -> None:
    for version in (0, 2, 99):
        with pytest.raises(OtherVersion, match=f"wire version {version}.*speaks {WIRE_VERSION}"):
            Federation.from_bytes(changed_document(wire=version, flmc="7.8.9"))
    with pytest.raises(OtherVersion, match=r"7\.8\.9"):
        Federation.from_bytes(changed_document(wire=2, flmc="7.8.9"))


@pytest.mark.parametrize("wire", [None, "2", [2], {}, 1.5])
def test_what_names_no_version_is_damage_and_not_another_version(wire: object) -> None:
    """A device leaves a run of another version for good; damage must not make it leave."""
    with pytest.raises(InvalidSetting) as caught:
        Federation.from_bytes(changed_document(wire=wire))
    assert not isinstance(caught.value, OtherVersion)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"[1]",
        b"{}",
        b"\xff\xfe",
        b"[" * 200_000,
        changed_document(digest="00"),
        changed_document(digest=None),
        changed_document(quorum=3),
        changed_document(quorum=0),
        changed_document(quorum=DEVICES + 1),
        changed_document(quorum="2"),
        changed_document(run="a/b"),
        changed_document(run="+"),
        changed_document(run=None),
        changed_document(deadline_ms=50),
        changed_document(slot_ms=0),
        changed_document(slot_ms=1e9),
        changed_document(grid_bits=-1),
        changed_document(grid_bits=31),
        changed_document(plan=None),
        changed_document(plan={}),
        changed_document(plan={**FEDERATION.plan.to_document(), "gain": 0.3}),
        changed_document(plan={**FEDERATION.plan.to_document(), "num_devices": 10**9}),
        changed_document(plan={**FEDERATION.plan.to_document(), "uplink": {"type": "Path"}}),
    ],
    ids=lambda payload: str(payload[:20]),
)
def test_damage_is_refused(payload: bytes) -> None:
    with pytest.raises(InvalidSetting):
        Federation.from_bytes(payload)


def test_settings_out_of_bounds_are_refused() -> None:
    plan = FEDERATION.plan
    for wrong in ({"quorum": 0}, {"quorum": 5}, {"slot_ms": 0}, {"deadline_ms": 50}):
        with pytest.raises(InvalidSetting):
            make_federation(plan, **wrong)
    with pytest.raises(InvalidSetting, match="no device can carry out"):
        make_federation(make_plan(flmc.Ideal()))


def test_a_trace_becomes_part_of_the_plan_and_no_message_opens_a_file(tmp_path: Path) -> None:
    """Devices have no file of the server's; and a server must not make them read files."""
    path = tmp_path / "trace.csv"
    gains = np.random.default_rng(1).uniform(0.03, 0.06, (ROUNDS, DEVICES))
    np.savetxt(path, gains, delimiter=",")
    plan = make_plan(flmc.Digital(fading=TraceFile(str(path))))
    found = Federation.from_bytes(make_federation(plan).to_bytes())
    assert isinstance(found.plan.uplink.fading, flmc.TraceFading)
    assert np.allclose(np.asarray(found.plan.uplink.fading.gains)[..., 0], gains)
    named = Federation("test", plan, quorum=2).to_bytes()
    assert str(path).encode() in named
    with pytest.raises(InvalidSetting, match="names a file"):
        Federation.from_bytes(named)


@settings(max_examples=full(80, 20))
@given(
    st.floats(-29.5, 29.5),
    st.floats(-40, 40),
    st.sampled_from(["digital", "analog"]),
    st.floats(-20, 20),
)
def test_there_is_a_grid_for_plans_with_extreme_gains(
    gain_bits: float, power_bits: float, scheme: str, clip_bits: float
) -> None:
    """A gain from 2^-29.5 noise deviations on has a grid on which the softest symbol arrives at a
    step, and the loudest fits; analog symbols up to 2^18 deviations."""
    power = 2.0**power_bits
    clip = 2.0**clip_bits if scheme == "analog" else 30.0
    peak = clip if scheme == "analog" else 1.0
    gain_bits = min(gain_bits, 17.5) if scheme == "analog" else gain_bits
    gain = 2.0**gain_bits * power**0.5 / peak
    kind = flmc.Analog if scheme == "analog" else flmc.Digital
    uplink = kind(noise_power=power, snr_db=390.0, clip=clip)
    plan = replace(make_plan(uplink, gain=min(gain, 1e29)), gain=np.full((1, 1), gain))
    made = Federation.of("grid", plan)
    steps = made.grid.peak_steps(float(made.caps.max()), uplink.peak)
    assert 1 <= steps <= (2**18 if scheme == "analog" else 2**40)
    assert steps >= 2**8 or made.grid_bits == 30
    assert made.grid_bits >= 20 or steps > (2**17 if scheme == "analog" else 2**39) - 1
    assert gain >= made.least_gain


def test_a_published_plan_is_the_same_whatever_the_data_of_its_maker() -> None:
    """A forecast is computed from the data of the model, even where the curvature is public and
    ``data_dependent`` is false, and everybody can read the plan of a federation."""
    limits = flmc.Limits(privacy="off")
    plans = [
        flmc.plan(
            flmc.LinearGaussian(
                flmc.data.draw_linear(seed=seed, num_devices=4, num_samples=80, dim=2)
            ),
            flmc.Analog(),
            limits,
            public_smoothness=200.0,
            public_convexity=40.0,
            num_rounds=60,
            num_burn_in=20,
        )
        for seed in (1, 2)
    ]
    forecasts = [json.dumps(each.to_document()["prediction"]) for each in plans]
    assert forecasts[0] != forecasts[1]
    assert not any(each.data_dependent for each in plans)
    published = [Federation.of("demo", each).to_bytes() for each in plans]
    assert published[0] == published[1]
    again = Federation.from_bytes(published[0])
    assert again.plan == plans[0]
    assert not again.plan.findings
    assert not again.plan.judged
    # What follows from public bounds of the curvature stays.
    assert again.plan.effective_draws is not None


def test_a_grid_holds_the_loudest_and_the_softest_round() -> None:
    gains = np.geomspace(1e-9, 0.5, ROUNDS)[:, None]
    made = make_federation(make_plan(gain=gains))
    assert made.grid.peak_steps(1e-9, 1.0) >= 1
    with pytest.raises(InvalidSetting, match="one step of the grid"):
        make_federation(make_plan(gain=gains), grid_bits=20)
    # Analog symbols travel in single precision, so that loud and soft do not fit together.
    with pytest.raises(InvalidSetting, match="one step of the grid"):
        make_federation(make_plan(flmc.Analog(snr_db=120.0), gain=gains * 1e2))
    with pytest.raises(InvalidSetting, match="single precision"):
        make_federation(make_plan(flmc.Analog(), gain=0.02), grid_bits=20)


def test_topics_are_parsed_as_they_are_written() -> None:
    for topic in (Topic("run", "plan"), Topic("run-1.2_3", UPLINK, "device-7")):
        assert Topic.parse(str(topic)) == topic
    assert str(Topic("run", "y")) == "flmc/1/run/y"
    for text in (
        "",
        "/",
        "flmc/1/run",
        "flmc/2/run/y",
        "other/1/run/y",
        "flmc/1/a/b/c/d",
        "flmc//",
    ):
        assert Topic.parse(text) is None
    for name in ("a", "a" * 64, "0.run_-"):
        assert check_run(name) == name
    for name in ("", "a" * 65, "+", "#", "a/b", ".a", "-a", "a b", "a\n", "é", "$SYS"):
        with pytest.raises(InvalidSetting):
            check_run(name)


def test_identities_have_one_spelling() -> None:
    for number in (0, 1, 19, 999_999):
        assert device_number(device_name(number)) == number
    for identity in (
        "device-01",
        "device-",
        "device--1",
        "device-1 ",
        "Device-1",
        "air",
        "device-٣",
    ):
        assert device_number(identity) is None
    assert device_number("device-1000000") is None


def test_only_the_air_reads_uplinks_and_nobody_writes_for_another() -> None:
    """The table from which brokers' rights are made."""
    uplink = f"{UPLINK}/device-3"
    readers = [who for who, each in RIGHTS.items() if any(matches(p, uplink) for p in each.read)]
    assert readers == ["air"]
    writers = [who for who, each in RIGHTS.items() if any(matches(p, uplink) for p in each.write)]
    assert writers == []  # %u stands for the identity itself
    assert f"{UPLINK}/%u" in RIGHTS["device"].write
    assert not any("+" in pattern for each in RIGHTS.values() for pattern in each.write)
    assert RIGHTS["observer"].write == ()
