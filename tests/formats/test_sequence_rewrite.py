"""A feature list stays a feature list when its records are written again; results are compared with TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf = pytest.importorskip("tensorflow", reason="TensorFlow is the oracle of these tests")

import penstock as ps  # noqa: E402
from penstock.features import FixedLen, FixedLenSequence, Sequence  # noqa: E402

FILE = "video.tfrecord"
NUM_RECORDS = 40
LISTS = {"penstock.feature_list": "1"}


def ints(*values: int) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def floats(*values: float) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def strings(*values: bytes) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def sequence(context: dict[str, Any], lists: dict[str, list[Any]]) -> Any:
    """A SequenceExample. A part without features is left out."""
    features = {key: tf.train.FeatureList(feature=frames) for key, frames in lists.items()}
    return tf.train.SequenceExample(
        context=tf.train.Features(feature=context) if context else None,
        feature_lists=tf.train.FeatureLists(feature_list=features) if lists else None,
    )


def video(n: int) -> Any:
    """Feature lists with one value per frame, several per frame, and none, and lists that some records lack."""
    lists = {
        "frame": [strings(b"frame %d of %d" % (j, n)) for j in range(n % 4)],
        "at": [floats(j / 2) for j in range(n % 4)],
        "tokens": [ints(*range(j)) for j in range(n % 3)],
    }
    if n % 5 == 0:
        del lists["at"]
    return sequence({"id": ints(n), "tags": strings(*[b"tag"] * (n % 3))}, lists)


def both(n: int) -> Any:
    """A key that is both in the context and in the feature lists."""
    lists = {"both": [ints(n, j) for j in range(n % 3)], "one": [ints(j) for j in range(n % 3)]}
    return sequence({"id": ints(n), "both": ints(-n), "one": floats(n)}, lists)


MAKERS: dict[str, Callable[[int], Any]] = {"video": video, "both": both}


def made(folder: Path, make: Callable[[int], Any] = video, num_records: int = NUM_RECORDS) -> Path:
    path = folder / FILE
    with tf.io.TFRecordWriter(str(path)) as writer:
        for n in range(num_records):
            writer.write(make(n).SerializeToString())
    return path


def payloads(path: Any) -> list[bytes]:
    return [record.numpy() for record in tf.data.TFRecordDataset(str(path))]


def messages(path: Any) -> list[Any]:
    return [tf.train.SequenceExample.FromString(payload) for payload in payloads(path)]


def parsed(path: Any) -> list[Any]:
    """The videos in a file, parsed by TensorFlow one SequenceExample at a time."""
    context = {"id": tf.io.FixedLenFeature([], tf.int64), "tags": tf.io.RaggedFeature(tf.string)}
    lists = {
        "frame": tf.io.FixedLenSequenceFeature([], tf.string),
        "at": tf.io.FixedLenSequenceFeature([], tf.float32, allow_missing=True),
        "tokens": tf.io.RaggedFeature(tf.int64),
    }

    def plain(tensor: Any) -> Any:
        return tensor.to_list() if hasattr(tensor, "to_list") else tensor.numpy().tolist()

    found = []
    for payload in payloads(path):
        parts = tf.io.parse_single_sequence_example(payload, context, lists)
        found.append([{key: plain(value) for key, value in part.items()} for part in parts])
    return found


def check_same(old: Path, new: Path) -> None:
    assert messages(new) == messages(old)
    assert ps.diff(old, new).equal


@pytest.mark.parametrize("make", MAKERS)
def test_feature_lists_stay_where_they_are_when_written_again(tmp_path: Path, make: str) -> None:
    old, new = made(tmp_path, MAKERS[make]), tmp_path / "new.tfrecord"
    ps.write(ps.open(old), new)
    check_same(old, new)
    ps.write(ps.open(old).scan(batch_records=7), new, overwrite=True)
    check_same(old, new)
    assert ps.open(new).schema.equals(
        ps.open(old).schema.with_metadata(ps.open(new).schema.metadata), check_metadata=True
    )


def test_a_caller_that_asks_for_examples_gets_plain_lists(tmp_path: Path) -> None:
    old, new = made(tmp_path), tmp_path / "new.tfrecord"
    ps.write(ps.open(old, columns=["id", "frame"]), new, payload="example")
    for n, payload in enumerate(payloads(new)):
        frames = [b"frame %d of %d" % (j, n) for j in range(n % 4)]
        assert tf.train.Example.FromString(payload).features.feature == {
            "id": ints(n),
            "frame": strings(*frames),
        }


def test_tensorflow_parses_what_was_written_again_alike(tmp_path: Path) -> None:
    old, new = made(tmp_path), tmp_path / "new.tfrecord"
    ps.write(ps.open(old), new)
    assert parsed(new) == parsed(old)


def test_feature_lists_read_by_a_schema_stay_feature_lists(tmp_path: Path) -> None:
    old, new = made(tmp_path), tmp_path / "new.tfrecord"
    one = Sequence(FixedLenSequence([], "string"))
    ps.write(ps.open(old, schema={"id": FixedLen([], "int64"), "frame": one}), new)
    for before, after in zip(messages(old), messages(new), strict=True):
        lists = before.feature_lists.feature_list
        assert after.feature_lists.feature_list == {"frame": lists["frame"]}
        assert after.context.feature == {"id": before.context.feature["id"]}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("through", ["through.parquet", "through.arrow"])
def test_feature_lists_come_back_from_other_formats(
    tmp_path: Path, make: str, through: str
) -> None:
    old, new = made(tmp_path, MAKERS[make]), tmp_path / "new.tfrecord"
    ps.write(ps.open(old), tmp_path / through)
    ps.write(ps.open(tmp_path / through), new)
    check_same(old, new)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("through", [None, "through.parquet", "through.arrow"])
def test_conversion_keeps_feature_lists(tmp_path: Path, make: str, through: str | None) -> None:
    old, new = made(tmp_path, MAKERS[make]), tmp_path / "new.tfrecord"
    if through is None:
        ps.convert(old, new, where="id >= 0", prove=True)
    else:
        ps.convert(old, tmp_path / through, prove=True)
        ps.convert(tmp_path / through, new, prove=True)
    check_same(old, new)


def test_a_renamed_feature_list_stays_a_feature_list(tmp_path: Path) -> None:
    old, new = made(tmp_path), tmp_path / "new.tfrecord"
    ps.convert(old, new, rename={"frame": "picture"}, prove=True)
    for before, after in zip(messages(old), messages(new), strict=True):
        lists = before.feature_lists.feature_list
        lists["picture"].CopyFrom(lists["frame"])
        del lists["frame"]
        assert after == before


@pytest.mark.parametrize("columns", [["context/both"], ["feature_lists/both"], ["context/one"]])
def test_one_half_of_a_key_that_is_in_both_parts_keeps_its_key(
    tmp_path: Path, columns: list[str]
) -> None:
    old, new = made(tmp_path, both), tmp_path / "new.tfrecord"
    ps.write(ps.open(old, columns=columns), new)
    part, key = columns[0].split("/")
    for before, after in zip(messages(old), messages(new), strict=True):
        if part == "context":
            assert after == sequence({key: before.context.feature[key]}, {})
        else:
            frames = list(before.feature_lists.feature_list[key].feature)
            assert after == sequence({}, {key: frames})


def test_a_feature_list_takes_a_list_for_each_record(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("frame", pa.int64(), metadata=LISTS)])
    path = tmp_path / "x.tfrecord"
    with pytest.raises(ps.SchemaError, match=r"frame.*feature list.*a list in each record"):
        ps.write(pa.table({"frame": [1]}, schema=schema), path)
    assert not list(tmp_path.iterdir())
    # A column of nulls has no value that could have a different type.
    schema = pa.schema([pa.field("frame", pa.null(), metadata=LISTS)])
    ps.write(pa.table({"frame": [None]}, schema=schema), path)
    assert payloads(path) == [b"\x12\0"]


def test_two_columns_of_one_feature_list_are_refused(tmp_path: Path) -> None:
    fields = [
        pa.field("frame", pa.list_(pa.int64()), metadata=LISTS),
        pa.field("feature_lists/frame", pa.list_(pa.int64())),
    ]
    table = pa.table({field.name: [[1]] for field in fields}, schema=pa.schema(fields))
    with pytest.raises(ps.SchemaError, match="two columns"):
        ps.write(table, tmp_path / "x.tfrecord")
    assert not list(tmp_path.iterdir())


def test_tensors_are_cut_into_frames_along_their_first_axis(tmp_path: Path) -> None:
    tensors = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    column = pa.FixedShapeTensorArray.from_numpy_ndarray(tensors)
    turned = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), [4, 3], permutation=[1, 0]),
        pa.FixedSizeListArray.from_arrays(
            pa.array(np.ascontiguousarray(tensors.transpose(0, 2, 1)).ravel()), 12
        ),
    )
    flat = pa.FixedShapeTensorArray.from_numpy_ndarray(tensors[:, :, 0].copy())
    arrays = {"rows": column, "turned": turned, "flat": flat}
    fields = [pa.field(name, array.type, metadata=LISTS) for name, array in arrays.items()]
    table = pa.table(list(arrays.values()), schema=pa.schema(fields))
    ps.write(table, tmp_path / "x.tfrecord")
    for wanted, found in zip(tensors, messages(tmp_path / "x.tfrecord"), strict=True):
        rows = [floats(*row) for row in wanted.tolist()]
        firsts = [floats(row[0]) for row in wanted.tolist()]
        assert found == sequence({}, {"rows": rows, "turned": rows, "flat": firsts})


@pytest.mark.parametrize("num_records", [NUM_RECORDS, 1500])
def test_appended_lists_have_the_kind_of_the_files_lists(tmp_path: Path, num_records: int) -> None:
    path = made(tmp_path, video, num_records)
    before = payloads(path)
    names = ps.open(path).schema.names
    new = {
        "id": [77],
        "tags": [[b"new"]],
        "frame": [[b"x", b"y"]],
        "at": [None],
        "tokens": [[[1], [2, 3]]],
    }
    ps.append(new, path)
    assert payloads(path)[:num_records] == before
    assert messages(path)[num_records] == sequence(
        {"id": ints(77), "tags": strings(b"new")},
        {"frame": [strings(b"x"), strings(b"y")], "tokens": [ints(1), ints(2, 3)]},
    )
    assert ps.open(path).schema.names == names
    assert ps.open(path)[num_records] == {name: values[0] for name, values in new.items()}


def test_appending_a_dataset_to_a_dataset_of_its_kind_joins_them(tmp_path: Path) -> None:
    for make in MAKERS.values():
        path = made(tmp_path, make)
        (tmp_path / "more").mkdir(exist_ok=True)
        more = made(tmp_path / "more", make, 25)
        ps.append(ps.open(more), path)
        assert messages(path) == [make(n) for n in [*range(NUM_RECORDS), *range(25)]]
    # In one of its two parts, a key may have no value.
    new = {"context/both": [None], "feature_lists/both": [[[5]]], "id": [1]}
    ps.append(new | {"context/one": [2.0], "feature_lists/one": [None]}, path)
    assert messages(path)[-1] == sequence({"id": ints(1), "one": floats(2)}, {"both": [ints(5)]})


def test_a_new_shard_has_the_feature_lists_of_the_other_shards(tmp_path: Path) -> None:
    made(tmp_path).rename(tmp_path / "part-00000.tfrecord")
    new = {"id": [1], "tags": [[b"t"]], "frame": [[b"x"]], "at": [[0.5]], "tokens": [[[1]]]}
    (path,) = ps.append(new, tmp_path / "part-*.tfrecord").paths
    lists = {"frame": [strings(b"x")], "at": [floats(0.5)], "tokens": [ints(1)]}
    assert messages(path) == [sequence({"id": ints(1), "tags": strings(b"t")}, lists)]


@pytest.mark.parametrize(
    ("new", "message"),
    [
        ({"tags": [[[b"a"], [b"b"]]]}, "tags.*in the context"),
        ({"feature_lists/tags": [[b"a"]]}, "tags.*in the context"),
        ({"context/frame": [[b"a"]]}, "frame.*in the feature lists"),
        ({"frame": [b"a"]}, "frame.*a list in each record"),
        ({"frame": [[[b"a", b"b"]]]}, "frame"),
    ],
)
def test_a_feature_that_would_land_in_another_part_is_not_appended(
    tmp_path: Path, new: dict[str, Any], message: str
) -> None:
    path = made(tmp_path)
    before = path.read_bytes()
    rest = {"id": [1], "tags": [[b"t"]], "frame": [[b"x"]], "at": [[0.5]], "tokens": [[[1]]]}
    given = {name.rpartition("/")[2] for name in new}
    rest = {name: values for name, values in rest.items() if name not in given}
    with pytest.raises(ps.SchemaError, match=message):
        ps.append(rest | new, path)
    assert path.read_bytes() == before


def test_feature_lists_are_appended_to_a_file_without_records(tmp_path: Path) -> None:
    (tmp_path / "more").mkdir()
    path, more = made(tmp_path, video, 0), made(tmp_path / "more")
    ps.append(ps.open(more, columns=["frame"]).scan(), path)
    ps.write(pa.table({"record": []}), path, overwrite=True)
    schema = pa.schema([pa.field("record", pa.list_(pa.int64()), metadata=LISTS)])
    ps.append(pa.table({"record": [[1]]}, schema=schema), path)
    assert messages(path) == [sequence({}, {"record": [ints(1)]})]


def test_raw_records_with_a_list_in_the_context_are_not_appended(tmp_path: Path) -> None:
    path = made(tmp_path)
    context = {"id": ints(1), "tags": strings(), "frame": strings(b"x")}
    wrong = sequence(context, {"at": [floats(1)], "tokens": [ints(1)]})
    with pytest.raises(ps.SchemaError, match=r"frame.*in the feature lists"):
        ps.append([wrong.SerializeToString()], path)


@pytest.mark.parametrize("infer", [1000, "all"])
@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
@pytest.mark.parametrize(
    "rows", [[[[1], [2]], [[3], [4, 5]]], [[[], []], [[3], [4]]], [[[1]], [[]]]]
)
def test_files_whose_feature_lists_look_different_are_read_together(
    rows: list[Any], order: list[int], infer: int | str, tmp_path: Path
) -> None:
    """In one file each frame has one value; in the other, frames have several values or none."""
    paths: list[str] = []
    for number, row in enumerate(rows):
        paths.append(str(tmp_path / f"{number}.tfrecord"))
        with tf.io.TFRecordWriter(paths[-1]) as writer:
            record = sequence({}, {"x": [ints(*frame) for frame in row]})
            writer.write(record.SerializeToString())
    dataset = ps.open([paths[number] for number in order], infer_records=infer)
    read = [record["x"] for batch in dataset.scan() for record in batch.to_pylist()]
    assert read == [rows[number] for number in order]
