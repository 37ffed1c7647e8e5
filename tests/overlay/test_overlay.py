"""Overlays: their files, and overlays that are damaged or forged."""

from __future__ import annotations

import json
import os
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock as ps
from overlaying import BESIDE, COUNT, file_of_ids, folder_of, keep, path_of
from penstock._core import Buffer
from penstock.limits import Limits
from penstock.overlay.file import Overlay, find


@pytest.fixture
def path(tmp_path: Path) -> str:
    """A file of COUNT records."""
    return file_of_ids(tmp_path)


def only(path: str) -> Overlay:
    (overlay,) = find(path, BESIDE, Limits())
    return overlay


def test_an_overlay_costs_only_its_bytes(path: str) -> None:
    summary = keep(path, score=np.arange(COUNT))
    assert summary.num_records == COUNT
    assert summary.paths == (f"{folder_of(path)}/new.overlay",)
    assert summary.num_bytes == os.path.getsize(summary.paths[0])
    assert 8 * COUNT < summary.num_bytes < 8 * COUNT * 1.02


def test_any_range_and_any_choice_of_values_is_read(path: str) -> None:
    texts = [str(n) * (n % 50) for n in range(COUNT)]
    keep(path, score=np.arange(COUNT), text=texts)
    overlay = only(path)
    assert len(overlay._ends) > 3, "several blocks, or nothing is tested"
    edges = [0, 1, *overlay._records.tolist()]
    edges += [edge - 1 for edge in edges if edge]
    for first in edges:
        for last in (first, first + 1, first + 20_000, COUNT):
            last = min(last, COUNT)
            batch = overlay.between(first, last, ["text", "score"])
            assert batch.column("score").to_pylist() == list(range(first, last))
            assert batch.column("text").to_pylist() == texts[first:last]
    rng = np.random.default_rng(1)
    for numbers in (rng.integers(0, COUNT, 500), np.array(edges[1:]) % COUNT, np.arange(0)):
        batch = overlay.take(numbers, ["text", "score"])
        assert batch.column("score").to_pylist() == numbers.tolist()
        assert batch.column("text").to_pylist() == [texts[n] for n in numbers]


def test_the_page_of_the_layout_is_right(path: str) -> None:
    """The file is read with struct, json and pyarrow alone, as the page describes it."""
    keep(path, score=np.arange(COUNT))
    data = Path(path_of(path, "new")).read_bytes()
    magic, version, crc, num_records, blocks, schema_bytes, facts_bytes, rest, end = struct.unpack(
        "<8sIIQQQQ12sI", data[-64:]
    )
    assert (magic, version, num_records, rest) == (b"PSFIELDS", 1, COUNT, bytes(12))
    assert Buffer.from_bytes(data[-64:-4]).crc32c() == end
    start = len(data) - 64 - facts_bytes - schema_bytes - 20 * blocks
    assert Buffer.from_bytes(data[start:-64]).crc32c() == crc
    ends = struct.unpack(f"<{blocks}Q", data[start : start + 8 * blocks])
    records = struct.unpack(f"<{blocks}Q", data[start + 8 * blocks : start + 16 * blocks])
    checksums = struct.unpack(f"<{blocks}I", data[start + 16 * blocks : start + 20 * blocks])
    facts = json.loads(data[-64 - facts_bytes : -64])
    assert facts["name"] == "new"
    assert facts["shard"]["num_bytes"] == os.path.getsize(path)
    values: list[int] = []
    for begin, stop, last, checksum in zip((0, *ends), ends, records, checksums, strict=False):
        assert Buffer.from_bytes(data[begin:stop]).crc32c() == checksum
        with pa.ipc.open_stream(data[begin:stop]) as stream:
            values += stream.read_all().column("score").to_pylist()
        assert len(values) == last
    assert values == list(range(COUNT))


def test_every_truncation_and_every_flipped_bit_is_reported(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"id": range(20)}, path)
    keep(path, score=np.arange(20) * 1.5, word=["w" * n for n in range(20)])
    place = Path(path_of(path, "new"))
    whole = place.read_bytes()
    wanted = pa.table(ps.open(path))
    # A block's checksum covers its padding too, so every flip is detected.
    for bit in range(8 * len(whole)):
        if bit % 3 and bit // 8 < len(whole) - 200:
            continue
        flipped = bytearray(whole)
        flipped[bit >> 3] ^= 1 << (bit & 7)
        place.write_bytes(flipped)
        with pytest.raises((ps.FormatError, ps.ChangedError)) as raised:
            list(ps.open(path).scan(threads=1))
        assert str(place) in str(raised.value)
        assert "penstock fields remove" in str(raised.value)
    for cut in range(len(whole)):
        place.write_bytes(whole[:cut])
        with pytest.raises(ps.FormatError, match=r"new\.overlay"):
            ps.open(path)
    place.write_bytes(whole)
    assert pa.table(ps.open(path)).equals(wanted)


def test_a_damaged_value_is_never_skipped(path: str) -> None:
    keep(path, score=np.arange(COUNT))
    place = Path(path_of(path, "new"))
    data = bytearray(place.read_bytes())
    data[len(data) * 3 // 4] ^= 1
    place.write_bytes(data)
    for damage in ("error", "stop", "skip"):
        dataset = ps.open(path, damage=damage)
        with pytest.raises(ps.ChangedError, match="have changed since they were written"):
            list(dataset.scan())
        with pytest.raises(ps.ChangedError, match="have changed since they were written"):
            dataset.take(range(COUNT - 5, COUNT))
        assert not dataset.damage
        assert dataset[0]["score"] == 0, "the first block is whole"
    report = ps.verify(path)
    assert [finding.kind for finding in report.findings] == ["overlay"]
    assert not report.ok


def forged(data: bytes, **changes: Any) -> bytes:
    """The same overlay with different facts and corrected checksums."""
    head = list(struct.unpack("<8sIIQQQQ12s", data[-64:-4]))
    _, _, _, _, blocks, schema_bytes, facts_bytes, _ = head
    start = len(data) - 64 - facts_bytes - schema_bytes - 20 * blocks
    table = np.frombuffer(data[start : start + 16 * blocks], "<i8").copy()
    checksums = bytearray(data[start + 16 * blocks : start + 20 * blocks])
    schema = data[start + 20 * blocks : start + 20 * blocks + schema_bytes]
    facts = json.loads(data[-64 - facts_bytes : -64])
    values = bytearray(data[:start])
    table[changes.get("entry", 0)] += changes.get("more", 0)
    if "schema" in changes:
        schema = changes["schema"].serialize().to_pybytes()
    facts["shard"] |= changes.get("shard", {})
    if "block" in changes:
        values = bytearray(changes["block"])
        checksums = bytearray(struct.pack("<I", Buffer.from_bytes(bytes(values)).crc32c()))
        table = np.array([len(values), table[-1]])
        head[4] = 1
    text = changes.get("text", json.dumps(facts).encode())
    contents = table.tobytes() + bytes(checksums) + schema + text
    head[2] = Buffer.from_bytes(contents).crc32c()
    head[3] += changes.get("records", 0)
    head[5:7] = [changes.get("schema_bytes", len(schema)), len(text)]
    trailer = struct.pack("<8sIIQQQQ12s", *head)
    end = struct.pack("<I", Buffer.from_bytes(trailer).crc32c())
    return bytes(values) + contents + trailer + end


def stream_of(batch: pa.RecordBatch, **options: Any) -> bytes:
    out = pa.BufferOutputStream()
    with pa.ipc.new_stream(out, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return out.getvalue().to_pybytes()


def test_forged_overlays_with_right_checksums_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.tfrecord")
    ps.write({"id": range(1000)}, path)
    batch = pa.record_batch({"score": np.arange(1000), "word": ["word"] * 1000})
    keep(path, **dict(zip(batch.schema.names, batch.columns, strict=True)))
    place = Path(path_of(path, "new"))
    whole = place.read_bytes()
    place.write_bytes(forged(whole))
    assert pa.table(ps.open(path)).num_columns == 3, "a forgery without a change is no forgery"
    words = pa.array(["word"] * 1000)
    offsets = np.frombuffer(words.buffers()[1], np.int32).copy()
    offsets[500] = 1 << 30
    wild = pa.StringArray.from_buffers(1000, pa.py_buffer(offsets), words.buffers()[2])
    beyond = pa.record_batch([batch.column(0), wild], schema=batch.schema)
    twice = pa.schema([("score", pa.int64()), ("score", pa.string())])
    changes: dict[str, dict[str, Any]] = {
        "a block ends elsewhere": {"entry": 0, "more": -8},
        "more records in the table": {"entry": 1, "more": 1},
        "more records in all": {"records": 1},
        "more records everywhere": {
            "entry": 1, "more": 1, "records": 1, "shard": {"num_records": 1001},
        },
        "another schema": {"schema": pa.schema([("score", pa.int32()), ("word", pa.string())])},
        "one name twice": {"schema": twice},
        "a schema that is none": {"schema_bytes": 4},
        "facts that are none": {"text": b"[]"},
        "facts that are no JSON": {"text": b"\xff"},
        "another shard": {"shard": {"digest": "index:00"}},
        "a block with fewer records": {"block": stream_of(batch.slice(1))},
        "a block with more records": {"block": stream_of(pa.concat_batches([batch, batch]))},
        "a block of other columns": {"block": stream_of(batch.select(["score"]))},
        "a compressed block": {"block": stream_of(batch, compression="zstd")},
        "a block that points outside": {"block": stream_of(beyond)},
        "a block of nothing": {"block": b"\0" * 64},
    }  # fmt: skip
    for name, change in changes.items():
        place.write_bytes(forged(whole, **change))
        with pytest.raises((ps.FormatError, ps.ChangedError, ps.StaleIndexError)) as raised:
            list(ps.open(path).scan(threads=1))
        assert path in str(raised.value) or folder_of(path) in str(raised.value), name
    rng = random.Random(1)
    for _ in range(300):
        trailer = bytearray(whole[-64:-4])
        trailer[rng.randrange(8, 60)] = rng.randrange(256)
        end = struct.pack("<I", Buffer.from_bytes(bytes(trailer)).crc32c())
        place.write_bytes(whole[:-64] + trailer + end)
        try:
            assert pa.table(ps.open(path)).num_rows == 1000
        except ps.FormatError:
            pass


def test_limits_hold_for_overlays(path: str) -> None:
    keep(path, score=np.arange(COUNT))
    for name, most in (("footer_bytes", 100), ("batch_bytes", 100_000)):
        with pytest.raises(ps.LimitError, match=name):
            ps.open(path, limits={name: most})


def test_an_overlay_that_is_replaced_while_it_is_read_is_reported(path: str) -> None:
    keep(path, score=np.arange(COUNT))
    dataset = ps.open(path)
    keep(path, overwrite=True, score=np.arange(COUNT) + 1)
    with pytest.raises(ps.ChangedError, match="was replaced while it was open"):
        dataset.take([1])
    assert ps.open(path)[1] == {"id": 1, "score": 2}


@pytest.mark.skipif(
    not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux lists them"
)
def test_many_shards_hold_few_overlays_open(tmp_path: Path) -> None:
    ps.write({"id": range(300)}, tmp_path / "a.tfrecord", num_shards=150)
    keep(ps.open(tmp_path), score=np.arange(300))
    dataset = ps.open(tmp_path)
    assert pa.table(dataset).column("score").to_pylist() == list(range(300))
    links = [os.path.join("/proc/self/fd", number) for number in os.listdir("/proc/self/fd")]
    held = [os.readlink(link) for link in links if os.path.islink(link)]
    folder = str(tmp_path)
    assert sum(name.startswith(folder) and name.endswith(".overlay") for name in held) <= 64
    assert dataset.take([299, 0, 150]).column("score").to_pylist() == [299, 0, 150]
