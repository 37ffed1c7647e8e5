"""The index verb: valid sidecars are kept and others are rebuilt; the text form of DALI."""

from __future__ import annotations

import gzip
import os
import random
import tarfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import _core
from penstock.formats.tfrecord._dali_index import DaliIndex
from penstock.framing.index import sidecar
from penstock.framing.read.framed import FramedReader
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage
from penstock.verbs.check import textindex
from reading import index_of


def frames(payloads: list[bytes]) -> bytes:
    return _core.frame_records(pa.array(payloads, pa.binary())).data.to_bytes()


def loaded(path: str) -> sidecar.Index:
    return sidecar.load(path, LocalStorage())


@pytest.mark.parametrize("kind", [None, "gzip", "zlib"])
def test_a_built_index_equals_the_writers_index(tmp_path: Path, kind: str | None) -> None:
    path = str(tmp_path / "a.tfrecord")
    options = {"member_bytes": 50_000} if kind == "gzip" else {}
    ps.write({"x": np.arange(30000), "y": np.ones(30000)}, path, compression=kind, **options)
    written = loaded(str(index_of(path)))
    assert ps.index(path, force=True) == [str(index_of(path))]
    built = loaded(str(index_of(path)))
    assert built.num_records == written.num_records == 30000
    assert (built.starts == written.starts).all()
    assert (built.checksums == written.checksums).all()
    assert (built.points, built.layout) == (written.points, written.layout)
    assert (len(built.points) > 1) == (kind is not None)


def test_asking_whether_a_reader_needs_an_index_builds_no_index(tmp_path: Path) -> None:
    ps.write({"x": [1, 2]}, str(tmp_path / "a.tfrecord"), index=False)
    ps.write({"x": [1, 2]}, str(tmp_path / "a.parquet"))
    reader = ps.open(str(tmp_path / "a.tfrecord")).files.reader(0)
    assert isinstance(reader, FramedReader)
    assert not reader.has_index
    assert not isinstance(ps.open(str(tmp_path / "a.parquet")).files.reader(0), FramedReader)


def test_valid_indexes_are_not_changed(tmp_path: Path) -> None:
    ps.write({"x": np.arange(100)}, str(tmp_path / "a.tfrecord"), num_shards=3, index=False)
    source = str(tmp_path / "a-*.tfrecord")
    made = ps.index(source)
    assert [os.path.basename(p) for p in made] == [
        f".a-0000{n}-of-00003.tfrecord.penstock" for n in range(3)
    ]
    before = [os.stat(p).st_ino for p in made]
    assert ps.index(source) == made
    assert [os.stat(p).st_ino for p in made] == before
    assert ps.index(source, force=True) == made
    assert [os.stat(p).st_ino for p in made] != before


def test_a_folder_keeps_them_elsewhere(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"x": np.arange(10)}, path, index=False)
    (made,) = ps.index(path, folder=tmp_path / "kept")
    assert os.path.dirname(made) == str(tmp_path / "kept")
    assert not os.path.exists(str(index_of(path)))
    assert len(ps.open(path, index=str(tmp_path / "kept"))) == 10


def test_damage_is_an_error_and_parquet_needs_no_index(tmp_path: Path) -> None:
    (tmp_path / "a.tfrecord").write_bytes(frames([b"x" * 50])[:-3])
    with pytest.raises(ps.TruncatedError):
        ps.index(str(tmp_path / "a.tfrecord"))
    assert not index_of(tmp_path / "a.tfrecord").exists()
    pq.write_table(pa.table({"x": [1]}), tmp_path / "a.parquet")
    assert ps.index(str(tmp_path / "a.parquet")) == []


def test_the_text_form_is_that_of_tfrecord2idx(tmp_path: Path) -> None:
    payloads = [b"", b"hello", bytes(300)]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames(payloads))
    ps.index(str(path), text="dali")
    assert (tmp_path / "a.tfrecord.idx").read_text() == "0 16\n16 21\n37 316\n"
    starts, sizes = textindex.read(DaliIndex(), str(path) + ".idx", LocalStorage())
    assert starts.tolist() == [0, 16, 37]
    assert sizes is not None
    assert sizes.tolist() == [16, 21, 316]
    os.unlink(str(index_of(path)))
    assert ps.index(str(path), from_text=True) == [str(index_of(path))]
    (tmp_path / "z.tfrecord").write_bytes(gzip.compress(frames(payloads)))
    with pytest.raises(ps.UnsupportedError):
        ps.index(str(tmp_path / "z.tfrecord"), text=True)


@pytest.mark.parametrize(
    "text", ["0 16\n16 22\n37 316\n", "0 16\n16 21\n", "0 16 16\n", "zero 16\n", "", "-1 16\n"]
)
def test_a_text_index_of_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames([b"", b"hello", bytes(300)]))
    (tmp_path / "other.idx").write_text(text)
    with pytest.raises(ps.StaleIndexError):
        ps.index(str(path), from_text=tmp_path / "other.idx")


def test_members_with_a_wrong_record_count_are_read_in_one_pass(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    rng = random.Random(1)
    ps.write([rng.randbytes(100) for _ in range(2000)], path, compression="gzip", member_bytes=9000)
    data = bytearray(Path(path).read_bytes())
    data[20] ^= 1  # the count of records in the first member's head
    Path(path).write_bytes(data)
    assert ps.index(path, force=True)
    assert loaded(str(index_of(path))).num_records == 2000
    assert len(ps.open(path)) == 2000
    assert ps.verify(path).num_records == 2000


@pytest.mark.parametrize("ending", ["tfrecord", "tfrecord.gz", "tar", "rec", "msgpack"])
def test_files_of_another_storage_leave_no_sidecar_on_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    for folder in ("here", "cache"):
        (tmp_path / folder).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = tmp_path / f"made.{ending}"
    ps.write({"data": [b"1", b"2", b"3"]}, made, index=False)
    storage = MemoryStorage({f"a.{ending}": made.read_bytes()})
    ds = ps.open(f"a.{ending}", storage=storage)
    assert len(ds) == 3
    assert ds[2]["data" if "data" in ds.schema.names else "bin"] == b"3"
    ds.files.forget_index(0)
    assert list((tmp_path / "here").iterdir()) == list((tmp_path / "cache").iterdir()) == []
    asked = tmp_path / "asked"
    assert len(ps.open(f"a.{ending}", storage=storage, index=str(asked))) == 3
    assert len(list(asked.iterdir())) == 1


def lines_fit(path: Path) -> bool:
    """Whether the text index next to a file matches the file."""
    ps.index(path, from_text=True)
    return True


@pytest.mark.parametrize("index", [True, False])
def test_a_text_index_follows_a_file_that_is_overwritten(tmp_path: Path, index: bool) -> None:
    path, text = tmp_path / "a.tfrecord", tmp_path / "a.tfrecord.idx"
    ps.write({"x": range(9)}, path)
    ps.index(path, text=True)
    ps.write({"x": range(300, 304)}, path, overwrite=True, index=index)
    assert text.read_text().count("\n") == 4
    assert lines_fit(path)
    ps.convert(frame_file(tmp_path), path, overwrite=True, index=index)
    assert text.read_text().count("\n") == 6
    assert lines_fit(path)
    ps.repair(frame_file(tmp_path, 7), into=path, overwrite=True, index=index)
    assert text.read_text().count("\n") == 7
    assert lines_fit(path)
    ps.add_fields(path, {"y": list(range(7))}, in_place=True, index=index)
    assert lines_fit(path)
    assert [name for name in os.listdir(tmp_path) if name.endswith("-tmp")] == []


def frame_file(folder: Path, count: int = 6) -> Path:
    path = folder / "other.tfrecord"
    ps.write({"x": range(count)}, path, overwrite=True)
    return path


def test_text_indexes_of_shards_follow_where_their_names_are_known_at_the_end(
    tmp_path: Path,
) -> None:
    for count in (9, 5):
        made = ps.write(
            {"x": range(count)}, tmp_path / "a.tfrecord", shard_records=3, overwrite=True
        )
        ps.index(list(made.paths), text=True)
    ps.write({"x": range(100, 106)}, tmp_path / "a.tfrecord", shard_records=3, overwrite=True)
    for path in made.paths:
        assert lines_fit(Path(path))


@pytest.mark.parametrize("how", ["write", "convert"])
def test_the_text_index_is_removed_if_the_new_file_cannot_have_one(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path)
    ps.index(path, text=True)
    if how == "write":
        ps.write({"x": range(5)}, path, overwrite=True, compression="gzip")
    else:
        ps.convert(frame_file(tmp_path), path, overwrite=True, compression="gzip")
    assert not (tmp_path / "a.tfrecord.idx").exists()
    assert len(ps.open(path)) in (5, 6)


def test_a_text_index_that_cannot_be_written_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"x": range(9)}, path)
    ps.index(path, text=True)
    before = path.read_bytes()

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(textindex, "fill", fail)
    with pytest.raises(OSError, match="disk full"):
        ps.write({"x": range(4)}, path, overwrite=True)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert lines_fit(path)
    assert [name for name in os.listdir(tmp_path) if name.endswith("-tmp")] == []


def test_changing_fields_of_a_pack_puts_its_text_index_next_to_it(tmp_path: Path) -> None:
    path = tmp_path / "x.rec"
    images = ps.encode_images(np.zeros((3, 8, 8, 3), np.uint8), "png")
    ps.write({"label": np.ones(3, np.float32), "image": images}, path)
    ps.add_fields(path, {"label": np.ones((3, 2), np.float32)}, in_place=True, replace=True)
    assert lines_fit(path)
    assert sorted(file.name for file in tmp_path.iterdir() if file.suffix == ".idx") == ["x.idx"]


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
