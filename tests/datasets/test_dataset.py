"""Datasets of several files, odd arguments, and processes that fork."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps
from penstock.features import describe
from penstock.storage.local import LocalStorage
from penstock.storage.local_sink import Calls
from reading import index_of


def numbers(path: Path, values: list[int], **options: object) -> Path:
    ps.write({"id": np.array(values, dtype=np.int64)}, path, **options)  # type: ignore[arg-type]
    return path


def test_a_first_file_without_records_does_not_decide_the_schema(tmp_path: Path) -> None:
    empty = tmp_path / "a-00000-of-00003.tfrecord"
    empty.write_bytes(b"")
    zipped = tmp_path / "a-00001-of-00003.tfrecord"
    zipped.write_bytes(frames.gzip_of(b""))
    full = numbers(tmp_path / "a-00002-of-00003.tfrecord", [4, 5])
    for source in ([empty, zipped, full], str(tmp_path / "a@3.tfrecord"), [full, empty]):
        dataset = ps.open(source)
        assert dataset.schema.names == ["id"]
        assert [x for batch in dataset.scan() for x in batch["id"].to_pylist()] == [4, 5]
        assert dataset[1] == {"id": 5}
    assert ps.open([empty, zipped]).schema.names == ["record"]


def test_text_indexes_of_files_are_not_data(tmp_path: Path) -> None:
    numbers(tmp_path / "x.tfrecord", [1, 2])
    ps.index(tmp_path / "x.tfrecord", text=True)
    assert (tmp_path / "x.tfrecord.idx").exists()
    assert len(ps.open(tmp_path)) == len(ps.open(str(tmp_path / "x*"))) == 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint64])
def test_records_are_taken_by_numbers_of_any_integer_type(tmp_path: Path, dtype: type) -> None:
    dataset = ps.open(numbers(tmp_path / "x.tfrecord", list(range(1000))))
    assert dataset.take(np.array([3, 1], dtype=dtype))["id"].to_pylist() == [3, 1]
    with pytest.raises(ps.RecordIndexError):
        dataset.take(np.array([2**63], dtype=np.uint64))


def test_odd_arguments_are_refused_by_name(tmp_path: Path) -> None:
    dataset = ps.open(numbers(tmp_path / "x.tfrecord", [1]))
    with pytest.raises(ValueError, match="threads must be at least 1"):
        dataset.scan(threads=0)
    with pytest.raises(TypeError, match="list of names"):
        dataset.scan(columns="id")
    for key in ("id", 1.5, [[0]]):
        with pytest.raises(TypeError, match=r"records? (have )?numbers"):
            dataset[key]
    with pytest.raises(TypeError, match="FixedLen"):
        ps.open(tmp_path / "x.tfrecord", schema={"id": "int64"})
    with pytest.raises(FileNotFoundError, match="no such folder"):
        numbers(tmp_path / "missing" / "x.tfrecord", [1])


def test_a_replacement_is_not_readable_by_more_people(tmp_path: Path) -> None:
    path = numbers(tmp_path / "x.tfrecord", [1])
    path.chmod(0o600)
    numbers(path, [2], overwrite=True)
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_scan_does_not_go_on_in_a_forked_process(tmp_path: Path) -> None:
    path = numbers(tmp_path / "x.tfrecord", list(range(300_000)))
    scan = ps.open(path, index="never").scan(batch_records=10, threads=2)
    next(scan)
    child = os.fork()
    if not child:
        try:
            next(scan) and [None for _ in scan]
        except RuntimeError:
            fresh = sum(b.num_rows for b in ps.open(path, index="never").scan(threads=2))
            os._exit(0 if fresh == 300_000 else 2)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert sum(batch.num_rows for batch in scan) == 299_990


def test_a_replaced_file_of_the_same_size_is_distinguished_from_a_damaged_file(
    tmp_path: Path,
) -> None:
    payloads = [bytes([n]) * 50 for n in range(62)]
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames.file_of(payloads))
    dataset = ps.open(path, raw=True)
    assert dataset[61]["record"] == payloads[61]
    payloads[60:] = [b"y" * 40, b"z" * 60]
    path.write_bytes(frames.file_of(payloads))
    with pytest.raises(ps.StaleIndexError):
        dataset.take([61])
    assert ps.open(path, raw=True)[61]["record"] == b"z" * 60


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("length", [2**62, 2**63, 2**64 - 20])
def test_heads_beyond_all_bounds_do_not_stop_a_verification(
    tmp_path: Path, length: int, zipped: bool
) -> None:
    data = frames.file_of([b"one", b"two"]) + frames.head(length) + b"rest"
    path = tmp_path / "x.tfrecord"
    path.write_bytes(frames.gzip_of(data) if zipped else data)
    report = ps.verify(path, index="never")
    assert not report.ok
    assert report.num_records == 2


def test_scalars_of_every_record_are_described_as_fixed(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write([{"always": 1, "maybe": 2}, {"always": 3}], path)
    # The types in a sidecar do not show which fields are in every record; the records do.
    text = describe(ps.open(path, index="never").schema)
    assert "'always': tf.io.FixedLenFeature([], tf.int64)" in text
    assert "'maybe': tf.io.VarLenFeature(tf.int64)" in text


TWINS = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])


@pytest.mark.parametrize(
    "column",
    [
        pa.array([10**12], pa.timestamp("s")),
        pa.array([1], pa.timestamp("us", "No/Where")),
        pa.array([2**62], pa.duration("s")),
        TWINS,
        pa.array([None, TWINS[0]], TWINS.type).slice(1),
    ],
    ids=["a far year", "a time zone", "a long time", "two names", "two names in a later record"],
)
def test_a_value_that_python_cannot_represent_is_reported_as_such(
    tmp_path: Path, column: pa.Array
) -> None:
    ps.write(pa.table({"id": [7], "x": column}), tmp_path / "x.arrow")
    dataset = ps.open(tmp_path / "x.arrow")
    assert dataset.take([0])["x"].equals(column)
    for asked in (lambda: dataset[0], lambda: list(dataset), lambda: dataset.__getitems__([0])):
        with pytest.raises(ps.SchemaError, match="Python cannot express") as caught:
            asked()
        assert (caught.value.file, caught.value.field) == (str(tmp_path / "x.arrow"), "x")
    assert list(ps.open(tmp_path / "x.arrow", columns=["id"])) == [{"id": 7}]


def test_no_value_is_lost_if_two_fields_have_the_same_name(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as writer:
        writer.write(table)
    dataset = ps.open(tmp_path / "x.arrow")
    for asked in (lambda: dataset[0], lambda: list(dataset), lambda: dataset.__getitems__([0])):
        with pytest.raises(ps.SchemaError, match="same name"):
            asked()
    assert pa.Table.from_batches(dataset.scan()).equals(table)


@pytest.mark.parametrize(
    "name", ["npy", "parquet", "h5", "rec", "beton", "arrow", "msgpack", "npz"]
)
def test_a_file_gzipped_as_a_whole_is_reported_as_such(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"x.{name}.gz"
    path.write_bytes(frames.gzip_of(b"anything" * 100))
    with pytest.raises(ps.UnsupportedError, match="compressed with gzip") as caught:
        ps.open(path)
    assert caught.value.hint == "decompress it first"


@pytest.mark.parametrize(
    "head", [b"\xff\xd8\xff\xe0", b"\x89PNG\r\n\x1a\n", b"RIFF\0\0\0\0WEBPVP8 "]
)
def test_the_error_for_a_single_image_says_how_to_open_it(tmp_path: Path, head: bytes) -> None:
    (tmp_path / "x").write_bytes(head + bytes(50))
    with pytest.raises(ps.FormatError, match="a picture") as caught:
        ps.open(tmp_path / "x")
    assert "folder" in str(caught.value.hint)


@pytest.mark.parametrize("suffix", [".tfrecord", ".rec", ".msgpack", ".tar"])
def test_an_invalid_number_of_records_to_infer_from_is_refused(suffix: str, tmp_path: Path) -> None:
    path = str(tmp_path / f"a{suffix}")
    ps.write({"data": [b"a", b"b"]}, path)
    for wrong in (0, -1, True, 1.5, None, "x", "10"):
        with pytest.raises((TypeError, ValueError), match="infer_records"):
            ps.open(path, infer_records=wrong)
    for right in (1, np.int64(2), "all"):
        assert len(ps.open(path, infer_records=right)) == 2


def test_a_schema_for_raw_records_is_refused(tmp_path: Path) -> None:
    path = numbers(tmp_path / "a.tfrecord", [1])
    with pytest.raises(ValueError, match=r"raw=True .*schema; leave out"):
        ps.open(path, raw=True, schema=pa.schema([("id", pa.int64())]))


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize(("mode", "folder"), [(0o600, 0o700), (0o640, 0o750), (0o440, 0o750)])
def test_files_next_to_a_private_file_are_private(tmp_path: Path, mode: int, folder: int) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path, index=False)
    path.chmod(mode)
    before = os.umask(0)
    try:
        ps.index(path, text=True)
        ps.add_fields(path, {"y": list(range(9))})
    finally:
        os.umask(before)
    assert mode_of(index_of(tmp_path / "a.tfrecord")) == mode
    assert mode_of(tmp_path / "a.tfrecord.idx") == mode
    assert mode_of(tmp_path / ".a.tfrecord.penstock-fields") == folder
    (overlay,) = (tmp_path / ".a.tfrecord.penstock-fields").iterdir()
    assert mode_of(overlay) == mode
    assert ps.open(path)[8] == {"x": 8, "y": 8}


def test_a_public_file_has_public_indexes(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path)
    ps.index(path, text=True)
    plain = mode_of(path)
    assert mode_of(index_of(tmp_path / "a.tfrecord")) == plain
    assert mode_of(tmp_path / "a.tfrecord.idx") == plain


def test_an_index_of_a_compressed_private_file_is_private_again(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path, compression="zlib")
    path.chmod(0o600)
    # The old file was readable by everybody, too.
    assert mode_of(index_of(tmp_path / "a.tfrecord")) != 0o600
    ps.index(path, force=True)
    assert mode_of(index_of(tmp_path / "a.tfrecord")) == 0o600


@pytest.mark.parametrize("change", ["write", "shards", "convert", "fields", "fields of a pack"])
def test_the_replacement_of_a_private_file_is_private(tmp_path: Path, change: str) -> None:
    path = tmp_path / ("x.rec" if "pack" in change else "x.tfrecord")
    images = ps.encode_images(np.zeros((3, 8, 8, 3), np.uint8), "png")
    cut = {"shard_records": 2} if change == "shards" else {}
    ps.write({"label": np.ones(3, np.float32), "image": images}, path, **cut)
    for file in tmp_path.iterdir():
        file.chmod(0o600)
    if change in ("write", "shards"):
        ps.write({"x": range(4)}, path, overwrite=True, **cut)
    elif change == "convert":
        ps.write({"x": range(4)}, tmp_path / "other.arrow")
        ps.convert(tmp_path / "other.arrow", path, overwrite=True)
        (tmp_path / "other.arrow").unlink()
    else:
        ps.add_fields(path, {"label": np.ones((3, 2), np.float32)}, in_place=True, replace=True)
    assert {file.name: mode_of(file) for file in tmp_path.iterdir()} == dict.fromkeys(
        os.listdir(tmp_path), 0o600
    )
    assert len(os.listdir(tmp_path)) >= 2


def test_a_note_of_an_append_is_readable_only_by_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path)
    path.chmod(0o600)
    seen: list[int] = []

    class Seeing(Calls):
        def rename(self, old: str, new: str) -> None:
            super().rename(old, new)
            if new.endswith(".penstock-append"):
                seen.append(mode_of(Path(new)))

    ps.append({"x": [1]}, path, storage=LocalStorage(Seeing()))
    assert seen == [0o600]


@pytest.mark.parametrize("how", ["write", "index", "open"])
def test_an_index_in_a_folder_is_as_private_as_its_file(tmp_path: Path, how: str) -> None:
    path, folder = tmp_path / "a.tfrecord", tmp_path / "kept"
    ps.write({"x": range(9)}, path, compression="gzip", index=False)
    path.chmod(0o600)
    if how == "write":
        ps.write({"x": range(9)}, path, compression="gzip", index=folder, overwrite=True)
    elif how == "index":
        ps.index(path, folder=folder)
    else:
        ps.open(path, index=folder).take([3])
    (kept,) = folder.iterdir()
    assert mode_of(kept) == 0o600


def test_a_missing_file_is_named_separately_from_the_message(tmp_path: Path) -> None:
    missing = str(tmp_path / "x.tfrecord")
    with pytest.raises(FileNotFoundError, match="no such file") as caught:
        ps.open(missing)
    assert caught.value.filename == missing
    ps.write({"a": [1]}, tmp_path / "y-00000-of-00002.tfrecord")
    with pytest.raises(FileNotFoundError, match="includes it") as caught:
        ps.open(tmp_path / "y@2.tfrecord")
    assert caught.value.filename == str(tmp_path / "y-00001-of-00002.tfrecord")
