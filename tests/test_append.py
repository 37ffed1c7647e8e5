"""Appending: old bytes stay, new records follow, the index grows, and what does not fit is refused."""

from __future__ import annotations

import fcntl
import gzip
import os
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from frames import frame
from penstock import formats, journal
from penstock.framing import sidecar
from penstock.storage import Calls, FrontPart, LocalStorage

OLD = {"id": range(1000), "text": [f"text {n}" * (n % 9) for n in range(1000)]}
NEW = {"id": range(1000, 1300), "text": [f"new {n}" for n in range(300)]}
NAMES = ["x.tfrecord", "x.tfrecord.gz"]


def ids(path: Any) -> list[int]:
    return [n for batch in ps.open(path).scan(["id"]) for n in batch["id"].to_pylist()]


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


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
    assert ps.open(path)[1299] == {"id": 1299, "text": b"new 299"}
    assert names_in(tmp_path) == {name, name + ".penstock"}


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


def test_appended_plain_bytes_are_those_of_one_write(tmp_path: Path) -> None:
    both = {key: [*OLD[key], *NEW[key]] for key in OLD}
    ps.write(both, tmp_path / "whole.tfrecord")
    ps.write(OLD, tmp_path / "grown.tfrecord")
    ps.append(NEW, tmp_path / "grown.tfrecord")
    assert (tmp_path / "grown.tfrecord").read_bytes() == (tmp_path / "whole.tfrecord").read_bytes()
    whole = (tmp_path / "whole.tfrecord.penstock").read_bytes()
    assert (tmp_path / "grown.tfrecord.penstock").read_bytes() == whole


@pytest.mark.parametrize("name", NAMES)
def test_the_extended_index_is_the_one_that_would_be_built(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    ps.append(NEW, path, member_bytes=4096)
    extended = Path(f"{path}.penstock").read_bytes()
    ps.index(path, force=True)
    assert Path(f"{path}.penstock").read_bytes() == extended


class Watched(LocalStorage):
    """Notes the lowest byte that is read of the files called `name`, but for small reads."""

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


def test_old_payloads_are_not_read_where_there_is_an_index(tmp_path: Path) -> None:
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
    kept = Path(f"{path}.penstock")
    old = sidecar.load(str(kept), LocalStorage())
    assert old.num_records == 1000
    monkeypatch.setattr("penstock.formats.tfrecord.build_index", None)
    ds = ps.open(path)
    assert len(ds) == 1300
    assert ds.take([1299, 0, 1000])["id"].to_pylist() == [1299, 0, 1000]
    assert sidecar.load(str(kept), LocalStorage()).num_records == 1300


def test_a_few_records_do_not_write_a_large_index_anew(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    kept = Path(f"{path}.penstock")
    ps.write({"id": range(10_000)}, path)
    before = kept.read_bytes()
    ps.append({"id": [10_000]}, path)
    ps.append({"id": [10_001]}, path)
    assert kept.read_bytes() == before
    assert ids(path) == list(range(10_002))
    assert ps.open(path).take([10_001, 3])["id"].to_pylist() == [10_001, 3]
    assert ps.verify(path).findings == ()
    ps.append({"id": range(10_002, 10_100)}, path)
    assert kept.read_bytes() != before
    assert len(ps.open(path)) == 10_100


def test_an_index_of_something_else_is_not_extended(tmp_path: Path) -> None:
    path, other = tmp_path / "x.tfrecord", tmp_path / "y.tfrecord"
    ps.write({"id": range(100)}, path)
    ps.write({"id": range(500, 800)}, other)
    shutil.copy(f"{path}.penstock", f"{other}.penstock")
    assert ids(other) == list(range(500, 800))
    assert len(ps.open(other)) == 300


def test_an_index_that_leaves_records_out_is_not_extended(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write({"id": range(100)}, path)
    index = sidecar.load(f"{path}.penstock", LocalStorage())
    half = sidecar.Index(
        50, index.data_bytes - 1, index.data_bytes - 1, "", index.starts[:51], index.checksums[:50]
    )
    sidecar.save(half, str(path), LocalStorage())
    assert len(ps.open(path)) == 100


# -- single files that records can follow, and those that they cannot --------------------------------


def test_a_foreign_gzip_file_gets_members(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write({"id": range(30_000)}, tmp_path / "plain.tfrecord")
    path.write_bytes(gzip.compress((tmp_path / "plain.tfrecord").read_bytes()))
    ps.append({"id": range(30_000, 30_500)}, path, member_bytes=1000)
    assert ids(path) == list(range(30_500))
    picked = [30_499, 3, 30_000, 29_999]
    assert ps.open(path).take(picked)["id"].to_pylist() == picked
    kept = Path(f"{path}.penstock")
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


def test_behind_an_empty_member_nothing_is_put(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord.gz"
    ps.write(OLD, path)
    path.write_bytes(path.read_bytes() + gzip.compress(b""))
    before = path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="empty"):
        ps.append(NEW, path)
    assert path.read_bytes() == before
    ps.repair(path, in_place=True)


@pytest.mark.parametrize("name", ["x.parquet", "x.arrow"])
def test_what_cannot_be_appended_to_says_what_to_try(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path)
    before = path.read_bytes()
    with pytest.raises(ps.UnsupportedError, match="new shard"):
        ps.append(NEW, path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("kind", formats.FORMATS, ids=lambda kind: kind.info.name)
def test_formats_say_truly_whether_they_can_be_appended_to(tmp_path: Path, kind: Any) -> None:
    path = tmp_path / f"x{kind.info.extensions[0]}"
    ps.write({"id": [1]}, path)
    if kind.info.can_append:
        ps.append({"id": [2]}, path)
    else:
        with pytest.raises(ps.UnsupportedError):
            ps.append({"id": [2]}, path)
    assert ids(path) == [1, 2][: 1 + kind.info.can_append]


def test_zlib_has_an_end_that_nothing_follows(tmp_path: Path) -> None:
    ps.write(OLD, tmp_path / "x.tfrecord", compression="zlib")
    with pytest.raises(ps.UnsupportedError, match="ZLIB"):
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
    assert names_in(tmp_path) <= {name, name + ".penstock"}


@pytest.mark.parametrize("name", NAMES)
def test_a_last_record_with_a_damaged_head_is_refused(tmp_path: Path, name: str) -> None:
    """The index fits, for most of its sample agrees; what would follow is lost all the same."""
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    index = sidecar.load(f"{path}.penstock", LocalStorage())
    at = int(index.points[-1].compressed_bit) // 8 + 40 if index.points else int(index.starts[-2])
    data = bytearray(path.read_bytes())
    data[at] ^= 0x55
    path.write_bytes(data)
    with pytest.raises(ps.FormatError):
        ps.append(NEW, path)
    assert path.read_bytes() == bytes(data)


@pytest.mark.parametrize("junk", [b"j", b"junk", bytes(20)])
def test_bytes_behind_the_last_member_are_refused(tmp_path: Path, junk: bytes) -> None:
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

# What tf.train.Example makes of {"id": [1.5], "text": [b"x"]}.
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
    assert names_in(tmp_path) == {name, name + ".penstock"}


def test_nulls_stand_for_what_new_records_do_not_have(tmp_path: Path) -> None:
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
    assert names_in(tmp_path) == {"x.tfrecord", "x.tfrecord.penstock"}


# -- new shards -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tfrecord", "tfrecord.gz", "parquet", "arrow"])
@pytest.mark.parametrize("target", ["", "part-*", "part-{shard:03d}.KIND"])
def test_several_files_get_a_new_shard(tmp_path: Path, kind: str, target: str) -> None:
    ps.write({"id": range(10)}, tmp_path / f"part-{{shard:03d}}.{kind}", shard_records=4)
    made = ps.append({"id": [10, 11]}, tmp_path / target.replace("KIND", kind))
    assert made.paths == (str(tmp_path / f"part-003.{kind}"),)
    assert made.num_bytes == os.path.getsize(made.paths[0])
    assert ids(tmp_path) == list(range(12))
    assert ps.open(tmp_path).schema == ps.open(tmp_path / f"part-000.{kind}").schema
    if kind.startswith("tfrecord"):
        assert Path(f"{made.paths[0]}.penstock").exists()


def test_the_end_of_the_last_of_several_files(tmp_path: Path) -> None:
    ps.write({"id": range(10)}, tmp_path / "x.tfrecord", num_shards=3)
    made = ps.append({"id": [10]}, tmp_path / "x@3.tfrecord", shard="last")
    assert made.paths == (str(tmp_path / "x-00002-of-00003.tfrecord"),)
    assert ids(tmp_path / "x@3.tfrecord") == list(range(11))


@pytest.mark.parametrize("shard", [None, "new"])
def test_names_that_say_how_many_they_are_take_no_new_one(
    tmp_path: Path, shard: str | None
) -> None:
    ps.write({"id": range(10)}, tmp_path / "x.tfrecord", num_shards=3)
    before = names_in(tmp_path)
    for target in ("x@3.tfrecord", "x@*.tfrecord", "x-*", ""):
        with pytest.raises(ValueError, match="shard='last'"):
            ps.append({"id": [10]}, tmp_path / target, shard=shard)
    assert names_in(tmp_path) == before


@pytest.mark.parametrize(
    ("names", "target"),
    [
        (["a.tfrecord", "b.tfrecord"], ""),
        (["p-8.tfrecord", "p-9.tfrecord"], ""),
        (["p-1.tfrecord", "p-2.tfrecord"], "p-[12].tfrecord"),
        (["p-1.tfrecord", "q-2.tfrecord"], ""),
    ],
)
def test_a_name_that_nobody_can_tell_is_an_error(
    tmp_path: Path, names: list[str], target: str
) -> None:
    for name in names:
        ps.write({"id": [1]}, tmp_path / name, index=False)
    with pytest.raises(ValueError, match=r"read before|do not tell|not match"):
        ps.append({"id": [2]}, tmp_path / target)
    assert names_in(tmp_path) == set(names)


def test_new_shards_of_formats_with_types_keep_them(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int32()), ("name", pa.string())])
    old = pa.table({"id": [1], "name": ["a"]}, schema=schema)
    ps.write(old, tmp_path / "p-0.parquet")
    ps.append({"name": ["b"], "id": [2]}, tmp_path)
    assert ps.open(tmp_path / "p-1.parquet").schema == schema
    for data, field in [({"id": [1 << 40], "name": ["b"]}, "id"), ({"id": [1]}, "name")]:
        with pytest.raises(ps.SchemaError) as caught:
            ps.append(data, tmp_path)
        assert caught.value.field == field
    assert names_in(tmp_path) == {"p-0.parquet", "p-1.parquet"}


def test_two_new_shards_at_once_get_two_names(tmp_path: Path) -> None:
    ps.write({"id": [0]}, tmp_path / "p-000.tfrecord")
    in_parallel([lambda n=n: ps.append({"id": [n]}, tmp_path) for n in range(1, 9)])
    assert sorted(ids(tmp_path)) == list(range(9))
    assert len([name for name in names_in(tmp_path) if name.endswith(".tfrecord")]) == 9


def test_nothing_to_append_to_is_an_error(tmp_path: Path) -> None:
    for target in ("x.tfrecord", "x-*", "x-{shard}.tfrecord"):
        with pytest.raises(FileNotFoundError):
            ps.append(NEW, tmp_path / target)
    assert not names_in(tmp_path)


# -- others who are at the file -----------------------------------------------------------------------


def in_parallel(calls: list[Any]) -> None:
    failed: list[BaseException] = []

    def run(call: Any) -> None:
        try:
            call()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed, failed


@pytest.mark.parametrize("name", NAMES)
def test_appends_at_once_wait_for_each_other(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write({"id": range(10)}, path)
    parts = [range(100 * n, 100 * n + 100) for n in range(1, 9)]
    in_parallel([lambda part=part: ps.append({"id": part}, path) for part in parts])
    found = ids(path)
    assert found[:10] == list(range(10))
    appended = [found[at : at + 100] for at in range(10, 810, 100)]
    assert sorted(appended) == [list(part) for part in parts]
    assert ps.verify(path).ok
    assert len(ps.open(path)) == 810


def test_an_append_that_cannot_wait_says_so(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before = path.read_bytes()
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(BlockingIOError, match="another append"):
            ps.append(NEW, path, wait_seconds=0.05)
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"x.tfrecord", "x.tfrecord.penstock"}


@pytest.mark.parametrize("index", ["auto", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_readers_never_see_half_an_append(tmp_path: Path, name: str, index: str) -> None:
    path = tmp_path / name
    step = 200
    pad = [b"so that it takes a while" * 200] * step
    ps.write({"id": range(step), "pad": pad}, path)

    def appending() -> None:
        for first in range(step, 16 * step, step):
            ps.append({"id": range(first, first + step), "pad": pad}, path, level=1)

    seen = [step]

    deadline = time.monotonic() + 300

    def reading() -> None:
        while seen[-1] < 16 * step:
            assert time.monotonic() < deadline, "no append came to its end"
            ds = ps.open(path, index=index)
            found = [n for batch in ds.scan(["id"]) for n in batch["id"].to_pylist()]
            assert found == list(range(len(ds)))
            assert len(found) % step == 0
            assert len(found) >= seen[-1]
            seen.append(len(found))

    in_parallel([appending, reading])
    assert len(set(seen)) > 2


@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("index", ["auto", "never"])
@pytest.mark.parametrize("name", NAMES)
def test_open_readers_keep_their_records(tmp_path: Path, name: str, index: str, mmap: bool) -> None:
    path = tmp_path / name
    ps.write(OLD, path, member_bytes=4096)
    ds = ps.open(path, index=index, mmap=mmap)
    scanning = ds.scan(["id"], threads=1)
    first = next(scanning)["id"].to_pylist()
    ps.append(NEW, path)
    assert first + [n for batch in scanning for n in batch["id"].to_pylist()] == list(range(1000))
    assert len(ds) == 1000
    assert ds.take([999, 0])["id"].to_pylist() == [999, 0]
    assert len(ps.open(path)) == 1300


# -- a note of an append that has not ended -----------------------------------------------------------


def torn(path: Path, written: int) -> tuple[bytes, bytes]:
    """Leave an append to a file as a kill would, with so many of its bytes written: what the file
    was, and what it was to become."""
    before = path.read_bytes()
    ps.append(NEW, path, index=False)
    after = path.read_bytes()
    more = after[len(before) :]
    read = LocalStorage().source(str(path)).read
    note = journal.Journal(
        len(before),
        len(after),
        journal.border_of(read, len(before)),
        more[: journal.EDGE_BYTES].hex(),
        journal.checksum(read, len(before), len(after)),
    )
    Path(journal.path_for(str(path))).write_bytes(note.to_bytes())
    written = written % len(more) if written < len(more) else len(more)
    path.write_bytes(after[: len(before) + written])
    return before, after


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("written", [0, 1, 11, 12, 100, 1500, -8, -1])
def test_whoever_comes_next_takes_half_an_append_back(
    tmp_path: Path, name: str, written: int
) -> None:
    path = tmp_path / name
    verbs = {
        "open": lambda: ids(path),
        "verify": lambda: ps.verify(path),
        "append": lambda: ps.append(NEW, path),
        "index": lambda: ps.index(path),
    }
    for verb, call in verbs.items():
        ps.write(OLD, path, overwrite=True)
        before, after = torn(path, written)
        call()
        assert path.read_bytes() == (after if verb == "append" else before), verb
        assert not os.path.exists(journal.path_for(str(path)))
        assert ps.verify(path).findings == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_append_is_kept_by_whoever_comes_next(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ps.write(OLD, path)
    _, after = torn(path, 1 << 30)
    assert ids(path) == list(range(1300))
    assert path.read_bytes() == after
    assert not os.path.exists(journal.path_for(str(path)))


def test_while_an_append_is_under_way_readers_see_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    for written in (0, 50, 1 << 30):
        before, _ = torn(path, written)
        held = path.read_bytes()
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            assert isinstance(LocalStorage().source(str(path)), FrontPart)
            ds = ps.open(path)
            assert ids(path) == list(range(1000))
            assert len(ds) == 1000
            assert ds.take([999, 0])["id"].to_pylist() == [999, 0]
            assert ps.verify(path).findings == ()
            assert len(ps.open(path, index="never", mmap=True)) == 1000
        assert path.read_bytes() == held, "somebody else has the lock"
        path.write_bytes(before)
        os.unlink(journal.path_for(str(path)))


class MayNotWrite(Calls):
    """Whose files may be read alone."""

    def open(self, path: str, flags: int, mode: int = 0o666) -> int:
        if flags & (os.O_RDWR | os.O_WRONLY):
            raise PermissionError(path)
        return super().open(path, flags, mode)


@pytest.mark.parametrize(("written", "seen"), [(50, 1000), (1 << 30, 1300)])
def test_who_may_not_write_reads_what_is_whole(tmp_path: Path, written: int, seen: int) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    torn(path, written)
    held = path.read_bytes()
    ds = ps.open(path, storage=LocalStorage(MayNotWrite()))
    assert [n for batch in ds.scan(["id"]) for n in batch["id"].to_pylist()] == list(range(seen))
    assert path.read_bytes() == held
    assert os.path.exists(journal.path_for(str(path)))


def test_a_note_does_no_harm_to_a_file_that_it_is_not_about(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, after = torn(path, 50)
    note = Path(journal.path_for(str(path)))
    stored = note.read_bytes()
    other = before + frame(b"somebody else's record")
    foreign = {
        "longer": after + frame(b"x"),
        "shorter": before[: len(before) // 2],
        "another tail": other,
        "another border": before[:-1] + bytes([before[-1] ^ 1]) + b"?",
        "another file": b"".join(frame(b"other %d" % n) for n in range(2000))[: len(before) + 60],
    }
    for what, data in foreign.items():
        path.write_bytes(data)
        note.write_bytes(stored)
        LocalStorage().source(str(path))
        assert path.read_bytes() == data, what
        assert not note.exists(), what


def test_a_note_that_lost_power_with_zeros_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, _ = torn(path, 50)
    path.write_bytes(path.read_bytes() + bytes(100))
    assert ids(path) == list(range(1000))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "note",
    [b"", b"{}", b"[1]", b"\xff\xfe", b'{"old_size": -5}', b"9" * 100_000, b"[" * 60_000],
)
def test_a_note_may_be_anything(tmp_path: Path, note: bytes) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before = path.read_bytes()
    Path(journal.path_for(str(path))).write_bytes(note)
    assert ids(path) == list(range(1000))
    assert path.read_bytes() == before
    assert names_in(tmp_path) == {"x.tfrecord", "x.tfrecord.penstock"}


def test_random_notes_never_cut_old_records(tmp_path: Path) -> None:
    path = tmp_path / "x.tfrecord"
    ps.write(OLD, path)
    before, _ = torn(path, 50)
    held = path.read_bytes()
    note = Path(journal.path_for(str(path)))
    stored = note.read_bytes()
    draw = np.random.default_rng(5)
    for _ in range(200):
        path.write_bytes(held)
        changed = bytearray(stored)
        changed[draw.integers(len(changed))] = draw.integers(256)
        note.write_bytes(changed)
        LocalStorage().source(str(path))
        assert path.read_bytes() in (before, held)
