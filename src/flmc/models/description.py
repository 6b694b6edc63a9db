"""A model in words: its parameters, with supports, sizes and labels, its devices and examples, and
what is known of its curvature."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flmc.base.tables import Listing, Row
from flmc.models.parameters import NamedParameter
from flmc.models.supports import Real

if TYPE_CHECKING:  # that module imports this one
    from flmc.models.model import Model

_MOST_PARAMETERS, _MOST_LABELS = 12, 6
"""Largest number of parameters that a printed model shows, and largest number of labels of an axis,
or names of devices, that one row shows."""


def listing_of(model: Model) -> Listing:
    """A model as a table for printing: a title, and rows for its parameters, the devices' own
    parameters, data, curvature, coordinates and the findings about its data."""
    layout, coordinates = model.layout, model.coordinates
    devices = "1 device" if model.num_devices == 1 else f"{model.num_devices} devices"
    entries = "1 entry" if model.dim == 1 else f"{model.dim} entries"
    title = f"{type(model).__name__}: theta has {entries}, on {devices}"
    rows = [] if layout is None else [_row_of(each) for each in layout.parameters]
    if len(rows) > _MOST_PARAMETERS:
        rest = Row("", f"and {len(rows) - _MOST_PARAMETERS} more parameters")
        rows = [*rows[:_MOST_PARAMETERS], rest]
    if model.num_local:
        one = model.num_local == 1
        free = "1 free entry" if one else f"{model.num_local} free entries"
        stay = f"on each device, which never {'leaves' if one else 'leave'} it"
        rows.append(Row("local parameters", f"{free} {stay}"))
    rows += _rows_of_data(model)
    if model.smoothness is not None:
        low = "" if model.convexity is None else f"{model.convexity:.4g} to "
        source = "public" if model.public else "not public: it was computed from the data"
        rows.append(Row("curvature", f"{low}{model.smoothness:.4g}, {source}"))
    if coordinates is not None:
        rows.append(Row("coordinates", "whitened: the sampler's are not those of theta"))
    return Listing(title, (*rows, *(each.row for each in model.data_findings)))


def _row_of(parameter: NamedParameter) -> Row:
    """The row of one parameter: its shape or axes with their labels, and its support."""
    shape = ", ".join(map(str, parameter.shape))
    text = f"({shape})" if shape else "a number"
    if parameter.axes:
        named = (f"{axis}: {_some(list(map(str, labels)))}" for axis, labels in parameter.axes)
        text += f" by {'; '.join(named)}"
    free = isinstance(parameter.support, Real)
    return Row(parameter.name, text if free else f"{text}, {parameter.support.words}")


def _rows_of_data(model: Model) -> list[Row]:
    """Rows of a printed model about its data: the number of examples of each device, and the names
    and shapes of the arrays of an example. Of a model without ``data`` only the total number, or no
    row."""
    data = getattr(model, "data", None)
    if data is None:
        count = model.num_examples
        return [] if count is None else [Row("examples", str(count))]
    names = getattr(data, "device_names", None) or map(str, range(data.num_devices))
    each = [f"{name} {size}" for name, size in zip(names, data.device_sizes, strict=True)]
    rows = [Row("examples", f"{data.num_samples}: {_some(each)}")]
    shapes = {name: values.shape[1:] for name, values in data.rows().items()}
    words = [f"{name} {shape}" if shape else name for name, shape in shapes.items()]
    return [*rows, Row("arrays", ", ".join(words))]


def _some(words: list[str]) -> str:
    """The first six of the ``words``, joined by commas, with the number of those left out, such as
    ``a, b and 4 more``."""
    left = len(words) - _MOST_LABELS
    return ", ".join(words[:_MOST_LABELS]) + (f" and {left} more" if left > 0 else "")
