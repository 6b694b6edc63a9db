"""Data frames of pandas and polars: what becomes of columns, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData, from_arrays, from_frames, read

pandas = pytest.importorskip("pandas", reason="needs pandas")

WARDS = ["eyes", "heart", "bones"]
COLUMNS: dict[str, list[Any]] = {
    "hospital": ["north", "south", "north", "west", "south"],
    "ward": ["eyes", "heart", "heart", "bones", "eyes"],
    "age": [60.0, 40.0, 50.0, 70.0, 30.0],
    "visits": [3, 1, 2, 5, 4],
    "smoker": [True, False, False, True, True],
    "stay": [3.5, 1.5, 2.5, 0.5, 4.5],
}


def polars_frame(columns: dict[str, Any]) -> Any:
    polars = pytest.importorskip("polars", reason="needs polars")
    return polars.DataFrame(columns)


MAKERS = pytest.mark.parametrize("frame_of", [pandas.DataFrame, polars_frame])


@MAKERS
def test_one_frame_with_a_device_column(frame_of: Callable[[dict[str, Any]], Any]) -> None:
    data = from_frames(
        frame_of(COLUMNS),
        device_column="hospital",
        arrays={"x": ["age", "ward", "smoker"], "group": "ward", "n": "visits", "y": "stay"},
        categories={"ward": WARDS},
        standardise={"age": (50.0, 10.0)},
    )
    assert (data.device_names, data.device_sizes) == (("north", "south", "west"), (2, 2, 1))
    rows = data.rows()
    assert list(rows) == ["x", "group", "n", "y"]
    # Device order; words beside other columns are zeros and ones, alone they are numbers.
    assert rows["x"].tolist() == [
        [1.0, 0.0, 0.0, 1.0],
        [0.0, 1.0, 0.0, 0.0],
        [-1.0, 1.0, 0.0, 0.0],
        [-2.0, 0.0, 0.0, 1.0],
        [2.0, 0.0, 1.0, 1.0],
    ]
    assert rows["group"].tolist() == [0, 1, 1, 0, 2]
    assert rows["n"].tolist() == [3, 2, 1, 4, 5]
    assert [rows[name].dtype.kind for name in rows] == ["f", "i", "i", "f"]
    assert data.labels["group"] == tuple(WARDS)
    assert data.labels["x"] == ("age", "ward=heart", "ward=bones", "smoker")
    assert (data.dropped, data.findings, data.data_dependent) == ((), (), False)
    own = data.of_device(1)
    assert own.rows()["y"].tolist() == [1.5, 4.5]
    assert own.labels == data.labels


@MAKERS
def test_a_frame_for_each_device(frame_of: Callable[[dict[str, Any]], Any]) -> None:
    north, south = ({"a": [1, 2], "b": [0.5, 1.5]}, {"b": [2.5], "a": [3]})
    frames = {"north": frame_of(north), "south": frame_of(south)}
    data = from_frames(frames)
    assert (data.device_names, data.device_sizes) == (("north", "south"), (2, 1))
    assert data.rows()["a"].tolist() == [1, 2, 3]
    assert from_frames(list(frames.values())).device_names == ("0", "1")
    assert list(from_frames(frames, arrays=["b"]).rows()) == ["b"]
    # The same by the way of arrays, which takes frames, too.
    np.testing.assert_array_equal(from_arrays(frames).rows()["b"], data.rows()["b"])


@MAKERS
def test_cells_that_are_arrays_are_stacked(frame_of: Callable[[dict[str, Any]], Any]) -> None:
    images = [np.full(3, float(i)) for i in range(4)]
    data = from_frames(frame_of({"who": list("abab"), "image": images}), device_column="who")
    assert data.rows()["image"].tolist() == [[0.0] * 3, [2.0] * 3, [1.0] * 3, [3.0] * 3]


@MAKERS
@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("age", [60.0, None, 50.0, 70.0, None]),
        ("age", [60.0, float("nan"), 50.0, 70.0, float("nan")]),
        ("visits", [3, None, 2, 5, None]),
        ("smoker", [True, None, False, True, None]),
        ("ward", ["eyes", None, "heart", "bones", None]),
    ],
)
def test_missing_values_are_refused_or_left_out(
    frame_of: Callable[[dict[str, Any]], Any], column: str, values: list[Any]
) -> None:
    frame = frame_of({**COLUMNS, column: values})
    how: dict[str, Any] = {"device_column": "hospital", "categories": {"ward": WARDS}}
    where = (
        rf"column '{column}' of the data frame must be a \w+, and is missing in row 1 and 1 more"
    )
    with pytest.raises(InvalidSetting, match=where + r": leave such examples out \(missing='drop'"):
        from_frames(frame, **how)
    data = from_frames(frame, missing="drop", **how)
    # South has no complete example left: it takes part with none.
    assert data.device_sizes == (2, 0, 1)
    assert data.dropped == (0, 2, 0)
    assert data.rows()["stay"].tolist() == [3.5, 2.5, 0.5]
    (note,) = data.findings
    assert (note.code, note.severity) == ("missing-dropped", "note")
    assert "2 of 5 examples have missing values and were left out (2 of south)" in note.message
    # What is left of a column of whole numbers or truths is the same number.
    assert data.rows()["visits"].tolist() == [3, 2, 5]
    # Of columns that are not used nothing needs to be there.
    others = [name for name in COLUMNS if name not in (column, "hospital")]
    assert (
        from_frames(
            frame,
            arrays=others,
            **{**how, "categories": None if "ward" not in others else how["categories"]},
        ).num_samples
        == 5
    )


def test_features_and_a_target_from_frames() -> None:
    frame = pandas.DataFrame({**COLUMNS, "age": [60.0, 40.0, 50.0, 70.0, None]})
    data = read(
        frame,
        target="smoker",
        device_column="hospital",
        features=["age", "ward"],
        categories={"ward": WARDS},
        classes=["0", "1"],
        standardise={"age": (50.0, 10.0)},
        missing="drop",
    )
    assert isinstance(data, FederatedData)
    assert data.feature_names == ("age", "ward=heart", "ward=bones")
    assert data.features[:, 0].tolist() == [1.0, 0.0, -1.0, 2.0]
    assert data.targets.tolist() == [1.0, -1.0, -1.0, 1.0]
    assert (data.device_sizes, data.dropped) == ((2, 1, 1), (0, 1, 0))
    assert data.num_given == 5
    assert "left out" in str(data)
    two = read({"n": frame.iloc[:2], "s": frame.iloc[2:4]}, target="stay", features=["age"])
    assert two.device_names == ("n", "s")


@pytest.mark.parametrize(
    ("columns", "arguments", "message"),
    [
        ({"a": ["x", "y"]}, {}, r"column 'a' of the data frame holds words \('x', 'y'\): give its"),
        ({"a": ["x", "y"]}, {"categories": {"a": ["x", "z"]}}, r"has 'y' in row 1, which is not"),
        ({"a": [1.0, np.inf]}, {}, r"column 'a' of the data frame must be a number, and is 'inf'"),
        ({"a": [1.0, np.inf]}, {"missing": "drop"}, r"must be a number, and is 'inf' in row 1"),
        ({"a": [1.0, None]}, {"missing": "mean"}, "missing must be one of refuse, drop"),
        ({"a": [1.0]}, {"device_column": "d"}, "the data frame has no column 'd'; it has a"),
        ({"a": [1.0]}, {"arrays": {"x": "b"}}, "the data frame has no column 'b'; it has a"),
        ({"a": [1.0]}, {"arrays": {"x": ["a", "b"]}}, "has no column 'b'"),
        ({"a": [1.0]}, {"arrays": "a"}, "arrays must be a mapping or a list of names"),
        ({"a": [1.0]}, {"arrays": {}}, "a mapping or a list of names, one at least"),
        (
            {"a": [1.0]},
            {"standardise": {"b": (0, 1)}},
            "'b', which is no column in use: they are a",
        ),
        ({"a": [1.0]}, {"standardise": {"a": (0, 0)}}, "the scale of 'a' must be positive"),
        ({"a": [1.0]}, {"standardise": "data"}, "from public knowledge, got 'data'"),
        ({"a": [1.0]}, {"categories": {"b": ["x", "y"]}}, "'b', which is no feature"),
        ({"a": [None]}, {"missing": "drop"}, "at least 1 example without a missing value"),
        ({"a": [[1.0], [1.0, 2.0]]}, {}, "must hold numbers, words, or arrays of one shape"),
        ({"a": ["x", 1.0]}, {}, "must hold numbers, words, or arrays"),
        (
            {"a": [1.0, 2.0], "d": ["n", None]},
            {"device_column": "d", "missing": "drop"},
            "column 'd' of the data frame must be a word, and is missing in row 1",
        ),
    ],
)
def test_what_is_refused(columns: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        from_frames(pandas.DataFrame(columns), **arguments)


def test_other_frames_are_refused() -> None:
    days = pandas.DataFrame({"a": pandas.to_datetime(["2026-01-01", "2026-01-02"])})
    with pytest.raises(InvalidSetting, match=r"column 'a' .* got datetime64"):
        from_frames(days)
    twice = pandas.DataFrame([[1.0, 2.0]], columns=["a", "a"])
    with pytest.raises(InvalidSetting, match="names a column twice: a, a"):
        from_frames(twice)
    with pytest.raises(InvalidSetting, match="data of north must be a data frame, got dict"):
        from_frames({"north": {"a": [1.0]}})
    with pytest.raises(InvalidSetting, match="at least 1 data frame"):
        from_frames([])
    with pytest.raises(InvalidSetting, match="one data frame of all devices is for"):
        from_arrays(pandas.DataFrame({"a": [1.0]}))


def test_words_of_pandas_categories_need_a_public_vocabulary() -> None:
    frame = pandas.DataFrame({"a": pandas.Categorical(["x", "y"])})
    with pytest.raises(InvalidSetting, match="give its vocabulary"):
        from_frames(frame)
    assert from_frames(frame, categories={"a": ["y", "x"]}).rows()["a"].tolist() == [1, 0]


def test_large_numbers_of_devices_stay_apart() -> None:
    # Six digits would make one device of these.
    frame = pandas.DataFrame({"id": [12345671, 12345672], "y": [1.0, 2.0]})
    assert from_frames(frame, device_column="id").device_names == ("12345671", "12345672")


def test_examples_are_dealt_anew() -> None:
    data = from_frames(
        pandas.DataFrame(COLUMNS), categories={"ward": WARDS}, arrays=["ward", "stay"]
    )
    dealt = data.split(2, "label", by="ward")
    assert dealt.rows()["ward"].tolist() == [0, 0, 1, 1, 2]
    assert dealt.device_sizes == (3, 2)
    # Rows stay whole.
    pairs = set(zip(*(data.rows()[name].tolist() for name in ("ward", "stay")), strict=True))
    assert pairs == set(
        zip(*(dealt.rows()[name].tolist() for name in ("ward", "stay")), strict=True)
    )
    assert data.split(5).device_names == tuple("01234")
    for how, by, message in (
        ("label", None, "by must name an array, one of ward, stay"),
        ("label", "age", "must name an array with one number for each example, got 'age'"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            data.split(2, how, by=by)


def test_missing_numbers_of_arrays() -> None:
    devices = {
        "n": {"y": [1.0, np.nan], "i": np.ones((2, 3))},
        "s": {"y": [2.0], "i": [[1, 2, np.nan]]},
    }
    with pytest.raises(InvalidSetting, match=r"'y' of device 'n' .* missing='drop' leaves 1 such"):
        from_arrays(devices)
    data = from_arrays(devices, missing="drop")
    assert (data.device_sizes, data.dropped) == ((1, 0), (1, 1))
    assert data.rows()["i"].tolist() == [[1.0, 1.0, 1.0]]
    with pytest.raises(InvalidSetting, match="leave it out"):
        from_arrays([{"y": [1.0, np.inf]}], missing="drop")


def test_no_library_of_frames_is_imported() -> None:
    code = "import flmc, sys; flmc.data.from_arrays([{'y': [1.0]}]); flmc.data.from_frames"
    code += "; sys.exit(any(name in sys.modules for name in ('pandas', 'polars')))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_number_of_complete_examples_is_not_taken_for_public() -> None:
    pytest.importorskip("jax")
    frame = pandas.DataFrame({"x": [0.5, None, 0.2, 0.1], "y": ["a", "b", "a", "b"]})
    data = read(frame, target="y", missing="drop").split(2)
    model = flmc.models.regressions.logistic(data, feature_norm=1.0)
    whole = flmc.models.regressions.logistic(
        FederatedData(np.full((4, 1), 0.5), np.array([1.0, -1, 1, -1]), (4,)), feature_norm=1.0
    )
    assert model.public
    assert model.smoothness == whole.smoothness


def test_printed_examples() -> None:
    frame = pandas.DataFrame({**COLUMNS, "age": [60.0, None, 50.0, 70.0, 30.0]})
    data = from_frames(
        frame,
        device_column="hospital",
        arrays={"x": ["age", "visits"], "y": "stay"},
        missing="drop",
    )
    lines = str(data).splitlines()
    assert lines[0] == "4 examples"
    assert lines[1].split() == ["device", "examples", "left", "out"]
    assert [line.split() for line in lines[3:6]] == [
        ["north", "2", "0"], ["south", "1", "1"], ["west", "1", "0"],
    ]  # fmt: skip
    assert lines[6] == "arrays: x (2,), y"
    assert lines[7].startswith("note: 1 of 5 examples")
    assert "array(" not in repr(data)


def test_a_device_in_the_index_is_found() -> None:
    frame = pandas.DataFrame(COLUMNS).set_index("hospital")
    with pytest.raises(
        InvalidSetting, match=r"no column 'hospital' \(it is in the index: use frame"
    ):
        from_frames(frame, device_column="hospital", arrays=["stay"])
    # Without a list of arrays it is looked for after the columns were read.
    with pytest.raises(InvalidSetting, match="no column 'hospital'"):
        from_frames(frame.drop(columns="ward"), device_column="hospital")
