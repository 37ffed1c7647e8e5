"""Records so large that a scan hops from head to head to find them, instead of reading everything."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps
from frames import example, file_of
from penstock.datasets.take import reordered, take

NUM_RECORDS = 120
RECORD_BYTES = 60_000


@pytest.fixture(scope="module")
def images() -> list[bytes]:
    rng = np.random.default_rng(5)
    return [rng.bytes(RECORD_BYTES + 100 * (n % 7)) for n in range(NUM_RECORDS)]


@pytest.fixture
def path(tmp_path: Path, images: list[bytes]) -> Path:
    file = tmp_path / "large.tfrecord"
    ps.write({"image": images, "label": list(range(NUM_RECORDS))}, file, index=False)
    return file


def labels(dataset: ps.Dataset, threads: int) -> list[int]:
    return [x for batch in dataset.scan(threads=threads) for x in batch["label"].to_pylist()]


def place(path: Path, images: list[bytes], record: int) -> int:
    """The position of a record's frame."""
    data = path.read_bytes()
    payload = data.index(images[record][:64])
    while data[payload - 12 : payload] != _head(data, payload):
        payload -= 1
    return payload - 12


def _head(data: bytes, payload: int) -> bytes:
    """The head of a payload, if a frame starts twelve bytes before it."""
    length = int.from_bytes(data[payload - 12 : payload - 4], "little")
    return data[payload - 12 : payload] if 50_000 < length < 100_000 else b""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("mmap", [False, True])
def test_large_records_are_scanned_in_order(
    path: Path, images: list[bytes], threads: int, mmap: bool
) -> None:
    dataset = ps.open(path, index="never", mmap=mmap)
    found = [x for batch in dataset.scan(threads=threads) for x in batch["image"].to_pylist()]
    assert found == images
    assert len(ps.open(path, index="never")) == NUM_RECORDS


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_payload_is_named_and_the_rest_delivered(
    path: Path, images: list[bytes], threads: int
) -> None:
    start = place(path, images, 77)
    data = bytearray(path.read_bytes())
    data[start + 5000] ^= 4
    path.write_bytes(data)
    seen: list[int] = []
    with pytest.raises(ps.ChecksumError) as caught:
        for batch in ps.open(path, index="never").scan(threads=threads):
            seen += batch["label"].to_pylist()
    assert caught.value.record == 77
    assert seen == list(range(77))
    skipping = ps.open(path, index="never", damage="skip")
    assert labels(skipping, threads) == [n for n in range(NUM_RECORDS) if n != 77]
    assert [(r.start_byte, r.num_records) for r in skipping.damage] == [(start, 1)]


@pytest.mark.parametrize("threads", [1, 2])
def test_a_damaged_head_is_found_while_hopping(
    path: Path, images: list[bytes], threads: int
) -> None:
    start = place(path, images, 90)
    data = bytearray(path.read_bytes())
    data[start + 1] ^= 1
    path.write_bytes(data)
    seen: list[int] = []
    with pytest.raises(ps.ChecksumError) as caught:
        for batch in ps.open(path, index="never").scan(threads=threads):
            seen += batch["label"].to_pylist()
    assert (caught.value.record, caught.value.byte) == (90, start)
    assert seen == list(range(90))
    skipping = ps.open(path, index="never", damage="skip")
    assert labels(skipping, threads) == list(range(NUM_RECORDS))
    assert [(r.start_byte, r.num_records) for r in skipping.damage] == [(start, 0)]
    data[start + 5000] ^= 4
    path.write_bytes(data)
    skipping = ps.open(path, index="never", damage="skip")
    assert labels(skipping, threads) == [n for n in range(NUM_RECORDS) if n != 90]
    assert len(ps.open(path, index="never", damage="skip")) == NUM_RECORDS - 1


def test_a_cut_file_of_large_records_is_reported(path: Path) -> None:
    data = path.read_bytes()
    for missing in (1, 4, 5, 1000, RECORD_BYTES):
        path.write_bytes(data[:-missing])
        seen: list[int] = []
        with pytest.raises(ps.TruncatedError):
            for batch in ps.open(path, index="never").scan():
                seen += batch["label"].to_pylist()
        assert seen == list(range(NUM_RECORDS - 1))


# -- views in place of copies ---------------------------------------------------------------------


def test_a_schema_asks_for_views(path: Path, images: list[bytes]) -> None:
    schema = pa.schema([("image", pa.binary_view()), ("label", pa.int64())])
    dataset = ps.open(path, schema=schema)
    assert dataset.schema == schema
    assert [x for batch in dataset.scan() for x in batch["image"].to_pylist()] == images
    asked = [70, 3, 3, 119, *range(50)]
    batch = dataset.take(asked)
    assert batch.schema == schema
    assert batch["image"].to_pylist() == [images[n] for n in asked]


def test_views_of_small_and_missing_values(tmp_path: Path) -> None:
    names = [b"x" * n if n % 3 else None for n in range(40)]
    lists = [[b"y" * k for k in range(n % 4)] for n in range(40)]
    ps.write(pa.table({"name": names, "parts": lists}), tmp_path / "a.tfrecord")
    schema = pa.schema([("name", pa.binary_view()), ("parts", pa.list_(pa.binary_view()))])
    batch = ps.open(tmp_path / "a.tfrecord", schema=schema).take(np.arange(40))
    assert batch.schema.types == schema.types
    assert batch["name"].to_pylist() == names
    assert [part or [] for part in batch["parts"].to_pylist()] == lists


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("mmap", [False, True])
def test_batches_of_large_records_from_several_files(
    tmp_path: Path, images: list[bytes], threads: int, mmap: bool
) -> None:
    """Some files have only small records, some lack the field, and some have it twice."""
    small = [b"small %d" % n for n in range(60)]
    ps.write({"image": images, "n": list(range(NUM_RECORDS))}, tmp_path / "a.tfrecord")
    ps.write({"image": small, "n": list(range(200, 260))}, tmp_path / "b.tfrecord")
    ps.write({"n": [300, 301]}, tmp_path / "c.tfrecord")
    twice = [example({"n": [400 + k]}) + example({"image": [images[k]]}) for k in range(50)]
    (tmp_path / "d.tfrecord").write_bytes(file_of(twice))
    wanted = dict(enumerate(images)) | {200 + k: x for k, x in enumerate(small)}
    wanted |= {300: b"none", 301: b"none"} | {400 + k: images[k] for k in range(50)}
    schema = {
        "image": ps.features.FixedLen((), "bytes", default=b"none"),
        "n": ps.features.FixedLen((), "int64"),
    }
    dataset = ps.open(sorted(tmp_path.glob("*.tfrecord")), schema=schema, mmap=mmap)
    loader = ps.Loader(dataset, 64, order=ps.Shuffled(1), threads=threads)
    found = {int(n): x for batch in loader for n, x in zip(batch["n"], batch["image"], strict=True)}
    assert found == wanted
    assert all(type(x) is bytes for x in found.values())


def test_damage_among_many_large_records_is_named(path: Path, images: list[bytes]) -> None:
    data = bytearray(path.read_bytes())
    for record in (23, 90):
        data[data.index(images[record][:64]) + 30_000] ^= 4
    everything = np.arange(NUM_RECORDS)[::-1]
    len(ps.open(path))  # the index belongs to the old file
    path.write_bytes(data)
    with pytest.raises(ps.ChecksumError) as caught:
        ps.open(path).take(everything)
    assert caught.value.record == 90
    loader = ps.Loader(ps.open(path, damage="skip"), NUM_RECORDS, order=ps.Sequential())
    (batch,) = list(loader)
    assert batch["label"].tolist() == [n for n in range(NUM_RECORDS) if n not in (23, 90)]
    assert batch["image"].tolist() == [x for n, x in enumerate(images) if n not in (23, 90)]
    assert loader.stats().num_skipped == 2


def blobs(count: int, seed: int) -> list[bytes]:
    rng = np.random.default_rng(seed)
    return [rng.bytes(int(size)) for size in rng.integers(0, 300, count)]


def seen(loader: ps.Loader, *names: str) -> dict[int, tuple[bytes, ...]]:
    found = {}
    for batch in loader:
        columns = [batch[name] for name in names]
        found |= {int(n): v for n, *v in zip(batch["n"], *columns, strict=True)}
    return found


@pytest.mark.parametrize("threads", [0, 2])
def test_batches_of_overlaid_records_have_the_overlay(tmp_path: Path, threads: int) -> None:
    path, old, new = tmp_path / "a.tfrecord", blobs(200, 1), blobs(200, 2)
    ps.write({"n": np.arange(200), "blob": old}, path)
    ps.add_fields(path, {"more": new})
    loader = ps.Loader(ps.open(path), 16, order=ps.Shuffled(1), threads=threads)
    assert seen(loader, "blob", "more") == {n: [old[n], new[n]] for n in range(200)}


@pytest.mark.parametrize("threads", [0, 2])
def test_batches_of_files_that_lend_and_files_that_do_not(tmp_path: Path, threads: int) -> None:
    wanted = {}
    for number, ending in enumerate(("tfrecord", "parquet", "msgpack")):
        values, numbers = blobs(100, number), np.arange(100) + 1000 * number
        ps.write({"n": numbers, "blob": values}, tmp_path / f"{number}.{ending}")
        wanted |= {int(n): [v] for n, v in zip(numbers, values, strict=True)}
    dataset = ps.open([str(tmp_path / name) for name in ("0.tfrecord", "1.parquet", "2.msgpack")])
    loader = ps.Loader(dataset, 16, order=ps.Shuffled(1), threads=threads)
    assert seen(loader, "blob") == wanted


def test_views_of_many_files_share_few_buffers(tmp_path: Path) -> None:
    wanted: list[bytes | None] = []
    for number in range(40):
        values = [None if n % 7 == 3 else v for n, v in enumerate(blobs(16, number))]
        ps.write(pa.table({"blob": values}), tmp_path / f"{number:02}.tfrecord")
        wanted += values
    dataset = ps.open(str(tmp_path))
    asked = np.random.default_rng(0).permutation(len(wanted))
    batch = take(dataset, asked, None, lend=True)
    assert batch["blob"].type == pa.binary_view()
    assert batch["blob"].to_pylist() == [wanted[n] for n in asked]
    assert len(batch["blob"].buffers()) <= 2 + 40
    part = reordered(batch.slice(100, 50), np.array([49, 0, 0, 7]))
    assert part["blob"].to_pylist() == [wanted[asked[100 + n]] for n in (49, 0, 0, 7)]
    assert reordered(batch, np.arange(0)).num_rows == 0


@pytest.mark.parametrize("damage", ["skip", "stop"])
def test_batches_without_any_image_that_can_be_decoded(tmp_path: Path, damage: str) -> None:
    good = ps.encode_images(np.zeros((4, 8, 8, 3), np.uint8), "png").to_pylist()
    images = [*good, b"none", b"of these", b"is an", b"image", *good]
    ps.write({"n": np.arange(12), "image": images}, tmp_path / "a.tfrecord")
    dataset = ps.open(tmp_path / "a.tfrecord", damage=damage)
    loader = ps.Loader(dataset, 4, order=ps.Sequential(), decode={"image": ps.Image(2)})
    found = [n for batch in loader for n in batch["n"].tolist()]
    assert found == [0, 1, 2, 3, *([8, 9, 10, 11] if damage == "skip" else [])]


def test_an_error_of_the_storage_comes_in_its_place(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    ps.write({"n": np.arange(400)}, path)
    dataset = ps.open(path)
    reader = dataset.files.reader(0)

    def failing(read: Callable[..., object]) -> Callable[..., object]:
        def call(records: np.ndarray, *columns: object) -> object:
            if 333 in records:
                raise OSError("the cable is out")
            return read(records, *columns)

        return call

    for name in ("pick", "at_once"):
        setattr(reader, name, failing(getattr(reader, name)))
    loader = ps.Loader(dataset, 2, order=ps.Sequential(), threads=2)
    found = []
    with pytest.raises(OSError, match="cable"):
        for batch in loader:
            found += batch["n"].tolist()
    assert found == list(range(332))


def test_a_limit_met_by_an_index_names_the_record(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.file_of([b"", b"1234"]))
    ps.index(path)
    with pytest.raises(ps.LimitError) as raised:
        ps.open(path, raw=True, limits={"record_bytes": 3}).take([0, 1])
    assert (raised.value.file, raised.value.record, raised.value.byte) == (str(path), 1, 16)
