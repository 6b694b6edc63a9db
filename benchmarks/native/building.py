"""Building a C file into a temporary directory and loading it."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from measuring.job import Absent

Floats = npt.NDArray[np.float32]

OPTIONS = ("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC")


def build(source: Path, *options: str) -> ctypes.CDLL:
    """The library of a C file, for this processor.

    Raises
    ------
    Absent
        If there is no compiler, or it refuses the file, as one for a processor without AVX2 does.
    """
    compiler = shutil.which(os.environ.get("CC", "gcc"))
    if compiler is None:
        raise Absent("there is no C compiler")
    # What is loaded stays loaded when its file is gone.
    with tempfile.TemporaryDirectory() as place:
        library = Path(place) / "library.so"
        command = [compiler, *OPTIONS, *options, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            said = done.stderr.strip().splitlines() or ["without a word"]
            raise Absent(f"the C compiler refuses {source.name}: {said[0][:200]}")
        return ctypes.CDLL(str(library))


def pointer(array: Floats) -> Any:
    """An array as C takes it; it must be contiguous, and outlive the call."""
    assert array.flags.c_contiguous
    assert array.dtype == np.float32
    return array.ctypes.data_as(ctypes.c_void_p)
