"""Records so large that a scan hops from head to head instead of reading to find them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import penstock as ps

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
    """Where the frame of a record starts."""
    data = path.read_bytes()
    payload = data.index(images[record][:64])
    while data[payload - 12 : payload] != _head(data, payload):
        payload -= 1
    return payload - 12


def _head(data: bytes, payload: int) -> bytes:
    """What stands before a payload, if a frame starts twelve bytes before it."""
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
