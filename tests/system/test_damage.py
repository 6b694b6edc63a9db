"""Damaged files: every file of a record, flipped, cut, emptied or replaced. What is printed and
computed is the same, or one line says what is wrong; never a traceback, never another number."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import FlmcError
from flmc.cli import main
from flmc.runs import recorder
from flmc.sampling.chains import Chains
from support import QUICK, full, many_repetitions, repeated

KINDS = {
    "numpy-ideal": ["--engine", "numpy", "--scheme", "ideal"],
    "numba-digital": ["--engine", "numba", "--fading", "rayleigh:0.2"],
    "numpy-analog": ["--engine", "numpy", "--scheme", "analog"],
    "numpy": ["--engine", "numpy", "--fading", "rayleigh:0.2"],
    "numba": ["--engine", "numba", "--scheme", "analog", "--scope", "run", "--epsilon", "50"],
}
SIZES = ["--rounds", "40", "--burn-in", "10", "--dim", "2", "--devices", "3", "--samples", "60"]


def flip(data: bytes, rng: random.Random) -> bytes:
    place = rng.randrange(len(data))
    return data[:place] + bytes([data[place] ^ (1 << rng.randrange(8))]) + data[place + 1 :]


def cut(data: bytes, rng: random.Random) -> bytes:
    return data[: rng.randrange(len(data))]


def empty(data: bytes, rng: random.Random) -> bytes:
    return b""


def zero(data: bytes, rng: random.Random) -> bytes:
    place, length = rng.randrange(len(data)), 1 + rng.randrange(64)
    part = data[place : place + length]
    return data[:place] + bytes(len(part)) + data[place + length :]


Damage = Callable[[bytes, random.Random], bytes]
DAMAGES: tuple[Damage, ...] = (flip, cut, empty, zero)


@pytest.fixture(scope="module", params=list(KINDS)[:: full(1, 2)])
def records(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """A finished record, and one that was interrupted after round 20, of the same run."""
    place = tmp_path_factory.mktemp(request.param)
    asked = [*KINDS[request.param], *SIZES, "--checkpoint-rounds", "10"]
    assert main(["run", *asked, "--out", str(place / "finished")]) == 0
    saved = recorder.Recorder.ended

    def stopping(self: recorder.Recorder, chains: Chains, *, now: bool = False) -> None:
        saved(self, chains, now=now)
        if chains.round >= 20:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorder.Recorder, "ended", stopping)
        assert main(["run", *asked, "--out", str(place / "interrupted")]) == 130
    assert (place / "interrupted" / "checkpoint.npz").exists()
    return {"finished": place / "finished", "interrupted": place / "interrupted"}


def answer(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code, and what was printed; one line of complaint where it is not 0."""
    capsys.readouterr()
    code = main([*words, "--json"])
    out, err = capsys.readouterr()
    if code:
        lines = [line for line in err.splitlines() if not line.startswith("WARNING")]
        assert code in (1, 2), err
        assert len([line for line in lines if line.startswith("flmc: ")]) == 1, err
        assert "Traceback" not in err
    return code, out


@many_repetitions
@pytest.mark.parametrize("state", ["finished"] if QUICK else ["finished", "interrupted"])
def test_every_file_damaged(
    state: str, records: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, rng = records[state], random.Random(state)
    truth = flmc.load(records["finished"]).draws
    whole = {
        "ledger": answer(capsys, "ledger", str(source))[1],
        "resume": answer(capsys, "resume", str(records["finished"]))[1],
    }
    refused = kept = 0
    for path in sorted(source.iterdir()):
        if path.name == ".lock":  # an empty file that nobody reads
            continue
        for damage in DAMAGES:
            for number in range(repeated(6, 2, 1) if damage is not empty else 1):
                copy = tmp_path / f"{path.name}-{damage.__name__}-{number}"
                shutil.copytree(source, copy)
                (copy / path.name).write_bytes(damage(path.read_bytes(), rng))
                code, said = answer(capsys, "ledger", str(copy))
                assert code or said == whole["ledger"], copy.name
                code, said = answer(capsys, "resume", str(copy))
                if code:
                    refused += 1
                else:
                    kept += 1
                    try:
                        draws = flmc.load(copy).draws
                    except FlmcError:
                        continue  # seen when they are read
                    assert np.array_equal(draws, truth), copy.name
                    if state == "finished":
                        assert said == whole["resume"], copy.name
                shutil.rmtree(copy)
        copy = tmp_path / f"{path.name}-directory"
        shutil.copytree(source, copy)
        (copy / path.name).unlink()
        (copy / path.name).mkdir()
        for command in ("ledger", "resume"):
            assert answer(capsys, command, str(copy))[0] == 2
    assert refused > 0
    assert kept > 0 or state == "finished"
