"""Examples in memory: what is kept, and what is refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flmc.base.errors import InvalidSetting
from flmc.data import from_arrays
from flmc.models.differentiation import padded_rows

NORTH = {"image": np.arange(12.0).reshape(3, 2, 2), "ward": [2, 0, 1]}
SOUTH = {"ward": np.zeros(0, int), "image": np.zeros((0, 2, 2))}


def test_arrays_lie_in_device_order() -> None:
    data = from_arrays({"north": NORTH, "south": SOUTH, "west": NORTH})
    assert (data.num_devices, data.num_samples) == (3, 6)
    assert (data.device_sizes, data.device_names) == ((3, 0, 3), ("north", "south", "west"))
    rows = data.rows()
    assert list(rows) == ["image", "ward"]
    assert rows["ward"].tolist() == [2, 0, 1, 2, 0, 1]
    assert rows["ward"].dtype.kind == "i"
    own = data.of_device(2)
    assert (own.device_sizes, own.device_names) == ((3,), ("west",))
    np.testing.assert_array_equal(own.rows()["image"], NORTH["image"])
    padded = padded_rows(data)
    assert padded["rows"]["image"].shape == (3, 3, 2, 2)
    assert padded["counts"].tolist() == [[1, 1, 1], [0, 0, 0], [1, 1, 1]]


def test_a_data_frame_is_its_columns() -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.DataFrame({"dose": [0.5, 1.5], "cured": [True, False]})
    rows = from_arrays([frame]).rows()
    assert rows["cured"].tolist() == [1, 0]
    assert rows["dose"].tolist() == [0.5, 1.5]


@pytest.mark.parametrize(
    ("devices", "message"),
    [
        ([], "one array at least"),
        ([{}], "one array at least"),
        ([{"y": []}], "at least 1 example"),
        ([{"y": [1.0]}, {"z": [1.0]}], "device '1' must have the arrays y, got z"),
        ([{"y": [1.0], "x": [1.0, 2.0]}], "one row for each example"),
        ([{"y": [[1.0]]}, {"y": [1.0]}], "one example of 'y' must have the same shape"),
        ({"north": {"y": [1.0, np.nan]}}, r"'y' of device 'north' .* row 1 \(from 0\)"),
        ([{"y": ["a"]}], "must hold numbers"),
        ([{"y": 1.0}], "must hold numbers, a row for each example"),
    ],
)
def test_what_is_refused(devices: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        from_arrays(devices)
