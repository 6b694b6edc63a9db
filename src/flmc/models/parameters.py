"""The parameters of a model by name: how a user declares them, and how they lie in theta.

Theta is one vector of free real numbers: it is what travels, and what a sampler moves. A parameter
has a name, a shape, a support and names of its axes; :mod:`flmc.models.supports` maps its entries
of theta to its value. Draws are shown as values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.supports import Real, Support, real

Axes = tuple[tuple[str, tuple[Any, ...]], ...]
"""Names of the axes of a parameter, in order, each with one label for every index along the
axis."""


@dataclass(frozen=True, eq=False)
class Parameter:
    """Declaration of a parameter of a model: its start, support and axes.

    It takes the place of an array in the ``start`` of :meth:`flmc.Model.from_log_density`. An array
    there declares a parameter that may have all real values, and whose axes have no names.

    Attributes
    ----------
    start
        Value about which chains start, a number or an array, inside of the support.
    support
        Values that the parameter may have: one of ``flmc.supports``.
    axes
        Name of every axis in order, each with one label for every index along it; tables and ArviZ
        show them. Several parameters may share an axis.

    Examples
    --------
    >>> spread = flmc.Parameter(1.0, flmc.supports.positive)
    >>> effect = flmc.Parameter(np.zeros(2), axes={"school": ["Choate", "Deerfield"]})
    """

    start: Any
    support: Support = real
    axes: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def named(self, name: str) -> NamedParameter:
        """This parameter with a name, checked, in the form in which models hold it.

        Parameters
        ----------
        name
            Name in tables and messages.

        Raises
        ------
        InvalidSetting
            Unless the start is finite and inside of the support, and shape, support and axes fit.
        """
        start = checks.finite_array(f"start of {name!r}", self.start)
        if not isinstance(self.support, Support):
            raise InvalidSetting(
                f"the support of {name!r} must be one of flmc.supports, such as"
                f" flmc.supports.positive, got {self.support!r}"
            )
        try:
            self.support.free_shape(start.shape)
        except InvalidSetting as error:
            raise InvalidSetting(f"{name!r}: {error}") from None
        if not self.support.contains(start):
            raise InvalidSetting(
                f"start of {name!r} must be {self.support.words}, got {start.tolist()}"
            )
        axes = tuple((axis, tuple(labels)) for axis, labels in self.axes.items())
        lengths = tuple(len(labels) for _, labels in axes)
        if axes and lengths != start.shape:
            raise InvalidSetting(
                f"the axes of {name!r} must have as many labels as it has places, {start.shape},"
                f" got {lengths}"
            )
        return NamedParameter(name, start.shape, self.support, axes)


@dataclass(frozen=True)
class NamedParameter:
    """A parameter of a model, with its name. ``shape`` is that of its value, which may have more
    entries than the free numbers that stand for it in theta."""

    name: str
    shape: tuple[int, ...]
    support: Support = real
    axes: Axes = ()

    @cached_property
    def free_shape(self) -> tuple[int, ...]:
        """Shape of the free numbers that stand for this parameter in theta."""
        return self.support.free_shape(self.shape)

    @property
    def size(self) -> int:
        """Number of this parameter's entries in theta."""
        return math.prod(self.free_shape)

    def entries(self) -> list[str]:
        """Names of the entries of the parameter's value: its name with an index in brackets, of
        labels if axes have them, else of numbers, such as ``effect[north]`` or ``sd`` for a single
        number."""
        numbers: list[Sequence[Any]] = [range(count) for count in self.shape]
        labels = [labels for _, labels in self.axes] or numbers
        return [
            self.name + _in_brackets(each[i] for each, i in zip(labels, place, strict=True))
            for place in np.ndindex(*self.shape)
        ]

    def free_entries(self) -> list[str]:
        """Names of this parameter's entries in theta. With a real support they are the names of its
        value's entries. Otherwise they are ``free(...)`` around these if there are as many, else
        ``free(name)`` with an index of numbers."""
        if isinstance(self.support, Real):
            return self.entries()
        if self.free_shape == self.shape:
            return [f"free({name})" for name in self.entries()]
        return [f"free({self.name}){_in_brackets(i)}" for i in np.ndindex(*self.free_shape)]


def _in_brackets(places: Iterable[Any]) -> str:
    """The index ``places`` of an entry as text, such as ``[2,north]``; empty text for a parameter
    without axes, which is one number."""
    index = ",".join(map(str, places))
    return f"[{index}]" if index else ""


@dataclass(frozen=True)
class Layout:
    """Parameters in the order in which they lie in theta. Raises ``InvalidSetting`` if two have the
    same name, or give one axis different labels.

    >>> from flmc.models.parameters import Layout, NamedParameter
    >>> share = NamedParameter("share", (2,), flmc.supports.simplex)
    >>> layout = Layout((NamedParameter("mean", ()), share))
    >>> layout.dim, layout.entries()
    (2, ['mean', 'share[0]', 'share[1]'])
    >>> layout.values(np.zeros(2))["share"].tolist()
    [0.5, 0.5]
    """

    parameters: tuple[NamedParameter, ...]

    def __post_init__(self) -> None:
        names = [each.name for each in self.parameters]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise InvalidSetting(f"there are several parameters with the name {min(twice)!r}")
        seen: dict[str, tuple[Any, ...]] = {}
        for each in self.parameters:
            for axis, labels in each.axes:
                if seen.setdefault(axis, labels) != labels:
                    raise InvalidSetting(
                        f"the axis {axis!r} of {each.name!r} has other labels than elsewhere: give"
                        " it another name"
                    )

    @classmethod
    def of_shapes(cls, **shapes: tuple[int, ...]) -> Layout:
        """Layout of parameters that may have all real values; ``shapes`` maps their names to
        shapes."""
        return cls(tuple(NamedParameter(name, shape) for name, shape in shapes.items()))

    @classmethod
    def of_names(cls, names: Sequence[str], dim: int) -> Layout:
        """Layout of parameters of one real number each, with these ``names``. Raises
        ``InvalidSetting`` unless there are ``dim`` names."""
        if isinstance(names, str) or len(names) != dim:
            raise InvalidSetting(f"names must be {dim} names, one for each entry, got {names!r}")
        return cls(tuple(NamedParameter(str(name), ()) for name in names))

    @classmethod
    def of_axis(cls, name: str, axis: str, labels: Sequence[Any]) -> Layout:
        """Layout of one real parameter, called ``name``, with one axis, called ``axis``, and an
        entry for each of its ``labels``."""
        return cls((NamedParameter(name, (len(labels),), real, ((axis, tuple(labels)),)),))

    @property
    def dim(self) -> int:
        """Number of entries of theta."""
        return sum(each.size for each in self.parameters)

    @property
    def free(self) -> bool:
        """Whether every parameter may have all real values, so that theta holds the values."""
        return all(isinstance(each.support, Real) for each in self.parameters)

    def values(self, theta: Any) -> dict[str, Any]:
        """Values of the parameters by name, each (..., its shape), at ``theta`` (..., dim), an
        array of NumPy or JAX, whose precision is kept."""
        parts = self._parts(theta)
        return {each.name: each.support.constrain(parts[each.name]) for each in self.parameters}

    def log_jacobian(self, theta: Any) -> Any:
        """Logarithm of the Jacobian determinant of the map from one ``theta`` (dim) to the values
        of all parameters, a number."""
        parts = self._parts(theta)
        return sum(each.support.log_jacobian(parts[each.name]) for each in self.parameters)

    def theta(self, values: Mapping[str, Array]) -> Array:
        """The theta, (dim), at which the parameters have these ``values``."""
        free = (each.support.free(values[each.name]).ravel() for each in self.parameters)
        return np.concatenate([*free, np.empty(0)])

    def entries(self) -> list[str]:
        """Names of the entries of the values of all parameters, in order."""
        return [name for each in self.parameters for name in each.entries()]

    def free_entries(self) -> list[str]:
        """Names of the entries of theta, (dim)."""
        return [name for each in self.parameters for name in each.free_entries()]

    def _parts(self, theta: Any) -> dict[str, Any]:
        """The free numbers of every parameter, by name, each (..., its free shape), cut out of
        ``theta`` (..., dim)."""
        parts, first = {}, 0
        for each in self.parameters:
            part = theta[..., first : first + each.size]
            parts[each.name] = part.reshape((*theta.shape[:-1], *each.free_shape))
            first += each.size
        return parts


class ParameterTree:
    """The structure of a user's parameters, taken from ``start``: a tree (any pytree of JAX) whose
    leaves are arrays or :class:`Parameter` declarations. It turns theta into a tree of values with
    the same structure. The attribute ``layout`` holds the parameters, ``start`` the theta, (dim),
    at the given leaves."""

    def __init__(self, jax: Any, start: Any) -> None:
        paths, self._form = jax.tree_util.tree_flatten_with_path(start)
        self._unflatten = jax.tree_util.tree_unflatten
        leaves = [leaf if isinstance(leaf, Parameter) else Parameter(leaf) for _, leaf in paths]
        names = [
            ".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in path) or "theta"
            for path, _ in paths
        ]
        both = list(zip(names, leaves, strict=True))
        self.layout = Layout(tuple(leaf.named(name) for name, leaf in both))
        at = {name: np.asarray(leaf.start, dtype=np.float64) for name, leaf in both}
        self.start: Array = self.layout.theta(at)
        checks.at_least("the number of parameters", len(self.start), 1)

    def parameters(self, theta: Any) -> Any:
        """The tree of parameter values at ``theta`` (dim), an array of NumPy or JAX, whose
        precision the tree keeps."""
        return self._unflatten(self._form, list(self.layout.values(theta).values()))
