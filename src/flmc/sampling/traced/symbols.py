r"""What devices make of their gradients, as JAX computes it: the role of the device in
:mod:`flmc.sampling.roles`, in single precision.

A link is written by its mean bit :math:`\psi(g) = 2\Phi(g) - 1`: a bit is +1 if a random word, read
as a number with sign, is below :math:`2^{31}\psi`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.uplink.links import Linear, Probit, Sigmoid, Sign
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink

LARGEST_BELOW = np.float32(2147483520.0)
"""Largest number of single precision below 2^31."""
_LARGEST = np.float32(1e30)
"""Magnitude to which entries are cut down before a norm is taken."""


class SymbolKind(NamedTuple):
    """What decides the code that is compiled for the symbols of an uplink.

    Attributes
    ----------
    link
        Name of the link; None where symbols are gradients.
    clipping
        ``entry``, ``norm`` or ``none``.
    """

    link: str | None
    clipping: str


_MEAN_BITS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "sigmoid": lambda jax, g, slope: jax.numpy.tanh(slope * g),
    "probit": lambda jax, g, slope: jax.scipy.special.erf(slope * g),
    "linear": lambda jax, g, slope: slope * g,
    "sign": lambda jax, g, slope: jax.numpy.sign(g),
}
"""Mean bit of every link that is known here, of gradients and a factor of theirs."""


def kind_of(uplink: Uplink) -> SymbolKind | None:
    """What is to be compiled for an uplink; None for one with symbols or a link of its own.

    Parameters
    ----------
    uplink
        Any uplink.
    """
    # Compared as functions: a subclass that overrides them transmits something else.
    kind = type(uplink)
    if kind.clipped is not Uplink.clipped:
        return None
    clipping = uplink.clipping if math.isfinite(uplink.clip) else "none"
    if kind.symbols in (Analog.symbols, Ideal.symbols):
        return SymbolKind(None, clipping if kind.symbols is Analog.symbols else "none")
    if kind.symbols is not Digital.symbols or not isinstance(uplink, Digital):
        return None
    for name, link in (("sigmoid", Sigmoid), ("probit", Probit), ("linear", Linear)):
        if type(uplink.link).probability is link.probability:
            return SymbolKind(name, clipping)
    if type(uplink.link).probability is Sign.probability:
        return SymbolKind("sign", clipping)
    return None


def link_factor(uplink: Uplink) -> float:
    r"""Factor of the gradient in the mean bit: a/2, :math:`a/\sqrt2` or :math:`r/\ell`.

    Parameters
    ----------
    uplink
        An uplink that :func:`kind_of` knows.
    """
    link = uplink.link if isinstance(uplink, Digital) else None
    if isinstance(link, Sigmoid):
        return link.slope_parameter / 2.0
    if isinstance(link, Probit):
        return link.slope_parameter / math.sqrt(2.0)
    return link.ratio / uplink.clip if isinstance(link, Linear) else 1.0


def thresholds(jax: Any, link: str, clipped: Any, factor: Any) -> Any:
    """Numbers below which a random word makes a +1 bit, as integers of 32 bits with sign.

    Parameters
    ----------
    jax
        The module.
    link
        Name of the link.
    clipped
        Clipped gradients, in any shape.
    factor
        As :func:`link_factor` gives it.
    """
    scaled = np.float32(2147483648.0) * _MEAN_BITS[link](jax, clipped, factor)
    limited = jax.numpy.clip(scaled, -np.float32(2147483648.0), LARGEST_BELOW)
    return limited.astype(jax.numpy.int32)


def scaled_to_norm(numpy: Any, gradient: Any, bound: Any) -> Any:
    """Gradients scaled down to a norm of at most ``bound``, as
    :func:`~flmc.base.numerics.clipping.clip_norm` defines it.

    Parameters
    ----------
    numpy
        ``jax.numpy``.
    gradient
        (..., dim).
    bound
        Largest norm that is left.
    """
    known = numpy.where(numpy.isnan(gradient), 0.0, gradient)
    endless = numpy.isinf(known)
    unbounded = endless.any(axis=-1, keepdims=True)
    # Infinite entries outweigh all others: such a gradient has a direction, and any length.
    known = numpy.where(unbounded, numpy.where(endless, numpy.sign(known), 0.0), known)
    # Beyond this size the compiler takes inverses for 0.
    known = numpy.clip(known, -_LARGEST, _LARGEST)
    largest = numpy.abs(known).max(axis=-1, keepdims=True)
    tiny = np.float32(1.0) / _LARGEST
    unit = known / numpy.maximum(largest, tiny)
    norm = numpy.sqrt(numpy.square(unit).sum(axis=-1, keepdims=True))
    length = numpy.where(unbounded, numpy.inf, numpy.maximum(largest, tiny))
    return unit * numpy.minimum(length, bound / numpy.maximum(norm, tiny))
