"""The files that a source stands for: numbered sets and the files next to them."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock.storage.local import LocalStorage
from penstock.storage.paths import expand


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    ps.write({"id": range(10)}, "people.tfrecord", num_shards=2)
    return tmp_path


def names(source: str) -> list[str]:
    return expand(source, LocalStorage()).paths


@pytest.mark.parametrize("source", ["people@2.tfrecord", "people@*.tfrecord", "people-*.tfrecord"])
def test_a_set_is_its_shards_without_their_sidecars(folder: Path, source: str) -> None:
    assert names(source) == ["people-00000-of-00002.tfrecord", "people-00001-of-00002.tfrecord"]


def test_a_count_taken_from_the_files_needs_the_whole_name(folder: Path) -> None:
    with pytest.raises(FileNotFoundError):
        names("people@*")


@pytest.mark.parametrize("source", ["people@2.tfrecord", "people@*.tfrecord", "people-*.tfrecord"])
def test_a_set_that_lacks_a_shard_is_an_error(folder: Path, source: str) -> None:
    (folder / "people-00001-of-00002.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match=r"00001|shard 1 of 2"):
        names(source)


def test_a_pipe_is_refused_and_never_taken_for_an_empty_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ps.UnsupportedError, match="a pipe or a device"):
            ps.open(path, index="never")


@pytest.mark.parametrize("name", ["a.npy.gz", "a.beton.gz", "a.msgpack.gz", "a.h5.gz", "a.gz"])
def test_a_packed_file_is_refused_with_advice_to_unpack_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"some bytes" * 9))
    with pytest.raises(ps.UnsupportedError, match="compressed with gzip") as caught:
        ps.open(tmp_path / name)
    assert caught.value.hint == "decompress it first"


def test_a_folder_of_folders_of_images_is_all_of_them(tmp_path: Path) -> None:
    for split in ("train", "val"):
        (tmp_path / split / "cat").mkdir(parents=True)
        (tmp_path / split / "cat" / "a.jpg").write_bytes(b"")
    ds = ps.open(tmp_path)
    assert ds.paths == (str(tmp_path / "train"), str(tmp_path / "val"))
    assert len(ds) == 2
    assert len(ps.open(tmp_path / "train")) == 1


TEXTS = {
    "README.md": "# A",
    "LICENSE": "free",
    "classes.txt": "cat",
    "meta.json": "{}",
    "n.csv": "",
}


@pytest.mark.parametrize("ending", ["tar", "tfrecord", "parquet", "npz", "rec"])
def test_text_next_to_data_is_skipped_and_listed(tmp_path: Path, ending: str) -> None:
    ps.write({"data": [b"1", b"2"]} if ending == "rec" else {"a": [1, 2]}, tmp_path / f"x.{ending}")
    for name, text in TEXTS.items():
        (tmp_path / name).write_text(text)
    ds = ps.open(tmp_path)
    assert len(ds) == 2
    found = {Path(path).name: reason for path, reason in ds.skipped_files}
    if ending == "rec":
        assert found.pop("x.idx") == "an index of the file next to it"
    assert found == dict.fromkeys(TEXTS, "text next to the data")
    assert ps.info(tmp_path).skipped_files == ds.skipped_files
    assert ps.verify(tmp_path).ok
    assert len(ps.open([tmp_path, tmp_path])) == 4


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("part-00001", b"broken"),  # a common name of shards
        ("b.tar", b"no header"),
        ("b.bin", b"text"),
        ("b.txt", bytes(range(99))),
        ("b", b"text"),
        ("README.md", b"\xff\xfe\0"),
    ],
)
def test_possibly_damaged_data_is_never_skipped(tmp_path: Path, name: str, data: bytes) -> None:
    ps.write({"a": [1, 2]}, tmp_path / "a.tar")
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ps.PenstockError) as caught:
        len(ps.open(tmp_path))
    assert caught.value.file == str(tmp_path / name)


def test_data_that_is_called_like_text_is_read(tmp_path: Path) -> None:
    for name in ("a.tfrecord", "b.txt"):
        ps.write({"a": [1, 2]}, tmp_path / name, format="tfrecord")
    ds = ps.open(tmp_path)
    assert (len(ds), ds.skipped_files) == (4, ())


def test_a_text_file_that_is_named_itself_is_not_data(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A")
    for source in (tmp_path, tmp_path / "README.md", [tmp_path / "README.md"]):
        with pytest.raises(ps.FormatError, match="in no known format"):
            ps.open(source)
    (tmp_path / "train").mkdir()
    with pytest.raises(FileNotFoundError, match="no data in this folder"):
        ps.open(tmp_path / "train")


def test_summaries_and_hidden_files_are_not_data(tmp_path: Path) -> None:
    table, footers = pa.table({"a": [1, 2, 3]}), []
    pq.write_table(table, tmp_path / "x.parquet", metadata_collector=footers)
    footers[0].set_file_path("x.parquet")
    pq.write_metadata(table.schema, tmp_path / "_metadata", metadata_collector=footers)
    pq.write_metadata(table.schema, tmp_path / "_common_metadata")
    (tmp_path / "_SUCCESS").write_bytes(b"")
    (tmp_path / ".x.parquet.crc").write_bytes(b"crc\0")
    for source in (tmp_path, tmp_path / "*", tmp_path / "?*"):
        assert ps.open(source).paths == (str(tmp_path / "x.parquet"),)
        assert ps.verify(source).ok
    for name in ("_metadata", "_common_metadata"):
        with pytest.raises(ps.UnsupportedError, match="a summary") as caught:
            ps.open(tmp_path / name)
        assert str(tmp_path) in str(caught.value.hint)
    ps.write({"a": [1]}, tmp_path / "_b.parquet")
    assert len(ps.open(tmp_path / "_b*")) == 1


def test_two_sets_of_one_name_are_not_read_as_one_set(tmp_path: Path) -> None:
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


def packed(path: Path) -> None:
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))


def test_a_set_may_have_plain_and_compressed_shards(tmp_path: Path) -> None:
    shards = ps.write({"i": range(8)}, tmp_path / "x.tfrecord", num_shards=4, index=False).paths
    for shard in map(Path, shards[1:3]):
        packed(shard)
        shard.unlink()
    for source in (str(tmp_path), f"{tmp_path}/x-*"):
        assert [record["i"] for record in ps.open(source)] == list(range(8))
    Path(f"{shards[2]}.gz").unlink()
    with pytest.raises(FileNotFoundError, match=r"shard 2 of 4 is missing;"):
        ps.open(tmp_path)


def test_a_shard_that_is_there_plain_and_compressed_completes_no_set(tmp_path: Path) -> None:
    shards = ps.write({"i": range(6)}, tmp_path / "x.tfrecord", num_shards=3, index=False).paths
    packed(Path(shards[0]))
    packed(Path(shards[1]))
    Path(shards[1]).unlink()
    with pytest.raises(FileNotFoundError, match=r"shard 1 of 3 is missing;"):
        ps.open(tmp_path)
