"""Schemas in TensorFlow's terms: the allowed features, their columns, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import tf_examples as tfe
from example_columns import column, example

import frames
import penstock as ps
import penstock.features as f
from penstock import _core
from penstock.errors import SchemaError, UnsupportedError
from penstock.payloads.example.plans import DecodePlan

# What may be asked for


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("int64", pa.int64()),
        (int, pa.int64()),
        (np.int64, pa.int64()),
        (np.dtype("<i8"), pa.int64()),
        ("float32", pa.float32()),
        (float, pa.float32()),
        (np.float32, pa.float32()),
        ("string", pa.binary()),
        ("bytes", pa.binary()),
        (bytes, pa.binary()),
        (np.bytes_, pa.binary()),
        (np.dtype("S3"), pa.binary()),
        (np.dtype(object), pa.binary()),
        (pa.large_binary(), pa.binary()),
        (str, pa.string()),
        (pa.string(), pa.string()),
    ],
)
def test_a_dtype_is_given_in_any_of_the_usual_ways(dtype: Any, expected: pa.DataType) -> None:
    assert f.VarLen(dtype).dtype == expected


@pytest.mark.parametrize("dtype", ["int32", np.uint8, pa.float64(), bool, "float16", None, 7])
def test_a_dtype_that_an_example_cannot_hold_is_refused(dtype: Any) -> None:
    with pytest.raises(TypeError, match="int64, float32 and bytes"):
        f.VarLen(dtype)


@pytest.mark.parametrize("shape", [[None], [None, 2], [-1]])
def test_a_shape_that_is_not_fixed_is_refused(shape: Any) -> None:
    with pytest.raises(ValueError, match="not fixed"):
        f.FixedLen(shape, "int64")


def test_a_default_has_as_many_values_as_its_shape() -> None:
    assert f.FixedLen([2, 2], "int64", [[1, 2], [3, 4]]).default == (1, 2, 3, 4)
    assert f.FixedLen([2], "float32", np.array([1, 2])).default == (1.0, 2.0)
    assert f.FixedLen([], "string", "é").default == ("é".encode(),)
    assert f.FixedLen([2], "bytes", [b"a\0", b""]).default == (b"a\0", b"")
    for default in (1.0, [1.0], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match="the default has"):
            f.FixedLen([2], "float32", default)
    with pytest.raises(ValueError, match="the default has 2"):
        f.FixedLenSequence([2], "int64", True, [9, 8])


@pytest.mark.parametrize(
    ("dtype", "default"),
    [("int64", 1.5), ("int64", True), ("int64", b"1"), ("bytes", 1)],
)
def test_a_default_of_another_type_is_refused(dtype: str, default: Any) -> None:
    with pytest.raises(TypeError):
        f.FixedLen([], dtype, default)


def test_features_are_values() -> None:
    ragged = f.Ragged("int64", "v", [f.RowLengths("n"), f.UniformRowLength(2)])
    assert ragged == f.Ragged(pa.int64(), "v", (f.RowLengths("n"), f.UniformRowLength(2)))
    assert pickle.loads(pickle.dumps(ragged)) == ragged
    assert len({ragged, f.FixedLen([], int), f.FixedLen((), "int64")}) == 2


def test_schemas_that_tensorflow_refuses_are_refused_in_its_dialect_only() -> None:
    refused: list[dict[str, Any]] = [
        {"x": f.FixedLenSequence([], "int64")},
        {
            "x": f.FixedLenSequence([], "int64", True),
            "y": f.Sequence(f.VarLen("int64")),
        },
        {"x": f.VarLen("int64"), "y": f.Ragged("int64", "x")},
        {"x": f.FixedLen([], "int64"), "y": f.Sparse("i", "x", "int64", 9)},
        {"x": f.Sparse("i", "v", "int64", 9), "y": f.Sequence(f.VarLen("int64"))},
    ]
    for schema in refused:
        assert len(f.plan_fields(schema)) == len(schema)
        with pytest.raises(ValueError, match="TensorFlow"):
            f.plan_fields(schema, "tensorflow")
    with pytest.raises(TypeError, match="feature list"):
        f.Sequence(f.FixedLen([], "int64"))  # type: ignore[arg-type]


# Columns


def test_each_feature_has_its_arrow_type() -> None:
    lists = pa.list_(pa.int64())
    expected: list[tuple[Any, pa.DataType, bool]] = [
        (f.FixedLen([], "int64"), pa.int64(), False),
        (f.FixedLen([], str, ""), pa.string(), False),
        (
            f.FixedLen([2, 3], "float32"),
            pa.fixed_shape_tensor(pa.float32(), [2, 3]),
            False,
        ),
        (f.VarLen("int64"), lists, True),
        (f.FixedLenSequence([], "int64"), lists, False),
        (f.FixedLenSequence([], "int64", True), lists, True),
        (
            f.FixedLenSequence([2, 3], "int64", True),
            pa.list_(pa.list_(pa.list_(pa.int64(), 3), 2)),
            True,
        ),
        (f.Ragged("int64"), lists, True),
        (f.Ragged("int64", "v", [f.RowLengths("n")]), pa.list_(lists), True),
        (f.Sequence(f.VarLen("int64")), pa.list_(lists), True),
        (f.Sequence(f.FixedLenSequence([], "int64")), lists, False),
        (
            f.Sparse("i", "v", "int64", 9),
            pa.struct([("indices", lists), ("values", lists)]),
            True,
        ),
    ]
    for feature, kind, nullable in expected:
        field = f.plan_fields({"x": feature})[0].field
        assert (field.type, field.nullable) == (kind, nullable), feature


def test_fixed_shapes_keep_their_order_and_defaults_fill_gaps() -> None:
    payloads = [example(x=[1, 2, 3, 4]), example(), example(x=[])]
    batch = tfe.decode(payloads, {"x": f.FixedLen([2, 2], "int64", [9, 8, 7, 6])}, "protobuf")
    tensors = batch.column("x").to_numpy_ndarray()
    assert tensors.tolist() == [[[1, 2], [3, 4]], [[9, 8], [7, 6]], [[9, 8], [7, 6]]]


def test_missing_lists_are_null_for_protobuf_and_empty_for_tensorflow() -> None:
    payloads = [example(x=[1]), example(), example(x=[])]
    for feature in (
        f.VarLen("int64"),
        f.Ragged("int64"),
        f.FixedLenSequence([], "int64", True),
    ):
        assert column(payloads, feature) == [[1], None, None]
        assert column(payloads, feature, "tensorflow") == [[1], [], []]


def test_text_is_checked_only_on_request() -> None:
    payloads = [example(x=[b"caf\xc3\xa9"]), example(x=[b"\xff"])]
    assert column(payloads, f.FixedLen([], "string")) == ["café".encode(), b"\xff"]
    assert column(payloads[:1], f.FixedLen([], str)) == ["café"]
    with pytest.raises(_core.KernelError) as caught:
        column(payloads, f.FixedLen([], str))
    assert (caught.value.args[0].record, caught.value.args[0].field) == (1, "x")


@pytest.mark.parametrize("dialect", ["protobuf", "tensorflow"])
@pytest.mark.parametrize(
    ("feature", "bad"),
    [
        (f.FixedLen([], "int64"), example()),
        (f.FixedLen([], "int64"), example(x=[1, 2])),
        (f.FixedLen([2], "int64"), example(x=[1])),
        (f.FixedLen([], "int64"), example(x=[1.0])),
        (f.FixedLen([], "int64", 5), example(x=[b"1"])),
        (f.VarLen("float32"), example(x=[1])),
        (f.FixedLenSequence([2], "int64", True), example(x=[1, 2, 3])),
    ],
)
def test_a_misfit_names_record_and_field(feature: Any, bad: bytes, dialect: str) -> None:
    value = [1.0] if feature.dtype == pa.float32() else [1]
    good = example(x=value * 2 if getattr(feature, "shape", None) == (2,) else value)
    if isinstance(feature, f.FixedLenSequence):
        good = example(x=[1, 2])
    with pytest.raises(_core.KernelError) as caught:
        column([good, good, bad], feature, dialect)
    fault = caught.value.args[0]
    assert (fault.kind, fault.record, fault.field) == ("schema", 2, "x")


def test_several_columns_may_share_a_key() -> None:
    schema: dict[str, Any] = {
        "x": f.VarLen("int64"),
        "rows": f.Ragged("int64", "x", [f.UniformRowLength(2)]),
        "a": f.Sparse("i", "x", "int64", 10),
        "b": f.Sparse("i", "x", "int64", 10, already_sorted=True),
    }
    row = tfe.decode([example(x=[1, 2], i=[7, 3])], schema, "protobuf").to_pylist()[0]
    assert row == {
        "x": [1, 2],
        "rows": [[1, 2]],
        "a": {"indices": [3, 7], "values": [2, 1]},
        "b": {"indices": [7, 3], "values": [1, 2]},
    }


# Whole files


def test_files_open_by_features_in_both_dialects(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(tfe.framed([example(id=[n], x=[n] * n) for n in range(5)]))
    schema: dict[str, Any] = {"id": f.FixedLen([], "int64"), "x": f.VarLen("int64")}
    for dialect, missing in (("protobuf", None), ("tensorflow", [])):
        ds = ps.open(path, schema=schema, dialect=dialect)
        assert ds.schema.field("id").type == pa.int64()
        assert [row["x"] for batch in ds.scan() for row in batch.to_pylist()][:3] == [
            missing,
            [1],
            [2, 2],
        ]
        assert ds[3] == {"id": 3, "x": [3, 3, 3]}
        assert f.describe(ds.schema).splitlines()[1:3] == [
            "    'id': tf.io.FixedLenFeature([], tf.int64),",
            "    'x': tf.io.VarLenFeature(tf.int64),",
        ]


def test_a_misfit_of_several_columns_names_file_and_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    good, bad = example(v=[1, 2], p=[2]), example(v=[1, 2], p=[3])
    path.write_bytes(tfe.framed([good, good, good, bad, good]))
    ds = ps.open(path, schema={"x": f.Ragged("int64", "v", [f.RowLengths("p")])})
    for read in (lambda: list(ds.scan()), lambda: ds.take([4, 3]), lambda: ds[2:5]):
        with pytest.raises(SchemaError, match="do not match") as caught:
            read()
        error = caught.value
        assert (error.file, error.record, error.field) == (str(path), 3, "x")


# Descriptions


def test_features_print_as_tensorflow_spells_them() -> None:
    schema: dict[str, Any] = {
        "id": f.FixedLen([], "int64"),
        "box": f.FixedLen([2, 2], "float32", [0, 0, 1, 1]),
        "name": f.FixedLen([], str, "?"),
        "var": f.VarLen("int64"),
        "seq": f.FixedLenSequence([3], "float32", True, 9),
        "rag": f.Ragged("int64", "v", [f.RowLengths("n"), f.UniformRowLength(2)], "int64", True),
        "sp": f.Sparse(["i", "j"], "w", "float32", [10, 5], already_sorted=True),
    }
    assert f.describe(DecodePlan(f.plan_fields(schema), "protobuf").schema).splitlines() == [
        "{",
        "    'id': tf.io.FixedLenFeature([], tf.int64),",
        "    'box': tf.io.FixedLenFeature([2, 2], tf.float32, default_value=[0.0, 0.0, 1.0, 1.0]),",
        "    'name': tf.io.FixedLenFeature([], tf.string, default_value=b'?'),",
        "    'var': tf.io.VarLenFeature(tf.int64),",
        (
            "    'seq': tf.io.FixedLenSequenceFeature([3], tf.float32, allow_missing=True, "
            "default_value=9.0),"
        ),
        (
            "    'rag': tf.io.RaggedFeature(tf.int64, value_key='v', partitions=["
            "tf.io.RaggedFeature.RowLengths('n'), tf.io.RaggedFeature.UniformRowLength(2)], "
            "row_splits_dtype=tf.int64, validate=True),"
        ),
        (
            "    'sp': tf.io.SparseFeature(index_key=['i', 'j'], value_key='w', dtype=tf.float32, "
            "size=[10, 5], already_sorted=True),"
        ),
        "}",
    ]


def test_lists_without_a_value_leave_the_others_described() -> None:
    lists = {"penstock.feature_list": "1"}
    empty = pa.list_(pa.list_(pa.null()))
    schema = pa.schema(
        [
            ("c", pa.list_(pa.null())),
            pa.field("x", empty, metadata=lists),
            pa.field("y", pa.list_(pa.int64()), metadata=lists),
        ]
    )
    assert f.describe(schema).splitlines() == [
        "context_features = {",
        "    # 'c': no value was seen",
        "}",
        "sequence_features = {",
        "    # 'x': no value was seen",
        "    'y': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),",
        "}",
    ]


def test_a_schema_without_features_is_described_by_its_types() -> None:
    tensor = pa.fixed_shape_tensor(pa.float32(), [2, 2])
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("maybe", pa.int64()),
            pa.field("box", tensor, nullable=False),
            ("flat", pa.list_(pa.float32(), 3)),
            ("tags", pa.list_(pa.string())),
            ("nothing", pa.null()),
            pa.field("context/x", pa.list_(pa.binary()), metadata={"penstock.key": "x"}),
            pa.field(
                "feature_lists/x",
                pa.list_(pa.list_(pa.int64())),
                metadata={"penstock.key": "x", "penstock.feature_list": "1"},
            ),
            pa.field("f", pa.list_(pa.int64()), metadata={"penstock.feature_list": "1"}),
        ]
    )
    assert f.describe(schema).splitlines() == [
        "context_features = {",
        "    'id': tf.io.FixedLenFeature([], tf.int64),",
        "    'maybe': tf.io.VarLenFeature(tf.int64),",
        "    'box': tf.io.FixedLenFeature([2, 2], tf.float32),",
        "    'flat': tf.io.VarLenFeature(tf.float32),",
        "    'tags': tf.io.VarLenFeature(tf.string),",
        "    # 'nothing': no value was seen",
        "    'x': tf.io.VarLenFeature(tf.string),",
        "}",
        "sequence_features = {",
        "    'x': tf.io.VarLenFeature(tf.int64),",
        "    'f': tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True),",
        "}",
    ]
    with pytest.raises(UnsupportedError, match="no TensorFlow feature"):
        f.describe(pa.schema([("x", pa.float64())]))


def test_a_payload_that_is_not_such_a_message_is_reported_with_its_place(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    kind = descriptor_pb2.FieldDescriptorProto
    payloads = [kind(name=f"n{n}").SerializeToString() for n in range(5)]
    first, path = tmp_path / "0.tfrecord", str(tmp_path / "1.tfrecord")
    ps.write(payloads[:2], first)
    ps.write([*payloads[:3], b"\xff\xff", payloads[4]], path)
    byte = 3 * (len(payloads[0]) + 16) + 12
    how: dict[str, Any] = {"schema": kind, "columns": ["name"]}
    asked: list[Callable[[ps.Dataset], object]] = [
        lambda d: list(d.scan()),
        lambda d: d.take([6, 5]),
    ]
    for read in asked:
        with pytest.raises(ps.FormatError, match=r"not a google\.protobuf") as caught:
            read(ps.open([str(first), path], **how))
        error = caught.value
        assert (error.file, error.record, error.byte) == (path, 3, byte)
    dataset = ps.open([str(first), path], damage="skip", **how)
    assert sum(batch.num_rows for batch in dataset.scan()) == 6
    (region,) = dataset.damage
    assert (region.file, region.start_byte, region.num_records) == (path, byte - 12, 1)


# The parts of a SequenceExample, by name


def _sequence(number: int) -> bytes:
    """`k` is in both parts, `c` in the context only, and `l` in the lists only."""

    def entry(key: bytes, value: bytes) -> bytes:
        return frames.message(1, frames.message(1, key) + frames.message(2, value))

    def listed(*rows: list[int]) -> bytes:
        return b"".join(frames.message(1, frames.feature(row)) for row in rows)

    context = entry(b"k", frames.feature([number])) + entry(b"c", frames.feature([number + 1]))
    lists = entry(b"k", listed([1], [2, 3])) + entry(b"l", listed([number], [number + 1]))
    return frames.message(1, context) + frames.message(2, lists)


@pytest.fixture
def sequences(tmp_path: Path) -> Path:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([_sequence(number) for number in range(9)]))
    return path


INTS = pa.list_(pa.int64())


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"feature_lists/k": f.Sequence(f.VarLen("int64"))}, [[1], [2, 3]]),
        ({"context/k": f.VarLen("int64"), "c": f.FixedLen([], "int64")}, [5]),
        ({"context/k": f.FixedLen([], "int64")}, 5),
        ({"l": f.Sequence(f.VarLen("int64"))}, [[5], [6]]),
        (pa.schema([("context/k", pa.int32())]), 5),
        (pa.schema([("feature_lists/k", pa.list_(INTS))]), [[1], [2, 3]]),
        (pa.schema([("feature_lists/l", INTS)]), [5, 6]),
        (pa.schema([("l", pa.list_(INTS))]), [[5], [6]]),
        (pa.schema([("l", pa.list_(pa.list_(pa.int64(), 1)))]), [[5], [6]]),
    ],
)
def test_a_part_of_a_sequence_example_is_called_by_its_name_or_its_type(
    sequences: Path, schema: Any, expected: Any
) -> None:
    ds = ps.open(sequences, schema=schema)
    assert next(iter(ds[5].values())) == expected
    assert [next(iter(row.values())) for row in ds][5] == expected


@pytest.mark.parametrize(
    ("schema", "hint"),
    [
        ({"l": f.VarLen("int64")}, "Sequence"),
        (pa.schema([("l", INTS)]), "list of lists"),
        (pa.schema([("l", pa.int64())]), "list of lists"),
        (pa.schema([("c", pa.list_(INTS))]), "context/c"),
        ({"feature_lists/k": f.VarLen("int64")}, "Sequence"),
        (pa.schema([("feature_lists/l", pa.int64())]), "a list in each record"),
    ],
)
def test_a_key_of_the_other_part_is_not_a_null(sequences: Path, schema: Any, hint: str) -> None:
    with pytest.raises(SchemaError, match=hint):
        list(ps.open(sequences, schema=schema).scan())
    with pytest.raises(SchemaError, match=hint):
        _ = ps.open(sequences, schema=schema)[5]


def test_a_key_that_looks_like_a_prefix_needs_its_full_name(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([frames.example({"context/k": [3], "k": [4]})]))
    assert ps.open(path, schema={"context/k": f.FixedLen([], "int64")})[0] == {"context/k": 3}
    assert ps.open(path, schema=pa.schema([("context/k", pa.int64())]))[0] == {"context/k": 3}
    assert ps.open(path, schema=pa.schema([("x", pa.int64())]))[0] == {"x": None}


def test_a_description_for_tensorflow_holds_for_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ps.write([{"a": 1, "id": 0}, {"a": 2, "id": 1}], tmp_path / "s-00000-of-00002.tfrecord")
    ps.write([{"b": [1, 2], "id": 2}], tmp_path / "s-00001-of-00002.tfrecord")
    found = ps.schemas(f"{tmp_path}/s@2.tfrecord")
    assert "'a': tf.io.VarLenFeature(tf.int64)" in ps.features.describe(found.schema)
