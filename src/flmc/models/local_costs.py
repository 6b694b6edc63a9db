"""Forms of local costs that compiled engines take: quadratic ones, and ones that JAX can trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flmc.base.arrays import Array


class Quadratic(NamedTuple):
    r"""Quadratic local costs: the gradient of device k is :math:`H_k\theta - b_k`.

    Attributes
    ----------
    hessian
        :math:`H_k`, (experiment, device, dim, dim).
    offset
        :math:`b_k`, (experiment, device, dim).
    """

    hessian: Array
    offset: Array


class ExampleBound(NamedTuple):
    """How single examples are bounded before they are summed.

    Attributes
    ----------
    bound
        Largest magnitude of an entry of one example's gradient, or largest norm.
    by_norm
        Whether the norm is bounded.
    """

    bound: float
    by_norm: bool


class TracedCosts(NamedTuple):
    """Local gradients as a function that JAX can trace into a loop of its own.

    Attributes
    ----------
    gradients
        ``gradients(theta, data)``: from one theta (dim) to local gradients (device, dim), in the
        precision of its arguments.
    data
        ``data(experiment)``: what the function takes of one data set, a tree of NumPy arrays.
    """

    gradients: Callable[[Any, Any], Any]
    data: Callable[[int], Any]
