"""Sidecars with false contents and correct checksums: they lead to a rebuilt index or to a StaleIndexError, and take
no more memory than their contents justify."""

from __future__ import annotations

import random
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import frames
import penstock as ps
from fuzz.indexes import ENTRY, HEADER, sealed
from penstock.framing.index import kept_schema, sidecar
from penstock.storage import MemoryStorage
from penstock.storage.local import LocalStorage
from reading import index_of, run_python

pytestmark = pytest.mark.usefixtures("index_beside")

PAYLOADS = [b"record %d" % n for n in range(300)]


@pytest.fixture(params=["plain", "gzip"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    data = frames.file_of(PAYLOADS)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data if request.param == "plain" else frames.gzip_of(data))
    assert len(ps.open(path, raw=True)) == len(PAYLOADS)
    return str(path)


def edited(good: bytes, rng: random.Random) -> bytes:
    """A few bytes changed anywhere, with all checksums corrected."""
    bad = bytearray(good)
    for _ in range(rng.randrange(1, 4)):
        at = rng.randrange(len(bad)) if rng.random() < 0.4 else rng.randrange(min(len(bad), 256))
        how = rng.randrange(3)
        if how == 0:
            bad[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            bad[at] = rng.randrange(256)
        else:
            bad[at : at + 8] = rng.choice([bytes(8), b"\xff" * 8, rng.randbytes(8)])
    return sealed(bytes(bad))


def test_random_edits_with_mended_checksums_are_noticed_or_do_no_harm(path: str) -> None:
    good = index_of(path).read_bytes()
    rng = random.Random(5)
    storage = MemoryStorage()
    for _ in range(1500):
        storage.files["bad"] = edited(good, rng)
        try:
            sidecar.load("bad", storage)
        except ps.StaleIndexError:
            pass
    for _ in range(60):
        index_of(path).write_bytes(edited(good, rng))
        try:
            dataset = ps.open(path, raw=True)
            assert {row["record"] for row in dataset} <= set(PAYLOADS)
            assert set(dataset.take([0, 5]).column(0).to_pylist()) <= set(PAYLOADS)
        except ps.StaleIndexError:
            index_of(path).unlink(missing_ok=True)
        except IndexError:
            assert len(dataset) < 6, "a forger may hide records"


def test_edited_types_end_in_errors_of_penstock(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"name": ["a", "b"], "n": pa.array([1, 2], pa.int8())}, path)
    index = sidecar.load(str(index_of(path)), LocalStorage())
    rng = random.Random(6)
    for _ in range(300):
        schema = bytearray(index.schema)
        for _ in range(rng.randrange(1, 4)):
            schema[rng.randrange(len(schema))] = rng.randrange(256)
        kept_schema.from_bytes(bytes(schema))
    for _ in range(40):
        schema = bytearray(index.schema)
        schema[rng.randrange(len(schema))] ^= 1 << rng.randrange(8)
        forged = sidecar.replace(index, schema=bytes(schema))
        sidecar.save(forged, path, LocalStorage())
        try:
            assert sum(batch.num_rows for batch in ps.open(path).scan()) == 2
        except ps.PenstockError:
            pass


BOMB = """
import resource, sys
import penstock as ps
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    dataset = ps.open(sys.argv[1], raw=True, index="beside")
    assert len(dataset) == 300
    assert dataset[299]["record"] == b"record 299"
except ps.PenstockError:
    pass  # whose index lies about compressed bytes with right checksums
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_a_small_index_takes_little_memory(tmp_path: Path) -> None:
    """The index has 57,000 windows of seek points that inflate to 32 KiB each, 1.8 GiB together."""
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.gzip_of(frames.file_of(PAYLOADS)))
    len(ps.open(path, raw=True))
    index = sidecar.load(str(index_of(path)), LocalStorage())
    packed = zlib.compress(bytes(32768), 9)
    point = sidecar.SeekPoint(8, 0, b"", 0, packed)
    bomb = sidecar.replace(index, layout="points", points=(*index.points, *[point] * 57_000))
    sidecar.save(bomb, str(path), LocalStorage())
    assert index_of(path).stat().st_size < 6 << 20
    assert int(run_python(BOMB, str(path))) < 160 << 10, "KiB"


@pytest.mark.parametrize("name", ["num_records", "num_points", "body_bytes", "num_sections"])
def test_wrong_numbers_take_no_memory(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(frames.gzip_of(frames.file_of(PAYLOADS)))
    len(ps.open(path, raw=True))
    good = index_of(path).read_bytes()
    place = {"num_sections": 4, "num_records": 5, "num_points": 8, "body_bytes": 13}[name]
    for number in (1 << 24, (1 << 32) - 1):
        fields = list(HEADER.unpack_from(good))
        fields[place] = number
        forged = HEADER.pack(*fields) + good[HEADER.size :]
        index_of(path).write_bytes(sealed(forged))
        assert int(run_python(BOMB, str(path))) < 96 << 10, "KiB"


def test_a_section_may_be_read_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"n": np.arange(20_000, dtype=np.int8)}, path)
    kept_at = index_of(path)
    good = kept_at.read_bytes()
    kept_at.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))  # damage far after the schema
    facts, found = sidecar.load_sections(str(kept_at), LocalStorage(), "schema", "none such")
    assert kept_schema.from_bytes(found["schema"]) == pa.schema({"n": pa.int8()})
    assert (facts.num_records, found["none such"]) == (20_000, b"")
    with pytest.raises(ps.StaleIndexError):
        sidecar.load(str(kept_at), LocalStorage())


def test_unknown_sections_are_skipped(path: str) -> None:
    good = index_of(path).read_bytes()
    names = [good[96 + n * ENTRY.size :][:16].rstrip(b"\0") for n in range(2)]
    assert names[0] == b"starts"
    # An empty section, in place of a section that a plain read does not need.
    renamed = bytearray(sealed(good))
    at = 96 + (HEADER.unpack_from(good)[4] - 1) * ENTRY.size
    last = bytes(renamed[at : at + 16]).rstrip(b"\0")
    renamed[at : at + 16] = b"of the future".ljust(16, b"\0")
    index_of(path).write_bytes(sealed(bytes(renamed)))
    if last in (b"starts", b"checksums", b"points"):
        with pytest.raises(ps.StaleIndexError, match="missing"):
            sidecar.load(str(index_of(path)), LocalStorage())
    assert len(ps.open(path, raw=True)) == len(PAYLOADS)
