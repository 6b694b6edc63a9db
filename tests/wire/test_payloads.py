"""Payloads: what is written is read again, and whatever else arrives is refused as malformed."""

from __future__ import annotations

import json
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from flmc.uplink.symbol_format import BITS, VALUES, SymbolFormat
from flmc.wire.encoding import Malformed, Reader, Writer, read_object
from flmc.wire.messages import Announcement, DeviceAnswer, Received, Theta, in_short, largest_answer
from flmc.wire.presence import STATES, Presence
from flmc.wire.status import PHASES, AirStatus, Status
from support import full

EXAMPLES = full(100, 25)
ROUNDS = st.integers(0, 2**32 - 1)
DIGESTS = st.binary(min_size=32, max_size=32)
SIZES = st.tuples(st.integers(1, 20), st.integers(1, 20))
FINITE = st.floats(allow_nan=False, allow_infinity=False)
POSITIVE = st.floats(min_value=5e-324, allow_infinity=False)
COUNTS = st.integers(0, 2**53 - 1)
FORMATS = {"bits": BITS, "values": VALUES, "levels": SymbolFormat((-1.0, -0.5, 0.0, 0.5, 1.0))}


def array(draw: st.DrawFn, shape: tuple[int, ...], kind: Any, elements: Any) -> npt.NDArray[Any]:
    """A drawn array."""
    return draw(hnp.arrays(kind, shape, elements=elements))


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, bytes, Callable[[bytes], Any]]:
    """A message of any kind, its payload, and what reads it."""
    devices, dim = draw(SIZES)
    number, digest = draw(ROUNDS), draw(DIGESTS)
    kind = draw(st.sampled_from(["theta", "announcement", *FORMATS, "steps", "real"]))
    gain = array(draw, (draw(st.sampled_from([1, dim])),), np.float64, POSITIVE)
    if kind == "theta":
        theta = Theta(number, digest, array(draw, (dim,), np.float64, st.floats()))
        return theta, theta.to_bytes(), lambda data: Theta.from_bytes(data, dim)
    if kind == "announcement":
        announcement = Announcement(
            number,
            digest,
            draw(ROUNDS),
            gain,
            array(draw, (devices,), bool, st.booleans()),
            array(draw, (devices,), np.int64, ROUNDS),
            array(draw, (devices, draw(st.sampled_from([1, dim]))), np.float64, POSITIVE),
        )
        data = announcement.to_bytes()
        return announcement, data, lambda data: Announcement.from_bytes(data, devices, dim)
    if kind in FORMATS:
        symbols = FORMATS[kind]
        single = st.floats(width=32, allow_nan=False, allow_infinity=False)
        answer = DeviceAnswer(
            number,
            draw(ROUNDS),
            draw(st.binary(min_size=8, max_size=8)),
            draw(ROUNDS),
            digest,
            array(
                draw,
                (dim,),
                np.float64,
                st.sampled_from(symbols.levels) if symbols.levels else single,
            ),
            array(draw, (len(gain),), np.float64, st.floats(0.0, allow_infinity=False)),
        )
        data = answer.to_bytes(symbols)
        assert len(data) <= largest_answer(dim)
        return answer, data, lambda data: DeviceAnswer.from_bytes(data, dim, symbols)
    active = array(draw, (devices,), bool, st.booleans())
    steps = array(draw, (dim,), np.int64, st.integers(-(2**63), 2**63 - 1))
    values = array(draw, (dim,), np.float64, FINITE)
    kept: dict[str, Any] = {"steps": steps} if kind == "steps" else {"values": values}
    received = Received(number, digest, active, gain, **kept)
    data = received.to_bytes()
    return received, data, lambda data: Received.from_bytes(data, devices, dim)


def same(one: Any, other: Any) -> bool:
    """Whether two messages have the same fields, bit by bit."""
    for name, value in vars(one).items():
        found = getattr(other, name)
        if isinstance(value, np.ndarray):
            if value.shape != found.shape or value.tobytes() != found.tobytes():
                return False
        elif value != found:
            return False
    return type(one) is type(other)


@settings(max_examples=EXAMPLES)
@given(messages())
def test_what_is_written_is_read_again(made: tuple[Any, bytes, Callable[[bytes], Any]]) -> None:
    message, payload, read = made
    assert same(message, read(payload))


@settings(max_examples=EXAMPLES)
@given(messages(), st.data())
def test_whatever_is_shorter_longer_or_another_kind_is_malformed(
    made: tuple[Any, bytes, Callable[[bytes], Any]], data: st.DataObject
) -> None:
    _, payload, read = made
    for length in range(len(payload)):
        with pytest.raises(Malformed):
            read(payload[:length])
    with pytest.raises(Malformed):
        read(payload + data.draw(st.binary(min_size=1, max_size=9)))
    for place, wrong in ((0, "magic"), (1, "magic"), (2, "version"), (3, "kind")):
        changed = bytearray(payload)
        changed[place] ^= data.draw(st.integers(1, 255))
        with pytest.raises(Malformed, match={"magic": "no payload of flmc"}.get(wrong, wrong)):
            read(bytes(changed))


@settings(max_examples=EXAMPLES)
@given(messages(), st.data())
def test_a_changed_byte_is_read_as_something_else_or_malformed(
    made: tuple[Any, bytes, Callable[[bytes], Any]], data: st.DataObject
) -> None:
    message, payload, read = made
    changed = bytearray(payload)
    changed[data.draw(st.integers(0, len(payload) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        found = read(bytes(changed))
    except Malformed:
        return
    assert not same(message, found)


@pytest.mark.parametrize("places", [(8 + 32,), (8 + 32 + 4,), (8 + 32 + 8,), (8 + 32 + 12,)])
def test_counts_of_an_announcement_must_be_the_plans(places: tuple[int, ...]) -> None:
    """Attempt may be any; devices must be the plan's; gains and path gains 1 or an entry each."""
    devices, dim = 4, 3
    announcement = Announcement(
        1,
        bytes(32),
        0,
        np.ones(dim),
        np.ones(devices, dtype=bool),
        np.zeros(devices, dtype=np.int64),
        np.ones((devices, dim)),
    )
    for value in (0, 2, 5, 2**31, 2**32 - 1):
        payload = bytearray(announcement.to_bytes())
        struct.pack_into("<I", payload, places[0], value)
        if places[0] == 8 + 32:
            assert Announcement.from_bytes(bytes(payload), devices, dim).attempt == value
            continue
        with pytest.raises(Malformed):
            Announcement.from_bytes(bytes(payload), devices, dim)


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_gains_must_be_positive_numbers(bad: float) -> None:
    everybody, nobody = np.ones(2, dtype=bool), np.zeros(2, dtype=np.int64)
    good, wrong = np.ones(1), np.array([bad])
    for gain, fading in ((wrong, np.ones((2, 1))), (good, np.array([[1.0], [bad]]))):
        payload = Announcement(1, bytes(32), 0, gain, everybody, nobody, fading).to_bytes()
        with pytest.raises(Malformed, match="positive"):
            Announcement.from_bytes(payload, 2, 3)
    active, steps = np.ones(2, dtype=bool), np.zeros(3, dtype=np.int64)
    with pytest.raises(Malformed, match="positive"):
        Received.from_bytes(Received(1, bytes(32), active, wrong, steps=steps).to_bytes(), 2, 3)
    if bad != 0.0:  # an amplitude of 0 is silence
        answer = DeviceAnswer(1, 0, bytes(8), 1, bytes(32), np.ones(3), wrong)
        with pytest.raises(Malformed, match="amplitude"):
            DeviceAnswer.from_bytes(answer.to_bytes(BITS), 3, BITS)


def test_values_must_be_numbers_and_symbols_of_the_plans_scheme() -> None:
    active = np.ones(2, dtype=bool)
    for bad in (np.nan, np.inf):
        values = np.array([0.0, bad])
        with pytest.raises(Malformed, match="number"):
            Received.from_bytes(
                Received(1, bytes(32), active, np.ones(1), values=values).to_bytes(), 2, 2
            )
        answer = DeviceAnswer(1, 0, bytes(8), 1, bytes(32), values, np.ones(1))
        with pytest.raises(Malformed, match="number"):
            DeviceAnswer.from_bytes(answer.to_bytes(VALUES), 2, VALUES)
    bits = DeviceAnswer(1, 0, bytes(8), 1, bytes(32), np.ones(2), np.ones(1)).to_bytes(BITS)
    with pytest.raises(Malformed, match="scheme"):
        DeviceAnswer.from_bytes(bits, 2, VALUES)
    # Two bits hold four numbers, of which three levels use three.
    levels = SymbolFormat((-1.0, 0.0, 1.0))
    payload = bytearray(
        DeviceAnswer(1, 0, bytes(8), 1, bytes(32), np.ones(1), np.ones(1)).to_bytes(levels)
    )
    assert payload[-1] == 2
    payload[-1] = 3
    with pytest.raises(Malformed, match="one of 3, got 3"):
        DeviceAnswer.from_bytes(bytes(payload), 1, levels)
    # A received signal has a unit that is known.
    payload = bytearray(Received(1, bytes(32), active, np.ones(1), values=np.ones(2)).to_bytes())
    payload[8 + 32] = 2
    with pytest.raises(Malformed, match="unit 2"):
        Received.from_bytes(bytes(payload), 2, 2)


def test_bits_that_fill_the_last_byte_must_be_zero() -> None:
    payload = Writer(1, 1).bits(np.ones(11)).to_bytes()
    assert Reader(payload, 1).bits(11).all()
    with pytest.raises(Malformed, match="beyond"):
        Reader(payload, 1).bits(10)


def test_a_header_that_claims_much_allocates_little() -> None:
    """What a reader allocates is bounded by the plan and the payload, not by what is claimed."""
    claims = b"\xff" * 64
    payloads = [struct.pack("<2sBBI", b"FL", 1, kind, 1) + bytes(32) + claims for kind in range(5)]
    tracemalloc.start()
    try:
        for payload in payloads:
            for read in (
                lambda data: Theta.from_bytes(data, 10**9),
                lambda data: Announcement.from_bytes(data, 10**9, 10**9),
                lambda data: Received.from_bytes(data, 10**9, 10**9),
                lambda data: DeviceAnswer.from_bytes(data, 10**9, BITS),
                lambda data: DeviceAnswer.from_bytes(data, 10**9, VALUES),
                lambda data: DeviceAnswer.from_bytes(data, 10**9, FORMATS["levels"]),
            ):
                with pytest.raises(Malformed):
                    read(payload)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # pytest's own reports of 25 exceptions are far below a megabyte; a claim is 4 gigabytes.
    assert peak < 2**20


def test_equal_numbers_travel_as_one() -> None:
    assert in_short(np.full(4, 2.0)).tolist() == [2.0]
    assert in_short(np.array([1.0, 2.0])).tolist() == [1.0, 2.0]
    assert in_short(np.full((3, 4), 2.0)).shape == (3, 1)
    rows = np.array([[1.0, 1.0], [1.0, 2.0]])
    assert in_short(rows).shape == (2, 2)


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Presence,
        st.sampled_from(STATES),
        st.text(max_size=300),
        st.text("0123456789abcdef", max_size=64),
        st.text(max_size=40),
        st.integers(0, 2**40),
    )
)
def test_presences_are_read_again(presence: Presence) -> None:
    assert Presence.from_bytes(presence.to_bytes()) == presence


def test_a_long_reason_is_cut_and_not_refused() -> None:
    """A refusal that nobody can read would look like a device that never came."""
    for letter in "aé\U0001f600\x00":
        found = Presence.from_bytes(Presence("refused", letter * 5000, "f" * 64).to_bytes())
        assert found.state == "refused"
        assert found.why == letter * 300


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b'{"state": "here"}',
        b'{"state": "elsewhere", "wire": 1}',
        b'{"state": ["here"], "wire": 1}',
        b'{"state": "here", "wire": "1"}',
        b'{"state": "here", "wire": 1, "why": 5}',
        b'{"state": "here", "wire": 1, "digest": null}',
        b'{"state": "\xff", "wire": 1}',
        b"[" * 100_000,
        b'{"a":' * 700,
        b'{"state": "here", "wire": ' + b"9" * 4000 + b'0"}',
        b" " * 5000,
    ],
)
def test_what_is_no_presence_is_malformed(payload: bytes) -> None:
    with pytest.raises(Malformed):
        Presence.from_bytes(payload)


def test_deeply_nested_text_is_malformed() -> None:
    for text in (b"[" * 100_000, b'{"a":' * 100_000):
        with pytest.raises(Malformed):
            read_object(text, 1 << 20)


NUMBERS = st.none() | st.floats(0, 1e300) | COUNTS
TALLIES = st.dictionaries(st.text(max_size=10), COUNTS, max_size=5)


@settings(max_examples=EXAMPLES)
@given(
    st.builds(
        Status,
        st.text(max_size=20),
        st.sampled_from(PHASES),
        COUNTS,
        COUNTS,
        COUNTS,
        COUNTS,
        TALLIES,
        NUMBERS,
        NUMBERS,
        COUNTS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        NUMBERS,
        TALLIES,
        TALLIES,
        COUNTS,
        st.text(max_size=20),
        st.floats(0, 1e300),
    )
)
def test_statuses_are_read_again(status: Status) -> None:
    assert Status.from_bytes(status.to_bytes()) == status


def test_what_is_no_status_is_malformed() -> None:
    good = Status("run", "running", 1, 2, 3).to_document()
    assert Status.from_bytes(json.dumps(good).encode()).num_devices == 3
    for name, value in (
        ("phase", "sleeping"),
        ("round", -1),
        ("round", 1.5),
        ("round", True),
        ("round", 2**53),
        ("present", []),
        ("present", {"here": -1}),
        ("dropped", {str(k): 1 for k in range(101)}),
        ("dropped_air", {"late": 0.5}),
        ("epsilon", "1"),
        ("temperature", True),
        ("why", None),
    ):
        with pytest.raises(Malformed):
            Status.from_bytes(json.dumps({**good, name: value}).encode())
    for missing in ("run", "phase", "round", "present", "repeats"):
        part = {key: value for key, value in good.items() if key != missing}
        with pytest.raises(Malformed):
            Status.from_bytes(json.dumps(part).encode())
    with pytest.raises(Malformed):
        Status.from_bytes(json.dumps({**good, "epsilon": float("inf")}).encode())


def test_the_airs_status_holds_nothing_that_a_status_could_not() -> None:
    """The server repeats these numbers in its own status, which everybody must be able to read."""
    good = {"dropped": {"late": 3}, "repeats": 2}
    assert AirStatus.from_bytes(json.dumps(good).encode()) == AirStatus({"late": 3}, 2)
    for changed in (
        {"dropped": {"late": -1}},
        {"dropped": {"late": True}},
        {"dropped": {"late": 2**60}},
        {"dropped": {str(k): 1 for k in range(101)}},
        {"dropped": None},
        {"repeats": -1},
        {"repeats": 2**60},
        {"repeats": True},
        {"repeats": None},
    ):
        with pytest.raises(Malformed):
            AirStatus.from_bytes(json.dumps({**good, **changed}).encode())
