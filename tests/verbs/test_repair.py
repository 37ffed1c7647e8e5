"""Repair saves every record that was not damaged, in order, and never invents one."""

from __future__ import annotations

import gzip
import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock as ps
from penstock import _core
from penstock.framing.framings import TFRECORD
from penstock.framing.index import fitting, sidecar
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage
from penstock.verbs.write.write import write
from reading import index_of

KINDS = [None, "gzip", "zlib"]


def frames(payloads: list[bytes]) -> bytes:
    return _core.frame_records(pa.array(payloads, pa.binary())).data.to_bytes()


def payloads_of(count: int, seed: int, most: int = 400) -> list[bytes]:
    rng = random.Random(seed)
    # A number makes each payload unique.
    return [n.to_bytes(3, "big") + rng.randbytes(rng.randrange(most)) for n in range(count)]


def numbers(path: Path) -> list[int]:
    """The numbers of the records of `payloads_of` that a file has."""
    return [int.from_bytes(record[:3], "big") for record in records(path)]


def written(path: Path, payloads: list[bytes], compression: str | None = None, **options) -> Path:
    schema = pa.schema([("record", pa.binary())])
    batch = pa.record_batch([pa.array(payloads, pa.binary())], schema=schema)
    write(batch, str(path), compression=compression, overwrite=True, **options)
    return path


def records(path: Path | str) -> list[bytes]:
    return [row["record"] for row in ps.open(str(path), raw=True, index="never")]


def test_an_undamaged_file_is_copied_byte_for_byte(tmp_path: Path) -> None:
    for kind in KINDS:
        path = written(tmp_path / f"a-{kind}.tfrecord", payloads_of(3000, 1), kind)
        copy = tmp_path / f"b-{kind}.tfrecord"
        report = ps.repair(str(path), into=str(copy))
        assert report.ok
        assert report.num_records == 3000
        assert copy.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("with_index", [False, True])
@pytest.mark.parametrize("seed", range(12))
def test_changed_bytes_lose_only_the_records_they_are_in(
    tmp_path: Path, seed: int, with_index: bool
) -> None:
    payloads = payloads_of(400, seed)
    path = written(tmp_path / "a.tfrecord", payloads, index=with_index)
    data = bytearray(path.read_bytes())
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)])
    rng = random.Random(seed)
    lost: set[int] = set()
    for record in rng.sample(range(len(payloads)), 15):
        begin, end = int(starts[record]), int(starts[record + 1])
        place = rng.randrange(begin, end)
        data[place] ^= rng.randrange(1, 256)
        in_head = place < begin + 12
        in_checksum = place >= end - 4
        # A head can be restored, and so can a checksum that the index stores.
        if not in_head and not (in_checksum and with_index):
            lost.add(record)
    path.write_bytes(data)
    report = ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    right = [p for n, p in enumerate(payloads) if n not in lost]
    assert records(tmp_path / "b.tfrecord") == right
    assert report.num_records == len(right)
    assert not report.ok
    assert report.num_lost == len(lost)
    assert {f.record for f in report.findings if not f.restored} == lost
    assert ps.verify(str(tmp_path / "b.tfrecord")).ok


@pytest.mark.parametrize("seed", range(12))
def test_bursts_over_several_records_with_an_index(tmp_path: Path, seed: int) -> None:
    payloads = payloads_of(400, seed)
    path = written(tmp_path / "a.tfrecord", payloads)
    data = bytearray(path.read_bytes())
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)])
    rng = random.Random(seed)
    touched: set[int] = set()
    for _ in range(5):
        begin = rng.randrange(len(data) - 900)
        end = begin + rng.randrange(20, 900)
        data[begin:end] = rng.randbytes(end - begin)
        first = int(np.searchsorted(starts, begin, "right")) - 1
        touched.update(range(first, int(np.searchsorted(starts, end, "left"))))
    path.write_bytes(data)
    report = ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    saved = records(tmp_path / "b.tfrecord")
    kept = numbers(tmp_path / "b.tfrecord")
    assert saved == [payloads[n] for n in kept]
    assert kept == sorted(kept)
    assert set(range(len(payloads))) - set(kept) <= touched
    assert report.num_lost == len(payloads) - len(kept)


@pytest.mark.parametrize("seed", range(6))
def test_one_burst_without_an_index(tmp_path: Path, seed: int) -> None:
    payloads = payloads_of(400, seed)
    path = written(tmp_path / "a.tfrecord", payloads, index=False)
    data = bytearray(path.read_bytes())
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)])
    rng = random.Random(seed)
    begin = rng.randrange(len(data) - 900)
    data[begin : begin + 500] = bytes(500)
    first = int(np.searchsorted(starts, begin, "right")) - 1
    after = int(np.searchsorted(starts, begin + 500, "left"))
    path.write_bytes(data)
    ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    saved = records(tmp_path / "b.tfrecord")
    assert saved[:first] == payloads[:first]
    assert saved[len(saved) - (len(payloads) - after) :] == payloads[after:]
    assert len(saved) <= len(payloads)


@pytest.mark.parametrize("seed", range(8))
def test_a_broken_member_takes_no_other_with_it(tmp_path: Path, seed: int) -> None:
    payloads = payloads_of(600, seed)
    path = written(
        tmp_path / "a.tfrecord", payloads, "gzip", member_bytes=8192, index=seed % 2 == 0
    )
    data = bytearray(path.read_bytes())
    index = ps.open(str(path), raw=True, index="never").files.reader(0).index
    members = [p.compressed_bit // 8 for p in index.points] + [len(data)]
    plain = [p.plain_start for p in index.points] + [index.plain_bytes]
    rng = random.Random(seed)
    broken = sorted(rng.sample(range(len(members) - 1), 2))
    for member in broken:
        # Anywhere except in the size, which is used to hop over the record.
        place = rng.randrange(members[member] + 24, members[member + 1])
        data[place] ^= 1 << rng.randrange(8)
    path.write_bytes(data)
    ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    saved = records(tmp_path / "b.tfrecord")
    kept = numbers(tmp_path / "b.tfrecord")
    assert saved == [payloads[n] for n in kept]
    assert kept == sorted(kept)
    for record in set(range(len(payloads))) - set(kept):
        at = int(index.starts[record])
        assert any(plain[m] <= at < plain[m + 1] for m in broken)


def test_a_member_with_a_broken_head_is_skipped(tmp_path: Path) -> None:
    payloads = payloads_of(600, 3)
    for place in (0, 2, 3, 13, 17, 22):
        path = written(tmp_path / "a.tfrecord", payloads, "gzip", member_bytes=8192, index=False)
        index = ps.open(str(path), raw=True, index="never").files.reader(0).index
        data = bytearray(path.read_bytes())
        data[index.points[5].compressed_bit // 8 + place] ^= 0xE4
        path.write_bytes(data)
        report = ps.repair(str(path), into=str(tmp_path / "b.tfrecord"), overwrite=True)
        kept = numbers(tmp_path / "b.tfrecord")
        assert kept == sorted(kept)
        lost = set(range(len(payloads))) - set(kept)
        inside = (index.starts[:-1] >= index.points[5].plain_start) & (
            index.starts[:-1] < index.points[6].plain_start
        )
        assert lost <= set(np.flatnonzero(inside).tolist()), place
        # The extra field has no checksum, and gzip itself does not need it.
        assert report.ok == (not lost)


def test_seek_points_of_an_index_save_what_follows(tmp_path: Path) -> None:
    payloads = payloads_of(20000, 3)
    path = tmp_path / "a.tfrecord.gz"
    path.write_bytes(gzip.compress(frames(payloads), 1))
    assert ps.index(str(path))
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 3 + 40] = bytes(40)
    path.write_bytes(data)
    report = ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    saved = records(tmp_path / "b.tfrecord")
    kept = numbers(tmp_path / "b.tfrecord")
    assert saved == [payloads[n] for n in kept]
    assert kept == sorted(kept)
    assert len(saved) > len(payloads) // 2
    assert saved[-100:] == payloads[-100:]
    assert report.num_lost == len(payloads) - len(saved)


def nested_files() -> list[bytes]:
    """A record that is itself a TFRecord file, with different records around it."""
    inner = frames(payloads_of(20, 9))
    return [
        frames([b"a", inner, b"b"]),
        frames([inner, b"last"]),
        frames([b"first", inner]),
        frames([inner + frames([b"deeper"]), inner]),
    ]


def test_no_record_is_made_from_the_contents_of_another(tmp_path: Path) -> None:
    for number, data in enumerate(nested_files()):
        path = tmp_path / f"{number}.tfrecord"
        path.write_bytes(data)
        true = set(records(path))
        rng = random.Random(number)
        for _ in range(100):
            broken = bytearray(data)
            for _ in range(rng.randrange(1, 4)):
                place = rng.randrange(len(data))
                broken[place : place + rng.choice([1, 1, 8])] = rng.randbytes(1)
            path.write_bytes(broken)
            out = tmp_path / "out.tfrecord"
            ps.repair(str(path), into=str(out), overwrite=True)
            assert set(records(out)) <= true


def test_a_file_cut_inside_a_record_that_holds_records(tmp_path: Path) -> None:
    inner = payloads_of(20, 9)
    data = frames([b"first", frames(inner)])
    path, out = tmp_path / "a.tfrecord", tmp_path / "b.tfrecord"
    borders = 33 + np.cumsum([len(p) + 16 for p in inner])
    for cut in [*borders.tolist(), *range(22, 60), *range(len(data) - 20, len(data))]:
        if cut == len(data):
            continue
        path.write_bytes(data[:cut])
        ps.repair(str(path), into=str(out), overwrite=True)
        assert records(out) == [b"first"], cut


def test_in_place_replaces_only_what_is_damaged(tmp_path: Path) -> None:
    for number in range(3):
        written(tmp_path / f"x-{number:05d}-of-00003.tfrecord", payloads_of(50, number))
    damaged = tmp_path / "x-00001-of-00003.tfrecord"
    data = bytearray(damaged.read_bytes())
    data[40] ^= 1
    damaged.write_bytes(data)
    before = {p: os.stat(p).st_ino for p in tmp_path.glob("*.tfrecord")}
    report = ps.repair(str(tmp_path), in_place=True)
    assert report.paths == (str(damaged),)
    assert {p for p, inode in before.items() if os.stat(p).st_ino != inode} == {damaged}
    assert ps.verify(str(tmp_path)).ok
    assert len(ps.open(str(tmp_path))) == 150 - (report.num_lost or 0)
    source = LocalStorage().source(str(damaged))
    index = sidecar.load(str(index_of(damaged)), LocalStorage())
    assert fitting.fits(index, source, TFRECORD)


def test_no_file_is_left_if_nothing_can_be_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(bytes(range(200)))
    report = ps.repair(str(path), in_place=True)
    assert not report.ok
    assert not report.paths
    assert path.read_bytes() == bytes(range(200))


def test_the_folders_of_repaired_files_are_kept(tmp_path: Path) -> None:
    names = ["a.tfrecord", "x/a.tfrecord", "x/y/b.tfrecord"]
    source, out = tmp_path / "source", tmp_path / "out"
    for number, name in enumerate(names):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        ps.write({"id": [number]}, source / name)
    report = ps.repair(source, into=out)
    assert sorted(report.paths) == sorted(str(out / name) for name in names)
    for number, name in enumerate(names):
        assert [record["id"] for record in ps.open(out / name)] == [number]
    # A glob and a list keep what is below the folder of all files.
    ps.repair(str(source / "x" / "**" / "*.tfrecord"), into=tmp_path / "glob")
    assert (tmp_path / "glob" / "a.tfrecord").exists()
    assert (tmp_path / "glob" / "y" / "b.tfrecord").exists()
    ps.repair([source / name for name in names[:2]], into=tmp_path / "list")
    assert (tmp_path / "list" / "x" / "a.tfrecord").exists()
    with pytest.raises(FileExistsError):
        ps.repair(source, into=out)
    with pytest.raises(ValueError, match="same name"):
        ps.repair([source / names[0], source / names[0]], into=tmp_path / "twice")


def test_targets_are_not_overwritten_unasked(tmp_path: Path) -> None:
    path = written(tmp_path / "a.tfrecord", [b"x"])
    written(tmp_path / "b.tfrecord", [b"y"])
    with pytest.raises(FileExistsError):
        ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    with pytest.raises(ValueError, match="in_place"):
        ps.repair(str(path), into=str(tmp_path) + "/")
    assert records(tmp_path / "b.tfrecord") == [b"y"]


def test_row_groups_that_decode_are_saved(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    values = np.random.default_rng(0).integers(0, 1 << 60, 4000)
    options = {"row_group_size": 1000, "write_page_checksum": True, "use_dictionary": False}
    pq.write_table(pa.table({"x": values}), path, compression="none", **options)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    report = ps.repair(str(path), into=str(tmp_path / "b.parquet"))
    assert report.num_records == 3000
    assert report.num_lost == 1000
    assert len(pq.read_table(tmp_path / "b.parquet")) == 3000


def test_salvage_is_only_done_when_asked(tmp_path: Path) -> None:
    payloads = payloads_of(100, 5)
    data = bytearray(frames(payloads))
    starts = np.cumsum([0, *(len(p) + 16 for p in payloads)])
    for record in (30, 60):
        begin = int(starts[record])
        data[begin : begin + 14] = b"\xff" * 14
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    ps.repair(str(path), into=str(tmp_path / "b.tfrecord"))
    assert records(tmp_path / "b.tfrecord") == payloads[:30] + payloads[61:]
    ps.repair(str(path), into=str(tmp_path / "c.tfrecord"), salvage=True)
    assert records(tmp_path / "c.tfrecord") == payloads[:30] + payloads[31:60] + payloads[61:]
    with pytest.raises(ValueError, match=r"penstock\.repair\(\.\.\., salvage=True\)"):
        ps.open(path, damage="salvage")


def test_files_of_another_storage_are_verified_and_repaired() -> None:
    data = bytearray(frames([b"one", b"two", b"three"]))
    data[12] ^= 1
    storage = MemoryStorage({"m.tfrecord": bytes(data)})
    report = ps.verify("m.tfrecord", storage=storage)
    assert report.num_records == 2
    assert report.num_bytes == len(data)
    assert ps.repair("m.tfrecord", into="n.tfrecord", storage=storage).num_records == 2


@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
@pytest.mark.parametrize("is_stream", [True, False])
def test_an_arrow_file_is_repaired_as_the_same_kind_of_file(
    tmp_path: Path, compression: Any, is_stream: bool
) -> None:
    path, whole = tmp_path / "a.arrow", tmp_path / "b.arrow"
    ps.write({"a": list(range(1000))}, path, stream=is_stream, compression=compression)
    assert ps.repair(path, into=whole).num_records == 1000
    assert whole.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("compression", ["none", "snappy", "zstd", "gzip"])
def test_a_parquet_file_is_repaired_with_its_codec(tmp_path: Path, compression: str) -> None:
    path, whole = tmp_path / "a.parquet", tmp_path / "b.parquet"
    ps.write({"a": list(range(1000))}, path, compression=compression)
    assert ps.repair(path, into=whole).num_records == 1000
    codec = pq.ParquetFile(whole).metadata.row_group(0).column(0).compression
    assert codec.lower().replace("uncompressed", "none") == compression


def test_only_the_damaged_part_of_a_large_arrow_batch_is_lost(tmp_path: Path) -> None:
    """Invalid text is found in one of the parts in which the batch is read; the other parts are saved."""
    path, whole = tmp_path / "a.arrow", tmp_path / "b.arrow"
    num_records = 60_000
    batch = pa.record_batch({"text": [f"{number:x>1000}" for number in range(num_records)]})
    with pa.ipc.new_file(path, batch.schema) as file:
        file.write_batch(batch)
    data = bytearray(path.read_bytes())
    data[data.index(b"x40000x") - 500] = 0xFF
    path.write_bytes(data)
    report = ps.repair(path, into=whole)
    (finding,) = ps.verify(path).findings
    (told,) = report.findings
    assert finding.num_records == told.num_records == num_records - report.num_records
    assert 0 < finding.num_records < num_records / 2
    saved = [int(row["text"].strip("x")) for row in ps.open(whole)]
    assert len(saved) == report.num_records
    lost = set(range(num_records)).difference(saved)
    assert 40_000 in lost
    assert lost == set(range(min(lost), max(lost) + 1))


@pytest.mark.parametrize("name", ["b.parquet", "b.tar", "b.h5"])
def test_a_new_file_is_not_named_like_one_of_another_format(tmp_path: Path, name: str) -> None:
    path, target = tmp_path / "a.tfrecord", tmp_path / name
    ps.write({"id": [1, 2]}, path)
    for make in (
        lambda: ps.repair(path, into=target),
        lambda: ps.add_fields(path, {"new": 1}, into=target),
        lambda: ps.drop_fields(path, "id", into=target),
    ):
        with pytest.raises(ps.UnsupportedError, match="the format of its source, tfrecord") as no:
            make()
        assert no.value.file == str(target)
        assert not target.exists()


@pytest.mark.parametrize("name", ["b.tfrecord", "b.tfrecords", "b.data", "b", "b.bak"])
def test_a_new_file_may_have_any_name_of_no_other_format(tmp_path: Path, name: str) -> None:
    ps.write({"id": [1, 2]}, tmp_path / "a.tfrecord")
    assert ps.repair(tmp_path / "a.tfrecord", into=tmp_path / name).ok
    assert len(ps.open(tmp_path / name)) == 2


def test_a_file_of_another_format_than_its_name_may_keep_the_ending(tmp_path: Path) -> None:
    ps.write({"id": [1, 2]}, tmp_path / "a.tfrecord")
    (tmp_path / "a.tfrecord").rename(tmp_path / "a.parquet")
    assert ps.repair(tmp_path / "a.parquet", into=tmp_path / "b.parquet").ok
