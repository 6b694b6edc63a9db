r"""Supports of parameters: real, bounded, simplex, ordered, positive definite, each with a smooth
map from free numbers and the logarithm of its Jacobian determinant.

A sampler moves in free real numbers u, while the user's densities are those of the parameter x.
With a map x(u), the density of u is that of x(u) times the Jacobian :math:`|\partial x/\partial
u|`. The Jacobian is a factor of the prior, so it counts once, however many devices there are.

The maps do not depend on data, so that every device of a federation, and every engine, uses the
same. They are logarithms of positive numbers, logits of bounded ones, isometric log-ratios of a
simplex, which treat its entries alike, and for matrices the rows of a Cholesky factor relative to
their diagonal entry. At free numbers of any size x is finite, and does not reach a bound or zero,
because densities are often infinite there. (Numbers that differ by less than rounding cannot be
told apart: an ordered vector may then have equal entries, and a matrix of correlations near 1 may
be singular; its Cholesky factor is not.)

The functions take arrays of NumPy or of JAX, and keep their precision."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

Shape = tuple[int, ...]


class Support(ABC):
    """Set of values that a parameter may have, and a map onto it from free real numbers.

    A support of your own is a subclass. Its last ``event_rank`` axes belong together, as the
    entries of one simplex do; all axes before them are repetitions."""

    event_rank: int = 0
    """Number of trailing axes of the parameter along which entries depend on each other, such as 1
    for a simplex and 2 for a matrix; 0: all entries are independent."""
    words: str
    """Description of the values in the support, for error messages that read ``must be`` and these
    words."""

    def free_shape(self, shape: Shape) -> Shape:
        """Shape of the free numbers of a parameter with this ``shape``; here the same. Raises
        ``InvalidSetting`` if no parameter with this support has such a shape."""
        return shape

    @abstractmethod
    def constrain(self, free: Any) -> Any:
        """Value of the parameter at the ``free`` numbers, whose trailing axes are those of
        :meth:`free_shape`; axes in front of these are repetitions, and the value has them too."""

    @abstractmethod
    def log_jacobian(self, free: Any) -> Any:
        """Logarithm of the Jacobian determinant of :meth:`constrain` at the ``free`` numbers, one
        number: the sum over all repetitions. For a simplex or a symmetric matrix, whose entries are
        not independent, the determinant is taken for the entries that determine all: all but the
        last of a simplex, those on and below the diagonal of a matrix, those below it where the
        diagonal is fixed."""

    @abstractmethod
    def free(self, value: Array) -> Array:
        """The free numbers at which :meth:`constrain` gives ``value``, which is in the support."""

    @abstractmethod
    def contains(self, value: Array) -> bool:
        """Whether ``value`` is inside the support, not on its edge."""


class Real(Support):
    """All real numbers; the free numbers are the parameter itself."""

    words = "finite numbers"

    def constrain(self, free: Any) -> Any:
        """Value of a parameter with all real numbers as support: the ``free`` numbers
        themselves."""
        return free

    def log_jacobian(self, free: Any) -> Any:
        """Zero: the map from free numbers to the parameter is the identity, with Jacobian 1."""
        return 0.0

    def free(self, value: Array) -> Array:
        """Free numbers of a parameter with all real numbers as support: its ``value`` itself."""
        return value

    def contains(self, value: Array) -> bool:
        """Whether all numbers in ``value`` are finite."""
        return bool(np.isfinite(value).all())


@dataclass(frozen=True)
class Interval(Support):
    """Numbers above ``low`` and below ``high``; one of the two bounds may be infinite.

    With one finite bound the free number is the logarithm of the distance from it. With two, it is
    the logit of the number's relative position between them. Raises ``InvalidSetting`` unless low <
    high and at least one of them is finite.

    >>> flmc.supports.Interval(-1.0, 1.0).constrain(np.array([-50.0, 0.0, 50.0])).round(3).tolist()
    [-1.0, 0.0, 1.0]
    """

    low: float = -math.inf
    high: float = math.inf

    def __post_init__(self) -> None:
        if not self.low < self.high or (math.isinf(self.low) and math.isinf(self.high)):
            raise InvalidSetting(
                "an interval needs low < high, one of them finite, got"
                f" {self.low:g} and {self.high:g}"
            )

    @property
    def words(self) -> str:  # type: ignore[override]  # depends on the bounds
        """Description of the interval for error messages: ``positive``, or ``above``, ``below`` or
        ``between`` with the bounds."""
        if math.isinf(self.high):
            return "positive" if self.low == 0 else f"above {self.low:g}"
        if math.isinf(self.low):
            return f"below {self.high:g}"
        return f"between {self.low:g} and {self.high:g}"

    def constrain(self, free: Any) -> Any:
        """Numbers inside the interval at the ``free`` numbers, in the same shape: the only finite
        bound plus or minus the exponential of the free number, or a logistic function between two
        bounds."""
        numpy = _namespace(free)
        if math.isinf(self.high):
            value = self.low + numpy.exp(numpy.minimum(free, _most(free)))
        elif math.isinf(self.low):
            value = self.high - numpy.exp(numpy.minimum(free, _most(free)))
        else:
            # The value is computed from the nearer bound: where this is 0, the small distance to it
            # is then not lost in rounding.
            small = numpy.exp(-numpy.abs(free))
            away = (self.high - self.low) * small / (1 + small)
            value = numpy.where(free < 0, self.low + away, self.high - away)
        return numpy.clip(value, *self._ends(free.dtype))

    def log_jacobian(self, free: Any) -> Any:
        """Sum over all numbers of the logarithm of the derivative of :meth:`constrain` at
        ``free``."""
        numpy = _namespace(free)
        if math.isinf(self.high - self.low):
            # Beyond the largest free number that is used, the value does not change, so its log
            # density is held as well.
            return numpy.minimum(free, _most(free)).sum()
        size = numpy.abs(free)
        each = math.log(self.high - self.low) - size - 2 * numpy.log1p(numpy.exp(-size))
        return each.sum()

    def free(self, value: Array) -> Array:
        """Free numbers of ``value``, in the same shape: the logarithm of the distance from the only
        finite bound, or the logarithm of the ratio of the distances from both."""
        if math.isinf(self.high):
            return np.asarray(np.log(value - self.low))
        if math.isinf(self.low):
            return np.asarray(np.log(self.high - value))
        return np.asarray(np.log(value - self.low) - np.log(self.high - value))

    def contains(self, value: Array) -> bool:
        """Whether all numbers in ``value`` are finite, and strictly between the bounds."""
        return bool(((value > self.low) & (value < self.high) & np.isfinite(value)).all())

    def _ends(self, kind: Any) -> tuple[Any, Any]:
        """Smallest and largest number inside the interval in the floating-point type ``kind``. Next
        to a bound of 0 this is the smallest normal number, because compiled code replaces smaller
        ones by 0."""
        least = np.finfo(kind).tiny
        low, high = (np.asarray(end, kind)[()] for end in (self.low, self.high))
        above = least if low == 0 else np.nextafter(low, high)
        below = -least if high == 0 else np.nextafter(high, low)
        return above, below


class Simplex(Support):
    r"""Positive entries along the last axis that add up to 1.

    K entries x have K - 1 free numbers, the isometric log-ratios :math:`V^\top \ln x`: the columns
    of the matrix V, (K, K - 1), are orthonormal and each adds up to 0, so all entries are treated
    alike."""

    event_rank = 1
    words = "positive with a sum of 1 along the last axis"

    def free_shape(self, shape: Shape) -> Shape:
        """Shape of the free numbers: ``shape`` with one number less along the last axis, because
        the last entry follows from the rest. Raises ``InvalidSetting`` if that axis has fewer than
        2 entries."""
        if not shape or shape[-1] < 2:
            raise InvalidSetting(f"a simplex needs 2 entries along its last axis, got {shape}")
        return (*shape[:-1], shape[-1] - 1)

    def constrain(self, free: Any) -> Any:
        """Entries of the simplex, (..., K), at the ``free`` numbers (..., K - 1): the softmax of
        their product with Helmert's contrasts. No entry is exactly 0."""
        numpy = _namespace(free)
        share = numpy.exp(self._logarithms(free))
        return numpy.maximum(share, np.finfo(free.dtype).tiny)

    def log_jacobian(self, free: Any) -> Any:
        """Logarithm of the Jacobian determinant at ``free`` (..., K - 1): the sum of the logarithms
        of all K entries plus half the logarithm of K, for each simplex."""
        # The density of a simplex is that of all but its last entry.
        repeats = math.prod(free.shape[:-1])
        return self._logarithms(free).sum() + repeats * 0.5 * math.log(free.shape[-1] + 1)

    def free(self, value: Array) -> Array:
        """Free numbers (..., K - 1) of ``value`` (..., K): the logarithms of its entries times
        Helmert's contrasts."""
        return np.asarray(np.log(value) @ _contrasts(value.shape[-1]))

    def contains(self, value: Array) -> bool:
        """Whether the entries of ``value`` are positive and add up to 1 along the last axis, with
        an error of at most a millionth."""
        total = value.sum(axis=-1)
        return bool((value > 0).all() and np.allclose(total, 1.0, rtol=0, atol=1e-6))

    def _logarithms(self, free: Any) -> Any:
        """Logarithms of the entries of the simplex, (..., K), at the free numbers (..., K - 1)."""
        numpy = _namespace(free)
        scores = free @ _contrasts(free.shape[-1] + 1).T.astype(free.dtype)
        scores = scores - scores.max(axis=-1, keepdims=True)
        return scores - numpy.log(numpy.exp(scores).sum(axis=-1, keepdims=True))


class Ordered(Support):
    """Entries that increase along the last axis. The free numbers are the first entry and the
    logarithms of the differences of neighbouring entries."""

    event_rank = 1
    words = "increasing along the last axis"

    def free_shape(self, shape: Shape) -> Shape:
        """Shape of the free numbers: ``shape`` itself. Raises ``InvalidSetting`` for a single
        number, which has no axis to be ordered along."""
        if not shape:
            raise InvalidSetting("ordered entries need an axis, got a single number")
        return shape

    def constrain(self, free: Any) -> Any:
        """Increasing entries at the ``free`` numbers, in the same shape: cumulative sums of the
        first entry and the differences, which are exponentials of free numbers."""
        numpy = _namespace(free)
        gaps = numpy.exp(numpy.minimum(free[..., 1:], _most(free)))
        return numpy.concatenate([free[..., :1], gaps], axis=-1).cumsum(axis=-1)

    def log_jacobian(self, free: Any) -> Any:
        """Logarithm of the Jacobian determinant at ``free``: the sum of the logarithms of the
        differences of neighbouring entries."""
        return _namespace(free).minimum(free[..., 1:], _most(free)).sum()

    def free(self, value: Array) -> Array:
        """Free numbers of ``value``, in the same shape: its first entry, and the logarithms of the
        differences of neighbouring entries."""
        return np.concatenate([value[..., :1], np.log(np.diff(value, axis=-1))], axis=-1)

    def contains(self, value: Array) -> bool:
        """Whether the entries of ``value`` are finite and increase along the last axis."""
        return bool((np.diff(value, axis=-1) > 0).all() and np.isfinite(value).all())


@dataclass(frozen=True)
class PositiveDefinite(Support):
    r"""Symmetric positive definite matrices :math:`x = LL^\top`; with ``factor`` their Cholesky
    factors L themselves, lower triangular with a positive diagonal.

    The free numbers of a row of L are its entries to the left of the diagonal, divided by its
    diagonal entry, and then the logarithm of the diagonal entry; row follows row. So a change of
    the unit of one axis shifts one free number only."""

    factor: bool = False
    """Whether the parameter is the Cholesky factor, not the matrix."""
    event_rank = 2

    @property
    def words(self) -> str:  # type: ignore[override]  # depends on ``factor``
        """Description of the values for error messages: a positive definite matrix or, with
        ``factor``, its Cholesky factor."""
        lower = "a lower triangular matrix with a positive diagonal"
        return lower if self.factor else "a symmetric positive definite matrix"

    def free_shape(self, shape: Shape) -> Shape:
        """The leading axes of ``shape``, and one axis with a number for each entry on and below the
        matrix's diagonal."""
        size = _side(shape)
        return (*shape[:-2], size * (size + 1) // 2)

    def constrain(self, free: Any) -> Any:
        """The Cholesky factor, or its product with its transpose."""
        numpy = _namespace(free)
        size = _side_of_triangle(free.shape[-1])
        logs = self._log_diagonal(free)
        below = _placed(free, *np.tril_indices(size), size) * np.tri(size, k=-1, dtype=free.dtype)
        # Rows relative to their diagonal entry, which is 1 here.
        rows = below + np.eye(size, dtype=free.dtype)
        lower = rows * numpy.exp(logs)[..., None]
        return lower if self.factor else lower @ numpy.swapaxes(lower, -1, -2)

    def log_jacobian(self, free: Any) -> Any:
        """Logarithm of the Jacobian determinant at ``free``: a sum of the logarithms of L's
        diagonal entries, each times a power, plus a constant for the matrix itself."""
        size = _side_of_triangle(free.shape[-1])
        # Row i of L, from 1, has i - 1 entries that are multiplied by its diagonal entry, which is
        # itself an exponential: the power i. The map from L to L L' adds the power size + 1 - i,
        # and a factor of 2 for each row.
        power = np.arange(1, size + 1) if self.factor else np.full(size, size + 1)
        repeats = math.prod(free.shape[:-1])
        constant = 0.0 if self.factor else repeats * size * math.log(2.0)
        return (self._log_diagonal(free) * power.astype(free.dtype)).sum() + constant

    def free(self, value: Array) -> Array:
        """Free numbers of ``value``: row by row the entries of its Cholesky factor L left of the
        diagonal, divided by the diagonal entry, and the logarithm of the diagonal entry."""
        lower = value if self.factor else np.linalg.cholesky(value)
        size = lower.shape[-1]
        diagonal = np.diagonal(lower, axis1=-2, axis2=-1)
        rows = lower / diagonal[..., None]
        rows[..., np.arange(size), np.arange(size)] = np.log(diagonal)
        return np.asarray(rows[(..., *np.tril_indices(size))])

    def contains(self, value: Array) -> bool:
        """Whether all matrices in ``value`` are symmetric and positive definite or, with
        ``factor``, lower triangular with a positive diagonal."""
        return _is_factor(value) if self.factor else _is_positive_definite(value)

    def _log_diagonal(self, free: Any) -> Any:
        """Logarithms of the diagonal of the Cholesky factor L, (..., row), at the ``free`` numbers;
        limited to a range in which the squares of the diagonal entries are neither 0 nor
        infinite."""
        size = _side_of_triangle(free.shape[-1])
        diagonal = free[..., np.cumsum(np.arange(1, size + 1)) - 1]
        # The matrix L L' has squares of L's entries, so each logarithm may use half of the range.
        return _namespace(free).clip(diagonal, -_most(free) / 2, _most(free) / 2)


@dataclass(frozen=True)
class Correlation(Support):
    r"""Correlation matrices :math:`x = LL^\top`, positive definite with a diagonal of ones; with
    ``factor`` their Cholesky factors L themselves, whose rows have length 1.

    The free numbers are the inverse hyperbolic tangents of partial correlations, row by row below
    the diagonal. Entry j of a row of L is its partial correlation times the square root of 1 minus
    the sum of the squares of the entries before it in the row."""

    factor: bool = False
    """Whether the parameter is the Cholesky factor, not the matrix."""
    event_rank = 2

    @property
    def words(self) -> str:  # type: ignore[override]  # depends on ``factor``
        """Description of the values for error messages: a correlation matrix or, with ``factor``,
        its Cholesky factor."""
        matrix = "a positive definite matrix with a diagonal of ones"
        return f"the Cholesky factor of {matrix}" if self.factor else matrix

    def free_shape(self, shape: Shape) -> Shape:
        """The leading axes of ``shape``, and one axis with a number for each entry below the
        matrix's diagonal."""
        size = _side(shape)
        if size < 2:
            raise InvalidSetting(f"a correlation needs a matrix of 2 rows at least, got {shape}")
        return (*shape[:-2], size * (size - 1) // 2)

    def constrain(self, free: Any) -> Any:
        """The Cholesky factor, or its product with its transpose."""
        numpy = _namespace(free)
        size = _side_of_triangle(free.shape[-1]) + 1
        partial = _placed(numpy.tanh(free), *np.tril_indices(size, -1), size)
        left = numpy.exp(self._log_left(free))
        lower = (partial + np.eye(size, dtype=free.dtype)) * left
        # A diagonal entry that is rounded to 0 would make densities infinite, so it is kept above
        # 0.
        least = np.finfo(free.dtype).tiny * np.eye(size, dtype=free.dtype)
        lower = numpy.where(np.eye(size, dtype=bool), numpy.maximum(lower, least), lower)
        return lower if self.factor else lower @ numpy.swapaxes(lower, -1, -2)

    def log_jacobian(self, free: Any) -> Any:
        """Logarithm of the Jacobian determinant at ``free``: the logarithms of the derivatives of
        the partial correlations, plus those of the lengths by which these are multiplied in L, plus
        those of the map from L to L L' unless ``factor`` is set."""
        size = _side_of_triangle(free.shape[-1]) + 1
        left = self._log_left(free)
        rows, columns = np.tril_indices(size, -1)
        total = _log_squared_secant(free).sum() + left[..., rows, columns].sum()
        if self.factor:
            return total
        # The map from L to L L' has the Jacobian of L's diagonal entries, each to the power of the
        # number of rows below it.
        power = size - 1 - np.arange(size)
        diagonal = left[..., np.arange(size), np.arange(size)]
        return total + (diagonal * power.astype(free.dtype)).sum()

    def free(self, value: Array) -> Array:
        """Free numbers of ``value``: the inverse hyperbolic tangents of the partial correlations in
        its Cholesky factor, row by row below the diagonal."""
        lower = value if self.factor else np.linalg.cholesky(value)
        squares = np.square(lower)
        left = np.sqrt(np.maximum(1.0 - (np.cumsum(squares, axis=-1) - squares), 0.0))
        rows, columns = np.tril_indices(lower.shape[-1], -1)
        return np.asarray(np.arctanh(lower[..., rows, columns] / left[..., rows, columns]))

    def contains(self, value: Array) -> bool:
        """Whether all matrices in ``value`` are correlation matrices or, with ``factor``, Cholesky
        factors of correlation matrices; ones may be off by a millionth."""
        if self.factor:
            lengths = np.square(value).sum(axis=-1)
            return _is_factor(value) and bool(np.allclose(lengths, 1.0, atol=1e-6))
        diagonal = np.diagonal(value, axis1=-2, axis2=-1)
        return _is_positive_definite(value) and bool(np.allclose(diagonal, 1.0, atol=1e-6))

    def _log_left(self, free: Any) -> Any:
        """For every entry of a row of the Cholesky factor L, the logarithm of the root of 1 minus
        the sum of the squares of the entries before it, (..., size, size); 0 in the first
        column."""
        size = _side_of_triangle(free.shape[-1]) + 1
        each = _placed(0.5 * _log_squared_secant(free), *np.tril_indices(size, -1), size)
        return each.cumsum(axis=-1) - each


def _namespace(array: Any) -> Any:
    """The module whose functions apply to an array: NumPy's, or else JAX's."""
    if isinstance(array, np.ndarray | np.generic):
        return np
    import jax.numpy

    return jax.numpy


def _most(free: Any) -> float:
    """Largest free number whose exponential is formed: that exponential's square is still finite in
    the precision of ``free``."""
    return float(np.log(np.finfo(free.dtype).max)) / 2 - 1


def _contrasts(size: int) -> Array:
    """Helmert's contrasts, (size, size - 1): ``size`` - 1 orthonormal columns, each of which adds
    up to 0."""
    number = np.arange(1, size)
    rows = np.arange(size)[:, None]
    columns = np.where(rows < number, 1.0, np.where(rows == number, -number, 0.0))
    return np.asarray(columns / np.sqrt(number * (number + 1)))


def _log_squared_secant(free: Any) -> Any:
    """Logarithm of 1 - tanh(u)^2 for the numbers u in ``free``, computed so that it does not
    underflow for large u."""
    numpy = _namespace(free)
    size = numpy.abs(free)
    return 2 * (math.log(2.0) - size - numpy.log1p(numpy.exp(-2 * size)))


def _side(shape: Shape) -> int:
    """Number of rows of a square matrix in the last two axes of ``shape``; raises
    ``InvalidSetting`` if they are not one."""
    if len(shape) < 2 or shape[-1] != shape[-2] or not shape[-1]:
        raise InvalidSetting(f"the last two axes must be those of a square matrix, got {shape}")
    return shape[-1]


def _side_of_triangle(count: int) -> int:
    """Number of rows of a square matrix whose lower triangle, its diagonal included, has ``count``
    entries."""
    return (math.isqrt(8 * count + 1) - 1) // 2


def _placed(values: Any, rows: Any, columns: Any, size: int) -> Any:
    """Matrices (..., size, size) with the ``values`` (..., entry) at the given rows and columns,
    and 0 elsewhere."""
    # Every place of the matrix takes a value, or the 0 appended to the values, by its index: JAX's
    # arrays do not allow an assignment to places.
    numpy = _namespace(values)
    index = np.full((size, size), values.shape[-1])
    index[rows, columns] = np.arange(values.shape[-1])
    zero = numpy.zeros_like(values[..., :1])
    return numpy.concatenate([values, zero], axis=-1)[..., index]


def _is_factor(value: Array) -> bool:
    """Whether all matrices in the last two axes are lower triangular with a positive diagonal."""
    positive = (np.diagonal(value, axis1=-2, axis2=-1) > 0).all()
    return bool(positive and np.isfinite(value).all() and not np.triu(value, 1).any())


def _is_positive_definite(value: Array) -> bool:
    """Whether all matrices in the last two axes are symmetric and positive definite."""
    if not np.isfinite(value).all() or not np.allclose(value, np.swapaxes(value, -1, -2)):
        return False
    try:
        np.linalg.cholesky(value)
    except np.linalg.LinAlgError:
        return False
    return True


real = Real()
positive = Interval(0.0)
unit_interval = Interval(0.0, 1.0)
simplex = Simplex()
ordered = Ordered()
positive_definite = PositiveDefinite()
cholesky = PositiveDefinite(factor=True)
correlation = Correlation()
correlation_cholesky = Correlation(factor=True)
