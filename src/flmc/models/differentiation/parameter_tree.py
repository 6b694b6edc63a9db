"""Parameters as a tree of arrays, and as one vector theta."""

from __future__ import annotations

from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Name and shape of every array of a tree, in the order in which they lie in theta."""


class ParameterTree:
    """The form of a tree of parameters: from a vector to the tree, in the vector's own precision.

    Parameters
    ----------
    jax
        The module.
    start
        A tree of numbers and arrays, in any form that JAX knows as a pytree.

    Attributes
    ----------
    layout
        Name and shape of every array of the tree.
    start
        The given tree as one vector, (dim).
    """

    def __init__(self, jax: Any, start: Any) -> None:
        paths, self._form = jax.tree_util.tree_flatten_with_path(start)
        self._unflatten = jax.tree_util.tree_unflatten
        leaves = [np.asarray(leaf, dtype=np.float64) for _, leaf in paths]
        names = [
            ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) or "theta"
            for path, _ in paths
        ]
        self.layout: Layout = tuple(
            (name, tuple(int(n) for n in leaf.shape))
            for name, leaf in zip(names, leaves, strict=True)
        )
        flat = np.concatenate([leaf.ravel() for leaf in leaves] or [np.empty(0)])
        self.start: Array = checks.finite_array("start", flat)
        checks.at_least("the number of parameters", len(flat), 1)

    def parameters(self, theta: Any) -> Any:
        """The tree of one theta.

        Parameters
        ----------
        theta
            (dim), an array of NumPy or JAX.
        """
        leaves, first = [], 0
        for _, shape in self.layout:
            size = int(np.prod(shape))
            leaves.append(theta[first : first + size].reshape(shape))
            first += size
        return self._unflatten(self._form, leaves)
