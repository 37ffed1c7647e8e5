"""TFRecord files as penstock writes them: bytes, types, members, and what is refused."""

from __future__ import annotations

import datetime as dt
import gzip
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import SchemaError, _core
from penstock.formats.tfrecord.writer import TFRecordWriteOptions
from penstock.storage.local import LocalStorage
from penstock.verbs.write.write import write
from reading import index_of


def frames_of(data: bytes) -> list[bytes]:
    """The payloads of a stream of frames, read by the format's rules alone."""
    payloads, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        payloads.append(data[at + 12 : at + 12 + length])
        at += length + 16
    assert at == len(data)
    return payloads


def varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def fields_of(data: bytes) -> list[tuple[int, bytes]]:
    """The length-delimited fields of a message."""
    found, at = [], 0
    while at < len(data):
        tag, at = varint(data, at)
        assert tag & 7 == 2
        length, at = varint(data, at)
        found.append((tag >> 3, data[at : at + length]))
        at += length
    assert at == len(data)
    return found


def values_of(feature: bytes) -> list[Any]:
    ((kind, message),) = fields_of(feature)
    if kind == 1:
        return [value for _, value in fields_of(message)]
    runs = fields_of(message)
    assert len(runs) <= 1, "one packed run a list"
    run = runs[0][1] if runs else b""
    if kind == 2:
        return list(struct.unpack(f"<{len(run) // 4}f", run))
    values, at = [], 0
    while at < len(run):
        value, at = varint(run, at)
        values.append(value - (1 << 64) if value >> 63 else value)
    return values


def features_of(features: bytes) -> dict[str, list[Any]]:
    found = {}
    for _, entry in fields_of(features):
        (_, key), (_, feature) = fields_of(entry)
        found[key.decode()] = values_of(feature)
    assert list(found) == sorted(found, key=str.encode)
    return found


def example_of(payload: bytes) -> dict[str, list[Any]]:
    ((_, features),) = fields_of(payload)
    return features_of(features)


def written(tmp_path: Path, data: Any, **options: Any) -> bytes:
    path = tmp_path / "x.tfrecord"
    write(data, path, overwrite=True, **options)
    return path.read_bytes()


def examples(tmp_path: Path, data: Any, **options: Any) -> list[dict[str, list[Any]]]:
    return [example_of(p) for p in frames_of(written(tmp_path, data, **options))]


TENSOR = pa.fixed_shape_tensor(pa.float32(), (2, 3))
HELD: dict[str, tuple[pa.Array, list[Any]]] = {
    "int8": (pa.array([-1, 2], pa.int8()), [[-1], [2]]),
    "uint64": (pa.array([0, 2**63 - 1], pa.uint64()), [[0], [2**63 - 1]]),
    "bool": (pa.array([True, False]), [[1], [0]]),
    "extreme int64": (pa.array([-(2**63), 2**63 - 1]), [[-(2**63)], [2**63 - 1]]),
    "float16": (pa.array([1.5, -2], pa.float16()), [[1.5], [-2.0]]),
    "float32": (pa.array([0.1], pa.float32()), [[np.float32(0.1).item()]]),
    "exact float64": (pa.array([0.5, float("inf")]), [[0.5], [float("inf")]]),
    "string": (pa.array(["é", ""]), [["é".encode()], [b""]]),
    "large_string": (pa.array(["a"], pa.large_string()), [[b"a"]]),
    "string_view": (
        pa.array(["short", "long enough for a buffer"], pa.string_view()),
        [[b"short"], [b"long enough for a buffer"]],
    ),
    "binary_view": (pa.array([b"\0", b"x" * 13], pa.binary_view()), [[b"\0"], [b"x" * 13]]),
    "large_binary": (pa.array([b"a\0"], pa.large_binary()), [[b"a\0"]]),
    "fixed binary": (pa.array([b"ab", b"cd"], pa.binary(2)), [[b"ab"], [b"cd"]]),
    "dictionary of names": (
        pa.array(["cat", "dog", "cat"]).dictionary_encode(),
        [[b"cat"], [b"dog"], [b"cat"]],
    ),
    "date32": (pa.array([dt.date(1970, 1, 3)]), [[2]]),
    "time32": (pa.array([5], pa.time32("s")), [[5]]),
    "timestamp": (pa.array([1000], pa.timestamp("ms")), [[1000]]),
    "duration": (pa.array([7], pa.duration("s")), [[7]]),
    "list": (pa.array([[1, 2], [], [3]]), [[1, 2], [], [3]]),
    "large_list of strings": (
        pa.array([["a", "b"], []], pa.large_list(pa.string())),
        [[b"a", b"b"], []],
    ),
    "list_view": (pa.array([[1, 2], [3]], pa.list_view(pa.int8())), [[1, 2], [3]]),
    "fixed list": (pa.array([[1, 2], [3, 4]], pa.list_(pa.uint8(), 2)), [[1, 2], [3, 4]]),
    "tensor": (
        pa.ExtensionArray.from_storage(
            TENSOR, pa.array([list(range(6)), [0.5] * 6], pa.list_(pa.float32(), 6))
        ),
        [[0, 1, 2, 3, 4, 5], [0.5] * 6],
    ),
    "tensor with permuted axes": (
        pa.ExtensionArray.from_storage(
            pa.fixed_shape_tensor(pa.int64(), (2, 3), permutation=(1, 0)),
            pa.array([[0, 1, 2, 3, 4, 5]], pa.list_(pa.int64(), 6)),
        ),
        [[0, 3, 1, 4, 2, 5]],
    ),
    "run-end encoded": (pa.RunEndEncodedArray.from_arrays([2, 3], [7, 8]), [[7], [7], [8]]),
}


@pytest.mark.parametrize(("column", "wanted"), HELD.values(), ids=HELD.keys())
def test_types_are_stored_as_the_table_says(
    tmp_path: Path, column: pa.Array, wanted: list[Any]
) -> None:
    found = examples(tmp_path, {"x": column})
    assert [f["x"] for f in found] == wanted


@pytest.mark.parametrize(("column", "wanted"), HELD.values(), ids=HELD.keys())
def test_slices_are_written_like_whole_columns(
    tmp_path: Path, column: pa.Array, wanted: list[Any]
) -> None:
    table = pa.table({"x": column})
    for start in range(len(column)):
        found = examples(tmp_path, table.slice(start, 2))
        assert [f["x"] for f in found] == wanted[start : start + 2]


def test_nulls_are_absent_and_empty_lists_are_not(tmp_path: Path) -> None:
    table = pa.table(
        {
            "a": pa.array([1, None]),
            "b": pa.array([[], None], pa.list_(pa.float32())),
            "c": pa.nulls(2),
            "d": pa.array([None, "x"]),
        }
    )
    assert examples(tmp_path, table) == [{"a": [1], "b": []}, {"d": [b"x"]}]


def test_structs_become_one_feature_a_field(tmp_path: Path) -> None:
    rows = [{"image": {"size": {"w": 1}, "name": "n"}}, {"image": {"size": None, "name": "m"}}]
    assert examples(tmp_path, rows) == [
        {"image/size/w": [1], "image/name": [b"n"]},
        {"image/name": [b"m"]},
    ]


def test_records_without_columns_are_empty_examples(tmp_path: Path) -> None:
    assert frames_of(written(tmp_path, [{}, {}])) == [b"\x0a\x00", b"\x0a\x00"]


def test_lists_of_lists_make_sequence_examples(tmp_path: Path) -> None:
    table = pa.table(
        {
            "steps": pa.array([[[1, 2], [], [3]], [], None], pa.list_(pa.list_(pa.int32()))),
            "name": ["a", "b", "c"],
            "tags": [["x"], [], ["y", "z"]],
        }
    )
    found = []
    for payload in frames_of(written(tmp_path, table)):
        parts = dict(fields_of(payload))
        lists = {}
        for _, entry in fields_of(parts[2]):
            (_, key), (_, frames) = fields_of(entry)
            lists[key.decode()] = [values_of(feature) for _, feature in fields_of(frames)]
        found.append((features_of(parts[1]), lists))
    assert found == [
        ({"name": [b"a"], "tags": [b"x"]}, {"steps": [[1, 2], [], [3]]}),
        ({"name": [b"b"], "tags": []}, {"steps": []}),
        ({"name": [b"c"], "tags": [b"y", b"z"]}, {}),
    ]


def test_prefixes_say_which_part_of_a_sequence_a_column_is(tmp_path: Path) -> None:
    table = pa.table({"context/a": [1], "feature_lists/a": [[2, 3]]})
    (payload,) = frames_of(written(tmp_path, table))
    (_, context), (_, lists) = fields_of(payload)
    assert features_of(context) == {"a": [1]}
    ((_, entry),) = fields_of(lists)
    (_, key), (_, frames) = fields_of(entry)
    assert key == b"a"
    assert [values_of(feature) for _, feature in fields_of(frames)] == [[2], [3]]


def test_a_prefix_is_a_plain_name_in_an_example(tmp_path: Path) -> None:
    assert examples(tmp_path, {"context/a": [1]}) == [{"context/a": [1]}]
    assert examples(tmp_path, {"feature_lists/a": [[1]]}, payload="example") == [
        {"feature_lists/a": [1]}
    ]


def test_raw_records_are_framed_as_they_are(tmp_path: Path) -> None:
    records = [b"hello", b"", b"x" * 1000]
    for kind in (pa.binary(), pa.large_binary(), pa.binary_view()):
        assert frames_of(written(tmp_path, {"record": pa.array(records, kind)})) == records
    assert frames_of(written(tmp_path, records)) == records
    assert frames_of(written(tmp_path, {"any": pa.array(records)}, payload="raw")) == records
    assert written(tmp_path, [b"hello"]).hex() == "0500000000000000eab2043e68656c6c6fbb1f1c19"


REFUSED: dict[str, tuple[Any, dict[str, Any], int | None, str]] = {
    "uint64 beyond int64": ({"x": pa.array([1, 2**63], pa.uint64())}, {}, 1, "x"),
    "rounded float64": ({"x": pa.array([0.5, 0.25, 0.1])}, {"exact": True}, 2, "x"),
    "float64 too large": ({"x": pa.array([[1.0], [1e300]])}, {}, 1, "x"),
    "null in a list": ({"x": pa.array([[1], [2, None]])}, {}, 1, "x"),
    "null in a list of text": ({"x": pa.array([["a"], [], ["b", None]])}, {}, 2, "x"),
    "null list in a list": ({"x": pa.array([[[1]], [[2], None]])}, {}, 1, "x"),
    "interval": ({"x": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}, {}, None, "x"),
    "map": ({"x": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}, {}, None, "x"),
    "list of structs": ({"x": pa.array([[{"a": 1}]])}, {}, None, "x"),
    "lists three deep": ({"x": pa.array([[[[1]]]])}, {}, None, "x"),
    "lists in an example": ({"x": pa.array([[[1]]])}, {"payload": "example"}, None, "x"),
    "two keys alike": (pa.table([[1], [2]], names=["x", "x"]), {}, None, "x"),
    "null record": ({"record": pa.array([b"a", None])}, {}, 1, None),  # type: ignore[dict-item]
    "raw numbers": ({"x": [1]}, {"payload": "raw"}, None, "x"),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("data", "options", "record", "field"), REFUSED.values(), ids=REFUSED.keys()
)
def test_a_value_that_does_not_fit_is_an_error_with_its_place(
    tmp_path: Path,
    data: Any,
    options: dict[str, Any],
    record: int | None,
    field: str | None,
    threads: int,
) -> None:
    with pytest.raises(SchemaError) as caught:
        write(data, tmp_path / "x.tfrecord", threads=threads, **options)
    assert (caught.value.record, caught.value.field) == (record, field)
    assert not list(tmp_path.iterdir())


def test_the_record_of_an_error_counts_over_all_shards(tmp_path: Path) -> None:
    values = pa.array([0.5] * 25_000 + [1e300])
    for options in ({}, {"num_shards": 3}, {"shard_records": 100}):
        with pytest.raises(SchemaError) as caught:
            write({"x": values}, tmp_path / "x.tfrecord", **options)  # type: ignore[arg-type]
        assert caught.value.record == 25_000
        assert "range" in str(caught.value)


def test_float64_is_rounded_to_float32(tmp_path: Path) -> None:
    found = examples(tmp_path, {"x": pa.array([0.1])})
    assert found == [{"x": [np.float32(0.1).item()]}]


def many(num_records: int) -> pa.Table:
    numbers = np.arange(num_records)
    return pa.table(
        {
            "id": numbers,
            "text": [f"{n % 97} " * (n % 13) for n in range(num_records)],
            "values": pa.FixedSizeListArray.from_arrays(
                pa.array(np.repeat(numbers, 4).astype(np.float32)), 4
            ),
        }
    )


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_bytes_do_not_depend_on_threads_or_batches(tmp_path: Path, compression: str | None) -> None:
    table = many(30_000)
    options: dict[str, Any] = {"compression": compression, "level": 1}
    if compression == "gzip":
        options["member_bytes"] = 10_000
    wanted = written(tmp_path, table, threads=1, **options)
    index = index_of(tmp_path / "x.tfrecord").read_bytes()
    for threads in (2, 4):
        assert written(tmp_path, table, threads=threads, **options) == wanted
        assert index_of(tmp_path / "x.tfrecord").read_bytes() == index
    draw = np.random.default_rng(7)
    for mean in (7, 500, 9000):
        batches, start = [], 0
        while start < table.num_rows:
            length = int(draw.integers(0, 2 * mean))
            batches += table.slice(start, length).to_batches()
            start += length
        again = pa.RecordBatchReader.from_batches(table.schema, batches)
        assert written(tmp_path, again, threads=2, **options) == wanted
        assert index_of(tmp_path / "x.tfrecord").read_bytes() == index


def members_of(data: bytes) -> list[bytes]:
    members = []
    while data:
        inflater = zlib.decompressobj(31)
        members.append(inflater.decompress(data))
        data = inflater.unused_data
    return members


def test_gzip_members_hold_whole_records_and_are_never_empty(tmp_path: Path) -> None:
    table = many(5000)
    plain = written(tmp_path, table)
    data = written(tmp_path, table, compression="gzip", member_bytes=10_000)
    assert gzip.decompress(data) == plain
    members = members_of(data)
    assert len(members) > 10
    for member in members[:-1]:
        lengths = [len(payload) + 16 for payload in frames_of(member)]
        assert sum(lengths) >= 10_000 > sum(lengths[:-1])
    assert members[-1]


def test_shards_without_records(tmp_path: Path) -> None:
    empty = many(0)
    assert written(tmp_path, empty) == b""
    assert len(written(tmp_path, empty, compression="gzip")) == 20
    assert gzip.decompress(written(tmp_path, empty, compression="gzip")) == b""
    assert zlib.decompress(written(tmp_path, empty, compression="zlib")) == b""


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_the_index_says_where_records_are(tmp_path: Path, compression: str | None) -> None:
    from penstock.framing.framings import TFRECORD
    from penstock.framing.index import fitting, sidecar

    table = many(20_000)
    plain = written(tmp_path, table)
    data = written(tmp_path, table, compression=compression)
    index = sidecar.load(str(index_of(tmp_path / "x.tfrecord")), LocalStorage())
    assert (index.num_records, index.data_bytes) == (20_000, len(data))
    assert (index.plain_bytes, index.compression) == (len(plain), compression or "")
    for record in (0, 1, 777, 19_999):
        start, end = int(index.starts[record]), int(index.starts[record + 1])
        assert int(example_of(plain[start + 12 : end - 4])["id"][0]) == record
        assert int(index.checksums[record]) == struct.unpack("<I", plain[end - 4 : end])[0]
    source = LocalStorage().source(str(tmp_path / "x.tfrecord"))
    assert fitting.fits(index, source, TFRECORD)
    if compression:
        assert len(index.points) > 1
        assert fitting.with_checks(list(index.points), source) == index.points
    for point in index.points[:: max(1, len(index.points) // 5)]:
        tail = source.read(point.compressed_bit // 8, source.size)
        inflater = _core.Inflater.at_point(
            compression or "", point.compressed_bit, point.plain_start, point.bytes_before()
        )
        found, _ = inflater.push(tail, True, 1000)
        assert found.to_bytes() == plain[point.plain_start : point.plain_start + len(found)]


def test_unknown_options_are_errors_that_list_the_known(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="member_bytes"):
        write({"x": [1]}, tmp_path / "x.tfrecord", membr_bytes=1)
    with pytest.raises(TypeError, match=r"has no option 'float64'; its options: .*exact"):
        write({"x": [1.0]}, tmp_path / "x.tfrecord", float64="exact")
    for wrong in ({"compression": "snappy"}, {"level": 0}, {"payload": "json"}):
        with pytest.raises(ValueError):
            TFRecordWriteOptions(**wrong)  # type: ignore[arg-type]


def test_columns_of_misaligned_memory_are_written(tmp_path: Path) -> None:
    raw = b"\0" + np.arange(10, dtype=np.int64).tobytes()
    column = pa.Array.from_buffers(pa.int64(), 10, [None, pa.py_buffer(raw).slice(1)])
    assert [f["x"] for f in examples(tmp_path, {"x": column})] == [[n] for n in range(10)]


def test_permuted_tensors_are_written_in_the_order_of_their_axes(tmp_path: Path) -> None:
    """If the permutation were ignored, they would read back as different tensors."""
    permuted = pa.fixed_shape_tensor(pa.int64(), [2, 3], permutation=[1, 0])
    stored = pa.array([range(6), range(6, 12)], pa.list_(pa.int64(), 6))
    table = pa.table({"x": pa.ExtensionArray.from_storage(permuted, stored)})
    pq.write_table(table, tmp_path / "a.parquet")
    path = tmp_path / "a.tfrecord"
    ps.convert(tmp_path / "a.parquet", path, prove=True)
    plain = pa.schema({"x": pa.fixed_shape_tensor(pa.int64(), [3, 2])})
    read = pa.table(ps.open(path, schema=plain))["x"].combine_chunks()
    assert read.to_numpy_ndarray()[1].tolist() == np.arange(6, 12).reshape(2, 3).T.tolist()
    with pytest.raises(ps.SchemaError, match="the permuted axes") as caught:
        ps.open(path, schema=table.schema).take([0])
    assert caught.value.field == "x"


@pytest.mark.parametrize("size", [1, 3])
def test_missing_lists_of_bytes_of_a_fixed_size_are_read_as_they_were(
    size: int, tmp_path: Path
) -> None:
    type_ = pa.list_(pa.binary(2), size)
    rows = [None, [b"ab"] * size, None, [b"cd"] * size]
    table = pa.table({"x": pa.array(rows, type_)})
    ps.write(table, tmp_path / "a.tfrecord")
    assert pa.table(ps.open(tmp_path / "a.tfrecord", schema=table.schema))["x"].to_pylist() == rows


def test_a_value_that_a_message_cannot_hold_names_record_and_field(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    ps.write({"id": [1], "b": [b"\xff\xfe"]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="does not fit string") as raised:
        list(ps.open(tmp_path / "a.tfrecord", schema=descriptor_pb2.FileDescriptorProto).scan())
    assert (raised.value.record, raised.value.field) == (0, "name")
