"""Datasets that store a column as different types, in one loader."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.columns.casts import common_type
from penstock.columns.types import DTYPE_KEY

INTEGERS = [getattr(pa, f"{sign}int{width}")() for sign in ("", "u") for width in (8, 16, 32, 64)]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]


def stored(path: Path, values: list[Any], field: pa.Field) -> ps.Dataset:
    table = pa.table([pa.array(values, field.type)], schema=pa.schema([field]))
    pq.write_table(table, path, use_compliant_nested_type=False)
    return ps.open(path)


def loaded(folder: Path, types: list[Any], values: list[list[Any]]) -> Any:
    sets = [
        stored(folder / f"{n}.parquet", mine, pa.field("x", type_))
        for n, (type_, mine) in enumerate(zip(types, values, strict=True))
    ]
    (batch,) = ps.Loader(sets, 100)
    return batch["x"]


def test_parquet_and_tfrecord_with_lists_are_mixed(tmp_path: Path) -> None:
    web = {"tokens": pa.array([[1, 2], [3]], pa.list_(pa.int32())), "id": [0, 1]}
    ps.write(pa.table(web), tmp_path / "web.parquet")
    ps.write({"tokens": [[4], [5, 6, 7]], "id": [2, 3]}, tmp_path / "code.tfrecord")
    code = ps.open(tmp_path / "code.tfrecord", types={"tokens": pa.list_(pa.int32())})
    sets = [ps.open(tmp_path / "web.parquet"), code]
    (batch,) = ps.Loader(sets, 16, columns=["tokens", "id"])
    values, offsets = batch["tokens"]
    assert values.dtype == np.int32
    assert values.tolist() == [1, 2, 3, 4, 5, 6, 7] and offsets.tolist() == [0, 2, 3, 4, 7]
    order = ps.Mixture({"web": 0.5, "code": 0.5}, seed=0)
    mixed = ps.Loader(dict(zip(("web", "code"), sets, strict=True)), 4, order=order, ragged="pad")
    found = next(iter(mixed))
    rows = dict(zip(found["id"].tolist(), found["tokens"].tolist(), strict=True))
    assert rows == {0: [1, 2, 0], 1: [3, 0, 0], 2: [4, 0, 0], 3: [5, 6, 7]}


@pytest.mark.parametrize("flip", [False, True])
def test_names_and_nullability_of_list_values_do_not_matter(tmp_path: Path, flip: bool) -> None:
    one = pa.list_(pa.field("element", pa.int32(), nullable=False))
    types = [one, pa.list_(pa.int32())]
    values, offsets = loaded(tmp_path, types[::-1] if flip else types, [[[1], [2, 3]], [[4]]])
    assert values.tolist() == [1, 2, 3, 4] and offsets.tolist() == [0, 1, 3, 4]


@pytest.mark.parametrize(
    ("types", "dtype"),
    [
        ([pa.int32(), pa.int64()], "int64"),
        ([pa.int64(), pa.int32()], "int64"),
        ([pa.uint8(), pa.uint16()], "uint16"),
        ([pa.uint8(), pa.int8()], "int16"),
        ([pa.uint32(), pa.int16()], "int64"),
        ([pa.float32(), pa.float64()], "float64"),
        ([pa.float16(), pa.float32()], "float32"),
        ([pa.int8(), pa.uint8(), pa.int32()], "int32"),
    ],
)
def test_numbers_of_different_width_widen(tmp_path: Path, types: list[Any], dtype: str) -> None:
    numbers = np.arange(len(types), dtype=dtype).tolist()
    found = loaded(tmp_path, types, [[number] for number in numbers])
    assert found.dtype == dtype and found.tolist() == numbers
    lists = [pa.list_(type_) for type_ in types]
    values, _ = loaded(tmp_path, lists, [[[number]] for number in numbers])
    assert values.dtype == dtype and values.tolist() == numbers


def test_kinds_of_lists_text_and_bytes_do_not_matter(tmp_path: Path) -> None:
    values, offsets = loaded(tmp_path, [pa.list_(pa.int8()), pa.large_list(pa.int8())], [[[1]]] * 2)
    assert values.tolist() == [1, 1] and offsets.tolist() == [0, 1, 2]
    texts = loaded(tmp_path, [pa.string(), pa.large_string()], [["a"], ["b"]])
    assert texts.tolist() == ["a", "b"]
    blobs = loaded(tmp_path, [pa.large_binary(), pa.binary()], [[b"a"], [b"b"]])
    assert blobs.tolist() == [b"a", b"b"]


def test_fields_of_structs_widen(tmp_path: Path) -> None:
    types = [pa.struct([("a", width), ("b", pa.string())]) for width in (pa.int16(), pa.int32())]
    found = loaded(tmp_path, types, [[{"a": 1, "b": "x"}], [{"a": 70000, "b": "y"}]])
    assert found["a"].tolist() == [1, 70000] and found["b"].tolist() == ["x", "y"]


@pytest.mark.parametrize(
    "types",
    [
        [pa.uint64(), pa.int8()],
        [pa.int32(), pa.float32()],
        [pa.bool_(), pa.int8()],
        [pa.string(), pa.binary()],
        [pa.list_(pa.int32()), pa.int32()],
        [pa.list_(pa.int32(), 1), pa.list_(pa.int32(), 2)],
        [pa.list_(pa.int32(), 1), pa.list_(pa.int32())],
    ],
)
def test_types_without_a_common_one_are_refused(tmp_path: Path, types: list[Any]) -> None:
    sets = [
        stored(tmp_path / f"{n}.parquet", [], pa.field("x", type_)) for n, type_ in enumerate(types)
    ]
    with pytest.raises(ps.SchemaError, match="different types") as caught:
        ps.Loader(sets, 2)
    assert caught.value.field == "x"


def test_bits_of_a_dtype_are_not_mixed_with_numbers(tmp_path: Path) -> None:
    bits = pa.field("x", pa.uint16(), metadata={DTYPE_KEY: b"bfloat16"})
    ps.write(pa.table([pa.array([16256], pa.uint16())], pa.schema([bits])), tmp_path / "a.arrow")
    ps.write(pa.table({"x": pa.array([1], pa.uint16())}), tmp_path / "b.arrow")
    with pytest.raises(ps.SchemaError, match=r"bfloat16 \(as uint16\), uint16"):
        ps.Loader([ps.open(tmp_path / "a.arrow"), ps.open(tmp_path / "b.arrow")], 2)


@given(one=st.sampled_from(INTEGERS), other=st.sampled_from(INTEGERS), data=st.data())
def test_a_common_integer_type_holds_every_value(
    one: pa.DataType, other: pa.DataType, data: st.DataObject
) -> None:
    common = common_type(one, other)
    assert common == common_type(other, one)
    for type_ in (one, other):
        limits = np.iinfo(type_.to_pandas_dtype())
        value = data.draw(st.integers(int(limits.min), int(limits.max)))
        if common is not None:
            assert pa.array([value], type_).cast(common).to_pylist() == [value]
    if common is None:
        assert pa.uint64() in (one, other) and one != other


@given(one=st.sampled_from(FLOATS), other=st.sampled_from(FLOATS))
def test_a_common_float_type_is_the_wider(one: pa.DataType, other: pa.DataType) -> None:
    assert common_type(one, other) == max(one, other, key=lambda type_: type_.bit_width)


@pytest.mark.parametrize("path_type", [pa.string(), pa.null()], ids=str)
@pytest.mark.parametrize("flip", [False, True])
def test_images_of_hugging_face_mix_with_bytes(
    tmp_path: Path, path_type: pa.DataType, flip: bool
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 6, 5, 3), np.uint8)
    files = [bytes(one) for one in ps.encode_images(pixels, "png").storage.to_pylist()]
    kind = pa.struct([("bytes", pa.binary()), ("path", path_type)])
    structs = pa.array([{"bytes": one, "path": None} for one in files[:2]], kind)
    pq.write_table(pa.table({"image": structs}), tmp_path / "hf.parquet")
    ps.write({"image": files[2:]}, tmp_path / "plain.tfrecord")
    other = pa.array([{"bytes": one} for one in files[:2]])
    pq.write_table(pa.table({"image": other}), tmp_path / "bare.parquet")
    sets = [ps.open(tmp_path / "hf.parquet"), ps.open(tmp_path / "plain.tfrecord")]
    (batch,) = ps.Loader(sets[::-1] if flip else sets, 8, decode={"image": ps.Image()})
    np.testing.assert_array_equal(batch["image"], np.roll(pixels, 2, 0) if flip else pixels)
    sets[1] = ps.open(tmp_path / "bare.parquet")
    (batch,) = ps.Loader(sets[::-1] if flip else sets, 8, decode={"image": ps.Image()})
    np.testing.assert_array_equal(batch["image"], pixels[[0, 1, 0, 1]])
    ps.write({"image": [1, 2]}, tmp_path / "numbers.parquet")
    sets[1] = ps.open(tmp_path / "numbers.parquet")
    with pytest.raises(ps.SchemaError, match="different types"):
        ps.Loader(sets, 8)
