r"""The contract of a link: the probability that a gradient entry becomes a +1 bit.

One-bit stochastic quantisation turns entry :math:`g` into :math:`+1` with probability
:math:`\Phi(g)`, else into :math:`-1`. The function :math:`\Phi` is the *link*. What the sampler and
the accountant need of it is derived from ``probability`` alone: the mean bit :math:`\psi(g) =
2\Phi(g) - 1`, its variance :math:`1 - \psi(g)^2`, the slope :math:`\kappa = 2\Phi'(0)` and the two
extreme probabilities :math:`\Phi(\pm\ell)`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.privacy.bit_pairs import MovedBit
from flmc.privacy.gaussian_rate import GaussianRate

_CHECK_POINTS = 2001
"""Number of gradient entries, evenly spaced from -clip to clip, at which a link's probability is
checked; odd, so that 0 is among the entries."""


class MeanCurve(NamedTuple):
    r"""Mean bit of a link as a scaled standard function, :math:`\psi(g) = s f(c g)`.

    Engines that compile the round take the function of this name from their own library.

    Attributes
    ----------
    function
        Name of f in ``numpy`` or ``scipy.special``, such as ``tanh`` or ``erf``.
    factor
        c, in units of one over a gradient.
    height
        s, at most 1.
    """

    function: str
    factor: float
    height: float = 1.0


_FACTS = ("monotone", "odd", "log_concave", "jumps")
"""Names of the class variables in which a link states what is proven about its ``probability``; a
subclass with another ``probability`` does not inherit them."""
_FORMS = ("slope", "with_slope", "curve", "moved", "gaussian_rate")
"""Names of the methods that describe the shape of a link's ``probability``; a subclass with another
``probability`` does not inherit them."""


class Link(ABC):
    """Probability of a +1 bit, given a clipped gradient entry. Your own is a class with one method,
    ``probability``.

    What is proven about it is stated by class variables, False unless the class says otherwise.
    ``monotone`` lets devices use the probability as it is; without it they hold it between its
    values at the clip. If ``monotone``, ``odd`` and ``log_concave`` all hold, the link does not
    jump, and it has the method ``moved``, the privacy of one example is accounted by how far the
    example can move a gradient entry. Else one example is accounted like a whole device, which is
    an upper bound.

    Examples
    --------
    >>> class Cubic(flmc.Link):
    ...     def probability(self, g):
    ...         x = np.clip(g / 30, -1, 1)
    ...         return 0.5 + 0.4 * (3 * x - x**3) / 2
    >>> round(Cubic().slope(clip=30.0), 4)  # kappa = 2 * 0.4 * 1.5 / 30
    0.04
    """

    monotone: ClassVar[bool] = False
    """Whether a proof says that the probability never decreases, on the whole line and not only at
    the points that :meth:`flmc.uplink.link.Link.check` tries."""
    odd: ClassVar[bool] = False
    r"""Whether a proof says that :math:`\Phi(-g) = 1 - \Phi(g)`: the mean bit is odd."""
    log_concave: ClassVar[bool] = False
    r"""Whether a proof says that the density :math:`\Phi'` is log-concave: then the gap
    :math:`\Phi(g + D) - \Phi(g)` is a concave function of :math:`\Phi(g)`, for every D."""
    jumps: ClassVar[bool] = False
    """Whether the probability jumps at 0: then any move of a gradient across 0 can turn a bit from
    certainly -1 to certainly +1."""

    def __init_subclass__(cls) -> None:
        """Reset what is proven (``monotone``, ``odd``, ``log_concave``, ``jumps``), and the methods
        that describe the shape, for a subclass with its own ``probability``: what the parent states
        holds for the parent's ``probability`` only."""
        if "proven" in vars(cls):
            raise TypeError(
                f"{cls.__name__}.proven is no fact of a link any more: state monotone, odd and"
                " log_concave, each only if it is proven"
            )
        if "probability" not in vars(cls):
            return
        for name in _FACTS:
            setattr(cls, name, vars(cls).get(name, False))
        # If the parent class has no ``probability`` but the abstract one, its methods that describe
        # a shape were written for subclasses like this, which keep them.
        inherited = next(vars(each) for each in cls.__mro__[1:] if "probability" in vars(each))
        if inherited["probability"] is not Link.probability:
            for name in _FORMS:
                setattr(cls, name, vars(cls).get(name, getattr(Link, name)))

    @property
    def accounts_moves(self) -> bool:
        """Whether the privacy of one example is accounted by how far it can move a gradient entry,
        and not like that of a whole device.

        The bound, a polygon around all pairs of bit probabilities (:mod:`flmc.privacy.bit_pairs`),
        needs a monotone and odd link whose density is log-concave, without a jump, and a class with
        its own :meth:`flmc.uplink.link.Link.moved`."""
        proven = self.monotone and self.odd and self.log_concave
        return proven and not self.jumps and type(self).moved is not Link.moved

    @property
    def name(self) -> str:
        """Name of the link in messages."""
        return type(self).__name__

    @property
    def within_extremes(self) -> bool:
        """Whether devices use no probability of a +1 bit beyond those at the clip.

        True unless a class overrides ``bounded_probability``, ``extremes`` or ``mean``, which hold
        probabilities between the two at the clip."""
        kind = type(self)
        return (
            kind.bounded_probability is Link.bounded_probability
            and kind.extremes is Link.extremes
            and kind.mean is Link.mean
        )

    @abstractmethod
    def probability(self, g: Array) -> Array:
        r"""Probability :math:`\Phi(g)` that a gradient entry becomes a +1 bit.

        Parameters
        ----------
        g
            Clipped gradient entries, in any shape.

        Returns
        -------
        Array
            Values in [0, 1] that never decrease with g, in the shape of ``g``.
        """

    def bounded_probability(self, g: Array, clip: float) -> Array:
        r"""Probability of a +1 bit that devices use, held between :math:`\Phi(-\ell)` and
        :math:`\Phi(\ell)`.

        A ``monotone`` link is used as it is. Another one is held between its
        values at the clip, and is 1/2 where it is not a number: so the worst case for privacy is at
        the clip, whatever the link does between the points that :meth:`flmc.uplink.link.Link.check`
        tries.

        Parameters
        ----------
        g
            Clipped gradient entries, in any shape.
        clip
            The clip :math:`\ell`.

        Returns
        -------
        Array
            Probabilities, in the shape of ``g``.
        """
        values = self.probability(g)
        if self.monotone:
            return values
        high, low = self.extremes(clip)
        return np.clip(np.nan_to_num(values, nan=0.5), low, high)

    def mean(self, g: Array, clip: float) -> Array:
        r"""Expected bit :math:`\psi(g) = 2\Phi(g) - 1`.

        Parameters
        ----------
        g
            Clipped gradient entries, in any shape.
        clip
            The clip :math:`\ell`.

        Returns
        -------
        Array
            Values in [-1, 1], in the shape of ``g``.
        """
        return 2.0 * self.bounded_probability(g, clip) - 1.0

    def slope(self, clip: float) -> float:
        r"""Factor :math:`\kappa = 2\Phi'(0)` by which the mean bit scales a small gradient.

        It is a difference quotient, :math:`(\Phi(w) - \Phi(-w))/w` at :math:`w = 10^{-5}\ell`.

        Parameters
        ----------
        clip
            The clip :math:`\ell`.

        Returns
        -------
        float
            The slope, positive.

        Raises
        ------
        InvalidSetting
            If the slope is not finite and positive: such a quantiser does not scale the gradient,
            so there is no temperature to speak of.
        """
        width = 1e-5 * clip
        # The quotient of a smooth link hardly changes when its width shrinks tenfold; that of a
        # jump grows tenfold, that of a root threefold.
        wide, narrow = (self._difference(w) / w for w in (width, width / 10))
        if narrow > 1.1 * wide:  # the link jumps at 0, or its slope has no bound
            raise InvalidSetting(
                f"the link {self.name} has no slope at 0 (a jump, or infinitely steep): the noise"
                " that the sampler needs cannot be calibrated; use langevin = 'paper' or 'off', or"
                " a link that is smooth at 0"
            )
        if not wide > 0:
            raise InvalidSetting(
                f"the link {self.name} must rise at 0, got slope {wide:g}: small gradients would be"
                " lost"
            )
        return wide

    def with_slope(self, slope: float, clip: float) -> Link | None:
        r"""Link of the same family with another slope :math:`\kappa` at 0.

        Parameters
        ----------
        slope
            The slope, positive.
        clip
            The clip :math:`\ell` of the uplink.

        Returns
        -------
        Link or None
            None if the link is of no family with different slopes, as here, or no link of its
            family is so steep.
        """
        return None

    def curve(self, clip: float) -> MeanCurve | None:
        r"""Mean bit as a scaled standard function, for engines that compile the round.

        Parameters
        ----------
        clip
            The clip :math:`\ell` of the uplink.

        Returns
        -------
        MeanCurve or None
            None, as here, if it is no standard function: then only engines that call
            ``probability``, or tabulate it, can run the link.
        """
        return None

    def _difference(self, width: float) -> float:
        """Probability of a +1 bit at the gradient entry ``width``, less that at ``-width``."""
        low, high = self.probability(np.array([-width, width]))
        return float(high - low)

    def extremes(self, clip: float) -> tuple[float, float]:
        r"""Largest and smallest probability of a +1 bit that a device can use: the accountant's
        worst-case pair.

        Parameters
        ----------
        clip
            The clip :math:`\ell`.

        Returns
        -------
        tuple of float
            :math:`\Phi(\ell)` and :math:`\Phi(-\ell)`.
        """
        high, low = self.probability(np.array([clip, -clip]))
        return float(high), float(low)

    def moved(self, x: Array, shift: float) -> MovedBit:
        """Probabilities of a +1 bit before and after gradient entries move, for the privacy of one
        example.

        It is asked only of a link that is ``monotone``, ``odd`` and ``log_concave``, and does not
        jump.

        Parameters
        ----------
        x
            Gradient entries before the move, (entry).
        shift
            Amount by which every entry moves up.

        Returns
        -------
        MovedBit
            Probability of a +1 bit before the move, its growth, the probability of a -1 bit after
            the move, and the derivative of the growth with respect to the first of these.

        Raises
        ------
        NotImplementedError
            Unless a subclass overrides this.
        """
        raise NotImplementedError(f"the link {self.name} does not say how a move changes its bits")

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Upper bounds of the rate c of a received bit: it reveals a move d of its gradient entry
        no better than a Gaussian mechanism whose means are c d standard deviations apart. The
        accountant asks for them where the norm of each example's gradient is bounded.

        Infinite, unless a subclass overrides this. With infinite bounds each entry is accounted as
        if it moved by the whole norm.

        Parameters
        ----------
        clip
            The uplink's clip.
        """
        return GaussianRate(math.inf, math.inf)

    def bound_to(self, clip: float) -> Link:
        """This link for gradients clipped at ``clip``; only a link whose shape depends on the clip
        differs.

        Parameters
        ----------
        clip
            The uplink's clip.
        """
        return self

    def check(self, clip: float) -> None:
        r"""Refuse a link that is no probability, or that decreases somewhere on [-clip, clip].

        Parameters
        ----------
        clip
            The clip :math:`\ell`; the link is tried at 2001 points between :math:`-\ell` and
            :math:`\ell`.

        Raises
        ------
        InvalidSetting
            If ``probability`` raises an error, returns another shape or values outside [0, 1],
            decreases, or does not rise from below 1/2 to above it.
        """
        grid = np.linspace(-clip, clip, _CHECK_POINTS)
        try:
            values = np.asarray(self.probability(grid), dtype=np.float64)
        except Exception as error:
            raise InvalidSetting(
                f"the link {self.name} failed on an array of {grid.size} entries: {error}"
            ) from error
        if values.shape != grid.shape:
            raise InvalidSetting(
                f"the link {self.name} must return one probability per entry, got shape"
                f" {values.shape}"
            )
        outside = values[~((values >= 0) & (values <= 1))]
        if outside.size:
            raise InvalidSetting(
                f"the link {self.name} must return probabilities in [0, 1] for gradients in"
                f" [-{clip:g}, {clip:g}], got {outside[0]:g}"
            )
        fall = int(np.argmin(np.diff(values)))
        # A decrease by less than 1e-12 is the rounding error of a flat link.
        if values[fall + 1] - values[fall] < -1e-12:
            raise InvalidSetting(
                f"the link {self.name} must never decrease, but it falls near g = {grid[fall]:g}"
            )
        if not values[0] < 0.5 < values[-1]:
            raise InvalidSetting(
                f"the link {self.name} must rise from below 1/2 to above it over [-{clip:g},"
                f" {clip:g}], or devices could pull one way only; got {values[0]:g} to"
                f" {values[-1]:g}"
            )


def quantise(probability: Array, uniform: Array) -> Array:
    """Random bits, -1.0 and 1.0, in the shape to which ``probability`` and ``uniform`` broadcast: 1
    where the uniform number from [0, 1) lies below the probability of a 1."""
    # Bits are integers of one byte until the conversion at the end, which takes a quarter of the
    # time of np.where.
    positive = np.less(uniform, probability).view(np.int8)
    return np.asarray(np.int8(2) * positive - np.int8(1), dtype=np.float64)
