"""Object code in memory: LLVM's loader alone, without the compiler that made the code."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
from typing import Any

from llvmlite import binding

_SETTINGS = ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_ENABLE_AVX", "NUMBA_OPT")
"""Variables of the environment by which Numba compiles for another processor, or otherwise."""
_ENGINES: list[Any] = []
"""What holds loaded code: whoever has an address needs it, so it lives as long as the process."""


@cache
def machine() -> tuple[str | None, ...]:
    """The processor for which code is compiled: kind of machine, name, features, and what the user
    set instead."""
    try:
        features = binding.get_host_cpu_features().flatten()
    except RuntimeError:  # not known here
        features = ""
    known = (binding.get_process_triple(), binding.get_host_cpu_name(), features)
    return (*known, *map(os.environ.get, _SETTINGS))


@cache
def _initialise() -> None:
    """Make LLVM ready for this processor."""
    with suppress(RuntimeError):  # newer ones do so by themselves, and refuse to be asked
        binding.initialize()
    binding.initialize_native_target()
    binding.initialize_native_asmprinter()


def load(name: str, code: bytes) -> int:
    """Load the object code of one function, and return its address.

    Parameters
    ----------
    name
        The function's name, which nothing else in this process has.
    code
        What the compiler made of it; it calls no other function.
    """
    _initialise()
    target = binding.Target.from_triple(binding.get_process_triple())
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(""), target.create_target_machine(jit=True)
    )
    engine.add_object_file(binding.ObjectFileRef.from_data(code))
    engine.finalize_object()
    _ENGINES.append(engine)
    return int(engine.get_function_address(name))
