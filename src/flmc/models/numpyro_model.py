"""A NumPyro model as a federated one: its log joint density, split into a prior and the likelihood
of one example, or of all data of a device.

The model is a function of named arrays with one row for each example. When it is called with a
single row, the log density of its observed sites is the likelihood of that example, which involves
no other row. The log density of the sites that do not depend on rows is the prior. At some points
the sum of these parts is compared with the density for many rows at once, site by site; a site for
which they differ is refused by its name.

For a series, or whatever else is no sum over rows, the model is that of one device instead: it is
called with a device's whole arrays. The sites whose density no array changes, in value or in
length, are the prior; the other observed sites are the likelihood of the device. Supports are those
of :mod:`flmc.models.supports`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.data.examples import OnDevices
from flmc.models import supports
from flmc.models.differentiation import require_jax
from flmc.models.local_parameters import LocalParameters
from flmc.models.log_density import UNITS, LogDensityModel
from flmc.models.parameters import Parameter
from flmc.models.pointwise import Likelihood
from flmc.models.supports import Interval, Support

_NUM_DRAWS = 101
"""Number of draws from the prior of a latent site; their median is the site's default start."""
_NUM_POINTS = 3
"""Number of points at which the split into prior and likelihood is tested. One point would tell two
different densities apart; several serve models whose density is infinite at some points."""
_MOST_ROWS = 1000
"""About the largest number of examples with which it is tested whether a log density splits into a
sum over examples; of more, evenly chosen ones are taken."""
_TOLERANCE = 1e-8
"""Largest difference of two sums, relative to the sum of the magnitudes of their terms, with which
they count as equal. The rounding of a thousand terms in double precision is a thousand times
smaller."""
_SPREAD = 0.5
"""Standard deviation, in free numbers about the start, of the random points at which the split into
prior and likelihood is tested."""

NumpyroModel = Callable[..., Any]
Site = dict[str, Any]
Values = Mapping[str, Any]


def federated(
    model: NumpyroModel,
    data: OnDevices,
    fixed: Mapping[str, Any],
    start: Mapping[str, Any],
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Sequence[Any]],
    local: str | None = None,
    local_steps: int = 8,
    likelihood_of: str = "example",
    **others: Any,
) -> LogDensityModel:
    """The model of :meth:`flmc.Model.from_numpyro`, which describes the arguments; ``others`` are
    those of :class:`~flmc.models.log_density.LogDensityModel`."""
    jax, numpyro = require_jax(), _require_numpyro()
    rows, labels = data.rows(), data.labels
    if not data.num_samples:
        raise InvalidSetting("a NumPyro model needs 1 example at least, got 0")
    of_device = checks.one_of("likelihood_of", likelihood_of, UNITS) == "device"
    if of_device and local is not None:
        raise InvalidSetting(
            "local names a plate over devices, and a model with likelihood_of='device' is that of"
            " one device, which has no such plate: leave local out, or write the densities for"
            " from_log_density"
        )
    calls = _Calls(jax, numpyro, model, dict(fixed), "rows" if of_device else "examples")
    # The prior is evaluated with zeros in place of the data, so that no data can enter it: with one
    # row of them, or with as many as the smallest device has.
    size = min(size for size in data.device_sizes if size) if of_device else 1
    blank = {name: np.zeros_like(values[:size]) for name, values in rows.items()}
    with jax.enable_x64():
        tried = _tried(calls, data) if of_device else []
        two = {name: values[[0, -1]] for name, values in rows.items()}
        latent = _latent_sites(calls, jax, blank, tried or [two])
        starts = {name: site["value"] for name, site in latent.items()}
        for name in start:
            if name not in latent:
                raise InvalidSetting(
                    f"start has {name!r}, which is no latent site: they are {', '.join(latent)}"
                )
        starts |= {name: np.asarray(value, np.float64) for name, value in start.items()}
        parameters = {
            name: Parameter(starts[name], site["support"], _axes(site, dims, coords, labels))
            for name, site in latent.items()
        }
        # ``named`` raises an error with the parameter's name if its start or axes do not fit. It is
        # called before the start is used to make points.
        named = {name: each.named(name) for name, each in parameters.items()}
        rng = np.random.default_rng(0)
        points = [
            {
                name: each.support.constrain(
                    each.support.free(np.asarray(starts[name], np.float64))
                    + _SPREAD * rng.standard_normal(each.free_shape)
                )
                for name, each in named.items()
            }
            for _ in range(_NUM_POINTS)
        ]
        if of_device:
            free = _free_of_data(calls, jax, points, blank, tried, set(latent))
            return _of_whole_devices(calls, free, blank, data, parameters, others)
        in_likelihood = _observed_by_example(calls, jax, points, blank, _some(rows), set(latent))

        at_home = None
        if local is not None:
            devices = others.get("prior_devices") or data.num_devices
            at_home = AtHome.of(calls, jax, local, latent, parameters, devices)
            at_home.check(points, blank, data, in_likelihood)
    home = set() if at_home is None else set(at_home.axes)

    def log_prior(values: Values) -> Any:
        whole = values if at_home is None else at_home.everywhere(values, at_home.start)
        each = calls.log_densities(whole, blank)
        return sum(v for name, v in each.items() if name not in in_likelihood and name not in home)

    def one(row: Values) -> Values:
        return {name: row[name][None] for name in rows}

    def each(values: Values, *own_and_row: Values) -> Values:
        row, whole = own_and_row[-1], values
        if at_home is not None:
            whole = at_home.everywhere(values, own_and_row[0])
        densities = calls.log_densities(whole, one(row))
        return {name: densities[name] for name in in_likelihood}

    def observed(rows: Values) -> Values:
        return {
            name: np.asarray(site["value"])
            for name, site in calls.observed(starts, rows, in_likelihood).items()
        }

    def simulate(values: Values, row: Values, key: Any) -> Values:
        sites = calls.observed(values, one(row), in_likelihood)
        keys = jax.random.split(key, max(1, len(sites)))
        return {
            name: jax.numpy.broadcast_to(site["fn"].sample(own), site["value"].shape)[0]
            for (name, site), own in zip(sites.items(), keys, strict=False)
        }

    likelihood = Likelihood(each, observed, simulate)
    if at_home is not None:
        travelling = {name: each for name, each in parameters.items() if name not in home}
        if not travelling:
            raise InvalidSetting(
                f"all latent sites are in the plate {local!r}, and stay at home: there is nothing"
                " that devices have in common"
            )
        others["local"] = LocalParameters(at_home.declared, at_home.log_prior, local_steps)
        parameters = travelling
    return LogDensityModel(log_prior, likelihood, data, parameters, **others)


def _of_whole_devices(
    calls: _Calls,
    free: Sequence[str],
    blank: Values,
    data: OnDevices,
    parameters: Mapping[str, Parameter],
    others: Mapping[str, Any],
) -> LogDensityModel:
    """The federated model of a NumPyro model of one device. The sites in ``free`` are the prior,
    evaluated with the arrays ``blank``; all others are the likelihood of a device's arrays."""

    def log_prior(values: Values) -> Any:
        each = calls.log_densities(values, blank)
        return sum(each[name] for name in free)

    def log_likelihood(values: Values, device: Values) -> Any:
        # Sites of the likelihood are not listed by name, because a Python loop over the rows of a
        # longer series has more of them.
        each = calls.log_densities(values, device)
        return sum(value for name, value in each.items() if name not in free)

    return LogDensityModel(
        log_prior, log_likelihood, data, parameters, likelihood_of="device", **others
    )


class _Calls:
    """Calls a NumPyro model with the arrays of some examples and with the ``fixed`` arguments, and
    reads log densities and values off its sites. Messages call rows of arrays ``called``."""

    def __init__(
        self,
        jax: Any,
        numpyro: Any,
        model: NumpyroModel,
        fixed: dict[str, Any],
        called: str = "examples",
    ) -> None:
        self._jax, self._numpyro, self._model, self._fixed = jax, numpyro, model, fixed
        self.called = called

    def _arguments(self, rows: Values) -> dict[str, Any]:
        """All arguments of a call of the model, by name: the fixed ones and the arrays in ``rows``,
        with NumPy's arrays converted to JAX's."""
        jax = self._jax

        def traceable(value: Any) -> Any:
            if not isinstance(value, np.ndarray):
                return value
            # In the precision that JAX uses at this moment: engines compute in single or in double
            # precision.
            return jax.numpy.asarray(value.astype(jax.dtypes.canonicalize_dtype(value.dtype)))

        return {name: traceable(value) for name, value in {**self._fixed, **rows}.items()}

    def log_densities(self, values: Values, rows: Values) -> dict[str, Any]:
        """Log density of every site, by name, summed over the site's entries; the latent sites have
        the ``values``, and ``rows`` are the arrays of the examples."""
        each = self.entry_densities(values, rows)
        return {name: self._jax.numpy.sum(entries) for name, entries in each.items()}

    def entry_densities(self, values: Values, rows: Values) -> dict[str, Any]:
        """Log densities of the entries of every site, by name, each an array of the site's batch
        shape; the latent sites have the ``values``, and ``rows`` are the arrays of the examples."""
        # Converted, because NumPy's arrays cannot be indexed with values that JAX traces.
        values = self._jax.tree.map(self._jax.numpy.asarray, dict(values))
        handlers = self._numpyro.handlers
        traced = handlers.trace(handlers.substitute(self._model, data=values))
        # Validation is off, because a row of zeros may be invalid for an observed site's law, such
        # as a scale of 0. The laws of latent sites do not see it.
        with self._numpyro.validation_enabled(is_validate=False):
            sites = traced.get_trace(**self._arguments(rows))
            return {
                name: self._log_density(site)
                for name, site in sites.items()
                if site["type"] == "sample"
            }

    def observed(self, values: Values, rows: Values, names: Sequence[str]) -> dict[str, Site]:
        """The observed sites among ``names`` that have a value for each row, by name, where the
        latent sites have the ``values``. Sites of ``numpyro.factor``, which have no value, are left
        out."""
        values = self._jax.tree.map(self._jax.numpy.asarray, dict(values))
        handlers = self._numpyro.handlers
        traced = handlers.trace(handlers.substitute(self._model, data=values))
        count = len(next(iter(rows.values())))
        with self._numpyro.validation_enabled(is_validate=False):
            sites = traced.get_trace(**self._arguments(rows))
        return {
            name: sites[name]
            for name in names
            if not isinstance(sites[name]["fn"], self._numpyro.distributions.Unit)
            and self._jax.numpy.shape(sites[name]["value"])[:1] == (count,)
        }

    def _log_density(self, site: Site) -> Any:
        """Log densities of the entries of one site at its value, times the scale that a handler of
        NumPyro may have set for the site."""
        beside = (site["intermediates"],) if site["intermediates"] else ()
        each = site["fn"].log_prob(site["value"], *beside)
        scale = 1.0 if site["scale"] is None else site["scale"]
        return scale * each

    def accepts(self, rows: Values) -> bool:
        """Whether the model can be called with the arrays ``rows``, as one for series of a fixed
        length cannot with arrays of another."""
        handlers = self._numpyro.handlers
        traced = handlers.trace(handlers.seed(self._model, 0))
        try:
            with self._numpyro.validation_enabled(is_validate=False):
                traced.get_trace(**self._arguments(rows))
        except Exception:  # a user's model may raise anything
            return False
        return True

    def sites(
        self, rows: Values, free_of: Callable[[str, Support, Site], Array]
    ) -> tuple[dict[str, Site], dict[str, Site]]:
        """All sites of a call with the arrays ``rows``, and the latent sites among them, each with
        its ``support``; both by name. The value of a latent site is made from the free numbers that
        ``free_of(name, support, site)`` returns."""
        latent: dict[str, Site] = {}
        jax = self._jax

        def substitute(site: Site) -> Any:
            if site["type"] != "sample" or site["is_observed"]:
                return None
            support, name = _support_of(site), site["name"]
            # Inside of a loop JAX computes nothing: it traces.
            if isinstance(jax.numpy.add(0.0, 0.0), jax.core.Tracer):
                raise InvalidSetting(
                    f"the latent site {name!r} is in a loop over rows, such as scan: it would have"
                    " a value for each of them. Integrate it out, as a Kalman filter does, or sum"
                    " it out"
                )
            try:
                support.free_shape(tuple(site["fn"].shape()))
            except InvalidSetting as error:
                raise InvalidSetting(f"{name!r}: {error}") from None
            value = support.constrain(np.asarray(free_of(name, support, site), np.float64))
            latent[name] = {**site, "support": support, "value": value}
            return value

        handlers = self._numpyro.handlers
        traced = handlers.trace(
            handlers.substitute(handlers.seed(self._model, 0), substitute_fn=substitute)
        )
        try:
            with self._numpyro.validation_enabled(is_validate=False):
                sites = traced.get_trace(**self._arguments(rows))
        except InvalidSetting:
            raise
        except Exception as error:  # a user's model may raise anything
            # A common mistake is a data frame with columns that the model does not use. Python's
            # message about the unexpected argument does not say where it comes from, so the cure is
            # added.
            cure = (
                "; it is called with every array of the data: leave out the others, as from_frames"
                " does with arrays=[...]"
            )
            unknown = isinstance(error, TypeError) and "unexpected keyword" in str(error)
            raise InvalidSetting(
                f"the NumPyro model failed for {len(next(iter(rows.values())))} {self.called} with"
                f" the arguments {', '.join([*rows, *self._fixed])}: {type(error).__name__}:"
                f" {error}{cure * unknown}"
            ) from error
        return sites, latent


class AtHome:
    """The latent sites in a plate over devices, of which every device has its own entry.

    A device does not know the entries of other devices, so the model is called with the device's
    own entry copied to all entries of the plate. The result is right if, given the other sites, all
    entries of the plate have the same law, and rows use the entry of their own device alone:
    :meth:`check` tests both. By name of a site, ``axes`` has the axis of the plate in it,
    ``declared`` the parameter of one device, and ``start`` that parameter's start.
    """

    def __init__(
        self,
        calls: _Calls,
        jax: Any,
        plate: str,
        size: int,
        axes: dict[str, int],
        declared: dict[str, Parameter],
    ) -> None:
        self._calls, self._jax, self._plate, self._size = calls, jax, plate, size
        self.axes, self.declared = axes, declared
        self.start = {name: np.asarray(each.start, np.float64) for name, each in declared.items()}
        self._blank: Values = {}

    @classmethod
    def of(
        cls,
        calls: _Calls,
        jax: Any,
        plate: str,
        latent: Mapping[str, Site],
        parameters: Mapping[str, Parameter],
        num_devices: int,
    ) -> AtHome:
        """Find the latent sites in the plate named ``plate``. Raises ``InvalidSetting`` if there
        are none, or if the plate does not have one entry for each of ``num_devices`` devices."""
        axes: dict[str, int] = {}
        declared: dict[str, Parameter] = {}
        for name, site in latent.items():
            frames = [each for each in site["cond_indep_stack"] if each.name == plate]
            if not frames:
                continue
            if frames[0].size != num_devices:
                raise InvalidSetting(
                    f"the plate {plate!r}, whose sites stay at home, must have one entry for each"
                    f" of {num_devices} devices, got {frames[0].size}"
                )
            axis = len(site["fn"].batch_shape) + frames[0].dim
            axes[name], given = axis, parameters[name]
            named = list(given.axes.items())
            declared[name] = Parameter(
                np.take(np.asarray(given.start, np.float64), 0, axis),
                given.support,
                dict(named[:axis] + named[axis + 1 :]),
            )
        if not axes:
            raise InvalidSetting(
                f"local names a plate over devices, and no latent site is in one of the name"
                f" {plate!r}"
            )
        return cls(calls, jax, plate, num_devices, axes, declared)

    def everywhere(self, values: Values, own: Values) -> Values:
        """Values of all latent sites: ``values`` for the sites outside of the plate, and one
        device's values, ``own``, copied to every entry for the sites in it."""
        numpy = self._jax.numpy
        spread = {
            name: numpy.repeat(numpy.expand_dims(numpy.asarray(own[name]), axis), self._size, axis)
            for name, axis in self.axes.items()
        }
        return {**values, **spread}

    def log_prior(self, values: Values, own: Values) -> Any:
        """Log density of one device's parameters, with values ``own``, given the ``values`` of the
        other sites; a number."""
        each = self._calls.entry_densities(self.everywhere(values, own), self._blank)
        # All entries of the plate have the same value and law: the density of the first is enough,
        # and compiled code leaves out the rest.
        return sum(
            self._jax.numpy.take(each[name], 0, axis).sum() for name, axis in self.axes.items()
        )

    def check(
        self,
        points: Sequence[Values],
        blank: Values,
        data: OnDevices,
        in_likelihood: Sequence[str],
    ) -> None:
        """Raise ``InvalidSetting`` unless the plate's entries have the same law, no other prior
        depends on them, and a row uses the entry of its own device alone."""
        self._blank, numpy = blank, self._jax.numpy
        for point in points:
            own = {name: np.take(point[name], 0, axis) for name, axis in self.axes.items()}
            alike = self._calls.entry_densities(self.everywhere(point, own), blank)
            for name, axis in self.axes.items():
                each = np.moveaxis(np.asarray(alike[name], np.float64), axis, 0)
                if not np.allclose(each, each[:1], rtol=_TOLERANCE):
                    raise InvalidSetting(
                        f"the entries of {name!r} in the plate {self._plate!r} have different laws:"
                        " a device knows only its own; put what differs, such as a covariate of"
                        " the device, into the arrays of its rows, and write the site as a"
                        " deviation"
                    )
            whole = self._calls.log_densities(point, blank)
            same = self._calls.log_densities(self.everywhere(point, own), blank)
            for name in whole:
                if name in self.axes or name in in_likelihood:
                    continue
                if not _equal(float(whole[name]), float(same[name]), np.asarray(whole[name])):
                    raise InvalidSetting(
                        f"the site {name!r} depends on sites of the plate {self._plate!r}, which"
                        " stay at home: it would need those of all devices"
                    )
        point = points[0]
        fixed = {name: value for name, value in point.items() if name not in self.axes}

        def uses(row: Values) -> Any:
            """Whether the likelihood of one row depends on each entry of the plate, (entry): True
            where its derivative is not 0."""

            def of(own: Values) -> Any:
                one = {name: each[None] for name, each in row.items()}
                each = self._calls.log_densities({**fixed, **own}, one)
                return sum(each[name] for name in in_likelihood)

            slopes = self._jax.grad(of)({name: point[name] for name in self.axes})
            found = numpy.zeros(self._size, bool)
            for name, axis in self.axes.items():
                by_entry = numpy.moveaxis(slopes[name], axis, 0).reshape(self._size, -1)
                found = found | (by_entry != 0).any(axis=1)
            return found

        # Evenly chosen rows of every device, because all may be too many; one compiled call tests
        # them.
        ends, most = np.cumsum(data.device_sizes), 1 + _MOST_ROWS // data.num_devices
        chosen = [
            np.unique(np.linspace(end - size, end - 1, min(size, most)).astype(np.intp))
            for end, size in zip(ends, data.device_sizes, strict=True)
        ]
        index = np.concatenate(chosen)
        some = {name: values[index] for name, values in data.rows().items()}
        used = np.asarray(self._jax.jit(self._jax.vmap(uses))(some))
        homes: dict[int, int] = {}
        by_device = np.split(used, np.cumsum([len(each) for each in chosen])[:-1])
        for device, each in enumerate(by_device):
            entries = np.flatnonzero(each.any(axis=0))
            if len(entries) > 1 or (len(entries) and int(entries[0]) in homes):
                also = "" if len(entries) > 1 else f", and so do those of {homes[int(entries[0])]}"
                raise InvalidSetting(
                    f"rows of device {device} (from 0) use the entries {entries.tolist()} of the"
                    f" plate {self._plate!r}{also}: each device has one entry of its own"
                )
            if len(entries):
                homes[int(entries[0])] = device


def _latent_sites(
    calls: _Calls, jax: Any, blank: Values, others: Sequence[Values]
) -> dict[str, Site]:
    """The latent sites by name, with their support, and with the median of their prior as value.
    They must be the same for the arrays ``blank`` and for all ``others``, which have other lengths.
    Raises ``InvalidSetting`` for what cannot be a parameter of a federated model."""

    def median(name: str, support: Support, site: Site) -> Array:
        # The median is taken of free numbers, because the median of simplices, entry by entry, does
        # not add up to 1.
        shape = tuple(site["fn"].shape())
        try:
            drawn = site["fn"].sample(jax.random.PRNGKey(0), (_NUM_DRAWS,))
        except NotImplementedError:  # an improper law has no draws
            return np.zeros(support.free_shape(shape))
        return np.asarray(np.median(support.free(np.asarray(drawn, np.float64)), axis=0))

    sites, latent = calls.sites(blank, median)
    for name, site in sites.items():
        if site["type"] == "plate":
            size, subsample = site["args"]
            if subsample is not None and subsample != size:
                raise InvalidSetting(
                    f"the plate {name!r} takes {subsample} of {size} examples: devices use all of"
                    " theirs, so leave out subsample_size"
                )
        elif site["type"] not in ("sample", "deterministic"):
            raise InvalidSetting(
                f"the site {name!r} is of the type {site['type']!r}, which a federated model cannot"
                " have: only sample, deterministic and plate"
            )
    if not latent:
        raise InvalidSetting("the NumPyro model has no latent site: there is nothing to sample")
    rng = np.random.default_rng(1)
    for rows in others:
        _, again = calls.sites(
            rows, lambda name, support, site: rng.standard_normal(
                support.free_shape(tuple(site["fn"].shape()))
            )
        )  # fmt: skip
        _check_same(latent, again, calls.called)
    return latent


def _check_same(latent: Mapping[str, Site], again: Mapping[str, Site], called: str) -> None:
    """Raise ``InvalidSetting`` unless two calls of a model with different data, and different
    values of its sites, have the same latent sites; ``called`` says what rows of arrays are."""
    each = {"rows": "row of a device"}.get(called, "example")
    for name in {**latent, **again}:
        if name not in latent or name not in again:
            raise InvalidSetting(
                f"whether there is a site {name!r} depends on the data or on other sites: a model"
                " must have the same sites always"
            )
        if latent[name]["value"].shape != again[name]["value"].shape:
            raise InvalidSetting(
                f"the latent site {name!r} has one value for each {each}, as its shape goes with"
                f" their number: it would be a parameter of every {each}. Integrate it out, put it"
                " into a plate whose size is an argument in fixed, or add the array that it"
                " observes to the data"
            )
        if latent[name]["support"] != again[name]["support"]:
            raise InvalidSetting(
                f"the support of {name!r} depends on other sites or on the data: write it as a"
                " function of a site whose support is fixed"
            )


def _tried(calls: _Calls, data: OnDevices) -> list[dict[str, Array]]:
    """Arrays, by name, with which it is tested what of a model of one device depends on the data:
    those of the smallest and of the largest device; the latter with numbers larger by one and two
    in turn, so that they are no constant; and the same rows twice, unless the model takes series of
    one length only."""
    sizes = np.array(data.device_sizes)
    smallest = int(np.where(sizes > 0, sizes, sizes.max()).argmin())
    small, large = (data.of_device(device).rows() for device in (smallest, int(sizes.argmax())))
    changed = {
        name: values + (1 + np.arange(len(values)) % 2).reshape(-1, *[1] * (values.ndim - 1))
        for name, values in large.items()
    }
    twice = {name: np.concatenate([values, values]) for name, values in large.items()}
    return [small, large, changed, *([twice] if calls.accepts(twice) else [])]


def _free_of_data(
    calls: _Calls,
    jax: Any,
    points: Sequence[Values],
    blank: Values,
    tried: Sequence[Values],
    latent: set[str],
) -> list[str]:
    """Names of the sites whose log density is the same whatever the data of a device are: the
    latent sites, and observed ones that depend on parameters alone. Raises ``InvalidSetting`` for a
    latent site whose density the data change, for an observed site without a finite density, or if
    no site depends on the data."""
    try:
        compiled = jax.jit(calls.log_densities)
        empty, *found = (
            [_as_floats(compiled(point, dict(rows))) for point in points]
            for rows in (blank, *tried)
        )
    except Exception as error:  # a user's model may raise anything
        raise InvalidSetting(
            "the NumPyro model cannot be compiled for the data of a device, as where its Python"
            f" code branches on values of the data: {type(error).__name__}: {error}"
        ) from error
    free = []
    # The smallest and the largest device, of which a loop over rows may give sites of other names.
    for name in {**empty[0], **found[0][0], **found[1][0]}:
        everywhere = [[at.get(name, np.nan) for at in each] for each in (empty, *found)]
        reference = np.array(everywhere[0])
        same = all(
            np.allclose(np.array(each), reference, rtol=_TOLERANCE, atol=0.0, equal_nan=True)
            for each in everywhere[1:]
        ) and all(name in each[0] for each in (empty, *found))
        if same:
            free.append(name)
        elif name in latent:
            raise InvalidSetting(
                f"the prior of the latent site {name!r} depends on the data of a device: it must be"
                " the same for all of them. Compute what it needs beforehand from public knowledge,"
                " and give it in fixed"
            )
        own = np.array([at[name] for each in found[:2] for at in each if name in at])
        if not np.isfinite(own).any():
            raise InvalidSetting(
                f"the log density of the site {name!r} is infinite or no number near the start:"
                " give another start"
            )
    if len(free) == len({**empty[0], **found[0][0], **found[1][0]}):
        raise InvalidSetting(
            "the NumPyro model observes nothing: no site has obs= from the arrays"
            f" {', '.join(blank)}"
        )
    return free


def _as_floats(values: Values) -> dict[str, float]:
    """Numbers by name, as Python's."""
    return {name: float(each) for name, each in values.items()}


def _observed_by_example(
    calls: _Calls,
    jax: Any,
    points: Sequence[Values],
    blank: Values,
    rows: Values,
    latent: set[str],
) -> list[str]:
    """Names of the observed sites whose log density is a sum over examples. The log density of
    every other site must be the same whatever the examples are. Raises ``InvalidSetting`` for a
    site that is neither, or if no site is such a sum."""

    def at_one_point(values: Values, rows: Values) -> tuple[Any, Any, Any]:
        def one(row: Values) -> dict[str, Any]:
            return calls.log_densities(values, {name: each[None] for name, each in row.items()})

        whole, empty = (calls.log_densities(values, each) for each in (rows, blank))
        return jax.vmap(one)(rows), whole, empty

    try:
        compiled = jax.jit(at_one_point)
        tested = [compiled(point, dict(rows)) for point in points]
    except Exception as error:  # a user's model may raise anything
        raise InvalidSetting(
            "the NumPyro model cannot be evaluated for one example at a time, as where its Python"
            f" code branches on values of the data: {type(error).__name__}: {error}"
        ) from error
    summed = []
    for name in tested[0][1]:
        parts = [
            (np.asarray(each[name], np.float64), float(whole[name]), float(empty[name]))
            for each, whole, empty in tested
        ]
        usable = [part for part in parts if np.isfinite(part[0]).all() and np.isfinite(part[1])]
        if not usable:
            raise InvalidSetting(
                f"the log density of the site {name!r} is infinite or no number near the start:"
                " give another start"
            )
        if name not in latent and all(_equal(each.sum(), whole, each) for each, whole, _ in usable):
            summed.append(name)
        elif not all(_equal(np.append(each, empty), whole, each) for each, whole, empty in usable):
            what = "the observed site {} is no sum over examples"
            if name in latent:
                what = "the prior of the latent site {} depends on the examples"
            raise InvalidSetting(
                f"{what.format(repr(name))}: each must enter by its own row alone, in a plate whose"
                " size follows from the arrays, as numpyro.plate('examples', len(y)). Compute what"
                " all rows share, such as a mean, beforehand from public knowledge"
            )
    if not summed:
        raise InvalidSetting(
            "the NumPyro model observes nothing: no site has obs= from the arrays"
            f" {', '.join(rows)}"
        )
    return summed


def _equal(left: Any, right: Any, parts: Array) -> bool:
    """Whether the numbers ``left`` and ``right`` differ by no more than rounding may change a sum
    of the ``parts``."""
    size = np.abs(parts).sum() + np.abs(right)
    return bool((np.abs(left - right) <= _TOLERANCE * size).all())


def _some(rows: Values) -> dict[str, Array]:
    """At most a thousand evenly chosen rows, as arrays by name. A single row is doubled: with one
    row, a sum over rows cannot be told from a constant."""
    count = len(next(iter(rows.values())))
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ROWS)).astype(np.intp))
    chosen = np.repeat(chosen, 2) if count == 1 else chosen
    return {name: values[chosen] for name, values in rows.items()}


def _support_of(site: Site) -> Support:
    """The support of a latent site. Raises ``InvalidSetting``, with its name, for a discrete site
    and for a support that flmc does not have."""
    from numpyro.distributions import constraints as known

    name, given = site["name"], site["fn"].support
    if given is not None and given.is_discrete:
        raise InvalidSetting(
            f"the latent site {name!r} is discrete: sum it out, for instance with"
            " numpyro.distributions.MixtureSameFamily"
        )
    # NumPyro wraps the constraint of independent entries; ``base_constraint`` is that of one entry.
    given = getattr(given, "base_constraint", given)
    ready = {
        type(known.real): supports.real,
        type(known.simplex): supports.simplex,
        type(known.ordered_vector): supports.ordered,
        type(known.positive_definite): supports.positive_definite,
        type(known.lower_cholesky): supports.cholesky,
        type(known.scaled_unit_lower_cholesky): supports.cholesky,
        type(known.softplus_lower_cholesky): supports.cholesky,
        type(known.corr_matrix): supports.correlation,
        type(known.corr_cholesky): supports.correlation_cholesky,
    }
    bounded = (
        known.positive,
        known.nonnegative,
        known.softplus_positive,
        known.unit_interval,
        known.interval(0.0, 1.0),
        known.greater_than(0.0),
        known.greater_than_eq(0.0),
        known.less_than(0.0),
    )
    if type(given) in ready:
        return ready[type(given)]
    if type(given) in map(type, bounded):
        low, high = getattr(given, "lower_bound", None), getattr(given, "upper_bound", None)
        return Interval(_bound(name, low, -np.inf), _bound(name, high, np.inf))
    raise InvalidSetting(
        f"the support of {name!r} is {given}, which flmc does not have: write it as a function of"
        " sites whose supports are in flmc.supports"
    )


def _bound(name: str, bound: Any, otherwise: float) -> float:
    """The lower or upper ``bound`` of the site ``name`` as a number, or ``otherwise`` if it is
    None. Raises ``InvalidSetting`` if its entries have different bounds."""
    values = np.unique(np.asarray(otherwise if bound is None else bound, np.float64))
    if len(values) != 1:
        raise InvalidSetting(
            f"the entries of {name!r} have different bounds, {values.tolist()}: make sites of them"
        )
    return float(values[0])


def _axes(
    site: Site,
    dims: Mapping[str, Sequence[str]],
    coords: Mapping[str, Sequence[Any]],
    labels: Mapping[str, Sequence[str]],
) -> dict[str, Sequence[Any]]:
    """Labels of the axes of a latent site, by name of the axis. The names are those in ``dims``,
    else of the site's plates; without either the result is empty. The labels are those in
    ``coords``, else the data's ``labels`` if there are as many as entries, else numbers from 0."""
    name, shape = site["name"], tuple(site["fn"].shape())
    if name in dims:
        names = list(dims[name])
        if len(names) != len(shape):
            raise InvalidSetting(f"dims of {name!r} must name {len(shape)} axes, got {names}")
    else:
        plates = {
            len(site["fn"].batch_shape) + frame.dim: frame.name
            for frame in site["cond_indep_stack"]
        }
        if not plates:
            return {}
        names = [plates.get(axis, f"{name}_dim_{axis}") for axis in range(len(shape))]
    return {
        axis: coords.get(axis, labels[axis] if len(labels.get(axis, ())) == n else range(n))
        for axis, n in zip(names, shape, strict=True)
    }


def _require_numpyro() -> Any:
    """The module numpyro; raises ``MissingExtra``, with how to install it, if it is missing."""
    try:
        import numpyro
    except ImportError as error:
        raise MissingExtra("a NumPyro model needs it: pip install 'flmc[numpyro]'") from error
    return numpyro
