"""Files: a finished run on disk, readable without flmc (npz and json)."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from flmc.checks import Array
from flmc.errors import InvalidSetting


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a temporary file beside ``path``, sync it and rename it: the old file or the new one, never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def save_record(directory: Path, document: Mapping[str, Any], arrays: Mapping[str, Array]) -> Path:
    """``draws.npz`` with the arrays, then ``result.json`` with everything else, in a directory that is new or empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise InvalidSetting(f"the directory to save into must be new or empty, got {str(directory)!r}")
        write_atomically(directory / "draws.npz", lambda stream: np.savez(stream, allow_pickle=False, **arrays))
        text = json.dumps(document, indent=2, allow_nan=False)
        write_atomically(directory / "result.json", lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(directory)!r}: {error.strerror}") from error
    return directory
