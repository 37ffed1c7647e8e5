"""A record longer than `limits.record_bytes` does not affect any other record, in every format that has this
limit."""

from __future__ import annotations

import ast
import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from array_record.python.array_record_module import ArrayRecordWriter

import penstock as ps
from formats import tars
from fuzz import mxnet_rules
from fuzz.mds_shards import one_column

NUM_RECORDS, LONG = 9, (2, 5)
LIMITS = {"record_bytes": 40_000}
OTHERS = [n for n in range(NUM_RECORDS) if n not in LONG]


def values(long_bytes: int) -> list[bytes]:
    return [bytes([65 + n]) * (long_bytes if n in LONG else 10) for n in range(NUM_RECORDS)]


def tar(path: Path, long_bytes: int) -> None:
    members = [
        (f"k{n}.{name}", contents)
        for n, value in enumerate(values(long_bytes))
        for name, contents in (("bin", value), ("cls", b"%d" % n))
    ]
    data = tars.archive(members)
    path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)


def written(path: Path, long_bytes: int, **options: str) -> None:
    ps.write({"id": range(NUM_RECORDS), "b": values(long_bytes)}, path, index=False, **options)


def recordio(path: Path, long_bytes: int) -> None:
    images = [b"\xff\xd8\xff" + value for value in values(long_bytes)]
    packed = [mxnet_rules.pack(1.0, image, n) for n, image in enumerate(images)]
    path.write_bytes(mxnet_rules.file_of(packed))


def array_record(path: Path, long_bytes: int) -> None:
    writer = ArrayRecordWriter(str(path), "group_size:1,uncompressed")
    for value in values(long_bytes):
        writer.write(value)
    writer.close()


def images(path: Path, long_bytes: int) -> None:
    (path / "a").mkdir(parents=True)
    for n, value in enumerate(values(long_bytes)):
        (path / "a" / f"{n}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + value)


MAKERS: dict[str, Callable[[Path, int], None]] = {
    "x.tar": tar,
    "x.tar.gz": tar,
    "x.tfrecord": written,
    "gzip.tfrecord": lambda path, size: written(path, size, compression="gzip"),
    "zlib.tfrecord": lambda path, size: written(path, size, compression="zlib"),
    "x.msgpack": written,
    "x.rec": recordio,
    "x.mds": lambda path, size: path.write_bytes(one_column("bytes", values(size))) and None,
    "x.beton": written,
    "x.array_record": array_record,
    "images": images,
}


@pytest.fixture(params=[(name, size) for name in MAKERS for size in (60_000, 300_000)], ids=str)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file with two long records: one within the window that is read first, and one beyond it."""
    name, size = request.param
    MAKERS[name](tmp_path / name, size)
    return tmp_path / name


def counted(dataset: ps.Dataset, threads: int = 2) -> int:
    return sum(batch.num_rows for batch in dataset.scan(threads=threads))


@pytest.mark.parametrize("kept", ["never", "beside"])
def test_a_long_record_affects_no_other_record(path: Path, kept: str, tmp_path: Path) -> None:
    index = "never"
    if kept == "beside":
        index = str(tmp_path / "indexes")
        ps.index(path, folder=index)
    whole = ps.open(path, index=index)
    short = ps.open(path, index=index, limits=LIMITS)
    assert len(short) == NUM_RECORDS
    columns = [name for name in short.schema.names if name != "__url__"]
    assert short.take(OTHERS, columns=columns) == whole.take(OTHERS, columns=columns)
    for call in (lambda: short.take([0, 2]), lambda: counted(short)):
        with pytest.raises(ps.LimitError, match="record_bytes") as caught:
            call()
        assert caught.value.record == 2
    for threads in (1, 3):
        skipping = ps.open(path, index=index, limits=LIMITS, damage="skip")
        assert counted(skipping, threads) == len(OTHERS)
        assert [region.num_records for region in skipping.damage] == [1, 1]


def test_the_hint_of_a_long_record_says_how_to_read_it(path: Path) -> None:
    limits = LIMITS
    for _ in range(2):
        with pytest.raises(ps.LimitError) as caught:
            counted(ps.open(path, index="never", limits=limits))
        assert caught.value.hint
        limits = ast.literal_eval(caught.value.hint.partition("limits=")[2][:-1])
        if counted(ps.open(path, index="never", limits=limits, damage="skip")) == NUM_RECORDS:
            break
    assert counted(ps.open(path, index="never", limits=limits)) == NUM_RECORDS


def test_verify_reports_long_records_and_repair_replaces_no_file_for_them(path: Path) -> None:
    report = ps.verify(path, index="never", limits=LIMITS)
    found = [(finding.kind, finding.record, finding.num_records) for finding in report.findings]
    assert found == [("limit", 2, 1), ("limit", 5, 1)]
    assert report.num_records == len(OTHERS)
    if path.is_dir() or path.suffix in (".mds", ".array_record"):
        return
    before = path.read_bytes()
    with pytest.raises(ps.LimitError):
        ps.repair(path, in_place=True, limits=LIMITS)
    assert path.read_bytes() == before
