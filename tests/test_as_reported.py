"""What strangers found when they tried every line of the promises: each a plain test."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tarfile
import textwrap
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import frames
import penstock as ps
from penstock.formats import arrow_batches
from penstock.framing.forward import Inflation
from reading import index_of


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress])
@pytest.mark.parametrize("empty", [0, 1])
def test_a_set_may_have_compressed_shards_without_records(
    tmp_path: Path, compress: Callable[[bytes], bytes], empty: int
) -> None:
    """As Beam writes them, under names that say nothing of the format."""
    for shard in (0, 1):
        data = b"" if shard == empty else frames.file_of([b"a", b"b"])
        (tmp_path / f"x-0000{shard}-of-00002").write_bytes(compress(data))
    assert len(ps.open(f"{tmp_path}/x@2", index="never", raw=True)) == 2
    assert ps.verify(f"{tmp_path}/x@2").ok


def test_a_folder_for_indexes_may_be_a_path_that_is_not_there_yet(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=False)
    assert ps.open(path, index=tmp_path / "new")[1] == {"a": 2}
    assert len(list((tmp_path / "new").iterdir())) == 1
    words: list[Any] = [None, 5, False, b"new"]
    for word in words:
        with pytest.raises(TypeError, match=r"'auto', 'beside', 'never' or a folder|by text"):
            ps.open(path, index=word)
    with pytest.raises(NotADirectoryError, match="or a folder"):
        ps.open(path, index=str(path))


def test_a_condition_on_a_field_that_is_not_there_names_those_that_are(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="no such column; there are: a"):
        ps.convert(tmp_path / "a.tfrecord", tmp_path / "b.parquet", where="nope > 3")
    assert not (tmp_path / "b.parquet").exists()


def test_a_value_that_a_message_cannot_hold_names_record_and_field(tmp_path: Path) -> None:
    from google.protobuf import descriptor_pb2

    ps.write({"id": [1], "b": [b"\xff\xfe"]}, tmp_path / "a.tfrecord")
    with pytest.raises(ps.SchemaError, match="does not fit string") as raised:
        list(ps.open(tmp_path / "a.tfrecord", schema=descriptor_pb2.FileDescriptorProto).scan())
    assert (raised.value.record, raised.value.field) == (0, "name")


def test_a_limit_met_by_an_index_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([b"", b"1234"]))
    ps.index(path)
    with pytest.raises(ps.LimitError) as raised:
        ps.open(path, raw=True, limits={"record_bytes": 3}).take([0, 1])
    assert (raised.value.file, raised.value.record, raised.value.byte) == (str(path), 1, 16)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(5, "in the middle")])
def test_an_arrow_stream_is_no_shorter_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    path = tmp_path / "a.arrows"
    batch = pa.record_batch({"n": range(10)})
    with pa.ipc.new_stream(path, batch.schema) as writer:
        for _ in range(5):
            writer.write_batch(batch)
    dataset = ps.open(path)
    walk = arrow_batches.walk_stream

    def broken(*given: Any) -> Any:
        for number, message in enumerate(walk(*given)):
            if number == 3:
                raise error
            yield message

    with monkeypatch.context() as patch:
        patch.setattr(arrow_batches, "walk_stream", broken)
        with pytest.raises(type(error)):
            len(dataset)
    assert len(dataset) == 50
    assert sum(batch.num_rows for batch in dataset.scan()) == 50


def test_the_index_of_an_empty_file_fits_no_other_of_its_size(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    tarfile.open(path, "w").close()
    assert len(ps.open(path, index="beside")) == 0
    assert index_of(path).exists()
    size = path.stat().st_size
    ps.write({"__key__": ["a", "b"], "txt": ["1", "2"]}, tmp_path / "b.tar")
    os.replace(tmp_path / "b.tar", path)
    assert path.stat().st_size == size
    assert len(ps.open(path)) == 2
    assert ps.verify(path).num_records == 2


def test_ctrl_c_while_inflating_leaves_the_dataset_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(frames.file_of([b"%8d" % n for n in range(100_000)])))
    dataset = ps.open(path, raw=True, index="never")
    push = Inflation._push

    def interrupted(self: Inflation, *given: Any) -> Any:
        """The signal comes when input has been taken, and before that is noted."""
        before = self._input, self._more
        push(self, *given)
        self._input, self._more = before
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Inflation, "_push", interrupted)
        with pytest.raises(KeyboardInterrupt):
            list(dataset.scan(threads=1))
    assert sum(batch.num_rows for batch in dataset.scan()) == 100_000


def test_a_forked_child_waits_for_no_thread_of_its_parent(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": np.arange(6_000_000)}), path, row_group_size=6_000_000)
    code = """
        import os, sys, threading
        import penstock as ps
        dataset = ps.open(sys.argv[1])
        reader = dataset.files.reader(0)
        chunks = list(reader.chunks())
        assert len(chunks) > 1
        reader._pending[(0, ("n",))] = [1]  # as a thread that is at work has it when another forks
        child = os.fork()
        if not child:
            rows = sum(batch.num_rows for batch in dataset.scan(threads=2))
            os._exit(0 if rows == 6_000_000 else 1)
        print(os.waitpid(child, 0)[1])
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "0\n", done.stderr


@pytest.mark.parametrize(
    "metadata",
    [
        {"penstock.inferred_from": "all " + "9" * 5000 + " records of x"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "{{"},
        {"penstock.inferred_from": "all 2 records of x", "penstock.in_every_record": "3"},
    ],
)
def test_a_stored_schema_is_not_inferred_whatever_its_metadata_says(
    tmp_path: Path, metadata: dict[str, str]
) -> None:
    table = pa.table({"a": [1, 2]})
    pq.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    pq.write_table(table.append_column("b", [[3, 4]]), tmp_path / "b.parquet")
    dataset = ps.open([tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert [row["a"] for row in dataset] == [1, 2, 1, 2]


def test_a_folder_for_indexes_is_made_by_every_verb(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1, 2]}, path, index=tmp_path / "of_write")
    ps.convert(path, tmp_path / "b.tfrecord", index=str(tmp_path / "of_convert"))
    ps.repair(path, into=tmp_path / "c.tfrecord", index=str(tmp_path / "of_repair"))
    ps.index(path, folder=tmp_path / "of_index")
    ps.append({"a": [3]}, path, index=str(tmp_path / "of_append"))
    made = sorted(entry.name for entry in tmp_path.iterdir() if entry.is_dir())
    assert made == ["of_append", "of_convert", "of_index", "of_repair", "of_write"]
    assert all(len(list((tmp_path / name).iterdir())) == 1 for name in made)


@pytest.mark.parametrize("window_bits", range(9, 16))
@pytest.mark.parametrize("level", [0, 1, 9])
def test_zlib_files_of_any_window_are_told_by_their_bytes(
    tmp_path: Path, window_bits: int, level: int
) -> None:
    path = tmp_path / "x"
    payloads = [b"%d" % number * 50 for number in range(500)]
    engine = zlib.compressobj(level, zlib.DEFLATED, window_bits)
    path.write_bytes(engine.compress(frames.file_of(payloads)) + engine.flush())
    assert [row["record"] for row in ps.open(path, raw=True)] == payloads
    assert len(ps.open(path, raw=True, compression="zlib")) == 500
    assert ps.verify(path).ok


def test_numbers_beyond_any_integer_are_those_of_no_record(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    for wrong in (2**70, -(2**70)):
        with pytest.raises(ps.RecordIndexError, match=f"no record {wrong} among 2"):
            dataset.take([0, wrong])
        with pytest.raises(ps.RecordIndexError):
            dataset[wrong]
    assert dataset.take(np.array([1, 0], dtype=object)).column(0).to_pylist() == [2, 1]


@pytest.mark.parametrize("key", [b"penstock.key", b"other", b"\xff"])
@pytest.mark.parametrize("ending", ["tfrecord", "msgpack", "tar", "arrow", "npz"])
def test_metadata_of_a_field_may_be_any_bytes(tmp_path: Path, key: bytes, ending: str) -> None:
    field = pa.field("a", pa.int64(), metadata={key: b"\xff\xfe"})
    pq.write_table(pa.table([[1, 2]], schema=pa.schema([field])), tmp_path / "a.parquet")
    ps.convert(tmp_path / "a.parquet", tmp_path / f"b.{ending}")
    assert [row["a"] for row in ps.open(tmp_path / f"b.{ending}")] == [1, 2]


def test_shards_of_whole_numbers_and_of_floats_have_no_type_in_common(tmp_path: Path) -> None:
    for shard, value in enumerate([1, 1.5]):
        ps.write([{"a": value}] * 3, tmp_path / f"s-0000{shard}-of-00002", format="tfrecord")
    with pytest.raises(ps.SchemaError, match="types that have none in common"):
        ps.open(f"{tmp_path}/s@2", infer_records="all")
    dataset = ps.open(f"{tmp_path}/s@2")
    assert dataset.schema.field("a").type == pa.int64()
    with pytest.raises(ps.SchemaError, match="holds float values"):
        list(dataset)


def test_two_sets_of_one_name_are_not_read_as_one(tmp_path: Path) -> None:
    ps.write({"i": range(7)}, tmp_path / "x.tfrecord", num_shards=3)
    ps.write({"i": [100, 101]}, tmp_path / "x.tfrecord", num_shards=2)
    for source in (f"{tmp_path}/x@*.tfrecord", str(tmp_path), f"{tmp_path}/x-*"):
        with pytest.raises(ValueError, match=r"x@2\.tfrecord and .*x@3\.tfrecord are 2 sets"):
            ps.open(source)
    assert len(ps.open(f"{tmp_path}/x@2.tfrecord")) == 2
    (tmp_path / "x-00001-of-00003.tfrecord").unlink()
    (tmp_path / "x-00000-of-00002.tfrecord").unlink()
    (tmp_path / "x-00001-of-00002.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match=r"x@3\.tfrecord: shard 1 of 3 is missing;"):
        ps.open(tmp_path)


def test_a_description_for_tensorflow_holds_for_all_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ps.write([{"a": 1, "id": 0}, {"a": 2, "id": 1}], tmp_path / "s-00000-of-00002.tfrecord")
    ps.write([{"b": [1, 2], "id": 2}], tmp_path / "s-00001-of-00002.tfrecord")
    found = ps.schemas(f"{tmp_path}/s@2.tfrecord")
    assert "'a': tf.io.VarLenFeature(tf.int64)" in ps.features.describe(found.schema)


@pytest.mark.parametrize("said", ["gzip", "zlib", ""])
def test_what_is_said_of_the_compression_counts_with_an_index_as_well(
    tmp_path: Path, said: str
) -> None:
    true = "" if said else "gzip"
    path = tmp_path / "a.tfrecord"
    ps.write({"i": range(10)}, path, compression=true or None)
    assert index_of(tmp_path / "a.tfrecord").exists()
    with pytest.raises(ps.FormatError):
        ps.open(path, compression=said, raw=True).take([0, 5])
    assert ps.open(path).take([0, 5])["i"].to_pylist() == [0, 5], "the index is as it was"


@pytest.mark.parametrize("window_bits", [9, 12, 15])
def test_empty_zlib_files_of_any_window(tmp_path: Path, window_bits: int) -> None:
    engine = zlib.compressobj(6, zlib.DEFLATED, window_bits)
    (tmp_path / "z.bin").write_bytes(engine.compress(b"") + engine.flush())
    assert len(ps.open(tmp_path / "z.bin", raw=True, index="never")) == 0


def test_arrays_without_a_dimension_are_scalars(tmp_path: Path) -> None:
    ps.write([{"a": np.array(3)}, {"a": np.array(4)}] * 2000, tmp_path / "a.parquet")
    dataset = ps.open(tmp_path / "a.parquet")
    assert dataset.schema.field("a").type == pa.int64()
    assert dataset[3999] == {"a": 4}


def test_what_has_no_order_or_no_path_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"a": [1], "b": [2]}, path)
    with pytest.raises(TypeError, match="a set does not have"):
        ps.open({str(path)})
    with pytest.raises(TypeError, match="a set has no order"):
        ps.open(path, columns={"a", "b"})  # type: ignore[arg-type]
    with path.open("rb") as file, pytest.raises(TypeError, match="open file is no path"):
        ps.open(file)
    for limit in (-1, "1MB", 1.5):
        with pytest.raises((TypeError, ValueError), match="the limit record_bytes"):
            ps.open(path, limits={"record_bytes": limit})  # type: ignore[dict-item]
    for word in ("NEVER", "Auto", ""):
        with pytest.raises(ValueError, match="'never'"):
            ps.open(path, index=word)


def test_truth_values_and_floats_are_no_record_numbers(tmp_path: Path) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord")
    wrong: list[Any] = [[1.0], np.array([1.0]), [True], np.array([True], object), ["1"], [0, None]]
    for records in wrong:
        with pytest.raises(TypeError, match="record numbers"):
            dataset.take(records)
    big: list[Any] = [[1 << 63, -1], [np.int64(1), 1 << 70]]
    for records in big:
        with pytest.raises(ps.RecordIndexError):
            dataset.take(records)
    assert len(dataset.take([])) == 0


def test_take_decodes_only_the_columns_asked_for(tmp_path: Path) -> None:
    for name in ("x.tfrecord", "x.parquet"):
        ps.write({"a": [1, 2, 3], "b": [4, 5, 6]}, tmp_path / name)
        ds = ps.open(tmp_path / name)
        assert ds.take([2, 0], columns=["b"]).to_pydict() == {"b": [6, 4]}
        assert ds.take([], columns=["b"]).schema.names == ["b"]
        with pytest.raises(ps.SchemaError, match="no such column; there are: a, b"):
            ds.take([0], columns=["c"])


def test_a_file_that_is_not_there_is_named_apart_from_the_message(tmp_path: Path) -> None:
    missing = str(tmp_path / "x.tfrecord")
    with pytest.raises(FileNotFoundError, match="no such file") as caught:
        ps.open(missing)
    assert caught.value.filename == missing
    ps.write({"a": [1]}, tmp_path / "y-00000-of-00002.tfrecord")
    with pytest.raises(FileNotFoundError, match="wanted by") as caught:
        ps.open(tmp_path / "y@2.tfrecord")
    assert caught.value.filename == str(tmp_path / "y-00001-of-00002.tfrecord")


def test_data_and_path_the_wrong_way_round(tmp_path: Path) -> None:
    swapped: Any = {"a": [1]}
    with pytest.raises(TypeError, match="data comes first, then the path"):
        ps.write(tmp_path / "x.tfrecord", swapped)
