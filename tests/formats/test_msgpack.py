"""Reading MessagePack: every kind of value, NumPy arrays, and unusual files."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from msgpack_files import numpy_map, opened, packed, table

import penstock as ps
from penstock.columns.types import VariableShapeTensorType
from penstock.storage import MemoryStorage
from reading import shared_path

RAW = b"penstock.msgpack"


# -- golden files and the corpus ------------------------------------------------------------------


def test_the_golden_values_are_records_unchanged() -> None:
    path = shared_path("specs", "golden", "neighbours", "values.msgpack")
    records = ps.open(path, index="never").take(range(10)).column("record").to_pylist()
    assert [record.hex() for record in records] == [
        "c0", "c3", "ff", "ccc8", "cf8000000000000000", "cb3ff8000000000000",
        "a2c3a9", "c40101", "920102", "81a16101",
    ]  # fmt: skip


def test_the_golden_arrays_are_tensors() -> None:
    data = shared_path("specs", "golden", "neighbours", "arrays.msgpack_numpy").read_bytes()
    found = table(data)
    assert found.schema.field("f4").type == pa.fixed_shape_tensor(pa.float32(), [3])
    assert found.schema.field("i2").type == pa.fixed_shape_tensor(pa.int16(), [2, 2])
    assert found.column("f4").combine_chunks().to_numpy_ndarray().tolist() == [[0, 1, 2]]
    assert found.column("i2").combine_chunks().to_numpy_ndarray().tolist() == [[[1, 2], [3, 4]]]
    assert found.schema.field("scalar").type == pa.float32()
    assert found.column("scalar").to_pylist() == [1.5]


CORPUS = sorted(shared_path("corpus", "msgpack", "json_test_data").glob("*.msgpack"))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_a_file_of_the_corpus_is_what_the_manifest_states(path: Path) -> None:
    manifest = shared_path("corpus", "MANIFEST.md").read_text()
    (row,) = [
        line
        for line in manifest.splitlines()
        if f"| msgpack/{path.parent.name}/{path.name} " in line
    ]
    kind, count = re.search(r"one value, (\w+) of (\d+)", row).groups()  # type: ignore[union-attr]
    value = msgpack.unpackb(path.read_bytes())
    assert (type(value).__name__, len(value)) == (kind, int(count))
    assert ps.open(path, raw=True, index="never").take([0]).to_pylist() == [
        {"record": path.read_bytes()}
    ]
    found = ps.open(path, index="never").take([0]).to_pylist()
    assert found == [
        _with_nulls(value) if kind == "dict" and value else {"record": path.read_bytes()}
    ]
    nameless = {"neutral": path.read_bytes()}
    with pytest.raises(ps.FormatError, match="no known format"):
        ps.open("neutral", storage=MemoryStorage(nameless), index="never")  # type: ignore[arg-type]


def _with_nulls(value: Any) -> Any:
    """Maps in a list get the keys of all of them, with None for missing values."""
    if isinstance(value, dict):
        return {key: _with_nulls(inner) for key, inner in value.items()}
    if isinstance(value, list):
        keys = [key for item in value if isinstance(item, dict) for key in item]
        return [
            {**dict.fromkeys(keys), **_with_nulls(item)} if isinstance(item, dict) else item
            for item in value
        ]
    return value


def test_every_encoding_of_a_value_in_the_corpus_is_read_as_that_value() -> None:
    seen = 0
    for path in shared_path("corpus", "msgpack", "msgpack-test-suite").glob("*.yaml"):
        for block in re.split(r"\n\s*\n", path.read_text()):
            encodings = re.findall(
                r'^\s+- "?((?:[0-9a-f]{2}-)*[0-9a-f]{2})"?\s*$', block, re.MULTILINE
            )
            values = [bytes.fromhex(one.replace("-", "")) for one in encodings]
            if not values:
                continue
            records = b"".join(b"\x81\xa1v" + value for value in values)
            found = [record["v"] for record in table(records, infer_records="all").to_pylist()]
            wanted = [msgpack.unpackb(value) for value in values]
            assert found == wanted, block
            seen += len(values)
    assert seen > 100


# -- kinds of values ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "type_"),
    [
        ([1, -1, None], pa.int64()),
        ([1, 2**64 - 1], pa.uint64()),
        ([1.5, None], pa.float64()),
        ([1, 2.5], pa.float64()),
        ([True, None, False], pa.bool_()),
        (["é", ""], pa.string()),
        ([b"\x00", b""], pa.binary()),
        ([[1, None], [], None], pa.list_(pa.int64())),
        ([[[1.5]], [[]]], pa.list_(pa.list_(pa.float64()))),
        ([{"x": 1, "y": "a"}, None], pa.struct([("x", pa.int64()), ("y", pa.string())])),
        ([None, None], pa.null()),
    ],
)
def test_values_of_one_kind_have_one_type(values: list[Any], type_: pa.DataType) -> None:
    found = table(packed(*({"v": value} for value in values)))
    assert found.schema.field("v").type == type_
    assert found.column("v").to_pylist() == values


def test_float32_stays_float32_until_a_float64_comes() -> None:
    single = msgpack.packb({"v": 1.5}, use_single_float=True)
    assert table(single).schema.field("v").type == pa.float32()
    both = table(single + packed({"v": 0.1}))
    assert both.schema.field("v").type == pa.float64()
    assert both.column("v").to_pylist() == [1.5, 0.1]
    with pytest.raises(ps.SchemaError, match="float32") as caught:
        table(single + packed({"v": 0.1}), infer_records=1)
    assert (caught.value.record, caught.value.field) == (1, "v")


def test_bytes_that_are_not_text_make_a_binary_column() -> None:
    assert table(b"\x81\xa1v\xa1\xff").column("v").to_pylist() == [b"\xff"]
    mixed = table(packed({"v": "text"}, {"v": b"\x00"}))
    assert mixed.column("v").to_pylist() == [b"text", b"\x00"]
    with pytest.raises(ps.FormatError, match="not UTF-8") as caught:
        table(packed({"v": "x"}) + b"\x81\xa1v\xa1\xff", infer_records=1)
    assert (caught.value.record, caught.value.field) == (1, "v")


CAPTIONS = [
    {"caption": b"caf\xc3\xa9", "tags": [b"a", "b"], "box": {"kind": b"cat"}},
    {"caption": "plain", "tags": [], "box": None},
    {"tags": None, "box": {"kind": "dog"}},
]
TEXTS = [
    {"caption": "café", "tags": ["a", "b"], "box": {"kind": "cat"}},
    {"caption": "plain", "tags": [], "box": None},
    {"caption": None, "tags": None, "box": {"kind": "dog"}},
]


def test_types_and_schema_read_bin_as_strings(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    path.write_bytes(packed(*CAPTIONS))
    assert ps.open(path).schema.field("caption").type == pa.binary()
    types = {"caption": "string", "tags": "string", "box": pa.struct([("kind", pa.string())])}
    ds = ps.open(path, types=types)
    assert list(ds) == TEXTS
    assert ps.open(path, schema=ds.schema).to_table().to_pylist() == TEXTS
    ps.convert(path, tmp_path / "a.parquet", types=types)
    assert list(ps.open(tmp_path / "a.parquet")) == TEXTS
    for type_ in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        found = ps.open(path, types={"caption": type_})
        assert found.schema.field("caption").type == type_
        assert found.to_table(["caption"])["caption"].to_pylist() == ["café", "plain", None]


@pytest.mark.parametrize("word", ["types", "text"])
def test_bytes_that_are_no_text_are_an_error_with_file_and_record(
    tmp_path: Path, word: str
) -> None:
    path = tmp_path / "a.msgpack"
    path.write_bytes(packed(*CAPTIONS, {"caption": b"\xff"}, *CAPTIONS))
    given = {"types": {"caption": "string"}} if word == "types" else {"text": ["caption"]}
    with pytest.raises(ps.FormatError, match="not UTF-8, as a string must be") as caught:
        ps.convert(path, tmp_path / "a.parquet", **given)
    error = caught.value
    assert (error.file, error.record, error.field) == (str(path), 3, "caption")
    ds = ps.open(path, types={"caption": "string"}, damage="skip")
    assert [record["caption"] for record in ds] == [one["caption"] for one in TEXTS] * 2
    assert [region.num_records for region in ds.damage] == [1]


def test_timestamps_of_all_sizes_are_nanoseconds_in_utc() -> None:
    moments = [
        msgpack.Timestamp(0),
        msgpack.Timestamp(2**33, 5),
        msgpack.Timestamp(-1, 999_999_999),
        msgpack.Timestamp.from_datetime(datetime(2024, 2, 29, 12, 30, tzinfo=UTC)),
    ]
    found = table(packed(*({"t": moment} for moment in moments)))
    assert found.schema.field("t").type == pa.timestamp("ns", "UTC")
    numbers = found.column("t").cast(pa.int64()).to_pylist()
    assert numbers == [moment.to_unix_nano() for moment in moments]
    wider = table(packed({"t": moments[3]}), schema=pa.schema([("t", pa.timestamp("s"))]))
    assert wider.column("t").to_pylist() == [datetime(2024, 2, 29, 12, 30)]
    with pytest.raises(ps.SchemaError):
        table(packed({"t": moments[1]}), schema=pa.schema([("t", pa.timestamp("s"))]))


def test_a_timestamp_beyond_64_bits_of_nanoseconds_is_an_extension() -> None:
    far = msgpack.Timestamp(2**40)
    found = table(packed({"t": far}))
    assert found.column("t").to_pylist() == [{"type": -1, "data": far.to_bytes()}]
    with pytest.raises(ps.SchemaError, match="1677"):
        table(packed({"t": msgpack.Timestamp(1)}, {"t": far}), infer_records=1)


def test_extensions_are_their_type_and_data() -> None:
    data = packed({"e": msgpack.ExtType(5, b"xy")}, {"e": None}, {"e": msgpack.ExtType(127, b"")})
    found = table(data)
    assert found.column("e").to_pylist() == [
        {"type": 5, "data": b"xy"},
        None,
        {"type": 127, "data": b""},
    ]
    assert found.schema.field("e").metadata == {RAW: b"ext"}


@pytest.mark.parametrize(
    "values",
    [
        [1, "x"],
        [1, True],
        [[1], {"a": 1}],
        [{1: 2}],
        [2**64 - 1, -1],
        [2**60, 0.5],
        [{}],
        [msgpack.ExtType(1, b""), 1],
    ],
)
def test_values_without_a_common_type_are_kept_as_their_bytes(values: list[Any]) -> None:
    found = table(packed(*({"v": value, "n": 1} for value in values)))
    assert found.schema.field("v").metadata == {RAW: b"raw"}
    assert found.column("v").to_pylist() == [msgpack.packb(value) for value in values]
    assert found.column("n").to_pylist() == [1] * len(values)


def test_maps_that_use_keys_as_data_are_kept_as_their_bytes() -> None:
    records = [{"v": {f"key {number}": number}} for number in range(600)]
    found = table(packed(*records))
    assert found.schema.field("v").metadata == {RAW: b"raw"}
    few = table(packed(*records[:100]))
    assert pa.types.is_struct(few.schema.field("v").type)


def test_a_record_may_lack_keys_repeat_them_or_have_them_as_bin() -> None:
    data = packed({"a": 1, "b": [1]}, {"b": [2], "a": 2}, {}, {b"a": 3})
    data += b"\x84\xa1a\x07\xa1b\x92\x01\x02\xa1a\x08\xa1b\x91\x09"
    assert table(data).to_pylist() == [
        {"a": 1, "b": [1]},
        {"a": 2, "b": [2]},
        {"a": None, "b": None},
        {"a": 3, "b": None},
        {"a": 8, "b": [9]},
    ]


def test_fields_after_the_sample_are_not_shown() -> None:
    data = packed({"a": 1}, {"a": 2, "late": 3})
    with pytest.warns(UserWarning, match="record 1 has the field 'late'"):
        assert table(data, infer_records=1).to_pylist() == [{"a": 1}, {"a": 2}]
    assert table(data, infer_records="all").schema.names == ["a", "late"]
    with pytest.raises(ps.SchemaError, match="an integer of int64") as caught:
        table(packed({"a": 1}, {"a": "x"}), infer_records=1)
    assert (caught.value.record, caught.value.field) == (1, "a")
    with pytest.raises(ps.FormatError, match="the schema wants a map") as caught:
        table(packed({"a": 1}, 7), infer_records=1)
    assert caught.value.record == 1


@pytest.mark.parametrize("records", [[1, 2], [[1], [2]], [{"a": 1}, 2], [{1: 2}], ["x"], [None]])
def test_records_that_are_not_maps_of_fields_are_one_binary_column(records: list[Any]) -> None:
    found = table(packed(*records))
    assert found.schema.names == ["record"]
    assert found.column("record").to_pylist() == [msgpack.packb(record) for record in records]


# -- NumPy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["|b1", "|i1", "<i2", ">i4", "<i8", "|u1", ">u2", "<u8", "<f2", ">f4", "<f8"])  # fmt: skip
def test_numpy_arrays_of_one_shape_are_tensors(dtype: str) -> None:
    arrays = [np.arange(6).reshape(2, 3).astype(dtype), np.ones((2, 3), dtype)]
    found = table(packed({"t": numpy_map(arrays[0])}, {"t": None}, {"t": numpy_map(arrays[1])}))
    field = found.schema.field("t").type
    assert field.shape == [2, 3]
    assert found.column("t").null_count == 1
    flat = found.column("t").combine_chunks().storage.to_pylist()
    assert [flat[0], flat[2]] == [array.ravel().tolist() for array in arrays]


def test_numpy_arrays_of_several_shapes_are_tensors_of_variable_shape() -> None:
    arrays = [np.zeros((1, 2), np.uint8), np.full((3, 1), 7, np.uint8), np.zeros((0, 5), np.uint8)]
    found = table(packed(*({"t": numpy_map(array)} for array in arrays)))
    assert found.schema.field("t").type == VariableShapeTensorType(pa.uint8(), 2)
    assert found.column("t").combine_chunks().storage.to_pylist() == [
        {"data": array.ravel().tolist(), "shape": list(array.shape)} for array in arrays
    ]


@pytest.mark.parametrize(
    "value",
    [
        numpy_map([1], kind=b"O", type="|O", data=b"cos\nsystem\n(S'false'\ntR."),
        numpy_map([1], kind=b"V", type=[["a", "<i8"]]),
        numpy_map([1], type="<c16", data=bytes(16)),
        numpy_map([1], type="|S8"),
        numpy_map([1], shape=[2]),
        numpy_map([1], shape=[2**31, 2**31, 2**31]),
        numpy_map([1], shape=[-1]),
    ],
)
def test_arrays_that_are_not_plain_numbers_stay_bytes(value: Any) -> None:
    found = table(packed({"t": value}))
    assert found.schema.field("t").metadata == {RAW: b"raw"}
    assert found.column("t").to_pylist() == [msgpack.packb(value)]
    with pytest.raises(ps.SchemaError, match="NumPy array of plain numbers"):
        table(packed({"t": numpy_map([1])}, {"t": value}), infer_records=1)


def test_arrays_of_another_dtype_or_shape_than_the_sample_are_an_error() -> None:
    first = {"t": numpy_map(np.zeros(2, np.float32))}
    for other in (np.zeros(2, np.float64), np.zeros(3, np.float32)):
        with pytest.raises(ps.SchemaError, match="an array of") as caught:
            table(packed(first, {"t": numpy_map(other)}), infer_records=1)
        assert (caught.value.record, caught.value.field) == (1, "t")


# -- schemas and options --------------------------------------------------------------------------


def test_a_schema_chooses_and_casts() -> None:
    data = packed({"a": 1, "b": 1.5, "c": "x", "d": [1, 2], "e": b"1234"})
    wanted = pa.schema(
        [
            ("d", pa.list_(pa.int8(), 2)),
            ("a", pa.uint8()),
            ("b", pa.float32()),
            ("c", pa.dictionary(pa.int32(), pa.string())),
            ("e", pa.binary(4)),
            ("missing", pa.int32()),
        ]
    )
    found = table(data, schema=wanted)
    assert found.schema.equals(wanted)
    assert found.to_pylist() == [
        {"d": [1, 2], "a": 1, "b": 1.5, "c": "x", "e": b"1234", "missing": None}
    ]


def test_a_value_that_a_schema_does_not_hold_is_reported() -> None:
    data = packed({"a": 1}, {"a": 300}, {"b": 1})
    with pytest.raises(ps.SchemaError) as caught:
        table(data, schema=pa.schema([("a", pa.uint8())]))
    assert (caught.value.record, caught.value.field) == (1, "a")
    required = pa.schema([pa.field("a", pa.int64(), nullable=False)])
    with pytest.raises(ps.SchemaError, match="required") as caught:
        table(data, schema=required)
    assert caught.value.record == 2
    with pytest.raises(ps.SchemaError, match="decimal"):
        opened(data, schema=pa.schema([("a", pa.decimal128(5))]))


def test_one_array_of_maps_is_its_elements() -> None:
    records = [{"a": number} for number in range(70_000)]
    for count in (1, 15, 16, 70_000):
        data = msgpack.packb(records[:count])
        dataset = opened(data)
        assert len(dataset) == count
        assert table(data).to_pylist() == records[:count]
        assert dataset.take([count - 1, 0]).to_pylist() == [records[count - 1], records[0]]
    whole = table(msgpack.packb(records[:3]), layout="values")
    assert whole.to_pylist() == [{"record": msgpack.packb(records[:3])}]
    assert table(packed([1, 2]), layout="array").to_pylist() == [
        {"record": b"\x01"},
        {"record": b"\x02"},
    ]
    with pytest.raises(ps.FormatError, match="does not begin with an array"):
        opened(packed({"a": 1}), layout="array")


def test_an_array_is_held_to_its_count() -> None:
    data = msgpack.packb([{"a": 1}, {"a": 2}])
    with pytest.raises(ps.FormatError, match="other values follow the array"):
        table(data + packed({"a": 3}))
    with pytest.raises(ps.TruncatedError, match="more elements"):
        table(b"\x93" + data[1:])
    with pytest.raises(ps.TruncatedError, match="more elements"):
        len(opened(b"\x93" + data[1:]))
    with pytest.raises(ps.TruncatedError, match="more elements than there are bytes"):
        opened(b"\xdd\xff\xff\xff\xff" + data[1:])


def test_an_index_of_one_layout_is_not_used_for_the_other(tmp_path: Path) -> None:
    path = tmp_path / "a.msgpack"
    path.write_bytes(msgpack.packb([{"a": 1}, {"a": 2}]))
    assert len(ps.open(path)) == 2
    assert len(ps.open(path)) == 2
    assert len(ps.open(path, layout="values")) == 1
    assert len(ps.open(path)) == 2


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown layout"):
        opened(b"\xc0", layout="map")
    with pytest.raises(TypeError, match="no option 'compression'"):
        opened(b"\xc0", compression="gzip")
    with pytest.raises(ValueError, match="unknown payload"):
        ps.write(pa.table({"a": [1]}), "x.msgpack", payload="array")


def test_many_maps_of_the_same_fields_are_recognised_by_their_bytes() -> None:
    data = packed(*({"a": n, "b": "x"} for n in range(1000)))
    for content in (data, msgpack.packb([{"a": 1}, {"a": 2}])):
        dataset = ps.open("neutral", storage=MemoryStorage({"neutral": content}), index="never")  # type: ignore[arg-type]
        assert dataset.shards[0].format == "msgpack"
    for other in (packed({"a": 1}, {"b": 1}), packed({"a": 1}), packed(1, 2), data[:10]):
        with pytest.raises(ps.FormatError, match="no known format"):
            ps.open("neutral", storage=MemoryStorage({"neutral": other}), index="never")  # type: ignore[arg-type]
