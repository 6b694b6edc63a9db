"""Forms of local costs that compiled engines use: quadratic ones, and functions that JAX can
trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flmc.base.arrays import Array


class Quadratic(NamedTuple):
    r"""Quadratic local costs: the gradient of device k is :math:`H_k\theta - b_k`, with :math:`H_k`
    in ``hessian`` and :math:`b_k` in ``offset``."""

    hessian: Array
    """Hessian :math:`H_k` of each device's cost, (experiment, device, dim, dim)."""
    offset: Array
    """Constant part :math:`b_k` of each device's gradient, with the sign of the formula,
    (experiment, device, dim)."""


class ExampleBound(NamedTuple):
    """Bound to which the gradient of every example is clipped before examples are summed: of its
    Euclidean norm if ``by_norm``, else of each entry."""

    bound: float
    """Largest magnitude of an entry, or largest Euclidean norm, of one example's gradient."""
    by_norm: bool
    """Whether the norm of an example's gradient is bounded, not each of its entries."""


class TracedMoves(NamedTuple):
    """The step of devices with local parameters in a round, as a function that JAX can trace: they
    move their local parameters and compute the gradient that they send."""

    moved: Callable[..., Any]
    """``moved(theta, own, data, normal, log_uniform)``: returns the local parameters after a
    round's steps, (device, entry), and the gradients that devices send, (device, dim). Its
    arguments are one theta (dim), the local parameters before, ``own`` (device, entry), the data,
    standard normal numbers (device, step, entry) and logarithms of uniform numbers (device,
    step)."""
    start: Array
    """Local parameters, as free numbers, with which a device begins, (entry)."""
    steps: int
    """Number of steps by which a device moves its local parameters in each round."""


class TracedCosts(NamedTuple):
    """Local gradients as a function ``gradients(theta, data)`` that JAX can trace into a compiled
    loop; its second argument is what ``data(experiment)`` returns. Devices with local parameters
    send the gradients that ``moves`` computes instead."""

    gradients: Callable[[Any, Any], Any]
    """``gradients(theta, data)``: local gradients (device, dim) at one theta (dim), in the
    precision of the arguments."""
    data: Callable[[int], Any]
    """``data(experiment)``: the second argument of ``gradients`` for one data set, a tree of NumPy
    arrays."""
    moves: TracedMoves | None = None
    """Moves of the local parameters in a round, with the gradients that devices then send; None:
    devices have no local parameters."""
    batch: Callable[[Any, Any, Any, Any, Any], Any] | None = None
    """``batch(theta, data, rows, counts, weights)``: local gradients (device, dim) from batches of
    examples. ``rows`` (device, row) are numbers of a device's own examples, from 0, of which those
    count whose ``counts`` (device, row) is 1, and not 0; ``weights`` (device) multiply the
    gradients of a device's examples. Its work goes with the rows, not with all examples. None:
    gradients cannot be computed from batches."""
