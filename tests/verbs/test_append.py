"""Appending to a file: old bytes stay, the index grows, and records that do not fit are refused."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock as ps
from appending import NAMES, NEW, OLD, ids, names_in
from frames import frame
from penstock import formats
from penstock.framing.index import sidecar
from penstock.storage.local import LocalStorage
from reading import index_of


@pytest.mark.parametrize("name", NAMES)
def test_append_keeps_old_bytes(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    before = path.read_bytes()
    made = ps.append(NEW, path, member_bytes=4096)
    after = path.read_bytes()
    assert after.startswith(before)
    assert made == ps.Summary((str(path),), 300, len(after) - len(before))
    assert ids(path) == list(range(1300))
    assert ps.verify(path).findings == ()
    assert ps.open(path)[1299] == {"id": 1299, "text": "new 299"}
    assert names_in(tmp_path) == {name, str(index_of(name))}


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bytes_for_any_number_of_threads(tmp_path: Path, name: str) -> None:
    many = {"id": range(50_000), "text": ["text"] * 50_000}
    found = set()
    for threads in (1, 2, 5):
        path = tmp_path / f"{threads}-{name}"
        ps.write(OLD, path)
        ps.append(many, path, threads=threads, member_bytes=8192)
        found.add(path.read_bytes())
    assert len(found) == 1


def test_appended_plain_bytes_equal_one_write(tmp_path: Path) -> None:
    both = {key: [*OLD[key], *NEW[key]] for key in OLD}
    ps.write(both, tmp_path / "whole.tfrecord")
    ps.write(OLD, tmp_path / "grown.tfrecord")
    ps.append(NEW, tmp_path / "grown.tfrecord")
    assert (tmp_path / "grown.tfrecord").read_bytes() == (tmp_path / "whole.tfrecord").read_bytes()
    whole = index_of(tmp_path / "whole.tfrecord").read_bytes()
    assert index_of(tmp_path / "grown.tfrecord").read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
def test_the_extended_index_equals_a_built_index(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    ps.append(NEW, path, member_bytes=4096)
    extended = index_of(path).read_bytes()
    ps.index(path, force=True)
    built = index_of(path).read_bytes()
    # The file's state, and the header's checksum, may differ: only an index of a file that was not
    # changed for a moment stores the state.
    assert built[:48] + built[80:92] + built[96:] == extended[:48] + extended[80:92] + extended[96:]


class Watched(LocalStorage):
    """Notes the lowest byte that is read from the files called `name`, except by small reads."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.read_bytes = 0

    def source(self, path: str, *, mmap: bool = False) -> Any:
        source = super().source(path, mmap=mmap)
        if os.path.basename(path) == self.name:
            real = source.read

            def read(start: int, length: int) -> Any:
                found = real(start, length)
                self.read_bytes += len(found)
                return found

            source.read = read
        return source


def test_old_payloads_are_not_read_if_there_is_an_index(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"data": [b"x" * 1_000_000] * 40}, path)
    watched = Watched("x.tfrecord")
    schema = pa.schema([("data", pa.binary())])
    ps.append({"data": [b"y"]}, path, schema=schema, storage=watched)
    assert watched.read_bytes < 100_000
    assert len(ps.open(path)) == 41


@pytest.mark.parametrize("name", NAMES)
def test_an_index_of_the_first_part_is_extended_when_opened(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    ps.append(NEW, path, index=False, member_bytes=4096)
    kept = index_of(path)
    old = sidecar.load(str(kept), LocalStorage())
    assert old.num_records == 1000
    monkeypatch.setattr("penstock.framing.read.framed.build_index", None)
    ds = ps.open(path)
    assert len(ds) == 1300
    assert ds.take([1299, 0, 1000])["id"].to_pylist() == [1299, 0, 1000]
    assert sidecar.load(str(kept), LocalStorage()).num_records == 1300


def test_a_few_new_records_do_not_rewrite_a_large_index(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    kept = index_of(path)
    ps.write({"id": range(10_000)}, path)
    ps.append({"id": [10_000]}, path)
    ps.append({"id": [10_001]}, path)
    # Only the recorded state of the file may differ.
    assert sidecar.load(str(kept), LocalStorage()).num_records == 10_000
    assert ids(path) == list(range(10_002))
    assert ps.open(path).take([10_001, 3])["id"].to_pylist() == [10_001, 3]
    assert ps.verify(path).findings == ()
    ps.append({"id": range(10_002, 10_100)}, path)
    assert sidecar.load(str(kept), LocalStorage()).num_records == 10_100
    assert len(ps.open(path)) == 10_100


def test_an_index_of_something_else_is_not_extended(tmp_path: Path) -> None:
    path, other = tmp_path / "x.tfrecord", tmp_path / "y.tfrecord"
    ps.write({"id": range(100)}, path)
    ps.write({"id": range(500, 800)}, other)
    shutil.copy(str(index_of(path)), str(index_of(other)))
    assert ids(other) == list(range(500, 800))
    assert len(ps.open(other)) == 300


def test_an_index_that_leaves_records_out_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    index = sidecar.load(str(index_of(path)), LocalStorage())
    half = sidecar.Index(
        50, index.data_bytes - 1, index.data_bytes - 1, "", index.starts[:51], index.checksums[:50]
    )
    sidecar.save(half, str(path), LocalStorage())
    assert len(ps.open(path)) == 100


# -- single files that can and cannot be appended to --------------------------------


def test_a_foreign_gzip_file_gets_members(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write({"id": range(30_000)}, tmp_path / "plain.tfrecord")
    path.write_bytes(gzip.compress((tmp_path / "plain.tfrecord").read_bytes()))
    ps.append({"id": range(30_000, 30_500)}, path, member_bytes=1000)
    assert ids(path) == list(range(30_500))
    picked = [30_499, 3, 30_000, 29_999]
    assert ps.open(path).take(picked)["id"].to_pylist() == picked
    kept = index_of(path)
    kept.unlink()
    assert ps.open(path).take(picked)["id"].to_pylist() == picked


@pytest.mark.parametrize("name", NAMES)
def test_no_empty_member_is_left(tmp_path: Path, name: str) -> None:
    """TensorFlow takes an empty member for the end of the file."""
    path = tmp_path / name
    ps.write({"id": pa.array([], pa.int64())}, path)
    ps.append({"id": [1, 2]}, path)
    ps.append({"id": pa.array([], pa.int64())}, path)
    assert ids(path) == [1, 2]
    assert [finding.kind for finding in ps.verify(path).findings] == []
    if name.endswith(".gz"):
        assert path.read_bytes().count(b"\x1f\x8b\x08") == 1


def test_nothing_is_appended_after_an_empty_member(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write(OLD, path)
    path.write_bytes(path.read_bytes() + gzip.compress(b""))
    before = path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="empty"):
        ps.append(NEW, path)
    assert path.read_bytes() == before
    ps.repair(path, in_place=True)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_errors_for_files_that_cannot_grow_say_what_to_try(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path)
    before = path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="new shard"):
        ps.append(NEW, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "kind",
    [f for f in formats.FORMATS if f.info.can_write and not f.info.is_folder],
    ids=lambda kind: kind.info.name,
)
def test_formats_say_truly_whether_they_can_be_appended_to(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / f"x{kind.info.extensions[0]}"
    # Not every format has columns of any name.
    name, values = ("data", [b"1", b"2"]) if kind.info.name == "recordio" else ("id", [1, 2])
    ps.write({name: values[:1]}, path)
    if kind.info.can_append:
        ps.append({name: values[1:]}, path)
    else:
        with pytest.raises(ps.UnsupportedError):
            ps.append({name: values[1:]}, path)
    found = [row[name] for row in ps.open(path)]
    assert found == values[: 1 + kind.info.can_append]


def test_zlib_has_an_end_that_nothing_follows(tmp_path: Path) -> None:
    ps.write(OLD, tmp_path / "x.tfrecord", compression="zlib")
    with pytest.raises(ps.UnsupportedError, match="zlib"):
        ps.append(NEW, tmp_path / "x.tfrecord")


@pytest.mark.parametrize("cut", [1, 4, 5, 11, 15, 17])
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("indexed", [True, False])
def test_a_file_that_ends_damaged_is_refused(
    tmp_path: Path, name: str, cut: int, indexed: bool
) -> None:
    path = tmp_path / name
    ps.write(OLD, path, index=indexed)
    path.write_bytes(path.read_bytes()[:-cut])
    before = path.read_bytes()
    with pytest.raises(ps.FormatError, match="penstock"):
        ps.append(NEW, path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) <= {name, str(index_of(name))}


@pytest.mark.parametrize("name", NAMES)
def test_a_last_record_with_a_damaged_head_is_refused(tmp_path: Path, name: str) -> None:
    """The index is valid, because most sampled records agree, but new records after the damage would be lost."""
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    index = sidecar.load(str(index_of(path)), LocalStorage())
    at = int(index.points[-1].compressed_bit) // 8 + 40 if index.points else int(index.starts[-2])
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(ps.FormatError):
        ps.append(NEW, path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("junk", [b"j", b"junk", bytes(20)])
def test_bytes_after_the_last_member_are_refused(tmp_path: Path, junk: bytes) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write(OLD, path)
    path.write_bytes(path.read_bytes() + junk)
    with pytest.raises(ps.FormatError):
        ps.append(NEW, path)


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    ps.write(OLD, tmp_path / "x.tfrecord")
    os.symlink(tmp_path / "x.tfrecord", tmp_path / "link.tfrecord")
    ps.append(NEW, tmp_path / "link.tfrecord")
    assert (tmp_path / "link.tfrecord").is_symlink()
    assert ids(tmp_path / "x.tfrecord") == list(range(1300))


# -- what fits --------------------------------------------------------------------------------------

# The tf.train.Example of {"id": [1.5], "text": [b"x"]}.
OF_FLOATS = bytes.fromhex("0a1f0a0e0a026964120812060a040000c03f0a0d0a047465787412050a030a0178")
MISFITS: dict[str, tuple[Any, str]] = {
    "another kind": ({"id": [1.5], "text": ["x"]}, "id"),
    "two values": ({"id": [[1, 2]], "text": ["x"]}, "id"),
    "a field too many": ({"id": [1], "text": ["x"], "more": [1]}, "more"),
    "a field too few": ({"id": [1]}, "text"),
    "the last of many": ({"id": [*range(9000), [1, 2]], "text": ["x"] * 9001}, "id"),
    "raw records that are none": ([b"abc"], "record"),
    "serialised examples of another kind": ([OF_FLOATS], "id"),
}


@pytest.mark.parametrize(("data", "field"), MISFITS.values(), ids=MISFITS.keys())
@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_changes_nothing(
    tmp_path: Path, name: str, data: Any, field: str
) -> None:
    path = tmp_path / name
    ps.write(OLD, path)
    before = path.read_bytes()
    if field == "id" and isinstance(data, dict) and len(data["id"]) > 9000:
        data = {**data, "id": pa.array([[n] if isinstance(n, int) else n for n in data["id"]])}
    with pytest.raises(ps.SchemaError) as caught:
        ps.append(data, path)
    assert caught.value.field == field
    assert caught.value.file == str(path)
    assert "penstock-tmp" not in str(caught.value)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {name, str(index_of(name))}


def test_fields_that_new_records_lack_become_nulls(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    ps.append({"id": [7], "text": pa.array([None], pa.string())}, path)
    assert ps.open(path)[1000] == {"id": 7, "text": None}


def test_serialised_examples_that_fit_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    payloads = ps.open(path, raw=True).take([5, 6])["record"].to_pylist()
    ps.append(payloads, path)
    assert ids(path)[-2:] == [5, 6]


def test_raw_records_follow_raw_records(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write([b"any", b"\xff\xff"], path)
    ps.append([b"more"], path)
    assert path.read_bytes() == b"".join(frame(data) for data in (b"any", b"\xff\xff", b"more"))


def test_a_dataset_can_be_appended_to_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    ps.append(ps.open(path), path)
    assert ids(path) == [*range(100), *range(100)]


def test_a_stream_that_breaks_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    before = path.read_bytes()

    def batches() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": [1]})
        raise RuntimeError("the stream broke")

    with pytest.raises(RuntimeError, match="the stream broke"):
        ps.append(batches(), path)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"x.tfrecord", ".x.tfrecord.penstock"}


@pytest.mark.parametrize("count", [3, 30])
def test_a_feature_called_record_stays_a_feature(count: int, tmp_path: Path) -> None:
    """Otherwise, a single column with that name is written as raw records."""
    path = tmp_path / "a.tfrecord"
    table = pa.table({"record": [b"%d" % n for n in range(count)], "more": [1] * count})
    ps.write(table, tmp_path / "both.tfrecord")
    ps.convert(tmp_path / "both.tfrecord", path, columns=["record"], prove=True)
    ps.append({"record": [b"new"]}, path)
    now = [b"%d" % n for n in range(count)] + [b"new"]
    assert pa.table(ps.open(path))["record"].to_pylist() == now
    ps.write(pa.table(ps.open(path)), tmp_path / "b.tfrecord")
    assert (tmp_path / "b.tfrecord").read_bytes() == path.read_bytes()
    assert pa.table(ps.open(path, schema=ps.open(path).schema))["record"].to_pylist() == now
    assert ps.open(path, raw=True)[0]["record"] != b"0"


@pytest.mark.parametrize("old", [[[1, 2], [3]], [[[1], [2, 3]], [[4]]]])
def test_lists_that_are_all_empty_stay_lists(old: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"l": old}, path)
    for _ in range(2):
        ps.append({"l": [[]]}, path)
    assert pa.table(ps.open(path, infer_records="all"))["l"].to_pylist() == [*old, [], []]
