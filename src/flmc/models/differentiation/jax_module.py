"""JAX, which is imported where it is used."""

from __future__ import annotations

from typing import Any

from flmc.base.errors import MissingExtra


def require_jax() -> Any:
    """JAX, or a line that says how to get it.

    Raises
    ------
    MissingExtra
        If it is not installed.
    """
    try:
        import jax
    except ImportError as error:
        raise MissingExtra("log densities need JAX: pip install 'flmc[jax]'") from error
    return jax
