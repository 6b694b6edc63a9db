"""docs/deployment.md states bytes for whoever writes a device: they are those of vectors.json, and
a device that follows the page alone computes them."""

from __future__ import annotations

import hashlib
import json
import re
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flmc.wire.drops import REASONS
from flmc.wire.topics import RIGHTS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "deployment.md").read_text()
VECTORS: dict[str, Any] = json.loads(Path(__file__).with_name("vectors.json").read_text())
DOCUMENTED = {
    name: text.strip()
    for name, text in re.findall(
        r"^`([a-z_0-9.]+)`\n\n```text\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL
    )
}
EXPECTED = (
    "federation.agreed", "federation.digest", "binding.input", "binding.sha256", "theta.payload",
    "announcement.payload", "answer_bits.payload", "answer_values.payload", "sealed.secret",
    "sealed.public", "sealed.sealed", "presence",
)  # fmt: skip


def test_the_page_has_all_vectors_and_no_other() -> None:
    assert tuple(DOCUMENTED) == EXPECTED


@pytest.mark.parametrize("name", EXPECTED)
def test_the_page_states_the_bytes_of_the_file(name: str) -> None:
    value: Any = VECTORS
    for part in name.split("."):
        value = value[part]
    stated = DOCUMENTED[name]
    if not value.startswith("{"):
        stated = "".join(stated.split())
    assert stated == value


class Token(str):
    """A number of a JSON text, as it is written there."""

    __slots__ = ()


def canonical(value: Any) -> str:
    """Canonical JSON by the words of the page: sorted keys, no spaces, numbers copied."""
    if isinstance(value, Token):
        return str(value)
    if isinstance(value, Mapping):
        parts = (f"{json.dumps(name)}:{canonical(value[name])}" for name in sorted(value))
        return "{" + ",".join(parts) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(canonical, value)) + "]"
    return json.dumps(value)


def test_digests_follow_from_the_page_alone() -> None:
    """Without the package: the payload of the topic plan, and the fields that the page lists."""
    document = json.loads(VECTORS["federation"]["payload"], parse_float=Token, parse_int=Token)
    words = re.search(r"decided part of the plan are its fields (.*?), as they stand", PAGE, re.S)
    assert words is not None
    names = re.findall(r"`(\w+)`", words[1])
    plan = document["plan"]
    # Two fields are there only where a plan has them; every other name must be.
    rare = {"draw_at", "public_curvature"} - set(plan)
    decided = {name: plan[name] for name in names if name not in rare}
    if plan["scheduler"]["type"] in ("AllDevices", "GivenDevices"):
        del decided["scheduler"]
    digest = hashlib.sha256(canonical(decided).encode()).hexdigest()
    assert digest == plan["digest"]
    assert digest in PAGE
    agreed = {
        name: document[name]
        for name in ("deadline_ms", "grid_bits", "model", "quorum", "run", "slot_ms", "wire")
    }
    text = canonical({**agreed, "plan": digest})
    assert text == DOCUMENTED["federation.agreed"]
    assert hashlib.sha256(text.encode()).hexdigest() == document["digest"]


def test_an_answer_follows_from_the_page_alone() -> None:
    """A device with the offsets of the page reads the question and writes the answer."""
    question = bytes.fromhex(VECTORS["theta"]["payload"])
    magic, version, kind, number = struct.unpack_from("<2sBBI", question, 0)
    assert (magic, version, kind) == (b"FL", 1, 1)
    digest, (dim,) = question[8:40], struct.unpack_from("<I", question, 40)
    theta = question[44:]
    assert len(theta) == 8 * dim
    binding = hashlib.sha256(digest + struct.pack("<I", number) + theta).digest()
    announced = bytes.fromhex(VECTORS["announcement"]["payload"])
    devices, gains, wide = struct.unpack_from("<III", announced, 44)
    scheduled = 56 + 8 * gains
    answered = scheduled + -(-devices // 8)
    gain, h = (
        struct.unpack_from("<d", announced, place)[0]
        for place in (56, answered + 4 * devices + 8 * 2 * wide)
    )
    assert announced[scheduled] >> 2 & 1
    assert struct.unpack_from("<I", announced, answered + 4 * 2)[0] == 256
    bits = VECTORS["answer_bits"]["symbols"]
    packed = bytearray(-(-dim // 8))
    for place, bit in enumerate(bits):
        packed[place // 8] |= (bit > 0) << place % 8
    answer = struct.pack("<2sBBII8sI32sBIId", b"FL", 1, 3, number, 2,
                         bytes.fromhex("0123456789abcdef"), 259, binding, 0, dim, 1,
                         gain / h) + packed  # fmt: skip
    assert answer.hex() == VECTORS["answer_bits"]["payload"]


def test_the_page_lists_all_rights_and_reasons() -> None:
    for reason in REASONS:
        assert f"| `{reason}` |" in PAGE
    assert set(re.findall(r"^\| `([a-z-]+)` \| ", PAGE.split("### Why messages")[1], re.M)) == set(
        REASONS
    )
    for role, rights in RIGHTS.items():
        name = "device-N" if role == "device" else role
        row = re.search(rf"^\| `{name}` \| (.*?) \| (.*?) \|$", PAGE, flags=re.MULTILINE)
        assert row is not None, role
        for cell, ends in zip(row.groups(), rights, strict=True):
            stated = set(re.findall(r"`([^`]+)`", cell))
            assert stated == {end.replace("%u", name) for end in ends}
