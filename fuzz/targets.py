"""The targets. Each takes the bytes of a hostile file, and returns or raises an allowed error.

If another implementation exists (a plain parser, Python's zlib), the target runs it too: if both accept the data, the
results must be the same.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any
from unittest import mock

import pyarrow as pa

import penstock as ps
from fuzz import (
    arrays,
    beside,
    beton,
    hdf5,
    hdf5_chunks,
    images,
    indexes,
    loader_state,
    manifests,
    messages,
    msgpack_values,
    neighbours,
    recordio,
    seeds,
    takes,
    tensor_images,
    webdataset,
)
from fuzz.lies import Lie, json_text, own, tables
from fuzz.lies import framed as lies
from fuzz.lies import messages as message_lies
from fuzz.tfrecords import FRAMING, framed, masked
from penstock import _core
from penstock.formats.arrow import format as arrow_format
from penstock.framing.framings import TFRECORD
from penstock.framing.index import fitting, sidecar
from penstock.payloads.example.inference import looks_like_examples
from penstock.payloads.example.plans import DecodePlan, plan_fields
from penstock.storage import MemoryStorage

ALLOWED = (_core.KernelError, ps.PenstockError)
MOST_BYTES = 4 << 20
_CASTAGNOLI = [
    reduce(lambda state, _: state >> 1 ^ 0x82F63B78 * (state & 1), range(8), byte)
    for byte in range(256)
]


@dataclass(frozen=True)
class Target:
    """A parser under test."""

    run: Callable[[bytes, random.Random], None]
    seeds: Callable[[], list[bytes]]
    lies: tuple[Lie, ...] = ()
    """Mutators that know the format: the changed files still have correct checksums, or are deeply nested."""
    bombs: str = ""
    """The names of the `bombs` that are files for this target."""


def walk(data: bytes, rng: random.Random) -> None:
    """Frames of a window: found, verified, viewed, found again through an index, searched for."""
    window = _core.Buffer.from_bytes(data)
    limit = rng.choice((1 << 30, 1 << 62, 100))
    found, consumed, need, fault = _core.walk("tfrecord", window, 0, limit)
    at = 0
    payloads = []
    while len(data) - at >= 12:
        (length,) = struct.unpack_from("<Q", data, at)
        if length > limit or length + FRAMING > len(data) - at:
            break
        if masked(data[at : at + 8]) != struct.unpack_from("<I", data, at + 8)[0]:
            break
        payloads.append(data[at + 12 : at + 12 + length])
        at += length + FRAMING
    assert (len(found), consumed) == (len(payloads), at)
    assert at < len(data) or (need == 0 and fault is None)
    assert pa.array(found.views()).to_pylist() == payloads
    stored = pa.array(found.checksums())
    wrong = [n for n, p in enumerate(payloads) if masked(p) != stored[n].as_py()]
    assert [f.record for f in found.verify(stored)] == wrong
    starts = pa.array(found.starts())
    sizes = pa.array([len(p) + FRAMING for p in payloads], pa.uint64())
    again = _core.frames_at("tfrecord", window, starts, sizes, starts)
    assert len(again) == len(payloads)
    anywhere = pa.array([rng.getrandbits(rng.choice((4, 10, 64))) for _ in range(3)], pa.uint64())
    place = _core.next_head("tfrecord", window, rng.randrange(len(data) + 2))
    assert place is None or place[0] + 12 <= len(data)
    _core.frames_at("tfrecord", window, anywhere, anywhere, anywhere)


_SCHEMAS = (
    pa.schema([("id", pa.int64()), ("name", pa.binary()), ("score", pa.float32())]),
    pa.schema([("ids", pa.list_(pa.int64())), ("blob", pa.list_(pa.binary()))]),
    pa.schema(
        [("neg", pa.list_(pa.int64())), ("f", pa.list_(pa.float32())), ("name", pa.string())]
    ),
)
_PLANS = [DecodePlan(plan_fields(s), d) for s in _SCHEMAS for d in ("protobuf", "tensorflow")]


def example(data: bytes, rng: random.Random) -> None:
    """An Example: its schema is inferred, and it is decoded by a plan of either dialect."""
    window = _core.Buffer.from_bytes(framed(data) + framed(b""))
    frames = _core.walk("tfrecord", window, 0, 1 << 30)[0]
    facts = frames.infer()
    assert facts["num_records"] == 2
    looks_like_examples(facts)
    batch = rng.choice(_PLANS).decode(frames)
    assert batch.num_rows == 2
    batch.validate(full=True)


_FRESH = pa.record_batch({"fresh": pa.array([7, 8], pa.int64())})


def splice(data: bytes, rng: random.Random) -> None:
    """Fields of an Example added, dropped and renamed; fields that no edit names must not change."""
    kind = rng.choice(("example", "sequence"))
    damaged = rng.random() < 0.2
    frame = framed(data)
    frame = frame[:-1] + bytes([frame[-1] ^ 1]) if damaged else frame
    frames = _walked(frame + framed(b""))
    if damaged:
        # Without verification, the field is added to the damaged payload, whose checksum stays
        # wrong.
        new = _spliced(frames, _FRESH, "example", replace=False, verify=False)
        assert new.payload(0)[: len(data)] == data
        assert [fault.record for fault in new.verify()] == [0]
        return
    before = _untouched(frames)
    added = _spliced(frames, _FRESH, kind, verify=rng.random() < 0.5)
    assert added.payload(0)[: len(data)] == data
    assert (
        pa.record_batch(_core.has_fields(added, ["fresh"], kind)).column(0).to_pylist()
        == [True] * 2
    )
    assert _untouched(added) == before
    gone = _spliced(added, None, kind, drop=["fresh"])
    assert gone.payload(0) == (data or b"\x0a\x00")
    fewer = _spliced(frames, None, kind, drop=["name"], rename=[("neg", "longer name")])
    left = pa.record_batch(_core.has_fields(fewer, ["name", "neg"], kind))
    assert left.to_pylist() == [{"name": False, "neg": False}] * 2
    assert before in (None, _untouched(fewer))


def _walked(data: bytes) -> _core.Frames:
    return _core.walk("tfrecord", _core.Buffer.from_bytes(data), 0, 1 << 30)[0]


def _spliced(frames: _core.Frames, fields: Any, kind: str, **how: Any) -> _core.Frames:
    framed, _ = _core.splice_fields(frames, fields, kind, **how)
    found, consumed, _, fault = _core.walk("tfrecord", framed.data, 0, 1 << 30)
    assert (len(found), consumed, fault) == (len(frames), len(framed.data), None)
    assert pa.array(found.checksums()) == pa.array(framed.checksums)
    assert pa.array(found.lengths()).to_pylist() == [
        length - FRAMING for length in pa.array(framed.lengths).to_pylist()
    ]
    assert how.get("verify", True) is False or not found.verify()
    return found


def _untouched(frames: _core.Frames) -> str | None:
    """The fields that no edit names, or None if they cannot be read."""
    try:
        batch = _PLANS[2].decode(frames)
    except ALLOWED:
        return None
    # NaN is not equal to itself, so the texts are compared.
    return str(batch.to_pylist())


def inflate(data: bytes, rng: random.Random) -> None:
    """A gzip or zlib file, in pieces of any size; the result must equal that of Python's zlib."""
    container = "zlib" if data[:1] == b"\x78" else "gzip"
    inflater = _core.Inflater(container, rng.choice((0, 1 << 10)))
    at = 0
    parts: list[bytes] = []
    size = 0
    while not inflater.finished and size < MOST_BYTES:
        step = rng.choice((1, 7, 100, 1 << 16))
        piece = data[at : at + step]
        window = _core.Buffer.from_bytes(piece)
        part, consumed = inflater.push(window, at + step >= len(data), rng.choice((1, 50, 1 << 16)))
        parts.append(part.to_bytes())
        size += len(part)
        at += consumed
        assert len(part) or consumed or at + step < len(data) or inflater.finished, "stands still"
    if inflater.finished:
        assert b"".join(parts) == _by_zlib(data, 15 if container == "zlib" else 31)


def _by_zlib(data: bytes, window_bits: int) -> bytes:
    plain = b""
    while data:
        one = zlib.decompressobj(window_bits)
        plain += one.decompress(data, MOST_BYTES * 2)
        assert one.eof, "we came to the end of what zlib finds cut"
        data = one.unused_data
    return plain


def checksums(data: bytes, rng: random.Random) -> None:
    """CRC-32C of some bytes, in one call and in pieces; it must equal the checksum computed byte by byte."""
    cut = rng.randrange(len(data) + 1)
    head, tail = _core.Buffer.from_bytes(data[:cut]), _core.Buffer.from_bytes(data[cut:])
    state = 0xFFFFFFFF
    for byte in data:
        state = state >> 8 ^ _CASTAGNOLI[(state ^ byte) & 0xFF]
    want = state ^ 0xFFFFFFFF
    assert _core.Buffer.from_bytes(data).crc32c() == tail.crc32c(head.crc32c()) == want


def member(data: bytes, rng: random.Random) -> None:
    """A gzip member inflated whole, at the position that an index gives."""
    start = rng.choice((0, 0, 0, 5, len(data) + 1))
    _core.member_head(_core.Buffer.from_bytes(data), start)
    plain = _core.inflate_member(
        _core.Buffer.from_bytes(data), start, len(data) - min(start, len(data)), MOST_BYTES
    )
    assert len(plain) <= MOST_BYTES


def index(data: bytes, rng: random.Random) -> None:
    """A sidecar, half of the time with correct checksums, and the records read through it."""
    if rng.random() < 0.7:
        data = indexes.sealed(data)
    storage = MemoryStorage({"a.penstock": data})
    found = sidecar.load("a.penstock", storage)  # type: ignore[arg-type]
    source = storage.source("a.penstock")
    fitting.fits(found, source, TFRECORD)  # type: ignore[arg-type]
    if rng.random() < 0.03:
        # Each run builds an index again and syncs it to the disk.
        name = rng.choice(("plain", "gzip"))
        _read_through(data, name, rng)


def _read_through(forged: bytes, name: str, rng: random.Random) -> None:
    path, payloads = seeds.indexed_file(name)
    with open(sidecar.path_for(path, seeds.folder()), "wb") as file:
        file.write(forged)
    dataset = ps.open(path, raw=True, index=seeds.folder())
    known = set(payloads)
    for batch in dataset.scan(threads=1):
        assert set(batch.column(0).to_pylist()) <= known
    for number in (0, 3, rng.randrange(len(payloads))):
        if number < len(dataset):
            assert dataset[number]["record"] in known


def opened(name: str, data: bytes, **options: Any) -> None:
    storage = MemoryStorage({name: data})
    dataset = ps.open(name, storage=storage, index="never", **options)  # type: ignore[arg-type]
    found = 0
    for batch in dataset.scan(threads=1):
        batch.validate(full=True)
        found += batch.num_rows
        if found > 1 << 21:  # there can be huge numbers of records without bytes
            return


def tfrecord(data: bytes, rng: random.Random) -> None:
    """A whole TFRecord file through `open` and `scan`, in any damage mode, with or without checksums, or through
    `repair` with salvage."""
    if rng.random() < 0.25:
        storage = MemoryStorage({"a.tfrecord": data})
        ps.repair(
            "a.tfrecord", into="b.tfrecord", salvage=True, index=False, storage=storage, threads=1
        )
        return
    damage = rng.choice(("error", "stop", "skip"))
    checksums = rng.choice(("all", "all", "headers", "none"))
    opened("a.tfrecord", data, damage=damage, checksums=checksums, raw=rng.random() < 0.5)


def parquet(data: bytes, rng: random.Random) -> None:
    """A whole Parquet file."""
    opened("a.parquet", data, damage=rng.choice(("error", "skip")))


def arrow(data: bytes, rng: random.Random) -> None:
    """A whole Arrow IPC file or stream; half of the time its batches are treated as large."""
    part_bytes = rng.choice((arrow_format.PART_BYTES, 200))
    with mock.patch.object(arrow_format, "PART_BYTES", part_bytes):
        opened("a.arrow", data, damage=rng.choice(("error", "skip")))


def sniff(data: bytes, rng: random.Random) -> None:
    """Detecting the format of any bytes."""
    from penstock import formats

    formats.by_bytes(data[:4096], max(len(data), 1), rng.choice(("x", "x.parquet", "x.tfrecord")))


TARGETS = {
    "walk": Target(walk, seeds.tfrecords, lies=(lies.tfrecord,)),
    "example": Target(example, seeds.examples, lies=(message_lies.message,)),
    "splice": Target(splice, seeds.examples, lies=(message_lies.message,)),
    "checksums": Target(checksums, seeds.compressed),
    "inflate": Target(inflate, seeds.compressed, lies=(lies.inflated,), bombs="tfrecords"),
    "member": Target(member, seeds.compressed, lies=(lies.inflated,), bombs="tfrecords"),
    "index": Target(index, seeds.sidecars, lies=(own.index,)),
    "tfrecord": Target(tfrecord, seeds.files, lies=(lies.inflated,), bombs="tfrecords"),
    "take": Target(takes.taken, takes.files, lies=(lies.tfrecord,)),
    "sniff": Target(sniff, seeds.everything, lies=(lies.inflated, tables.arrow, tables.parquet)),
    "parquet": Target(parquet, seeds.parquets, lies=(tables.parquet,), bombs="parquets"),
    "manifest": Target(manifests.manifest, manifests.manifests, lies=(tables.parquet,)),
    "arrow": Target(arrow, seeds.arrows, lies=(tables.arrow,), bombs="arrows"),
    "npy": Target(arrays.npy_header, arrays.npy_files, lies=(tables.npy,)),
    "npz": Target(arrays.npz, arrays.npz_files, lies=(tables.npz,), bombs="npzs"),
    "msgpack": Target(
        msgpack_values.run, msgpack_values.seeded, lies=(lies.msgpack,), bombs="msgpacks"
    ),
    "msgpack_file": Target(
        msgpack_values.opened, msgpack_values.seeded, lies=(lies.msgpack,), bombs="msgpacks"
    ),
    "beton": Target(beton.read, beton.seeds, lies=(tables.beton,)),
    "webdataset": Target(webdataset.read, webdataset.seeds, lies=(lies.tar,), bombs="tars"),
    "hdf5": Target(hdf5.read, hdf5.files, lies=(tables.hdf5,), bombs="hdf5"),
    "hdf5_chunks": Target(hdf5_chunks.unpacked, hdf5_chunks.chunks),
    "jpeg": Target(images.decoded, images.jpegs),
    "jpeg_ways": Target(images.both_ways, images.baseline_jpegs),
    "png": Target(images.resealed, images.pngs, bombs="pngs"),
    "webp": Target(images.decoded, images.webps),
    "ppm": Target(images.decoded, images.ppms),
    "other_images": Target(images.decoded, images.others, bombs="pictures"),
    "masks": Target(images.masked, images.masks, bombs="pictures"),
    "train_images": Target(images.looked_at, images.seen, bombs="pictures"),
    "tensor_images": Target(tensor_images.decoded, tensor_images.seeds, bombs="pictures"),
    "mds": Target(
        neighbours.mds, neighbours.shards, lies=(tables.mds, tables.mds_config), bombs="mds"
    ),
    "listing": Target(neighbours.listing, neighbours.listings, lies=(json_text,)),
    "arrayrecord": Target(
        neighbours.arrayrecord,
        neighbours.array_records,
        lies=(lies.array_record,),
        bombs="array_records",
    ),
    "riegeli": Target(neighbours.riegeli, neighbours.chunk_data),
    "recordio": Target(recordio.walk, recordio.files, lies=(lies.recordio,)),
    "recordio_pack": Target(recordio.pack, recordio.packs),
    "recordio_file": Target(recordio.file, recordio.files, lies=(lies.recordio,)),
    "loader_state": Target(loader_state.load, loader_state.states, lies=(json_text,)),
    "overlay": Target(beside.overlay, beside.overlays, lies=(own.overlay,)),
    "note": Target(beside.note, beside.notes, lies=(json_text,)),
    "rewrite_journal": Target(beside.rewritten, beside.rewrite_journals, lies=(json_text,)),
    "convert_journal": Target(beside.converted, beside.convert_journals, lies=(json_text,)),
    "cache": Target(beside.cached, beside.caches, lies=(beside.cache_lie,)),
    "messages": Target(messages.parsed, seeds.examples, lies=(message_lies.message,)),
}
