"""Test vectors of the wire: what docs/deployment.md states in bytes, for whoever writes a device.

``vectors.json`` holds one payload of each kind with the fields it was made from, for a federation
of three devices and ten entries. ``cd tests && python -m wire.test_vectors`` writes it anew; the
sealed answer is kept, because a sealed box has a random key of its own inside. Its parts:

``federation``
    ``payload`` is the JSON text of the plan topic. ``agreed`` is the canonical JSON text (sorted
    keys, no spaces) whose SHA-256 is ``digest``; in it ``plan`` is the plan's own digest.
``binding``
    SHA-256 of ``input``: the 32 bytes of the digest, the round in four bytes, theta in eight bytes
    an entry, little-endian.
``theta``, ``announcement``, ``answer_bits``, ``answer_values``, ``received_steps``,
``received_values``
    Fields by name, in the order of the payload, and ``payload`` as hexadecimal text. Bytes are
    hexadecimal text too. A bit vector is a list of 0 and 1; symbols of ``answer_bits`` are -1, 1.
``presence``, ``status``
    JSON payloads as text.
``sealed``
    The air's key pair and bytes that open to the payload of ``answer_bits`` (libsodium's sealed
    box: ``crypto_box_seal_open``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.deploy.sealing import OVERHEAD, NotSealed, Opener, Seal
from flmc.uplink.symbol_format import BITS, VALUES
from flmc.wire.federation import Federation
from flmc.wire.messages import Announcement, DeviceAnswer, Received, Theta, largest_answer
from flmc.wire.presence import Presence
from flmc.wire.status import Status

FILE = Path(__file__).with_name("vectors.json")
DEVICES, DIM = 3, 10
ROUND = 258
"""Two bytes that differ, so that the order of bytes shows."""
THETA = [0.0, -0.0, 1.0, -1.5, 0.1, 1e-3, -2.0, 3.25, 1e6, -1e-300]
SYMBOLS = [1, -1, -1, 1, 1, 1, -1, -1, -1, 1]
GRADIENTS = [0.0, 0.5, -30.0, 30.0, 0.1, -0.1, 1.0, -1.0, 2.5, 1e-3]
SECRET = hashlib.sha256(b"the air of the test vectors").digest()
JOURNAL = bytes.fromhex("0123456789abcdef")
AIR_JOURNAL = bytes.fromhex("fedcba9876543210")


def the_federation() -> Federation:
    """The federation of the vectors, made anew: ``vectors.json`` has its document."""
    data = flmc.data.draw_linear(seed=1, num_samples=60, dim=DIM, num_devices=DEVICES)
    plan = flmc.plan(
        flmc.LinearGaussian(data),
        flmc.Digital(),
        num_rounds=300,
        num_burn_in=200,
        step_size=2.0**-8,
        gain=0.25,
        start="zero",
        burn_in_step_factor=1.0,
        public_smoothness=128.0,
        public_convexity=32.0,
        forecast=False,
    )
    return Federation("vectors", plan, quorum=2, slot_ms=50, deadline_ms=2000)


def the_messages(federation: Federation) -> dict[str, tuple[Any, bytes]]:
    """Every binary message by its name, and its payload."""
    theta, digest = np.array(THETA), federation.digest
    binding = federation.binding(ROUND, theta)
    announcement = Announcement(
        ROUND,
        digest,
        attempt=1,
        gain=np.array([0.25]),
        scheduled=np.array([True, False, True]),
        answered=np.array([257, 0, 256]),
        fading=np.array([[0.04], [0.05], [0.0625]]),
        journal=AIR_JOURNAL,
    )
    bits = DeviceAnswer(ROUND, 2, JOURNAL, 259, binding, np.array(SYMBOLS), np.array([4.0]))
    values = DeviceAnswer(ROUND, 2, JOURNAL, 259, binding, np.array(GRADIENTS), np.array([4.0]))
    active, steps = np.array([True, False, True]), np.arange(-5, 5) * 100_000
    heard = Received(ROUND, binding, active, np.array([0.25]), steps=steps)
    measured = Received(ROUND, binding, active, np.array([0.25]), values=np.array(THETA))
    made = Theta(ROUND, digest, theta)
    return {
        "theta": (made, made.to_bytes()),
        "announcement": (announcement, announcement.to_bytes()),
        "answer_bits": (bits, bits.to_bytes(BITS)),
        "answer_values": (values, values.to_bytes(VALUES)),
        "received_steps": (heard, heard.to_bytes()),
        "received_values": (measured, measured.to_bytes()),
    }


def plain(message: Any) -> dict[str, Any]:
    """Fields of a message in plain values."""
    found: dict[str, Any] = {}
    for name, value in vars(message).items():
        if isinstance(value, np.ndarray):
            value = (value.astype(int) if value.dtype == bool else value).tolist()
        found[name] = value.hex() if isinstance(value, bytes) else value
    return {name: value for name, value in found.items() if value is not None}


def make_vectors(federation: Federation, sealed: str) -> dict[str, Any]:
    """All vectors, of a federation and with a sealed answer that was made before."""
    document = federation.to_document()
    names = ("wire", "run", "quorum", "slot_ms", "deadline_ms", "grid_bits", "model")
    agreed = {**{name: document[name] for name in names}, "plan": federation.plan.digest}
    theta = np.array(THETA).astype("<f8").tobytes()
    status = Status("vectors", "running", 257, 300, 3, 2, {"joined": 3}, 1.5, 1e-5, 250)
    messages = the_messages(federation)
    return {
        "about": "Test vectors of flmc's wire format; tests/wire/test_vectors.py says what is what",
        "sizes": {"num_devices": DEVICES, "dim": DIM},
        "federation": {
            "payload": json.dumps(document, allow_nan=False),
            "agreed": json.dumps(agreed, sort_keys=True, separators=(",", ":")),
            "digest": federation.digest.hex(),
        },
        "binding": {
            "digest": federation.digest.hex(),
            "round": ROUND,
            "theta": THETA,
            "input": (federation.digest + ROUND.to_bytes(4, "little") + theta).hex(),
            "sha256": federation.binding(ROUND, np.array(THETA)).hex(),
        },
        **{name: {**plain(each), "payload": data.hex()} for name, (each, data) in messages.items()},
        "presence": Presence("joined", "", federation.digest.hex(), "1.0").to_bytes().decode(),
        "status": status.to_bytes().decode(),
        "sealed": {
            "secret": SECRET.hex(),
            "public": public_key().hex(),
            "opened": messages["answer_bits"][1].hex(),
            "sealed": sealed,
        },
    }


def public_key() -> bytes:
    """The public key of the vectors' secret one."""
    from nacl.public import PrivateKey

    return bytes(PrivateKey(SECRET).public_key)


def write_vectors() -> None:
    """Write the file, from the same federation and sealed bytes if it is there already."""
    federation, sealed = the_federation(), ""
    if FILE.exists():
        before = json.loads(FILE.read_text())
        federation = Federation.from_bytes(before["federation"]["payload"].encode())
        sealed = before["sealed"]["sealed"]
    payload = the_messages(federation)["answer_bits"][1]
    try:
        valid = Opener(SECRET).open(bytes.fromhex(sealed)) == payload
    except NotSealed:
        valid = False
    if not valid:
        sealed = Seal(public_key()).close(payload).hex()
    FILE.write_text(json.dumps(make_vectors(federation, sealed), indent=1) + "\n")


@pytest.fixture(scope="module")
def vectors() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(FILE.read_text())
    return found


@pytest.fixture(scope="module")
def federation(vectors: dict[str, Any]) -> Federation:
    return Federation.from_bytes(vectors["federation"]["payload"].encode())


def test_the_federation_has_its_digest(vectors: dict[str, Any], federation: Federation) -> None:
    stated = vectors["federation"]
    assert hashlib.sha256(stated["agreed"].encode()).hexdigest() == stated["digest"]
    assert federation.digest.hex() == stated["digest"]
    assert json.loads(stated["agreed"])["plan"] == federation.plan.digest
    binding = vectors["binding"]
    found = hashlib.sha256(bytes.fromhex(binding["input"])).hexdigest()
    assert found == binding["sha256"]
    assert federation.binding(binding["round"], np.array(binding["theta"])).hex() == found


@pytest.mark.parametrize(
    "name",
    [
        "theta",
        "announcement",
        "answer_bits",
        "answer_values",
        "received_steps",
        "received_values",
    ],
)
def test_payloads_are_written_and_read_as_stated(
    name: str, vectors: dict[str, Any], federation: Federation
) -> None:
    message, payload = the_messages(federation)[name]
    stated = dict(vectors[name])
    assert payload.hex() == stated.pop("payload")
    readers: dict[str, Callable[[], Any]] = {
        "theta": lambda: Theta.from_bytes(payload, DIM),
        "announcement": lambda: Announcement.from_bytes(payload, DEVICES, DIM),
        "answer_bits": lambda: DeviceAnswer.from_bytes(payload, DIM, BITS),
        "answer_values": lambda: DeviceAnswer.from_bytes(payload, DIM, VALUES),
        "received_steps": lambda: Received.from_bytes(payload, DEVICES, DIM),
        "received_values": lambda: Received.from_bytes(payload, DEVICES, DIM),
    }
    read = readers[name]()
    if name == "answer_values":  # which travel in single precision
        stated["symbols"] = np.float32(stated["symbols"]).astype(float).tolist()
    assert plain(read) == stated
    assert plain(message).keys() == stated.keys()


def test_texts_are_read_as_stated(vectors: dict[str, Any], federation: Federation) -> None:
    found = Presence.from_bytes(vectors["presence"].encode())
    assert found == Presence("joined", "", federation.digest.hex(), "1.0")
    status = Status.from_bytes(vectors["status"].encode())
    assert (status.round, status.present, status.epsilon) == (257, {"joined": 3}, 1.5)
    assert status.to_bytes().decode() == vectors["status"]


def test_the_sealed_answer_opens_with_the_key_and_with_no_other(vectors: dict[str, Any]) -> None:
    stated = {name: bytes.fromhex(text) for name, text in vectors["sealed"].items()}
    assert stated["public"] == public_key()
    assert Opener(stated["secret"]).open(stated["sealed"]) == stated["opened"]
    assert stated["opened"].hex() == vectors["answer_bits"]["payload"]
    assert len(stated["sealed"]) == len(stated["opened"]) + OVERHEAD
    assert len(stated["opened"]) <= largest_answer(DIM)
    with pytest.raises(NotSealed):
        Opener(hashlib.sha256(b"another").digest()).open(stated["sealed"])


def test_the_file_is_what_the_generator_writes(
    vectors: dict[str, Any], federation: Federation
) -> None:
    assert make_vectors(federation, vectors["sealed"]["sealed"]) == {
        **vectors,
        # It names the version of flmc that wrote it.
        "federation": {
            **vectors["federation"],
            "payload": json.dumps(federation.to_document(), allow_nan=False),
        },
    }


if __name__ == "__main__":
    write_vectors()
