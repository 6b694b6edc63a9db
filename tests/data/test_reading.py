"""Data from files: what is read, what is refused, and how it is dealt."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData, read
from support import full

NORTH = "age,sex,dose,cured\n30,f,1.5,no\n40,m,2.5,yes\n50,m,0.5,no\n"
SOUTH = "age,sex,dose,cured\n35,m,1.0,yes\n45,f,2.0,yes\n"
SEX = {"sex": ["f", "m"]}


@pytest.fixture
def hospitals(tmp_path: Path) -> Path:
    (tmp_path / "north.csv").write_text(NORTH)
    (tmp_path / "south.csv").write_text(SOUTH)
    return tmp_path


def test_one_file_a_device(hospitals: Path) -> None:
    data = read(str(hospitals / "*.csv"), target="cured", categories=SEX)
    assert data.feature_names == ("age", "sex=m", "dose")
    assert data.device_names == ("north", "south")
    assert data.device_sizes == (3, 2)
    assert data.classes == ("no", "yes")
    assert data.targets.tolist() == [-1, 1, -1, 1, 1]
    assert data.features[:, 1].tolist() == [0, 1, 1, 1, 0]
    assert not data.data_dependent
    assert "north" in str(data)
    # The same from a list of files, in the order of the list.
    turned = read(
        [hospitals / "south.csv", hospitals / "north.csv"], target="cured", categories=SEX
    )
    assert turned.device_names == ("south", "north")


def test_a_device_column(tmp_path: Path) -> None:
    path = tmp_path / "all.csv"
    path.write_text("where,x,y\nb,1,0.5\na,2,1.5\nb,3,2.5\n")
    data = read(path, target="y", device_column="where")
    assert data.device_names == ("b", "a")
    assert data.features.ravel().tolist() == [1, 3, 2]
    assert data.targets.tolist() == [0.5, 2.5, 1.5]
    assert data.classes == ()


def test_formats_agree(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((20, 3)), rng.integers(0, 2, 20)
    words = np.where(y > 0, "yes", "no")
    lines = [
        "a,b,c,y",
        *(",".join(map(repr, map(float, row))) + f",{w}" for row, w in zip(x, words, strict=True)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    columns = {name: x[:, i] for i, name in enumerate("abc")} | {"y": words.tolist()}
    parquet.write_table(pyarrow.table(columns), tmp_path / "t.parquet")
    np.savez(tmp_path / "t.npz", X=x, Y=words, names=np.array(["a", "b", "c"]))
    found = [read(tmp_path / f"t.{end}", target="y") for end in ("csv", "parquet", "npz")]
    for data in found:
        assert data.feature_names == ("a", "b", "c")
        np.testing.assert_array_equal(data.features, x)
        np.testing.assert_array_equal(data.targets, 2.0 * y - 1)
        assert data.classes == ("no", "yes")


def test_bundled_sets() -> None:
    cancer = read("sklearn:breast_cancer")
    assert cancer.features.shape == (569, 30)
    assert cancer.classes == ("benign", "malignant")
    digits = read("sklearn:digits")
    assert digits.classes == tuple("0123456789")
    assert set(digits.targets) == set(range(10))
    assert (digits.features.std(axis=0) > 0).all()
    diabetes = read("sklearn:diabetes")
    assert diabetes.classes == ()
    with pytest.raises(InvalidSetting, match="must be one of breast_cancer"):
        read("sklearn:boston")


def test_standardised(hospitals: Path) -> None:
    files = str(hospitals / "*.csv")
    public = read(files, target="cured", categories=SEX, standardise={"age": (40.0, 10.0)})
    assert public.features[:, 0].tolist() == [-1.0, 0.0, 1.0, -0.5, 0.5]
    assert not public.data_dependent
    own = read(files, target="cured", categories=SEX, standardise="data")
    np.testing.assert_allclose(own.features.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(own.features.std(axis=0), 1)
    assert own.data_dependent
    assert "simulation only" in str(own)


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("x,y\n1,2\n,3\n", {}, r"column 'x' of bad must be a number, and is missing in line 3"),
        ("x,y\n1,2\nNaN,3\n?,1\n", {}, r"is missing in line 3 and 1 more"),
        ("x,y\n1,2\n1e999,3\n", {}, r"must be a number, and is '1e999' in line 3"),
        ("x,y\n1,2\n2,3\n3,\n", {}, r"column 'y' of bad must be a number, and is missing in"),
        ("x,y\nred,2\nblue,3\n", {}, r"holds words \('blue', 'red'\): give its vocabulary"),
        (
            "x,y\nred,2\nblue,3\n",
            {"categories": {"x": ["red", "green"]}},
            r"column 'x' of bad has 'blue' in line 3, which is not in its vocabulary",
        ),
        ("x,y\n1,2\n1,3\n", {}, r"column 'x' is constant, 1 in all examples"),
        ("x,y\n", {}, r"bad has no examples: an empty device"),
        ("", {}, r"is empty: its first line must name the columns"),
        ("x,x,y\n1,2,3\n", {}, r"names a column twice"),
        ("x,y\n1,2,3\n", {}, r"line 2 of .* has 3 values, and there are 2 columns"),
        ("x,z\n1,2\n", {}, r"bad has no column 'y'; it has x, z"),
        ("y\n1\n2\n", {}, r"bad has no feature beside 'y'"),
        ("x,y\n1,a\n2,a\n", {}, r"must have two classes at least"),
        ("x,y\n1,a\n2,b\n", {"classes": ["a", "c"]}, r"'b' in line 3, which is not in its"),
        ("x,y\n1,2\n3,4\n", {"device_column": "d"}, r"bad has no column 'd'"),
        ("x,y\n1,2\n3,4\n", {"categories": {"q": ["a", "b"]}}, r"'q', which is no feature"),
        ("x,y\n1,2\n3,4\n", {"standardise": "mean"}, r"standardise must be 'data'"),
        ("x,y\n1,2\n3,4\n", {"standardise": {"q": (0.0, 1.0)}}, r"there is no feature 'q'"),
        ("x,y\n1,2\n3,4\n", {"standardise": {"x": (0.0, 0.0)}}, r"scale of 'x' must be positive"),
    ],
)
def test_what_is_refused(
    text: str, arguments: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidSetting, match=message):
        read(path, target="y", **arguments)


def test_files_that_are_not_there_or_not_what_they_seem(tmp_path: Path) -> None:
    (tmp_path / "t.npz").write_text("no archive")
    (tmp_path / "t.parquet").write_text("no table")
    np.savez(tmp_path / "other.npz", A=np.zeros(3))
    for name, message in (
        ("none.csv", "cannot read"),
        ("*.none", "no file fits"),
        ("t.npz", "is not such a file"),
        ("t.parquet", "is not a Parquet file"),
        ("other.npz", "must have arrays X and Y, got A"),
        ("t.xls", "must be .csv, .parquet, .npz"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            read(str(tmp_path / name), target="y")
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    with pytest.raises(InvalidSetting, match="target must name the column"):
        read(tmp_path / "t.csv")
    with pytest.raises(InvalidSetting, match="no file was given"):
        read([])


@given(
    st.integers(1, 12),
    st.sampled_from(["iid", "label", "dirichlet:0.1", "dirichlet:5", "size:0.05", "size:3"]),
    st.integers(0, 5),
)
@settings(max_examples=full(200, 40), deadline=None)
def test_splits_deal_every_example_once(devices: int, how: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    targets = rng.integers(0, 4, 60).astype(float)
    data = FederatedData(np.arange(60.0)[:, None], targets, (60,))
    dealt = data.split(devices, how, seed)
    assert dealt.num_devices == devices
    assert min(dealt.device_sizes) >= 1
    assert sorted(dealt.features.ravel().tolist()) == list(range(60))
    # Targets go with their features.
    np.testing.assert_array_equal(dealt.targets, targets[dealt.features.ravel().astype(int)])
    again = data.split(devices, how, seed)
    np.testing.assert_array_equal(dealt.features, again.features)


def test_splits_make_devices_alike_or_unlike() -> None:
    targets = np.repeat(np.arange(4.0), 500)
    data = FederatedData(np.arange(2000.0)[:, None], targets, (2000,))

    def unlike(how: str) -> float:
        """Mean share of the most frequent class on a device: 1/4 if all are alike."""
        dealt = data.split(10, how, 3)
        parts = np.split(dealt.targets, np.cumsum(dealt.device_sizes)[:-1])
        return float(np.mean([np.bincount(p.astype(int)).max() / len(p) for p in parts]))

    assert unlike("iid") < 0.35
    assert unlike("label") > 0.75
    assert unlike("dirichlet:0.05") > unlike("dirichlet:1") > unlike("dirichlet:1000")
    assert unlike("dirichlet:1000") < 0.35
    sizes = data.split(10, "size:0.3", 1).device_sizes
    assert max(sizes) > 3 * min(sizes)
    for how in ("random", "dirichlet", "dirichlet:x", "dirichlet:-1", "iid:3"):
        with pytest.raises(InvalidSetting):
            data.split(10, how)
    with pytest.raises(InvalidSetting, match="must not exceed"):
        data.split(3000)
    with pytest.raises(InvalidSetting, match="needs classes"):
        FederatedData(np.zeros((2000, 1)), np.arange(2000.0), (2000,)).split(2, "dirichlet:1")


def test_hold_out_takes_its_share_of_every_device() -> None:
    data = FederatedData(np.arange(31.0)[:, None], np.zeros(31), (20, 10, 1))
    learn, predict = data.hold_out(0.3, seed=2)
    assert learn.device_sizes == (14, 7, 1)
    assert predict.device_sizes == (6, 3, 0)
    together = np.concatenate([learn.features, predict.features]).ravel()
    assert sorted(together.tolist()) == list(range(31))


def test_shapes_are_checked() -> None:
    with pytest.raises(InvalidSetting, match="feature_names must be 2 names"):
        FederatedData(np.zeros((3, 2)), np.zeros(3), (3,), ("a",))
    with pytest.raises(InvalidSetting, match="device_sizes must add up"):
        FederatedData(np.zeros((3, 2)), np.zeros(3), (2,))
    linear = FederatedData(np.eye(3), np.ones(3), (2, 1)).to_linear()
    assert isinstance(linear, flmc.LinearData)


@pytest.mark.parametrize("factor", [1000.0, 1e-3, 100.0])
def test_one_device_in_other_units_is_noticed(factor: float) -> None:
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((90, 3)), rng.standard_normal(90)
    x[30:60, 1] *= factor
    data = FederatedData(x, y, (30, 30, 30), ("a", "b", "c"), device_names=("n", "s", "w"))
    (doubt,) = data.findings or ()
    assert (doubt.code, doubt.severity) == ("units", "warning")
    assert "'b'" in doubt.message
    assert "'s'" in doubt.message
    assert doubt.message in str(data)
    # It is not forgotten by what hides it, and every plan has it.
    assert data.standardised(None).split(5).findings == data.findings
    model = flmc.LinearGaussian(data.to_linear())
    planned = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    assert doubt in planned.findings
    assert flmc.LinearData(x, y, (30, 30, 30)).findings


def test_units_of_ordinary_data_are_not_doubted() -> None:
    laws = (
        lambda rng, shape: rng.standard_normal(shape),
        lambda rng, shape: rng.standard_cauchy(shape),
        lambda rng, shape: np.exp(2 * rng.standard_normal(shape)),
        lambda rng, shape: (rng.random(shape) < 0.03).astype(float),
        lambda rng, shape: rng.integers(0, 5, shape).astype(float),
    )
    for seed in range(full(500, 100)):
        rng = np.random.default_rng(seed)
        devices, size = int(rng.integers(2, 60)), int(rng.integers(1, 20))
        x = laws[seed % len(laws)](rng, (devices * size, 4))
        assert not FederatedData(x, x[:, 0], (size,) * devices).findings


def test_labels_that_differ_in_case_or_spaces_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n1,yes\n2,Yes \n3,no\n4,no\n")
    with pytest.raises(InvalidSetting, match="the classes 'Yes' and 'yes', which differ in case"):
        read(path, target="y")
    assert len(read(path, target="y", classes=["no", "yes", "Yes"]).classes) == 3
